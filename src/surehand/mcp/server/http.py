"""The HTTP transport of a server: on this machine unless told otherwise, with a check of host, origin and token.

Any page in a browser can send requests to a port of this machine; the check of `Host` and `Origin` keeps pages out,
the token keeps out other users.
"""

from __future__ import annotations

import asyncio
import errno
import hmac
import json
import logging
import os
import resource
import secrets
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from time import monotonic
from typing import Any, Final
from weakref import WeakValueDictionary

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.streamable_http import EventCallback, EventId, EventMessage, EventStore, StreamId
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import JSONRPCMessage

from surehand.core.errors import SettingsError
from surehand.core.frozen import frozen
from surehand.core.settings import ServeSettings
from surehand.mcp.lines import VALUES_LIMIT, has_too_many_values, id_of_request
from surehand.mcp.server.clients import Clients
from surehand.mcp.server.oauth import Refusal, ResourceServer
from surehand.mcp.server.serving import Serving
from surehand.state import locations
from surehand.web.local_server import ServedAddress, is_loopback, serve_app

_log = logging.getLogger("surehand")
PATH: Final = "/mcp"
EVENTS_KEPT: Final = 1000
KEPT_CHARACTERS: Final = 16_000_000
"""Messages, and about how much text of them, kept for clients that lost their stream and ask for the rest."""
RETRY_MS: Final = 500
BODY_LIMIT: Final = 4 * 1024 * 1024
DRAIN_BYTES: Final = 256 * 1024 * 1024
RESERVED_DESCRIPTORS: Final = 64
"""Kept free for the clients that are there: their commands, files and connections."""
_RETRY_AFTER: Final = b"10"
"""Seconds after which a client that was turned away may come again."""
DRAIN_S: Final = 10.0
"""What of a body that is too large is read and thrown away: a client that still sends does not see the answer."""
REFUSED_S: Final = 2.0
"""How long the body of a request that is not let in may take to come."""
_CLOSES: Final = (b"connection", b"close")


@frozen
class Door:
    """Who may come in: the names this server is reached by, its own token, and who else gives out tokens for it."""

    host: str
    names: tuple[str, ...]
    token: str | None
    token_place: str = ""
    oauth: ResourceServer | None = None

    @classmethod
    def of(
        cls,
        host: str,
        names: Sequence[str],
        token_file: str | None,
        *,
        no_token: bool,
        serve: ServeSettings | None = None,
    ) -> Door:
        """Return the door for an address; raise SettingsError for one that would stand open."""
        oauth = ResourceServer(serve) if serve is not None and serve.issuers else None
        names = (*names, *oauth.hosts) if oauth is not None else tuple(names)
        if oauth is not None and not oauth.hosts and not is_loopback(host):
            raise SettingsError("serve.issuers needs serve.resource: the address at which clients reach this server")
        if no_token:
            if oauth is None and not is_loopback(host):
                raise SettingsError(f"a server on {host} needs a token; leave out --no-token")
            return cls(host, names, None, oauth=oauth)
        place = token_file or os.path.join(locations.private_dir(locations.home()), "mcp-token")
        return cls(host, names, _token(place, make=token_file is None), place, oauth)

    @property
    def address(self) -> ServedAddress:
        """The names by which requests may call this server."""
        return ServedAddress(self.host, self.names)

    async def admit(self, authorization: str, here: str) -> AuthenticatedUser | Refusal | None:
        """Return the caller whom a request's `Authorization` names, None for our own token, or a refusal."""
        scheme, _, token = authorization.partition(" ")
        token = token.strip() if scheme.lower() == "bearer" else ""
        if self.token is not None and hmac.compare_digest(token.encode(), self.token.encode()):
            return None
        if self.oauth is not None:
            return await self.oauth.authenticate(token, here)
        if self.token is None:
            return None
        return Refusal(401, "", "this server requires its bearer token in the Authorization header")


