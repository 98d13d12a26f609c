"""The HTTP transport of a client: responses are limited and checked, and messages the SDK mishandles are corrected.

The SDK limits the events of a stream, but reads a plain JSON response whole, whatever its size after decompression.
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
from surehand.web.fetch import quote_server, read_in_pieces, read_small_pieces
from surehand.web.local_server import is_loopback

_TIMEOUT: Final = httpx2.Timeout(30, read=300)
REOPEN_S: Final = 0.2
EVENT_LINES: Final = 10_000
_EXCEEDED: Final = "byte limit"
"""Part of the SDK's error for an event that is too long, and of our own for a response."""


def was_too_long(problem: MCPError) -> bool:
    """Return whether an answer was dropped for its size."""
    return problem.error.code == TOO_LONG or _EXCEEDED in str(problem)


def was_unreadable(problem: MCPError) -> bool:
    """Return whether the answer was no message."""
    return problem.error.code in (UNREADABLE, types.PARSE_ERROR)


class LastResponse:
    """The HTTP status of a server's last response to a message, to explain why it cannot be reached."""

    def __init__(self, name: str, url: str) -> None:
        self._name = name
        self._url = url
        self.refusal = ""
        """Why it refused the last message; empty if it did not."""

    def fail(self, why: str) -> None:
        """Record why a login failed."""
        self.refusal = why

    async def record(self, answer: httpx2.Response) -> None:
        """Record a response to a message."""
        if answer.request.method == "POST" and str(answer.request.url) == self._url:
            status = f"it answered {answer.status_code} {quote_server(answer.reason_phrase)}".strip()
            advice = _ADVICE.get(answer.status_code, "").format(name=self._name)
            self.refusal = status + advice if answer.status_code >= 400 else ""


_ADVICE: Final = {
    401: "; log in with `surehand mcp login {name}`, or give a token (`--header 'Authorization=Bearer ${{VARIABLE}}'`)",
    403: "; it does not let this token, or this machine, in",
    404: "; is the path of its address right?",
    405: "; is the path of its address right?",
}


@asynccontextmanager
async def over_http(
    url: str, headers: Mapping[str, str], last: LastResponse, auth: httpx2.Auth | None = None
) -> AsyncGenerator[Any]:
    """Yield the transport that the SDK's client enters; `last` records the server's responses."""
    hooks: dict[str, list[Any]] = {"request": [RequestGuard(url).check], "response": [last.record, _limit_response]}
    async with httpx2.AsyncClient(headers=headers, timeout=_TIMEOUT, event_hooks=hooks, auth=auth) as http:
        yield streamable_http_client(url, http_client=http, max_sse_event_size=LINE_LIMIT)


class RequestGuard:
    """Checks the addresses of a login, which the server names: they must be https, and not more private than its own.

    Only a server on this machine may name others on it, and only one in a private network others there.
    """

    def __init__(self, url: str) -> None:
        self._own = httpx2.URL(url)
        self._stream_opened_at = float("-inf")

    async def check(self, request: httpx2.Request) -> None:
        """Raise for a forbidden address; delay streams that are opened too often; have responses read in pieces."""
        own, url = self._own, request.url
        request.extensions["trace"] = read_small_pieces
        if request.method == "GET" and url == own:
            now = asyncio.get_running_loop().time()
            await asyncio.sleep(self._stream_opened_at + REOPEN_S - now)
            self._stream_opened_at = max(now, self._stream_opened_at + REOPEN_S)
        if (url.scheme, url.host, url.port) == (own.scheme, own.host, own.port):
            return
        if url.scheme != "https" and not (is_safe(str(url)) and is_loopback(own.host)):
            raise httpx2.UnsupportedProtocol(f"it names {url.host} for logging in, without https")
        if literal_problem(str(own)) is None and (problem := literal_problem(str(url))) is not None:
            raise httpx2.UnsupportedProtocol(f"it names a private address for logging in: {problem}")


