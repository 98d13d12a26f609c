"""The host: a process on a node that runs remote sessions, each an ordinary application over a workspace there.

It receives calls and returns their results together with what they changed. Events and questions are queued until the
fleet fetches them.
"""

from __future__ import annotations

import asyncio
import fcntl
import importlib
import os
import pickle
import resource
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, TypeAlias

from surehand.app import Surehand
from surehand.cluster.ray_api import own_versions
from surehand.cluster.session import Delta, compare_entries, rename_workspace
from surehand.core.call import ToolCall, ToolError, ToolResult
from surehand.core.errors import StateError
from surehand.core.events import Event, plain
from surehand.core.frozen import frozen, replace_values
from surehand.core.secrets import is_secret
from surehand.core.settings import Mode, Settings
from surehand.core.tool import Tool
from surehand.files.trees import remove_tree
from surehand.policy.approval import Answer, Question
from surehand.registry.loading import load_tool
from surehand.state import locations
from surehand.workspaces.snapshot import Pieces, Snapshot, restore, take_snapshot, with_statuses

_WAITING: Final = 100_000
"""Maximum number of queued events; beyond that the oldest are dropped and counted."""
_FETCHED: Final = 1000
Reply: TypeAlias = tuple[Any, Delta | None]


@frozen(kw_only=True)
class SessionSpec:
    """What a remote session is opened with."""

    id: str
    settings: Mapping[str, Any]
    allow: tuple[str, ...] = ()
    mode: Mode | None = None
    tools: tuple[Tool | str, ...] = ()
    """Tools, or references by which the node imports them (`module:name`)."""
    carry: tuple[str, ...] = ()
    """Path patterns of secrets that are copied with the workspace."""
    asks: bool = False
    """Whether the driver answers questions."""
    checkpoints: bool = True


