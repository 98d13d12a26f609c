"""The verdict on the words of one command, by the options and operands with which it is known to only read."""

from __future__ import annotations

import re
from collections.abc import Sequence

from surehand.core.secrets import is_secret
from surehand.shell import options
from surehand.shell.options import Flags, Parsed
from surehand.shell.word import Word


class Verdict:
    """Why a command is no read (empty: it is one), and the files its words make it read."""

    __slots__ = ("follows", "problem", "reads", "recursive", "unreadable")

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
        self.recursive = recursive
        self.follows = follows
        """What is read below a folder is read through its links, too."""
        self.unreadable = unreadable
        """The problem is one of what cannot be known."""


def judge_words(name: str, words: Sequence[Word], known: Flags, follows: tuple[str, ...] = ()) -> Verdict:
    """Judge the words after a name by known options and operands; with the options in `follows`, links are followed."""
    if known.operands == "anything" and known.all_harmless:
        return Verdict()
    opaque = next((word for word in words if word.kind == "opaque"), None)
    unread = known.operands == "anything" or (known.operands == "text" and known.all_harmless)
    if opaque is not None and not unread:
        return Verdict(f"a word of `{name}` is not literal: {opaque.text}", unreadable=True)
    parsed = options.parse(words, known)
    for word in parsed.unknown:
        if word.literal:
            return Verdict(f"`{name} {word.text}` is not known to be read-only")
        if not known.all_harmless:
            return Verdict(f"`{name} {word.text}` could be an option")
    return _judge_operands(name, parsed, known, follows)


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


# Options that give the pattern, or stand for it, so that every operand is a file; `jq -e` is about the exit code.
_PATTERN_GIVEN = ("-e", "--regexp", "--file", "--files", "--type-list")


def _after_pattern(parsed: Parsed, operands: list[Word], read: tuple[Word, ...], kind: str) -> Verdict:
    given = parsed.has("-f", "--from-file", *(() if kind == "filter" else _PATTERN_GIVEN))
    if kind == "filter" and not given and operands and not operands[0].literal:
        return Verdict(f"the program is not literal: {operands[0].text}", unreadable=True)
    # What stands for several words gives the pattern and files: `grep *`.
    files = operands if given or any(word.many for word in operands[:1]) else operands[1:]
    recursive = kind == "pattern_or_files" or parsed.has("-r", "-R", "--recursive", "--dereference-recursive")
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
    """Judge what git is given: revisions, paths in them and patterns of paths."""
    lines = [Word(word.text.rpartition(":")[2], word.kind) for word in parsed.values("-L") if ":" in word.text]
    return Verdict(reads=(*parsed.read, *lines, *(_blob_path(word) for word in operands)))


def _at_colon(text: str) -> tuple[str, str, str]:
    """Split at the first colon outside braces, as git does: `HEAD@{10:00}:path` names a path too."""
    depth = 0
    for index, character in enumerate(text):
        if character == ":" and not depth:
            return text[:index], ":", text[index + 1 :]
        depth += 1 if character == "{" else -1 if depth and character == "}" else 0
    return text, "", ""


def _blob_path(word: Word) -> Word:
    """Return the path in `HEAD:path`, `:path` or `:(top)path`, which git may read out of the history.

    Git expands the patterns of paths by itself, so that a quoted one stands for files too.
    """
    text = re.sub(r"^:(?:\([^)]*\)|[/!^]+|[0-3]:)?", "", word.text)
    revision, colon, path = _at_colon(text)
    path = path if colon and revision and path and not path.startswith("/") else text
    path = re.sub(r"\^\{\w*\}\Z", "", path)
    if word.literal and re.search(r"[*?\[]", path) and path[:1] in ".*?[":
        return Word(path, "glob", path[:1] if path[:1] == "." else "")
    return Word(path, word.kind, path if word.literal else word.fixed) if path != word.text else word
