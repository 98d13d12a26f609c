"""A remote session: the calls of an application, made on a workspace on some node of the cluster.

The driver keeps a checkpoint of each session, from which it can be reopened on another node. The reply to a call that
may have changed something carries a delta: changed workspace entries, their contents, and new lines of the journal. So
the checkpoint includes every call that was answered.
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
"""Maximum bytes of pieces in one message."""


@frozen
class Delta:
    """The changes of a session since the previous delta."""

    number: int
    entries: Mapping[str, Entry | None]
    pieces: Mapping[str, bytes]
    journal: bytes
    """The lines added to the journal."""


class Checkpoint:
    """The last known state of a session, brought up to date by deltas in the order of their numbers."""

    def __init__(
        self, snapshot: Snapshot, journal: bytes = b"", workspace: str = "", base: Snapshot | None = None
    ) -> None:
        self.snapshot = snapshot
        self.base = base or snapshot
        """The base of diffs: the first snapshot, or the last one that was pulled."""
        self.journal = journal
        self.workspace = workspace
        """Path of the workspace on the node; paths in the journal begin with it."""
        self._number = 0
        self._early: dict[int, Delta] = {}
        self._moved = asyncio.Condition()
        self.life = 0
        """Incremented with every move: deltas of an earlier life are ignored."""

    async def apply_delta(self, delta: Delta, pieces: Pieces, life: int) -> bool:
        """Apply a delta, after all earlier ones; return False if the session moved before they arrived."""
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

    async def abandon_deltas(self) -> None:
        """End the waits for deltas that were lost with their node; late ones are ignored."""
        async with self._moved:
            self.life += 1
            self._early.clear()
            self._moved.notify_all()

    def restart_numbering(self, workspace: str) -> None:
        """Restart the numbering of deltas, after the session was reopened from this checkpoint."""
        self.journal = rename_workspace(self.journal, self.workspace, workspace)
        self.workspace = workspace
        self._number = 0


def rename_workspace(journal: bytes, before: str, after: str) -> bytes:
    """Return a journal with the workspace's path replaced: a moved session has its files elsewhere."""
    old, new = (json.dumps(path)[1:-1].encode() for path in (before, after))
    return journal.replace(old, new) if before else journal


def split_pieces(digests: Iterable[str], pieces: Pieces) -> Iterator[dict[str, bytes]]:
    """Yield pieces in groups of at most PART_BYTES, or of one piece."""
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
"""How long (s) to wait for a cancelled call to end on its node."""
_LOST: Final = "the node on which {} ran is gone; the call may have run, in part or whole"
_LOOK: Final = (
    "The session continues elsewhere from its last checkpoint, without this call. Check its state before you repeat it."
)


