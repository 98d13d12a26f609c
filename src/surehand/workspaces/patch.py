"""Patches in git's format: text, binary files, modes, links, creations and deletions; `git apply` accepts them.

A patch records the old content of each file (`index OLD..NEW`, git's object ids), so that applying it can check that
the file still has that content. Contents other than plain UTF-8 text are written as git's binary patches.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final

from surehand.core.errors import StateError
from surehand.core.frozen import frozen
from surehand.core.secrets import is_secret
from surehand.workspaces.snapshot import Difference, Entry, check_path

_CONTEXT: Final = 3
_COMPARE_LIMIT: Final = 25_000_000
"""Limit for lines times lines of a line diff; beyond it, all from the first difference on is one replacement."""
_TEXT_BYTES: Final = 16 << 20
_NOTHING: Final = "0" * 40
_NO_NEWLINE: Final = "\\ No newline at end of file"
_SAFE: Final = re.compile(r"[A-Za-z0-9_./+@%,=:~-]+")
_HUNK: Final = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_INDEX: Final = re.compile(r"index ([0-9a-f]{40})\.\.([0-9a-f]{40})(?: (\d{6}))?")
_LINE_BYTES: Final = 52


@frozen
class FilePatch:
    """The changes of a patch to one path; `apply` computes the contents."""

    path: str
    old_mode: int
    """git's mode (0o100644, 0o100755, 0o120000); 0 if the file was absent."""
    new_mode: int
    old_name: str
    """git's object id of the required old content; empty if only the mode changes."""
    new_name: str
    hunks: tuple[tuple[int, tuple[str, ...]], ...] = ()
    binary: bytes | None = None

    @property
    def action(self) -> str:
        """Whether the path is created, changed or deleted."""
        return "created" if not self.old_mode else "deleted" if not self.new_mode else "changed"

    def apply(self, old: bytes | None) -> bytes | None:
        """Return the new content for the old one; raise StateError if the patch was not made from that."""
        if self.old_mode and (old is None or (self.old_name and blob_name(old) != self.old_name)):
            raise StateError(f"{self.path} is not what the patch was made from")
        if not self.new_mode:
            return None
        if self.old_mode and not self.hunks and self.binary is None and self.old_name == self.new_name:
            return old  # only the mode changes
        new = self.binary if self.binary is not None else _apply_hunks(self.path, old or b"", self.hunks)
        if self.new_name and blob_name(new) != self.new_name:
            raise StateError(f"the patch of {self.path} does not produce the content it names")
        return new