async def _limit_response(answer: httpx2.Response) -> None:
    """Limit a response; it is decompressed here, since the limit is for what fills memory."""
    packed = httpx2.Response(answer.status_code, headers=answer.headers, stream=answer.stream)
    is_stream = answer.headers.get("content-type", "").lower().startswith("text/event-stream")
    answer.stream = (_CheckedEvents if is_stream else _CheckedBody)(packed, _request_id(answer.request))
    answer.headers.pop("content-encoding", None)


class _CheckedBody(httpx2.AsyncByteStream):
    """A plain JSON response."""

    def __init__(self, answer: httpx2.Response, request_id: str | int | None) -> None:
        self._answer = answer
        self._request_id = request_id

    async def __aiter__(self) -> AsyncIterator[bytes]:
        body = bytearray()
        try:
            async for piece in read_in_pieces(self._answer):
                body += piece
                if len(body) > LINE_LIMIT:
                    raise httpx2.StreamError(f"the answer exceeded the {LINE_LIMIT:,} {_EXCEEDED}")
            yield self._check_answer(bytes(body))
        except httpx2.RequestError as problem:
            # Corrupt compression, or a lost connection: the SDK fails the call at once only for this class of error.
            raise httpx2.StreamError(f"the response was interrupted: {problem}") from problem

    def _check_answer(self, body: bytes) -> bytes:
        """Return an answer; an error in place of one that is too large or to another request: no other would come."""
        if has_too_many_values(body):
            return _make_error(self._request_id, TOO_LONG, TOO_MANY)
        if self._request_id is None or id_of_answer(body) in (self._request_id, None):
            return body
        return _make_error(self._request_id)

    async def aclose(self) -> None:
        await self._answer.aclose()


class _CheckedEvents(httpx2.AsyncByteStream):
    """A stream of events; an error replaces an answer that is too large or to another request.

    The SDK takes any answer in the stream for the one to its request.
    """

    def __init__(self, answer: httpx2.Response, request_id: str | int | None) -> None:
        self._answer = answer
        self._request_id = request_id
        self._event = bytearray()
        self._begins_line = True
        self._lines = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in read_in_pieces(self._answer):
            if events := b"".join(map(self._add, piece.splitlines(keepends=True))):
                yield events
        yield bytes(self._event)

    def _add(self, part: bytes) -> bytes:
        """Add a line, or a part of one; return the event it completes, checked, or nothing."""
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
            error = _make_error(self._request_id, TOO_LONG, TOO_MANY)
        elif self._request_id is None or id_of_answer(data) in (self._request_id, None):
            return event
        else:
            error = _make_error(self._request_id)
        return b"event: message\ndata: " + error + b"\n\n"

    async def aclose(self) -> None:
        await self._answer.aclose()


def _make_error(
    request_id: str | int | None,
    code: int = UNREADABLE,
    message: str = "its answer is to another request (it has another id)",
) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}}).encode()


def _request_id(request: httpx2.Request) -> str | int | None:
    """Return the id of the JSON-RPC request in an HTTP request; None for any other message."""
    return id_of_request(request.content) if request.method == "POST" else None


# A corrected transport, for stdio too: messages of a server are changed where the SDK would mishandle them.
#
# - A result of 2026-07-28 without a `resultType` is complete; the SDK refuses it.
# - A server that answers the probe for the newer era after ten seconds is taken for an old one, though it may only be
#   busy.
# - Of a flood of progress, the latest is passed on a few times a second; of a flood of requests, the excess is dropped.
# - A long page of tools, which the SDK validates several times without a pause, is split into short ones.

PROBE: Final = "server/discover"
REQUESTS_LIMIT: Final = 50
REQUESTS_S: Final = 1.0
"""How many requests of a server are passed on in how many seconds; the excess is dropped."""
DROPPED_LIMIT: Final = 2_000
"""Dropped requests after which the connection is closed; it is opened again like any that is lost."""
FLOODED: Final = "it floods its client with requests"
PROGRESS_S: Final = 0.05
"""Least time between two progress notifications of a call; of those between, the latest is passed on."""
PAGE_TOOLS: Final = 50
"""Tools of a page; the SDK validates a hundred in about 10 ms."""