class Host:
    """The Ray actor that runs sessions on one node. Its methods are async, so that calls overlap."""

    def __init__(self, node: str, label: str) -> None:
        os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
        _raise_file_limit()
        self.node = node
        self.label = label
        self._folder = _claim_folder(node)
        self.pieces = Pieces(os.path.join(self._folder, "pieces"))
        self._sessions: dict[str, _Hosted] = {}
        self._opened = 0
        self._calls = 0
        self._outbox: deque[tuple[str, str, Any]] = deque()
        self._dropped = 0
        self._wake = asyncio.Event()
        self._questions: dict[str, asyncio.Future[Answer]] = {}

    async def describe(self) -> dict[str, Any]:
        """Return versions, sessions and resource usage of this process."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "versions": own_versions(),
            "node": self.node,
            "pid": os.getpid(),
            "sessions": {name: hosted.spec for name, hosted in self._sessions.items()},
            "calls": self._calls,
            "rss_bytes": _resident_bytes(),
            "cpu_s": used.ru_utime + used.ru_stime,
            "audit": self._audit_dir,
        }

    @property
    def _audit_dir(self) -> str:
        return os.path.join(locations.home(), "nodes", self.node, "audit")

    # -- workspaces -----------------------------------------------------------------------------------------------

    async def find_missing(self, digests: list[str]) -> list[str]:
        """Return the digests of pieces that are not on this node."""
        return await asyncio.to_thread(self.pieces.find_missing, digests)

    async def add_pieces(self, pieces: Mapping[str, bytes]) -> None:
        """Store pieces; raise StateError for one that does not match its digest."""

        def add() -> None:
            for digest, data in pieces.items():
                if self.pieces.add(data) != digest:
                    raise StateError(f"the piece {digest} was damaged in transfer")

        await asyncio.to_thread(add)

    async def read_pieces(self, digests: list[str]) -> dict[str, bytes]:
        """Return pieces, for a fleet that attaches to a session."""
        return await asyncio.to_thread(lambda: {digest: self.pieces.read(digest) for digest in digests})

    # -- sessions -------------------------------------------------------------------------------------------------

    async def open(self, spec: SessionSpec, snapshot: Mapping[str, Any], journal: bytes, before: str) -> dict[str, Any]:
        """Restore a workspace and open a session over it; return its path and the tools that may be called again."""
        self._opened += 1
        self._loop = asyncio.get_running_loop()
        folder = os.path.join(self._folder, "sessions", f"{self.label}-{self._opened}")
        work = os.path.join(folder, "work")
        base = Snapshot.from_dict(snapshot)
        try:
            await asyncio.to_thread(_make_workspace, base, work, self.pieces)
            state = locations.workspace_state(work)
            journal = rename_workspace(journal, before, work)
            if journal:
                _write_journal(state, spec.id, journal)
            app = Surehand(
                work,
                settings=Settings.parse(spec.settings),
                allow=spec.allow,
                mode=spec.mode,
                tools=[load_tool(each) for each in spec.tools],
                session=spec.id,
                audit_dir=self._audit_dir,
            )
        except BaseException:
            await asyncio.to_thread(remove_tree, folder)
            raise
        if spec.asks:
            app.approver = _DriverApprover(self, spec.id)
        app.bus.subscribe(lambda event: self._put(("event", spec.id, _encode_event(event))))
        hosted = self._sessions[spec.id] = _Hosted(spec, app, folder, with_statuses(base, work))
        hosted.journal_at = len(journal)
        return {"workspace": work, "again": hosted.list_repeatable()}

    async def close_session(self, id: str) -> None:
        """Close a session and delete its workspace."""
        hosted = self._sessions.pop(id, None)
        if hosted is None:
            return
        for task in hosted.running.values():
            task.cancel()
        await hosted.app.close()
        await asyncio.to_thread(hosted.remove)

    async def close(self) -> None:
        """Close every session."""
        await asyncio.gather(*(self.close_session(id) for id in list(self._sessions)), return_exceptions=True)

    def _find(self, id: str) -> _Hosted:
        if (hosted := self._sessions.get(id)) is None:
            raise StateError(f"there is no session {id} here")
        return hosted

    # -- calls ----------------------------------------------------------------------------------------------------

    async def call(self, id: str, call: ToolCall, dry_run: bool = False) -> Reply:
        """Make a call; return its result, with the delta that the driver must apply before it uses the result."""
        hosted, app = self._find(id), self._find(id).app
        self._calls += 1
        run = app.executor.dry_run if dry_run else app.executor.run
        running = hosted.running[call.id] = asyncio.ensure_future(run(call, app.session, app.selection))
        try:
            result = await running
        except asyncio.CancelledError:
            if not running.cancelled():
                raise
            error = ToolError("cancelled", "the call was cancelled")
            result = ToolResult.failed(error)
        finally:
            hosted.running.pop(call.id, None)
        if dry_run or not hosted.spec.checkpoints or hosted.only_reads(call.name):
            return result, None
        return result, await hosted.take_delta(self.pieces)

    async def cancel(self, id: str, call_id: str) -> bool:
        """Cancel a running call; False if there is none."""
        running = self._find(id).running.get(call_id)
        return running is not None and running.cancel()

    async def run(self, id: str, function: str, payload: Any) -> Any:
        """Run `module:function(session, pieces, payload)` here, for work that is more than single calls."""
        hosted = self._find(id)
        module, _, name = function.partition(":")
        work = getattr(importlib.import_module(module), name)
        key = f"run {function}"
        running = hosted.running[key] = asyncio.ensure_future(work(hosted, self.pieces, payload))
        try:
            return await running
        finally:
            hosted.running.pop(key, None)

    async def set_base(self, id: str, base: Mapping[str, Any]) -> None:
        """Store the base of diffs, for a fleet that attaches later."""
        self._find(id).home_base = base

    async def checkpoint(self, id: str) -> Delta | None:
        """Return what changed since the last reply."""
        return await self._find(id).take_delta(self.pieces)

    async def export(self, id: str) -> dict[str, Any]:
        """Return the complete state of a session, for a fleet that attaches to it, and restart its deltas."""
        hosted = self._find(id)
        async with hosted.lock:
            await asyncio.to_thread(hosted.take_delta_now, self.pieces)
            hosted.number = 0
            hosted.known = hosted.sent.digests
            journal = _read_from(hosted.journal_path, 0)
            hosted.journal_at = len(journal)
            return {
                "snapshot": hosted.sent.to_dict(),
                "journal": journal,
                "workspace": hosted.work,
                "base": hosted.home_base,
                "again": hosted.list_repeatable(),
            }

    # -- what the driver receives ----------------------------------------------------------------------------------

    async def fetch(self, wait_s: float = 20.0) -> list[tuple[str, str, Any]]:
        """Return queued events and questions; wait up to `wait_s` for the first."""
        if not self._outbox:
            self._wake.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
            except TimeoutError:
                return []
        found = [self._outbox.popleft() for _ in range(min(_FETCHED, len(self._outbox)))]
        if self._dropped:
            found.insert(0, ("dropped", "", self._dropped))
            self._dropped = 0
        return found

    async def answer(self, question: str, answer: Answer) -> None:
        """Resolve an open question with the driver's answer."""
        if (waiting := self._questions.get(question)) is not None and not waiting.done():
            waiting.set_result(answer)

    def _put(self, item: tuple[str, str, Any]) -> None:
        if len(self._outbox) >= _WAITING:
            self._outbox.popleft()
            self._dropped += 1
        self._outbox.append(item)
        self._loop.call_soon_threadsafe(self._wake.set)  # tools emit events from threads, too

    async def ask_driver(self, id: str, question: Question) -> Answer:
        """Send a question to the driver and return the answer."""
        call = question.call
        sent = replace_values(question, call=ToolCall(call.name, call.args, call.id, call.source), try_first=None)
        if sent.preview is not None:
            sent = replace_values(sent, preview=replace_values(sent.preview, dry_run=None))
        name = f"{id}/{call.id}"
        waiting = self._questions[name] = asyncio.get_running_loop().create_future()
        self._put(("question", id, (name, pickle.dumps(sent))))
        try:
            return await waiting
        finally:
            del self._questions[name]


