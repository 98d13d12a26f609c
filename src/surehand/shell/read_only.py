"""Judges by allow-lists whether a simple command is read-only: unknown names, options or words make it ask.

The programs themselves, with what they read, write and run, are in `programs/`.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence

from surehand.core.secrets import is_secret
from surehand.core.text import lazy_pattern
from surehand.shell import options
from surehand.shell.options import Verdict, names
from surehand.shell.programs import program_of
from surehand.shell.programs.record import Program
from surehand.shell.scope import FoundCommand, assignment_problem, is_shells_own, variable_and_setting_problem
from surehand.shell.word import Word
from surehand.shell.wrappers import Wrapper

_SYSTEM_DIRECTORIES = names("/bin /usr/bin /usr/local/bin /sbin /usr/sbin /usr/local/sbin /opt/homebrew/bin")


def judge(found: FoundCommand, *, shell_alone: bool = False) -> Verdict:
    """Judge a simple command by its own words; commands it wraps or starts are judged separately.

    `shell_alone` says that the line runs no program that could heed an exported variable.
    """
    if found.function:
        return Verdict()
    heeds_none = program_of(found.name).heeds == "none"
    problem_of = variable_and_setting_problem if heeds_none else assignment_problem
    if problem := problem_of(heeded_variables(found)):
        return Verdict(problem)
    first = found.words[0]
    if not first.literal:
        return Verdict("the command word is not literal", unreadable=True)
    if first.text == "export":
        return _judge_export(found.words[1:], variable_and_setting_problem if shell_alone else assignment_problem)
    if found.wraps is not None:
        return _judge_wrapper(found)
    directory, _, name = first.text.rpartition("/")
    if directory and directory not in _SYSTEM_DIRECTORIES:
        return Verdict(f"`{first.text}` is a program of its own")
    program = program_of(name)
    verdict = _add_listed_files(found, program, program.judge(name, found.words[1:]))
    known = options.flags(program.reads)
    if not found.context.open_ended or (known.all_harmless and known.operands in ("text", "anything")):
        return verdict
    return Verdict(f"`{name}` gets words from its input that cannot be known", unreadable=True)


def heeded_variables(found: FoundCommand) -> Sequence[tuple[str, Word]]:
    """Return the variables set for a command; `IFS= read`, the idiom to read whole lines, is left out."""
    if found.name != "read":
        return found.context.assigns
    return [(name, value) for name, value in found.context.assigns if name != "IFS" or not value.literal]


def _judge_export(words: Sequence[Word], problem_of: Callable[[Sequence[tuple[str, Word]]], str]) -> Verdict:
    """Judge `export LC_ALL=C`: the same variables are accepted as before a single command."""
    pairs = [(name, Word(value)) for name, _, value in (word.text.partition("=") for word in words)]
    known = all(word.literal or word.fixed.endswith("=") for word in words)
    if not words or not known or not all(_NAME.fullmatch(name) for name, _ in pairs):
        return Verdict("`export` hands variables to other programs")
    return Verdict(problem_of(pairs))


_NAME = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def _judge_wrapper(found: FoundCommand) -> Verdict:
    name, wrapper = found.name, found.wraps
    if wrapper is not None and wrapper.alters:
        return Verdict(f"`{name}` {wrapper.alters}")
    if name == "env" and wrapper is not None and (problem := _forgotten_problem(wrapper, found.words[1:])):
        return Verdict(problem)
    if name == "env" and all(word.text.startswith("-") or "=" in word.text for word in found.words[1:]):
        return Verdict("prints the whole environment")
    return Verdict()


def _forgotten_problem(env: Wrapper, words: Sequence[Word]) -> str:
    """Return why removing variables by `env` matters: some keep git from running programs."""
    if not any("git" in word.text for word in words):
        return ""
    parsed = options.parse(words, options.flags(env.flags), permute=False)
    heeded = [word.text for word in parsed.values("-u", "--unset") if not is_shells_own(word.text)]
    everything = parsed.has("-i", "--ignore-environment") or any(word.text == "-" for word in words)
    return "`env` takes variables away that git heeds" if heeded or everything else ""


# -- lists of checksums, whose files are opened, too -------------------------------------------------------------------

_LARGEST_LIST = 1 << 20
_MOST_LISTED = 2_000
# `HASH  name` and `HASH *name` of GNU and of shasum, `SHA256 (name) = HASH` of the BSDs and of openssl.
_CHECKSUM_LINE = lazy_pattern(r"[0-9a-fA-F]{8,} [ *?U^](?P<name>.+)|[A-Za-z][\w/-]* ?\((?P<tagged>.+)\) ?= [\w+/=]+")
_CHECKSUM_COMMENT = lazy_pattern(r"\s*(?:#.*)?")


def _add_listed_files(found: FoundCommand, program: Program, verdict: Verdict) -> Verdict:
    """Add the files named in lists to the reads of a command: `sha256sum -c SUMS` opens the files in `SUMS`.

    The list is read while the command is judged, and its files are judged like any other. If it cannot be read
    completely, or a line is not understood, the command asks.
    """
    if verdict.problem or not program.opens_list:
        return verdict
    parsed = options.parse(found.words[1:], options.flags(program.reads))
    if not parsed.has(*program.opens_list):
        return verdict
    problem = f"`{found.name} --check` opens what its list names, and that cannot be read beforehand"
    if not parsed.operands or any(not word.literal or word.text == "-" for word in parsed.operands):
        return Verdict(problem, unreadable=True)
    names: dict[str, None] = {}
    for directory in found.directories:
        for word in parsed.operands:
            listed = (
                None if directory is None else _files_in_list(os.path.join(directory, os.path.expanduser(word.text)))
            )
            if listed is None or len(names) + len(listed) > _MOST_LISTED:
                return Verdict(problem, unreadable=True)
            names |= dict.fromkeys(listed)
    verdict.reads = (*verdict.reads, *map(Word, names))
    return verdict


def _files_in_list(path: str) -> list[str] | None:
    """Return the files in a list of checksums, none if the list does not exist; None if that cannot be known."""
    if is_secret(path):
        return []  # the list itself is refused; do not open it
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_LIST:
            return None
        with open(path, encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            return list(_parse_checksums(file.read(_LARGEST_LIST + 1)))
    except FileNotFoundError:
        return None if path.startswith("/dev/") else []  # the output of `<(...)` exists only when it runs
    except (OSError, ValueError):
        return None


def _parse_checksums(text: str) -> Iterator[str]:
    for line in text.split("\n"):
        line = line.removesuffix("\r")
        if _CHECKSUM_COMMENT.fullmatch(line):
            continue
        found = _CHECKSUM_LINE.fullmatch(line)
        if found is None:
            raise ValueError(line)
        yield found["name"] or found["tagged"]
