"""The HTTP transport of a client: a server's headers, and a bound on what one answer may hold.

The SDK bounds the events of a stream; an answer in plain JSON it reads whole, whatever its size and however packed.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from asyncio import FIRST_COMPLETED
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Any, Final, Self, cast

import anyio
import httpx2
import mcp_types as types
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from surehand.mcp.client.login import is_safe
from surehand.mcp.convert import limit_blocks
from surehand.mcp.lines import (
    LINE_LIMIT,
    TOO_LONG,
    TOO_MANY,
    UNREADABLE,
    has_too_many_values,
    id_of_answer,
    id_of_request,
)
from surehand.web.addresses import literal_problem
from surehand.web.fetch import in_turns, quote_server, read_small_pieces
from surehand.web.local_server import is_loopback

_TIMEOUT: Final = httpx2.Timeout(30, read=300)
REOPEN_S: Final = 0.2
EVENT_LINES: Final = 10_000
_EXCEEDED: Final = "byte limit"
"""Part of what the SDK says of an event that is too long, and of what is said here of an answer."""


def was_too_long(problem: MCPError) -> bool:
    """Say whether an answer was dropped for its size."""
    return problem.error.code == TOO_LONG or _EXCEEDED in str(problem)


def was_unreadable(problem: MCPError) -> bool:
    """Say whether an answer came that is no message."""
    return problem.error.code in (UNREADABLE, types.PARSE_ERROR)


class Heard:
    """A server's last answer to a message, used to explain why it cannot be reached."""

    def __init__(self, name: str, url: str) -> None:
        self._name = name
        self._url = url
        self.refusal = ""
        """Why it took no message; empty where it took the last one."""

    def fail(self, why: str) -> None:
        """Note why nobody could be logged in."""
        self.refusal = why

    async def record(self, answer: httpx2.Response) -> None:
        """Note what a server answered to a message."""
        if answer.request.method == "POST" and str(answer.request.url) == self._url:
            told = f"it answered {answer.status_code} {quote_server(answer.reason_phrase)}".strip()
            wants = _WANTS.get(answer.status_code, "").format(name=self._name)
            self.refusal = told + wants if answer.status_code >= 400 else ""


_WANTS: Final = {
    401: "; log in with `surehand mcp login {name}`, or give a token (`--header 'Authorization=Bearer ${{VARIABLE}}'`)",
    403: "; it does not let this token, or this machine, in",
    404: "; is the path of its address right?",
    405: "; is the path of its address right?",
}


@asynccontextmanager
async def over_http(
    url: str, headers: Mapping[str, str], heard: Heard, auth: httpx2.Auth | None = None
) -> AsyncGenerator[Any]:
    """Yield the transport the SDK's client enters; `heard` records what the server answers."""
    hooks: dict[str, list[Any]] = {"request": [Within(url).check], "response": [heard.record, _bound]}
    async with httpx2.AsyncClient(headers=headers, timeout=_TIMEOUT, event_hooks=hooks, auth=auth) as http:
        yield streamable_http_client(url, http_client=http, max_sse_event_size=LINE_LIMIT)


class Within:
    """Keeps what a login sends to other addresses than the server's to https: a server names those addresses.

    Only a server on this machine may name others on it, and only one in a private network others there.
    """

    def __init__(self, url: str) -> None:
        self._own = httpx2.URL(url)
        self._opened = float("-inf")

    async def check(self, request: httpx2.Request) -> None:
        """Refuse an address that is not meant for it; open streams of events only so often, and read little at once."""
        own, url = self._own, request.url
        request.extensions["trace"] = read_small_pieces
        if request.method == "GET" and url == own:
            now = asyncio.get_running_loop().time()
            await asyncio.sleep(self._opened + REOPEN_S - now)
            self._opened = max(now, self._opened + REOPEN_S)
        if (url.scheme, url.host, url.port) == (own.scheme, own.host, own.port):
            return
        if url.scheme != "https" and not (is_safe(str(url)) and is_loopback(own.host)):
            raise httpx2.UnsupportedProtocol(f"it names {url.host} for logging in, without https")
        if literal_problem(str(own)) is None and (problem := literal_problem(str(url))) is not None:
            raise httpx2.UnsupportedProtocol(f"it names a private address for logging in: {problem}")


async def _bound(answer: httpx2.Response) -> None:
    """Cut an answer that is read whole off where it is too long; it is unpacked here, to count what fills memory."""
    packed = httpx2.Response(answer.status_code, headers=answer.headers, stream=answer.stream)
    is_stream = answer.headers.get("content-type", "").lower().startswith("text/event-stream")
    answer.stream = (_CheckedEvents if is_stream else _Counted)(packed, _request_id(answer.request))
    answer.headers.pop("content-encoding", None)


