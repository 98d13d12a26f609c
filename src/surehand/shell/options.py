"""Parses command-line options by a one-line description per command, and judges the words by it.

A description, as the records in `programs/` have it, is a list of tokens:

    -abc            letters without a value; a `:` or `?` after them applies to the last letter
    -n:  --lines:   takes a value, glued or as the next word; `:r` names a file that is read, `::` two values
    -c?  --color?   takes a value only when glued to it
    -#              a number, as in `head -5`
    @read           what the operands are
    *               a glob among its words may expand to any option without harm; an option written out must still be
                    listed

A command with an option that is not described is not known to be a read. Long options must be spelled out: an
abbreviation may stand for one that is left out. Nor is a command known to be a read if a word that looks like an option
stands where a value is expected, since some versions take that value as optional (`journalctl -n --rotate`), or after a
`--` that may itself be a value (`git stash show -G -- --output=x`).

Operands: `@read` files, `@list` files or else the current directory, `@walk` trees or else the current directory,
`@pattern` a pattern and then files, `@filter` a program text and then files, `@text` no files, `@none` must be absent,
`@one` at most one file, `@key` one dotted name, `@anything` any words, even those that are known only when it runs, and
with `*` any options too; a few more that only one program needs are in `_judge_operands`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from surehand.core.frozen import frozen
from surehand.core.secrets import is_secret
from surehand.core.text import lazy_pattern
from surehand.shell.word import Word


def names(text: str) -> frozenset[str]:
    """Return the set of the words in a text."""
    return frozenset(text.split())


@frozen
class Flags:
    """The options a command is known to have; the value of each entry is "", ":", "::", ":r" or "?"."""

    short: dict[str, str]
    long: dict[str, str]
    numbers: bool
    operands: str
    all_harmless: bool


class Parsed:
    """Options and operands of a command; `unknown` holds the words that match no known option."""

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
    """Parse a description."""
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
    """Separate options from operands; without `permute` the first operand ends the options."""
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
            _parse_long(word, known, rest, found)
        elif word.literal:
            _parse_cluster(word, known, rest, found)
        else:  # may be an option or an operand
            found.unknown.append(word)
            found.operands.append(word)
    return found


def _parse_long(word: Word, known: Flags, rest: Iterator[tuple[int, Word]], found: Parsed) -> None:
    name, glued, text = word.text.partition("=")
    takes = known.long.get(name)
    if takes is None or (glued and not takes):
        found.unknown.append(word)
        return
    value: Word | None = _subword(word, text) if glued else None
    if takes[:1] == ":" and not glued:
        value = _take_value(name, known, rest, found)
    _record_option(name, takes, value, found)
    if takes == "::":
        _record_option(name, takes, _take_value(name, known, rest, found), found)


def _parse_cluster(word: Word, known: Flags, rest: Iterator[tuple[int, Word]], found: Parsed) -> None:
    text = word.text[1:]
    if known.numbers and text.isdigit():
        found.options.append(("-#", _subword(word, text)))
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
        value = (
            _subword(word, glued)
            if glued
            else (_take_value("-" + letter, known, rest, found) if takes[0] == ":" else None)
        )
        _record_option("-" + letter, takes, value, found)
        return


def _record_option(name: str, takes: str, value: Word | None, found: Parsed) -> None:
    found.options.append((name, value))
    if takes == ":r" and value is not None:
        found.read.append(value)


def _take_value(option: str, known: Flags, rest: Iterator[tuple[int, Word]], found: Parsed) -> Word | None:
    index, value = next(rest, (found.used - 1, None))
    found.used = index + 1
    if value is not None and not known.all_harmless and option not in _NEVER_ALONE and _is_option(value):
        found.unknown.append(value)
    if value is not None and value.many:  # only the first name of a glob is the value: `grep -e .* a.txt`
        found.unknown += [value] if value.may_be_flag else []
        found.operands.append(value)
    return value


_NEVER_ALONE = (
    "-e",
    "--regexp",
    "-S",
    "-G",
    "--grep",
    "--sort",
)  # their values are not optional, and may begin with a dash
_OPTION = lazy_pattern(r"--?[A-Za-z]")


def _is_option(word: Word) -> bool:
    return word.literal and _OPTION.match(word.text) is not None


def _may_take_next(word: Word, known: Flags) -> bool:
    """Whether a word ends in an option with an optional value, which some versions take from the next word."""
    key = word.text if word.text.startswith("--") else word.text[-1:]
    return word.literal and word.text[:1] == "-" and (known.long.get(key) or known.short.get(key)) == "?"


def _subword(word: Word, text: str) -> Word:
    return Word(text, word.kind, text if word.literal else "")


class Verdict:
    """Why a command is not known to be a read (`problem`, empty if it is known to be one), and the files it reads."""

    __slots__ = ("follows", "may_read", "problem", "reads", "recursive", "unreadable")

    def __init__(
        self,
        problem: str = "",
        reads: tuple[Word, ...] = (),
        recursive: bool = False,
        follows: bool = False,
        unreadable: bool = False,
    ) -> None:
        self.problem = problem
        self.reads = reads
        self.may_read: tuple[Word, ...] = ()  # words that are files only if such a file exists
        self.recursive = recursive
        self.follows = follows
        """A recursive read follows symlinks."""
        self.unreadable = unreadable
        """The problem is a word that is known only when the command runs."""


def judge_words(name: str, words: Sequence[Word], known: Flags, follows: tuple[str, ...] = ()) -> Verdict:
    """Judge the words after a command's name by its description; the options in `follows` make it follow links."""
    if known.operands == "anything" and known.all_harmless:
        return Verdict()
    parsed = parse(words, known)
    unread = known.operands == "anything" or (known.operands == "text" and known.all_harmless)
    if not unread and (opaque := next(_opaque_words(name, words, parsed, known), None)):
        return Verdict(f"a word of `{name}` is not literal: {opaque.text}", unreadable=True)
    for word in parsed.unknown:
        if word.literal:
            return Verdict(f"`{name} {word.text}` is not known to be read-only")
        if not known.all_harmless:
            return Verdict(f"`{name} {word.text}` could be an option")
    return _judge_operands(name, parsed, known, follows)


