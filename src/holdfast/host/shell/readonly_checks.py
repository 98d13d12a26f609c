"""Reads that need more than a table: programs with a language of their own, or with subcommands."""

from __future__ import annotations

import re
from collections.abc import Sequence

from holdfast.host.shell import awk, find, options, sed
from holdfast.host.shell.options import names
from holdfast.host.shell.programs import find_roots
from holdfast.host.shell.readonly_archives import ARCHIVE_CHECKS
from holdfast.host.shell.readonly_git import FORMS, GLOBAL
from holdfast.host.shell.readonly_git import READ_ONLY as GIT
from holdfast.host.shell.readonly_table import READ_ONLY
from holdfast.host.shell.verdict import Check, Verdict, by_table
from holdfast.host.shell.word import Word

# Variables that programs or the shell itself heed: they may be exported already, so that setting one is no matter of
# this script alone. Every other name is.
_HEEDED = (
    r"(?:BASH|GIT|LD|DYLD|LC|LANG|HIST|PS\d|PROMPT|PYTHON|PERL|RUBY|NODE|NPM|npm|JAVA|PIP|LESS|MAN|MAGIC|TAR|TAPE|GZIP|"
    r"ZIP|UNZIP|BAT|EXA|TREE|RIPGREP|GREP|LS_|AWK|GAWK|JQ|BC|POSIX|TMP|TEMP|TIME|TZ|OPT|SHELL|EXEC|GLOB|MAIL|SSH|GPG|"
    r"XDG|DOCKER|CARGO|RUST|GO|MALLOC|GCONV|LOCPATH|NLS|TERM|RES|SYSTEMD|DEB|APT|DPKG|HOLDFAST|COMP|COPROC|FUNC|REPLY|"
    r"DIRSTACK|SECONDS|RANDOM|HOSTALIASES|CHILD).*"
    r"|.*(?:PAGER|EDITOR|PROXY|proxy|PATH|OPTS|OPTIONS|FLAGS|CONFIG|HOME|RC|ENV|IFS|VISUAL|BROWSER|TMOUT|FIGNORE|USER|PWD)"
)
SHELL_VARIABLE = re.compile(rf"(?!(?:{_HEEDED})$)[A-Za-z][A-Za-z0-9_]*", re.ASCII)

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_PRINTF_ASSIGNS = re.compile(r"%[-#0 +'0-9.*]*n")


def _find(words: Sequence[Word]) -> Verdict:
    if problem := find.problem(words):
        return Verdict(problem)
    picked = find.named(words) if any(word.text == "-exec" for word in words) else []
    return Verdict(reads=(*find_roots(words), *picked), recursive=True)


_SED = options.flags(
    "-nrEsuz -e: -l: --quiet --silent --expression: --regexp-extended --separate --unbuffered --null-data --posix "
    "--sandbox --debug --line-length: @filter"
)


def _sed(words: Sequence[Word]) -> Verdict:
    parsed = options.parse(words, _SED)
    if parsed.unknown:
        return Verdict(f"`sed {parsed.unknown[0].text}` is not known to only read")
    scripts = parsed.values("-e", "--expression")
    files = parsed.operands if scripts else parsed.operands[1:]
    for script in scripts or parsed.operands[:1]:
        if not script.literal:
            return Verdict(f"the script of `sed` is not literal: {script.text}", unreadable=True)
        if not parsed.has("--sandbox") and not sed.reads_only(script.text):
            return Verdict("the script of `sed` is not known to only read")
    return _files("sed", files)


_AWK = options.flags("-F: -v: --field-separator: --assign: --sandbox --posix --traditional --re-interval -S -P @filter")


def _awk(words: Sequence[Word]) -> Verdict:
    parsed = options.parse(words, _AWK, permute=False)
    rest = parsed.operands or list(words[parsed.used :])
    if parsed.unknown or not rest:
        return Verdict("`awk` with these options is not known to only read")
    if any(value.kind == "opaque" for _, value in parsed.options if value is not None):
        return Verdict("an option of `awk` is not literal", unreadable=True)
    if not rest[0].literal or not awk.reads_only(rest[0].text):
        return Verdict("the program of `awk` is not known to only read", unreadable=not rest[0].literal)
    return _files("awk", [word for word in rest[1:] if not re.match(r"[A-Za-z_]\w*=", word.text)])


