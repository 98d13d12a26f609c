"""Event streams of a server over HTTP that carry answers nobody asked for, or end without the one that was."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.loopback import Site, page

from surehand import Settings, Surehand
from surehand.core.settings import McpServerSettings
from surehand.testing import Says

pytestmark = pytest.mark.spec("MCP-1")
INITIALIZED = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "far", "version": "1"},
}
NAMES = ("wrong_first", "twice", "never", "rubbish")
TOOLS = [{"name": name, "description": name, "inputSchema": {"type": "object"}} for name in NAMES]


def event(id: Any, text: str) -> bytes:
    """Return the event that answers the request of this id."""
    result = {"content": [{"type": "text", "text": text}]}
    return b"event: message\ndata: " + json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode() + b"\n\n"


def stream(way: str, id: int) -> bytes:
    """Return what a call of this tool is answered with."""
    wrong = event(id + 1000, "another's") + event(str(id) + "x", "nobody's") + event(None, "no one's")
    return {
        "wrong_first": wrong + event(id, "right"),
        "twice": event(id, "right") + event(id, "once more"),
        "rubbish": b"event: message\ndata: {no json\n\n: a comment\n\nevent: odd\ndata: 1\n\n" + event(id, "right"),
        "never": wrong,
    }[way]


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Speak just enough of the protocol to be called."""
    message = json.loads(await reader.read(1 << 20) or b"{}")
    id, method = message.get("id"), message.get("method")
    if id is None:
        writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
    elif method == "tools/call":
        writer.write(page(stream(message["params"]["name"], id), "text/event-stream"))
    else:
        results = {"initialize": INITIALIZED, "tools/list": {"tools": TOOLS}}
        unknown = {"error": {"code": -32601, "message": "Method not found"}}
        told = {"result": results[method]} if method in results else unknown
        writer.write(page(json.dumps({"jsonrpc": "2.0", "id": id, **told}), "application/json"))
    await writer.drain()


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Surehand]:
    async with Site(default=answer) as site:
        servers = {"far": McpServerSettings(url=site.url("/mcp"))}
        async with Surehand(folder, settings=Settings(), approver=Says("once"), mcp_servers=servers) as app:
            yield app


@pytest.mark.parametrize(
    ("way", "said"),
    [("wrong_first", "it has another id"), ("never", "it has another id"), ("rubbish", "cannot be read")],
)
async def test_a_stream_that_answers_wrongly_fails_its_call_at_once_and_alone(
    tmp_path: Path, way: str, said: str
) -> None:
    async with opened(tmp_path) as app:
        for _ in range(2):
            failed = await app.call(f"far:{way}")
            assert failed.error is not None
            assert failed.error.code == "execution_error"
            assert said in failed.error.message
            for word in ("another's", "nobody's", "right"):
                assert word not in failed.output
            assert (await app.call("far:twice")).output == "right"
        assert app.servers.get("far").state == "ready"


async def test_a_second_answer_in_a_stream_is_nobodys(tmp_path: Path) -> None:
    async with opened(tmp_path) as app:
        assert [(await app.call("far:twice")).output for _ in range(3)] == ["right"] * 3