# Options of git whose value is a text to compare with, whatever it is.
_TEXT_VALUE = lazy_pattern(r"--(?:author|committer|since|until|after|before|grep)=.*", re.DOTALL)
_REVISION_COMMANDS = names(
    """cat-file cherry describe diff diff-tree log ls-tree merge-base name-rev range-diff rev-list rev-parse shortlog
    show"""
)


def _opaque_words(name: str, words: Sequence[Word], parsed: Parsed, known: Flags) -> Iterator[Word]:
    """Yield the words known only at run time (`$(date)`), except where every possible value is harmless.

    Harmless are numbers, dates and (for git) revisions as values of options, dates as the pattern of a search, any text
    as the value of git's filter options, and revisions as operands of git commands that take them.
    """
    values = [value for _, value in parsed.options if value is not None]
    of_git, _, subcommand = name.partition(" ")
    for word in words:
        if word.kind != "opaque":
            continue
        plain = word.number or word.token == "date" or (word.token == "revision" and of_git == "git")
        is_glued = word.fixed.startswith("--") and "=" in word.fixed and not word.many
        is_value = is_glued or (word.single and any(value is word for value in values))
        if is_value and (plain or (of_git == "git" and _TEXT_VALUE.fullmatch(word.fixed))):
            continue
        first = bool(parsed.operands) and parsed.operands[0] is word and not parsed.has(*_PATTERN_GIVEN)
        if word.token == "date" and not word.many and first and known.operands in ("pattern", "pattern_or_files"):
            continue
        takes_revisions = of_git == "git" and known.operands == "revisions" and subcommand in _REVISION_COMMANDS
        before_paths = words.index(Word("--")) if Word("--") in words else len(words)
        is_operand = not is_value and not any(value is word for value in values)
        if word.token and takes_revisions and is_operand and any(word is each for each in words[:before_paths]):
            continue
        yield word


