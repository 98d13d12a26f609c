"""What `surehand serve` lists for its clients, and what they get structured, as the SDK's own client sees it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client.stdio import StdioServerParameters, stdio_client

from mcp import Client
from surehand import Settings, Surehand, tool
from surehand.core.names import plain_names, provider_safe
from surehand.mcp.server.calls import LEAN_TOOLS
from surehand.mcp.server.serving import Serving
from surehand.policy import trust

pytestmark = pytest.mark.spec("INT-2")

LISTED_BYTES = 10_000
PROMISED_BYTES = 6_000

OWN_TOOL = """
from surehand import tool

@tool(read_only=True)
def greet(name: str) -> str:
    "Greet somebody."
    return f"hello {name}"
"""


@asynccontextmanager
async def served(workspace: Path, *more: str, mode: str = "auto") -> AsyncGenerator[Client]:
    words = ["-m", "surehand", "serve", "--stdio", "--cwd", str(workspace), *more]
    async with Client(
        stdio_client(StdioServerParameters(command=sys.executable, args=words, env=dict(os.environ))), mode=mode
    ) as client:
        yield client


async def shapes(client: Client) -> dict[str, dict[str, Any]]:
    listed = (await client.list_tools()).tools
    return {each.name: each.model_dump(by_alias=True, exclude_none=True, mode="json") for each in listed}


def compact(value: Any) -> int:
    return len(json.dumps(value, separators=(",", ":")).encode())


async def test_the_usual_listing_is_lean_and_under_plain_names(tmp_path: Path) -> None:
    (tmp_path / ".surehand" / "tools").mkdir(parents=True)
    (tmp_path / ".surehand" / "tools" / "greet.py").write_text(OWN_TOOL)
    trust.add_trust(str(tmp_path))
    async with served(tmp_path) as client:
        shown = await shapes(client)
        assert [name for name in shown if name != "greet"] == sorted(LEAN_TOOLS, key=list(shown).index)
        assert set(shown) == {*LEAN_TOOLS, "greet"}  # what somebody brought in is always shown
        core = [shown[name] for name in LEAN_TOOLS]
        told = [{key: each[key] for key in ("name", "description", "inputSchema")} for each in core]
        assert compact(told) < LISTED_BYTES
        assert [each["name"] for each in core if "outputSchema" not in each] == ["Read"]  # its answer is a text
        assert compact([each.get("outputSchema") for each in core]) < PROMISED_BYTES
        assert all(each["inputSchema"]["type"] == "object" for each in core)
        # what is not listed can be called by name all the same
        assert not (await client.call_tool("time.now", {})).is_error
        undone = await client.call_tool("Undo", {"all_sessions": True})
        assert "all_sessions" not in str(undone.content)  # an argument that is not listed is taken


async def test_all_tools_are_listed_when_asked_for_but_none_that_cannot_work(tmp_path: Path) -> None:
    async with served(tmp_path, "--tools", "all") as client:
        shown = await shapes(client)
        assert {*LEAN_TOOLS, "NotebookEdit", "WebSearch", "ToolCreate", "time_now", "fs_list_dir"} <= set(shown)
        assert not {"Agent", "ToolSearch"} & set(shown)
        assert not [name for name in shown if name.startswith("fs_read_file")]  # Read does that
        assert shown["time_now"]["title"] == "time.now"
        assert "turns" in shown["Undo"]["inputSchema"]["properties"]
        assert set((await client.call_tool("time_now", {})).structured_content or {}) == {"timestamp", "iso"}


async def test_tools_that_are_named_are_all_there_is(tmp_path: Path) -> None:
    async with served(tmp_path, "--tools", "Read,Gr*", "fs.*") as client:
        assert {"Read", "Grep", "fs_list_dir"} == set(await shapes(client))
        refused = await client.call_tool("Write", {"file_path": "x", "content": "y"})
        assert refused.is_error
        assert not (tmp_path / "x").exists()
    async with served(tmp_path, "--tools", "core", "calculate") as client:
        assert {*LEAN_TOOLS, "calculate"} == set(await shapes(client))


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_real_client_takes_the_structured_content_of_the_core_tools(tmp_path: Path, mode: str) -> None:
    # The SDK's client itself holds every answer to the schema that was listed.
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    allow = ("--allow", "Edit", "--allow", "Write", "--allow", "MultiEdit", "--allow", "Bash")
    async with served(tmp_path, *allow, mode=mode) as client:
        await client.list_tools()

        async def call(name: str, **args: Any) -> Any:
            answer = await client.call_tool(name, args)
            assert not answer.is_error, answer.content
            return answer.structured_content

        assert await call("Read", file_path="a.txt") is None
        assert (await call("Edit", file_path="a.txt", old_string="one", new_string="1"))["changed"] is True
        edits = [{"old_string": "two", "new_string": "2"}]
        assert (await call("MultiEdit", file_path="a.txt", edits=edits))["replacements"] == 1
        assert (await call("Write", file_path="b.txt", content="b\n"))["created"] is True
        assert {each["path"] for each in (await call("Glob", pattern="*.txt"))["files"]} == {"a.txt", "b.txt"}
        assert (await call("Grep", pattern="2"))["lines"][0]["path"] == "a.txt"
        assert (await call("Bash", command="echo hi"))["exit_code"] == 0
        made = (await call("TaskCreate", title="think"))["id"]
        assert (await call("TaskUpdate", id=made, status="in_progress"))["status"] == "in_progress"
        assert [each["id"] for each in (await call("TaskList"))["tasks"]] == [made]
        task = (await call("Bash", command="sleep 60", run_in_background=True))["task_id"]
        assert (await call("TaskOutput", id=task))["id"] == task
        assert (await call("TaskStop", id=task))["id"] == task
        assert len((await call("Undo", last=1))["changes"]) == 1


def test_a_name_is_hashed_only_where_two_would_become_one() -> None:
    long = "x" * 70
    shown = plain_names(["time.now", "a.b", "a_b", "a/b", "☂", long, long + "y", "Read"])
    assert shown["time.now"] == "time_now"
    assert shown["Read"] == "Read"
    assert shown["a_b"] == "a_b"  # its own name stays its own
    assert (shown["a.b"], shown["a/b"]) == (provider_safe("a.b"), provider_safe("a/b"))
    assert shown[long] != shown[long + "y"]
    assert len(set(shown.values())) == len(shown)


async def test_a_tool_is_called_under_the_name_it_is_listed_by(tmp_path: Path) -> None:
    @tool(name="say.it", read_only=True)
    def dotted() -> str:
        "Say dotted."
        return "dotted"

    @tool(name="say_it", read_only=True)
    def plain() -> str:
        "Say plain."
        return "plain"

    @tool(name="ask.it", read_only=True)
    def alone() -> str:
        "Say alone."
        return "alone"

    def open_app(approver: Any, root: str | None) -> Surehand:
        return Surehand(
            tmp_path, settings=Settings(), tools=[dotted, plain, alone], approver=approver, keep_state=False
        )

    serving = Serving(open_app)
    async with Client(serving.server, mode="legacy") as client:
        shown = {each.title or each.name: each.name for each in (await client.list_tools()).tools}
        assert shown["ask.it"] == "ask_it"
        assert shown["say_it"] == "say_it"
        said = [(await client.call_tool(shown[name], {})).content[0] for name in ("say.it", "say_it", "ask.it")]
        assert [block.text for block in said if block.type == "text"] == ["dotted", "plain", "alone"]
    await serving.close()
