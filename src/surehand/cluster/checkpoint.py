"""Checkpoints: what the driver has received of a remote session, so that it can be opened again elsewhere.

A reply to a call that may have changed something carries what changed since the last one: entries of the workspace,
their contents, and what was added to the journal. So the driver has everything that was answered.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from surehand.core.frozen import frozen
from surehand.workspaces.snapshot import Entry, Pieces, Snapshot

PART_BYTES: Final = 8 << 20
"""Bytes of a workspace sent in one message."""


@frozen
class Delta:
    """What changed since the delta of the number before."""

    number: int
    entries: Mapping[str, Entry | None]
    pieces: Mapping[str, bytes]
    journal: bytes
    """What was added to the journal."""


class Checkpoint:
    """The last known state of a session, kept up to date by deltas in their order."""

    def __init__(
        self, snapshot: Snapshot, journal: bytes = b"", workspace: str = "", base: Snapshot | None = None
    ) -> None:
        self.snapshot = snapshot
        self.base = base or snapshot
        """What diffs begin with: what the session began with, or what was pulled last."""
        self.journal = journal
        self.workspace = workspace
        """Where the session had its workspace: the journal names files by it."""
        self._number = 0
        self._early: dict[int, Delta] = {}
        self._moved = asyncio.Condition()
        self.life = 0
        """Incremented with every move: deltas of an earlier life are ignored."""

    async def take(self, delta: Delta, pieces: Pieces, life: int) -> bool:
        """Apply a delta; return True once all earlier ones are applied too, False if one was lost."""
        async with self._moved:
            if life != self.life:
                return False
            self._early[delta.number] = delta
            while (following := self._early.pop(self._number + 1, None)) is not None:
                await asyncio.to_thread(self._apply, following, pieces)
                self._number += 1
                self._moved.notify_all()
            await self._moved.wait_for(lambda: self._number >= delta.number or self.life != life)
            return self.life == life

    def _apply(self, delta: Delta, pieces: Pieces) -> None:
        for data in delta.pieces.values():
            pieces.add(data)
        entries = dict(self.snapshot.entries)
        for path, entry in delta.entries.items():
            if entry is None:
                entries.pop(path, None)
            else:
                entries[path] = entry
        self.snapshot = Snapshot(entries)
        self.journal += delta.journal

    async def give_up(self) -> None:
        """Wake those who wait for deltas lost with their node; later deltas of that life are ignored."""
        async with self._moved:
            self.life += 1
            self._early.clear()
            self._moved.notify_all()

    def begin_anew(self, workspace: str) -> None:
        """Restart the numbering: the session was reopened elsewhere from this checkpoint."""
        self.journal = rename_workspace(self.journal, self.workspace, workspace)
        self.workspace = workspace
        self._number = 0


def rename_workspace(journal: bytes, before: str, after: str) -> bytes:
    """Return a journal with the workspace's path replaced: a moved session has its files elsewhere."""
    old, new = (json.dumps(path)[1:-1].encode() for path in (before, after))
    return journal.replace(old, new) if before else journal


def split_pieces(digests: Iterable[str], pieces: Pieces) -> Iterator[dict[str, bytes]]:
    """Yield pieces in parts small enough for one message."""
    part: dict[str, bytes] = {}
    size = 0
    for digest in digests:
        data = pieces.read(digest)
        if part and size + len(data) > PART_BYTES:
            yield part
            part, size = {}, 0
        part[digest] = data
        size += len(data)
    if part:
        yield part


def compare_entries(before: Snapshot, after: Snapshot) -> dict[str, Entry | None]:
    """Return the entries that differ between two snapshots; None for removed ones."""
    changed: dict[str, Entry | None] = {
        path: entry for path, entry in after.entries.items() if before.entries.get(path) != entry
    }
    changed |= {path: None for path in before.entries if path not in after.entries}
    return changed