class RemoteSession:
    """One session on a node. If the node dies, it continues on another from its last checkpoint."""

    def __init__(
        self, fleet: Fleet, spec: SessionSpec, needs: Needs, checkpoint: Checkpoint, *, own_process: bool
    ) -> None:
        self._fleet = fleet
        self.spec = spec
        self.needs = needs
        self.own_process = own_process
        self.checkpoint = checkpoint
        self._placement: Placement | None = None
        self._repeatable: frozenset[str] = frozenset()
        self._ready = asyncio.Event()
        self._problem: SurehandError | None = None
        self.moves = 0
        """How many times it was moved to another node."""

    @property
    def id(self) -> str:
        """Its id, which does not change when it moves."""
        return self.spec.id

    @property
    def node(self) -> str:
        """The id of its node; empty while it has none."""
        return self._placement.node if self._placement is not None else ""

    @property
    def workspace(self) -> str:
        """Path of its workspace on the node."""
        return self.checkpoint.workspace

    @property
    def placement(self) -> Placement | None:
        """Its host and reservation; None while it is not assigned."""
        return self._placement

    def attach(self, placement: Placement, opened: Mapping[str, Any]) -> None:
        """Connect to the host on which the session was opened; waiting calls proceed."""
        self._placement = placement
        self._repeatable = frozenset(opened["again"])
        self.checkpoint.restart_numbering(opened["workspace"])
        self._ready.set()

    async def detach(self) -> None:
        """Disconnect from a lost host; calls wait until the session is attached again."""
        self._ready.clear()
        placement, self._placement = self._placement, None
        self.moves += 1
        await self.checkpoint.abandon_deltas()
        if placement is not None:
            placement.gone.set()

    def fail(self, problem: SurehandError) -> None:
        """Make every later call raise this error."""
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

        If the node dies, a read-only or idempotent call is made again elsewhere; any other call fails with
        `may_have_run` in its details.
        """
        call = ToolCall(name, args or {}, id or new_id("call"), source)
        began = time.perf_counter()
        while True:
            try:
                return await self._call_once(call, dry_run)
            except _Lost:
                if not dry_run and name not in self._repeatable:
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
            result, delta = await self._call_host(placement, "call", call, dry_run)
            if delta is not None and not await self.checkpoint.apply_delta(delta, self._fleet.pieces, life):
                raise _Lost
            return result

        return await self._cancellable(placement, call.id, complete())

    async def _cancellable(self, placement: Placement, name: str, work: Coroutine[Any, Any, T]) -> T:
        """Await work on the host; a cancellation here cancels the work there, too.

        What it had changed by then is still received: later calls build on it.
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

    async def _call_host(self, placement: Placement, method: str, *args: Any) -> Any:
        """Call a method of the host; raise _Lost once the loss of the host has been handled."""
        try:
            return await getattr(placement.host.actor, method).remote(self.id, *args)
        except Exception as problem:
            if is_lost(problem):
                self._fleet.report_lost(placement.host)
                await placement.gone.wait()
                raise _Lost from None
            raise as_failure(problem) from None

    async def dry_run(self, name: str, args: Mapping[str, Any] | None = None) -> ToolResult:
        """Return what a call would do, without doing it."""
        return await self.call(name, args, dry_run=True)

    async def run_calls(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Make many calls at once, and return their results in order."""
        made = (self.call(call.name, call.args, source=call.source, id=call.id) for call in calls)
        return list(await asyncio.gather(*made))

    async def undo(self, **args: Any) -> ToolResult:
        """Undo changes, as `Surehand.undo` does."""
        return await self.call("Undo", args)

    async def redo(self, **args: Any) -> ToolResult:
        """Redo what the latest undo reverted."""
        return await self.call("Redo", args)

    async def changes(self, **args: Any) -> ToolResult:
        """List the changes of the session."""
        return await self.call("Changes", args)

    async def run(self, function: str, payload: Any) -> Any:
        """Run `module:function(session, pieces, payload)` on the node, where the module must be installed."""
        placement = await self._wait_for_placement()
        try:
            return await self._cancellable(
                placement, f"run {function}", self._call_host(placement, "run", function, payload)
            )
        except _Lost:
            raise ToolFailure(_LOST.format(function), hint=_LOOK, details={"may_have_run": True}) from None

    # -- the workspace --------------------------------------------------------------------------------------------

    async def diff(self) -> str:
        """Return the changes since the session began, or was last pulled, as a patch in git's format."""
        return (await self._compare())[0]

    async def _compare(self) -> tuple[str, Snapshot]:
        """Return the patch and the snapshot it leads to, whose pieces the driver has."""
        await self.save()
        base, snapshot = self.checkpoint.base, self.checkpoint.snapshot
        found = [each for each in compare(base, snapshot) if not is_secret(each.path)]
        return await asyncio.to_thread(format_patch, found, self._fleet.pieces.read), snapshot

    async def pull(self, app: Surehand, *, description: str = "") -> ToolResult:
        """Apply the session's changes to the workspace of a local application, by ApplyPatch with its undo.

        If a file has changed here since, that is a conflict, and nothing is applied. The next diff starts from here.
        """
        patch, snapshot = await self._compare()
        result = await app.apply_patch(patch, description=description or f"Pull the session {self.id}")
        if result.ok:
            self.checkpoint.base = snapshot
            await self._call_host(await self._wait_for_placement(), "set_base", snapshot.to_dict())
        return result

    async def fork(self, count: int = 1) -> list[RemoteSession]:
        """Return new sessions that start with the files and the transcript of this one."""
        await self.save()
        held = self.checkpoint
        forks = (
            self._fleet.reopen(replace_id(self.spec), self.needs, held, own_process=self.own_process)
            for _ in range(count)
        )
        return list(await asyncio.gather(*forks))

    async def save(self) -> None:
        """Update the checkpoint with what changed since the last call, for example by background commands."""
        placement, life = await self._wait_for_placement(), self.checkpoint.life
        try:
            delta = await self._call_host(placement, "checkpoint")
        except _Lost:
            await self._wait_for_placement()  # it continues from its last checkpoint, which the driver has
            return
        await self.checkpoint.apply_delta(delta, self._fleet.pieces, life)

    async def close(self) -> None:
        """Close the session; changes that were not pulled are lost."""
        await self._fleet.close_session(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class _Lost(Exception):
    """The host is lost; the request may or may not have been carried out."""


def replace_id(spec: SessionSpec) -> SessionSpec:
    """Return the same spec with a new id."""
    return replace(spec, id=new_id("remote"))


def as_failure(problem: BaseException) -> BaseException:
    """Return the original error of a host, which Ray wraps."""
    cause = getattr(problem, "cause", None)
    if isinstance(cause, SurehandError):
        return cause
    if isinstance(problem, SurehandError) or not isinstance(problem, Exception):
        return problem
    return ToolFailure(f"the host failed: {type(problem).__name__}: {str(problem)[:2000]}")
