"""The fleet: places sessions on the nodes of a Ray cluster, and reopens them elsewhere when a node dies."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from surehand.cluster.host import Host, SessionSpec, secret_filter
from surehand.cluster.ray_api import Cluster, Needs, Node, check_versions, is_lost
from surehand.cluster.session import Checkpoint, RemoteSession, as_failure, split_pieces
from surehand.config import load
from surehand.core.call import ToolCall, ToolResult, new_id
from surehand.core.errors import StateError, SurehandError, ToolFailure
from surehand.core.events import Event, Listener
from surehand.engine.bus import Bus
from surehand.engine.metrics import HeardCalls, Metrics
from surehand.files.trees import remove_tree
from surehand.policy.approval import AnswerFunction, Approver, approver_of, ask_approver
from surehand.policy.trust import is_trusted
from surehand.registry.loading import refer_to
from surehand.workspaces.snapshot import Pieces, Snapshot, take_snapshot

if TYPE_CHECKING:
    from surehand.core.settings import Mode, Settings
    from surehand.core.tool import Tool

_NAMESPACE: Final = "surehand"
_PAUSE_S: Final = 0.2


class HostHandle:
    """The fleet's record of a host process."""

    def __init__(self, actor: Any, node: str, metrics: Metrics, *, shared: bool) -> None:
        self.actor = actor
        self.node = node
        self.shared = shared
        self.heard = HeardCalls(metrics)
        self.lost = False
        self.fetching: asyncio.Task[None] | None = None


class Placement:
    """Where one session runs: its host, and the resources reserved for it."""

    def __init__(self, host: HostHandle, group: Any) -> None:
        self.host = host
        self.group = group
        self.gone = asyncio.Event()
        """Set once the host is known to be lost; wakes calls that wait for its answer."""

    @property
    def node(self) -> str:
        """The id of the node."""
        return self.host.node


