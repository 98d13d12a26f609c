"""Modules of custom tools as servers in this process, and what the Claude Agent SDK is told about them."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from mcp.shared.exceptions import MCPError

from mcp import Client
from surehand import Settings, Surehand, ToolFailure, tool
from surehand.core.errors import SettingsError
from surehand.core.settings import McpServerSettings, PermissionSettings
from surehand.integrations.claude_sdk import Application, stream_of
from surehand.mcp.server.serving import create_mcp_servers
from surehand.testing import Says


@tool(version="2.1.0", read_only=True)
async def shout(text: str) -> str:
    "Say it loudly."
    return text.upper()


@tool(version="2.1.0", read_only=True)
async def fails() -> str:
    "Fail."
    raise ToolFailure("no luck", hint="Try again.")


@tool(version="2.1.0")
async def drops() -> str:
    "Drop it."
    return "dropped"


@tool(read_only=True)
def whisper(text: str) -> str:
    "Say it quietly."
    return text.lower()


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Surehand]:
    modules = {"voice": [shout, fails, drops], "quiet": [whisper]}
    settings = Settings(permissions=PermissionSettings(deny=("mcp__voice__drops",)))
    async with Surehand(
        tmp_path, settings=settings, approver=Says("no", "not now"), builtin=False, modules=modules, keep_state=False
    ) as opened:
        yield opened


@pytest.mark.spec("MCP-2")
async def test_each_module_becomes_one_server_with_name_version_and_tools(app: Surehand) -> None:
    servers = create_mcp_servers(app)
    assert list(servers) == ["voice", "quiet"]
    assert servers["voice"].version == "2.1.0"
    assert servers["voice"].tools == ("mcp__voice__shout", "mcp__voice__fails", "mcp__voice__drops")
    assert servers["quiet"].tools == tuple(app.registry.module_names("quiet"))
    assert list(create_mcp_servers(app, "quiet")) == ["quiet"]
    assert servers["voice"].sdk_config() == {"type": "sdk", "name": "voice", "instance": servers["voice"].instance}


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_a_module_server_answers_with_content_lists(app: Surehand, era: str) -> None:
    servers = create_mcp_servers(app)
    async with Client(servers["voice"].instance, mode=era, cache=None) as client:
        assert [each.name for each in (await client.list_tools()).tools] == ["shout", "fails", "drops"]
        said = await client.call_tool("shout", {"text": "hi"})
        assert (said.content[0].text, said.is_error) == ("HI", False)
        failed = await client.call_tool("fails", {})
        assert failed.is_error
        assert "no luck" in failed.content[0].text
        wrong = await client.call_tool("shout", {"text": 1, "more": 2})
        assert wrong.is_error
        refused = await client.call_tool("drops", {})
        assert refused.is_error
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.call_tool("whisper", {"text": "x"})


async def test_the_application_merges_servers_and_judges_every_call(app: Surehand) -> None:
    external = {
        "clock": McpServerSettings(command=sys.executable, args=("-V",)),
        "off": McpServerSettings(url="x", enabled=False),
    }
    application = Application(app, external=external).initialize()
    servers = application.mcp_servers()
    assert set(servers) == {"clock", "voice", "quiet"}
    assert servers["clock"] == {"type": "stdio", "command": sys.executable, "args": ["-V"], "env": {}}
    assert application.allowed_tools()[0] == "mcp__voice__shout"
    assert application.judge("mcp__voice__shout", {"text": "x"})[0] == "allow"
    assert application.judge("mcp__voice__drops", {})[0] == "deny"
    assert application.judge("mcp__voice__unlisted", {})[0] == "deny"
    assert application.judge("mcp__clock__now", {})[0] == "ask"
    assert application.judge("TodoWrite", {})[0] == "ask"
    hook = await application.before_tool({"tool_name": "mcp__voice__drops", "tool_input": {}}, "t1", None)
    assert hook["hookSpecificOutput"]["permissionDecision"] == "deny"


async def test_a_module_and_a_server_cannot_have_one_name(app: Surehand) -> None:
    application = Application(app, external={"voice": McpServerSettings(url="http://127.0.0.1:1")}).initialize()
    with pytest.raises(SettingsError, match="voice"):
        application.mcp_servers()


async def test_user_messages_are_streamed_in_the_sdks_shape() -> None:
    messages = [each async for each in stream_of(["one", "two"])]
    assert [each["message"] for each in messages] == [
        {"role": "user", "content": "one"},
        {"role": "user", "content": "two"},
    ]
