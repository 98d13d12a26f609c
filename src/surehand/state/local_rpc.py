"""Local RPC: private sockets by which a user's processes reach each other's sessions, with requests and streams.

Every session that keeps state listens on a socket in a folder that only its user can open; commands in the sandbox do
not see that folder. A thread serves the sockets of all sessions of a process, so that neither a slow peer nor a busy
event loop holds the other up. Who follows all sessions listens in the same folder, and sessions that start connect to
it: not even the shortest is missed. What is said on the sockets is described in docs/events.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import socket
import struct
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Generator, Mapping
from typing import Any, Final, cast

from surehand.state import locations

PROTOCOL: Final = 1
"""Raised when a field or a word of the protocol changes its meaning or goes; what is added does not raise it."""
LINE_LIMIT: Final = 16 * 1024 * 1024
ANSWER_S: Final = 20.0
"""How long an answer may take unless the request says otherwise: ending a command takes a while."""
ANSWER_MOST_S: Final = 3600.0
"""The most a request may say: trying a command on a copy takes as long as the command."""
BACKLOG_BYTES: Final = 4 * 1024 * 1024
"""What is kept for a peer that does not read; anything further is lost to it, and counted."""
_DRAIN_S: Final = 0.5
_FOLLOWER: Final = "follower-"
_ANSWERING: Final = "-answers-"
"""In the name of a follower that answers questions, so that a session knows before its first call."""
_ENDING: Final = ".sock"
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str)
_numbers = itertools.count(1)

Handler = Callable[["Connection", dict[str, Any]], None]
"""Gets a peer's request, in the thread that serves; must not block."""


# -- the sockets -------------------------------------------------------------------------------------------------------


def folder() -> str:
    """Return where the sockets are."""
    return os.path.join(locations.home(), "channels")


def session_sockets() -> list[str]:
    """Return the names of the sockets on which sessions listen; the ones of dead processes may be among them."""
    return [name for name in _sockets() if not name.startswith(_FOLLOWER)]


def follower_sockets() -> list[str]:
    """Return the names of the sockets on which somebody waits for sessions to start."""
    return [name for name in _sockets() if name.startswith(_FOLLOWER)]


def _sockets() -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder()) if name.endswith(_ENDING))
    except OSError:
        return []


def listen(name: str) -> tuple[str, socket.socket]:
    """Return the name of a new socket and the socket, listening; raise OSError where none can be made."""
    _own_folder()
    name = f"{name[:60]}-{next(_numbers)}{_ENDING}"
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short(folder()) as place:
            listening.bind(f"{place}/{name}")
        listening.listen(128)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return name, listening


def follower_name(*, answers: bool = False) -> str:
    """Return a name for the socket of one who follows all sessions, and perhaps answers their questions."""
    return f"{_FOLLOWER}{os.getpid()}-{os.urandom(4).hex()}{_ANSWERING if answers else ''}"


def is_answering(follower: str) -> bool:
    """Say whether the follower of that name answers questions."""
    return _ANSWERING in follower


def connect(name: str, wait_s: float = ANSWER_S) -> socket.socket | None:
    """Return a connection to a socket of the folder; None, and the name taken away, where nobody listens any more."""
    connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connecting.settimeout(wait_s)
    try:
        with _short(folder()) as place:
            connecting.connect(f"{place}/{name}")
        return connecting
    except ConnectionRefusedError:
        remove(name)
    except OSError:
        pass
    connecting.close()
    return None


def remove(name: str) -> None:
    """Take a socket's name away."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(folder(), name))


def clear_stale() -> None:
    """Remove the sockets of processes that were killed.

    Only those whose process is not seen here are tried: it may run in another container with the same home.
    """
    for name in _sockets():
        if (process := _process_of(name)) and not _runs(process) and (stale := connect(name, 0)) is not None:
            stale.close()


def _process_of(name: str) -> int:
    number = name.removeprefix(_FOLLOWER).split("-", 1)[0]
    return int(number) if number.isdigit() else 0


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _own_folder() -> None:
    """Make the folder; refuse one that is another user's, and close one that others can look into."""
    path = locations.private_dir(folder())
    status = os.lstat(path)
    if status.st_uid != os.geteuid():
        raise PermissionError(f"{path} belongs to another user")
    if status.st_mode & 0o077:
        os.chmod(path, 0o700)


@contextlib.contextmanager
def _short(path: str) -> Generator[str]:
    """Give a folder a name that fits into the hundred bytes a socket's address may have."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}" if os.path.isdir("/proc/self/fd") else path
    finally:
        os.close(descriptor)


def peer_is_user(peer: socket.socket) -> bool:
    """Whether the process at the other end is of this user, or root's; the folder's mode is the first wall."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    found = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", found)[1] in (os.geteuid(), 0)


