"""The HTTP transport of a server: on loopback by default, with a check of `Host`, `Origin` and token.

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
"""How many messages, and about how many characters of them, are kept for clients that reconnect to a lost stream."""
RETRY_MS: Final = 500
BODY_LIMIT: Final = 4 * 1024 * 1024
RESERVED_DESCRIPTORS: Final = 64
"""Descriptors kept free for connected clients: their commands, files and connections."""
_RETRY_AFTER: Final = b"10"
"""Seconds, as sent in `Retry-After`."""
DRAIN_BYTES: Final = 256 * 1024 * 1024
DRAIN_S: Final = 10.0
"""How much of a body that is too large is read and discarded: a client that still sends does not read the answer."""
REFUSED_S: Final = 2.0
"""How long the body of a refused request is waited for."""
_CLOSES: Final = (b"connection", b"close")


@frozen
class Door:
    """Which requests are admitted: the server's host names, its own token, and the issuers whose tokens it accepts."""

    host: str
    names: tuple[str, ...]
    token: str | None
    token_path: str = ""
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
        """Return the door for an address; raise SettingsError for one that would admit anybody."""
        oauth = ResourceServer(serve) if serve is not None and serve.issuers else None
        names = (*names, *oauth.hosts) if oauth is not None else tuple(names)
        if oauth is not None and not oauth.hosts and not is_loopback(host):
            raise SettingsError("serve.issuers needs serve.resource: the address at which clients reach this server")
        if no_token:
            if oauth is None and not is_loopback(host):
                raise SettingsError(f"a server on {host} needs a token; leave out --no-token")
            return cls(host, names, None, oauth=oauth)
        path = token_file or os.path.join(locations.private_dir(locations.home()), "mcp-token")
        return cls(host, names, _load_token(path, create=token_file is None), path, oauth)

    @property
    def address(self) -> ServedAddress:
        """The host names that requests may use."""
        return ServedAddress(self.host, self.names)

    async def admit(self, authorization: str, here: str) -> AuthenticatedUser | Refusal | None:
        """Check a request's `Authorization`: return its user, None for the server's own token, or a refusal."""
        scheme, _, token = authorization.partition(" ")
        token = token.strip() if scheme.lower() == "bearer" else ""
        if self.token is not None and hmac.compare_digest(token.encode(), self.token.encode()):
            return None
        if self.oauth is not None:
            return await self.oauth.authenticate(token, here)
        if self.token is None:
            return None
        return Refusal(401, "", "this server requires its bearer token in the Authorization header")


def _load_token(path: str, *, create: bool) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            token = file.read().strip()
    except FileNotFoundError:
        if not create:
            raise SettingsError(f"there is no token file {path}") from None
        token = secrets.token_urlsafe(32)
        with open(path, "x", encoding="utf-8", opener=_open_private) as file:
            file.write(token + "\n")
    if len(token) < 16 or not token.isascii():
        raise SettingsError(f"{path}: a token has at least 16 plain characters")
    return token


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


class _HttpSession:
    """The identity of a session of the older protocol; it lives as long as a task that serves the session."""


_http_session: ContextVar[_HttpSession | None] = ContextVar("surehand_http_session", default=None)


class HttpSessions:
    """Sets the context variable of a request's session, which the tasks it starts inherit.

    The SDK's event store gets only stream ids, which are request ids, and every client counts those from 1. Without the
    session, one client would be sent the answers of another.
    """

    def __init__(self) -> None:
        self._known: WeakValueDictionary[str, _HttpSession] = WeakValueDictionary()

    def enter(self, session_id: str | None, send: Any) -> Any:
        """Enter the session of a request, or a new one; return a `send` that records the id of a new session."""
        session = _HttpSession() if session_id is None else self._known.get(session_id)
        _http_session.set(session)
        if session_id is not None or session is None:
            return send

        async def record_id(message: Any) -> None:
            for name, value in message.get("headers", ()):
                if name.lower() == b"mcp-session-id":
                    self._known[value.decode("latin-1")] = session
            await send(message)

        return record_id


class Remembered(EventStore):
    """The latest messages of all streams, for clients that reconnect to a lost stream."""

    def __init__(self) -> None:
        self._events: OrderedDict[EventId, tuple[tuple[Any, StreamId], JSONRPCMessage | None, int]] = OrderedDict()
        self._count = 0
        self._characters = 0
        self._mark = secrets.token_hex(4)

    async def store_event(self, stream_id: StreamId, message: JSONRPCMessage | None) -> EventId:
        """Store a message and return its id."""
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
        """Send again what followed a message on its stream; nothing of another session's."""
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


class DescriptorLimit:
    """Watches how many descriptors this process may still open: near the limit, new clients are refused."""

    def __init__(self) -> None:
        self._checked_at, self._is_near, self._logged_at = float("-inf"), False, float("-inf")

    def is_near(self) -> bool:
        """Return whether hardly any are free; counted four times a second at most, logged once a minute."""
        now = monotonic()
        if now - self._checked_at > 0.25:
            self._checked_at, self._is_near = now, _count_free_descriptors() < RESERVED_DESCRIPTORS
            if self._is_near and now - self._logged_at > 60:
                self._logged_at = now
                _log.warning("new clients are turned away: fewer than %d descriptors are free", RESERVED_DESCRIPTORS)
        return self._is_near


def _count_free_descriptors() -> float:
    try:
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0] - len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0 if sys.platform == "linux" else float("inf")  # not even the listing can be opened


