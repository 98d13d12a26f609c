"""Globs a caller gives: git's `:(glob)` pathspecs, and braces beside them.

`*`, `?` and classes stop at `/`; `**/` is any number of folders; a pattern that names a folder stands for all that is
in it; `{a,b}` stands for each of its parts, nested ones too, and `\\{` is a brace. A leading `./` means nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from surehand.core.errors import ToolFailure
from surehand.core.frozen import frozen
from surehand.core.text import lazy_pattern
from surehand.git.wildmatch import literal_length, translate

ALTERNATIVES_LIMIT: Final = 1000
"""How many plain patterns one pattern with braces may stand for."""
LENGTH_LIMIT: Final = 4096
_EVERYTHING: Final = ((b"**/*",), (b"**",))


_EXTENDED: Final = lazy_pattern(r"(?<!\\)[@!+*?]\([^()]*\)")


def explain_extended(pattern: str | None) -> str:
    """Say of a pattern of bash's `extglob`, which found nothing, that it is read as plain text here; else nothing."""
    found = _EXTENDED.search(pattern or "")
    return f"; {found[0]} is read as plain text, {{a,b}} stands for one of several" if found else ""


def expand(pattern: str) -> list[str]:
    """Return the plain patterns that a pattern with braces stands for, in order; `{a}` stands for `a`."""
    if len(pattern) > LENGTH_LIMIT:
        raise ToolFailure(f"the pattern has {len(pattern)} characters; at most {LENGTH_LIMIT}", code="invalid_args")
    done: list[str] = []
    waiting = [("", pattern)]
    while waiting:
        head, rest = waiting.pop()
        found = _first_group(rest)
        if found is None:
            done.append(head + rest)
        else:
            begin, options, end = found
            waiting += [(head + rest[:begin], option + rest[end:]) for option in reversed(options)]
        if len(done) + len(waiting) > ALTERNATIVES_LIMIT:
            raise ToolFailure(
                f"the braces of the pattern expand to more than {ALTERNATIVES_LIMIT} patterns",
                code="invalid_args",
                hint="Use fewer braces, or wildcards.",
            )
    return list(dict.fromkeys(done))


def _first_group(text: str) -> tuple[int, list[str], int] | None:
    """Return begin, options and end of the first `{...,...}`; None when there is none (unclosed, or empty)."""
    at = 0
    while at < len(text):
        if text[at] == "\\":
            at += 2
        elif text[at] == "[" and (end := _class_end(text, at)):
            at = end
        elif text[at] == "{" and (found := _options(text, at)):
            options, end = found
            return at, options, end
        else:
            at += 1
    return None


def _options(text: str, begin: int) -> tuple[list[str], int] | None:
    depth, start, at = 0, begin + 1, begin
    options: list[str] = []
    while at < len(text):
        letter = text[at]
        if letter == "\\":
            at += 1
        elif letter == "[" and (end := _class_end(text, at)):
            at = end - 1
        elif letter == "{":
            depth += 1
        elif letter == "," and depth == 1:
            options.append(text[start:at])
            start = at + 1
        elif letter == "}":
            depth -= 1
            if depth == 0:
                return ([*options, text[start:at]], at + 1) if options or text[start:at] else None
        at += 1
    return None


def _class_end(text: str, begin: int) -> int:
    """Return the place after the `]` of a class, or 0 when it is not closed: a comma in a class divides nothing."""
    at = begin + 1
    at += text[at : at + 1] in ("!", "^")
    end = text.find("]", at + 1)
    return end + 1 if end >= 0 and "/" not in text[begin:end] else 0


