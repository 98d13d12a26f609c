"""The console as people start it: its commands, its description, many sessions and slow readers."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.console.served import serve_console

from surehand import Surehand, tool
from surehand.console import live as feeds
from surehand.console.server import ENDPOINTS

pytestmark = pytest.mark.spec("CON-1")


async def started(*words: str, cwd: Path) -> tuple[Any, str]:
    """Start a command and return its process and the console's address."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "surehand",
        *words,
        cwd=cwd,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    async with asyncio.timeout(60):
        while line := (await process.stdout.readline()).decode():
            if found := re.search(r"http://[^\s\"]+#code=[\w-]+", line):
                return process, found[0]
    raise AssertionError("no address was printed")


async def sign_in(client: httpx2.AsyncClient, url: str) -> None:
    origin, _, code = url.partition("/#code=")
    client.base_url = origin
    answer = await client.post("/api/login", json={"code": code})
    assert answer.status_code == 200, answer.text


async def test_the_command_prints_an_address_that_signs_in_and_ends_well(tmp_path: Path) -> None:
    process, url = await started("console", "--port", "0", cwd=tmp_path)
    async with httpx2.AsyncClient() as client:
        await sign_in(client, url)
        assert (await client.get("/api/sessions")).json() == {"sessions": []}
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0


async def test_the_mcp_server_has_the_console_beside_it(tmp_path: Path) -> None:
    process, url = await started("serve", "--http", "0", "--console", cwd=tmp_path)
    async with httpx2.AsyncClient() as client:
        await sign_in(client, url)
        assert (await client.get("/api/sessions")).status_code == 200
        assert (await client.post("/mcp", json={})).status_code == 401  # the token of MCP is another one
    process.send_signal(signal.SIGTERM)
    await process.wait()


async def test_the_console_of_serve_needs_http(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "surehand", "serve", "--console", cwd=tmp_path, stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    assert process.returncode == 2
    assert b"--http" in said


async def test_the_description_names_every_endpoint() -> None:
    async with serve_console() as served:
        described = await served.get("/api/openapi.json")
    paths = {(method.upper(), path) for path, methods in described["paths"].items() for method in methods}
    assert paths == {(each.method, re.sub(r":\w+}", "}", each.path)) for each in ENDPOINTS}
    ids = [told["operationId"] for methods in described["paths"].values() for told in methods.values()]
    assert described["openapi"].startswith("3.1")
    assert all(ids)


async def test_a_reader_that_does_not_keep_up_is_told_how_many_it_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "READER_LIMIT", 10)
    feed = feeds.Feed()
    stream = feed.stream(lambda event: True)
    await anext(stream)
    for number in range(25):
        feed.add_event({"kind": "note", "session_id": "s", "number": number})
    told = await anext(stream)
    await stream.aclose()
    events = [json.loads(line[6:]) for line in told.splitlines() if line.startswith("data: ")]
    assert [each["number"] for each in events[:-1]] == list(range(10))
    assert events[-1] == {"kind": "gap", "lost": 15, "reader": True}
    assert feed.readers == 0


async def test_a_reader_that_comes_back_too_late_is_told_what_is_missing() -> None:
    feed = feeds.Feed()
    for number in range(feeds.RECENT_LIMIT + 7):
        feed.add_event({"kind": "note", "session_id": "s", "number": number})
    stream = feed.stream(lambda event: True, after=2)
    begun = await anext(stream)
    await stream.aclose()
    events = [json.loads(line[6:]) for line in begun.splitlines() if line.startswith("data: ")]
    assert events[1] == {"kind": "gap", "lost": 5, "reader": True}
    assert len(events) == 2 + feeds.RECENT_LIMIT


async def test_an_api_client_follows_many_sessions_without_loss(tmp_path: Path) -> None:
    @tool(read_only=True)
    async def look(text: str = "") -> str:
        "Look."
        return text

    sessions, calls = 10, 20

    async def work(number: int) -> None:
        folder = tmp_path / str(number)
        folder.mkdir()
        async with Surehand(folder, tools=[look]) as app:
            for each in range(calls):
                await app.call("look", {"text": f"{number}.{each}"})

    async with serve_console() as served:
        counts: dict[str, int] = {}

        async def follow() -> None:
            async for event in served.events():
                counts[event["kind"]] = counts.get(event["kind"], 0) + int(event.get("lost", 1))
                if counts.get("session_closed", 0) + counts.get("session_lost", 0) == sessions:
                    return

        following = asyncio.create_task(follow())
        await served.until_read()
        await asyncio.gather(*(work(number) for number in range(sessions)))
        async with asyncio.timeout(60):
            await following
    assert counts.get("gap", 0) == 0
    assert counts["call_finished"] == sessions * calls