def _files(name: str, files: Sequence[Word]) -> Verdict:
    for word in files:
        if word.kind == "opaque":
            return Verdict(f"a word of `{name}` is not literal: {word.text}", unreadable=True)
        if word.may_be_flag and not word.literal:
            return Verdict(f"`{name} {word.text}` could be an option")
    return Verdict(reads=tuple(word for word in files if word.text != "-"))


_UNARY_TESTS = names("-a -b -c -d -e -f -g -h -k -p -r -s -t -u -w -x -G -L -N -O -S -z -n -o")
_BINARY_TESTS = names("= == != < > -eq -ne -lt -le -gt -ge -nt -ot -ef")


def _test(words: Sequence[Word]) -> Verdict:
    if any(word.literal and word.text in ("-v", "-R") for word in words):
        return Verdict("`test -v` evaluates a subscript in its operand", unreadable=True)
    if all(word.kind != "opaque" for word in words):
        return Verdict()
    inner = [word for word in words if word.text != "!"]
    literal = [word.text if word.literal else "" for word in inner]
    if len(inner) == 1 or (len(inner) == 2 and literal[0] in _UNARY_TESTS):
        return Verdict()
    if len(inner) == 3 and literal[1] in _BINARY_TESTS:
        return Verdict()
    return Verdict("a test of words that are not literal", unreadable=True)


def _bracket(words: Sequence[Word]) -> Verdict:
    if not words or words[-1].text != "]":
        return Verdict("`[` without its `]`")
    return _test(words[:-1])


def _printf(words: Sequence[Word]) -> Verdict:
    if not words:
        return Verdict()
    form = words[1] if words[0].text == "--" and len(words) > 1 else words[0]
    if form.text.startswith("-v") and words[0].text != "--":
        return Verdict("`printf -v` evaluates a subscript in a name", unreadable=True)
    if form.kind != "literal" or _PRINTF_ASSIGNS.search(form.text):
        return Verdict("the format of `printf` is not a plain one", unreadable=True)
    return Verdict()


def _read(words: Sequence[Word]) -> Verdict:
    parsed = options.parse(words, options.flags("-res -a: -d: -i: -n: -N: -p: -t: -u:"))
    given = [*parsed.operands, *parsed.values("-a")]
    if parsed.unknown or any(not word.literal or not SHELL_VARIABLE.fullmatch(word.text) for word in given):
        return Verdict("`read` into a name that is not a plain one", unreadable=True)
    return Verdict()


def _unset(words: Sequence[Word]) -> Verdict:
    if all(word.literal and SHELL_VARIABLE.fullmatch(word.text) for word in words):
        return Verdict()
    return Verdict("`unset` evaluates a subscript in a name, or forgets one that programs heed", unreadable=True)


def _set(words: Sequence[Word]) -> Verdict:
    plain = re.compile(r"[-+][euxo]+|pipefail|errexit|nounset|xtrace")
    if words and all(word.literal and plain.fullmatch(word.text) for word in words):
        return Verdict()
    return Verdict("`set` prints or changes the state of the shell")


def _shown_limit(words: Sequence[Word]) -> Verdict:
    """Judge `umask` and `ulimit`, which tell a value when none is given."""
    if all(word.literal and re.fullmatch(r"-[A-Za-z]+", word.text) for word in words):
        return Verdict()
    return Verdict("it changes a limit of the shell")


def _printenv(words: Sequence[Word]) -> Verdict:
    if any(word.literal and _IDENTIFIER.fullmatch(word.text) for word in words):
        return by_table("printenv", words, options.flags(READ_ONLY["printenv"]))
    return Verdict("prints the whole environment")


def _sleep(words: Sequence[Word]) -> Verdict:
    if all(word.literal and re.fullmatch(r"[0-9.]+[smhd]?", word.text) for word in words):
        return Verdict()
    return Verdict("`sleep` of a time that is not literal")


