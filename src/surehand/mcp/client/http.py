"""The HTTP transport of a client: a server's headers, and a bound on what one answer may hold.

The SDK bounds the events of a stream; an answer in plain JSON it reads whole, whatever its size and however packed.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx2
from mcp.client.streamable_http import streamable_http_client

from surehand.mcp.client.login import is_safe
from surehand.mcp.lines import LINE_LIMIT, UNREADABLE, id_of_answer, id_of_request
from surehand.web.local_server import is_loopback

_TIMEOUT: Final = httpx2.Timeout(30, read=300)
_EXCEEDED: Final = "byte limit"
"""Part of what the SDK says of an event that is too long, and of what is said here of an answer."""


def was_too_long(problem: str) -> bool:
    """Say whether an answer was dropped for its size."""
    return _EXCEEDED in problem


class Heard:
    """What a server last answered to a message, for whoever has to say why it cannot be spoken to."""

    def __init__(self, name: str, url: str) -> None:
        self._name = name
        self._url = url
        self.refusal = ""
        """Why it took no message; empty where it took the last one."""

    def fail(self, why: str) -> None:
        """Note why nobody could be logged in."""
        self.refusal = why

    async def hear(self, answer: httpx2.Response) -> None:
        """Note what a server answered to a message."""
        if answer.request.method == "POST" and str(answer.request.url) == self._url:
            told = f"it answered {answer.status_code} {answer.reason_phrase}".strip()
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
    """Yield the transport the SDK's client enters; `heard` is told what the server answers."""
    hooks: dict[str, list[Any]] = {"request": [_Within(url).check], "response": [heard.hear, _bound]}
    async with httpx2.AsyncClient(headers=headers, timeout=_TIMEOUT, event_hooks=hooks, auth=auth) as http:
        yield streamable_http_client(url, http_client=http, max_sse_event_size=LINE_LIMIT)


class _Within:
    """Keeps what a login sends to other addresses than the server's to https: a server names those addresses.

    Only a server on this machine may name others on it.
    """

    def __init__(self, url: str) -> None:
        self._own = httpx2.URL(url)

    async def check(self, request: httpx2.Request) -> None:
        own, url = self._own, request.url
        if (url.scheme, url.host, url.port) == (own.scheme, own.host, own.port) or url.scheme == "https":
            return
        if not (is_safe(str(url)) and is_loopback(own.host)):
            raise httpx2.UnsupportedProtocol(f"it names {url.host} for logging in, without https")


async def _bound(answer: httpx2.Response) -> None:
    """Cut an answer that is read whole off where it is too long; it is unpacked here, to count what fills memory."""
    if not answer.headers.get("content-type", "").lower().startswith("text/event-stream"):
        packed = httpx2.Response(answer.status_code, headers=answer.headers, stream=answer.stream)
        answer.stream = _Counted(packed, _request_id(answer.request))
        answer.headers.pop("content-encoding", None)


class _Counted(httpx2.AsyncByteStream):
    def __init__(self, answer: httpx2.Response, request_id: str | int | None) -> None:
        self._answer = answer
        self._request_id = request_id

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size, pieces = 0, list[bytes]()
        try:
            async for piece in self._answer.aiter_bytes():
                size += len(piece)
                if size > LINE_LIMIT:
                    raise httpx2.StreamError(f"the answer exceeded the {LINE_LIMIT:,} {_EXCEEDED}")
                pieces.append(piece)
            yield self._checked(b"".join(pieces))
        except httpx2.RequestError as problem:
            # Badly packed, or cut off: the SDK fails the call at once for this kind of error alone.
            raise httpx2.StreamError(f"the answer broke off: {problem}") from problem

    def _checked(self, body: bytes) -> bytes:
        """Return an answer, or the error that stands in for one to another request: no other would come."""
        if self._request_id is None or id_of_answer(body) in (self._request_id, None):
            return body
        error = {"code": UNREADABLE, "message": "its answer is to another request (it has another id)"}
        return json.dumps({"jsonrpc": "2.0", "id": self._request_id, "error": error}).encode()

    async def aclose(self) -> None:
        await self._answer.aclose()


def _request_id(request: httpx2.Request) -> str | int | None:
    """Return the id of the request that a message is; None for one that wants no answer."""
    return id_of_request(request.content) if request.method == "POST" else None
