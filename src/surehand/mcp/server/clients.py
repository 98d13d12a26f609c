"""The clients of an MCP server: each has an application of its own, with its session, read state and approvals.

A client is known by its connection: the one on standard input, a session of the older HTTP protocol, or, since the
newer one has no connections, by the name it gives itself, and by that name finds what it has read before.
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

# Recent reads: what a client has read in a workspace, for its next session there.

FRESH_S: Final = 1800.0
"""A client that has not been heard of for so long is gone, and so is what it read."""
NOTED_S: Final = 60.0
"""How long a note of a file stands before the same is noted again."""
FILE: Final = "mcp_reads.jsonl"
SIZE_LIMIT: Final = 256 * 1024
"""Bytes from which on old lines are dropped."""


class RecentReads:
    """What clients of one name read in the workspace of a session."""

    def __init__(self, session: Session, client: str) -> None:
        self._session = session
        self._client = client[:200]
        self._noted: dict[str, tuple[float, Mapping[str, Any]]] = {}
        self._path = os.path.join(session.state_dir, FILE) if session.state_dir is not None else None

    def take_up(self) -> None:
        """Mark the files read in earlier sessions as read in this one."""
        for record in self._fresh():
            if record["client"] == self._client:
                self._session.read_state.put(record["path"], record["seen"])

    def note(self, data: Mapping[str, Any]) -> None:
        """Note that a file was read, as the event of it says; where that fails, the client has to read it again."""
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

    def _fresh(self) -> list[dict[str, Any]]:
        """Return the lines that still count; a file that has grown long is left with no others."""
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
        """Keep the latest line of each file; one that another process adds meanwhile may be lost, and is read again."""
        latest = {(record["client"], record["path"]): record for record in found}
        lines = [json.dumps({**record, "seen": None, **record["seen"].to_dict()}) for record in latest.values()]
        assert self._path is not None
        with suppress(OSError):
            locations.private_dir(os.path.dirname(self._path))
            write_private(self._path, "".join(line + "\n" for line in lines[-1000:]), flush=False)


def _parse(line: str) -> dict[str, Any] | None:
    """Return one line as client, time, path and what was seen; None for one that is damaged or of another version."""
    try:
        record = cast("dict[str, Any]", json.loads(line))
        client, at, path = record.pop("client"), float(record.pop("at")), record.pop("path")
        record.pop("seen", None)
        return {"client": client, "at": at, "path": path, "seen": Seen(**record)}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


IDLE_S: Final = 1800.0
"""A client that has not been heard of for so long is gone; what it left running ends."""
CLIENTS_LIMIT: Final = 4000
LOG_KEPT: Final = 1000
"""Events of a session that its log resource tells."""


class App(Protocol):
    """What is served: an application (`surehand.app.Surehand`) over one workspace."""

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
"""Opens an application for a client: with the approver that asks it, on the workspace it names (None: the usual)."""


@dataclass(eq=False, slots=True)
class Waiting:
    """A call that stands still until the client calls again with the answers."""

    call: ClientCall
    asked: Mapping[str, Asked]


@dataclass(eq=False)
class Client:
    """One client and all that is kept for it."""

    app: App
    reads: RecentReads | None = None
    """Remembers what the client read for its next session; None where the session itself continues."""
    sessions: dict[str, Any] = field(default_factory=dict[str, Any])
    """The SDK's sessions of those who are served here, by the key of each: one, unless all share a session."""
    tools_changed: Callable[[], None] = lambda: None
    file_changed: Callable[[str], None] = lambda path: None
    gathering: asyncio.Task[None] | None = None
    """Brings in the tools of other servers, where they are served too."""
    notifying: bool = False
    """Whether a `tools/list_changed` notification to the client is pending."""
    level: LogLevel = "info"
    heard: float = field(default_factory=time.monotonic)
    running: dict[str, ClientCall] = field(default_factory=dict[str, ClientCall])
    waiting: dict[str, Waiting] = field(default_factory=dict[str, Waiting])
    subscribed: dict[str, Any] = field(default_factory=dict[str, Any])
    """Resources it has subscribed to, by URI, each with the function that notifies it."""
    log: deque[Event] = field(default_factory=lambda: deque(maxlen=LOG_KEPT))

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._there = set[str]()
        self.app.bus.subscribe(self._listen)

    def _listen(self, event: Event) -> None:
        if threading.get_ident() == self._thread:
            self._on_event(event)
        else:  # a handler in a worker thread reports
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
                self._server_moved(str(event.data["server"]), event.data["state"] == "ready")
            case "file_read":
                if self.reads is not None and event.session_id == self.app.session.id:
                    self.reads.note(event.data)
            case "file_changed":
                self.file_changed(str(event.data.get("path", "")))
            case _:
                pass
        self.log.append(event)

    def _server_moved(self, server: str, ready: bool) -> None:
        """Tell of other tools when a server has come or gone, not of every attempt to reach it."""
        if ready != (server in self._there):
            (self._there.add if ready else self._there.discard)(server)
            self.tools_changed()

    def serve(self, key: str, session: Any) -> None:
        """Add an SDK session, so that it is notified of changes."""
        if key not in self.sessions:
            self.sessions[key] = session
            if len(self.sessions) > CLIENTS_LIMIT:  # many leave without a word
                del self.sessions[next(iter(self.sessions))]

    def end_call(self, request_id: str | int) -> None:
        """End the call that a client made with this request, if it still runs."""
        for call in list(self.running.values()):
            if call.request_id == request_id and call.task is not None:
                call.task.cancel()

    def wants(self, level: LogLevel) -> bool:
        """Whether the client wants messages of this level."""
        return LEVELS.index(level) >= LEVELS.index(self.level)

    async def close(self) -> None:
        """End what runs for this client, and its session."""
        calls = {*self.running.values(), *(each.call for each in self.waiting.values())}
        tasks = [task for task in (self.gathering, *(call.task for call in calls)) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=5)
        await self.app.close()


