"""The builtins of bash, and the shells."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Sequence

from surehand.core.text import lazy_pattern
from surehand.shell import options
from surehand.shell.options import Verdict, names
from surehand.shell.programs.record import Form, Program, by_words, judge_files
from surehand.shell.scope import is_shells_own
from surehand.shell.touches import Touch
from surehand.shell.word import Word

_PRINTF_ASSIGNS = lazy_pattern(r"%[-#0 +'0-9.*]*[hjlLtz]*n")
_UNARY_TESTS = names("-a -b -c -d -e -f -g -h -k -p -r -s -t -u -w -x -G -L -N -O -S -z -n -o")
_BINARY_TESTS = names("= == != < > -eq -ne -lt -le -gt -ge -nt -ot -ef")


def _judge_test(words: Sequence[Word]) -> Verdict:
    if any(_may_ask_about_a_name(word) for word in words):
        return Verdict("`test -v` evaluates a subscript in its operand", unreadable=True)
    if all(word.literal for word in words):
        return Verdict()
    inner = [word for word in words if word.text != "!"]
    literal = [word.text if word.literal else "" for word in inner]
    if len(inner) == 1 or (len(inner) == 2 and literal[0] in _UNARY_TESTS):
        return Verdict()
    if len(inner) == 3 and literal[1] in _BINARY_TESTS:
        return Verdict()
    return Verdict("a test of words that are not literal", unreadable=True)


def _may_ask_about_a_name(word: Word) -> bool:
    """Whether a word is, or may become, `-v` or `-R`, which evaluate their operand."""
    if word.many == "names":
        return any(fnmatch.fnmatchcase(option, word.text) for option in ("-v", "-R"))
    return word.many == "split" or (word.literal and word.text in ("-v", "-R"))


def _judge_bracket(words: Sequence[Word]) -> Verdict:
    if not words or words[-1].text != "]":
        return Verdict("`[` without its `]`")
    return _judge_test(words[:-1])


def _judge_printf(words: Sequence[Word]) -> Verdict:
    if not words:
        return Verdict()
    form = words[1] if words[0].text == "--" and len(words) > 1 else words[0]
    if form.text.startswith("-v") and words[0].text != "--":
        return Verdict("`printf -v` evaluates a subscript in a name", unreadable=True)
    if form.kind != "literal" or _PRINTF_ASSIGNS.search(form.text):
        return Verdict("the format of `printf` is not a plain one", unreadable=True)
    return Verdict()


def _judge_read(words: Sequence[Word]) -> Verdict:
    parsed = options.parse(words, options.flags("-res -a: -d: -i: -n: -N: -p: -t: -u:"))
    given = [word for word in (*parsed.operands, *parsed.values("-a")) if not (word.literal and word.text == "_")]
    if parsed.unknown or any(not word.literal or not is_shells_own(word.text) for word in given):
        return Verdict("`read` into a name that is not a plain one", unreadable=True)
    return Verdict()


_LINE_OPTIONS = options.flags("-t -d: -n: -s: -u:")


def _judge_mapfile(words: Sequence[Word]) -> Verdict:
    parsed = options.parse(words, _LINE_OPTIONS)
    plain = all(word.literal and is_shells_own(word.text) for word in parsed.operands)
    if parsed.unknown or len(parsed.operands) > 1 or not plain or any(not word.literal for word in words):
        return Verdict("`mapfile` may run text for each line, or set a name that is not a plain one", unreadable=True)
    return Verdict()


def _judge_unset(words: Sequence[Word]) -> Verdict:
    if all(word.literal and is_shells_own(word.text) for word in words):
        return Verdict()
    return Verdict("`unset` evaluates a subscript in a name, or forgets one that programs heed", unreadable=True)


def _judge_declare(words: Sequence[Word]) -> Verdict:
    """Judge names and values. `declare` alone prints all variables; most options change how a name is evaluated."""
    options = [word for word in words if word.text.startswith(("-", "+"))]
    given = [word for word in words if word not in options]
    prints = [word.text for word in options] in (["-p"], ["-F"], ["-f"]) and (given or options[0].text == "-F")
    if prints and all(word.literal and word.text.isidentifier() for word in given):
        return Verdict()
    if any(not word.literal or not re.fullmatch(r"-[aA]", word.text) for word in options) or not given:
        return Verdict("`declare` with other options than -a and -A, or without a name, is not known to be read-only")
    if not all(is_shells_own((word.fixed or word.text).partition("=")[0]) for word in given):
        return Verdict("`declare` of a name that is not a plain one", unreadable=True)
    return Verdict()


_SHELL_MODES = names("pipefail errexit nounset xtrace")
_MODES = lazy_pattern(rf"(?: [-+][eux]+| [-+][eux]*o(?: (?:{'|'.join(sorted(_SHELL_MODES))}))?)+")


def _judge_set(words: Sequence[Word]) -> Verdict:
    if words and words[0].literal and words[0].text == "--":
        return Verdict()  # only sets the positional parameters
    if all(word.literal for word in words) and _MODES.fullmatch("".join(f" {word.text}" for word in words)):
        return Verdict()
    return Verdict("`set` prints or changes the state of the shell")


def _judge_wait(words: Sequence[Word]) -> Verdict:
    if any(word.may_be_flag and word.text not in ("-n", "-f", "$!", '"$!"') for word in words):
        return Verdict("`wait -p` evaluates a subscript in a name", unreadable=True)
    return Verdict()


def _judge_limit(words: Sequence[Word]) -> Verdict:
    """Judge `umask` and `ulimit`, which print the value if none is given."""
    if all(word.literal and re.fullmatch(r"-[A-Za-z]+", word.text) for word in words):
        return Verdict()
    return Verdict("it changes a limit of the shell")


def _judge_shell(words: Sequence[Word]) -> Verdict:
    """Judge `bash -c SCRIPT`; the script is judged separately. Login and interactive shells also run startup files.

    `bash -n FILE` only checks the syntax of a file.
    """
    if len(words) > 1 and words[0].text == "-n" and words[0].literal:
        return (
            judge_files("bash", words[1:]) if words[1].text[:1] not in ("-", "+") else Verdict("a shell with options")
        )
    rest = iter(words)
    for word in rest:
        if word.literal and word.text == "-o":
            if next(rest, word).text not in _SHELL_MODES:
                break
        elif word.literal and re.fullmatch(r"-[eux]*c[eux]*", word.text):
            return Verdict()
        elif not word.literal or not re.fullmatch(r"-[eux]+", word.text):
            break
    return Verdict("a shell that runs more than a script in its words")


def _judge_sleep(words: Sequence[Word]) -> Verdict:
    if all(word.literal and re.fullmatch(r"[0-9.]+[smhd]?", word.text) for word in words):
        return Verdict()
    return Verdict("`sleep` of a time that is not literal")


def _touches_nothing(words: Sequence[Word]) -> Iterator[Touch]:
    return iter(())


PROGRAMS: tuple[Program, ...] = (
    Program("true", aliases=("false", ":"), kind="neutral", reads="* @anything", heeds="none",
            runs=("true", ":")),
    Program("echo", kind="neutral", reads="-neE * @anything", heeds="none",
            runs=("echo -n x", "echo -n hello")),
    Program("printf", kind="neutral", version="--version --help", check=by_words(_judge_printf),
            heeds="none", assigns=True, runs=("printf '%s\\n' x",), asks=("printf '%n' x",)),
    Program("test", kind="neutral", version="--version --help", check=by_words(_judge_test), heeds="none",
            touches=_touches_nothing, exit_1_means_no=True, runs=("test -f README.md", "test 1 -lt 2"),
            asks=("test -v a",)),
    Program("[", kind="neutral", check=by_words(_judge_bracket), heeds="none", touches=_touches_nothing,
            exit_1_means_no=True, runs=("[ -f README.md ]", "[ -e a -o -e b ]"), asks=("[ -v x ]",)),
    Program("[[", heeds="own", exit_1_means_no=True, asks=("[[ -v x ]]",)),
    Program("read", heeds="own", kind="neutral", check=by_words(_judge_read), assigns=True, runs=("read -r line",),
            asks=("read -r IFS",)),
    Program("set", heeds="own",
            kind="neutral", check=by_words(_judge_set), runs=("set -euo pipefail", "set -- a b; echo $2"),
            asks=("set a", "set -- rm x; \"$@\"")),
    Program("unset", heeds="own", kind="silent", check=by_words(_judge_unset), assigns=True, runs=("unset x",),
            asks=("unset -n x",)),
    Program("export", kind="silent", heeds="none", assigns=True, runs=("export LC_ALL=C",),
            asks=("export -f f",)),
    Program("declare", aliases=("typeset", "local"), kind="neutral", check=by_words(_judge_declare), assigns=True,
            heeds="none", runs=("declare -A m=([a]=1)", "declare -a xs=(1 2)", "declare -p HOME", "declare -F"),
            asks=("declare -t x", "declare -p", "declare -p x=1", "declare PATH=.", "declare -i n=3",
                  "declare x='(1)'")),
    Program("readonly", assigns=True, asks=("readonly x",)),
    Program("cd", kind="neutral", reads="-LPe@ * @anything", heeds="none", runs=("cd src",)),
    Program("pushd", heeds="own", aliases=("popd",), kind="neutral", reads="-n @anything", runs=("pushd src", "popd"),
            asks=("pushd --output=out a.txt",)),
    Program("dirs", reads="-lpv @text", runs=("dirs -v",), asks=("dirs --output=out a.txt",)),
    Program("exit", aliases=("return",), kind="neutral", reads="* @anything", heeds="none", runs=("exit 1",)),
    Program("break", heeds="own", aliases=("continue",), kind="neutral", reads="@text", runs=("break",)),
    Program("shift", heeds="own", reads="@text", runs=("shift",)),
    Program("wait", heeds="own", kind="neutral", reads="-f -n @anything", check=by_words(_judge_wait), runs=("wait",),
            asks=("wait -p x",)),
    Program("jobs", reads="-lnprs @text", runs=("jobs -l", "jobs"), asks=("jobs -x ls",)),
    Program("times", reads="@none", runs=("times", "times --version"), asks=("times a.txt",)),
    Program("type", heeds="own",
            kind="read", reads="-afptP * @text", exit_1_means_no=True, runs=("type -t ls", "type -a echo"),
            asks=("type --output=out a.txt",)),
    Program("help", kind="read", reads="-dms @text", runs=("help cd", "help test"), asks=("help --output=out a.txt",)),
    Program("umask", aliases=("ulimit",), check=by_words(_judge_limit), runs=("umask -S", "ulimit -a"),
            asks=("umask 0",)),
    Program("sleep", heeds="own",
            kind="neutral", reads="@text", check=by_words(_judge_sleep), runs=("sleep 1", "sleep 0.5"),
            asks=("sleep a.txt",)),
    Program("eval", unreadable="runs its words as code", run_by_others=True, asks=("eval 'rm x'",)),
    Program("source", aliases=(".",), unreadable="runs a file in the shell", asks=("source .venv/bin/activate",)),
    Program("trap", unreadable="runs text later", asks=("trap 'rm x' EXIT",)),
    Program("enable", unreadable="changes or loads builtins", asks=("enable -n ls",)),
    Program("hash", forms=(Form(""), Form("-r")), unreadable="can rebind a command", runs=("hash",),
            asks=("hash -d x", "hash -p x ls")),
    Program("alias", kind="list", forms=(Form(""), Form("-p"), Form("", "@text", operand=r"[A-Za-z_]\w*")),
            unreadable="changes what later words mean", runs=("alias", "alias -p", "alias ll"),
            asks=("alias ll='ls -l'",)),
    Program("unalias", unreadable="changes what later words mean", asks=("unalias ll",)),
    Program("shopt", forms=(Form("", "-pq @text", operand="[a-z_]+"),), unreadable="changes how the shell reads",
            runs=("shopt", "shopt -q globstar"), asks=("shopt -u x",)),
    Program("bind", unreadable="runs text on a key", asks=("bind -f x",)),
    Program("complete", unreadable="runs text on completion", asks=("complete -C x y",)),
    Program("compgen", unreadable="can run commands", asks=("compgen -C x",)),
    Program("compopt", unreadable="changes completion", asks=("compopt -o x",)),
    Program("fc", unreadable="runs commands again", asks=("fc -s x",)),
    Program("history", kind="list", forms=(Form("", "@text", operand=r"\d{1,6}"),), unreadable="changes the history",
            runs=("history", "history 20"), asks=("history -r x", "history -c")),
    Program("let", heeds="own", unreadable="evaluates its words as code", asks=("let x=1",)),
    Program("mapfile", aliases=("readarray",), kind="neutral", check=by_words(_judge_mapfile), heeds="none",
            unreadable="can run text for each line", assigns=True, runs=("mapfile -t lines",),
            asks=("mapfile -C f lines", "mapfile PATH")),
    Program("getopts", unreadable="assigns variables", assigns=True, asks=("getopts a x",)),
    Program("parallel", aliases=("sem",), unreadable="makes command lines out of its input",
            asks=("parallel rm ::: a b",)),
    Program("bash", aliases=("sh", "dash"), version="--version --help", check=by_words(_judge_shell), is_shell=True,
            run_by_others=True, runs=("bash -c 'ls'", "bash -n a.sh"), asks=("bash -c 'npm install'",)),
    Program("zsh", version="--version --help", is_shell=True, run_by_others=True, runs=("zsh --version",),
            asks=("zsh -c 'ls'",)),
    Program("ksh", aliases=("fish",), is_shell=True, run_by_others=True, asks=("ksh -c 'ls'",)),
    Program("mksh", aliases=("ash", "rbash", "tcsh", "csh", "yash"), is_shell=True, asks=("mksh a.txt",)),
)  # fmt: skip