def raise_descriptor_limit() -> None:
    """Raise the soft limit of descriptors to the hard one; each client needs several."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _handle_loop_error(
    loop: asyncio.AbstractEventLoop,
    context: dict[str, Any],
    *,
    limit: DescriptorLimit = DescriptorLimit(),  # noqa: B008
) -> None:
    """Log connections that could not be accepted as one line a minute instead of a traceback each."""
    problem = context.get("exception")
    if isinstance(problem, OSError) and problem.errno in (errno.EMFILE, errno.ENFILE):
        limit.is_near()  # logs it
    else:
        loop.default_exception_handler(context)


def http_app(serving: Serving, door: Door, beside: Any = None) -> Any:
    """Return the ASGI application of clients at `/mcp`; `beside` serves all other paths, with checks of its own."""
    inner = serving.server.streamable_http_app(
        streamable_http_path=PATH,
        event_store=Remembered(),
        retry_interval=RETRY_MS,
        # Host and Origin are compared exactly below; the SDK accepts any text after a colon as a port.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        host=door.host,
    )

    descriptors, address = DescriptorLimit(), door.address
    abandoned, sessions = AbandonedCalls(serving.clients), HttpSessions()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await inner(scope, receive, send)
            return
        here = f"http://{address.shown}:{scope['server'][1]}{PATH}"
        is_metadata = door.oauth is not None and door.oauth.is_metadata_path(scope["path"], here)
        if beside is not None and scope["path"] != PATH and not is_metadata:
            await beside(scope, receive, send)
            return
        if (refused := address.refusal(scope["headers"], scope["server"][1])) is not None:
            await _refuse(receive, send, *refused)
            return
        if door.oauth is not None and is_metadata:
            await _answer(send, 200, door.oauth.metadata(here))
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        user = await door.admit(headers.get("authorization", ""), here)
        if isinstance(user, Refusal):
            challenge = b"Bearer" if door.oauth is None else door.oauth.challenge(user, here)
            header = (b"retry-after", _RETRY_AFTER) if user.status == 503 else (b"www-authenticate", challenge)
            await _refuse(receive, send, user.status, user.message, header)
            return
        scope["user"] = user  # the SDK refuses a session that another user began
        if "mcp-session-id" not in headers and descriptors.is_near():
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
        await abandoned.watch(inner, scope, _replay(body, receive), send, body=body, resumes=resumes)

    return app


async def _refuse(receive: Any, send: Any, status: int, message: str, *headers: tuple[bytes, bytes]) -> None:
    """Refuse a request, and close its connection once its body has been read.

    The kernel resets a connection that is closed with bytes unread, and the client loses the answer.
    """
    await _answer(send, status, {"error": message}, _CLOSES, *headers, is_whole=False)
    with suppress(TimeoutError):
        async with asyncio.timeout(REFUSED_S):
            size, has_more = 0, True
            while has_more and size <= BODY_LIMIT:
                event = await receive()
                size += len(event.get("body", b""))
                has_more = event.get("more_body", False)
    await send({"type": "http.response.body", "body": b""})


async def _answer(
    send: Any, status: int, content: Mapping[str, Any], *headers: tuple[bytes, bytes], is_whole: bool = True
) -> None:
    body = json.dumps(content).encode()
    fields = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body, "more_body": not is_whole})


async def _read_body(receive: Any, length: str) -> bytes | None:
    """Return the body of a request; None if it is too large, after the rest was read and discarded."""
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
    """Return a `receive` that yields a body that was read already, then what else comes."""
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Any:
        return waiting.pop() if waiting else await receive()

    return replay


async def serve_http(
    serving: Serving, door: Door, port: int, announce: Callable[[str], None], *, beside: Any = None
) -> None:
    """Serve until cancelled; `announce` gets the URL once the port is open. `beside` serves all other paths."""
    raise_descriptor_limit()
    asyncio.get_running_loop().set_exception_handler(_handle_loop_error)
    address = door.address
    app = http_app(serving, door, beside)
    await serve_app(app, address, port, lambda bound: announce(f"http://{address.shown}:{bound}{PATH}"))


# Abandoned calls: calls of the older protocol over HTTP whose connection was lost.

RESUME_S: Final = 1.5
"""How long a client has to reconnect after its connection was lost."""


class AbandonedCalls:
    """Ends the calls of lost connections, unless the client reconnects for the rest of their streams."""

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
        if answer.refused:  # the session does not exist, or belongs to another user
            return
        if not answer.is_complete and (resumes or scope["method"] == "POST"):
            self._end_later(session, body)
        if scope["method"] == "DELETE":
            self._resumed.pop(session, None)
            await self._clients.drop(f"session {session}")

    def _end_later(self, session: str, body: bytes) -> None:
        request_id = id_of_request(body)
        for each in [request_id] if request_id is not None else self._resumed.pop(session, ()):
            timer = asyncio.get_running_loop().call_later(RESUME_S, self._end, session, each)
            self._timers[session, each] = timer

    def _resume(self, session: str) -> None:
        for known in [known for known in self._timers if known[0] == session]:
            self._timers.pop(known).cancel()
            self._resumed.setdefault(session, set()).add(known[1])

    def _end(self, session: str, request_id: str | int) -> None:
        self._timers.pop((session, request_id), None)
        if (client := self._clients.find(f"session {session}")) is not None:
            client.end_call(request_id)


class _Answer:
    """Passes a response on, and records its status and whether all of it was sent."""

    def __init__(self, send: Any) -> None:
        self._send = send
        self.is_complete = False
        self.refused = False

    async def send(self, message: Any) -> None:
        self.refused = self.refused or message.get("status", 0) >= 400
        await self._send(message)
        self.is_complete = message["type"] == "http.response.body" and not message.get("more_body", False)
