"""Paths as the policy sees them: resolved, inside the roots or not, and matched against the patterns of rules.

A pattern reads as in `.gitignore`: `.env` at any depth, `./src/**` from the workspace, `/etc/**` and `~/.ssh/**` from
the root and the home folder; what matches a folder matches everything below it.

A deny or ask rule matches generously (`src/**` at any depth, case ignored), an allow rule narrowly (only at the top of
the workspace, case exact): what is ambiguous is never allowed by it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from surehand.core.errors import ToolFailure
from surehand.core.frozen import frozen
from surehand.core.secrets import is_secret
from surehand.core.text import lazy_pattern
from surehand.files.paths import is_beneath, real_path

if TYPE_CHECKING:
    from surehand.files.opening import SecretLinks

# File systems that ignore these inside names would open `.git` for `.g<ZWNJ>it`.
_IGNORABLE = (
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\ufe00-\ufe0f\ufeff]"
)


def fold_name(text: str) -> str:
    """Normalize a name for comparison, as some file systems do: case, Unicode form and invisible characters."""
    if text.isascii():
        return text.lower()
    import unicodedata

    return re.sub(_IGNORABLE, "", unicodedata.normalize("NFKC", text)).casefold()


@frozen
class ResolvedPath:
    """One path of an effect: normalized as given, and with all symlinks resolved."""

    given: str
    real: str
    inside: bool
    """Whether both names are inside the roots."""

    @property
    def names(self) -> tuple[str, ...]:
        """The given and the resolved name; only one if they are equal."""
        return (self.given,) if self.given == self.real else (self.given, self.real)

    @property
    def components(self) -> frozenset[str]:
        """Every component of both names, folded."""
        return frozenset(part for name in self.names for part in fold_name(name).split("/") if part)


class Roots:
    """The directories a session works in, by their given and their resolved names."""

    __slots__ = ("_secret_links", "given", "home", "real", "workspace", "workspace_names")

    def __init__(self, workspace: str, roots: Sequence[str] = ()) -> None:
        every = tuple(dict.fromkeys((workspace, *roots)))
        self.workspace = os.path.normpath(workspace)
        self.given = tuple(os.path.normpath(root) for root in every)
        self.real = tuple(os.path.realpath(root) for root in every)
        self.home = os.path.expanduser("~")
        self.workspace_names = tuple(dict.fromkeys((self.given[0], self.real[0])))
        self._secret_links: SecretLinks | None = None

    @property
    def secret_links(self) -> SecretLinks:
        """Finds secrets among files with several hard links; built for the first such file."""
        if self._secret_links is None:
            from surehand.files.opening import SecretLinks  # lazy: git and the walk, 15 ms

            self._secret_links = SecretLinks(lambda: self.real, lambda: is_secret)
        return self._secret_links

    def resolve(self, path: str, folders: dict[str, str] | None = None) -> ResolvedPath:
        """Resolve a path. One that cannot be resolved, such as one with a NUL, is outside.

        `folders` caches resolved directories, for calls with many paths.
        """
        given = os.path.normpath(path)
        try:
            real = real_path(path) if folders is None else _real_path_of_many(path, folders)
        except (ValueError, OSError, ToolFailure):
            return ResolvedPath(given, given, inside=False)
        # Both names must be inside: `link/../x` is so by its spelling, but may lead out.
        named_inside = _within(given, self.given) or _within(given, self.real)
        return ResolvedPath(given, real, inside=named_inside and _within(real, self.real))

    def spell(self, path: str) -> str:
        """Return a path as a rule would spell it: `./...` if it lies in the workspace."""
        return next((f".{path[len(each) :]}" for each in self.workspace_names if path.startswith(f"{each}/")), path)


def _real_path_of_many(path: str, folders: dict[str, str]) -> str:
    folder, name = os.path.split(path)
    if name in ("", ".", "..") or not folder.startswith("/") or "\0" in path:
        return real_path(path)
    if folder not in folders:
        folders[folder] = real_path(folder)
    found = os.path.join(folders[folder], name)
    return real_path(found) if os.path.islink(found) else found


def _within(path: str, folders: Sequence[str]) -> bool:
    for folder in folders:  # noqa: SIM110  # half the time of `any`, and runs for every path
        if is_beneath(path, folder):
            return True
    return False


@frozen
class PathPattern:
    """A compiled pattern. `generous` ones belong to rules that forbid or ask."""

    text: str
    generous: bool
    anchored: tuple[str, ...]
    """Literal paths: they match, and all below them."""
    floating: tuple[tuple[str, str], ...]
    """(folder, literal): `literal` as whole components anywhere below `folder`."""
    expression: re.Pattern[str] | None
    """The patterns with wildcards."""
    starts: tuple[str, ...]
    """The literal folders that every match lies below; empty when a match may lie anywhere."""

    def matches(self, path: str) -> bool:
        """Whether the pattern covers a path."""
        path = fold_name(path) if self.generous else path
        if any(is_beneath(path, anchor) for anchor in self.anchored):
            return True
        if any(
            is_beneath(path, folder) and f"/{literal}/" in path[len(folder) :] + "/"
            for folder, literal in self.floating
        ):
            return True
        return self.expression is not None and self.expression.match(path) is not None

    def touches_below(self, folder: str) -> bool:
        """Return whether anything below `folder` may match, which a recursive change of the folder would change too."""
        folder = fold_name(folder) if self.generous else folder
        return any(is_beneath(start, folder) for start in self.starts)

    def names(self, component: str) -> bool:
        """Return whether `component` is literally, without wildcards, a component of the pattern."""
        return fold_name(component) in {fold_name(part) for part in self.text.split("/") if not _WILD.search(part)}


_WILD = lazy_pattern(r"[*?\[\\]")


def has_wildcard(text: str) -> bool:
    """Return whether a pattern is more than a literal path."""
    return _WILD.search(text) is not None or "{" in text


@lru_cache(maxsize=2048)
def compile_pattern(text: str, roots_key: tuple[tuple[str, ...], tuple[str, ...], str], generous: bool) -> PathPattern:
    """Return the pattern `text` compiled for the given workspace names, roots and home folder."""
    workspaces, roots, home = roots_key
    bases, body = _anchor(text, workspaces, home)
    free = False
    if bases is None:
        free = "/" not in body.rstrip("/") or generous
        bases = (("",) if generous else roots) if free else workspaces
    anchored: list[str] = []
    floating: list[tuple[str, str]] = []
    expressions: list[str] = []
    starts: list[str] = []
    for base in bases:
        start = (fold_name(base) if generous else base).rstrip("/")
        for each in expand_braces(body.strip("/")):
            part = fold_name(each) if generous else each
            whole = f"{start}/{part}" if part else start or "/"
            if not free:
                starts.append(_literal_start(whole))
            if _WILD.search(part):
                expressions.append(f"{re.escape(start)}/{'(?:.*/)?' if free else ''}{translate(part)}(?:/.*)?")
            elif free:
                floating.append((start, part))
            else:
                anchored.append(whole)
    expression = re.compile(f"(?s:{'|'.join(expressions)})\\Z") if expressions else None
    return PathPattern(text, generous, tuple(anchored), tuple(floating), expression, tuple(dict.fromkeys(starts)))


def pattern_key(roots: Roots) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """Return the part of `roots` that a compiled pattern depends on."""
    return roots.workspace_names, tuple(dict.fromkeys((*roots.given, *roots.real))), roots.home


def _anchor(text: str, workspaces: tuple[str, ...], home: str) -> tuple[tuple[str, ...] | None, str]:
    """Return (the folders a pattern starts from, the rest of it); None when it may start anywhere."""
    if text.startswith("/"):
        return ("",), text.lstrip("/")
    if text == "~" or text.startswith("~/"):
        return tuple(dict.fromkeys((home, os.path.realpath(home)))), text[2:]
    if text.startswith("~"):
        return ("",), os.path.expanduser(text).lstrip("/")
    if text in (".", "..") or text.startswith(("./", "../")):
        plain = os.path.normpath(text)
        ups = len(plain.split("../")) - 1 if plain.startswith("../") else int(plain == "..")
        rest = "" if plain in (".", "..") else plain[3 * ups :]
        bases = tuple(os.path.normpath(workspace + "/.." * ups) for workspace in workspaces)
        return bases, rest
    return None, text


def _literal_start(path: str) -> str:
    parts = path.split("/")
    kept = next((index for index, part in enumerate(parts) if _WILD.search(part)), len(parts))
    return "/".join(parts[:kept]) or "/"


def expand_braces(text: str, limit: int = 256) -> list[str]:
    """Expand `{a,b}` into patterns; one without a comma or a closing brace is literal text."""
    found = re.search(r"\{([^{}]*,[^{}]*)\}", text)
    if found is None or limit < 2:
        return [text]
    choices = found.group(1).split(",")
    return [
        each
        for choice in choices
        for each in expand_braces(text[: found.start()] + choice + text[found.end() :], limit // len(choices))
    ]


def translate(pattern: str) -> str:
    """Return the regular expression of a glob: `*` and `?` stay inside a component, `**` crosses them."""
    parts = pattern.split("/")
    pieces: list[str] = []
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        if part == "**":
            # `a/**` is everything below `a`, and `a` itself: listing a forbidden folder is forbidden too.
            pieces.append("(?:.*)" if last else "(?:.*/)?")
            continue
        pieces.append(_component(part) + ("" if last else "/"))
    joined = "".join(pieces)
    return joined.removesuffix("/(?:.*)") + "(?:/.*)?" if joined.endswith("/(?:.*)") else joined


def _component(part: str) -> str:
    out: list[str] = []
    position = 0
    while position < len(part):
        char = part[position]
        position += 1
        if char == "*":
            out.append("[^/]*")
        elif char == "?":
            out.append("[^/]")
        elif char == "\\" and position < len(part):
            out.append(re.escape(part[position]))
            position += 1
        elif char == "[" and (end := part.find("]", position + 1)) > 0:
            out.append(_character_class(part[position:end]))
            position = end + 1
        else:
            out.append(re.escape(char))
    return re.sub(r"(?:\[\^/\]\*){2,}", "[^/]*", "".join(out))


def _character_class(inner: str) -> str:
    negated = inner[:1] in "!^"
    body = inner[1:] if negated else inner
    escaped = re.sub(r"([\\\[\]&~|^])", r"\\\1", body)
    return f"(?!/)[{'^' if negated else ''}{escaped}]"
