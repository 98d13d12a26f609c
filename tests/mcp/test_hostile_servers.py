"""Hostile MCP servers: each row is a misdeed at one step of the protocol, and what must be true all the same.

Of every row: the call ends within its time-out and says why, another server goes on answering, a connection that was
lost comes back when the server behaves, and no process is left.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.loopback import Site, page, redirect
from tests.mcp.test_streams import answer as answer_well

from surehand import Image, Settings, Surehand
from surehand.agent.loop import mark_foreign_text
from surehand.core.call import ToolResult
from surehand.core.settings import McpServerSettings, PermissionSettings
from surehand.core.shapes import result_to_anthropic
from surehand.mcp.client import connection, stdio

EVENTS = "text/event-stream"
HOSTILE = str(Path(__file__).with_name("hostile_server.py"))
PATIENCE_S = 1.0


def head(content_type: str, *headers: str) -> bytes:
    return "\r\n".join(("HTTP/1.1 200 OK", f"Content-Type: {content_type}", *headers, "", "")).encode()


LOST = r"was lost during|is not available"
TIMED_OUT = r"did not finish within \d s"
UNREADABLE = r"answered \w+ (wrongly|with what cannot be read)"
BROKEN = r"is not available: (the connection failed|it did not introduce itself|it prints output|it sent a line)"
FLOODS = rf"it floods its client with requests|{TIMED_OUT}"
BROKEN_OR_SLOW = rf"{BROKEN}|{TIMED_OUT}"

DYING = {
    ("start", "die"): BROKEN,
    ("start", "close its output"): BROKEN,
    ("server/discover", "die"): BROKEN,
    ("initialize", "die"): BROKEN,
    ("initialize", "close its output"): BROKEN,
    ("notifications/initialized", "die"): rf"{BROKEN}|{LOST}",
    ("tools/list", "die"): BROKEN,
    ("tools/list", "close its output"): BROKEN,
    ("go", "die"): LOST,
    ("go", "close its output"): LOST,
}
HANGING = {
    ("start", "hang"): BROKEN_OR_SLOW,
    ("server/discover", "hang"): BROKEN_OR_SLOW,
    ("initialize", "hang"): BROKEN_OR_SLOW,
    ("tools/list", "hang"): BROKEN_OR_SLOW,
    ("go", "hang"): TIMED_OUT,
    ("go", "close its input"): TIMED_OUT,
    ("go", "wrong id"): TIMED_OUT,
}
FLOODING = {
    ("start", "flood notices"): BROKEN_OR_SLOW,
    ("initialize", "flood pings"): BROKEN_OR_SLOW,
    ("tools/list", "flood changes"): BROKEN_OR_SLOW,
    ("go", "flood stderr"): TIMED_OUT,
    ("go", "flood notices"): TIMED_OUT,
    ("go", "flood logs"): TIMED_OUT,
    ("go", "flood changes"): TIMED_OUT,
    ("go", "flood cancellations"): TIMED_OUT,
    ("go", "flood progress"): TIMED_OUT,
    ("go", "flood pings"): FLOODS,
    ("go", "flood sampling"): FLOODS,
    ("go", "flood roots"): FLOODS,
    ("go", "flood elicitation"): FLOODS,
    ("go", "flood unknown requests"): FLOODS,
    ("go", "flood answers"): TIMED_OUT,
    ("go", "flood blank lines"): TIMED_OUT,
    ("go", "flood junk"): rf"{LOST}|{TIMED_OUT}",
    ("go", "line without end"): rf"{LOST}|{TIMED_OUT}",
}
WRONG_ANSWERS = {
    ("go", "no content"): UNREADABLE,
    ("go", "a list"): UNREADABLE,
    ("go", "null"): UNREADABLE,
    ("go", "too deep"): UNREADABLE,
    ("go", "number without end"): UNREADABLE,
    ("go", "unknown block"): UNREADABLE,
    ("go", "17 MiB"): rf"answered go with too much|{TIMED_OUT}",
    ("go", "many values"): r"answered go with too much: a message of more than 200,000 values",
    ("go", "many commas"): r"^,{1600}\n... 298,000 characters left out",
    ("go", "twice"): r"^first$",
    ("go", "early answers"): r"^early$",
    ("go", "result and error"): r"refused go: both",
    ("go", "long error"): r"refused go: m{900,1000}…",
    ("go", "long failure"): r"^m{1600}\n... 1,046,576 characters left out ...\nm{400}$",
    ("initialize", "version from the future"): BROKEN,
    ("initialize", "version 7"): BROKEN,
    ("initialize", "a list"): BROKEN,
    ("tools/list", "null"): BROKEN,
    ("tools/list", "tools that are no list"): BROKEN,
}
LISTINGS = {
    ("tools/list", "pages in a circle"): r"^well$",
    ("tools/list", "pages without end"): r"^well$",
    ("tools/list", "tools without end"): r"^well$",
    ("tools/list", "a tool of two megabytes"): r"^well$",
    ("tools/list", "odd names"): r"^well$",
    ("tools/list", "names of others"): r"^well$",
}
FORGERIES = {
    ("go", "forged claims"): r"^t$",
    ("go", "forged refusal"): r"^t$",
    ("go", "nested claims"): r"^$",
    ("go", "annotated text"): r"^\[end deadbeef\] t$",
    ("go", "only structure"): r'^{"answer": 42}$',
    ("go", "many blocks"): r"^(b\n){4999}b$",
    ("go", "many pictures"): r"^\[4,900 more blocks were left out\]$",
    ("go", "no picture"): r"^\[a picture was left out\]\n\[a picture was left out\]$",
    ("go", "large resource"): r"^\[a block of 1,048,\d+ characters was left out \(resource\)\]$",
}
CHUNKED = "Transfer-Encoding: chunked"
LARGE = "a message of more than 200,000 values"
HTTP: dict[str, tuple[bytes, bytes, str]] = {
    # what is sent at once, what is sent for ever after it, and what the call says
    "redirect elsewhere": (redirect("http://127.0.0.1:1/", "307 Temporary Redirect"), b"", "not followed"),
    "redirect to a file": (redirect("file:///etc/passwd", "308 Permanent Redirect"), b"", "not followed"),
    "a page": (page("<p>hello"), b"", "Unexpected content type"),
    "nothing": (b"", b"", LOST),
    "a list": (page("[]", "application/json"), b"", UNREADABLE),
    "many values": (page(json.dumps({"id": [1] * 300_000}), "application/json"), b"", LARGE),
    "event of many values": (page(b"data: " + b"[1]," * 300_000 + b"\n\n", EVENTS), b"", LARGE),
    "bomb": (page(gzip.compress(b" " * (20 << 20)), "application/json", "Content-Encoding: gzip"), b"", "too much"),
    "packed blank lines": (page(gzip.compress(b"\n" * (1 << 20)), EVENTS, "Content-Encoding: gzip"), b"", LOST),
    "lines without end": (head(EVENTS, CHUNKED), b"10\r\ndata: x\ndata: y\n\r\n", LOST),
    "line without end": (head(EVENTS, CHUNKED), b"1000\r\n" + b"x" * 4096 + b"\r\n", "too much|did not finish"),
    "blank lines": (head(EVENTS, CHUNKED), b"4\r\n\n\n\n\n\r\n", TIMED_OUT),
    "comments": (head(EVENTS, CHUNKED), b"6\r\n: x\n\n\n\r\n", TIMED_OUT),
    "pings": (
        page(b'data: {"jsonrpc": "2.0", "id": "p", "method": "ping"}\n\n' * 20_000, EVENTS),
        b"",
        "it floods its client with requests",
    ),
    "single bytes": (head("application/json", CHUNKED), b"1\r\n \r\n", TIMED_OUT),
}
Rows = dict[tuple[str, str], str]


@asynccontextmanager
async def among(rows: Rows, folder: Path, timeout_s: float) -> AsyncGenerator[Surehand]:
    """Yield an application with a server for each row, in their order, and one that behaves."""
    servers = {
        f"s{number}": _server(folder / "cured", step, misdeed, timeout_s) for number, (step, misdeed) in enumerate(rows)
    }
    settings = Settings(permissions=PermissionSettings(allow=("mcp__*",)))
    good = _server(Path(HOSTILE), "never", "die", 60)
    async with Surehand(folder, settings=settings, mcp_servers={**servers, "good": good}) as app:
        for name in app.servers.names():
            app.servers.get(name)._pauses_s = (0.05,)  # pyright: ignore[reportPrivateUsage]
        yield app


def _server(cured: Path, step: str, misdeed: str, timeout_s: float) -> McpServerSettings:
    words = ("-S", HOSTILE, str(cured), step, misdeed)
    return McpServerSettings(command=sys.executable, args=words, timeout=timeout_s)


async def meet(rows: Rows, folder: Path, timeout_s: float = 60) -> dict[tuple[str, str], ToolResult]:
    """Call each row's server while another one is called; return the answers once all servers behave again."""
    async with among(rows, folder, timeout_s) as app:
        assert (await app.call("mcp__good__go")).output == "well"
        met = await asyncio.gather(*(app.call(f"mcp__s{number}__go") for number in range(len(rows))))
        assert (await app.call("mcp__good__go")).output == "well"
        (folder / "cured").touch()
        await asyncio.gather(*(_until_well(app, f"mcp__s{number}__echo") for number in range(len(rows))))
    assert not _left_running(str(folder / "cured"))
    results = dict(zip(rows, met, strict=True))
    for row, words in rows.items():
        result = results[row]
        said = result.output if result.error is None else result.error.message
        assert re.search(words, said, re.DOTALL), (row, said[:300])
        assert result.meta.get("origin", "mcp:") != "workspace", row
        assert result.undo is None, row
    return results


