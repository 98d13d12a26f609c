"""The stdio transport of a server: standard input and output as the way to a client.

Standard output belongs to the protocol: what handlers and their children print goes to stderr.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from typing import Any, cast

from mcp.server.lowlevel.server import Server

from surehand.mcp.lines import LINE_LIMIT, Lines


async def serve_stdio(server: Server[Any]) -> None:
    """Serve the client on standard input until it closes."""
    if not all(_is_stream(descriptor) for descriptor in (0, 1)):
        from mcp.server.stdio import stdio_server

        async with stdio_server() as (reading, writing):  # a plain file cannot be waited for
            await server.run(reading, writing, server.create_initialization_options())
        return
    wire_in, wire_out = _private(0, os.open(os.devnull, os.O_RDONLY)), _private(1, os.dup(2))
    lines = await _lines(wire_in, wire_out)
    try:
        await server.run(cast("Any", lines), cast("Any", lines), server.create_initialization_options())
    finally:
        await lines.finish()


def _is_stream(descriptor: int) -> bool:
    """Say whether a descriptor can be waited for: of devices, /dev/null among them, only terminals can."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)


def _private(descriptor: int, instead: int) -> int:
    """Take a standard stream for the protocol alone, and put another in its place."""
    sys.stdout.flush()
    kept = os.dup(descriptor)
    os.dup2(instead, descriptor)
    os.close(instead)
    return kept


async def _lines(wire_in: int, wire_out: int) -> Lines:
    """Return the messages of a pair of descriptors, which are closed with it."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LINE_LIMIT)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(wire_in, "rb", 0))
    protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
    transport, _ = await loop.connect_write_pipe(lambda: protocol, os.fdopen(wire_out, "wb", 0))
    return Lines(reader, asyncio.StreamWriter(transport, protocol, None, loop))
