"""The record of one shell program: everything Surehand knows of it, with examples that a test judges.

A program without a record always asks. A record can make it ask less: it names the options and operands with
which it only reads, what it touches when it does more, the commands it starts, how its result is to be taken.
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
_TELLS = "--version --help -V -version"


@frozen
class Form:
    """One way to call a program that only reads: the `words` it begins with, then known options and operands.

    `needs` are options of which one must be given (`--check`), `operand` a pattern for every operand and file.
    `whole` is for programs whose options have long names after one dash (`go list -json`), written so in `options`.
    """

    words: str = ""
    options: str = "@none"
    needs: tuple[str, ...] = ()
    operand: str = ""
    least: int = 0  # operands it must have
    whole: bool = False
    everything: bool = False  # the files it is given are folders to go through, links in them included

    def judge(self, name: str, words: Sequence[Word]) -> Verdict:
        """Judge the words after those the form begins with."""
        title = f"{name} {self.words}".strip()
        given = list(double_dashes(words)) if self.whole else words
        known = options.flags(re.sub(r"(?<!\S)-(?=[A-Za-z])", "--", self.options) if self.whole else self.options)
        parsed = options.parse(given, known)
        if self.needs and not parsed.has(*self.needs):
            return Verdict(f"`{title}` without {' or '.join(self.needs)} is not known to be read-only")
        if len(parsed.operands) < self.least:
            return Verdict(f"`{title}` alone is not known to be read-only")
        named = [*parsed.operands, *parsed.read] if self.operand else []
        if odd := next((word for word in named if not _fits(word, self.operand)), None):
            return Verdict(f"`{title} {odd.text}` is not known to be read-only", unreadable=not odd.literal)
        verdict = judge_words(title, given, known)
        verdict.follows = verdict.recursive = self.everything or verdict.recursive
        return verdict


def _fits(word: Word, pattern: str) -> bool:
    return word.literal and re.fullmatch(pattern, word.text) is not None


def double_dashes(words: Sequence[Word]) -> Iterator[Word]:
    """Yield the words with `-name` written `--name`, as the record of such a program has them: both mean the same."""
    for word in words:
        single = word.literal and re.match(r"-[A-Za-z]", word.text)
        yield Word("-" + word.text) if single else word


@frozen
class Program:
    """What is known of one program; names in `aliases` are the same in every respect."""

    name: str
    aliases: tuple[str, ...] = ()
    kind: Kind = "general"
    """The class of a line that calls it, if it only reads (for `silent`: only changes). `neutral`: none."""

    # With which words it only reads. Whatever is not named here makes a call no read.
    reads: str = ""
    """Options and operands, in the notation of `options.py`."""
    forms: tuple[Form, ...] = ()
    exact: tuple[str, ...] = ()
    """Words that must be all there are: `version`, `root -g`."""
    version: str | None = None
    """Options that, given alone, only print version or help. Default for a program with `reads`: `_TELLS`."""
    check: Check | None = None
    """For a program that `reads` alone does not describe: a language, a cluster of options, a way of its own."""
    follows: tuple[str, ...] = ()
    """Options with which links below a folder are followed."""
    opens_list: tuple[str, ...] = ()
    """Options with which its operands are lists of further files that it opens (`sha256sum -c`)."""
    obeys_folder: bool = False
    """Files in its folder or above may choose or steer it: each call states that it reads its folder."""
    heeds: Heeds = "any"
    """Environment variables that may change what it does: `none` (builtins, `printenv`), its `own` and the system's for
    a program known to be written in no language that heeds more, `any` for all others (`PYTHONPATH`, `PERL5OPT`)."""
    quiet: Mapping[str, Mapping[str, str]] | None = None
    """By first word ("" for any): variables that keep a call that reads from writing caches, and from fetching."""

    # What it does when it does more.
    touches: Touches | None = None
    starts: Starts | None = None
    """Finds the commands that its options make it run."""
    wraps: Wrapper | None = None
    """Set when it runs the command in its own words."""
    unreadable: str = ""
    """Why a line with this builtin cannot be read with certainty, except for its forms that only read."""
    assigns: bool = False
    """Its words are names of variables that it changes."""
    is_shell: bool = False
    runs_input: bool = False
    """Runs its standard input as a script, later."""
    run_by_others: bool = False
    """Judged as a command of its own where a runner (`npx`, `uv run`) is given its name."""

    # What it prints, and how it ends.
    lists_paths: Test | None = None
    """Tells whether a call that reads prints paths below its operands, one a line, and nothing else."""
    keeps_lines: Test | None = None
    """Tells whether a call prints lines of its input as they are."""
    names_only: Mapping[str, str] | None = None
    """By subcommand ("" for the program): shows names and sizes alone, except with options of this pattern."""
    exit_1_means_no: bool | tuple[str, ...] = False
    """Exit code 1 is an answer, no failure; subcommands, where it holds for some alone."""
    builds: bool = False
    """What it came to stands at the end of its output."""
    needs_network: bool = False
    """A call that hangs waits for the network."""

    runs: tuple[str, ...] = ()
    """Examples that run unasked."""
    asks: tuple[str, ...] = ()
    """Examples that are asked about."""

    @property
    def is_described(self) -> bool:
        """Whether its words mean something here, so that no function of a script should take its name."""
        said = (self.reads, self.check, self.forms, self.unreadable, self.wraps, self.starts, self.touches)
        return self.is_shell or any(said)

    @property
    def has_rules_of_its_own(self) -> bool:
        """Whether more than `reads` decides if a call only reads."""
        return self.check is not None or bool(self.forms)

    def judge(self, name: str, words: Sequence[Word]) -> Verdict:
        """Judge a call under the name used; if the program obeys its folder, the call also reads that folder."""
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
        told = (_TELLS if self.reads else "") if self.version is None else self.version
        return told.split()


@frozen
class Call:
    """One call of a program: by which name, and with which words after it."""

    program: Program
    name: str
    words: Sequence[Word]

    def judge_options(self, words: Sequence[Word] | None = None) -> Verdict:
        """Judge by the options and operands the record has, these words if not all."""
        given = self.words if words is None else words
        return judge_words(self.name, given, options.flags(self.program.reads), self.program.follows)

    def has(self, *wanted: str) -> bool:
        """Tell whether one of these options is given."""
        return options.parse(self.words, options.flags(self.program.reads)).has(*wanted)


Check: TypeAlias = Callable[[Call], Verdict]
Test: TypeAlias = Callable[[Call], bool]


def without(*excluded: str) -> Test:
    """Return the test of a program that prints so unless one of these options is given."""

    def test(call: Call) -> bool:
        return not call.has(*excluded)

    return test


def judge_files(name: str, files: Sequence[Word]) -> Verdict:
    """Judge operands that are files to read, of a program whose options were looked at already."""
    for word in files:
        if word.kind == "opaque":
            return Verdict(f"a word of `{name}` is not literal: {word.text}", unreadable=True)
        if word.may_be_flag and not word.literal:
            return Verdict(f"`{name} {word.text}` could be an option")
    return Verdict(reads=tuple(word for word in files if word.text != "-"))


def listing(asks: str, line: str) -> Check:
    """Return a check for programs that read only when one of the options in `asks` is given."""
    known = options.flags(line)

    def check(call: Call) -> Verdict:
        if not options.parse(call.words, known).has(*asks.split()):
            return Verdict(f"`{call.name}` is not known to be read-only")
        return judge_words(call.name, call.words, known)

    return check


def refusing(pattern: str, reason: str) -> Check:
    """Return a check for programs some of whose words do more: none may hold the pattern. `{name}` is its name."""
    compiled = lazy_pattern(pattern)

    def check(call: Call) -> Verdict:
        odd = next((word for word in call.words if compiled.search(word.text)), None)
        if odd is not None:
            return Verdict(reason.format(name=call.name))
        return call.judge_options()

    return check


def own_options(pattern: str) -> Check:
    """Return a check for a program whose short options must be written in one of the ways a pattern knows.

    Programs that take their options apart in a way of their own: a word may mean more than it seems to. `xxd` heeds
    the first letter of an option alone (`-ps in out` is `-p`, and writes `out`), `tree` goes on with options after one
    whose value is the next word (`-Po x out` writes `out`), `less` after a digit or a dollar sign.
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
    """Return the check of a program that is judged by its words alone, whatever name it is called by."""

    def check(call: Call) -> Verdict:
        return judge(call.words)

    return check
