"""`serve --http` in a process that may open few files: as many clients as fit, a clear refusal, one line in the log."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from tests.mcp.test_serve import HEADERS, HELLO, body

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="descriptors are counted in /proc")


@asynccontextmanager
async def serve(folder: Path, descriptors: int) -> AsyncIterator[tuple[str, Path]]:
    """Run the server with a hard limit of descriptors; yield its address and its log."""
    log = folder / "log.txt"
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "surehand", "serve", "--http", "0", "--no-token", "--cwd", str(folder),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=stderr,
            env={**os.environ, "SUREHAND_HOME": str(folder / "home")},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors // 2, descriptors)),
        )  # fmt: skip
    try:
        yield await _address(log), log
    finally:
        process.terminate()
        await process.wait()


async def _address(log: Path) -> str:
    async with asyncio.timeout(60):
        while True:
            words = log.read_text().split()
            found = [word.rstrip(".,") for word in words if word.startswith("http://")]
            if found:
                return found[0]
            await asyncio.sleep(0.05)


async def _connect(url: str, stack: AsyncExitStack) -> int:
    """Connect a client as clients do: it says hello and listens; return what the server answered."""
    http = await stack.enter_async_context(httpx2.AsyncClient(timeout=60, verify=False))
    hello = await http.post(url, json=body("initialize", HELLO), headers=HEADERS)
    if hello.status_code == 200:
        headers = HEADERS | {"mcp-session-id": hello.headers["mcp-session-id"]}
        await http.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=headers)
        await stack.enter_async_context(http.stream("GET", url, headers=headers))
        stack.push_async_callback(http.delete, url, headers=headers)
    return hello.status_code


async def _fill_and_leave(folder: Path, descriptors: int, most: int) -> int:
    """Connect clients until one is refused, and a few after it, and let them leave; return how many came."""
    async with serve(folder, descriptors) as (url, log):
        async with AsyncExitStack() as clients:
            served = 0
            while (status := await _connect(url, clients)) == 200:
                served += 1
                assert served < most, "no end to the clients"
            assert status == 503
            for _ in range(5):
                async with AsyncExitStack() as one:
                    assert await _connect(url, one) == 503
        async with AsyncExitStack() as later:
            async with asyncio.timeout(60):
                while await _connect(url, later) != 200:
                    await asyncio.sleep(0.3)
        told = log.read_text()
        assert told.count("new clients are turned away") == 1
        assert "Traceback" not in told
        return served


async def test_a_server_near_its_hard_limit_turns_clients_away_and_serves_again(tmp_path: Path) -> None:
    assert await _fill_and_leave(tmp_path, 120, 200) >= 3


@pytest.mark.slow
async def test_a_server_with_1024_descriptors_serves_hundreds_of_clients(tmp_path: Path) -> None:
    assert await _fill_and_leave(tmp_path, 1024, 1200) >= 200
