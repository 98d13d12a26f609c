"""Document 004, the tools reference: names, flags and schemas word for word, and every listed behaviour once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from surehand import Settings, Tool, ToolCall, ToolContext, ToolResult, tool
from surehand.core.view import CORE_TOOLS
from surehand.engine.orchestrator import batches
from surehand.testing import Says, run_tool, scratch_app

# -- what each tool says of itself ------------------------------------------------------------------------------------

# name: (aliases, concurrency_safe, read_only, destructive)
FLAGS: dict[str, tuple[tuple[str, ...], bool, bool, bool]] = {
    "Bash": ((), False, False, True),
    "Read": (("FileRead",), True, True, False),
    "Edit": (("FileEdit",), False, False, False),
    "Write": (("FileWrite",), False, False, False),
    "Glob": ((), True, True, False),
    "Grep": ((), True, True, False),
    "WebFetch": ((), True, True, False),
    "WebSearch": ((), True, True, False),
    "Agent": (("Task",), False, False, False),
    "TaskCreate": ((), True, False, False),
    "TaskList": ((), True, True, False),
    "TaskUpdate": ((), True, False, False),
    "Gitignore": ((), False, False, False),
    "ToolSearch": ((), True, True, False),
}
HINTS = {"Bash": "shell command execute terminal", "ToolSearch": "tool search find discover deferred"}


def text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def whole(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "integer", "description": description, **more}


def flag(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "boolean", "description": description, **more}


SCHEMAS: dict[str, tuple[dict[str, dict[str, Any]], list[str]]] = {
    "Bash": (
        {
            "command": text("The bash command to execute"),
            "timeout": whole("Timeout in milliseconds (default 120000, max 600000)"),
            "run_in_background": flag("Run the command in the background and return a task_id immediately"),
            "description": text("A description of what this command does"),
        },
        ["command"],
    ),
    "Read": (
        {
            "file_path": text("The absolute path to the file to read"),
            "offset": whole("The line number to start reading from (0-based)", minimum=0),
            "limit": whole("The number of lines to read (default 2000)", minimum=1),
        },
        ["file_path"],
    ),
    "Edit": (
        {
            "file_path": text("The absolute path to the file to modify"),
            "old_string": text("The text to replace"),
            "new_string": text("The text to replace it with (must be different from old_string)"),
            "replace_all": flag("Replace all occurrences of old_string (default false)", default=False),
        },
        ["file_path", "old_string", "new_string"],
    ),
    "Write": (
        {
            "file_path": text("The absolute path to the file to write"),
            "content": text("The content to write to the file"),
        },
        ["file_path", "content"],
    ),
    "Glob": (
        {
            "pattern": text("The glob pattern to match files against (e.g. **/*.go, src/**/*.ts)"),
            "path": text("The directory to search in. Defaults to the current working directory."),
            "include_ignored": flag(
                "Force include files that are normally ignored by .gitignore (default false)", default=False
            ),
        },
        ["pattern"],
    ),
    "Grep": (
        {
            "pattern": text("The regular expression pattern to search for"),
            "path": text("File or directory to search in (default: cwd)"),
            "glob": text("File filter pattern (e.g. *.go, *.{ts,tsx})"),
            "output_mode": text("Output mode: content / files_with_matches / count")
            | {"enum": ["content", "files_with_matches", "count"]},
            "context": whole("Number of surrounding lines to show"),
            "case_insensitive": flag("Case insensitive search"),
            "head_limit": whole("Maximum output lines (default 250)"),
        },
        ["pattern"],
    ),
    "WebFetch": (
        {
            "url": text("The URL to fetch content from"),
            "timeout": whole("Timeout in seconds (default 30, max 120)"),
        },
        ["url"],
    ),
    "WebSearch": (
        {
            "query": text("The search query"),
            "max_results": whole("Maximum number of results to return (default 10)", default=10),
        },
        ["query"],
    ),
    "Agent": (
        {
            "prompt": text("The task prompt for the sub-agent"),
            "description": text("Task description for tracking"),
            "model": text("Model to use (inherits parent if empty)"),
            "mode": text("Run mode: sync (default) / background / worktree")
            | {"enum": ["sync", "background", "worktree"]},
            "branch_name": text("Branch name for worktree mode (auto-generated if empty)"),
        },
        ["prompt"],
    ),
    "TaskCreate": ({"title": text("Task title"), "description": text("Task description")}, ["title"]),
    "TaskList": ({}, []),
    "TaskUpdate": (
        {"id": text("Task ID"), "status": text("New status: pending/in_progress/done/failed/cancelled")},
        ["id", "status"],
    ),
    "ToolSearch": (
        {"query": text("Search query to find tools (e.g., 'fetch web page', 'search files')")},
        ["query"],
    ),
}
OURS = {
    "Read": {"pages", "encoding"},
    "Grep": {"type", "multiline", "offset"},
    "WebFetch": {"offset"},
    "Agent": {"subagent_type"},
}
BOUNDS = {"minLength", "maxLength", "minimum", "maximum"}
"""Keywords that only narrow a value; ours may stand beside those of the document."""


async def info(name: str) -> Any:
    async with scratch_app() as app:
        found = app.registry.info(name)
    assert found is not None
    return found


@pytest.mark.spec("CORE-2")
@pytest.mark.parametrize("name", FLAGS)
async def test_the_tool_carries_the_name_aliases_and_flags_of_the_reference(name: str) -> None:
    found = await info(name)
    assert (found.aliases, found.concurrency_safe, found.read_only, found.destructive) == FLAGS[name]
    assert found.search_hint == HINTS.get(name, found.search_hint)
    async with scratch_app() as app:
        for alias in found.aliases:
            assert app.registry.resolve(alias) == name


@pytest.mark.parametrize("name", SCHEMAS)
async def test_the_input_schema_is_that_of_the_reference(name: str) -> None:
    schema = (await info(name)).input_schema
    properties, required = SCHEMAS[name]
    assert schema["type"] == "object"
    assert schema.get("required", []) == required
    assert schema["properties"].keys() == properties.keys() | OURS.get(name, set())
    for argument, wanted in properties.items():
        shown = schema["properties"][argument]
        added = set(shown) - set(wanted) - BOUNDS
        assert not added or (name, argument, added) == ("TaskUpdate", "status", {"enum"})
        assert {key: shown[key] for key in wanted} == wanted


async def test_there_are_the_tools_of_the_reference_and_more() -> None:
    async with scratch_app() as app:
        assert FLAGS.keys() <= set(app.registry)
        assert len(app.registry) >= 19


# -- the interface ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("CORE-6")
@pytest.mark.parametrize("name", ["Write", "Edit", "MultiEdit", "Gitignore", "Bash"])
async def test_level_two_can_be_tried_and_taken_back(name: str) -> None:
    assert (await info(name)).level == 2


async def test_level_zero_has_no_capability_and_level_one_is_reversible() -> None:
    assert (await info("Read")).level == 0
    made = Tool(name="x", description="X.", args={"type": "object"}, run=lambda args, ctx: None, reversible=True)
    assert made.level == 1


@pytest.mark.spec("CORE-6")
async def test_a_dry_run_has_no_side_effects(tmp_path: Path) -> None:
    async with scratch_app(tmp_path) as app:
        tried = await app.dry_run("Write", {"file_path": "a.txt", "content": "x\n"})
    assert tried.ok
    assert "+x" in tried.output
    assert not (tmp_path / "a.txt").exists()


async def test_a_changing_result_carries_undo_information(tmp_path: Path) -> None:
    async with scratch_app(tmp_path) as app:
        result = await app.call("Write", {"file_path": "a.txt", "content": "x\n"})
        assert result.undo is not None
        assert (await app.call("Undo")).ok
    assert not (tmp_path / "a.txt").exists()


async def test_a_result_has_output_error_data_and_undo() -> None:
    assert {"output", "ok", "data", "undo"} <= set(ToolResult().to_dict())


async def test_a_tool_of_ones_own_is_registered_and_searched_by_its_hint() -> None:
    @tool(concurrency_safe=True, read_only=True, search_hint="my custom tool keyword")
    def my_tool(input: str) -> str:
        "Does something"
        return "result: " + input

    async with scratch_app(tools=[my_tool]) as app:
        assert (await app.call("my_tool", {"input": "x"})).output == "result: x"
        assert "my_tool" in (await app.call("ToolSearch", {"query": "custom keyword"})).output


# -- orchestration ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("ENG-2")
async def test_the_example_falls_into_four_batches(tmp_path: Path) -> None:
    names = ["Glob", "Grep", "Edit", "Glob", "Grep", "Bash"]
    args: dict[str, dict[str, Any]] = {
        "Glob": {"pattern": "*"},
        "Grep": {"pattern": "x"},
        "Edit": {"file_path": "a", "old_string": "x", "new_string": "y"},
        "Bash": {"command": "touch made"},
    }
    async with scratch_app(tmp_path) as app:
        found = batches([ToolCall(name, args[name]) for name in names], app.selection, app.session)
    assert [[names[at] for at in batch.positions] for batch in found] == [
        ["Glob", "Grep"],
        ["Edit"],
        ["Glob", "Grep"],
        ["Bash"],
    ]
    assert [batch.concurrency_safe for batch in found] == [True, False, True, False]


@pytest.mark.spec("ENG-2")
async def test_at_most_ten_calls_of_a_batch_run_at_once() -> None:
    import asyncio

    running = most = 0

    @tool(read_only=True, concurrency_safe=True)
    async def step(ctx: ToolContext) -> None:
        "Step."
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1

    async with scratch_app(tools=[step], builtin=False) as app:
        await app.run_calls([ToolCall("step", {}) for _ in range(40)])
    assert most == 10


# -- deferred loading -------------------------------------------------------------------------------------------------


def test_the_core_is_always_loaded() -> None:
    assert CORE_TOOLS == ("Bash", "Read", "Edit", "Write", "Glob", "Grep", "Agent", "ToolSearch")


@pytest.mark.spec("REG-7")
async def test_the_flow_of_deferred_loading() -> None:
    async with scratch_app() as app:
        shown = app.selection
        assert len(app.registry) > 15
        assert [info.name for info in shown.active_tools()] == [name for name in app.registry if name in CORE_TOOLS]
        assert shown.is_deferred("WebFetch")
        assert not shown.is_deferred("Read")
        assert "WebFetch" in [info.name for info in shown.search_tools("web fetch")]
        result = await app.call("ToolSearch", {"query": "web"}, source="model")
        assert result.ok
        assert not shown.is_deferred("WebFetch")
        assert "WebFetch" in [info.name for info in shown.active_tools()]
        shown.reset_activations()
        assert shown.is_deferred("WebFetch")
        assert shown.activate_tool("WebFetch")
        assert not shown.is_deferred("WebFetch")
    async with scratch_app() as app:
        assert app.selection.is_deferred("WebFetch")


async def test_tool_search_answers_in_the_words_of_the_reference() -> None:
    async with scratch_app() as app:
        lines = (await app.call("ToolSearch", {"query": "web"})).output.splitlines()
    assert lines[0] == "Found 2 tool(s) matching 'web':"
    assert lines[1].startswith("- WebFetch: Fetches content from a URL")
    assert lines[2].startswith("- WebSearch: Searches the web")
    assert lines[3] == ""
    assert lines[4] == "These tools have been activated and are now available for use."


async def test_tool_search_says_when_all_tools_are_active() -> None:
    settings = Settings.parse({"toolset": {"deferred_threshold": 1000}})
    async with scratch_app(settings=settings) as app:
        output = (await app.call("ToolSearch", {"query": "web"})).output
    assert "WebFetch" in output
    assert "already active" in output


async def test_tool_search_matches_names_hints_aliases_and_descriptions() -> None:
    def named(name: str, description: str = "Nothing.", **more: Any) -> Tool:
        return Tool(name=name, description=description, args={"type": "object"}, run=lambda args, ctx: None, **more)

    tools = [
        named("quokka_reader"),
        named("a1", aliases=("QuokkaAlias",)),
        named("a2", search_hint="quokka marsupial"),
        named("a3", "Feeds a wombat."),
    ]
    async with scratch_app(tools=tools) as app:
        found = [info.name for info in app.selection.search_tools("quokka")]
        described = [info.name for info in app.selection.search_tools("wombat")]
    assert set(found) == {"quokka_reader", "a1", "a2"}
    assert described == ["a3"]


@pytest.mark.spec("REG-9")
async def test_a_tool_made_at_run_time_can_be_called(tmp_path: Path) -> None:
    approver = Says("once")
    args = {
        "name": "double",
        "description": "Doubles a number.",
        "input_schema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
        "source": "def run(n):\n    return n * 2\n",
    }
    async with scratch_app(tmp_path, approver=approver) as app:
        assert (await app.call("ToolCreate", args)).ok
        assert (await app.call("double", {"n": 21})).output == "42"
    assert approver.asked


async def test_a_progress_of_a_tool_reaches_the_stream() -> None:
    @tool(read_only=True)
    async def slow(ctx: ToolContext) -> str:
        "Slow."
        ctx.progress("half way", done=1, total=2)
        return "done"

    assert (await run_tool(slow)).output == "done"
