"""Commits of any git repository replayed as calls through the door: `python tests/tools/replaying.py REPOSITORY...`.

Every text file a commit changed is brought from its old bytes to the new ones by Edit, MultiEdit or Write calls as a
model would send them: each hunk with as little around it as makes it unique. Then everything is taken back with one
Undo and brought again with one Redo. What is on the disk must equal the commit each time, to the last byte.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import subprocess
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from surehand.app import Surehand
from surehand.core.call import ToolResult
from surehand.testing import scratch_app

LARGEST_BYTES = 1_000_000
FILES_AT_ONCE = 200
_HUNK = re.compile(rb"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", re.MULTILINE)
_PLAIN = ("100644", "100755")


@dataclass(frozen=True)
class Hunk:
    """Lines `i1` to `i2` of the old text become lines `j1` to `j2` of the new one."""

    i1: int
    i2: int
    j1: int
    j2: int


@dataclass(frozen=True)
class Revision:
    """What a commit did to one file; `before` is None for a new one."""

    path: str
    before: bytes | None
    after: bytes
    hunks: tuple[Hunk, ...] = ()


@dataclass
class Tally:
    """What came of a replay."""

    counts: Counter[str] = field(default_factory=Counter[str])
    wrong: list[str] = field(default_factory=list[str])

    def miss(self, what: str) -> None:
        self.counts["wrong"] += 1
        self.wrong.append(what)

    def add(self, other: Tally) -> None:
        self.counts += other.counts
        self.wrong += other.wrong


def git(repository: str, *words: str) -> bytes:
    command = ["git", "-C", repository, "-c", "core.quotePath=false", *words]
    return subprocess.run(command, capture_output=True, check=True).stdout


def commits(repository: str, most: int) -> list[tuple[str, str]]:
    """Return (parent, commit) of the newest commits that have one parent."""
    listed = git(repository, "log", f"-{most}", "--no-merges", "--format=%P %H").decode().splitlines()
    return [(words[0], words[1]) for line in listed if len(words := line.split()) == 2]


def revisions(repository: str, parent: str, commit: str) -> Iterator[Revision]:
    """Yield the plain files a commit added or changed."""
    raw = git(repository, "diff-tree", "-r", "--raw", "-z", "--no-renames", "--no-abbrev", parent, commit)
    parts = raw.split(b"\0")
    for facts, name in zip(parts[::2], parts[1::2], strict=False):
        old_mode, new_mode, old, new, action = facts.decode().lstrip(":").split()
        if new_mode not in _PLAIN or (action == "M" and old_mode not in _PLAIN) or action not in "AM":
            continue
        path, after = os.fsdecode(name), git(repository, "cat-file", "blob", new)
        if action == "A":
            yield Revision(path, None, after)
        elif old != new and len(after) < LARGEST_BYTES:
            yield Revision(path, git(repository, "cat-file", "blob", old), after, _hunks(repository, old, new))


def _hunks(repository: str, old: str, new: str) -> tuple[Hunk, ...]:
    shown = git(repository, "diff", "-U0", "--text", "--no-ext-diff", "--no-textconv", "--no-color", old, new)
    found: list[Hunk] = []
    for match in _HUNK.finditer(shown):
        start, count, new_start, new_count = (1 if each is None else int(each) for each in match.groups())
        i1, j1 = start - (count > 0), new_start - (new_count > 0)
        found.append(Hunk(i1, i1 + count, j1, j1 + new_count))
    return tuple(found)


def respelled(revision: Revision, how: str) -> Revision | None:
    """Return a revision as if its file had been written otherwise: `crlf`, `mixed` line ends, or an encoding's name.

    None where it has line ends of its own already, or characters the encoding lacks.
    """
    try:
        texts = [None if data is None else data.decode() for data in (revision.before, revision.after)]
        if any(text is not None and ("\r" in text or text.startswith("\ufeff")) for text in texts):
            return None
        before, after = (None if text is None else _spelled(text, how) for text in texts)
    except UnicodeError:
        return None
    return Revision(revision.path, before, after or b"", revision.hunks)


def _spelled(text: str, how: str) -> bytes:
    if how == "crlf":
        return text.replace("\n", "\r\n").encode()
    if how == "mixed":  # a line that stays keeps its end
        return "".join(
            line.replace("\n", "\r\n") if zlib.crc32(line.encode()) % 2 else line for line in lines(text)
        ).encode()
    return text.encode(how)


def lines(text: str) -> list[str]:
    """Split at LF alone, as git does, every line with its end."""
    parts = text.split("\n")
    return [part + "\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


Place = tuple[str, int, int, str]
"""A whole text, from where to where it shall be replaced, and by what."""
Spell = Callable[[Place], tuple[str, str]]


def steps(before: str, after: str, hunks: Sequence[Hunk], spell: Spell) -> Iterator[tuple[str, str]]:
    """Yield (old, new) of each hunk, first to last, each on the result of those before it."""
    old, new = lines(before), lines(after)
    for hunk in hunks:
        head = "".join(new[: hunk.j1])
        replaced, tail = "".join(old[hunk.i1 : hunk.i2]), "".join(old[hunk.i2 :])
        text = head + replaced + tail
        yield spell((text, len(head), len(head) + len(replaced), "".join(new[hunk.j1 : hunk.j2])))


def by_lines(place: Place) -> tuple[str, str]:
    """Spell a replacement in whole lines, with as many around as it takes."""
    text, start, end, new = place
    first, last = start, end
    # A text without a line end says nothing of line ends: the one before it does.
    while not _unique(text, first, last) or "\n" not in text[first:last]:
        first = text.rfind("\n", 0, max(0, first - 1)) + 1 if first else 0
        stop = text.find("\n", last)
        last = len(text) if stop < 0 else stop + 1
        if (first, last) == (0, len(text)):
            break
    return text[first:last], text[first:start] + new + text[end:last]


def by_characters(place: Place) -> tuple[str, str]:
    """Spell a replacement in as few characters as are unique."""
    text, start, end, new = place
    while start < end and new and text[start] == new[0]:
        start, new = start + 1, new[1:]
    while start < end and new and text[end - 1] == new[-1]:
        end, new = end - 1, new[:-1]
    first, last, step = start, end, 1
    while not _unique(text, first, last) or ("\n" in new and "\n" not in text[first:last]):
        first, last, step = max(0, first - step), min(len(text), last + step), step * 2
        if (first, last) == (0, len(text)):
            break
    return text[first:last], text[first:start] + new + text[end:last]


def _unique(text: str, start: int, end: int) -> bool:
    """Say whether a part of a text is unique, for a reader to whom LF and CRLF look the same."""
    wanted = text[start:end]
    if "\n" in wanted and "\r" not in wanted:
        if start and wanted[0] == "\n" and text[start - 1] == "\r":
            return False  # half of a CRLF; the reader sees a whole one
        text, start = text.replace("\r\n", "\n"), len(text[:start].replace("\r\n", "\n"))
    return bool(wanted) and text.find(wanted) == start and text.find(wanted, start + 1) < 0


class Replay:
    """One commit's files in a workspace, changed through the door of an application over it."""

    def __init__(self, app: Surehand, root: Path, way: str, tally: Tally) -> None:
        self.app, self.root, self.way, self.tally = app, root, way, tally
        self.changed: list[Revision] = []

    async def play(self, revision: Revision) -> None:
        """Bring one file from its old bytes to the new ones; count what could not be done for a good reason."""
        target = self.root / revision.path
        texts = await self._texts(revision)
        if texts is None:
            return
        for tool, args in self._calls(revision, *texts):
            result = await self.app.call(tool, {"file_path": revision.path, **args})
            self.tally.counts[tool] += 1
            if not result.ok:
                self._refused(revision, tool, result, target)
                return
            if (wrong := misquoted(result.output, target.read_bytes())) is not None:
                self.tally.miss(f"{self.way}: {tool} of {revision.path} shows what is not there: {wrong!r}")
        if target.read_bytes() != revision.after:
            self.tally.miss(f"{self.way}: {revision.path} has other bytes")
            return
        self.tally.counts["files"] += 1
        self.changed.append(revision)

    async def _texts(self, revision: Revision) -> tuple[str, str] | None:
        """Return both texts as a caller knows them; None for a file that is no text, or changes its encoding."""
        if revision.before is None:
            return ("", text) if (text := _decoded(revision.after, "utf-8")) is not None else None
        shown = await self.app.call("Read", {"file_path": revision.path})
        if not shown.ok or shown.data["type"] not in ("text", "empty"):
            self.tally.counts["no text"] += 1
            return None
        codec = shown.data.get("encoding", "utf-8").removesuffix(" with BOM").replace("-", "_")
        texts = [_decoded(data, codec) for data in (revision.before, revision.after)]
        if texts[0] is None:
            texts = [_decoded(data, "utf-8", "surrogateescape") for data in (revision.before, revision.after)]
        if texts[0] is None or texts[1] is None:
            self.tally.counts["encoding changed"] += 1
            return None
        before, after = texts[0], texts[1]
        if before.startswith("\ufeff") and after.startswith("\ufeff"):  # a mark that stays is never seen
            before, after = before[1:], after[1:]
        return before, after

    def _calls(self, revision: Revision, before: str, after: str) -> list[tuple[str, dict[str, Any]]]:
        if revision.before is None:
            return [("Write", {"content": after})]
        if not before:
            return [("Edit", {"old_string": "", "new_string": after})]
        if self.way == "write" and _kept_by_write(before, after):
            return [("Write", {"content": after})]
        if self.way == "shown" and _only_crlf(before) and _only_crlf(after):
            before, after = (text.replace("\r\n", "\n") for text in (before, after))
        spell = by_characters if self.way == "characters" else by_lines
        pairs = list(steps(before, after, revision.hunks, spell))
        edits = [{"old_string": old, "new_string": new} for old, new in pairs]
        return [("MultiEdit", {"edits": edits})] if self.way == "together" else [("Edit", edit) for edit in edits]

    def _refused(self, revision: Revision, tool: str, result: ToolResult, target: Path) -> None:
        error = result.error
        assert error is not None
        reason = error.details.get("reason") or error.code
        if reason in ("encoding", "notebook", "permission_denied"):
            self.tally.counts[f"refused: {reason}"] += 1
            if revision.before is not None and target.read_bytes() != revision.before:
                self.changed.append(Revision(revision.path, revision.before, target.read_bytes()))
            return
        self.tally.miss(f"{self.way}: {tool} of {revision.path} refused: {error.message[:300]}")

    async def back_and_forth(self) -> None:
        """Take everything back with one Undo, bring it again with one Redo, and look at the bytes each time."""
        if not self.changed:
            return
        for tool, args in (("Undo", {"session": self.app.session.id}), ("Redo", {})):
            result = await self.app.call(tool, args)
            self.tally.counts[tool] += 1
            if not result.ok:
                self.tally.miss(f"{tool} refused: {result.error.message[:300] if result.error else ''}")
                return
            for revision in self.changed:
                wanted = revision.before if tool == "Undo" else revision.after
                target = self.root / revision.path
                if (target.read_bytes() if target.exists() else None) != wanted:
                    self.tally.miss(f"{tool} of {revision.path} left other bytes")