class _Hosted:
    """One session in its host."""

    def __init__(self, spec: SessionSpec, app: Surehand, folder: str, base: Snapshot) -> None:
        self.spec = spec
        self.app = app
        self.folder = folder
        self.work = os.path.join(folder, "work")
        self.base = self.sent = base
        """The snapshot it was opened with; the snapshot the driver has."""
        self.home_base: Mapping[str, Any] | None = None
        """The base of diffs, as the fleet set it last."""
        self.known = base.digests
        """Digests of the pieces that the driver has."""
        self.number = 0
        self.journal_at = 0
        self.lock = asyncio.Lock()
        self.running: dict[str, asyncio.Future[Any]] = {}

    @property
    def journal_path(self) -> str:
        state = self.app.session.state_dir or ""
        return os.path.join(state, "sessions", f"{self.spec.id}.jsonl")

    def list_repeatable(self) -> list[str]:
        """Return names and aliases of tools that may be called again after a lost answer."""
        infos = self.app.registry.infos()
        return [name for each in infos if each.read_only or each.idempotent for name in (each.name, *each.aliases)]

    def only_reads(self, name: str) -> bool:
        info = self.app.registry.info(self.app.registry.resolve(name) or name)
        return info is not None and info.read_only

    async def take_delta(self, pieces: Pieces) -> Delta:
        async with self.lock:
            return await asyncio.to_thread(self.take_delta_now, pieces)

    def take_delta_now(self, pieces: Pieces) -> Delta:
        """Return what changed since the last delta; the caller holds the lock."""
        after = take_snapshot(self.work, pieces, self.sent, keeps_out=secret_filter(self.work, self.spec.carry))
        entries = compare_entries(self.sent, after)
        new = {entry.digest for entry in entries.values() if entry is not None} - self.known
        journal = _read_from(self.journal_path, self.journal_at)
        self.journal_at += len(journal)
        self.sent, self.number = after, self.number + 1
        self.known |= new
        return Delta(self.number, entries, {digest: pieces.read(digest) for digest in new}, journal)

    def remove(self) -> None:
        remove_tree(locations.workspace_state(self.work))
        remove_tree(self.folder)


def secret_filter(root: str, carry: Sequence[str]) -> Callable[[str], bool]:
    """Return a predicate for paths not to copy: secrets, except those that match a pattern of `carry`."""

    def keeps_out(path: str) -> bool:
        below = os.path.relpath(path.rstrip("/"), root)
        return is_secret(path) and not any(fnmatchcase(below, pattern) for pattern in carry)

    return keeps_out if carry else is_secret


class _DriverApprover:
    """An approver that forwards questions to the driver."""

    def __init__(self, host: Host, id: str) -> None:
        self._host = host
        self._id = id

    async def ask(self, question: Question) -> Answer:
        return await self._host.ask_driver(self._id, question)


def _claim_folder(node: str) -> str:
    """Return the node's directory, locked until this process ends; delete those that no process has locked."""
    top = os.path.realpath(locations.private_dir(locations.nodes_folder()))
    claiming = os.open(os.path.join(top, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(claiming, fcntl.LOCK_EX)
        own = locations.private_dir(os.path.join(top, node))
        held = os.open(own, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)  # never closed: the lock ends with the process
        fcntl.flock(held, fcntl.LOCK_SH)
        for name in os.listdir(top):
            if name not in (node, "lock") and _is_abandoned(os.path.join(top, name)):
                remove_tree(os.path.join(top, name))
    finally:
        os.close(claiming)
    return own


def _is_abandoned(folder: str) -> bool:
    other = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:
        return False
    finally:
        os.close(other)


def _make_workspace(base: Snapshot, work: str, pieces: Pieces) -> None:
    os.makedirs(work, mode=0o700)
    restore(base, work, pieces)


def _write_journal(state: str, id: str, journal: bytes) -> None:
    folder = locations.private_dir(os.path.join(state, "sessions"))
    with open(os.open(os.path.join(folder, f"{id}.jsonl"), os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
        file.write(journal)


def _read_from(path: str, at: int) -> bytes:
    """Return the complete lines of a file after an offset."""
    try:
        with open(path, "rb") as file:
            file.seek(at)
            data = file.read()
    except FileNotFoundError:
        return b""
    return data[: data.rfind(b"\n") + 1]


def _encode_event(event: Event) -> bytes:
    """Pickle an event; data that cannot be pickled is converted to plain data, or left out."""
    try:
        return pickle.dumps(event)
    except Exception:  # pickle raises whatever an object's own code raises
        data = {key: plain(value) for key, value in event.data.items()}
        try:
            return pickle.dumps(Event(event.kind, event.session_id, event.call_id, event.tool, data, event.at))
        except Exception:
            return pickle.dumps(Event(event.kind, event.session_id, event.call_id, event.tool, {}, event.at))


def _raise_file_limit() -> None:
    """Raise the limit of open files to its maximum: each session needs three."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
