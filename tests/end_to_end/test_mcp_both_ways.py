"""Surehand as the client of a Surehand server over HTTP: token, permission, errors, and a server that restarts."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from surehand import Settings, Surehand
from surehand.agent.prompt import mark_foreign_text
from surehand.core.settings import McpServerSettings
from surehand.mcp.server.http import Door, serve_http
from surehand.mcp.server.serving import Serving
from surehand.testing import Says

TOKEN = "correct horse battery staple"


@asynccontextmanager
async def served(workspace: Path, port: int = 0) -> AsyncGenerator[str]:
    def open_app(approver: Any, root: str | None) -> Surehand:
        return Surehand(root or workspace, settings=Settings(), approver=approver, keep_state=False)

    serving = Serving(open_app, name="far")
    urls: asyncio.Queue[str] = asyncio.Queue()
    task = asyncio.create_task(serve_http(serving, Door("127.0.0.1", (), TOKEN), port, urls.put_nowait))
    try:
        yield await urls.get()
    finally:
        task.cancel()
        await asyncio.wait([task], timeout=60)
        await serving.close()


async def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@asynccontextmanager
async def client(workspace: Path, url: str, header: str = "Bearer ${FAR_SECRET}") -> AsyncGenerator[Surehand]:
    servers = {"far": McpServerSettings(url=url, headers={"Authorization": header}, timeout=120)}
    async with Surehand(workspace, settings=Settings(), approver=Says("once"), mcp_servers=servers) as app:
        app.servers.get("far")._pauses_s = (0.1, 0.2)  # pyright: ignore[reportPrivateUsage]
        yield app


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    monkeypatch.setenv("FAR_SECRET", TOKEN)
    near, far = tmp_path / "near", tmp_path / "far"
    near.mkdir()
    far.mkdir()
    return near, far


@pytest.mark.spec("MCP-3")
async def test_tools_errors_and_permission_cross_the_wire(folders: tuple[Path, Path]) -> None:
    near, far = folders
    (far / "a.txt").write_text("far away\n")
    async with served(far) as url, client(near, url) as app:
        read = await app.call("far:Read", {"file_path": "a.txt"})
        assert read.ok
        assert "far away" in read.output
        assert read.meta["origin"] == "mcp:far"
        missing = await app.call("far:Read", {"file_path": "nothing.txt"})
        assert missing.error is not None
        assert missing.error.code == "precondition_failed" or missing.error.code == "execution_error"
        refused = await app.call("far:Write", {"file_path": "b.txt", "content": "x"})
        assert refused.error is not None
        assert refused.error.code == "permission_denied"  # asked there, and nobody here fills in forms
        assert not (far / "b.txt").exists()
        marked = mark_foreign_text(refused).error
        assert marked is not None
        assert "text from mcp:far" in marked.message  # with our code, and still the words of a server
    async with served(far) as url, client(near, url) as app:
        app.servers.elicit = lambda message, schema: {"action": "accept", "content": {"answer": "once"}}
        assert (await app.call("far:Write", {"file_path": "b.txt", "content": "x"})).ok
        assert (far / "b.txt").read_text() == "x"


async def test_a_wrong_token_and_a_missing_server_are_reported(folders: tuple[Path, Path]) -> None:
    near, far = folders
    async with served(far) as url, client(near, url, "Bearer wrong") as app:
        result = await app.call("far:Read", {"file_path": "a.txt"})
        assert result.error is not None
        assert result.error.code == "tool_unavailable"
        assert (
            "it answered 401 Unauthorized; log in with `surehand mcp login far`, or give a token"
            in result.error.message
        )
    async with served(far) as url, client(near, url.replace("/mcp", "/elsewhere")) as app:
        result = await app.call("far:Read", {"file_path": "a.txt"})
        assert result.error is not None
        assert "it answered 404 Not Found; is the path" in result.error.message
    async with client(near, f"http://127.0.0.1:{free_port()}/mcp") as app:
        result = await app.call("far:Read", {"file_path": "a.txt"})
        assert result.error is not None
        assert "not available" in result.error.message


async def test_a_server_that_restarts_is_found_again(folders: tuple[Path, Path]) -> None:
    near, far = folders
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    (far / "a.txt").write_text("here\n")
    async with client(near, url) as app:
        async with served(far, port):
            assert (await app.call("far:Read", {"file_path": "a.txt"})).ok
        async with asyncio.timeout(60):
            assert (await app.call("far:Read", {"file_path": "a.txt"})).error is not None
        async with served(far, port):
            await until(lambda: app.servers.get("far").state == "ready" and "far:Read" in app.selection)
            await until(lambda: app.registry.lifecycle.state("mcp__far__Read") in ("ready", "registered"))
            assert (await app.call("far:Read", {"file_path": "a.txt"})).ok