def encode_line(data: Mapping[str, Any]) -> bytes:
    """Return data as one line of JSON."""
    return _ENCODER.encode(data).encode("utf-8", "replace") + b"\n"


# -- asking ------------------------------------------------------------------------------------------------------------


def ask(name: str, request: Mapping[str, Any], wait_s: float = ANSWER_S) -> dict[str, Any] | None:
    """Return the answer to one request; None where nobody answers in time."""
    if (asking := connect(name, wait_s)) is None:
        return None
    with asking:
        try:
            asking.sendall(encode_line({"v": PROTOCOL, "wait_s": wait_s, **request}))
            with asking.makefile("rb") as answer:
                found: Any = json.loads(answer.readline(LINE_LIMIT))
        except (OSError, ValueError):
            return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


# -- serving -----------------------------------------------------------------------------------------------------------


class Connection(asyncio.Protocol):
    """One peer of a session, seen from the serving thread."""

    def __init__(self, handle: Handler, closed: Callable[[Connection], None]) -> None:
        self._handle = handle
        self._closed = closed
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self.lost = 0
        """Lines the peer did not get since the last one it got."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Turn away other users."""
        self._transport = cast("asyncio.Transport", transport)
        if not peer_is_user(transport.get_extra_info("socket")):
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Hand over every whole line; a peer that sends no JSON, or a line without an end, is cut off."""
        *lines, self._received = (self._received + data).split(b"\n")
        if len(self._received) > LINE_LIMIT:
            return self.close()
        for line in lines:
            try:
                request = json.loads(line)
            except ValueError:
                return self.close()
            if not isinstance(request, dict):
                return self.close()
            self._handle(self, cast("dict[str, Any]", request))
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the peer."""
        self._transport = None
        self._closed(self)

    def has_room(self) -> bool:
        """Whether a line sent now is kept for the peer."""
        return self._transport is not None and self._transport.get_write_buffer_size() < BACKLOG_BYTES

    def send(self, line: bytes) -> None:
        """Send a line whatever waits already; one to a peer that has left goes nowhere, without a word."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(line)

    def answer(self, data: Mapping[str, Any]) -> None:
        """Send the answer to the only request of a connection, and end it."""
        self.send(encode_line({"v": PROTOCOL, **data}))
        self.close()

    def close(self) -> None:
        """End the connection once what was sent has gone out."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """End the connection now."""
        if self._transport is not None:
            self._transport.abort()


class LocalServer:
    """A session's socket, and everyone connected to it. Its handler runs in the serving thread."""

    def __init__(self, name: str, handle: Handler, left: Callable[[Connection], None]) -> None:
        self._handle, self._left = handle, left
        self.name, listening = listen(name)
        self._connections: set[Connection] = set()
        self.loop = _acquire()
        self._server: asyncio.Server | None = None
        self._alone = asyncio.Event()
        self._alone.set()
        self._started = asyncio.run_coroutine_threadsafe(self._start(listening), self.loop)

    async def _start(self, listening: socket.socket) -> None:
        self._server = await self.loop.create_unix_server(self._connection, sock=listening)

    def _connection(self) -> Connection:
        made = Connection(self._handle, self._forget)
        self._connections.add(made)
        self._alone.clear()
        return made

    def _forget(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._left(connection)
        if not self._connections:
            self._alone.set()

    async def connect(self, name: str) -> Connection | None:
        """Connect to one who waits for sessions; runs in the serving thread."""
        if (peer := connect(name, 0)) is None:  # one that hangs must not hang others
            return None
        _, made = await self.loop.create_unix_connection(self._connection, sock=peer)
        return made

    async def close(self, last: Callable[[], None]) -> None:
        """Listen no more, say the last words, and wait a moment for them to go out."""
        remove(self.name)
        try:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._end(last), self.loop))
        finally:
            _release()

    async def _end(self, last: Callable[[], None]) -> None:
        await asyncio.gather(asyncio.wrap_future(self._started), return_exceptions=True)
        if self._server is not None:
            self._server.close()
        last()
        for connection in list(self._connections):
            connection.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_S):
                await self._alone.wait()
        for connection in list(self._connections):
            connection.abort()


# One thread serves the sockets of all sessions of the process; it lives as long as the first to the last of them.
_lock = threading.Lock()
_users = 0
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None


def _acquire() -> asyncio.AbstractEventLoop:
    global _users, _loop, _thread
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            _thread = threading.Thread(target=_serve, args=(_loop,), name="surehand-channels", daemon=True)
            _thread.start()
        _users += 1
        return _loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
        loop.run_until_complete(asyncio.sleep(0))  # transports that were aborted close their sockets in one turn
    finally:
        loop.close()


def _release() -> None:
    global _users, _loop, _thread
    with _lock:
        _users -= 1
        if _users or _loop is None or _thread is None:
            return
        ending, thread, _loop, _thread = _loop, _thread, None, None
    ending.call_soon_threadsafe(ending.stop)
    thread.join(timeout=5)