def _pager(name: str) -> Check:
    """Return a check for a program that runs a command given as `+!command`."""

    def check(words: Sequence[Word]) -> Verdict:
        if any(word.text.startswith("+") for word in words):
            return Verdict(f"`{name} +command` runs a command")
        return by_table(name, words, options.flags(READ_ONLY[name]))

    return check


# Filters that read files which are not among the words (`import "x" as $x;`) or print the environment. A field may
# have any name: `.include` and `.env` are data.
_JQ_READS_MORE = re.compile(r"""(?<![.$\w"])(?:include|import|env)\b|\$ENV\b""")
_YQ_READS_MORE = re.compile(r"\b(?:load\w*|env|strenv|eval|system)\s*\(|\benvsubst\b")
_YQ_SUBCOMMANDS = names("e ea eval eval-all")


def _yq(words: Sequence[Word]) -> Verdict:
    """Judge both programs of this name: one takes filters of `jq`, the other has expressions of its own."""
    given = words[1:] if words and words[0].literal and words[0].text in _YQ_SUBCOMMANDS else words
    if any(_YQ_READS_MORE.search(word.text) or _JQ_READS_MORE.search(word.text) for word in given):
        return Verdict("the expression of `yq` may read other files")
    return by_table("yq", given, options.flags(READ_ONLY["yq"]))


def _jq(words: Sequence[Word]) -> Verdict:
    if any(_JQ_READS_MORE.search(word.text) for word in words):
        return Verdict("the filter of `jq` may read other files")
    return by_table("jq", words, options.flags(READ_ONLY["jq"]))


def _shell(words: Sequence[Word]) -> Verdict:
    """Judge `bash -c SCRIPT`; the script is judged by itself. A login or interactive shell runs start files first."""
    rest = iter(words)
    for word in rest:
        if word.literal and word.text == "-o":
            next(rest, None)
        elif word.literal and re.fullmatch(r"-[eux]*c[eux]*", word.text):
            return Verdict()
        elif not word.literal or not re.fullmatch(r"-[eux]+", word.text):
            break
    return Verdict("a shell that runs more than a script in its words")


def _listing(name: str, asks: str, line: str) -> Check:
    """Return a check for programs that read only when one of the options in `asks` is given."""
    known = options.flags(line)

    def check(words: Sequence[Word]) -> Verdict:
        if not options.parse(words, known).has(*asks.split()):
            return Verdict(f"`{name}` is not known to only read")
        return by_table(name, words, known)

    return check


def _subcommand(name: str, table: dict[str, str]) -> Check:
    """Return a check for programs that read only with certain first words."""

    def check(words: Sequence[Word]) -> Verdict:
        line = table.get(words[0].text) if words and words[0].literal else None
        if line is None:
            return Verdict(f"`{name}` is not a known read")
        return by_table(f"{name} {words[0].text}", words[1:], options.flags(line))

    return check


def _git(words: Sequence[Word]) -> Verdict:
    before = options.parse(words, options.flags(GLOBAL), permute=False)
    rest = list(words[before.used :])
    if before.unknown:
        return Verdict(f"`git {before.unknown[0].text}` before the subcommand is not known to only read")
    if not rest or not rest[0].literal:
        return Verdict("`git` without a literal subcommand", unreadable=bool(rest))
    if any(word.kind == "opaque" for word in words):
        return Verdict("a word of `git` is not literal", unreadable=True)
    folders = before.values("-C")
    if len(folders) > 1:
        return Verdict("`git` with several -C is not known to only read")
    verdict = _git_subcommand(rest[0].text, rest[1:])
    here = folders[0] if folders else Word(".")
    if not verdict.problem and before.used < len(words) and rest[0].text != "version":
        verdict.reads = (here, *(_below(here, word) for word in verdict.reads))
    return verdict


def _below(folder: Word, word: Word) -> Word:
    """Return a path as it is meant in the folder that `git -C` names."""
    if folder.text == "." or word.text.startswith("/"):
        return word
    return Word(f"{folder.text}/{word.text}", word.kind, f"{folder.text}/{word.fixed}")


