"""A corrected transport: messages of a server, put right where the SDK would take them wrongly.

An answer of 2026-07-28 that does not say whether it is complete is; the SDK refuses it. And a server of that era which
answers the probe for it too late is of that era all the same: the SDK takes it for an old one when ten seconds are
over, which on a busy machine says nothing. Floods of progress are thinned out before anybody works on them.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Final, Self, cast

import anyio
import mcp_types as types
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

PROBE: Final = "server/discover"
PROGRESS_S: Final = 0.05
"""Notices of one call's progress that come faster than this are left out, all but the latest."""


class CorrectedTransport:
    """A transport whose messages are put right on their way in."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> tuple[Any, Any]:
        reading, writing = await self._stack.enter_async_context(self._transport)
        probe = LateProbe()
        return _Reading(reading, probe), _Writing(writing, probe)

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

    def __init__(self, inner: Any, probe: LateProbe) -> None:
        self._inner = inner
        self._probe = probe

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
    def __init__(self, inner: Any, probe: LateProbe) -> None:
        super().__init__(inner, probe)
        self._told: dict[Any, float] = {}
        """When the latest notice of progress was passed on, by the call it is of."""
        self._held: dict[Any, Any] = {}
        """The latest notice that came too soon after it."""
        self._coming: asyncio.Task[Any] | None = None

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
            if not self._held and coming is None:
                item = await self._inner.receive()
            else:
                if coming is None:
                    coming = self._coming = asyncio.get_running_loop().create_task(self._inner.receive())
                # Not cancelled when the time is over: what it receives would be lost.
                await asyncio.wait({coming}, timeout=PROGRESS_S if self._held else None)
                if self._held and not (coming.done() and self._is_held_back(coming)):
                    return self._take_held()
                self._coming = None
                item = coming.result()
            token = _progress_token(item)
            if token is None:
                return self._put_right(item)
            now = asyncio.get_running_loop().time()
            if now - self._told.get(token, float("-inf")) >= PROGRESS_S:
                self._note(token, now)
                return item
            self._held[token] = item

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
        if message is not None:
            item.message = self._probe.correct(message)
        return item


class _Writing(_Stream):
    async def send(self, item: Any) -> None:
        self._probe.note_sent(item.message)
        await self._inner.send(item)
