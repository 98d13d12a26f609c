"""Lines and answers that are too long to be read: whose they were, and how little of them is kept."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import random
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from mcp_types import JSONRPCError
from tests.loopback import Site, page

from surehand import Settings, Surehand
from surehand.core.settings import McpServerSettings
from surehand.mcp import lines as lines_module
from surehand.mcp.lines import LINE_LIMIT, TOO_LONG, Lines, Overlong
from surehand.testing import Says

LONG = "w" * (LINE_LIMIT + 1)


@pytest.mark.parametrize(
    ("line", "known"),
    [
        ('{"jsonrpc":"2.0","id":5,"result":{"id":6}}', {"jsonrpc": "2.0", "id": 5}),
        ('{"id":"a\\"b","jsonrpc":"2.0","result":{}}', {"jsonrpc": "2.0", "id": 'a"b'}),
        (' { "result" : {"id": 3} , "id" : 7 }\n', {"id": 7}),
        ('{"result":{"text":"x,\\"id\\":9}"},"id":1,"jsonrpc":"2.0"}', {"id": 1, "jsonrpc": "2.0"}),
        ('{"result":{"text":"x"},"nested":{"a":1,"id":9}}', {}),
        ('{"result":{"text":",\\"id\\":9}"}}', {}),
        ('{"id":4,"params":{},"method":"tools/call"}', {"id": 4, "method": "tools/call"}),
        ("yyyyyyyyyyyy\n", {}),
        ("", {}),
    ],
)
def test_id_and_method_are_found_at_the_top_level_alone(line: str, known: dict[str, Any]) -> None:
    for size in (1, 7, 4096):
        skipped = Overlong()
        for start in range(0, len(line), size):
            skipped.add(line.encode()[start : start + size])
        assert skipped.members() == known
        assert skipped.size == len(line)


def test_only_the_ends_are_kept() -> None:
    skipped = Overlong()
    for piece in (b'{"id":1,"result":"', *[b"x" * 100_000] * 50, b'","jsonrpc":"2.0"}\n'):
        skipped.add(piece)
    assert skipped.members() == {"id": 1, "jsonrpc": "2.0"}
    assert max(len(part) for part in (skipped._head, skipped._tail)) <= 1024  # pyright: ignore[reportPrivateUsage]


@asynccontextmanager
async def wire(refused: list[tuple[Any, ...]]) -> AsyncIterator[tuple[Lines, Callable[[bytes], None]]]:
    """Yield messages that come over a pipe, and the way to send bytes into it."""
    reading, writing = os.pipe()
    reader = asyncio.StreamReader(limit=LINE_LIMIT)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reading, "rb"))
    out, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, os.fdopen(writing, "wb"))

    async def refuse(*what: Any) -> None:
        refused.append(what)

    try:
        yield Lines(reader, asyncio.StreamWriter(out, protocol, None, loop), refuse), out.write
    finally:
        out.abort()
        transport.close()


async def test_a_long_answer_becomes_an_error_and_a_long_request_is_refused() -> None:
    refused: list[tuple[Any, ...]] = []
    async with wire(refused) as (lines, write):
        for message in ({"id": 1, "result": LONG}, {"id": 2, "method": "x", "params": LONG}, {"id": 3, "result": {}}):
            write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        first: Any = await lines.receive()
        assert isinstance(first.message, JSONRPCError)
        assert (first.message.id, first.message.error.code) == (1, TOO_LONG)
        second: Any = await lines.receive()
        assert second.message.id == 3
        assert [what[2] for what in refused] == [2]


async def test_a_line_that_never_ends_ends_the_connection_within_bounded_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lines_module, "SKIP_LIMIT", 4 * LINE_LIMIT)
    endless = await asyncio.create_subprocess_exec(
        "cat", "/dev/zero", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=LINE_LIMIT
    )
    assert endless.stdout is not None
    assert endless.stdin is not None
    lines = Lines(endless.stdout, endless.stdin)
    tracemalloc.start()
    try:
        with pytest.raises(anyio.EndOfStream):
            await lines.receive()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        endless.kill()
        await endless.communicate()
    assert lines.fault == "it sent a line that never ended"
    assert peak < 4 * LINE_LIMIT


async def test_whatever_the_pieces_no_message_is_lost_and_long_ones_are_answered_for() -> None:
    chance = random.Random(7)
    for _ in range(60):
        reader, refused = asyncio.StreamReader(limit=chance.choice([40, 300, 1000])), list[Any]()

        async def refuse(*what: Any, refused: list[Any] = refused) -> None:
            refused.append(what)

        lines = Lines(reader, cast("asyncio.StreamWriter", None), refuse, limit=300)
        sizes = [chance.choice([0, 10, 240, 260, 299, 300, 301, 700, 5000]) for _ in range(12)]
        answers = [
            {"jsonrpc": "2.0", "id": number, "result": {"text": "x" * size}} for number, size in enumerate(sizes)
        ]
        told = [json.dumps(answer).encode() for answer in answers]
        stream = b"".join(each + chance.choice([b"\n", b"\r\n", b"\n\n"]) for each in told)
        while stream:
            cut = chance.randrange(1, 900)
            reader.feed_data(stream[:cut])
            stream = stream[cut:]
        reader.feed_eof()
        got: list[Any] = [item.message async for item in lines if not isinstance(item, Exception)]
        assert [message.id for message in got] == list(range(12))
        for message, line in zip(got, told, strict=True):
            assert isinstance(message, JSONRPCError) == (len(line) > 300) or abs(len(line) - 300) <= 1
        assert refused == []


# -- over HTTP --------------------------------------------------------------------------------------------------------

TOOLS = [{"name": name, "description": name, "inputSchema": {"type": "object"}} for name in ("json", "sse", "bomb")]


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Speak just enough of the older protocol to be called."""
    message = json.loads(await reader.read(1 << 20) or b"{}")
    number, method, params = message.get("id"), message.get("method"), message.get("params", {})
    if number is None:
        writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
        return
    results: dict[str, Any] = {
        "initialize": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "far", "version": "1"},
        },
        "tools/list": {"tools": TOOLS},
        "tools/call": {"content": [{"type": "text", "text": LONG if params.get("arguments") else "short"}]},
    }
    if method not in results:
        told: dict[str, Any] = {"error": {"code": -32601, "message": "Method not found"}}
    else:
        told = {"result": results[method]}
    body = json.dumps({"jsonrpc": "2.0", "id": number, **told}).encode()
    match params.get("name") if method == "tools/call" else "json":
        case "sse":
            writer.write(page(b"event: message\ndata: " + body + b"\n\n", "text/event-stream"))
        case "bomb":
            writer.write(page(gzip.compress(body), "application/json", "Content-Encoding: gzip"))
        case _:
            writer.write(page(body, "application/json"))
    await writer.drain()


@pytest.mark.parametrize("way", ["json", "sse", "bomb"])
async def test_an_answer_too_long_over_http_fails_its_call_alone(tmp_path: Path, way: str) -> None:
    async with Site(default=answer) as site:
        servers = {"far": McpServerSettings(url=site.url("/mcp"))}
        async with Surehand(tmp_path, settings=Settings(), approver=Says("once"), mcp_servers=servers) as app:
            long = await app.call(f"far:{way}", {"long": True})
            assert long.error is not None
            assert long.error.code == "execution_error"
            assert "with too much" in long.error.message
            assert "16,777,216" in long.error.message or "16777216" in long.error.message
            assert (await app.call(f"far:{way}")).output == "short"
            assert app.servers.get("far").state == "ready"
