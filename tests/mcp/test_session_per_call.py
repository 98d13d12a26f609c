"""Clients that open a session for every call: what they read is carried over, and nothing else is."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from mcp import Client
from surehand.mcp.server.clients import FILE, FRESH_S, SIZE_LIMIT
from surehand.state import locations

pytestmark = pytest.mark.spec("INT-2")

EDIT = {"file_path": "a.txt", "old_string": "one", "new_string": "1"}
READ = {"file_path": "a.txt"}
Call = Callable[..., Any]


def text(answer: Any) -> str:
    return "\n".join(block.text for block in answer.content if block.type == "text")


def caller(workspace: Path, *more: str) -> Call:
    """Return what makes one call as a client does that starts a server for each."""

    async def call(name: str, args: dict[str, Any], client: str = "agent") -> Any:
        words = ["-m", "surehand", "serve", "--cwd", str(workspace), "--allow", "Edit", *more]
        server = StdioServerParameters(command=sys.executable, args=words, env=dict(os.environ))
        info = types.Implementation(name=client, version="1")
        async with Client(stdio_client(server), client_info=info, mode="legacy") as session:
            return await session.call_tool(name, args)

    return call


async def test_a_client_that_starts_a_server_for_each_call_can_edit_what_it_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    call = caller(tmp_path)
    assert (await call("Edit", EDIT)).is_error
    await call("Read", READ)
    other = await call("Edit", EDIT, client="somebody else")
    assert other.is_error  # another client has not read it
    edited = await call("Edit", EDIT)
    assert not edited.is_error, text(edited)
    assert (tmp_path / "a.txt").read_text() == "1\n"
    again = await call("Edit", EDIT | {"old_string": "1", "new_string": "2"})  # its own edit is known too
    assert not again.is_error, text(again)
    (tmp_path / "a.txt").write_text("changed by somebody\n")
    refused = await call("Edit", EDIT | {"old_string": "somebody", "new_string": "me"})
    assert refused.is_error
    assert "changed" in text(refused)


async def test_a_read_counts_for_half_an_hour_and_the_list_of_them_stays_short(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    call = caller(tmp_path)
    await call("Read", READ)
    path = Path(locations.workspace_state(str(tmp_path))) / FILE
    assert path.stat().st_mode & 0o077 == 0
    (line,) = path.read_text().splitlines()
    old = json.dumps(json.loads(line) | {"at": time.time() - FRESH_S - 1})
    path.write_text(f"{old}\nnot a line\n[]\n" + f'{{"client": "x"}}{" " * SIZE_LIMIT}\n')
    assert (await call("Edit", EDIT)).is_error
    assert path.stat().st_size < 1000  # what no longer counts is gone
    assert (tmp_path / "a.txt").read_text() == "one\n"


async def test_a_named_session_goes_on_in_each_server(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    call = caller(tmp_path, "--session", "agent")
    await call("Read", READ)
    assert not (await call("Edit", EDIT, client="another name")).is_error  # one session, whoever comes
    await call("Undo", {})
    assert (tmp_path / "a.txt").read_text() == "one\n"  # the last change of this session
    await call("TaskCreate", {"title": "think"})
    assert "think" in text(await call("TaskList", {}))


@asynccontextmanager
async def http_server(workspace: Path, *more: str) -> AsyncIterator[str]:
    words = [sys.executable, "-m", "surehand", "serve", "--http", "0", "--no-token", "--cwd", str(workspace), *more]
    process = await asyncio.create_subprocess_exec(*words, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    try:
        said = (await process.stderr.readline()).decode()
        found = re.search(r"http://\S+", said)
        assert found is not None, said
        yield found[0]
    finally:
        process.terminate()
        await process.wait()


async def over_http(url: str, name: str, args: dict[str, Any]) -> Any:
    async with httpx2.AsyncClient() as http:
        transport = streamable_http_client(url, http_client=http)
        async with Client(transport, mode="legacy") as session:
            return await session.call_tool(name, args)


@pytest.mark.parametrize("more", [(), ("--session", "agent")], ids=["usual", "named"])
async def test_a_client_that_opens_an_http_session_for_each_call_can_edit(
    tmp_path: Path, more: tuple[str, ...]
) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    async with http_server(tmp_path, "--allow", "Edit", *more) as url:
        await over_http(url, "Read", READ)
        edited = await over_http(url, "Edit", EDIT)
        assert not edited.is_error, text(edited)
        undone = await over_http(url, "Undo", {})
        assert undone.is_error is not bool(more), text(undone)  # only a named session knows what "the last" is
        if more:
            started = await over_http(url, "Bash", {"command": "sleep 300", "run_in_background": True})
            task = (started.structured_content or {})["task_id"]
            assert task in text(await over_http(url, "TaskList", {}))
