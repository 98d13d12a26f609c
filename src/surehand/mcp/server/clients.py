"""The clients of an MCP server: each has an application of its own, with its session, read state and approvals.

A client is identified by its connection: standard input, or a session of the older HTTP protocol. The newer HTTP
protocol has no connections; there the name that a client states identifies it.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, cast

from surehand.core.call import Source, ToolResult
from surehand.core.events import Event
from surehand.core.session import Seen, Session
from surehand.core.view import Selection
from surehand.engine.bus import Bus
from surehand.mcp.server.calls import LEVELS, Asked, AsksClient, ClientCall, Log, LogLevel
from surehand.policy.approval import Approver
from surehand.state import locations
from surehand.state.files import write_private

# Recent reads: the files a client has read in a workspace count as read in its next session there. Many clients begin a
# session for each call, and an edit is refused unless its session has read the file.

FRESH_S: Final = 1800.0
"""How long a read counts."""
NOTED_S: Final = 60.0
"""The same read is not recorded again within this time."""
FILE: Final = "mcp_reads.jsonl"
SIZE_LIMIT: Final = 256 * 1024
"""Bytes of the file above which old lines are dropped."""


class RecentReads:
    """The recent reads of clients of one name in the workspace of a session."""

    def __init__(self, session: Session, client: str) -> None:
        self._session = session
        self._client = client[:200]
        self._noted: dict[str, tuple[float, Mapping[str, Any]]] = {}
        self._path = os.path.join(session.state_dir, FILE) if session.state_dir is not None else None

    def load(self) -> None:
        """Mark the files read in earlier sessions as read in this one."""
        for record in self._load_fresh():
            if record["client"] == self._client:
                self._session.read_state.put(record["path"], record["seen"])

    def record(self, data: Mapping[str, Any]) -> None:
        """Append the data of a `file_read` event. If that fails, the next session has to read the file again."""
        now, noted = time.time(), self._noted.get(data["path"])
        if self._path is None or (noted is not None and noted[1] == data and 0 <= now - noted[0] < NOTED_S):
            return
        line = json.dumps({"client": self._client, "at": now, **data}) + "\n"
        with suppress(OSError, UnicodeError):
            descriptor = os.open(
                self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
            try:
                os.write(descriptor, line.encode())
            finally:
                os.close(descriptor)
            self._noted[data["path"]] = now, data

    def _load_fresh(self) -> list[dict[str, Any]]:
        """Return the records that still count; a file above its limit is rewritten with these alone."""
        if self._path is None:
            return []
        try:
            with open(self._path, encoding="utf-8", errors="replace") as file:
                lines = file.read(8 * SIZE_LIMIT).splitlines()
                size = os.fstat(file.fileno()).st_size
        except OSError:
            return []
        since = time.time() - FRESH_S
        found = [record for line in lines if (record := _parse(line)) is not None and record["at"] > since]
        if size > SIZE_LIMIT:
            self._rewrite(found)
        return found

    def _rewrite(self, found: list[dict[str, Any]]) -> None:
        """Rewrite the file with the latest record of each path; what another process appends meanwhile is lost."""
        latest = {(record["client"], record["path"]): record for record in found}
        lines = [json.dumps({**record, "seen": None, **record["seen"].to_dict()}) for record in latest.values()]
        assert self._path is not None
        with suppress(OSError):
            locations.private_dir(os.path.dirname(self._path))
            write_private(self._path, "".join(line + "\n" for line in lines[-1000:]), flush=False)


def _parse(line: str) -> dict[str, Any] | None:
    """Return a line as client, time, path and `Seen`; None if it is damaged or of another version."""
    try:
        record = cast("dict[str, Any]", json.loads(line))
        client, at, path = record.pop("client"), float(record.pop("at")), record.pop("path")
        record.pop("seen", None)
        return {"client": client, "at": at, "path": path, "seen": Seen(**record)}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


IDLE_S: Final = 1800.0
"""A client without requests for so long is closed, when another one comes; what it left running ends."""
CLIENTS_LIMIT: Final = 4000
LOG_KEPT: Final = 1000
"""Events of a session in its log resource."""


class App(Protocol):
    """The part of an application (`surehand.app.Surehand`) that serving uses."""

    @property
    def session(self) -> Session:
        """The session of the client."""
        ...

    @property
    def selection(self) -> Selection:
        """The tools that the client sees."""
        ...

    @property
    def bus(self) -> Bus:
        """The stream of events."""
        ...

    async def call(
        self, name: str, args: Mapping[str, Any] | None = None, *, source: Source = "user", id: str | None = None
    ) -> ToolResult:
        """Make one call."""
        ...

    async def __aenter__(self) -> Any: ...
    async def close(self) -> None:
        """End everything the application started."""
        ...


Open = Callable[[Approver, str | None], App]
"""Opens the application of a client, with the approver that asks it, on its workspace (None: the configured one)."""


@dataclass(eq=False, slots=True)
class Waiting:
    """A call that waits until the client calls again with the answers."""

    call: ClientCall
    asked: Mapping[str, Asked]


@dataclass(eq=False)
class Client:
    """One client and its state."""

    app: App
    reads: RecentReads | None = None
    """Records what the client reads, for its next session; None if the session itself is resumed."""
    sessions: dict[str, Any] = field(default_factory=dict[str, Any])
    """The SDK's session of each connection, by key: one, unless all clients share a session."""
    tools_changed: Callable[[], None] = lambda: None
    file_changed: Callable[[str], None] = lambda path: None
    gathering: asyncio.Task[None] | None = None
    """Connects to other servers, if their tools are served too."""
    notifying: bool = False
    """Whether a `tools/list_changed` notification to the client is pending."""
    level: LogLevel = "info"
    last_request_at: float = field(default_factory=time.monotonic)
    running: dict[str, ClientCall] = field(default_factory=dict[str, ClientCall])
    waiting: dict[str, Waiting] = field(default_factory=dict[str, Waiting])
    subscribed: dict[str, Any] = field(default_factory=dict[str, Any])
    """The session to notify of a resource, by the URIs subscribed to."""
    log: deque[Event] = field(default_factory=lambda: deque(maxlen=LOG_KEPT))

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._ready_servers = set[str]()
        self.app.bus.subscribe(self._listen)

    def _listen(self, event: Event) -> None:
        if threading.get_ident() == self._thread:
            self._on_event(event)
        else:  # emitted by a handler in a worker thread
            self._loop.call_soon_threadsafe(self._on_event, event)

    def _on_event(self, event: Event) -> None:
        call = self.running.get(event.call_id)
        match event.kind:
            case "call_progress":
                if call is not None:
                    call.report(event.data["progress"])
                return
            case "tool_registered" | "tool_unregistered":
                self.tools_changed()
                return
            case "note" | "extension_failed":
                for each in [call] if call is not None else list(self.running.values()):
                    each.report(Log("warning", str(event.data.get("message", event.kind))))
            case "server_state":
                self._follow_server(str(event.data["server"]), event.data["state"] == "ready")
            case "file_read":
                if self.reads is not None and event.session_id == self.app.session.id:
                    self.reads.record(event.data)
            case "file_changed":
                self.file_changed(str(event.data.get("path", "")))
            case _:
                pass
        self.log.append(event)

    def _follow_server(self, server: str, ready: bool) -> None:
        """Announce changed tools when a server becomes ready or is lost, not for every attempt to connect."""
        if ready != (server in self._ready_servers):
            (self._ready_servers.add if ready else self._ready_servers.discard)(server)
            self.tools_changed()

    def serve(self, key: str, session: Any) -> None:
        """Add the SDK session of a connection, so that it is notified of changes."""
        if key not in self.sessions:
            self.sessions[key] = session
            if len(self.sessions) > CLIENTS_LIMIT:  # many disconnect without closing their session
                del self.sessions[next(iter(self.sessions))]

    def end_call(self, request_id: str | int) -> None:
        """Cancel the call of a request, if it still runs."""
        for call in list(self.running.values()):
            if call.request_id == request_id and call.task is not None:
                call.task.cancel()

    def wants(self, level: LogLevel) -> bool:
        """Return whether the client's log level admits messages of this level."""
        return LEVELS.index(level) >= LEVELS.index(self.level)

    async def close(self) -> None:
        """Cancel the client's calls and close its application."""
        calls = {*self.running.values(), *(each.call for each in self.waiting.values())}
        tasks = [task for task in (self.gathering, *(call.task for call in calls)) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=5)
        await self.app.close()


