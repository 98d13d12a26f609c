"""Programs that run the command given in their own words: their options, and where that command begins."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from surehand.core.frozen import frozen
from surehand.shell import options
from surehand.shell.options import Parsed, names
from surehand.shell.word import Word

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.ASCII | re.DOTALL)


@frozen
class Wrapper:
    """How a wrapper reads its words: options, then assignments or `operands` words of its own, then the command.

    `alters` says why it is no read even when what it runs is one; empty for those that only time or prioritise.
    """

    flags: str
    operands: int = 0
    assigns: bool = False
    alters: str = ""
    adds_words: bool = False  # words from elsewhere are appended to the command
    as_script: str = ""  # option whose value is a script ("-c"), or "*" when the words are joined into one
    directory: tuple[str, ...] = ()  # options that change the directory


_SUDO = (
    "-A -b -E -H -n -P -S -k -B -N -u: -g: -h: -p: -C: -r: -t: -T: -U: --askpass --background --preserve-env? "
    "--set-home "
    "--non-interactive --stdin --user: --group: --host: --prompt: --close-from: --role: --type: --command-timeout: "
    "--reset-timestamp --bell -D: --chdir:"
)
_XARGS = (
    "-0 -r -t -x -p -o -n: -P: -L: -l? -I: -i? -d: -E: -e? -s: --null --no-run-if-empty --verbose --exit "
    "--max-args: "
    "--max-procs: --max-lines? --replace? --delimiter: --eof? --max-chars: --interactive --open-tty "
    "--process-slot-var:"
)

WRAPPERS: dict[str, Wrapper] = {
    "env": Wrapper(
        "-i -0 -v --ignore-environment --null --debug -u: --unset: -C: --chdir: --block-signal? --default-signal? "
        "--ignore-signal?",
        assigns=True,
        directory=("-C", "--chdir"),
    ),
    "sudo": Wrapper(_SUDO, assigns=True, alters="runs as another user", directory=("-D", "--chdir")),
    "doas": Wrapper("-n -L -u: -C:", alters="runs as another user"),
    "nohup": Wrapper("", alters="writes nohup.out and outlives the session"),
    "timeout": Wrapper("-v -k: -s: --verbose --foreground --preserve-status --kill-after: --signal:", operands=1),
    "nice": Wrapper("-n: --adjustment: -#"),
    "ionice": Wrapper("-c: -n: -t --class: --classdata: --ignore"),
    "chrt": Wrapper("-b -f -i -o -r -d -v --batch --fifo --idle --other --rr --verbose", operands=1, alters="priority"),
    "taskset": Wrapper("-c --cpu-list", operands=1),
    "stdbuf": Wrapper("-i: -o: -e: --input: --output: --error:"),
    "setsid": Wrapper("-c -f -w --ctty --fork --wait", alters="leaves the process group"),
    "time": Wrapper("-p -v --portability --verbose -f: --format:"),
    "command": Wrapper("-p"),
    "builtin": Wrapper(""),
    "exec": Wrapper("-c -l -a:", alters="replaces the shell"),
    "chroot": Wrapper("--userspec: --groups: --skip-chdir", operands=1, alters="runs under another root"),
    "fakeroot": Wrapper("", alters="runs under fakeroot"),
    "unshare": Wrapper(
        "-i -m -n -p -u -U -C -T -f -r -c -R: -w: -S: -G: --ipc? --mount? --net? --pid? --uts? --user? --cgroup? "
        "--time? "
        "--fork --map-root-user --map-current-user --mount-proc? --kill-child? --root: --wd: --setuid: --setgid:",
        alters="runs in other namespaces",
    ),
    "flock": Wrapper(
        "-n -x -s -e -u -o -F -w: -E: --nonblock --exclusive --shared --unlock --close --no-fork --timeout: "
        "--wait: --conflict-exit-code: --verbose",
        operands=1,
        alters="takes a lock",
        as_script="-c",
    ),
    "strace": Wrapper(
        "-f -ff -c -C -q -r -t -T -v -x -y -i -k -e: -s: -a: -o: -O: -S: -P: -b: -u: -E: --follow-forks --output: "
        "--trace: --string-limit:",
        alters="traces a program",
    ),
    "ltrace": Wrapper("-f -c -C -i -r -t -T -S -e: -s: -a: -n: -l: -u: -o:", alters="traces a program"),
    "setarch": Wrapper("-R -v --addr-no-randomize", operands=1, alters="changes the personality"),
    "setpriv": Wrapper("--no-new-privs --reuid: --regid: --clear-groups --init-groups", alters="changes rights"),
    "runuser": Wrapper("-l -m -p -u: -s: -g: --login --user: --group:", alters="runs as another user", as_script="-c"),
    "su": Wrapper("-l -m -p -s: -g: --login --preserve-environment", alters="runs as another user", as_script="-c"),
    "script": Wrapper("-q -a -e -f --quiet --append --return --flush", alters="writes a transcript", as_script="-c"),
    "xargs": Wrapper(_XARGS, adds_words=True),
    "watch": Wrapper(
        "-n: -d? -t -b -e -g -c -p -x --exec --interval: --differences? --no-title --beep --errexit --chgexit "
        "--color --precise",
        alters="runs again and again",
        as_script="*",
    ),
    "entr": Wrapper("-a -c -d -n -p -r -z", alters="runs when files change", adds_words=True),
    "busybox": Wrapper("", alters="runs an applet"),
    "toybox": Wrapper("", alters="runs an applet"),
    "unbuffer": Wrapper("-p", alters="runs on a terminal"),
    "rlwrap": Wrapper("", alters="runs on a terminal"),
    "catchsegv": Wrapper("", alters="traces a program"),
    "systemd-run": Wrapper(
        "-q -G -d -P -t -p: -u: -E: --user --system --scope --quiet --wait --pipe --pty --collect --unit: --property: "
        "--setenv: --working-directory: --slice:",
        alters="starts a service",
    ),
    "systemd-inhibit": Wrapper("--what: --who: --why: --mode: --no-pager --list", alters="holds the system awake"),
    "dbus-run-session": Wrapper("--dbus-daemon: --config-file:", alters="starts a message bus"),
    "xvfb-run": Wrapper("-a -l -e: -f: -n: -p: -s: -w: --auto-servernum --server-args:", alters="starts a display"),
    "nsenter": Wrapper(
        "-a -F -m? -u? -i? -n? -p? -C? -U? -T? -t: -S: -G: -r? -w? -W? -Z --all --target: --mount? --uts? --ipc? "
        "--net? --pid? --cgroup? --user? --time? --root? --wd? --no-fork --preserve-credentials",
        alters="runs in other namespaces",
    ),
    "prlimit": Wrapper(
        "-v? -n? -u? -c? -d? -e? -f? -i? -l? -m? -q? -r? -s? -t? -x? -y? --as? --nofile? --nproc? --core? --cpu? "
        "--data? --fsize? --memlock? --rss? --stack?",
        alters="changes limits",
    ),
    "choom": Wrapper("-n: --adjust:", alters="changes limits"),
    "numactl": Wrapper("-l -a -N: -m: -C: -i: -p: --localalloc --cpunodebind: --membind: --physcpubind: --interleave:"),
    "cpulimit": Wrapper("-b -f -i -z -m -q -v -l: -c: --limit: --foreground --include-children", alters="stops it"),
    "firejail": Wrapper("--quiet --noprofile --private? --net: --profile: --seccomp? --noroot", alters="starts a jail"),
    **dict.fromkeys(
        ("linux32", "linux64", "i386", "i686", "x86_64", "uname26"),
        Wrapper("-R -v --addr-no-randomize", alters="changes the personality"),
    ),
    "caffeinate": Wrapper("-d -i -m -s -u -t: -w:", alters="keeps the machine awake"),
    "proxychains": Wrapper("-q -f:", alters="redirects the network"),
    "torsocks": Wrapper("", alters="redirects the network"),
}
SHELLS = names("bash sh dash zsh ksh mksh ash rbash fish tcsh csh yash")
_LOADER = re.compile(r"ld-linux.*\.so\.\d+|ld-musl-.*\.so\.\d+|ld\.so(\.\d+)?|ld-\d.*\.so")
LOADER = Wrapper(
    "--library-path: --preload: --inhibit-cache --argv0: --inhibit-rpath: --audit:", alters="runs through the loader"
)


@dataclass(slots=True)
class Unwrapped:
    """What a wrapper runs: the words of a command or the text of a script."""

    words: tuple[Word, ...] = ()
    script: Word | None = None
    assigns: tuple[tuple[str, Word], ...] = ()
    directory: Word | None = None
    problem: str = ""


def wrapper_of(name: str) -> Wrapper | None:
    """Return how the named program wraps a command, `None` for one that does not."""
    if name in WRAPPERS:
        return WRAPPERS[name]
    return LOADER if name.startswith("ld") and _LOADER.fullmatch(name) else None


def unwrap(name: str, wrapper: Wrapper, words: Sequence[Word]) -> Unwrapped:
    """Find the command in the words after the wrapper's name; a word that is not understood is a problem."""
    given = list(words)
    if name == "env":
        given, problem = _split_strings(given)
        if problem:
            return Unwrapped(problem=problem)
    script, given = _script_option(wrapper, given)
    parsed = options.parse(given, options.flags(wrapper.flags), permute=False)
    if parsed.unknown:
        return Unwrapped(problem=f"`{name}` with the option {parsed.unknown[0].text!r} is not understood")
    inner = parsed.operands or given[parsed.used :]
    if script is not None and not wrapper.operands:
        return Unwrapped(script=script)
    found = _command(name, wrapper, parsed, inner)
    found.script = found.script or script  # `flock file curl -c jar`: both readings are judged
    return found


