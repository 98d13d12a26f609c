"""Is a simple command a read? By allow-lists only: a name, an option or a word that is not known makes it none."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from surehand.shell import options
from surehand.shell.file_lists import with_listed_files
from surehand.shell.found import Found
from surehand.shell.options import names
from surehand.shell.readonly_builtins import SHELL_VARIABLE, STEERING
from surehand.shell.readonly_checks import CHECKS
from surehand.shell.readonly_table import EXACT, READ_ONLY, SHORT_VERSIONED, VERSION_FLAGS, VERSIONED
from surehand.shell.readonly_tools import HEEDS
from surehand.shell.verdict import Verdict, by_table
from surehand.shell.word import Word
from surehand.shell.wrappers import WRAPPERS

_SYSTEM_DIRECTORIES = names("/bin /usr/bin /usr/local/bin /sbin /usr/sbin /usr/local/sbin /opt/homebrew/bin")

# Variables that may stand before a command: what they may be set to.
_PLAIN_VALUE = re.compile(r"[A-Za-z0-9_.,:@%+-]*")
_SAFE_VARIABLES: dict[str, re.Pattern[str]] = {
    **dict.fromkeys(
        names(
            """LANG LANGUAGE LC_ALL LC_COLLATE LC_CTYPE LC_MESSAGES LC_NUMERIC LC_TIME NO_COLOR FORCE_COLOR CLICOLOR
            CLICOLOR_FORCE COLUMNS LINES COLORTERM GREP_COLOR GREP_COLORS LS_COLORS BLOCKSIZE BLOCK_SIZE CI
            GIT_TERMINAL_PROMPT PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE DEBIAN_FRONTEND TERM
            TIME_STYLE SYSTEMD_COLORS NODE_ENV RUST_BACKTRACE RUST_LOG"""
        ),
        _PLAIN_VALUE,
    ),
    **dict.fromkeys(names("CC CXX"), re.compile(r"(?:gcc|g\+\+|clang|clang\+\+|cc|c\+\+)(?:-\d+)?")),
    "GIT_OPTIONAL_LOCKS": re.compile("0"),
    "TZ": re.compile(r"(?![/:.])[A-Za-z0-9_+/-]*"),
    **dict.fromkeys(names("PAGER GIT_PAGER MANPAGER SYSTEMD_PAGER LESS"), re.compile(r"cat|")),
}


# Commands that run in the shell itself or heed no variable but the one they print.
HEEDLESS = names("echo printf test [ true false : pwd cd exit return export printenv")


def judge(found: Found, *, shell_alone: bool = False) -> Verdict:
    """Judge one simple command by its own words (what it wraps or starts is judged by itself).

    `shell_alone` says that the whole line runs no program that could heed a variable it exports.
    """
    if found.function:
        return Verdict()
    problem_of = variable_and_setting_problem if found.name in HEEDLESS else assignment_problem
    if problem := problem_of(heeded(found)):
        return Verdict(problem)
    first = found.words[0]
    if not first.literal:
        return Verdict("the command word is not literal", unreadable=True)
    if first.text == "export":
        return _exported(found.words[1:], variable_and_setting_problem if shell_alone else assignment_problem)
    if found.wraps is not None:
        return _wrapper(found)
    directory, _, name = first.text.rpartition("/")
    if directory and directory not in _SYSTEM_DIRECTORIES:
        return Verdict(f"`{first.text}` is a program of its own")
    verdict = with_listed_files(found, _named(name, found.words[1:]))
    return _open_ended(name, verdict) if found.place.open_ended else verdict


def heeded(found: Found) -> Sequence[tuple[str, Word]]:
    """Return the variables set before a command; `IFS= read` is how a line is read whole, and changes nothing else."""
    if found.name != "read":
        return found.place.assigns
    return [(name, value) for name, value in found.place.assigns if name != "IFS" or not value.literal]


def assignment_problem(assigns: Sequence[tuple[str, Word]]) -> str:
    """Say which variable set before a command might change what it does."""
    for name, value in assigns:
        allowed = _SAFE_VARIABLES.get(name)
        if allowed is None:
            return f"the variable {name} may change what the command does"
        if not value.literal or not allowed.fullmatch(value.text):
            return f"the value of {name} is not a plain one"
    return ""


def variable_problem(name: str, value: Word) -> str:
    """Say why a variable of the shell itself should not be set: it may be one that programs heed."""
    if SHELL_VARIABLE.fullmatch(name):
        return ""
    return assignment_problem([(name, value)])


def setting_problem(name: str, value: Word) -> str:
    """Say why a variable should not be set for a command, also for one that may run: it may choose what that runs."""
    if STEERING.fullmatch(name):
        return assignment_problem([(name, value)])
    return variable_problem(name, value)


def variable_and_setting_problem(assigns: Sequence[tuple[str, Word]]) -> str:
    """Say which variable should not be set even where only the shell itself may heed it."""
    return next((problem for name, value in assigns if (problem := setting_problem(name, value))), "")


def _exported(words: Sequence[Word], problem_of: Callable[[Sequence[tuple[str, Word]]], str]) -> Verdict:
    """Judge `export LC_ALL=C`: what may stand before a command may be set for those that follow, too."""
    pairs = [(name, Word(value)) for name, _, value in (word.text.partition("=") for word in words)]
    known = all(word.literal or word.fixed.endswith("=") for word in words)
    if not words or not known or not all(_NAME.fullmatch(name) for name, _ in pairs):
        return Verdict("`export` hands variables to other programs")
    return Verdict(problem_of(pairs))


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def _wrapper(found: Found) -> Verdict:
    name, wrapper = found.name, found.wraps
    if wrapper is not None and wrapper.alters:
        return Verdict(f"`{name}` {wrapper.alters}")
    if name == "env" and (problem := _forgotten(found.words[1:])):
        return Verdict(problem)
    if name == "env" and all(word.text.startswith("-") or "=" in word.text for word in found.words[1:]):
        return Verdict("prints the whole environment")
    return Verdict()


def _forgotten(words: Sequence[Word]) -> str:
    """Say why variables that `env` takes away matter: some of them keep git from running programs."""
    if not any("git" in word.text for word in words):
        return ""
    parsed = options.parse(words, options.flags(WRAPPERS["env"].flags), permute=False)
    heeded = [word.text for word in parsed.values("-u", "--unset") if not SHELL_VARIABLE.fullmatch(word.text)]
    everything = parsed.has("-i", "--ignore-environment") or any(word.text == "-" for word in words)
    return "`env` takes variables away that git heeds" if heeded or everything else ""


def _open_ended(name: str, verdict: Verdict) -> Verdict:
    line = READ_ONLY.get(name, "")
    known = options.flags(line)
    if known.all_harmless and known.operands in ("text", "anything"):
        return verdict
    return Verdict(f"`{name}` gets words from its input that cannot be known", unreadable=True)


def _asks_version(name: str, flag: str) -> bool:
    if flag in VERSION_FLAGS:
        return name in VERSIONED or name in READ_ONLY
    return flag in SHORT_VERSIONED and (name in SHORT_VERSIONED[flag] or name in READ_ONLY)


def _named(name: str, words: Sequence[Word]) -> Verdict:
    verdict = _judged(name, words)
    if not verdict.problem and name in HEEDS:
        verdict.reads = (Word("."), *verdict.reads)
    return verdict


def _judged(name: str, words: Sequence[Word]) -> Verdict:
    if len(words) == 1 and _asks_version(name, words[0].text):
        return Verdict()
    if tuple(word.text for word in words) in EXACT.get(name, ()):
        return Verdict()
    check = CHECKS.get(name)
    if check is not None:
        return check(words)
    line = READ_ONLY.get(name)
    return Verdict(f"`{name}` is not a known read") if line is None else by_table(name, words, options.flags(line))