def _token(place: str, *, make: bool) -> str:
    try:
        with open(place, encoding="utf-8") as file:
            found = file.read().strip()
    except FileNotFoundError:
        if not make:
            raise SettingsError(f"there is no token file {place}") from None
        found = secrets.token_urlsafe(32)
        with open(place, "x", encoding="utf-8", opener=_only_ours) as file:
            file.write(found + "\n")
    if len(found) < 16 or not found.isascii():
        raise SettingsError(f"{place}: a token has at least 16 plain characters")
    return found


def _only_ours(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


class _HttpSession:
    """Stands for a session of the older protocol; alive as long as the tasks that serve it."""


_http_session: ContextVar[_HttpSession | None] = ContextVar("surehand_http_session", default=None)


class HttpSessions:
    """Tells which session a request belongs to, and the tasks it starts: the SDK's event store is not told.

    Its streams are called by the number of a request, which every client begins at 1: without their session, one
    client would be sent the answers of another.
    """

    def __init__(self) -> None:
        self._known: WeakValueDictionary[str, _HttpSession] = WeakValueDictionary()

    def enter(self, session_id: str | None, send: Any) -> Any:
        """Enter the session of a request, a new one where it names none; return `send`, which learns the new name."""
        session = _HttpSession() if session_id is None else self._known.get(session_id)
        _http_session.set(session)
        if session_id is not None or session is None:
            return send

        async def learn(message: Any) -> None:
            for name, value in message.get("headers", ()):
                if name.lower() == b"mcp-session-id":
                    self._known[value.decode("latin-1")] = session
            await send(message)

        return learn


class Remembered(EventStore):
    """The latest messages of all streams, so that a client that lost one gets the rest."""

    def __init__(self) -> None:
        self._events: OrderedDict[EventId, tuple[tuple[Any, StreamId], JSONRPCMessage | None, int]] = OrderedDict()
        self._count = 0
        self._characters = 0
        self._mark = secrets.token_hex(4)

    async def store_event(self, stream_id: StreamId, message: JSONRPCMessage | None) -> EventId:
        """Keep a message and return its id."""
        self._count += 1
        event_id = f"{self._mark}-{self._count}"
        weight = _weight(message)
        self._events[event_id] = ((_http_session.get(), stream_id), message, weight)
        self._characters += weight
        while len(self._events) > 1 and (len(self._events) > EVENTS_KEPT or self._characters > KEPT_CHARACTERS):
            _, (_, _, weight) = self._events.popitem(last=False)
            self._characters -= weight
        return event_id

    async def replay_events_after(self, last_event_id: EventId, send_callback: EventCallback) -> StreamId | None:
        """Send the messages that came after one to its stream again; nothing of another session."""
        stream = self._events[last_event_id][0] if last_event_id in self._events else None
        if stream is None or stream[0] is not _http_session.get():
            return None
        later = False
        for event_id, (found, message, _) in list(self._events.items()):
            if later and found == stream and message is not None:
                await send_callback(EventMessage(message, event_id))
            later = later or event_id == last_event_id
        return stream[1]


def _weight(message: JSONRPCMessage | None) -> int:
    """Estimate the characters of a message; only tool results are long."""
    result: Any = getattr(message, "result", None) or {}
    blocks: list[dict[str, Any]] = result.get("content") or []
    return 500 + sum(len(str(block.get("text") or block.get("data") or "")) for block in blocks)


class Room:
    """How many descriptors this process may still open: near the limit new clients are turned away, not failed."""

    def __init__(self) -> None:
        self._looked, self._short, self._said = float("-inf"), False, float("-inf")

    def is_short(self) -> bool:
        """Whether hardly any are left; looked at four times a second, logged once a minute."""
        now = monotonic()
        if now - self._looked > 0.25:
            self._looked, self._short = now, _free_descriptors() < RESERVED_DESCRIPTORS
            if self._short and now - self._said > 60:
                self._said = now
                _log.warning("new clients are turned away: fewer than %d descriptors are free", RESERVED_DESCRIPTORS)
        return self._short


def _free_descriptors() -> float:
    try:
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0] - len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0 if sys.platform == "linux" else float("inf")  # not even the listing can be opened


