"""Local RPC: private sockets through which a user's processes send requests to each other's sessions and follow them.

Each session with state listens on a socket in a folder that only its user can open and that is hidden from sandboxed
commands. One thread serves the sockets of all sessions of a process, so that a slow peer does not block the application
and a busy event loop does not block peers. A follower of all sessions listens in the same folder, and new sessions
connect to it, so that it misses none. The protocol is described in docs/events.md.
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
"""Incremented if a field or value of the protocol changes its meaning or is removed, not for additions."""
LINE_LIMIT: Final = 16 * 1024 * 1024
ANSWER_S: Final = 20.0
"""Default timeout of a request: ending a command takes a while."""
ANSWER_MOST_S: Final = 3600.0
"""Maximum timeout of a request: a dry run takes as long as the command."""
BACKLOG_BYTES: Final = 4 * 1024 * 1024
"""Send buffer of a peer that does not read; further lines are dropped and counted."""
_DRAIN_S: Final = 0.5
_FOLLOWER: Final = "follower-"
_ANSWERING: Final = "-answers-"
"""Part of the name of a follower that answers questions, so that a session knows before its first call."""
_ENDING: Final = ".sock"
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str)
_numbers = itertools.count(1)

Handler = Callable[["Connection", dict[str, Any]], None]
"""Handles a peer's request in the serving thread; must not block."""


# -- the sockets -------------------------------------------------------------------------------------------------------


def folder() -> str:
    """Return the folder of the sockets."""
    return os.path.join(locations.home(), "channels")


def session_sockets() -> list[str]:
    """Return the names of the sockets of sessions, possibly including those of dead processes."""
    return [name for name in _sockets() if not name.startswith(_FOLLOWER)]


def follower_sockets() -> list[str]:
    """Return the names of the sockets of followers."""
    return [name for name in _sockets() if name.startswith(_FOLLOWER)]


def _sockets() -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder()) if name.endswith(_ENDING))
    except OSError:
        return []


def listen(name: str) -> tuple[str, socket.socket]:
    """Create a listening socket in the folder; return its name and the socket."""
    _create_folder()
    name = f"{name[:60]}-{next(_numbers)}{_ENDING}"
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short_path(folder()) as place:
            listening.bind(f"{place}/{name}")
        listening.listen(128)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return name, listening


def follower_name(*, answers: bool = False) -> str:
    """Return a name for the socket of a follower, which may also answer questions."""
    return f"{_FOLLOWER}{os.getpid()}-{os.urandom(4).hex()}{_ANSWERING if answers else ''}"


def is_answering(follower: str) -> bool:
    """Whether the follower with this name answers questions."""
    return _ANSWERING in follower


def connect(name: str, wait_s: float = ANSWER_S) -> socket.socket | None:
    """Connect to a socket of the folder; None if that fails. A socket on which nobody listens is removed."""
    connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connecting.settimeout(wait_s)
    try:
        with _short_path(folder()) as place:
            connecting.connect(f"{place}/{name}")
        return connecting
    except ConnectionRefusedError:
        remove(name)
    except OSError:
        pass
    connecting.close()
    return None


def remove(name: str) -> None:
    """Remove a socket from the folder."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(folder(), name))


def clear_stale() -> None:
    """Remove the sockets of processes that were killed.

    A process that is not visible here may run in another container with the same home, so its socket is tried first.
    """
    for name in _sockets():
        if (process := _pid_of(name)) and not _is_running(process) and (stale := connect(name, 0)) is not None:
            stale.close()


def _pid_of(name: str) -> int:
    number = name.removeprefix(_FOLLOWER).split("-", 1)[0]
    return int(number) if number.isdigit() else 0


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _create_folder() -> None:
    """Create the folder; raise PermissionError if it is another user's, and fix its mode if others can open it."""
    path = locations.private_dir(folder())
    status = os.lstat(path)
    if status.st_uid != os.geteuid():
        raise PermissionError(f"{path} belongs to another user")
    if status.st_mode & 0o077:
        os.chmod(path, 0o700)


@contextlib.contextmanager
def _short_path(path: str) -> Generator[str]:
    """Yield a short path of a folder, since the path of a socket is limited to about a hundred bytes."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}" if os.path.isdir("/proc/self/fd") else path
    finally:
        os.close(descriptor)


def peer_is_user(peer: socket.socket) -> bool:
    """Whether the peer process belongs to this user or root. The mode of the folder already keeps others out."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    found = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", found)[1] in (os.geteuid(), 0)


def encode_line(data: Mapping[str, Any]) -> bytes:
    """Encode data as one line of JSON."""
    return _ENCODER.encode(data).encode("utf-8", "replace") + b"\n"


# -- requests ----------------------------------------------------------------------------------------------------------


def ask(name: str, request: Mapping[str, Any], wait_s: float = ANSWER_S) -> dict[str, Any] | None:
    """Send one request and return the answer; None if there is none in time."""
    if (peer := connect(name, wait_s)) is None:
        return None
    with peer:
        try:
            peer.sendall(encode_line({"v": PROTOCOL, "wait_s": wait_s, **request}))
            with peer.makefile("rb") as answer:
                found: Any = json.loads(answer.readline(LINE_LIMIT))
        except (OSError, ValueError):
            return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


# -- serving -----------------------------------------------------------------------------------------------------------


