"""The stdio transport of a server: one client on standard input and output."""

from __future__ import annotations

from typing import Any, cast

from mcp.server.lowlevel.server import Server

from surehand.mcp.lines import PIECE_BYTES, Lines
from surehand.state.stdio import is_stream, own_stdio


async def serve_stdio(server: Server[Any]) -> None:
    """Serve the client on standard input until it closes."""
    if not all(is_stream(descriptor) for descriptor in (0, 1)):
        from mcp.server.stdio import stdio_server

        async with stdio_server() as (reading, writing):  # a plain file cannot be waited for
            await server.run(reading, writing, server.create_initialization_options())
        return
    lines = Lines(*await own_stdio(PIECE_BYTES))
    try:
        await server.run(cast("Any", lines), cast("Any", lines), server.create_initialization_options())
    finally:
        await lines.finish()
