"""The globs of callers, and the files they match.

`Glob` is git's `:(glob)` pathspec with braces: `*`, `?` and classes do not match `/`; `**/` is any number of folders; a
pattern that names a folder matches everything in it; `{a,b}` is one of its parts, nested ones too, and `\\{` a brace. A
leading `./` is ignored. `Listing` finds the matching files, newest first. `FileFilter` is `rg`'s `--glob` and `--type`,
implemented here so that every way of searching agrees.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from surehand.core.errors import ToolFailure
from surehand.core.frozen import field, frozen, replace_values
from surehand.core.secrets import is_secret
from surehand.core.text import lazy_pattern
from surehand.git.wildmatch import literal_length, translate
from surehand.search import ripgrep
from surehand.search.gitignore import Rules
from surehand.search.walk import FolderMemory, Walk

ALTERNATIVES_LIMIT: Final = 1000
"""Plain patterns that a pattern with braces may expand to."""
LENGTH_LIMIT: Final = 4096
_EVERYTHING: Final = ((b"**/*",), (b"**",))


_EXTENDED: Final = lazy_pattern(r"(?<!\\)[@!+*?]\([^()]*\)")


def explain_extended(pattern: str | None) -> str:
    """Return a hint if a pattern that found nothing uses bash's `extglob`, which is read as plain text."""
    found = _EXTENDED.search(pattern or "")
    return f"; {found[0]} is read as plain text, {{a,b}} stands for one of several" if found else ""


def expand(pattern: str) -> list[str]:
    """Expand the braces of a pattern to plain patterns, in order; `{a}` is `a`."""
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
    """Return begin, options and end of the first `{...,...}`; None if there is none (unclosed, or empty)."""
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
    """Return the index after the `]` of a class, or 0 if it is not closed; commas inside separate nothing."""
    at = begin + 1
    at += text[at : at + 1] in ("!", "^")
    end = text.find("]", at + 1)
    return end + 1 if end >= 0 and "/" not in text[begin:end] else 0


@frozen
class Glob:
    """A compiled pattern; matches paths (bytes) relative to the folder it was given for."""

    alternatives: tuple[bytes, ...]
    expression: re.Pattern[bytes]
    depth: int | None
    """How many folders deep a wildcard can match; None: at any depth."""

    def enters(self, folder: bytes) -> bool:
        """Whether a match can lie below `folder` (a relative path, not empty)."""
        if self.depth is None or folder.count(b"/") < self.depth:
            return True
        return any(folder == each or folder.startswith(each.rstrip(b"/") + b"/") for each in self.alternatives)

    @property
    def start(self) -> bytes:
        """The deepest folder known to contain every match; empty if that is the searched folder itself."""
        folders = [each[: literal_length(each)].rpartition(b"/")[0] for each in self.alternatives]
        return os.path.commonpath(folders) if all(folders) else b""

    def matches(self, path: bytes) -> bool:
        """Whether a path matches."""
        folder, slash, name = path.rpartition(b"/")
        return bool(self.choose(folder + slash, [name]))

    @property
    def choose(self) -> Callable[[bytes, Sequence[bytes]], Sequence[bytes]]:
        """A function that selects the matching ones among the names in a folder (path with a slash, or empty).

        For the commonest patterns, `**/*` and `**/*.py`, it compares at most the ends of names.
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
    """Compile a pattern; raise ToolFailure if it leaves the searched folder."""
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
    """Return the regular expression of a `:(glob)` pathspec; a path spelled out exactly also matches all below it."""
    literal = literal_length(pattern)
    below = re.escape(pattern) + (b".*" if not pattern or pattern.endswith(b"/") else b"(?:/.*)?")
    if literal == len(pattern):
        return below
    # git compares the plain beginning first and matches the rest alone, so `a**/b` finds `ab` too.
    rest = translate(pattern[literal:], pathname=True)
    return below if rest is None else re.escape(pattern[:literal]) + rest + b"|" + below


def split_pattern(pattern: str) -> tuple[str, str]:
    """Split a pattern that is absolute or contains `..` into the folder it spells out and the pattern below.

    `/etc/**` gives `/etc` and `**`, `../a/*.py` gives `../a` and `*.py`; any other pattern is returned whole.
    """
    if not pattern.startswith("/") and ".." not in pattern.split("/"):
        return "", pattern
    parts = pattern.split("/")
    plain = next((at for at, part in enumerate(parts) if re.search(r"[*?\[\\{]", part)), len(parts) - 1)
    if ".." in parts[plain:]:
        raise ToolFailure(f"the pattern {pattern!r} has `..` after a wildcard", code="invalid_args")
    return "/".join(parts[:plain]) or "/", "/".join(parts[plain:])


_SIMPLE: Final = lazy_pattern(r"!?[\w.*?@+-]+")
_TOKENS: Final = lazy_pattern(r"\\.|\[[!^]?\]?[^\]]*\]|[\[{}\\]", re.DOTALL)
_CLASS: Final = lazy_pattern(r"\[[!^]?(.+)\]", re.DOTALL)
_RANGES: Final = lazy_pattern(r"([^\\:])-([^\\:])")
_INCOMPLETE: Final = {"[": "a `[` that is not closed", "\\": "a backslash at its end that escapes nothing"}


@frozen
class FileFilter:
    """Filters files by a glob and a type; paths are relative to the searched folder.

    A glob is read like a line of an ignore file, with braces: without a slash it is compared with the name at any
    depth, with one it is relative to the session's directory, and `!` excludes. Ignored files stay ignored whatever the
    glob says.
    """

    prefix: bytes = b""
    """The path from the session's directory to the searched folder, with a slash at its end, or empty."""
    wanted: Rules | None = None
    unwanted: Rules | None = None
    of_type: Rules | None = None
    narrow: list[str] = field(default_factory=list[str])
    """Options that make `rg` skip the same files."""

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
        """Whether a negated glob excludes a file or a folder above it, up to the searched one."""
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
    """Return the plain patterns of a glob; a slash anywhere in it anchors each of them to the session's directory."""
    if problem := _problem(glob):
        hint = "Put a backslash before a character that is meant literally."
        raise ToolFailure(f"the glob {glob!r} has {problem}", code="invalid_args", hint=hint)
    anchored = "/" in glob.rstrip("/")
    return [f"/{each}" if anchored and "/" not in each.rstrip("/") else each for each in expand(glob)]