class Connection(asyncio.Protocol):
    """A connection of a session to a peer, used in the serving thread."""

    def __init__(self, handle: Handler, closed: Callable[[Connection], None]) -> None:
        self._handle = handle
        self._closed = closed
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self.lost = 0
        """Lines dropped since the last one that was sent."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close the connection if the peer is another user."""
        self._transport = cast("asyncio.Transport", transport)
        if not peer_is_user(transport.get_extra_info("socket")):
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Handle each complete line; close the connection if a line is too long or no JSON object."""
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
        """Report that the connection is closed."""
        self._transport = None
        self._closed(self)

    def has_room(self) -> bool:
        """Whether the send buffer has room for a line."""
        return self._transport is not None and self._transport.get_write_buffer_size() < BACKLOG_BYTES

    def send(self, line: bytes) -> None:
        """Send a line regardless of the buffer; does nothing if the connection is closed."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(line)

    def answer(self, data: Mapping[str, Any]) -> None:
        """Send the answer to the only request of a connection, and close it."""
        self.send(encode_line({"v": PROTOCOL, **data}))
        self.close()

    def close(self) -> None:
        """Close the connection after the buffer is sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()


class LocalServer:
    """A session's socket with its connections. The handler runs in the serving thread."""

    def __init__(self, name: str, handle: Handler, left: Callable[[Connection], None]) -> None:
        self._handle, self._left = handle, left
        self.name, listening = listen(name)
        self._connections: set[Connection] = set()
        self.loop = _acquire()
        self._server: asyncio.Server | None = None
        self._no_connections = asyncio.Event()
        self._no_connections.set()
        self._started = asyncio.run_coroutine_threadsafe(self._start(listening), self.loop)

    async def _start(self, listening: socket.socket) -> None:
        self._server = await self.loop.create_unix_server(self._connection, sock=listening)

    def _connection(self) -> Connection:
        made = Connection(self._handle, self._forget)
        self._connections.add(made)
        self._no_connections.clear()
        return made

    def _forget(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._left(connection)
        if not self._connections:
            self._no_connections.set()

    async def connect(self, name: str) -> Connection | None:
        """Connect to a follower; runs in the serving thread."""
        if (peer := connect(name, 0)) is None:  # without waiting, as this thread serves other sessions too
            return None
        _, made = await self.loop.create_unix_connection(self._connection, sock=peer)
        return made

    async def close(self, last: Callable[[], None]) -> None:
        """Stop listening, call `last` to send final lines, and wait a moment until they are sent."""
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
                await self._no_connections.wait()
        for connection in list(self._connections):
            connection.abort()


# One thread serves the sockets of all sessions of the process, from the first that opens to the last that closes.
_lock = threading.Lock()
_server_count = 0
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None


def _acquire() -> asyncio.AbstractEventLoop:
    global _server_count, _loop, _thread
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            _thread = threading.Thread(target=_serve, args=(_loop,), name="surehand-channels", daemon=True)
            _thread.start()
        _server_count += 1
        return _loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
        loop.run_until_complete(asyncio.sleep(0))  # aborted transports close their sockets in the next iteration
    finally:
        loop.close()


def _release() -> None:
    global _server_count, _loop, _thread
    with _lock:
        _server_count -= 1
        if _server_count or _loop is None or _thread is None:
            return
        ending, thread, _loop, _thread = _loop, _thread, None, None
    ending.call_soon_threadsafe(ending.stop)
    thread.join(timeout=5)


def _forget_thread() -> None:
    """Reset the state in a forked child, which does not inherit the thread."""
    global _server_count, _loop, _thread, _lock
    _server_count, _loop, _thread, _lock = 0, None, None, threading.Lock()


os.register_at_fork(after_in_child=_forget_thread)


def run_in(
    loop: asyncio.AbstractEventLoop,
    work: Callable[[], Awaitable[Mapping[str, Any]]],
    peer: Connection,
    wait_s: float = ANSWER_S,
) -> None:
    """Run `work` in a session's own loop, and send its result to the peer from the serving thread."""
    serving = asyncio.get_running_loop()

    async def work_with_timeout() -> Mapping[str, Any]:
        async with asyncio.timeout(wait_s):
            return await work()

    def send(done: Any) -> None:
        problem = None if done.cancelled() else done.exception()
        said = {"error": f"no answer: {problem!r}", "hint": ""} if done.cancelled() or problem else done.result()
        with contextlib.suppress(RuntimeError):  # the session has closed meanwhile
            serving.call_soon_threadsafe(peer.answer, said)

    try:
        asyncio.run_coroutine_threadsafe(work_with_timeout(), loop).add_done_callback(send)
    except RuntimeError:
        peer.answer({"error": "the session is ending", "hint": ""})


# -- following all sessions of the user: those that run now, and those that start later --------------------------------


_WAITING: Final = 10_000
"""Lines queued for the reader of a follower; beyond that the sessions buffer theirs, then drop and count them."""


class _Follower:
    def __init__(self, answers: bool) -> None:
        self._answers = answers
        self.lines: asyncio.Queue[dict[str, Any]] = asyncio.Queue(_WAITING)
        self._channels: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> tuple[str, asyncio.Server]:
        """Listen for new sessions, then connect to the running ones: in this order none is missed."""
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
        """Yield events forever."""
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
                        return  # not a session, or one that was reached both ways while it started
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
            # It was killed, or ended without sending `session_closed`.
            remove(str(hello["channel"]))
            lost = {"kind": "session_lost", "at": time.time(), "session_id": hello["session_id"], "pid": hello["pid"]}
            await self.lines.put(lost)


@contextlib.asynccontextmanager
async def follow_sessions(*, answers: bool = False) -> AsyncGenerator[AsyncIterator[dict[str, Any]]]:
    """Yield the events of all sessions of the user from now on.

    With `answers` the sessions are told that this follower answers questions: those without another approver then wait
    for its answer instead of denying.

    The first line of a session is its `hello`. If a session ends without `session_closed`, a `session_lost` is yielded.
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
    """Return the descriptions of all running sessions."""
    clear_stale()
    found = (ask(name, {"want": "session"}) for name in session_sockets())
    return [facts for facts in found if facts is not None and "error" not in facts]