class _Counted(httpx2.AsyncByteStream):
    def __init__(self, answer: httpx2.Response, request_id: str | int | None) -> None:
        self._answer = answer
        self._request_id = request_id

    async def __aiter__(self) -> AsyncIterator[bytes]:
        body = bytearray()
        try:
            async for piece in in_turns(self._answer):
                body += piece
                if len(body) > LINE_LIMIT:
                    raise httpx2.StreamError(f"the answer exceeded the {LINE_LIMIT:,} {_EXCEEDED}")
            yield self._check_answer(bytes(body))
        except httpx2.RequestError as problem:
            # Badly packed, or cut off: the SDK fails the call at once for this kind of error alone.
            raise httpx2.StreamError(f"the response was interrupted: {problem}") from problem

    def _check_answer(self, body: bytes) -> bytes:
        """Return an answer, or the error that stands in for one to another request: no other would come."""
        if has_too_many_values(body):
            return _stand_in(self._request_id, TOO_LONG, TOO_MANY)
        if self._request_id is None or id_of_answer(body) in (self._request_id, None):
            return body
        return _stand_in(self._request_id)

    async def aclose(self) -> None:
        await self._answer.aclose()


class _CheckedEvents(httpx2.AsyncByteStream):
    """The events of one answer; an error stands in for an answer that is to another request, or too large to be read.

    The SDK takes whatever answer such a stream holds for the one to its request.
    """

    def __init__(self, answer: httpx2.Response, request_id: str | int | None) -> None:
        self._answer = answer
        self._request_id = request_id
        self._event = bytearray()
        self._begins_line = True
        self._lines = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in in_turns(self._answer):
            if passed := b"".join(map(self._take, piece.splitlines(keepends=True))):
                yield passed
        yield bytes(self._event)

    def _take(self, part: bytes) -> bytes:
        """Take a line, or a piece of one, and return what can be passed on."""
        if not self._event and part.startswith(b":"):
            return part  # a comment
        ends_event = self._begins_line and not part.strip(b"\r\n")
        self._begins_line = part[-1:] in (b"\n", b"\r")
        self._event += part
        self._lines = 0 if ends_event else self._lines + 1
        if self._lines > EVENT_LINES:
            raise httpx2.StreamError(f"an event of more than {EVENT_LINES:,} lines exceeded its {_EXCEEDED}")
        if not ends_event and len(self._event) <= LINE_LIMIT:
            return b""
        event = bytes(self._event)
        self._event.clear()
        return self._check_event(event) if b"data" in event else event

    def _check_event(self, event: bytes) -> bytes:
        data = b"\n".join(line[5:] for line in event.splitlines() if line.startswith(b"data:"))
        if has_too_many_values(data):
            instead = _stand_in(self._request_id, TOO_LONG, TOO_MANY)
        elif self._request_id is None or id_of_answer(data) in (self._request_id, None):
            return event
        else:
            instead = _stand_in(self._request_id)
        return b"event: message\ndata: " + instead + b"\n\n"

    async def aclose(self) -> None:
        await self._answer.aclose()


def _stand_in(
    request_id: str | int | None,
    code: int = UNREADABLE,
    message: str = "its answer is to another request (it has another id)",
) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}}).encode()


def _request_id(request: httpx2.Request) -> str | int | None:
    """Return the id of the request that a message is; None for one that wants no answer."""
    return id_of_request(request.content) if request.method == "POST" else None


# A corrected transport: messages of a server, put right where the SDK would take them wrongly.
#
# An answer of 2026-07-28 that does not say whether it is complete is; the SDK refuses it. And a server of that era
# which answers the probe for it too late is of that era all the same: the SDK takes it for an old one when ten seconds
# are over, which on a busy machine says nothing. Floods of progress are thinned out before anybody works on them, and a
# long page of tools, each of which the SDK checks several times over without a pause, becomes many short ones.

PROBE: Final = "server/discover"
REQUESTS_LIMIT: Final = 50
REQUESTS_S: Final = 1.0
"""How many requests of a server are answered in how many seconds; others are dropped."""
DROPPED_LIMIT: Final = 2_000
"""Dropped requests after which the connection is closed, and made anew."""
FLOODED: Final = "it floods its client with requests"
PROGRESS_S: Final = 0.05
"""Notices of one call's progress that come faster than this are left out, all but the latest."""
PAGE_TOOLS: Final = 50
"""Tools that the SDK is handed at a time; it checks a hundred in about a hundredth of a second."""


