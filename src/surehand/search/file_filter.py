"""Which files a search is about: `rg`'s `--glob` and `--type`, read here so that every way of searching agrees.

A glob is read like a line of an ignore file, with braces: without a slash it is compared with the name at any depth,
with one it counts from the session's directory, `!` leaves out. Ignored files stay ignored whatever the glob says.
"""

from __future__ import annotations

import os
import re
from typing import Final

from surehand.core.errors import ToolFailure
from surehand.core.frozen import field, frozen
from surehand.core.text import lazy_pattern
from surehand.search import ripgrep
from surehand.search.gitignore import Rules
from surehand.search.globs import expand

_SIMPLE: Final = lazy_pattern(r"!?[\w.*?@+-]+")
_TOKENS: Final = lazy_pattern(r"\\.|\[[!^]?\]?[^\]]*\]|[\[{}\\]", re.DOTALL)
_CLASS: Final = lazy_pattern(r"\[[!^]?(.+)\]", re.DOTALL)
_RANGES: Final = lazy_pattern(r"([^\\:])-([^\\:])")
_INCOMPLETE: Final = {"[": "a `[` that is not closed", "\\": "a backslash at its end that escapes nothing"}


@frozen
class FileFilter:
    """Files that fit a glob (or do not fit a negated one) and are of a type; paths are from the searched folder."""

    prefix: bytes = b""
    """The path from the session's directory to the searched folder, with a slash at its end, or empty."""
    wanted: Rules | None = None
    unwanted: Rules | None = None
    of_type: Rules | None = None
    narrow: list[str] = field(default_factory=list[str])
    """Options that make `rg` leave out the same files early."""

    def keeps(self, path: bytes) -> bool:
        """Whether a file is searched."""
        name = path.rpartition(b"/")[2]
        full = self.prefix + path
        if self.of_type is not None and self.of_type.decide(name, name, False) is None:
            return False
        if self.wanted is not None and self.wanted.decide(name, full, False) is None:
            return False
        return self.unwanted is None or not self._refused(full)

    def _refused(self, path: bytes) -> bool:
        """A negated glob refuses a file by its own name or by that of a folder above it, below the searched one."""
        assert self.unwanted is not None
        at = path.find(b"/", len(self.prefix))
        while at >= 0:
            if self.unwanted.decide(path[:at].rpartition(b"/")[2], path[:at], True) is not None:
                return True
            at = path.find(b"/", at + 1)
        return self.unwanted.decide(path.rpartition(b"/")[2], path, False) is not None


def file_filter(glob: str | None, type_name: str | None, prefix: bytes = b"") -> FileFilter:
    """Return the filter for a glob and a file type, either of which may be missing."""
    wanted = unwanted = None
    narrow: list[str] = []
    if glob:
        negated = glob.startswith("!")
        body = glob[negated:]
        patterns = _alternatives(body[1:] if body.startswith("./") else body)
        rules = _rules(patterns, "glob")
        wanted, unwanted = (None, rules) if negated else (rules, None)
        if all(map(_SIMPLE.fullmatch, patterns)):
            narrow = [f"--glob={'!' if negated else ''}{each}" for each in patterns]
    of_type = _rules(_type_patterns(type_name), f"type {type_name}") if type_name else None
    if type_name:
        narrow.append(f"--type={type_name}")
    return FileFilter(prefix, wanted, unwanted, of_type, narrow)


def _alternatives(glob: str) -> list[str]:
    """Return the plain patterns of a glob; a slash anywhere in it makes each of them count from the directory."""
    if problem := _problem(glob):
        hint = "Put a backslash before a character that is meant literally."
        raise ToolFailure(f"the glob {glob!r} has {problem}", code="invalid_args", hint=hint)
    anchored = "/" in glob.rstrip("/")
    return [f"/{each}" if anchored and "/" not in each.rstrip("/") else each for each in expand(glob)]


def _problem(glob: str) -> str:
    """Return what makes a glob unreadable (a bracket without its partner, a range that ends too early), or nothing."""
    if not glob:
        return "nothing behind its `!`"
    depth = 0
    for token in _TOKENS.findall(glob):
        depth += {"{": 1, "}": -1}.get(token, 0)
        if token in _INCOMPLETE:
            return _INCOMPLETE[token]
        if depth < 0:
            return "a `}` that closes nothing"
        inside = _CLASS.fullmatch(token)
        if inside and any(low > high for low, high in _RANGES.findall(inside[1])):
            return f"a range that runs backwards in `{token}`"
    return "a `{` that is not closed" if depth else ""


def _rules(patterns: list[str], source: str) -> Rules:
    """Return patterns as rules; what is special only at the beginning of a line is made plain."""
    lines = ("\\" + each if each.startswith(("!", "#")) else each for each in patterns)
    return Rules(b"\n".join(map(os.fsencode, lines)), source)


def _type_patterns(name: str) -> list[str]:
    known = ripgrep.file_types()
    if name == "all":
        return [each for patterns in known.values() for pattern in patterns for each in expand(pattern)]
    if name in known:
        return [each for pattern in known[name] for each in expand(pattern)]
    from difflib import get_close_matches

    near = get_close_matches(name.lower().lstrip("."), known, 3, 0.5)
    by_ending = [each for each, patterns in known.items() if f"*.{name.lower().lstrip('.')}" in patterns]
    raise ToolFailure(
        f"there is no file type {name!r}",
        code="invalid_args",
        hint=f"Did you mean {' or '.join(dict.fromkeys([*by_ending, *near]))}?"
        if near or by_ending
        else f"Use `glob`, for example *.{name.lstrip('.')}",
        details={"near": [*by_ending, *near]},
    )