def misquoted(output: str, content: bytes) -> str | None:
    """Return a numbered line of a result that the file does not have under that number, if there is one."""
    _, mark, shown = output.partition("now read:\n")
    if b"\0" in content:
        return None
    try:
        rows = [row.removesuffix("\r") for row in content.decode("utf-8-sig").split("\n")]
    except UnicodeDecodeError:
        return None  # other encodings are compared by their bytes alone
    if not mark or "\r" in "".join(rows):
        return None
    for line in shown.split("\n"):
        number, tab, text = line.partition("\t")
        if tab and "…(" not in text and rows[int(number) - 1 : int(number)] != [text]:
            return line
    return None


def _kept_by_write(before: str, after: str) -> bool:
    """Say whether both have the line ends and the byte order mark that Write keeps."""
    marks = {text.startswith("\ufeff") for text in (before, after)}
    return len(marks) == 1 and ("\r" in after or "\r" not in before)


def _only_crlf(text: str) -> bool:
    return text.count("\r") == text.count("\n") == text.count("\r\n")


def _decoded(data: bytes, codec: str, errors: str = "strict") -> str | None:
    try:
        text = data.decode(codec, errors)
        return text if text.encode(codec, errors) == data else None
    except (UnicodeError, LookupError):
        return None


WAYS = ("lines", "characters", "together", "write", "shown")