def _judge_operands(name: str, parsed: Parsed, known: Flags, following: tuple[str, ...]) -> Verdict:
    operands = [word for word in parsed.operands if word.text != "-"]
    kind = known.operands
    read = tuple(parsed.read)
    if name.startswith("git ") and _shows_signatures(parsed):
        return Verdict(f"`{name}` that shows signatures runs a program")
    if kind == "none" and operands:
        return Verdict(f"`{name}` with the operand {operands[0].text!r} is not known to be read-only")
    if kind in ("one", "onetext") and (len(parsed.operands) > 1 or any(word.many for word in parsed.operands)):
        return Verdict(f"`{name}` writes its second operand")
    if kind == "date" and any(not word.text.startswith("+") for word in operands):
        return Verdict("`date` with a time sets the clock")
    if kind == "key" and (len(operands) != 1 or "." not in operands[0].text or not operands[0].literal):
        return Verdict(f"`{name}` is not known to be read-only")
    if kind == "names" and any("/" in word.text or word.path for word in operands):
        return Verdict(f"`{name}` of a file runs a formatter on it")
    follows = parsed.has(*following)
    if kind in ("read", "one"):
        return Verdict(reads=(*read, *operands), recursive=follows, follows=follows)
    if kind == "list":
        recursive = parsed.has("-R", "--recursive")
        return Verdict(reads=(*read, *(operands or [Word(".")])), recursive=recursive, follows=recursive and follows)
    if kind in ("walk", "walk_operands"):
        default = [Word(".")] if kind == "walk" else []
        return Verdict(reads=(*read, *(operands or default)), recursive=True, follows=follows)
    if kind in ("pattern", "pattern_or_files", "filter"):
        return _after_pattern(parsed, operands, read, kind)
    if kind == "revisions":
        return _revisions(parsed, operands)
    return Verdict(reads=read)


# Options that give or replace the pattern, so that every operand is a file; `jq -e` is about the exit code.
_PATTERN_GIVEN = ("-e", "--regexp", "--file", "--files", "--type-list")


def _after_pattern(parsed: Parsed, operands: list[Word], read: tuple[Word, ...], kind: str) -> Verdict:
    given = parsed.has("-f", "--from-file", *(() if kind == "filter" else _PATTERN_GIVEN))
    if kind == "filter" and not given and operands and not operands[0].literal:
        return Verdict(f"the program is not literal: {operands[0].text}", unreadable=True)
    # `grep *`: the glob expands to the pattern and the files.
    files = operands if given or any(word.many for word in operands[:1]) else operands[1:]
    recursive = kind == "pattern_or_files"
    if kind == "pattern":  # `jq -r` is about its output
        enters = any(word.text not in ("read", "skip") for word in parsed.values("-d", "--directories"))
        recursive = enters or parsed.has("-r", "-R", "--recursive", "--dereference-recursive")
    if recursive and not files:
        files = [Word(".")]
    picked = parsed.values("-g", "--glob", "--iglob", "--include")
    secrets = (Word(word.text) for word in picked if word.text[:1] != "!" and is_secret(word.text.rpartition("/")[2]))
    follows = (
        parsed.has("-L", "--follow") if kind == "pattern_or_files" else parsed.has("-R", "--dereference-recursive")
    )
    return Verdict(reads=(*read, *files, *secrets), recursive=recursive, follows=follows)


def _shows_signatures(parsed: Parsed) -> bool:
    formats = parsed.values("--format", "--pretty", "--group")
    if any(re.search(r"%G|%\(\*?signature", word.text) for word in formats):
        return True
    return any("signature" in word.text for word in parsed.values("--sort"))


def _revisions(parsed: Parsed, operands: list[Word]) -> Verdict:
    """Judge operands of git, each of which is a revision, a path in a revision or a pathspec."""
    lines = [Word(word.text.rpartition(":")[2], word.kind) for word in parsed.values("-L") if ":" in word.text]
    return Verdict(reads=(*parsed.read, *lines, *(_blob_path(word) for word in operands if not word.token)))


def _at_colon(text: str) -> tuple[str, str, str]:
    """Split at the first colon outside braces, as git does: `HEAD@{10:00}:path` names a path too."""
    depth = 0
    for index, character in enumerate(text):
        if character == ":" and not depth:
            return text[:index], ":", text[index + 1 :]
        depth += 1 if character == "{" else -1 if depth and character == "}" else 0
    return text, "", ""


def _blob_path(word: Word) -> Word:
    """Return the path in `HEAD:path`, `:path` or `:(top)path`, which git may read from the history.

    git expands pathspecs itself, so a quoted pattern is a glob too.
    """
    text = re.sub(r"^:(?:\([^)]*\)|[/!^]+|[0-3]:)?", "", word.text)
    revision, colon, path = _at_colon(text)
    path = path if colon and revision and path and not path.startswith("/") else text
    path = re.sub(r"\^\{\w*\}\Z", "", path)
    if word.literal and re.search(r"[*?\[]", path) and path[:1] in ".*?[":
        return Word(path, "glob", path[:1] if path[:1] == "." else "")
    return Word(path, word.kind, path if word.literal else word.fixed) if path != word.text else word