# Subcommands that no alias of the repository can hide.
_GIT_BUILT_IN = {*GIT, *FORMS} | names(
    "add am checkout cherry-pick clean clone commit fetch init merge mv pull push rebase reset restore revert rm switch"
)


def _git_subcommand(name: str, words: list[Word]) -> Verdict:
    if len(words) == 1 and words[0].text in ("-h", "--help") and name in _GIT_BUILT_IN:
        return Verdict()
    if name in GIT:
        return by_table(f"git {name}", words, options.flags(GIT[name]))
    verdict = Verdict(f"`git {name}` is not a known read")
    for wanted, line in FORMS.get(name, ()):
        if rest := _asked(wanted, words):
            verdict = by_table(f"git {name}", rest[0], options.flags(line))
            if not verdict.problem:
                return verdict
    return verdict


def _asked(wanted: str, words: list[Word]) -> tuple[list[Word]] | None:
    """Return the words to judge when a form applies: after its first word, or all when it is an option."""
    if not wanted:
        return (words,)
    choices = wanted.split("|")
    if not choices[0].startswith("-"):
        return (words[1:],) if words and words[0].text in choices else None
    return (words,) if any(word.text.partition("=")[0] in choices for word in words) else None


_PIP = {
    "list": "-v --format: --not-required --user --local --verbose --path: -l @none",
    "show": "-fv --files --verbose -q @text",
    "freeze": "-l --local --user --all --exclude: @none",
    "check": "@none",
    "--version": "@none",
    "help": "@text",
}
_NPM_LS = "-gal --depth: --json --all --long --parseable @text"
_UNITS = "--no-pager --all --type: --state: --failed -a -t: @text"
_SYSTEMCTL = {
    **dict.fromkeys(("status", "is-active", "is-enabled", "is-failed", "cat"), "--no-pager -q --quiet @text"),
    **dict.fromkeys(("list-units", "list-unit-files", "list-timers"), _UNITS),
    "show": "-p: --property: --no-pager @text",
}
CHECKS: dict[str, Check] = {
    **ARCHIVE_CHECKS,
    "find": _find,
    "gfind": _find,
    "sed": _sed,
    "gsed": _sed,
    "awk": _awk,
    "gawk": _awk,
    "mawk": _awk,
    "nawk": _awk,
    "test": _test,
    "[": _bracket,
    "printf": _printf,
    "read": _read,
    "unset": _unset,
    "set": _set,
    "printenv": _printenv,
    "umask": _shown_limit,
    "ulimit": _shown_limit,
    "sleep": _sleep,
    "less": _pager("less"),
    "more": _pager("more"),
    "jq": _jq,
    "yq": _yq,
    "git": _git,
    "bash": _shell,
    "sh": _shell,
    "dash": _shell,
    "command": lambda words: by_table("command", words, options.flags("-vVp @text")),
    "unzip": _listing("unzip", "-l -Z -v -t -p", "-lZvtpqC12 @read"),
    "dpkg": _listing("dpkg", "-l -L -s -S --list", "-lLsS --list --listfiles --status --search @text"),
    "rpm": _listing("rpm", "-q", "-qailcdR @text"),
    "pip": _subcommand("pip", _PIP),
    "pip3": _subcommand("pip3", _PIP),
    "npm": _subcommand("npm", {"ls": _NPM_LS, "list": _NPM_LS}),
    "apt": _subcommand("apt", {"list": "--installed --upgradable @text", "show": "@text", "search": "@text"}),
    "apt-cache": _subcommand("apt-cache", {"search": "@text", "show": "@text", "policy": "@text", "depends": "@text"}),
    "systemctl": _subcommand("systemctl", _SYSTEMCTL),
    "go": _subcommand("go", {"env": "-json @text"}),
    "brew": _subcommand("brew", {"list": "-1 --versions --cask --formula @text", "--prefix": "@text"}),
    "dmesg": lambda words: by_table("dmesg", words, options.flags("-HTtxkuP -l: -f: --human --ctime --level: @none")),
    "getent": _subcommand("getent", dict.fromkeys(("passwd", "group", "services", "protocols"), "@text")),
    "mount": lambda words: by_table("mount", words, options.flags("-l @none")),
}  # fmt: skip