def blob_name(data: bytes) -> str:
    """Return git's object id of a content."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


# -- writing ----------------------------------------------------------------------------------------------------------


def format_patch(differences: Iterable[Difference], read: Callable[[str], bytes]) -> str:
    """Format differences as one patch; `read` returns a piece by its digest."""
    return "".join(part for each in differences for part in _format_one(each, read))


def _format_one(difference: Difference, read: Callable[[str], bytes]) -> Iterator[str]:
    before, after = difference.before, difference.after
    if before is not None and after is not None and before.kind != after.kind:  # git writes these as two
        yield from _format_one(Difference(difference.path, before, None), read)
        yield from _format_one(Difference(difference.path, None, after), read)
        return
    old, new = (None if side is None else read(side.digest) for side in (before, after))
    old_mode, new_mode = _git_mode(before), _git_mode(after)
    one, other = _quote(f"a/{difference.path}"), _quote(f"b/{difference.path}")
    yield f"diff --git {one} {other}\n"
    if not old_mode:
        yield f"new file mode {new_mode:o}\n"
    elif not new_mode:
        yield f"deleted file mode {old_mode:o}\n"
    elif old_mode != new_mode:
        yield f"old mode {old_mode:o}\nnew mode {new_mode:o}\n"
    if old == new:
        return
    mode = f" {old_mode:o}" if old_mode == new_mode else ""
    yield f"index {_NOTHING if old is None else blob_name(old)}..{_NOTHING if new is None else blob_name(new)}{mode}\n"
    lines = _text_lines(old), _text_lines(new)
    if lines[0] is None or lines[1] is None:
        yield "GIT binary patch\n"
        yield from _binary(new or b"")
        yield from _binary(old or b"")  # so that git can also apply it in reverse
    elif lines[0] or lines[1]:
        yield f"--- {'/dev/null' if old is None else one}\n+++ {'/dev/null' if new is None else other}\n"
        yield from _format_hunks(lines[0], lines[1])


def _git_mode(entry: Entry | None) -> int:
    if entry is None:
        return 0
    return 0o120000 if entry.kind == "symlink" else 0o100755 if entry.executable else 0o100644


def _text_lines(data: bytes | None) -> list[str] | None:
    """Split a text into lines with their ends; None if it is binary or too long to compare."""
    if not data:
        return []
    if len(data) > _TEXT_BYTES or b"\0" in data:
        return None
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        return None
    return [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _format_hunks(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    for group in _group_changes(old, new):
        (_, first, _, other_first, _), (_, _, last, _, other_last) = group[0], group[-1]
        yield f"@@ -{_range(first, last)} +{_range(other_first, other_last)} @@\n"
        for tag, a, b, c, d in group:
            if tag == "equal":
                yield from (_mark_lines(" ", line) for line in old[a:b])
            else:
                yield from (_mark_lines("-", line) for line in old[a:b])
                yield from (_mark_lines("+", line) for line in new[c:d])


def _group_changes(old: Sequence[str], new: Sequence[str]) -> Iterable[Sequence[tuple[str, int, int, int, int]]]:
    head, most = 0, min(len(old), len(new))
    while head < most and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < most - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    stop, other_stop = len(old) - tail, len(new) - tail
    first, after = max(0, head - _CONTEXT), min(tail, _CONTEXT)
    if (stop - head) * (other_stop - head) > _COMPARE_LIMIT:
        return [
            [
                ("equal", first, head, first, head),
                ("replace", head, stop, head, other_stop),
                ("equal", stop, stop + after, other_stop, other_stop + after),
            ]
        ]
    matcher = SequenceMatcher(None, old[first : stop + after], new[first : other_stop + after], autojunk=False)
    return (
        [(tag, a + first, b + first, c + first, d + first) for tag, a, b, c, d in group]
        for group in matcher.get_grouped_opcodes(_CONTEXT)
    )


def _range(first: int, last: int) -> str:
    count = last - first
    return f"{first if count == 0 else first + 1}" + ("" if count == 1 else f",{count}")


def _mark_lines(sign: str, line: str) -> str:
    return sign + line if line.endswith("\n") else f"{sign}{line}\n{_NO_NEWLINE}\n"


def _binary(data: bytes) -> Iterator[str]:
    yield f"literal {len(data)}\n"
    packed = zlib.compress(data)
    for at in range(0, len(packed), _LINE_BYTES):
        part = packed[at : at + _LINE_BYTES]
        size = chr(ord("A") + len(part) - 1) if len(part) <= 26 else chr(ord("a") + len(part) - 27)
        yield size + base64.b85encode(part, pad=True).decode("ascii") + "\n"
    yield "\n"


_ESCAPES: Final = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b"}


def _quote(path: str) -> str:
    """Quote a path as git does; unlike git, also one with a space."""
    if _SAFE.fullmatch(path):
        return path
    quoted: list[str] = []
    for character in path:
        if character in _ESCAPES:
            quoted.append(_ESCAPES[character])
        elif character.isprintable():
            quoted.append(character)
        else:
            quoted += [f"\\{byte:03o}" for byte in character.encode("utf-8", "surrogateescape")]
    return f'"{"".join(quoted)}"'


# -- reading ----------------------------------------------------------------------------------------------------------


def parse_patch(text: str) -> list[FilePatch]:
    """Parse a patch, path by path; raise StateError if it is invalid or leads out of the workspace."""
    if not text:
        return []
    lines = text.split("\n")
    if lines.pop() != "":
        raise StateError("the patch does not end with a newline: a part of it is missing")
    starts = [at for at, line in enumerate(lines) if line.startswith("diff --git ")]
    if not starts or starts[0] != 0:
        raise StateError("this is not a patch in git's format: it does not begin with `diff --git`")
    return [_Reader(lines[at:stop]).read() for at, stop in zip(starts, [*starts[1:], len(lines)], strict=True)]


class _Reader:
    """Parses the part of a patch about one path."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._at = 1
        self.path = _split_names(lines[0][len("diff --git ") :])

    def read(self) -> FilePatch:
        check_path(self.path)
        if is_secret(self.path):
            raise StateError(f"{self.path!r} is a secret by its name")
        modes = {"old": 0o100644, "new": 0o100644}
        index: tuple[str, str] = ("", "")
        while (line := self._peek()) is not None and not line.startswith(("--- ", "GIT binary patch")):
            self._at += 1
            if found := _INDEX.fullmatch(line):
                index = found[1], found[2]
                modes |= {"old": int(found[3], 8), "new": int(found[3], 8)} if found[3] else {}
            elif line.startswith(("old mode ", "new mode ")):
                modes[line[:3]] = int(line.rpartition(" ")[2], 8)
            elif line.startswith("new file mode "):
                modes |= {"old": 0, "new": int(line.rpartition(" ")[2], 8)}
            elif line.startswith("deleted file mode "):
                modes |= {"old": int(line.rpartition(" ")[2], 8), "new": 0}
            else:
                raise StateError(f"the patch of {self.path} has a line that cannot be parsed: {line[:80]!r}")
        if any(mode not in (0, 0o100644, 0o100755, 0o120000) for mode in modes.values()):
            raise StateError(f"the patch of {self.path} names a mode that is not one of a file or link")
        names = tuple("" if name == _NOTHING else name for name in index)
        binary, hunks = None, ()
        if self._peek() == "GIT binary patch":
            self._at += 1
            binary = self._read_binary()
        elif self._peek() is not None:
            self._at += 2  # the two lines with the names
            hunks = tuple(self._read_hunks())
        return FilePatch(self.path, modes["old"], modes["new"], names[0], names[1], hunks, binary)

    def _peek(self) -> str | None:
        return self._lines[self._at] if self._at < len(self._lines) else None

    def _read_hunks(self) -> Iterator[tuple[int, tuple[str, ...]]]:
        while (line := self._peek()) is not None:
            found = _HUNK.match(line)
            if found is None:
                raise StateError(f"the patch of {self.path} has a line that cannot be parsed: {line[:80]!r}")
            self._at += 1
            body: list[str] = []
            while (line := self._peek()) is not None and line[:1] in (" ", "+", "-", "\\"):
                if line.startswith("\\"):
                    body[-1] = body[-1][:-1]
                else:
                    body.append(f"{line}\n")
                self._at += 1
            count = int(found[2]) if found[2] is not None else 1
            yield int(found[1]) - (1 if count else 0), tuple(body)

    def _read_binary(self) -> bytes:
        head = self._peek() or ""
        if not head.startswith("literal "):
            raise StateError(f"the binary patch of {self.path} is not of the kind that holds whole contents")
        self._at += 1
        packed = bytearray()
        try:
            size = int(head[8:])
            while line := self._peek():
                length = ord(line[0]) - (ord("A") - 1 if line[0] <= "Z" else ord("a") - 27)
                packed += base64.b85decode(line[1:])[:length]
                self._at += 1
            unpacking = zlib.decompressobj()
            data = unpacking.decompress(bytes(packed), size) if size else b""
        except (ValueError, zlib.error):
            raise StateError(f"the binary patch of {self.path} is damaged") from None
        if len(data) != size:
            raise StateError(f"the binary patch of {self.path} is damaged: {len(data)} bytes instead of {size}")
        return data


