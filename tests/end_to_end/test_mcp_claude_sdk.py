"""The Claude Agent SDK with its own command line against a stand-in for the Messages API.

The SDK is an extra of several hundred megabytes: without it this is left out. Where it is installed elsewhere, name its
folder: PYTHONPATH=.../site-packages pytest -m slow tests/end_to_end/test_mcp_claude_sdk.py
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.mcp.messages_stub import messages_stub

from surehand import Settings, Surehand, ToolFailure, tool
from surehand.core.settings import McpServerSettings, PermissionSettings
from surehand.integrations.claude_sdk import Application
from surehand.testing import Says

pytestmark = pytest.mark.slow


@tool(read_only=True)
async def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b


@tool(destructive=True)
async def wipe() -> str:
    "Wipe everything."
    raise AssertionError("must never run")


@tool(read_only=True)
async def broken() -> str:
    "Fail."
    raise ToolFailure("the backend is down", hint="Try later.")


@tool(read_only=True)
async def crashes() -> str:
    "Crash."
    raise KeyError("no such thing")


async def test_the_sdk_calls_is_denied_fails_and_streams(tmp_path: Path) -> None:
    pytest.importorskip("claude_agent_sdk")
    workspace, home = tmp_path / "project", tmp_path / "home"
    workspace.mkdir()
    home.mkdir()
    (workspace / "a.txt").write_text("file words\n")
    settings = Settings(
        permissions=PermissionSettings(deny=("mcp__numbers__wipe",), allow=("mcp__numbers__add",)),
        mcp_servers={"rough": McpServerSettings(command=sys.executable, args=("-S", str(ROUGH)))},
    )
    approver = Says("no", "not today")
    async with (
        messages_stub() as (stub, url),
        Surehand(workspace, settings=settings, approver=approver, keep_state=False) as app,
    ):
        application = Application(app, modules={"numbers": [add, wipe, broken, crashes]}).initialize()
        assert set(application.mcp_servers()) == {"rough", "numbers", "calculator"}
        assert "mcp__numbers__add" in application.allowed_tools()
        prompts = [
            'CALL mcp__numbers__add {"a": 19, "b": 23}',
            "CALL mcp__numbers__wipe {}",
            "CALL mcp__numbers__broken {}",
            "CALL mcp__numbers__crashes {}",
            'CALL mcp__numbers__add {"a": "nineteen", "b": 23}',
            'CALL mcp__calculator__calculate {"expression": "6*7"}',
            f'CALL Read {{"file_path": "{workspace / "a.txt"}"}}',
            f'CALL Write {{"file_path": "{workspace / "b.txt"}", "content": "x"}}',
            'CALL mcp__rough__echo {"text": "from outside"}',
            "and goodbye",
        ]
        env = {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "dummy",
            "HOME": str(home),
            "ENABLE_TOOL_SEARCH": "false",
        }
        env |= {"CLAUDE_CONFIG_DIR": str(home / "claude"), "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
        env |= {name: "" for name in os.environ if name.startswith(("CLAUDE", "ANTHROPIC")) and name not in env}
        said: list[str] = []
        async for message in application.query(prompts, env=env, model="claude-sonnet-4-5", setting_sources=[]):
            if type(message).__name__ == "ResultMessage":
                said.append(str(message.result))
        assert len(said) == len(prompts), said
        added, wiped, failed, crashed, wrong, six, read, written, outside, bye = said
        assert "result (ok)" in added
        assert "42" in added
        assert "result (error)" in wiped
        assert "result (error)" in failed
        assert "the backend is down" in failed
        assert "result (error)" in crashed
        assert "KeyError" in crashed
        assert "result (error)" in wrong
        assert "a" in wrong
        assert "42.00" in six
        assert "file words" in read
        assert "not today" in written
        assert not (workspace / "b.txt").exists()
        assert "not today" in outside
        assert bye == "heard: and goodbye"
        assert any("mcp__numbers__add" in json.dumps(request.get("tools", [])) for request in stub.requests)
        assert [question.tool for question in approver.asked] == ["Write", "mcp__rough__echo"]


ROUGH: Any = Path(__file__).parent.parent / "mcp" / "rough_server.py"