class Clients:
    """All clients of one server, by key; with `shared` they have one session between them."""

    def __init__(self, open_app: Open, *, shared: bool = False) -> None:
        self._open = open_app
        self._shared = shared
        self._clients: dict[str, Client] = {}
        self._opening: dict[str, asyncio.Future[Client]] = {}

    def find(self, key: str) -> Client | None:
        """Return the client of a connection; None where there is none."""
        client = self._clients.get(self._key_of(key))
        if client is not None:
            client.heard = time.monotonic()
        return client

    async def get(self, key: str, name: str, roots: Callable[[], Awaitable[Sequence[str]]]) -> Client:
        """Return the client behind a key; its application is opened with its first request that needs one.

        `name` is what the client calls itself.
        """
        if (client := self.find(key)) is not None:
            return client
        key = self._key_of(key)
        if (opening := self._opening.get(key)) is not None:
            return await asyncio.shield(opening)
        mine: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._opening[key] = mine
        try:
            await self._make_room()
            client = self._clients[key] = await self._open_client(name, await roots())
            mine.set_result(client)
        except BaseException as problem:
            mine.set_exception(problem if isinstance(problem, Exception) else asyncio.CancelledError())
            mine.exception()  # waiters got it; unretrieved, asyncio would log it
            raise
        finally:
            del self._opening[key]
        return client

    async def _open_client(self, name: str, roots: Sequence[str]) -> Client:
        folders = [root for root in roots if _is_folder(root)]
        app = self._open(AsksClient(), folders[0] if folders else None)
        app.session.roots = tuple(dict.fromkeys((app.session.workspace, *folders)))
        await app.__aenter__()
        if app.session.name is not None:  # it has a journal of its own
            return Client(app)
        reads = RecentReads(app.session, name)
        reads.take_up()
        return Client(app, reads)

    async def drop(self, key: str) -> None:
        """Remove a client that has disconnected; a shared session stays open."""
        if (client := self._clients.get(self._key_of(key))) is not None:
            client.sessions.pop(key, None)
        if not self._shared and client is not None:
            del self._clients[key]
            await client.close()

    def _key_of(self, key: str) -> str:
        return "all" if self._shared else key

    async def _make_room(self) -> None:
        if self._shared:
            return
        now = time.monotonic()
        idle = [key for key, client in self._clients.items() if not client.running]
        late = [key for key in idle if now - self._clients[key].heard > IDLE_S]
        if len(self._clients) - len(late) >= CLIENTS_LIMIT:
            left = sorted(set(idle) - set(late), key=lambda key: self._clients[key].heard)
            late += left[:1]
        for key in late:
            await self.drop(key)

    async def close(self) -> None:
        """End the sessions of all clients."""
        self._shared = False
        for key in list(self._clients):
            with suppress(Exception):  # one session that will not close must not keep the others open
                await self.drop(key)


def _is_folder(path: str) -> bool:
    return os.path.isdir(path)