async def replay(files: Sequence[Revision], way: str) -> Tally:
    """Replay one commit's files in a scratch workspace."""
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="replay-") as scratch:
        root = Path(scratch, "ws")
        for revision in files:
            if revision.before is not None:
                target = root / revision.path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(revision.before)
        root.mkdir(exist_ok=True)
        async with scratch_app(root, keep_state=True) as app:
            work = Replay(app, root, way, tally)
            for revision in files:
                await work.play(revision)
            await work.back_and_forth()
    return tally


def replay_repository(repository: str, most: int = 50, ways: Sequence[str] = WAYS, how: str | None = None) -> Tally:
    """Replay the newest commits of a repository, each in one of the ways by turns; `how`: see `respelled`."""
    tally = Tally()
    for number, (parent, commit) in enumerate(commits(repository, most)):
        files = list(revisions(repository, parent, commit))
        if how is not None:
            files = [other for each in files if each.before is not None and (other := respelled(each, how))]
        for start in range(0, len(files), FILES_AT_ONCE):
            part = files[start : start + FILES_AT_ONCE]
            done = asyncio.run(replay(part, ways[(number + start // FILES_AT_ONCE) % len(ways)]))
            done.wrong = [f"{commit[:12]} {each}" for each in done.wrong]
            tally.add(done)
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("repositories", nargs="+")
    parser.add_argument("--most", type=int, default=50, help="newest commits of each repository")
    parser.add_argument("--way", choices=WAYS, action="append", help="replay every commit this way")
    parser.add_argument("--as", dest="how", help="as if the files had `crlf` or `mixed` line ends, or an encoding")
    options = parser.parse_args()
    whole = Tally()
    with tempfile.TemporaryDirectory(prefix="replay-home-") as home:
        os.environ["SUREHAND_HOME"] = home
        for repository in options.repositories:
            for ways in [[way] for way in options.way] if options.way else [WAYS]:
                tally = replay_repository(repository, options.most, ways, options.how)
                print(repository, dict(tally.counts), *tally.wrong[:20], sep="\n  ", flush=True)
                whole.add(tally)
    print("in all", dict(whole.counts))
    return 1 if whole.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
