"""Standard input and output as the way to a client, for a server.

Standard output belongs to the protocol: what handlers and their children print goes to stderr. Lines are read and
written by the event loop itself; going through threads, as the SDK does, takes several times as long.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from types import TracebackType
from typing import Any, Final, Self, cast

import anyio
import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

LINE_LIMIT: Final = 32 * 1024 * 1024
"""Bytes of the longest line a client may send."""
GRACE_S: Final = 1.5
"""How long requests may go on after the client has closed its side and still listens."""


async def serve_stdio(server: Server[Any]) -> None:
    """Serve the client on standard input until it closes."""
    if not all(_is_stream(descriptor) for descriptor in (0, 1)):
        from mcp.server.stdio import stdio_server

        async with stdio_server() as (reading, writing):  # a plain file cannot be waited for
            await server.run(reading, writing, server.create_initialization_options())
        return
    wire_in, wire_out = _private(0, os.open(os.devnull, os.O_RDONLY)), _private(1, os.dup(2))
    lines = await Lines.open(wire_in, wire_out)
    try:
        await server.run(cast("Any", lines), cast("Any", lines), server.create_initialization_options())
    finally:
        await lines.finish()


def _is_stream(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISCHR(mode)


def _private(descriptor: int, instead: int) -> int:
    """Take a standard stream for the protocol alone, and put another in its place."""
    sys.stdout.flush()
    kept = os.dup(descriptor)
    os.dup2(instead, descriptor)
    os.close(instead)
    return kept


class Lines:
    """Messages, one a line, as the SDK wants them: to iterate over and to send to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._open: set[Any] = set()
        self._idle = asyncio.Event()
        self._gone = False

    @classmethod
    async def open(cls, wire_in: int, wire_out: int) -> Lines:
        """Return the messages of a pair of descriptors, which are closed with it."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=LINE_LIMIT)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(wire_in, "rb", 0))
        protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
        transport, _ = await loop.connect_write_pipe(lambda: protocol, os.fdopen(wire_out, "wb", 0))
        return cls(reader, asyncio.StreamWriter(transport, protocol, None, loop))

    # What the client says ------------------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        while True:
            try:
                line = await self._reader.readline()
            except ValueError:
                await self._refuse(types.INVALID_REQUEST, f"a line was longer than {LINE_LIMIT} bytes and was dropped")
                continue
            if not line:
                await self._let_finish()
                raise StopAsyncIteration
            if line.strip() and (message := await self._parsed(line)) is not None:
                return message

    async def receive(self) -> SessionMessage | Exception:
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise anyio.EndOfStream from None

    async def _parsed(self, line: bytes) -> SessionMessage | None:
        try:
            message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValidationError as problem:
            broken = any(each["type"] == "json_invalid" for each in problem.errors(include_url=False))
            code, text = (types.PARSE_ERROR, "Parse error") if broken else (types.INVALID_REQUEST, "Invalid Request")
            await self._refuse(code, f"{text}: this line is no JSON-RPC message")
            return None
        if isinstance(message, types.JSONRPCRequest):
            self._open.add(message.id)
        return SessionMessage(message)

    async def _let_finish(self) -> None:
        """Give requests that still run a moment: the client has closed its side, and may still listen."""
        self._idle.clear()
        if self._open and not self._writer.transport.is_closing():
            lost = asyncio.ensure_future(self._writer.wait_closed())
            idle = asyncio.ensure_future(self._idle.wait())
            await asyncio.wait({lost, idle}, timeout=GRACE_S, return_when=asyncio.FIRST_COMPLETED)
            lost.cancel()
            idle.cancel()

    # What it is told -----------------------------------------------------------------------------------------------

    async def send(self, item: SessionMessage) -> None:
        message = item.message
        await self._write(message.model_dump_json(by_alias=True, exclude_unset=True).encode())
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            self._open.discard(message.id)
            if not self._open:
                self._idle.set()

    async def _refuse(self, code: int, text: str) -> None:
        error = types.JSONRPCError(jsonrpc="2.0", id=None, error=types.ErrorData(code=code, message=text))
        await self._write(error.model_dump_json(by_alias=True, exclude_unset=True).encode())

    async def _write(self, line: bytes) -> None:
        if self._writer.transport.is_closing():
            return  # the client has gone; reading will tell
        try:
            self._writer.write(line + b"\n")
            await self._writer.drain()
        except (BrokenPipeError, ConnectionResetError):
            pass

    # The end -------------------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Do nothing: the SDK closes each direction by itself, `finish` closes both."""

    async def finish(self) -> None:
        """Send what is left and let go of the streams."""
        self._writer.close()
        try:
            async with asyncio.timeout(1):
                await self._writer.wait_closed()
        except (OSError, TimeoutError):
            pass

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