class Fleet:
    """Sessions on a cluster. `address` is `local` for a Ray started here, `auto`, or HOST:PORT of one that runs.

    `nodes` is the number of nodes to simulate on this machine. `sessions_per_node` limits the sessions on a node, and
    `queue` those that wait for a slot; beyond that a session is refused with `queue_full`. `settings`, `allow`, `mode`
    and `tools` apply to every session, and `approver` answers the questions of all. With `detach` the sessions outlive
    this process under that name, until a fleet of the same name closes them.
    """

    def __init__(
        self,
        address: str = "local",
        *,
        nodes: int = 1,
        cpus_per_node: float | None = None,
        sessions_per_node: int = 100,
        queue: int = 1000,
        settings: Settings | None = None,
        allow: Sequence[str] = (),
        mode: Mode | None = None,
        tools: Sequence[Tool] = (),
        approver: Approver | AnswerFunction | None = None,
        listener: Listener | None = None,
        checkpoints: bool = True,
        detach: str | None = None,
    ) -> None:
        self._connect: Callable[[], Cluster] = lambda: Cluster(
            address, nodes, cpus_per_node, namespace=f"{_NAMESPACE}-{detach}" if detach else new_id(_NAMESPACE)
        )
        self._settings = settings
        self._given: dict[str, Any] = {
            "allow": tuple(allow),
            "mode": mode,
            "tools": tuple(refer_to(each) for each in tools),
        }
        self._given |= {"asks": approver is not None, "checkpoints": checkpoints}
        self._approver = approver_of(approver) if approver is not None else None
        self._per_node = sessions_per_node
        self._queue = queue
        self._detach = detach
        self.bus = Bus()
        """Every event of every session."""
        self.metrics = Metrics()
        """Metrics of the calls of all sessions, counted from the events received so far."""
        self._reported = HeardCalls(self.metrics)
        if listener is not None:
            self.bus.subscribe(listener)
        self.sessions: dict[str, RemoteSession] = {}
        self._hosts: list[HostHandle] = []
        self._starting: dict[str, asyncio.Future[HostHandle]] = {}
        self._occupied: Counter[str] = Counter()
        self._placing: dict[Needs, asyncio.Lock] = {}
        self.waiting = 0
        """How many sessions wait for a slot."""
        self._background: set[asyncio.Task[Any]] = set()
        self._closing = False
        self._room = asyncio.Event()
        self._freed = 0
        """Slots freed so far."""

    async def __aenter__(self) -> Self:
        self._folder = tempfile.mkdtemp(prefix="surehand-fleet-")
        self.pieces = Pieces(os.path.join(self._folder, "pieces"))
        try:
            self._cluster = self._connect()  # not in a thread: Ray sets signal handlers, which only the main thread may
            if self._detach:
                await self._attach()
        except BaseException:
            remove_tree(self._folder)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(keep=bool(self._detach))

    async def close(self, *, keep: bool = False) -> None:
        """Close every session and leave the cluster; with `keep`, the sessions live on."""
        self._closing = True
        if not keep:
            ending = (self.close_session(session) for session in list(self.sessions.values()))
            await asyncio.gather(*ending, return_exceptions=True)
        for task in [*self._background, *(host.fetching for host in self._hosts if host.fetching)]:
            task.cancel()
        if not keep:
            for host in self._hosts:
                with contextlib.suppress(Exception):
                    await asyncio.wait_for(_finish(host.actor.close.remote()), 10)
                self._cluster.kill(host.actor)
        await asyncio.to_thread(self._cluster.close)
        self.bus.close()
        remove_tree(self._folder)

    async def list_nodes(self) -> list[Node]:
        """Return the nodes that are alive."""
        return await self._cluster.list_nodes()

    async def describe(self) -> list[dict[str, Any]]:
        """Return the status of every host: node, process, sessions, calls, memory, path of its audit."""
        return [await host.actor.describe.remote() for host in self._hosts if not host.lost]

    # -- sessions -------------------------------------------------------------------------------------------------

    async def session(
        self,
        workspace: str | os.PathLike[str] | Snapshot,
        *,
        needs: Mapping[str, Any] | None = None,
        labels: Mapping[str, str] | None = None,
        own_process: bool = False,
        pieces: Pieces | None = None,
        carry: Sequence[str] = (),
        name: str | None = None,
    ) -> RemoteSession:
        """Open a session over a copy of a workspace, on a node that has what it `needs`.

        Ignored files are not copied, nor are secrets, except those that match a path pattern in `carry`. A workspace
        may be a snapshot, with its contents in `pieces`. Raises ToolFailure (`queue_full`) if too many sessions wait.
        """
        wanted = Needs.parse(needs, labels)
        if isinstance(workspace, Snapshot):
            snapshot, settings = workspace, self._settings
            if pieces is not None:
                await asyncio.to_thread(_copy_pieces, snapshot, pieces, self.pieces)
        else:
            root = _real(workspace)
            snapshot = await self._snapshot(root, carry)
            settings = self._settings or load(root, trusted=is_trusted(root)).settings
        settings = settings or load(self._folder).settings
        given: dict[str, Any] = {"carry": tuple(carry), **self._given}
        spec = SessionSpec(id=name or new_id("remote"), settings=settings.to_dict(), **given)
        return await self.reopen(spec, wanted, Checkpoint(snapshot), own_process=own_process)

    async def _snapshot(self, root: str, carry: Sequence[str]) -> Snapshot:
        if not await asyncio.to_thread(os.path.isdir, root):
            raise StateError(f"the workspace {root} is not a folder")
        return await asyncio.to_thread(lambda: take_snapshot(root, self.pieces, keeps_out=secret_filter(root, carry)))

    async def reopen(
        self, spec: SessionSpec, needs: Needs, checkpoint: Checkpoint, *, own_process: bool
    ) -> RemoteSession:
        """Open a session from a checkpoint, which is not modified."""
        held = Checkpoint(checkpoint.snapshot, checkpoint.journal, checkpoint.workspace, checkpoint.base)
        session = RemoteSession(self, spec, needs, held, own_process=own_process)
        await self._assign(session)
        self.sessions[session.id] = session
        return session

    async def close_session(self, session: RemoteSession) -> None:
        """End a session and free its slot."""
        self.sessions.pop(session.id, None)
        placement = session.placement
        session.fail(StateError(f"the session {session.id} is closed"))
        if placement is None:
            return
        if not placement.host.lost:
            with contextlib.suppress(Exception):
                await placement.host.actor.close_session.remote(session.id)
        self._free(placement)
        if self._detach:
            await asyncio.to_thread(self._cluster.release_named, session.id)
        if not placement.host.shared:
            self._drop_host(placement.host)

    # -- placement ------------------------------------------------------------------------------------------------

    async def _assign(self, session: RemoteSession) -> None:
        """Assign a session to a host and open it there; if the node dies meanwhile, try another."""
        if self.waiting >= self._queue:
            raise ToolFailure(
                f"{self.waiting} sessions are already waiting for a slot",
                code="queue_full",
                hint="Close sessions, add nodes, or raise `queue`.",
            )
        while not await self._try_assign(session):
            pass

    async def _try_assign(self, session: RemoteSession) -> bool:
        """Return True once a session is open on a host, False if its node died meanwhile."""
        try:
            placement = await self._find_placement(session)
        except Exception as problem:
            if is_lost(problem):
                return False
            raise
        try:
            session.attach(placement, await self._open_on(placement, session))
        except BaseException as problem:
            self._free(placement)
            if not is_lost(problem):
                raise as_failure(problem) from None
            self.report_lost(placement.host)
            return False
        return True

    async def _find_placement(self, session: RemoteSession) -> Placement:
        needs, group = session.needs, None
        self.waiting += 1
        try:
            async with self._placing.setdefault(needs, asyncio.Lock()):  # one at a time: first come, first served
                if needs.bundle:
                    await self._check_feasible(needs)
                    group, node = await self._cluster.reserve(needs, name=session.id if self._detach else "")
                    await self._wait_at(node, group)
                else:
                    node = await self._find_room(needs)
                self._occupied[node] += 1
        finally:
            self.waiting -= 1
        try:
            return Placement(await self._host_on(node, shared=not session.own_process), group)
        except BaseException:
            self._free_slot(node, group)
            raise

    async def _check_feasible(self, needs: Needs) -> None:
        """Raise StateError if no node has the resources: the session would wait for ever."""
        nodes = [node for node in await self._cluster.list_nodes() if needs.fits(node.labels)]
        if not nodes:
            raise StateError(f"no node has the labels {dict(needs.labels)}")
        if not any(node.cpu >= needs.cpu and node.memory >= needs.memory for node in nodes):
            raise StateError(f"no node has {needs.cpu:g} cores and {needs.memory >> 20:,} MiB")

    async def _find_room(self, needs: Needs) -> str:
        """Return the node with the fewest sessions that has room and the labels; wait until there is one."""
        while True:
            freed = self._freed
            lost = {host.node for host in self._hosts if host.lost}
            nodes = [node for node in await self._cluster.list_nodes() if needs.fits(node.labels)]
            if not nodes:
                raise StateError(f"no node has the labels {dict(needs.labels)}")
            free = [node.id for node in nodes if self._occupied[node.id] < self._per_node]
            if free:
                return min(free, key=lambda id: (id in lost, self._occupied[id]))
            await self._wait_for_room(freed)

    async def _wait_at(self, node: str, group: Any) -> None:
        """Wait until the node of a reservation has room; if the wait is cancelled, release the reservation."""
        try:
            while self._occupied[node] >= self._per_node:
                await self._wait_for_room(self._freed)
        except BaseException:
            self._cluster.release(group)
            raise

    async def _wait_for_room(self, freed: int) -> None:
        """Wait until a slot is freed, at most a second: a node may have joined meanwhile."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                while self._freed == freed:
                    self._room.clear()
                    await self._room.wait()

    def _free(self, placement: Placement) -> None:
        self._free_slot(placement.node, placement.group)

    def _free_slot(self, node: str, group: Any) -> None:
        self._occupied[node] -= 1
        self._cluster.release(group)
        self._freed += 1
        self._room.set()

    async def _host_on(self, node: str, *, shared: bool) -> HostHandle:
        if not shared:
            return await self._start_host(node, shared=False)
        if node not in self._starting or _is_lost(self._starting[node]):
            self._starting[node] = asyncio.ensure_future(self._start_host(node, shared=True))
        return await asyncio.shield(self._starting[node])

    async def _start_host(self, node: str, *, shared: bool) -> HostHandle:
        label = new_id("host")
        actor = self._cluster.start_actor(Host, node, node, label, name=label, detached=bool(self._detach))
        described = await actor.describe.remote()
        try:
            check_versions(node, described["versions"])
        except StateError:
            self._cluster.kill(actor)
            raise
        return self._adopt(HostHandle(actor, node, self.metrics, shared=shared))

    def _adopt(self, host: HostHandle) -> HostHandle:
        self._hosts.append(host)
        host.fetching = asyncio.ensure_future(self._fetch(host))
        return host

    def _drop_host(self, host: HostHandle) -> None:
        if host.fetching is not None:
            host.fetching.cancel()
        self._hosts = [each for each in self._hosts if each is not host]
        self._cluster.kill(host.actor)

    async def _open_on(self, placement: Placement, session: RemoteSession) -> Mapping[str, Any]:
        """Send the pieces of the workspace that the node lacks, and open the session there."""
        actor, held = placement.host.actor, session.checkpoint
        wanted = held.snapshot.digests | (held.base.digests if self._detach else set[str]())
        missing = await actor.find_missing.remote(sorted(wanted))
        parts = split_pieces(missing, self.pieces)
        while (part := await asyncio.to_thread(next, parts, None)) is not None:
            await actor.add_pieces.remote(part)
        opened = await actor.open.remote(session.spec, held.snapshot.to_dict(), held.journal, held.workspace)
        if self._detach:
            await actor.set_base.remote(session.id, held.base.to_dict())
        return opened

    # -- when a node dies -----------------------------------------------------------------------------------------

    def report_lost(self, host: HostHandle) -> None:
        """Reopen the sessions of a lost host elsewhere. Idempotent: every failing call reports the loss."""
        if host.lost or self._closing:
            return
        host.lost = True
        self._start(self._move_all(host))

    async def _move_all(self, host: HostHandle) -> None:
        host.heard.forget_running()
        self._cluster.kill(host.actor)  # a host that was only unreachable must not go on beside its successor
        gone = [session for session in self.sessions.values() if session.placement and session.placement.host is host]
        for session in gone:
            if session.placement is not None:
                self._free(session.placement)
            await session.detach()
        self._warn(f"the node {host.node} is gone; {len(gone)} sessions continue elsewhere from their last checkpoint")
        for session in gone:
            self._start(self._move(session))

    async def _move(self, session: RemoteSession) -> None:
        try:
            await self._assign(session)
        except Exception as problem:
            failure = problem if isinstance(problem, SurehandError) else StateError(f"it cannot be reopened: {problem}")
            session.fail(failure)

    def _start(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # -- what the driver receives ----------------------------------------------------------------------------------

    async def _fetch(self, host: HostHandle) -> None:
        """Receive events and questions of a host until it is lost."""
        while True:
            try:
                found: Sequence[tuple[str, str, Any]] = await host.actor.fetch.remote()
            except asyncio.CancelledError:
                raise
            except Exception as problem:
                if is_lost(problem):
                    self.report_lost(host)
                    return
                await asyncio.sleep(_PAUSE_S)
                continue
            for kind, _, item in found:
                if kind == "event":
                    event = pickle.loads(item)  # safe: a cluster is one trust domain
                    host.heard(event)
                    self.bus.emit(event)
                elif kind == "question":
                    self._start(self._answer(host, *item))
                else:
                    self._warn(f"{item} events of the node {host.node} were dropped: nobody fetched them")

    async def _answer(self, host: HostHandle, name: str, encoded: bytes) -> None:
        if self._approver is not None:
            answer = await ask_approver(self._approver, pickle.loads(encoded))
            await host.actor.answer.remote(name, answer)

    def report_call(self, session: RemoteSession, call: ToolCall, result: ToolResult) -> None:
        """Report the end of a call whose node is lost."""
        data = {"call": call, "result": result, "decision": None, "bug": False}
        event = Event("call_finished", f"session_{session.id}", call.id, call.name, data)
        self._reported(event)
        self.bus.emit(event)

    def _warn(self, message: str) -> None:
        self.bus.emit(Event("note", data={"message": message}))

    # -- detached sessions ------------------------------------------------------------------------------------------

    async def _attach(self) -> None:
        """Attach to the detached sessions that an earlier fleet of this name left."""
        for actor in await asyncio.to_thread(self._cluster.find_actors):
            described = await actor.describe.remote()
            check_versions(described["node"], described["versions"])
            host = self._adopt(HostHandle(actor, described["node"], self.metrics, shared=True))
            self._starting[host.node] = _make_finished(host)
            for id, spec in described["sessions"].items():
                exported = await actor.export.remote(id)
                snapshot = Snapshot.from_dict(exported["snapshot"])
                base = Snapshot.from_dict(exported["base"] or exported["snapshot"])
                missing = self.pieces.find_missing(snapshot.digests | base.digests)
                for at in range(0, len(missing), 200):
                    for data in (await actor.read_pieces.remote(missing[at : at + 200])).values():
                        self.pieces.add(data)
                held = Checkpoint(snapshot, exported["journal"], exported["workspace"], base)
                session = RemoteSession(self, spec, Needs(), held, own_process=False)
                session.attach(Placement(host, None), {"again": exported["again"], "workspace": exported["workspace"]})
                self._occupied[host.node] += 1
                self.sessions[id] = session


def _real(path: str | os.PathLike[str]) -> str:
    return os.path.realpath(path)


def _copy_pieces(snapshot: Snapshot, source: Pieces, target: Pieces) -> None:
    if source.folder != target.folder:
        for digest in target.find_missing(snapshot.digests):
            target.add(source.read(digest))


def _is_lost(starting: asyncio.Future[HostHandle]) -> bool:
    """True if the start of a host failed, or the host is lost by now."""
    if not starting.done():
        return False
    return starting.cancelled() or starting.exception() is not None or starting.result().lost


def _make_finished(host: HostHandle) -> asyncio.Future[HostHandle]:
    done = asyncio.get_running_loop().create_future()
    done.set_result(host)
    return done


async def _finish(reference: Any) -> Any:
    return await reference