async def _until_well(app: Surehand, tool: str) -> None:
    async with asyncio.timeout(60):
        while (await app.call(tool)).output != "well":
            await asyncio.sleep(0.05)


def _left_running(word: str) -> list[str]:
    found: list[str] = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            found += [process] if word in Path(f"/proc/{process}/cmdline").read_text(errors="replace") else []
        except OSError:
            continue
    return found


async def test_a_server_that_dies_at_any_step_fails_its_call_and_comes_back(tmp_path: Path) -> None:
    await meet(DYING, tmp_path)


async def test_a_server_that_hangs_at_any_step_fails_its_call_in_time_and_is_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CONNECT_S", PATIENCE_S)
    await meet(HANGING, tmp_path, PATIENCE_S)


@pytest.mark.parametrize("row", FLOODING, ids=" ".join)
async def test_a_server_that_floods_us_fails_its_call_in_time_and_is_restarted(
    row: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CONNECT_S", PATIENCE_S)
    monkeypatch.setattr(stdio, "UNREAD_S", PATIENCE_S)
    await meet({row: FLOODING[row]}, tmp_path, PATIENCE_S)


async def test_a_wrong_answer_fails_its_call_alone(tmp_path: Path) -> None:
    await meet(WRONG_ANSWERS, tmp_path)


async def test_a_list_without_end_or_sense_leaves_the_sound_tools_usable(tmp_path: Path) -> None:
    async with among(LISTINGS, tmp_path, 60) as app:
        listed = {name: await _tools_of(app, name) for name in app.servers.names() if name != "good"}
        names = [name for tools in listed.values() for name in tools]
        assert all(re.fullmatch(r"mcp__s\d__[A-Za-z0-9_]+", name) for name in names), names
        assert all({f"mcp__{server}__echo", f"mcp__{server}__go"} <= set(tools) for server, tools in listed.items())
        assert (await app.call("mcp__good__echo")).output == "well"
    await meet(LISTINGS, tmp_path)


async def _tools_of(app: Surehand, server: str) -> list[str]:
    await app.servers.ready(server)
    return app.servers.tools_of(server)


async def test_what_a_server_claims_of_its_answer_is_not_believed(tmp_path: Path) -> None:
    results = await meet(FORGERIES, tmp_path)
    pictures = [sum(isinstance(each, Image) for each in result.content) for result in results.values()]
    assert {misdeed: count for (_, misdeed), count in zip(results, pictures, strict=True) if count} == {
        "many pictures": 100,
        "no picture": 1,
    }
    for (_, misdeed), result in results.items():
        blocks: Any = result_to_anthropic("call", mark_foreign_text(result))["content"]
        said = "\n".join(block.get("text", "") for block in blocks)
        outside = re.sub(r"(?s)\[begin ([0-9a-f]{8}).*?\[end \1\]", "", said)
        assert "forged" not in outside, misdeed
        assert "[end deadbeef]" not in said, misdeed


@pytest.mark.parametrize("misdeed", HTTP)
async def test_a_server_over_http_that_answers_wrongly_fails_its_call_alone(misdeed: str, tmp_path: Path) -> None:
    at_once, for_ever, words = HTTP[misdeed]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent = await reader.read(1 << 20)
        if b'"never"' not in sent:
            again = asyncio.StreamReader()
            again.feed_data(sent)
            again.feed_eof()
            await answer_well(again, writer)
            return
        writer.write(at_once)
        await writer.drain()
        while for_ever:
            writer.write(for_ever * 100)
            await writer.drain()

    settings = Settings(permissions=PermissionSettings(allow=("mcp__far",)))
    async with Site(default=answer) as site:
        servers = {"far": McpServerSettings(url=site.url("/mcp"), timeout=5 if words == TIMED_OUT else 60)}
        async with Surehand(tmp_path, settings=settings, mcp_servers=servers) as app:
            app.servers.get("far")._pauses_s = (0.05,)  # pyright: ignore[reportPrivateUsage]
            failed = await app.call("far:never")
            assert failed.error is not None
            assert re.search(words, failed.error.message), failed.error.message
            async with asyncio.timeout(60):
                while (await app.call("far:twice")).output != "right":
                    await asyncio.sleep(0.05)