@frozen
class Glob:
    """A compiled pattern; paths are compared relative to the folder it was given for, as bytes."""

    alternatives: tuple[bytes, ...]
    expression: re.Pattern[bytes]
    depth: int | None
    """How many folders deep a wildcard can match, or None when at any depth."""

    def enters(self, folder: bytes) -> bool:
        """Return whether a match can lie below `folder` (a path from the start, not empty)."""
        if self.depth is None or folder.count(b"/") < self.depth:
            return True
        return any(folder == each or folder.startswith(each.rstrip(b"/") + b"/") for each in self.alternatives)

    @property
    def start(self) -> bytes:
        """The folder, as far as it is spelled out, that holds every match; empty for the start itself."""
        folders = [each[: literal_length(each)].rpartition(b"/")[0] for each in self.alternatives]
        return os.path.commonpath(folders) if all(folders) else b""

    def matches(self, path: bytes) -> bool:
        """Return whether a path matches."""
        folder, slash, name = path.rpartition(b"/")
        return bool(self.choose(folder + slash, [name]))

    @property
    def choose(self) -> Callable[[bytes, list[bytes]], list[bytes]]:
        """What returns the names in a folder (its path with a slash, or empty) that match.

        For the commonest patterns of all, `**/*` and `**/*.py`, it looks at most at the ends of names.
        """
        if self.alternatives in _EVERYTHING:
            return lambda folder, names: names
        ends = tuple(each[4:] for each in self.alternatives if each.startswith(b"**/*"))
        plain = all(end and literal_length(end) == len(end) and b"/" not in end for end in ends)
        if plain and len(ends) == len(self.alternatives):
            return lambda folder, names: [name for name in names if name.endswith(ends)]
        fits = self.expression.fullmatch
        return lambda folder, names: [name for name in names if fits(folder + name)]


@lru_cache(maxsize=256)
def compile_glob(pattern: str) -> Glob:
    """Compile a pattern relative to some folder; raise ToolFailure for one that leaves it."""
    plain = tuple(_relative(each) for each in expand(pattern))
    found = [each for each in map(pathspec_expression, plain) if each is not None]
    return Glob(plain, re.compile(b"|".join(found) if found else b"(?!)", re.DOTALL), _depth(plain))


def _depth(patterns: tuple[bytes, ...]) -> int | None:
    if any(b"**" in each or literal_length(each) == len(each) for each in patterns):
        return None
    return max(each.count(b"/") for each in patterns)


def _relative(pattern: str) -> bytes:
    plain = re.sub(r"^(?:\.?/+(?=.))+", "", pattern) if pattern.startswith("./") else pattern
    plain = re.sub(r"/(?:\.?/)+", "/", plain)
    if plain == "." or plain.endswith("/."):
        plain = plain[:-1]
    if plain.startswith("/") or ".." in plain.split("/"):
        raise ToolFailure(
            f"the pattern {pattern!r} leaves the folder that is searched",
            code="invalid_args",
            hint="Give the folder as `path` and a pattern below it.",
        )
    return os.fsencode(plain)


def pathspec_expression(pattern: bytes) -> bytes | None:
    """Return the expression of one `:(glob)` pathspec; what it spells out exactly also stands for all below it."""
    literal = literal_length(pattern)
    below = re.escape(pattern) + (b".*" if not pattern or pattern.endswith(b"/") else b"(?:/.*)?")
    if literal == len(pattern):
        return below
    # git compares the plain beginning first and matches the rest alone, so `a**/b` finds `ab` too.
    rest = translate(pattern[literal:], pathname=True)
    return below if rest is None else re.escape(pattern[:literal]) + rest + b"|" + below


def split_pattern(pattern: str) -> tuple[str, str]:
    """Divide a pattern that may be absolute or begin with `..` into the folder it spells out and the pattern below.

    `/etc/**` gives `/etc` and `**`, `../a/*.py` gives `../a` and `*.py`; any other pattern comes back whole.
    """
    if not pattern.startswith("/") and ".." not in pattern.split("/"):
        return "", pattern
    parts = pattern.split("/")
    plain = next((at for at, part in enumerate(parts) if re.search(r"[*?\[\\{]", part)), len(parts) - 1)
    if ".." in parts[plain:]:
        raise ToolFailure(f"the pattern {pattern!r} has `..` after a wildcard", code="invalid_args")
    return "/".join(parts[:plain]) or "/", "/".join(parts[plain:])
