"""Command-line options, described in a line of text per command and read as the commands read them.

A description, as the records in `programs/` have it, is a list of tokens:

    -abc            letters without a value; a `:` or `?` after them applies to the last letter
    -n:  --lines:   takes a value, glued or as the next word; `:r` names a file that is read, `::` two values
    -c?  --color?   takes a value only when glued to it
    -#              a number, as in `head -5`
    @read           what the operands are
    *               all its options are harmless, so a glob that expands to `-x` is safe

An option that is not there makes a command no read. Long options count only when spelled out: an abbreviation may stand
for one that is left out. Nor is it a read where an option stands in the place of a value, which may be one that can be
left out (`journalctl -n --rotate`), or behind a `--` that may itself be a value (`git stash show -G -- --output=x`).

Operands: `@read` files, `@list` files or else the current directory, `@walk` trees or else the current directory,
`@pattern` a pattern and then files, `@filter` a program text and then files, `@text` no files, `@none` must be absent,
`@one` at most one file, `@key` one dotted name, `@anything` any words at all, those that are not literal too; a few
more that one program has: `_judge_operands` in `verdict.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from surehand.core.frozen import frozen
from surehand.core.text import lazy_pattern
from surehand.shell.word import Word


def names(text: str) -> frozenset[str]:
    """Return the set of the words of a text: the shape most tables here have."""
    return frozenset(text.split())


@frozen
class Flags:
    """The options a command is known to have; the value of each entry is "", ":", ":r" or "?"."""

    short: dict[str, str]
    long: dict[str, str]
    numbers: bool
    operands: str
    all_harmless: bool


class Parsed:
    """The words of a command told apart. `unknown` holds the words that no known option explains."""

    __slots__ = ("operands", "options", "read", "unknown", "used")

    def __init__(self) -> None:
        self.options: list[tuple[str, Word | None]] = []
        self.operands: list[Word] = []
        self.unknown: list[Word] = []
        self.read: list[Word] = []
        self.used = 0

    def has(self, *wanted: str) -> bool:
        """Whether one of the named options was given (`"-n"`, `"--lines"`)."""
        return any(name in wanted for name, _ in self.options)

    def values(self, *wanted: str) -> list[Word]:
        """Return the values given to the named options."""
        return [value for name, value in self.options if name in wanted and value is not None]


@lru_cache(maxsize=512)
def flags(description: str) -> Flags:
    """Compile a description."""
    short: dict[str, str] = {}
    long: dict[str, str] = {}
    numbers, operands, harmless = False, "", False
    for token in description.split():
        if token == "*":
            harmless = True
        elif token == "-#":
            numbers = True
        elif token[0] == "@":
            operands = token[1:]
        else:
            name, takes = _split_token(token)
            if name.startswith("--"):
                long[name] = takes
            else:
                short |= dict.fromkeys(name[1:-1], "") | {name[-1]: takes}
    return Flags(short, long, numbers, operands, harmless)


def _split_token(token: str) -> tuple[str, str]:
    for mark in (":", "?"):
        name, found, kind = token.partition(mark)
        if found:
            return name, mark + kind
    return token, ""


def parse(words: Sequence[Word], known: Flags, *, permute: bool = True) -> Parsed:
    """Tell options and operands apart; without `permute` the first operand ends the options."""
    found = Parsed()
    rest = iter(enumerate(words))
    for index, word in rest:
        found.used = index + 1
        if word.literal and word.text == "--":
            found.operands += words[index + 1 :]
            if index and _may_take_next(words[index - 1], known):
                found.unknown += filter(_is_option, words[index + 1 :])
            break
        if not word.may_be_flag or (word.literal and word.text == "-"):
            if not permute:
                found.used = index
                break
            found.operands.append(word)
        elif word.text.startswith("--") and (word.literal or "=" in word.fixed):
            _long(word, known, rest, found)
        elif word.literal:
            _cluster(word, known, rest, found)
        else:  # an option, or an operand: only the running shell knows
            found.unknown.append(word)
            found.operands.append(word)
    return found


def _long(word: Word, known: Flags, rest: Iterator[tuple[int, Word]], found: Parsed) -> None:
    name, glued, text = word.text.partition("=")
    takes = known.long.get(name)
    if takes is None or (glued and not takes):
        found.unknown.append(word)
        return
    value: Word | None = _part(word, text) if glued else None
    if takes[:1] == ":" and not glued:
        value = _next(name, known, rest, found)
    _keep(name, takes, value, found)
    if takes == "::":
        _keep(name, takes, _next(name, known, rest, found), found)


def _cluster(word: Word, known: Flags, rest: Iterator[tuple[int, Word]], found: Parsed) -> None:
    text = word.text[1:]
    if known.numbers and text.isdigit():
        found.options.append(("-#", _part(word, text)))
        return
    for index, letter in enumerate(text):
        takes = known.short.get(letter)
        if takes is None:
            found.unknown.append(word)
            return
        if not takes:
            found.options.append(("-" + letter, None))
            continue
        glued = text[index + 1 :]
        value = _part(word, glued) if glued else (_next("-" + letter, known, rest, found) if takes[0] == ":" else None)
        _keep("-" + letter, takes, value, found)
        return


def _keep(name: str, takes: str, value: Word | None, found: Parsed) -> None:
    found.options.append((name, value))
    if takes == ":r" and value is not None:
        found.read.append(value)


def _next(option: str, known: Flags, rest: Iterator[tuple[int, Word]], found: Parsed) -> Word | None:
    index, value = next(rest, (found.used - 1, None))
    found.used = index + 1
    if value is not None and not known.all_harmless and option not in _NEVER_ALONE and _is_option(value):
        found.unknown.append(value)
    if value is not None and value.many:  # the first of several words is the value: `grep -e .* a.txt`
        found.unknown += [value] if value.may_be_flag else []
        found.operands.append(value)
    return value


_NEVER_ALONE = ("-e", "--regexp", "-S", "-G", "--grep", "--sort")  # a text to look for, or an order: never left out
_OPTION = lazy_pattern(r"--?[A-Za-z]")


def _is_option(word: Word) -> bool:
    return word.literal and _OPTION.match(word.text) is not None


def _may_take_next(word: Word, known: Flags) -> bool:
    """Whether a word ends in an option whose value is left out, so that another reading takes the next word for it."""
    key = word.text if word.text.startswith("--") else word.text[-1:]
    return word.literal and word.text[:1] == "-" and (known.long.get(key) or known.short.get(key)) == "?"


def _part(word: Word, text: str) -> Word:
    return Word(text, word.kind, text if word.literal else "")
