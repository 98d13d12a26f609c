"""A remote session: what an application offers, over a workspace on some node of the cluster.

Its checkpoint is what the driver has received of it, so that it can be opened again elsewhere. A reply to a call that
may have changed something carries what changed since the last one: entries of the workspace, their contents, and what
was added to the journal. So the driver has everything that was answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from surehand.cluster.ray_api import Needs, is_lost
from surehand.core.call import Source, ToolCall, ToolError, ToolResult, new_id
from surehand.core.errors import StateError, SurehandError, ToolFailure
from surehand.core.frozen import frozen
from surehand.core.secrets import is_secret
from surehand.workspaces.patch import format_patch
from surehand.workspaces.snapshot import Entry, Pieces, Snapshot, compare

if TYPE_CHECKING:
    from surehand.app import Surehand
    from surehand.cluster.fleet import Fleet, Placement
    from surehand.cluster.host import SessionSpec

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


T = TypeVar("T")
_CANCEL_S: Final = 10.0
"""How long a call that was cancelled may take to end on its node."""
_LOST: Final = "the node on which {} ran is gone; the call may have run, in part or whole"
_LOOK: Final = (
    "The session continues elsewhere from its last checkpoint, without this call. Check its state before you repeat it."
)


class RemoteSession:
    """One session on a node. If its node dies, it goes on elsewhere from its last checkpoint."""

    def __init__(
        self, fleet: Fleet, spec: SessionSpec, needs: Needs, checkpoint: Checkpoint, *, own_process: bool
    ) -> None:
        self._fleet = fleet
        self.spec = spec
        self.needs = needs
        self.own_process = own_process
        self.checkpoint = checkpoint
        self._placement: Placement | None = None
        self._again: frozenset[str] = frozenset()
        self._ready = asyncio.Event()
        self._problem: SurehandError | None = None
        self.moves = 0
        """How often it had to go on elsewhere."""

    @property
    def id(self) -> str:
        """Its name, the same on whichever node it lives."""
        return self.spec.id

    @property
    def node(self) -> str:
        """The id of the node it lives on; empty while it has none."""
        return self._placement.node if self._placement is not None else ""

    @property
    def workspace(self) -> str:
        """Where its workspace lies on the node."""
        return self.checkpoint.workspace

    @property
    def placement(self) -> Placement | None:
        """Where it runs; None while it is not assigned."""
        return self._placement

    def attach(self, placement: Placement, opened: Mapping[str, Any]) -> None:
        """Go on where the session was opened; calls that waited for it proceed."""
        self._placement = placement
        self._again = frozenset(opened["again"])
        self.checkpoint.begin_anew(opened["workspace"])
        self._ready.set()

    async def detach(self) -> None:
        """Leave a host that is lost; calls wait until the session is attached again."""
        self._ready.clear()
        placement, self._placement = self._placement, None
        self.moves += 1
        await self.checkpoint.give_up()
        if placement is not None:
            placement.gone.set()

    def fail(self, problem: SurehandError) -> None:
        """Make every later call fail with this reason."""
        self._problem = problem
        self._ready.set()
        if self._placement is not None:
            self._placement.gone.set()

    async def _wait_for_placement(self) -> Placement:
        await self._ready.wait()
        if self._problem is not None:
            raise self._problem
        if self._placement is None:
            raise StateError(f"the session {self.id} is closed")
        return self._placement

    # -- calls ----------------------------------------------------------------------------------------------------

    async def call(
        self,
        name: str,
        args: Mapping[str, Any] | None = None,
        *,
        source: Source = "user",
        id: str | None = None,
        dry_run: bool = False,
    ) -> ToolResult:
        """Make one call and return its result; failures are results, as in a local session.

        When its node dies, a call that only reads, or may be made twice, is made again elsewhere; any other is
        reported as one that may have run.
        """
        call = ToolCall(name, args or {}, id or new_id("call"), source)
        began = time.perf_counter()
        while True:
            try:
                return await self._call_once(call, dry_run)
            except _Lost:
                if not dry_run and name not in self._again:
                    error = ToolError("execution_error", _LOST.format(name), _LOOK, {"may_have_run": True})
                    took_ms = round((time.perf_counter() - began) * 1000, 3)
                    result = ToolResult.failed(error).with_meta(tool=name, call_id=call.id, duration_ms=took_ms)
                    self._fleet.report_call(self, call, result)
                    return result
            except SurehandError as problem:
                error = ToolError("tool_unavailable", str(problem), "Open another session.")
                return ToolResult.failed(error).with_meta(tool=name, call_id=call.id)

    async def _call_once(self, call: ToolCall, dry_run: bool) -> ToolResult:
        placement = await self._wait_for_placement()
        life = self.checkpoint.life

        async def complete() -> ToolResult:
            result, delta = await self._reach(placement, "call", call, dry_run)
            if delta is not None and not await self.checkpoint.take(delta, self._fleet.pieces, life):
                raise _Lost
            return result

        return await self._cancellable(placement, call.id, complete())

    async def _cancellable(self, placement: Placement, name: str, work: Coroutine[Any, Any, T]) -> T:
        """Wait for something the host does; cancelled here, it is cancelled there at once.

        The driver still receives what it changed until then: later calls build on it.
        """
        doing = asyncio.ensure_future(work)
        try:
            return await asyncio.shield(doing)
        except asyncio.CancelledError:
            if not doing.done():
                with contextlib.suppress(Exception):
                    await placement.host.actor.cancel.remote(self.id, name)
                await asyncio.wait({doing}, timeout=_CANCEL_S)
            doing.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            raise

    async def _reach(self, placement: Placement, method: str, *args: Any) -> Any:
        """Call a method of the host."""
        try:
            return await getattr(placement.host.actor, method).remote(self.id, *args)
        except Exception as problem:
            if is_lost(problem):
                self._fleet.report_lost(placement.host)
                await placement.gone.wait()
                raise _Lost from None
            raise as_failure(problem) from None

    async def dry_run(self, name: str, args: Mapping[str, Any] | None = None) -> ToolResult:
        """Return what a call would do; nothing is changed."""
        return await self.call(name, args, dry_run=True)

    async def run_calls(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Make many calls at once, and return their results in order."""
        made = (self.call(call.name, call.args, source=call.source, id=call.id) for call in calls)
        return list(await asyncio.gather(*made))

    async def undo(self, **args: Any) -> ToolResult:
        """Take back changes of files, as `Surehand.undo` does."""
        return await self.call("Undo", args)

    async def redo(self, **args: Any) -> ToolResult:
        """Bring back what the latest undo took away."""
        return await self.call("Redo", args)

    async def changes(self, **args: Any) -> ToolResult:
        """List the changes of the session."""
        return await self.call("Changes", args)

    async def run(self, function: str, payload: Any) -> Any:
        """Run `module:function(session, pieces, payload)` on the node; its packages must have the module."""
        placement = await self._wait_for_placement()
        try:
            return await self._cancellable(
                placement, f"run {function}", self._reach(placement, "run", function, payload)
            )
        except _Lost:
            raise ToolFailure(_LOST.format(function), hint=_LOOK, details={"may_have_run": True}) from None

    # -- the workspace --------------------------------------------------------------------------------------------

    async def diff(self) -> str:
        """Return what the session changed since it began, or since it was last pulled, as a patch in git's format."""
        return (await self._compare())[0]

    async def _compare(self) -> tuple[str, Snapshot]:
        """Return the patch and the snapshot it leads to; the driver has all of it by then."""
        await self.save()
        base, snapshot = self.checkpoint.base, self.checkpoint.snapshot
        found = [each for each in compare(base, snapshot) if not is_secret(each.path)]
        return await asyncio.to_thread(format_patch, found, self._fleet.pieces.read), snapshot

    async def pull(self, app: Surehand, *, description: str = "") -> ToolResult:
        """Apply what the session changed to the workspace of an application here, through its door and history.

        A file that changed here since is a conflict, and nothing is changed then. The next diff begins from here.
        """
        patch, snapshot = await self._compare()
        result = await app.apply_patch(patch, description=description or f"Pull the session {self.id}")
        if result.ok:
            self.checkpoint.base = snapshot
            await self._reach(await self._wait_for_placement(), "set_base", snapshot.to_dict())
        return result

    async def fork(self, count: int = 1) -> list[RemoteSession]:
        """Return so many new sessions that start where this one stands, files and transcript alike."""
        await self.save()
        held = self.checkpoint
        forks = (
            self._fleet.reopen(replace_id(self.spec), self.needs, held, own_process=self.own_process)
            for _ in range(count)
        )
        return list(await asyncio.gather(*forks))

    async def save(self) -> None:
        """Receive what changed since the last call, by background commands too."""
        placement, life = await self._wait_for_placement(), self.checkpoint.life
        try:
            delta = await self._reach(placement, "checkpoint")
        except _Lost:
            await self._wait_for_placement()  # it continues from its last checkpoint, which the driver has
            return
        await self.checkpoint.take(delta, self._fleet.pieces, life)

    async def close(self) -> None:
        """End the session; changes not pulled are lost."""
        await self._fleet.close_session(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class _Lost(Exception):
    """The host is lost, and whether the request was carried out is unknown."""


def replace_id(spec: SessionSpec) -> SessionSpec:
    """Return what opens another session alike."""
    return replace(spec, id=new_id("remote"))


def as_failure(problem: BaseException) -> BaseException:
    """Return what a host raised as one of our errors: Ray wraps them."""
    cause = getattr(problem, "cause", None)
    if isinstance(cause, SurehandError):
        return cause
    if isinstance(problem, SurehandError) or not isinstance(problem, Exception):
        return problem
    return ToolFailure(f"the host failed: {type(problem).__name__}: {str(problem)[:2000]}")