class CorrectedTransport:
    """A transport whose incoming messages are corrected."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._stack = AsyncExitStack()
        self._reader: _ReadStream | None = None

    async def __aenter__(self) -> tuple[Any, Any]:
        read_stream, write_stream = await self._stack.enter_async_context(self._transport)
        probe, pages = LateProbe(), ShortPages()
        self._reader = _ReadStream(read_stream, probe, pages)
        return self._reader, _WriteStream(write_stream, probe, pages)

    @property
    def fault(self) -> str:
        """Why the connection was closed on this side; empty where it was not."""
        return self._reader.fault if self._reader is not None else ""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, trace)


class LateProbe:
    """Detects an answer to the probe that comes after the SDK has begun the older handshake."""

    def __init__(self) -> None:
        self._probe: Any = None
        self._handshake: Any = None

    def note_sent(self, message: Any) -> None:
        """Record a message to the server."""
        if isinstance(message, types.JSONRPCRequest):
            if message.method == PROBE:
                self._probe, self._handshake = message.id, None
            elif message.method == "initialize" and self._probe is not None:
                self._handshake = message.id

    def correct(self, message: Any) -> Any:
        """Return a server's message, or for a late answer to the probe a refusal of the handshake.

        The SDK then probes again, as it does when a server refuses the older handshake.
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
        text = "the server answered that it uses a newer protocol"
        error = types.ErrorData(code=types.UNSUPPORTED_PROTOCOL_VERSION, message=text, data=data)
        return types.JSONRPCError(jsonrpc="2.0", id=handshake, error=error)