def _problem(glob: str) -> str:
    """Return why a glob is invalid (an unbalanced bracket, a reversed range), or nothing."""
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
    """Compile patterns to rules; escapes characters that are special only at the beginning of a line."""
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


Hit: TypeAlias = tuple[int, bytes, int]
"""A file: its negated mtime (ns), its path from the root, its size. Sorts newest first."""


@frozen
class Listing:
    """One listing below `walk.root`; `hits` blocks, and returns early if `stop` is set.

    The tree is walked in this process. `rg --files` would walk on all cores, but sorting by time needs a stat of every
    hit, which takes longer than the walk, and it knows neither links nor all of git's rules.
    """

    walk: Walk
    glob: Glob
    stop: ripgrep.Stop = field(default_factory=ripgrep.Stop)

    def hits(self, limit: int) -> tuple[list[Hit], int]:
        """Return the first `limit` files and links that match, newest first, then by path, and the number of all."""
        found = _Columns()
        choose = self.glob.choose
        for prefix, names, folder in self._walk().folders():
            if self.stop.wanted:
                break
            found.add(prefix, choose(prefix, names), folder)
        return found.newest(limit), len(found.times)

    def _walk(self) -> Walk:
        """Return the walk, limited to folders that can hold a match; with default settings it has a memory."""
        walk = self.walk
        remembers = walk.ignore and walk.excludes and walk.keeps_out is is_secret
        if remembers:
            _LISTED.begin()
        return replace_values(walk, enters=self._enters(), memory=_LISTED if remembers else None)

    def _enters(self) -> Callable[[bytes], bool] | None:
        """Return a test whether a folder can contain a match; None if each can."""
        start, depth = self.glob.start, self.glob.depth
        if not start and depth is None:
            return None
        below, enters = start + b"/", self.glob.enters

        def can_contain_match(folder: bytes) -> bool:
            is_on_path = not start or below.startswith(folder + b"/") or folder.startswith(below)
            return is_on_path and enters(folder)

        return can_contain_match


_LISTED: Final = FolderMemory()
"""Folders that listings with the default settings have met."""


class _Columns:
    """The hits, in columns: the garbage collector would traverse a tuple for each of very many."""

    __slots__ = ("folders", "names", "sizes", "times")

    def __init__(self) -> None:
        self.times: list[int] = []
        self.folders: list[bytes] = []
        self.names: list[bytes] = []
        self.sizes: list[int] = []

    def add(self, prefix: bytes, names: Sequence[bytes], folder: int) -> None:
        """Add the files of an open folder, each with its time and size."""
        lstat, times, sizes = os.lstat, self.times, self.sizes
        gone: set[bytes] = set()
        for name in names:
            try:
                status = lstat(name, dir_fd=folder)
            except OSError:  # deleted since it was listed
                gone.add(name)
                continue
            times.append(status.st_mtime_ns)
            sizes.append(status.st_size)
        there = [name for name in names if name not in gone] if gone else names
        self.names += there
        self.folders += [prefix] * len(there)

    def newest(self, limit: int) -> list[Hit]:
        """Return the newest hits, sorted; hits that cannot be among them are not sorted."""
        times = self.times
        oldest = sorted(times)[-limit] if 0 < limit < len(times) else None
        chosen = range(len(times)) if oldest is None else [at for at, time in enumerate(times) if time >= oldest]
        return sorted((-times[at], self.folders[at] + self.names[at], self.sizes[at]) for at in chosen)[:limit]
