"""What a server sends, as the SDK's client wants it: an answer that does not say of what kind it is, is complete.

The protocol of 2026-07-28 has clients assume so; the SDK refuses such an answer.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

from mcp_types import JSONRPCResponse


class Incoming:
    """A transport whose answers say that they are complete where they say nothing."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> tuple[Any, Any]:
        reading, writing = await self._stack.enter_async_context(self._transport)
        return _Completed(reading), writing

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, trace)


class _Completed:
    """A stream of messages, each completed as it is read."""

    def __init__(self, reading: Any) -> None:
        self._reading = reading

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reading, name)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return _completed(await self._reading.__anext__())

    async def receive(self) -> Any:
        return _completed(await self._reading.receive())

    async def __aenter__(self) -> Self:
        await self._reading.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._reading.__aexit__(kind, error, trace)


def _completed(item: Any) -> Any:
    message = getattr(item, "message", None)
    if isinstance(message, JSONRPCResponse):
        # In a session of an older version the SDK drops what only newer ones know.
        message.result.setdefault("resultType", "complete")
    return item