class CorrectedTransport:
    """A transport whose messages are put right on their way in."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._stack = AsyncExitStack()
        self._reading: _Reading | None = None

    async def __aenter__(self) -> tuple[Any, Any]:
        reading, writing = await self._stack.enter_async_context(self._transport)
        probe, pages = LateProbe(), ShortPages()
        self._reading = _Reading(reading, probe, pages)
        return self._reading, _Writing(writing, probe, pages)

    @property
    def fault(self) -> str:
        """Why the connection was closed on this side; empty where it was not."""
        return self._reading.fault if self._reading is not None else ""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, trace)


class LateProbe:
    """Knows whether the answer to the probe comes only after the older handshake was begun."""

    def __init__(self) -> None:
        self._probe: Any = None
        self._handshake: Any = None

    def note_sent(self, message: Any) -> None:
        """Note a message to the server."""
        if isinstance(message, types.JSONRPCRequest):
            if message.method == PROBE:
                self._probe, self._handshake = message.id, None
            elif message.method == "initialize" and self._probe is not None:
                self._handshake = message.id

    def correct(self, message: Any) -> Any:
        """Return a server's message; for a late answer to the probe, the refusal of the handshake that it amounts to.

        The SDK then probes again, as it does when a server itself refuses the older handshake.
        """
        if not isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            return message
        if message.id == self._handshake:
            self._probe = self._handshake = None
        if message.id != self._probe:
            return message
        handshake, self._probe = self._handshake, None
        supported = _modern_versions(message)
        if handshake is None or not supported:
            return message
        data = {"supported": supported, "requested": types.LATEST_PROTOCOL_VERSION}
        said = "the server answered that it uses a newer protocol"
        error = types.ErrorData(code=types.UNSUPPORTED_PROTOCOL_VERSION, message=said, data=data)
        return types.JSONRPCError(jsonrpc="2.0", id=handshake, error=error)


class ShortPages:
    """Splits a long page of tools: the SDK gets its beginning, and asks for the rest with cursors of our own."""

    def __init__(self) -> None:
        self._lists = set[Any]()
        """The ids of requests for a page of the server's."""
        self._cursor = ""
        self._rest: list[Any] = []
        self._page: dict[str, Any] = {}
        """The page that is handed out, without its tools."""
        self._answer: Any = None
        self.asked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the next piece can be taken."""

    @property
    def has_more(self) -> bool:
        """True while the SDK may ask for a piece."""
        return bool(self._rest)

    def is_answered(self, message: Any) -> bool:
        """Note a request for a page; tell whether it is for a piece of one that has come, which is answered here."""
        if not isinstance(message, types.JSONRPCRequest) or message.method != "tools/list":
            return False
        if not self._rest or (message.params or {}).get("cursor") != self._cursor:
            self._lists.add(message.id)
            return False
        self._answer = self._make_piece(message.id)
        if not self.asked.done():
            self.asked.set_result(None)
        return True

    def split(self, message: types.JSONRPCResponse) -> types.JSONRPCResponse:
        """Return an answer of the server; of a long page of tools, the first piece."""
        if message.id not in self._lists:
            return message
        self._lists.discard(message.id)
        tools = message.result.get("tools")
        if not isinstance(tools, list) or len(cast("list[Any]", tools)) <= PAGE_TOOLS:
            return message
        self._page, self._rest = {**message.result, "tools": []}, cast("list[Any]", tools)[::-1]
        return self._make_piece(message.id)

    def take(self) -> Any:
        """Return the piece that was asked for."""
        self.asked = asyncio.get_running_loop().create_future()
        return SessionMessage(self._answer)

    def _make_piece(self, number: Any) -> types.JSONRPCResponse:
        tools = self._rest[: -PAGE_TOOLS - 1 : -1]
        del self._rest[-PAGE_TOOLS:]
        result = {**self._page, "tools": tools}
        if self._rest:
            # Not to be guessed by the server, whose own cursors go to it.
            result["nextCursor"] = self._cursor = secrets.token_hex()
        return types.JSONRPCResponse(jsonrpc="2.0", id=number, result=result)


def _modern_versions(message: types.JSONRPCResponse | types.JSONRPCError) -> list[str]:
    """Return the versions of the newer era that an answer to the probe names, be it a refusal of the one asked for."""
    if isinstance(message, types.JSONRPCError):
        refused = message.error.code == types.UNSUPPORTED_PROTOCOL_VERSION
        said: Any = message.error.data if refused else None
        named: Any = cast("dict[str, Any]", said).get("supported") if isinstance(said, dict) else None
    else:
        named = message.result.get("supportedVersions")
    return [each for each in MODERN_PROTOCOL_VERSIONS if isinstance(named, list) and each in named]


def _progress_token(item: Any) -> Any:
    """Return the call that a notice of progress is of; None for any other message."""
    message = getattr(item, "message", None)
    if not isinstance(message, types.JSONRPCNotification) or message.method != "notifications/progress":
        return None
    token = (message.params or {}).get("progressToken")
    return token if isinstance(token, str | int) else None


class _Stream:
    """A stream of the SDK with some of its messages looked at."""

    def __init__(self, inner: Any, probe: LateProbe, pages: ShortPages) -> None:
        self._inner = inner
        self._probe = probe
        self._pages = pages

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._inner.__aexit__(kind, error, trace)


class _Reading(_Stream):
    def __init__(self, inner: Any, probe: LateProbe, pages: ShortPages) -> None:
        super().__init__(inner, probe, pages)
        self._told: dict[Any, float] = {}
        """When the latest notice of progress was passed on, by the call it is of."""
        self._held: dict[Any, Any] = {}
        """The latest notice that came too soon after it."""
        self._coming: asyncio.Task[Any] | None = None
        self._counting_since = float("-inf")
        self._requests = 0
        self._dropped = 0
        self.fault = ""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def receive(self) -> Any:
        """Return the next message; of notices of progress that come in floods, the latest a few times a second."""
        while True:
            item: Any
            coming = self._coming
            if not self._held and not self._pages.has_more and coming is None:
                item = await self._inner.receive()
            else:
                if coming is None:
                    coming = self._coming = asyncio.get_running_loop().create_task(self._inner.receive())
                # Not cancelled when the time is over: what it receives would be lost.
                await asyncio.wait(
                    {coming, self._pages.asked}, timeout=PROGRESS_S if self._held else None, return_when=FIRST_COMPLETED
                )
                if self._pages.asked.done():
                    return self._pages.take()
                if self._held and not (coming.done() and self._is_held_back(coming)):
                    return self._take_held()
                self._coming = None
                item = coming.result()
            token = _progress_token(item)
            if token is None and self._is_excessive(item):
                continue
            if token is None:
                return self._put_right(item)
            now = asyncio.get_running_loop().time()
            if now - self._told.get(token, float("-inf")) >= PROGRESS_S:
                self._note(token, now)
                return item
            self._held[token] = item

    def _is_excessive(self, item: Any) -> bool:
        """Count a server's requests, and return whether this one is dropped; raise EndOfStream in a flood.

        Each that is answered takes a task, and over HTTP a request. Resting instead of dropping would keep the answers
        that come behind a flood waiting for minutes.
        """
        if not isinstance(getattr(item, "message", None), types.JSONRPCRequest):
            return False
        now = asyncio.get_running_loop().time()
        if now - self._counting_since >= REQUESTS_S:
            self._counting_since, self._requests = now, 0
        self._requests += 1
        if self._requests <= REQUESTS_LIMIT:
            return False
        self._dropped += 1
        if self._dropped > DROPPED_LIMIT:
            self.fault = FLOODED
            raise anyio.EndOfStream
        return True

    def _is_held_back(self, coming: asyncio.Task[Any]) -> bool:
        """Return whether this is another notice, which replaces the one kept back."""
        failed = coming.cancelled() or coming.exception() is not None
        token = None if failed else _progress_token(coming.result())
        now = asyncio.get_running_loop().time()
        return token in self._held and now - self._told[token] < PROGRESS_S

    def _take_held(self) -> Any:
        token = next(iter(self._held))
        self._note(token, asyncio.get_running_loop().time())
        return self._held.pop(token)

    def _note(self, token: Any, now: float) -> None:
        self._told.pop(token, None)
        self._told[token] = now
        if len(self._told) > 1000:
            for old in list(self._told)[:500]:
                if old not in self._held:
                    del self._told[old]

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._coming is not None:
            self._coming.cancel()
            await asyncio.wait({self._coming})
        await super().__aexit__(kind, error, trace)

    def _put_right(self, item: Any) -> Any:
        message = getattr(item, "message", None)
        if isinstance(message, types.JSONRPCResponse):
            # In a session of an older version the SDK drops what only newer ones know.
            message.result.setdefault("resultType", "complete")
            if isinstance(content := message.result.get("content"), list):
                message.result["content"] = limit_blocks(cast("list[Any]", content))
            message = self._pages.split(message)
        if message is not None:
            item.message = self._probe.correct(message)
        return item


class _Writing(_Stream):
    async def send(self, item: Any) -> None:
        self._probe.note_sent(item.message)
        if not self._pages.is_answered(item.message):
            await self._inner.send(item)
