"""The Claude Agent SDK and its own command line, with a stand-in for the Messages API on loopback."""

from __future__ import annotations

import asyncio
import os
import warnings
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import CanUseToolShadowedWarning, PermissionResultAllow, PermissionResultDeny
from claude_agent_sdk import tool as sdk_tool
from tests.mcp.messages_stub import messages_stub

from surehand import Surehand, ToolCall, tool
from surehand.integrations.claude_sdk import Application, wrap
from surehand.testing import Says

pytestmark = pytest.mark.spec("INT-1")

OWN = ["Read", "Edit", "Grep", "Bash", "Undo"]


@tool(read_only=True, name="Read")
def read_note(title: str) -> str:
    "Read a note."
    return f"note {title}"


async def ask(app: Any, url: str, home: Path, *prompts: str, **more: Any) -> list[str]:
    """Return what came of each prompt, with our own tools and no others of the user's machine."""
    env = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "dummy", "HOME": str(home), "ENABLE_TOOL_SEARCH": "false"}
    env |= {"CLAUDE_CONFIG_DIR": str(home / "claude"), "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    env |= {name: "" for name in os.environ if name.startswith(("CLAUDE", "ANTHROPIC")) and name not in env}
    options = {"env": env, "model": "claude-sonnet-4-5", "setting_sources": [], **more}
    messages = Application(app, tools=OWN).query(list(prompts), **options)
    return [str(each.result) async for each in messages if type(each).__name__ == "ResultMessage"]


async def test_it_searches_reads_edits_undoes_and_sees_an_image(workspace: Path, tmp_path: Path) -> None:
    edit = '{"file_path": "notes.txt", "old_string": "beta", "new_string": "gamma"}'
    approver = Says("once")
    async with messages_stub() as (stub, url), Surehand(workspace, approver=approver) as app:
        with warnings.catch_warnings():
            warnings.simplefilter("error", CanUseToolShadowedWarning)
            found, read, edited, ran, image, undone = await ask(
                app,
                url,
                tmp_path,
                'CALL mcp__surehand__Grep {"pattern": "beta"}',
                'CALL mcp__surehand__Read {"file_path": "notes.txt"}',
                f"CALL mcp__surehand__Edit {edit}",
                'CALL mcp__surehand__Bash {"command": "cat notes.txt > copy.txt"}',
                'CALL mcp__surehand__Read {"file_path": "logo.png"}',
                "CALL mcp__surehand__Undo {}",
            )
        assert "notes.txt" in found
        assert "beta" in read
        assert "result (ok)" in edited
        assert "result (ok)" in ran
        assert '"type": "image"' in image
        assert "result (ok)" in undone
        assert not (workspace / "copy.txt").exists()  # the last change was the command's
        assert "gamma" in (workspace / "notes.txt").read_text()
        assert [each.tool for each in approver.asked][:2] == ["Edit", "Bash"]
        names = {each["name"] for request in stub.requests for each in request.get("tools", [])}
        assert "mcp__surehand__Read" in names
        assert not {"Read", "Edit", "Bash"} & names


async def test_the_sdks_callback_answers_where_there_is_no_approver(workspace: Path, tmp_path: Path) -> None:
    asked: list[str] = []

    async def callback(name: str, args: dict[str, Any], context: Any) -> Any:
        asked.append(f"{name} {args['command']}")
        return PermissionResultAllow() if "made" in args["command"] else PermissionResultDeny(message="not today")

    async with messages_stub() as (_, url), Surehand(workspace) as app:
        allowed, refused = await ask(
            app,
            url,
            tmp_path,
            'CALL mcp__surehand__Bash {"command": "touch made.txt"}',
            'CALL mcp__surehand__Bash {"command": "touch other.txt"}',
            can_use_tool=callback,
        )
    assert asked == ["mcp__surehand__Bash touch made.txt", "mcp__surehand__Bash touch other.txt"]
    assert "result (ok)" in allowed
    assert "not today" in refused
    assert (workspace / "made.txt").exists()
    assert not (workspace / "other.txt").exists()


async def test_calls_of_one_message_are_all_answered_in_order(workspace: Path, tmp_path: Path) -> None:
    calls = [
        'CALL mcp__surehand__Read {"file_path": "notes.txt"}',
        'CALL mcp__surehand__Bash {"command": "touch made.txt"}',
        'CALL mcp__surehand__Grep {"pattern": "alpha"}',
    ]
    async with messages_stub() as (_, url), Surehand(workspace) as app:
        (said,) = await ask(app, url, tmp_path, "\n".join(calls))
    read, ran, found = said.splitlines()
    assert "beta" in read
    assert ran.startswith("result (error)")
    assert "needs permission" in ran
    assert "notes.txt" in found
    assert not (workspace / "made.txt").exists()


async def test_cancelling_stops_the_call(workspace: Path, tmp_path: Path) -> None:
    os.mkfifo(workspace / "begun")
    command = "echo started > begun; sleep 600"
    stopped = asyncio.Event()
    async with messages_stub() as (_, url), Surehand(workspace, allow=["Bash"]) as app:
        app.bus.subscribe(lambda event: stopped.set() if event.kind == "call_finished" else None)
        run = asyncio.create_task(ask(app, url, tmp_path, f'CALL mcp__surehand__Bash {{"command": "{command}"}}'))
        assert await asyncio.to_thread((workspace / "begun").read_text) == "started\n"
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        async with asyncio.timeout(60):
            await stopped.wait()  # while the application is still open: closing it would stop the call, too


async def test_a_yes_of_the_callback_holds_once_and_for_that_call(workspace: Path) -> None:
    async def callback(name: str, args: dict[str, Any], context: Any) -> Any:
        return PermissionResultAllow()

    async with Surehand(workspace) as app:
        application = Application(app, tools=OWN)
        application.options(can_use_tool=callback)
        name, args = "mcp__surehand__Bash", {"command": "touch made.txt"}
        hook = await application.before_tool({"tool_name": name, "tool_input": args}, None, None)
        assert hook["hookSpecificOutput"]["permissionDecision"] == "ask"
        assert "touch made.txt" in hook["hookSpecificOutput"]["permissionDecisionReason"]
        await application.can_use_tool(name, args, None)
        assert not (await application._run("Bash", {"command": "touch other.txt"})).ok
        assert (await application._run("Bash", args)).ok
        assert not (await application._run("Bash", args)).ok


async def test_a_modules_tool_with_a_name_of_the_sdks_own_is_warned_of(workspace: Path) -> None:
    async with Surehand(workspace, builtin=False, modules={"notes": [read_note]}) as app:
        (warning,) = Application(app).initialize().warnings
        assert "mcp__notes__Read" in warning
        assert "disallowed_tools=['Read']" in warning
    async with Surehand(workspace) as app:
        application = Application(app, tools=OWN).initialize()
        assert application.warnings == []
        assert application.options().disallowed_tools == ["Bash", "Edit", "Grep", "Read"]


async def test_a_tool_of_the_sdk_goes_through_our_door(workspace: Path) -> None:
    @sdk_tool("book", "Book seats.", {"seats": int})
    async def book(args: dict[str, Any]) -> dict[str, Any]:
        if args["seats"] > 4:
            return {"content": [{"type": "text", "text": "at most four"}], "is_error": True}
        return {"content": [{"type": "text", "text": f"booked {args['seats']}"}]}

    approver = Says("once")
    async with Surehand(workspace, approver=approver, tools=[wrap(book)]) as app:
        calls = [ToolCall("book", {"seats": seats}) for seats in (2, 9, "x")]
        good, failed, wrong = await app.run_calls(calls)
        assert good.output == "booked 2"
        assert "at most four" in failed.output
        assert wrong.error is not None
        assert wrong.error.code == "invalid_args"
        assert len(approver.asked) == 2
