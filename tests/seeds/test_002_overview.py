"""Document 002, the overview: the nine layers, read state, scheduling, the shapes of MCP, the template of a tool."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from surehand import Progress, Settings, Surehand, ToolCall, ToolFailure, ToolResult, tool
from surehand.core.settings import McpServerSettings
from surehand.core.shapes import call_to_mcp, result_from_mcp
from surehand.engine.orchestrator import batches
from surehand.testing import Says, run_tool, scratch_app

ROUGH = str(Path(__file__).parents[1] / "mcp" / "rough_server.py")


@tool(read_only=True, concurrency_safe=True)
async def look(text: str = "") -> str:
    "Look."
    return text or "seen"


@tool(read_only=True, concurrency_safe=False)
async def alone() -> str:
    "Runs alone."
    return "alone"


# -- the nine layers ---------------------------------------------------------------------------------------------------


async def refusal(app: Surehand, **args: Any) -> Mapping[str, Any]:
    """Return code, message and details of a refused Edit."""
    result = await app.call("Edit", args)
    assert result.error is not None
    details = result.error.details
    return {"code": result.error.code, "message": result.error.message} | dict(details)


def numbered(found: Mapping[str, Any]) -> tuple[str, int, int]:
    return found["code"], found["layer"], found["number"]


@pytest.mark.spec("FILE-5")
async def test_layer_1_parameter_consistency(tmp_path: Path) -> None:
    async with scratch_app(tmp_path) as app:
        found = await refusal(app, file_path="a", old_string="x", new_string="x")
    assert numbered(found) == ("precondition_failed", 1, 1)


@pytest.mark.spec("PERM-5")
async def test_layer_2_path_normalisation_and_permission(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    settings = Settings.parse({"permissions": {"deny": ["Edit(./a)"]}})
    async with scratch_app(tmp_path, settings=settings) as app:
        for path in ("a", "./a", str(tmp_path / "." / "a")):
            found = await refusal(app, file_path=path, old_string="x", new_string="y")
            assert found["code"] == "permission_denied"
            assert found["number"] == 2


@pytest.mark.spec("FILE-5")
async def test_layer_3_file_creation_logic(tmp_path: Path) -> None:
    async with scratch_app(tmp_path) as app:
        made = await app.call("Edit", {"file_path": "new/a", "old_string": "", "new_string": "content"})
    assert made.ok
    assert (tmp_path / "new/a").read_text() == "content"


async def test_layer_4_new_file_permission(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    async with scratch_app(tmp_path) as app:
        found = await refusal(app, file_path="a", old_string="", new_string="y")
    assert numbered(found) == ("precondition_failed", 4, 3)


async def test_layer_5_file_existence(tmp_path: Path) -> None:
    async with scratch_app(tmp_path) as app:
        found = await refusal(app, file_path="a", old_string="x", new_string="y")
    assert numbered(found) == ("precondition_failed", 5, 4)


@pytest.mark.spec("FILE-5")
@pytest.mark.parametrize(("name", "content"), [("a.ipynb", b"{}"), ("a", b"\0\1\2x" * 20), ("a", b"ab\0x")])
async def test_layer_6_file_type(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    async with scratch_app(tmp_path) as app:
        found = await refusal(app, file_path=name, old_string="x", new_string="y")
    assert numbered(found) == ("precondition_failed", 6, 5)


@pytest.mark.spec("FILE-5")
async def test_layer_7_forced_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    async with scratch_app(tmp_path) as app:
        found = await refusal(app, file_path="a", old_string="x", new_string="y")
    assert numbered(found) == ("precondition_failed", 7, 6)
    assert found["message"] == "File has not been read yet. Read it first before writing to it."
    assert found["behavior"] == "ask"
    assert (tmp_path / "a").read_text() == "x"


async def test_layer_7_holds_for_write_as_well(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    async with scratch_app(tmp_path) as app:
        result = await app.call("Write", {"file_path": "a", "content": "y"})
    assert result.error is not None
    assert (result.error.details["layer"], result.error.details["number"]) == (7, 6)


@pytest.mark.spec("FILE-5")
async def test_layer_8_modification_time(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x\n")
    async with scratch_app(tmp_path) as app:
        await app.call("Read", {"file_path": "a"})
        (tmp_path / "a").write_text("x, by a linter\n")
        found = await refusal(app, file_path="a", old_string="x", new_string="y")
        again = await app.call("Edit", {"file_path": "a", "old_string": "x,", "new_string": "y,"})
    assert numbered(found) == ("precondition_failed", 8, 7)
    assert found["message"].startswith("File has been modified since read, either by the user or by a linter.")
    assert "+x, by a linter" in found["message"]
    assert found["behavior"] == "ask"
    assert again.ok


@pytest.mark.spec("FILE-5")
@pytest.mark.parametrize(("old", "number"), [("z", 8), ("x", 9)])
async def test_layer_9_content_present_and_unique(tmp_path: Path, old: str, number: int) -> None:
    (tmp_path / "a").write_text("x\nx\n")
    async with scratch_app(tmp_path) as app:
        await app.call("Read", {"file_path": "a"})
        found = await refusal(app, file_path="a", old_string=old, new_string="y")
    assert numbered(found) == ("precondition_failed", 9, number)


@pytest.mark.spec("ENG-1")
async def test_the_layers_hold_in_their_order(tmp_path: Path) -> None:
    """Every later fault is there too; the earliest layer speaks."""
    (tmp_path / "a").write_bytes(b"x\0x")
    async with scratch_app(tmp_path) as app:
        assert (await refusal(app, file_path="a", old_string="x", new_string="x"))["layer"] == 1
        assert (await refusal(app, file_path="b", old_string="x", new_string="y"))["layer"] == 5
        assert (await refusal(app, file_path="a", old_string="x", new_string="y"))["layer"] == 6


# -- read state --------------------------------------------------------------------------------------------------------


@pytest.mark.spec("FILE-6")
async def test_read_edit_and_write_update_the_read_state(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\n")
    async with scratch_app(tmp_path) as app:
        await app.call("Read", {"file_path": "a"})
        edit = {"file_path": "a", "old_string": "one", "new_string": "two"}
        assert (await app.call("Edit", edit)).ok
        assert (await app.call("Write", {"file_path": "a", "content": "three\n"})).ok
        assert (await app.call("Edit", {"file_path": "a", "old_string": "three", "new_string": "four"})).ok
    assert (tmp_path / "a").read_text() == "four\n"


@pytest.mark.spec("FILE-6")
async def test_a_touched_file_with_the_same_content_is_no_conflict(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\n")
    async with scratch_app(tmp_path) as app:
        await app.call("Read", {"file_path": "a"})
        os.utime(tmp_path / "a", (2_000_000_000, 2_000_000_000))
        assert (await app.call("Edit", {"file_path": "a", "old_string": "one", "new_string": "two"})).ok


@pytest.mark.spec("FILE-6")
async def test_a_change_under_the_same_time_and_size_is_found(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\n")
    os.utime(tmp_path / "a", (1_000_000_000, 1_000_000_000))
    async with scratch_app(tmp_path) as app:
        await app.call("Read", {"file_path": "a"})
        (tmp_path / "a").write_text("two\n")
        os.utime(tmp_path / "a", (1_000_000_000, 1_000_000_000))
        found = await refusal(app, file_path="a", old_string="two", new_string="2")
    assert found["layer"] == 8


# -- scheduling --------------------------------------------------------------------------------------------------------


async def test_calls_are_grouped_by_concurrency_safety() -> None:
    settings = Settings.parse({"tools": {"look": {"priority": 3}}})
    async with scratch_app(tools=[look, alone], builtin=False, settings=settings) as app:
        await app.call("look")
        calls = [ToolCall(name, {}) for name in ("look", "look", "alone", "look")]
        found = batches(calls, app.selection, app.session, estimate=app.metrics.estimate_s)
    assert [(batch.concurrency_safe, batch.positions) for batch in found] == [
        (True, (0, 1)),
        (False, (2,)),
        (True, (3,)),
    ]
    assert [batch.priority for batch in found] == [3, 0, 3]
    assert found[0].estimated_s > 0


async def test_unsafe_calls_run_one_after_another() -> None:
    running: list[int] = []

    @tool
    async def write_down(number: int) -> None:
        "Writes."
        assert not running
        running.append(number)
        await asyncio.sleep(0)
        running.clear()

    async with scratch_app(tools=[write_down], builtin=False) as app:
        results = await app.run_calls([ToolCall("write_down", {"number": number}) for number in range(5)])
    assert all(result.ok for result in results)


@pytest.mark.spec("ENG-2")
async def test_results_stream_as_they_finish() -> None:
    gate = asyncio.Event()

    @tool(read_only=True, concurrency_safe=True)
    async def wait(first: bool) -> bool:
        "Waits."
        if first:
            await gate.wait()
        gate.set()
        return first

    async with scratch_app(tools=[wait], builtin=False) as app:
        calls = [ToolCall("wait", {"first": first}) for first in (True, False)]
        order = [position async for position, _ in app.stream(calls)]
    assert order == [1, 0]


# -- MCP ---------------------------------------------------------------------------------------------------------------


def test_a_call_becomes_an_mcp_request() -> None:
    request = call_to_mcp(ToolCall("look", {"text": "x"}, "call_7"))
    assert (request["jsonrpc"], request["id"], request["method"]) == ("2.0", "call_7", "tools/call")
    assert (request["params"]["name"], request["params"]["arguments"]) == ("look", {"text": "x"})


def test_an_mcp_answer_becomes_a_result() -> None:
    good = result_from_mcp({"content": [{"type": "text", "text": "fine"}]})
    bad = result_from_mcp({"content": [{"type": "text", "text": "broken"}], "isError": True})
    assert (good.ok, good.output) == (True, "fine")
    assert bad.error is not None
    assert "broken" in bad.error.message


@pytest.mark.spec("MCP-1")
async def test_tools_of_an_mcp_server_are_registered_under_its_name(tmp_path: Path) -> None:
    server = McpServerSettings(command=sys.executable, args=("-S", ROUGH))
    async with Surehand(tmp_path, settings=Settings(), approver=Says("once"), mcp_servers={"rough": server}) as app:
        for name in ("rough:echo", "mcp__rough__echo"):
            result = await app.call(name, {"text": "hi"})
            assert (result.ok, result.output) == (True, "hi")
        assert "mcp__rough__echo" in app.registry


@pytest.mark.spec("MCP-1")
async def test_a_server_nobody_configured_is_named(tmp_path: Path) -> None:
    async with scratch_app(tmp_path) as app:
        result = await app.call("mcp__nobody__echo", {})
    assert result.error is not None
    assert result.error.message == "MCP server not found: nobody"


async def test_tools_of_a_module_carry_the_name_of_their_server() -> None:
    async with scratch_app(modules={"eyes": [look]}) as app:
        assert app.registry.module_names("eyes") == ["mcp__eyes__look"]
        assert (await app.call("mcp__eyes__look")).ok


# -- the template for tools of one's own -------------------------------------------------------------------------------


@pytest.mark.spec("CORE-1")
async def test_the_template_of_a_new_tool() -> None:
    @tool(concurrency_safe=True, read_only=True)
    async def custom_tool(parameter1: str, parameter2: float | None = None) -> AsyncIterator[object]:
        """Description of what this tool does

        Args:
            parameter1: Description of parameter1
            parameter2: Optional parameter2
        """
        yield Progress("working", done=1, total=2)
        if parameter2 is not None and parameter2 < 0:
            raise ToolFailure("parameter2 is negative", hint="Give a positive one.")
        yield ToolResult(output=f"{parameter1}: {parameter2}")

    schema = custom_tool.info().input_schema
    assert schema["properties"]["parameter1"]["description"] == "Description of parameter1"
    assert schema["required"] == ["parameter1"]
    assert (await run_tool(custom_tool, {"parameter1": "x", "parameter2": 2})).output == "x: 2.0"
    failed = await run_tool(custom_tool, {"parameter1": "x", "parameter2": -1})
    assert failed.error is not None
    assert (failed.error.code, failed.error.message) == ("execution_error", "parameter2 is negative")