class ShortPages:
    """Splits a long page of tools: the SDK gets its first tools, and requests the rest with cursors of our own."""

    def __init__(self) -> None:
        self._lists = set[Any]()
        """Ids of the requests that went to the server."""
        self._cursor = ""
        self._rest: list[Any] = []
        self._page: dict[str, Any] = {}
        """The page that is split, without its tools."""
        self._answer: Any = None
        self.requested: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the SDK has requested the next piece."""

    @property
    def has_more(self) -> bool:
        """True while the SDK may request a piece."""
        return bool(self._rest)

    def intercept(self, message: Any) -> bool:
        """Record a request for a page; return True for one that is answered here, with the next piece."""
        if not isinstance(message, types.JSONRPCRequest) or message.method != "tools/list":
            return False
        if not self._rest or (message.params or {}).get("cursor") != self._cursor:
            self._lists.add(message.id)
            return False
        self._answer = self._make_piece(message.id)
        if not self.requested.done():
            self.requested.set_result(None)
        return True

    def split(self, message: types.JSONRPCResponse) -> types.JSONRPCResponse:
        """Return a response of the server; for a long page of tools, one with the first piece."""
        if message.id not in self._lists:
            return message
        self._lists.discard(message.id)
        tools = message.result.get("tools")
        if not isinstance(tools, list) or len(cast("list[Any]", tools)) <= PAGE_TOOLS:
            return message
        self._page, self._rest = {**message.result, "tools": []}, cast("list[Any]", tools)[::-1]
        return self._make_piece(message.id)

    def take(self) -> Any:
        """Return the response with the requested piece."""
        self.requested = asyncio.get_running_loop().create_future()
        return SessionMessage(self._answer)

    def _make_piece(self, request_id: Any) -> types.JSONRPCResponse:
        tools = self._rest[: -PAGE_TOOLS - 1 : -1]
        del self._rest[-PAGE_TOOLS:]
        result = {**self._page, "tools": tools}
        if self._rest:
            # Random, so that the server cannot use it for one of its own cursors.
            result["nextCursor"] = self._cursor = secrets.token_hex()
        return types.JSONRPCResponse(jsonrpc="2.0", id=request_id, result=result)


def _modern_versions(message: types.JSONRPCResponse | types.JSONRPCError) -> list[str]:
    """Return the versions of the newer era in an answer to the probe, or in a refusal of the version asked for."""
    if isinstance(message, types.JSONRPCError):
        refused = message.error.code == types.UNSUPPORTED_PROTOCOL_VERSION
        data: Any = message.error.data if refused else None
        named: Any = cast("dict[str, Any]", data).get("supported") if isinstance(data, dict) else None
    else:
        named = message.result.get("supportedVersions")
    return [each for each in MODERN_PROTOCOL_VERSIONS if isinstance(named, list) and each in named]


def _progress_token(item: Any) -> Any:
    """Return the token of a progress notification; None for any other message."""
    message = getattr(item, "message", None)
    if not isinstance(message, types.JSONRPCNotification) or message.method != "notifications/progress":
        return None
    token = (message.params or {}).get("progressToken")
    return token if isinstance(token, str | int) else None


class _Stream:
    """A stream of the SDK, wrapped."""

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


class _ReadStream(_Stream):
    def __init__(self, inner: Any, probe: LateProbe, pages: ShortPages) -> None:
        super().__init__(inner, probe, pages)
        self._passed_at: dict[Any, float] = {}
        """When the latest progress notification was passed on, by token."""
        self._held: dict[Any, Any] = {}
        """The latest one that came too soon after it, by token."""
        self._receiving: asyncio.Task[Any] | None = None
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
        """Return the next message; of a flood of progress notifications, the latest a few times a second."""
        while True:
            item: Any
            receiving = self._receiving
            if not self._held and not self._pages.has_more and receiving is None:
                item = await self._inner.receive()
            else:
                if receiving is None:
                    receiving = self._receiving = asyncio.get_running_loop().create_task(self._inner.receive())
                # Not cancelled after the timeout, which could lose a message.
                await asyncio.wait(
                    {receiving, self._pages.requested},
                    timeout=PROGRESS_S if self._held else None,
                    return_when=FIRST_COMPLETED,
                )
                if self._pages.requested.done():
                    return self._pages.take()
                if self._held and not (receiving.done() and self._replaces_held(receiving)):
                    return self._take_held()
                self._receiving = None
                item = receiving.result()
            token = _progress_token(item)
            if token is None and self._is_excessive(item):
                continue
            if token is None:
                return self._correct(item)
            now = asyncio.get_running_loop().time()
            if now - self._passed_at.get(token, float("-inf")) >= PROGRESS_S:
                self._record_passed(token, now)
                return item
            self._held[token] = item

    def _is_excessive(self, item: Any) -> bool:
        """Count a server's requests and return whether to drop this one; raise EndOfStream in a flood.

        The SDK starts a task for each request, and over HTTP sends each answer in a request. Pausing instead of
        dropping would delay the messages behind a flood by minutes.
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

    def _replaces_held(self, receiving: asyncio.Task[Any]) -> bool:
        """Return whether a received message is progress too soon after the last, which replaces the held one."""
        failed = receiving.cancelled() or receiving.exception() is not None
        token = None if failed else _progress_token(receiving.result())
        now = asyncio.get_running_loop().time()
        return token in self._held and now - self._passed_at[token] < PROGRESS_S

    def _take_held(self) -> Any:
        token = next(iter(self._held))
        self._record_passed(token, asyncio.get_running_loop().time())
        return self._held.pop(token)

    def _record_passed(self, token: Any, now: float) -> None:
        self._passed_at.pop(token, None)
        self._passed_at[token] = now
        if len(self._passed_at) > 1000:
            for old in list(self._passed_at)[:500]:
                if old not in self._held:
                    del self._passed_at[old]

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._receiving is not None:
            self._receiving.cancel()
            await asyncio.wait({self._receiving})
        await super().__aexit__(kind, error, trace)

    def _correct(self, item: Any) -> Any:
        message = getattr(item, "message", None)
        if isinstance(message, types.JSONRPCResponse):
            # The SDK drops it in a session of an older version.
            message.result.setdefault("resultType", "complete")
            if isinstance(content := message.result.get("content"), list):
                message.result["content"] = limit_blocks(cast("list[Any]", content))
            message = self._pages.split(message)
        if message is not None:
            item.message = self._probe.correct(message)
        return item


class _WriteStream(_Stream):
    async def send(self, item: Any) -> None:
        self._probe.note_sent(item.message)
        if not self._pages.intercept(item.message):
            await self._inner.send(item)
