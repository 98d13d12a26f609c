"""The record of a shell program: everything Surehand knows about it, with examples that a test checks.

A program without a record always asks. A record can make it ask less: it lists the options and operands with which the
program only reads, what it touches otherwise, the commands it starts, and how to interpret its result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from surehand.core.frozen import frozen
from surehand.core.text import lazy_pattern
from surehand.shell import options
from surehand.shell.options import Verdict, judge_words
from surehand.shell.touches import Touches
from surehand.shell.word import Word
from surehand.shell.wrappers import Starts, Wrapper

Kind: TypeAlias = Literal["search", "read", "list", "silent", "general", "neutral"]
Heeds: TypeAlias = Literal["none", "own", "any"]
VERSION_OPTIONS = frozenset(("--version", "--help"))
_VERSION = "--version --help -V -version"


@frozen
class Form:
    """One way to call a program that only reads: it begins with `words`, then known options and operands.

    One of the options in `needs` (`--check`) must be given; every operand, and every file that an option names, must
    match the pattern `operand`. `whole` is for programs with long options after a single dash (`go list -json`), which
    `options` lists in that spelling.
    """

    words: str = ""
    options: str = "@none"
    needs: tuple[str, ...] = ()
    operand: str = ""
    least: int = 0  # minimum number of operands
    whole: bool = False
    everything: bool = False  # it reads its operands recursively and follows symlinks

    def judge(self, name: str, words: Sequence[Word]) -> Verdict:
        """Judge the words after `words`."""
        title = f"{name} {self.words}".strip()
        given = list(double_dashes(words)) if self.whole else words
        known = options.flags(re.sub(r"(?<!\S)-(?=[A-Za-z])", "--", self.options) if self.whole else self.options)
        parsed = options.parse(given, known)
        if self.needs and not parsed.has(*self.needs):
            return Verdict(f"`{title}` without {' or '.join(self.needs)} is not known to be read-only")
        if len(parsed.operands) < self.least:
            return Verdict(f"`{title}` alone is not known to be read-only")
        named = [*parsed.operands, *parsed.read] if self.operand else []
        if odd := next((word for word in named if not _matches(word, self.operand)), None):
            return Verdict(f"`{title} {odd.text}` is not known to be read-only", unreadable=not odd.literal)
        verdict = judge_words(title, given, known)
        verdict.follows = verdict.recursive = self.everything or verdict.recursive
        return verdict


def _matches(word: Word, pattern: str) -> bool:
    return word.literal and re.fullmatch(pattern, word.text) is not None


def double_dashes(words: Sequence[Word]) -> Iterator[Word]:
    """Yield the words with `-name` written as `--name`."""
    for word in words:
        single = word.literal and re.match(r"-[A-Za-z]", word.text)
        yield Word("-" + word.text) if single else word


@frozen
class Program:
    """The record of one program and its `aliases`."""

    name: str
    aliases: tuple[str, ...] = ()
    kind: Kind = "general"
    """The class of a call that only reads (for `silent`: that only changes). `neutral` has none."""

    # The words with which it only reads; a call with any other asks.
    reads: str = ""
    """Options and operands in the notation of `options.py`."""
    forms: tuple[Form, ...] = ()
    exact: tuple[str, ...] = ()
    """Complete argument lists: `version`, `root -g`."""
    version: str | None = None
    """Options that, given alone, only print version or help. Default for a program with `reads`: `_VERSION`."""
    check: Check | None = None
    """Code for a program that `reads` cannot describe: a language, unusual options."""
    follows: tuple[str, ...] = ()
    """Options that make it follow symlinks below a directory."""
    opens_list: tuple[str, ...] = ()
    """Options that make its operands lists of further files it opens (`sha256sum -c`)."""
    obeys_folder: bool = False
    """Files in its directory or above may configure or replace it: each call also reads its directory."""
    heeds: Heeds = "any"
    """Environment variables that may change what it does: `none` (builtins, `printenv`), its `own` and the system's for
    a program in a compiled language, `any` for all others (`PYTHONPATH`, `PERL5OPT`)."""
    quiet: Mapping[str, Mapping[str, str]] | None = None
    """By first word ("" for any): variables that keep a reading call from writing caches and from fetching."""

    # What else it does.
    touches: Touches | None = None
    starts: Starts | None = None
    """Finds commands that its options start."""
    wraps: Wrapper | None = None
    """Set if it runs a command given in its words."""
    unreadable: str = ""
    """Why a line with this builtin cannot be analyzed, except in its forms that only read."""
    assigns: bool = False
    """Its words are names of variables it assigns."""
    is_shell: bool = False
    runs_input: bool = False
    """Runs its standard input as a script later."""
    run_by_others: bool = False
    """Judged as a command when a runner (`npx`, `uv run`) is given its name."""

    # Output and exit code.
    lists_paths: Test | None = None
    """Whether a reading call prints only paths below its operands, one per line."""
    keeps_lines: Test | None = None
    """Whether a call prints lines of its input unchanged."""
    names_only: Mapping[str, str] | None = None
    """Subcommands ("" for the program) that show only names and sizes, except with options that match the pattern."""
    exit_1_means_no: bool | tuple[str, ...] = False
    """Exit code 1 is an answer, not a failure; a tuple of subcommands if only for some."""
    builds: bool = False
    """A build: its result is at the end of its output."""
    needs_network: bool = False
    """A call that hangs probably waits for the network."""

    runs: tuple[str, ...] = ()
    """Examples that must run unasked."""
    asks: tuple[str, ...] = ()
    """Examples that must ask."""

    @property
    def is_described(self) -> bool:
        """Whether the record has more than a name; a function in a script must not shadow such a program."""
        said = (self.reads, self.check, self.forms, self.unreadable, self.wraps, self.starts, self.touches)
        return self.is_shell or any(said)

    @property
    def has_rules_of_its_own(self) -> bool:
        """Whether anything besides `reads` decides if a call only reads."""
        return self.check is not None or bool(self.forms)

    def judge(self, name: str, words: Sequence[Word]) -> Verdict:
        """Judge a call; if the program obeys its directory, the call also reads that directory."""
        verdict = self._judge(name, words)
        if self.obeys_folder and not verdict.problem:
            verdict.reads = (Word("."), *verdict.reads)
        return verdict

    def _judge(self, name: str, words: Sequence[Word]) -> Verdict:
        if len(words) == 1 and words[0].text in self._version_options():
            return Verdict()
        if [word.text for word in words] in [each.split() for each in self.exact]:
            return Verdict()
        call = Call(self, name, words)
        if not self.has_rules_of_its_own:
            return call.judge_options() if self.reads else Verdict(f"`{name}` is not known to be read-only")
        verdict = Verdict(f"`{name}` is not known to be read-only") if self.check is None else self.check(call)
        for form in self.forms if verdict.problem else ():
            begins = form.words.split()
            if [word.text for word in words[: len(begins)] if word.literal] != begins:
                continue
            verdict = form.judge(name, words[len(begins) :])
            if not verdict.problem:
                break
        return verdict

    def _version_options(self) -> list[str]:
        told = (_VERSION if self.reads else "") if self.version is None else self.version
        return told.split()


@frozen
class Call:
    """One call of a program: the name used and the words after it."""

    program: Program
    name: str
    words: Sequence[Word]

    def judge_options(self, words: Sequence[Word] | None = None) -> Verdict:
        """Judge all words, or the given ones, by the `reads` of the record."""
        given = self.words if words is None else words
        return judge_words(self.name, given, options.flags(self.program.reads), self.program.follows)

    def has(self, *wanted: str) -> bool:
        """Whether one of these options is given."""
        return options.parse(self.words, options.flags(self.program.reads)).has(*wanted)


Check: TypeAlias = Callable[[Call], Verdict]
Test: TypeAlias = Callable[[Call], bool]


def without(*excluded: str) -> Test:
    """Return a test that holds unless one of these options is given."""

    def test(call: Call) -> bool:
        return not call.has(*excluded)

    return test


def judge_files(name: str, files: Sequence[Word]) -> Verdict:
    """Judge operands that are files to read, after the options were judged."""
    for word in files:
        if word.kind == "opaque":
            return Verdict(f"a word of `{name}` is not literal: {word.text}", unreadable=True)
        if word.may_be_flag and not word.literal:
            return Verdict(f"`{name} {word.text}` could be an option")
    return Verdict(reads=tuple(word for word in files if word.text != "-"))


def listing(asks: str, line: str) -> Check:
    """Return a check for programs that only read if one of the options in `asks` is given."""
    known = options.flags(line)

    def check(call: Call) -> Verdict:
        if not options.parse(call.words, known).has(*asks.split()):
            return Verdict(f"`{call.name}` is not known to be read-only")
        return judge_words(call.name, call.words, known)

    return check


def refusing(pattern: str, reason: str) -> Check:
    """Return a check that refuses words matching a pattern; `{name}` in the reason is the program's name."""
    compiled = lazy_pattern(pattern)

    def check(call: Call) -> Verdict:
        odd = next((word for word in call.words if compiled.search(word.text)), None)
        if odd is not None:
            return Verdict(reason.format(name=call.name))
        return call.judge_options()

    return check


def own_options(pattern: str) -> Check:
    """Return a check that accepts only short options matching a pattern.

    For programs with unusual option parsing: `xxd` heeds only the first letter (`-ps in out` is `-p` and writes `out`),
    `tree` continues with options after one that takes the next word (`-Po x out` writes `out`), `less` after a digit or
    a dollar sign.
    """
    compiled = lazy_pattern(pattern)

    def check(call: Call) -> Verdict:
        for word in call.words:
            if word.literal and word.text == "--":
                break
            if word.text.startswith("-") and not (word.text.startswith("--") or compiled.fullmatch(word.text)):
                return Verdict(f"`{call.name} {word.text}` is not known to be read-only")
        return call.judge_options()

    return check


def by_words(judge: Callable[[Sequence[Word]], Verdict]) -> Check:
    """Return a check that ignores the name of the program."""

    def check(call: Call) -> Verdict:
        return judge(call.words)

    return check