class Clients:
    """All clients of one server, by key; with `shared` they all have one session."""

    def __init__(self, open_app: Open, *, shared: bool = False) -> None:
        self._open = open_app
        self._shared = shared
        self._clients: dict[str, Client] = {}
        self._opening: dict[str, asyncio.Future[Client]] = {}

    def find(self, key: str) -> Client | None:
        """Return the client with a key; None if there is none."""
        client = self._clients.get(self._key_of(key))
        if client is not None:
            client.last_request_at = time.monotonic()
        return client

    async def get(self, key: str, name: str, roots: Callable[[], Awaitable[Sequence[str]]]) -> Client:
        """Return the client with a key, opened if need be; concurrent requests open it once.

        `name` is the one the client states, `roots` asks it for its folders.
        """
        if (client := self.find(key)) is not None:
            return client
        key = self._key_of(key)
        if (opening := self._opening.get(key)) is not None:
            return await asyncio.shield(opening)
        opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._opening[key] = opened
        try:
            await self._close_idle()
            client = self._clients[key] = await self._open_client(name, await roots())
            opened.set_result(client)
        except BaseException as problem:
            opened.set_exception(problem if isinstance(problem, Exception) else asyncio.CancelledError())
            opened.exception()  # marked as retrieved: without a waiter, asyncio would log it
            raise
        finally:
            del self._opening[key]
        return client

    async def _open_client(self, name: str, roots: Sequence[str]) -> Client:
        folders = [root for root in roots if _is_folder(root)]
        app = self._open(AsksClient(), folders[0] if folders else None)
        app.session.roots = tuple(dict.fromkeys((app.session.workspace, *folders)))
        await app.__aenter__()
        if app.session.name is not None:  # its journal has the reads
            return Client(app)
        reads = RecentReads(app.session, name)
        reads.load()
        return Client(app, reads)

    async def drop(self, key: str) -> None:
        """Close a client that has disconnected; a shared session stays open."""
        if (client := self._clients.get(self._key_of(key))) is not None:
            client.sessions.pop(key, None)
        if not self._shared and client is not None:
            del self._clients[key]
            await client.close()

    def _key_of(self, key: str) -> str:
        return "all" if self._shared else key

    async def _close_idle(self) -> None:
        """Close clients that have been idle for long, and at the limit the longest idle one."""
        if self._shared:
            return
        now = time.monotonic()
        idle = [key for key, client in self._clients.items() if not client.running]
        late = [key for key in idle if now - self._clients[key].last_request_at > IDLE_S]
        if len(self._clients) - len(late) >= CLIENTS_LIMIT:
            left = sorted(set(idle) - set(late), key=lambda key: self._clients[key].last_request_at)
            late += left[:1]
        for key in late:
            await self.drop(key)

    async def close(self) -> None:
        """Close all clients."""
        self._shared = False
        for key in list(self._clients):
            with suppress(Exception):  # one that fails to close must not keep the others open
                await self.drop(key)


def _is_folder(path: str) -> bool:
    return os.path.isdir(path)