def raise_descriptor_limit() -> None:
    """Let this process open as many files as the system allows it; a client needs several."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _say_once(loop: asyncio.AbstractEventLoop, context: dict[str, Any], *, room: Room = Room()) -> None:  # noqa: B008
    """Handle what goes wrong in the loop: connections that could not be accepted are one line, not a traceback each."""
    problem = context.get("exception")
    if isinstance(problem, OSError) and problem.errno in (errno.EMFILE, errno.ENFILE):
        room.is_short()
    else:
        loop.default_exception_handler(context)


def http_app(serving: Serving, door: Door, beside: Any = None) -> Any:
    """Return the ASGI application that serves clients at `/mcp`; `beside` has every other path, and its own door."""
    inner = serving.server.streamable_http_app(
        streamable_http_path=PATH,
        event_store=Remembered(),
        retry_interval=RETRY_MS,
        # Host and Origin are compared here, exactly; the SDK takes any text after a colon for a port.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        host=door.host,
    )

    room, address, cuts, sessions = Room(), door.address, AbandonedCalls(serving.clients), HttpSessions()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await inner(scope, receive, send)
            return
        here = f"http://{address.shown}:{scope['server'][1]}{PATH}"
        described = door.oauth is not None and door.oauth.describes(scope["path"], here)
        if beside is not None and scope["path"] != PATH and not described:
            await beside(scope, receive, send)
            return
        if (refused := address.refusal(scope["headers"], scope["server"][1])) is not None:
            await _refuse(receive, send, *refused)
            return
        if door.oauth is not None and described:
            await _answer(send, 200, door.oauth.describe(here))
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        user = await door.admit(headers.get("authorization", ""), here)
        if isinstance(user, Refusal):
            challenge = b"Bearer" if door.oauth is None else door.oauth.challenge(user, here)
            told = (b"retry-after", _RETRY_AFTER) if user.status == 503 else (b"www-authenticate", challenge)
            await _refuse(receive, send, user.status, user.words, told)
            return
        scope["user"] = user  # the SDK lets nobody use a session that somebody else began
        if "mcp-session-id" not in headers and room.is_short():
            words = "this server has no descriptors left for another client; come back when others have left"
            await _refuse(receive, send, 503, words, (b"retry-after", _RETRY_AFTER))
            return
        if (body := await _read_body(receive, headers.get("content-length", ""))) is None:
            await _answer(send, 413, {"error": f"a request has at most {BODY_LIMIT:,} bytes"}, _CLOSES)
            return
        if len(body) > VALUES_LIMIT and await asyncio.to_thread(has_too_many_values, body):
            await _answer(send, 413, {"error": f"a request has at most {VALUES_LIMIT:,} values"}, _CLOSES)
            return
        send = sessions.enter(headers.get("mcp-session-id"), send)
        if "mcp-session-id" not in headers:
            await inner(scope, _replay(body, receive), send)
            return
        resumes = scope["method"] == "GET" and "last-event-id" in headers
        await cuts.watch(inner, scope, _replay(body, receive), send, body=body, resumes=resumes)

    return app


async def _refuse(receive: Any, send: Any, status: int, words: str, *more: tuple[bytes, bytes]) -> None:
    """Answer a request that is not let in, and close its connection once its body has come.

    The kernel resets a connection that is closed with bytes unread, and the answer is lost with it.
    """
    await _answer(send, status, {"error": words}, _CLOSES, *more, ends=False)
    with suppress(TimeoutError):
        async with asyncio.timeout(REFUSED_S):
            size, more_comes = 0, True
            while more_comes and size <= BODY_LIMIT:
                message = await receive()
                size += len(message.get("body", b""))
                more_comes = message.get("more_body", False)
    await send({"type": "http.response.body", "body": b""})


async def _answer(
    send: Any, status: int, content: Mapping[str, Any], *more: tuple[bytes, bytes], ends: bool = True
) -> None:
    body = json.dumps(content).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": not ends})


async def _read_body(receive: Any, length: str) -> bytes | None:
    """Return the body of a request; None, and the rest read away, where it is too large."""
    body, size = bytearray(), 0
    try:
        async with asyncio.timeout(None) as limit:
            while True:
                too_large = size > BODY_LIMIT or (length.isdigit() and int(length) > BODY_LIMIT)
                if too_large and limit.when() is None:
                    body.clear()
                    limit.reschedule(asyncio.get_running_loop().time() + DRAIN_S)
                message = await receive()
                if message["type"] != "http.request":
                    return None if too_large else bytes(body)
                piece: bytes = message.get("body", b"")
                size += len(piece)
                if not too_large:
                    body += piece
                if not message.get("more_body", False) or size > DRAIN_BYTES:
                    return None if size > BODY_LIMIT or too_large else bytes(body)
    except TimeoutError:
        return None


def _replay(body: bytes, receive: Any) -> Callable[[], Any]:
    """Return what hands a body that was read to the application, and then what else comes."""
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Any:
        return waiting.pop() if waiting else await receive()

    return replay


async def serve_http(
    serving: Serving, door: Door, port: int, announce: Callable[[str], None], *, beside: Any = None
) -> None:
    """Serve until cancelled; `announce` gets the URL once it answers. `beside` is served on every other path."""
    raise_descriptor_limit()
    asyncio.get_running_loop().set_exception_handler(_say_once)
    address = door.address
    app = http_app(serving, door, beside)
    await serve_app(app, address, port, lambda given: announce(f"http://{address.shown}:{given}{PATH}"))


# Abandoned calls: calls of the older protocol over HTTP whose connection was cut.

RESUME_S: Final = 1.5
"""How long a client whose connection was cut has to come back."""


class AbandonedCalls:
    """Watches the connections of calls, and ends those that nobody waits for any more."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._timers: dict[tuple[str, str | int], asyncio.TimerHandle] = {}
        self._resumed: dict[str, set[str | int]] = {}

    async def watch(self, inner: Any, scope: Any, receive: Any, send: Any, *, body: bytes, resumes: bool) -> None:
        """Answer a request of a session; `resumes`: the client reconnects for events it missed."""
        session = next(value.decode("latin-1") for name, value in scope["headers"] if name.lower() == b"mcp-session-id")
        if resumes:
            self._resume(session)
        answer = _Answer(send)
        await inner(scope, receive, answer.send)
        if answer.refused:  # the session is not there, or not this client's
            return
        if not answer.complete and (resumes or scope["method"] == "POST"):
            self._end_later(session, body)
        if scope["method"] == "DELETE":
            self._resumed.pop(session, None)
            await self._clients.drop(f"session {session}")

    def _end_later(self, session: str, body: bytes) -> None:
        number = id_of_request(body)
        for each in [number] if number is not None else self._resumed.pop(session, ()):
            later = asyncio.get_running_loop().call_later(RESUME_S, self._end, session, each)
            self._timers[session, each] = later

    def _resume(self, session: str) -> None:
        for known in [known for known in self._timers if known[0] == session]:
            self._timers.pop(known).cancel()
            self._resumed.setdefault(session, set()).add(known[1])

    def _end(self, session: str, number: str | int) -> None:
        self._timers.pop((session, number), None)
        if (client := self._clients.find(f"session {session}")) is not None:
            client.end_call(number)


class _Answer:
    """Passes an answer on, and knows whether all of it was."""

    def __init__(self, send: Any) -> None:
        self._send = send
        self.complete = False
        self.refused = False

    async def send(self, message: Any) -> None:
        self.refused = self.refused or message.get("status", 0) >= 400
        await self._send(message)
        self.complete = message["type"] == "http.response.body" and not message.get("more_body", False)