def _command(name: str, wrapper: Wrapper, parsed: Parsed, inner: list[Word]) -> Unwrapped:
    assigns: list[tuple[str, Word]] = []
    if name == "env" and inner and inner[0].text == "-":  # the same as `-i`
        inner = inner[1:]
    while wrapper.assigns and inner and (hit := _ASSIGNMENT.match(inner[0].text if inner[0].literal else "")):
        assigns.append((hit[1], Word(hit[2])))
        inner = inner[1:]
    own, inner = inner[: wrapper.operands], inner[wrapper.operands :]
    if any(not word.literal for word in own):
        return Unwrapped(problem=f"a word before the command of `{name}` is not literal")
    directory = next(iter(parsed.values(*wrapper.directory)), None) if wrapper.directory else None
    if wrapper.as_script == "*" and inner:
        if any(not word.literal for word in inner):
            return Unwrapped(problem=f"`{name}` joins words that are not literal into a script")
        return Unwrapped(script=Word(" ".join(word.text for word in inner)))
    return Unwrapped(tuple(inner), assigns=tuple(assigns), directory=directory)


def _script_option(wrapper: Wrapper, words: list[Word]) -> tuple[Word | None, list[Word]]:
    """Take `-c SCRIPT` out of the words of a wrapper that has it."""
    if wrapper.as_script not in ("-c",):
        return None, words
    for index, word in enumerate(words):
        if re.fullmatch(r"-[A-Za-z]*c|--command", word.text) and index + 1 < len(words):
            return words[index + 1], words[:index] + words[index + 2 :]
        if word.text.startswith("--command="):
            return Word(word.text.partition("=")[2], word.kind), words[:index] + words[index + 1 :]
        if word.text.startswith("-c"):
            return Word(word.text[2:], word.kind), words[:index] + words[index + 1 :]
    return None, words


def _split_strings(words: list[Word]) -> tuple[list[Word], str]:
    """Undo `env -S 'a b'` where the string is plain words; anything that `env` would expand in it is a problem."""
    for index, word in enumerate(words):
        if not word.text.startswith("-"):
            break
        text = _split_string_of(word, words[index + 1 : index + 2])
        if text is None:
            continue
        value, used = text
        if not value.literal or re.search(r"[\\'\"$#]", value.text):
            return words, "`env -S` with quotes or expansions is not understood"
        made = [Word(part) for part in value.text.split()]
        return words[:index] + made + words[index + used :], ""
    return words, ""


def _split_string_of(word: Word, following: list[Word]) -> tuple[Word, int] | None:
    if word.text.startswith("--split-string="):
        return Word(word.text.partition("=")[2], word.kind), 1
    if word.text.startswith("--s") and "--split-string".startswith(word.text) and following:
        return following[0], 2
    letters = word.text[1:].partition("S")
    if word.text.startswith("--") or not letters[1] or letters[0].strip("iv0"):
        return None
    if letters[2]:
        return Word(letters[2], word.kind), 1
    return (following[0], 2) if following else None