def _split_names(rest: str) -> str:
    """Parse the path in `a/PATH b/PATH`, quoted or not."""
    if rest.startswith('"'):
        end = 1
        while end < len(rest) and rest[end] != '"':
            end += 2 if rest[end] == "\\" else 1
        first, second = rest[: end + 1], rest[end + 2 :]
    else:
        half = len(rest) // 2
        first, second = rest[:half], rest[half + 1 :]
    one, other = _unquote(first), _unquote(second)
    if not one.startswith("a/") or one[2:] != other[2:]:
        raise StateError(f"the patch renames or copies, which is not supported: {rest[:120]!r}")
    return one[2:]


_PLAIN: Final = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "a": "\a", "b": "\b"}


def _unquote(text: str) -> str:
    if not text.startswith('"'):
        return text
    data = bytearray()
    inner, at = text[1:-1], 0
    while at < len(inner):
        if inner[at] != "\\":
            data += inner[at].encode("utf-8", "surrogateescape")
            at += 1
        elif inner[at + 1 : at + 2] in _PLAIN:
            data += _PLAIN[inner[at + 1]].encode()
            at += 2
        elif re.fullmatch(r"[0-3][0-7]{2}", inner[at + 1 : at + 4]):
            data.append(int(inner[at + 1 : at + 4], 8))
            at += 4
        else:
            raise StateError(f"a name in the patch cannot be parsed: {text[:120]!r}")
    return data.decode("utf-8", "surrogateescape")


def _apply_hunks(path: str, old: bytes, hunks: Iterable[tuple[int, tuple[str, ...]]]) -> bytes:
    lines = _text_lines(old)
    if lines is None:
        raise StateError(f"{path} is not what the patch was made from")
    made: list[str] = []
    at = 0
    for first, body in hunks:
        made += lines[at:first]
        at = first
        for line in body:
            if line[0] in " -":
                if lines[at : at + 1] != [line[1:]]:
                    raise StateError(f"{path} is not what the patch was made from")
                at += 1
            if line[0] in " +":
                made.append(line[1:])
    return "".join([*made, *lines[at:]]).encode("utf-8")