def _forget_thread() -> None:
    """Threads do not come along into a forked child: sessions opened there start their own."""
    global _users, _loop, _thread, _lock
    _users, _loop, _thread, _lock = 0, None, None, threading.Lock()


os.register_at_fork(after_in_child=_forget_thread)


def run_in(
    loop: asyncio.AbstractEventLoop,
    work: Callable[[], Awaitable[Mapping[str, Any]]],
    peer: Connection,
    wait_s: float = ANSWER_S,
) -> None:
    """Have a session's own loop work out an answer, and send it from the serving thread."""
    serving = asyncio.get_running_loop()

    async def work_in_time() -> Mapping[str, Any]:
        async with asyncio.timeout(wait_s):
            return await work()

    def send(done: Any) -> None:
        problem = None if done.cancelled() else done.exception()
        said = {"error": f"no answer: {problem!r}", "hint": ""} if done.cancelled() or problem else done.result()
        with contextlib.suppress(RuntimeError):  # the session has closed meanwhile
            serving.call_soon_threadsafe(peer.answer, said)

    try:
        asyncio.run_coroutine_threadsafe(work_in_time(), loop).add_done_callback(send)
    except RuntimeError:
        peer.answer({"error": "the session is ending", "hint": ""})


# -- following every session of this user: those that run now, and those that start meanwhile --------------------------


_WAITING: Final = 10_000
"""Lines that may wait for the one who follows; beyond that the sessions keep theirs, and count what they lose."""


class _Follower:
    def __init__(self, answers: bool) -> None:
        self._answers = answers
        self.lines: asyncio.Queue[dict[str, Any]] = asyncio.Queue(_WAITING)
        self._channels: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> tuple[str, asyncio.Server]:
        """Listen for sessions that start, then look for those that run: in this order none is missed."""
        clear_stale()
        name, listening = listen(follower_name(answers=self._answers))
        server = await asyncio.start_unix_server(self._accept, sock=listening, limit=LINE_LIMIT)
        for each in session_sockets():
            self._begin(self._call(each))
        return name, server

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def read(self) -> AsyncIterator[dict[str, Any]]:
        """Yield events for ever."""
        while True:
            yield await self.lines.get()

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _call(self, name: str) -> None:
        if (peer := await asyncio.to_thread(connect, name)) is None:
            return
        peer.setblocking(False)
        reading, writing = await asyncio.open_unix_connection(sock=peer, limit=LINE_LIMIT)
        writing.write(encode_line({"v": PROTOCOL, "want": "events", "answers": self._answers}))
        await self._read(reading, writing)

    def _accept(self, reading: asyncio.StreamReader, writing: asyncio.StreamWriter) -> None:
        if peer_is_user(writing.get_extra_info("socket")):
            self._begin(self._read(reading, writing))
        else:
            writing.close()

    async def _read(self, reading: asyncio.StreamReader, writing: asyncio.StreamWriter) -> None:
        hello: dict[str, Any] | None = None
        closed = False
        try:
            while line := await reading.readline():
                found: Any = json.loads(line)
                if not isinstance(found, dict):
                    return
                event = cast("dict[str, Any]", found)
                if hello is None:
                    if event.get("kind") != "hello" or str(event.get("channel")) in self._channels:
                        return  # no session, or one that was met twice while it started
                    hello = event
                    self._channels.add(str(hello["channel"]))
                closed = closed or (event["kind"] == "session_closed" and event["session_id"] == hello["session_id"])
                await self.lines.put(event)
        except (OSError, ValueError):
            pass
        finally:
            writing.close()
            if hello is not None:
                self._channels.discard(str(hello["channel"]))
        if hello is not None and not closed:
            # It was killed, or could not say its last words: what it left is taken away.
            remove(str(hello["channel"]))
            lost = {"kind": "session_lost", "at": time.time(), "session_id": hello["session_id"], "pid": hello["pid"]}
            await self.lines.put(lost)


@contextlib.asynccontextmanager
async def follow_sessions(*, answers: bool = False) -> AsyncGenerator[AsyncIterator[dict[str, Any]]]:
    """Give what happens in every session of the user, from the moment of entering on.

    With `answers` the sessions know that somebody is here who answers questions: those that have nobody else to ask
    wait for an answer instead of taking that for a no.

    The first line of a session is its `hello`. A session that ended without a word of its own gets `session_lost`.
    """
    follower = _Follower(answers)
    name, server = await follower.start()
    try:
        yield follower.read()
    finally:
        remove(name)
        server.close()
        await follower.stop()


def running_sessions() -> list[dict[str, Any]]:
    """Return the description of every session that runs now."""
    clear_stale()
    found = (ask(name, {"want": "session"}) for name in session_sockets())
    return [facts for facts in found if facts is not None and "error" not in facts]
