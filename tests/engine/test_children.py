"""Calls that tools make of other tools: through the door, as children of the call they serve."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from surehand import Event, Settings, Tool, ToolContext, ToolFailure, WritePath, tool
from surehand.core.settings import PermissionSettings
from surehand.testing import scratch_app

pytestmark = pytest.mark.spec("CORE-11")


@tool(read_only=True, version="1.4.0")
def double(number: int) -> int:
    "Double a number."
    return number * 2


@tool(read_only=True, requires=["double>=1,<2"])
async def quadruple(number: int, ctx: ToolContext) -> int:
    "Double twice."
    once = await ctx.call("double", {"number": number})
    return (await ctx.call("double", {"number": once.data})).data


@tool(read_only=True, requires=["double"])
def wait_for_double(number: int, ctx: ToolContext) -> int:
    "Double, from a thread."
    return ctx.call.wait("double", {"number": number}).data


async def test_a_tool_calls_what_it_requires_and_events_and_results_know_the_parent() -> None:
    heard: list[Event] = []
    async with scratch_app(tools=[double, quadruple, wait_for_double]) as app:
        app.bus.subscribe(heard.append)
        result = await app.call("quadruple", {"number": 3})
        assert result.data == 12
        assert (await app.call("wait_for_double", {"number": 4})).data == 8
    ended = [event for event in heard if event.kind == "call_finished"]
    assert [event.tool for event in ended] == ["double", "double", "quadruple", "double", "wait_for_double"]
    assert ended[0].data["call"].to_dict()["parent"] == ended[2].call_id
    assert ended[0].data["result"].meta["parent"] == ended[2].call_id
    assert "parent" not in ended[2].data["result"].meta
    assert next(each for each in app.metrics.all() if each.tool == "double").execution.total_calls == 3


async def test_the_audit_and_the_undo_of_a_turn_know_the_parent(tmp_path: Path) -> None:
    @tool(requires=["Write"])
    async def note(text: str, ctx: ToolContext) -> str:
        "Write two notes."
        for name in ("a.txt", "b.txt"):
            await ctx.call("Write", {"file_path": name, "content": text})
        return "noted"

    async with scratch_app(tmp_path, tools=[note], keep_state=True) as app:
        result = await app.call("note", {"text": "hello"})
        assert (tmp_path / "b.txt").read_text() == "hello"
        changes = (await app.changes()).data["changes"]
        assert {change["turn"] for change in changes} == {result.meta["call_id"]}
        await app.call("Undo", {"turns": [changes[0]["turn"]]})
        assert not (tmp_path / "a.txt").exists()
        assert not (tmp_path / "b.txt").exists()
        folder = Path(str(app.session.state_dir)) / "audit"
    lines = [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]
    written = [line for line in lines if line.get("tool") == "Write"]
    assert written
    assert all(line["parent"] == result.meta["call_id"] for line in written)


async def test_only_what_is_required_may_be_called_in_a_version_that_fits() -> None:
    @tool(read_only=True)
    async def careless(ctx: ToolContext) -> Any:
        "Call what it does not require."
        return (await ctx.call("double", {"number": 1})).data

    async with scratch_app(tools=[double, careless, quadruple]) as app:
        refused = await app.call("careless")
        assert refused.error is not None
        assert "does not require" in refused.error.message
        app.registry._entries["double"] = Tool(  # pyright: ignore[reportPrivateUsage]
            name="double", description="New.", args={"type": "object"}, run=print, version="2.0.0", read_only=True
        )
        app.registry.version += 1
        outdated = await app.call("quadruple", {"number": 1})
        assert outdated.error is not None
        assert "double>=1,<2" in outdated.error.message


async def test_cycles_and_depth_are_bounded() -> None:
    def calling(name: str, other: str) -> Tool:
        async def run(args: Any, ctx: ToolContext) -> Any:
            result = await ctx.call.any(other)
            if result.error is not None:
                raise ToolFailure(result.error.message)
            return result.data

        return Tool(name=name, description="Calls on.", args={"type": "object"}, run=run, read_only=True)

    ring = [calling("a", "b"), calling("b", "c"), calling("c", "a")]
    chain = [calling(f"n{number}", f"n{number + 1}") for number in range(20)]
    async with scratch_app(tools=[*ring, *chain]) as app:
        round_trip = await app.call("a")
        assert "a -> b -> c -> a" in round_trip.output
        deep = await app.call("n0")
        assert "more than 8 deep" in deep.output


async def test_a_child_never_has_more_rights_than_its_parent(tmp_path: Path) -> None:
    @tool(read_only=True, requires=["Write"])
    async def innocent(ctx: ToolContext) -> str:
        "Say to change nothing, and write."
        result = await ctx.call("Write", {"file_path": "x.txt", "content": "x"})
        return result.output

    @tool(requires=["Write"], effects=lambda args, ctx: [WritePath(ctx.resolve("y.txt"))])
    async def honest(ctx: ToolContext) -> str:
        "Write."
        return (await ctx.call("Write", {"file_path": "y.txt", "content": "y"})).output

    async with scratch_app(tmp_path, tools=[innocent, honest]) as app:
        assert "read-only and may not call Write" in (await app.call("innocent")).output
        assert not (tmp_path / "x.txt").exists()
    rules = Settings(permissions=PermissionSettings(deny=("Edit(y.txt)",)))
    async with scratch_app(tmp_path, tools=[honest], settings=rules) as app:
        assert (await app.call("honest")).error is not None
    async with scratch_app(tmp_path, tools=[honest], approver=lambda asked: asked.tool == "honest") as app:
        assert "did not get it" in (await app.call("honest")).output
        assert not (tmp_path / "y.txt").exists()


async def test_a_child_shares_what_its_parent_holds(tmp_path: Path) -> None:
    def held(args: Any, ctx: ToolContext) -> list[str]:
        return ["the lock"]

    @tool(resources=held)
    async def inner() -> str:
        "Use the lock."
        return "inside"

    @tool(resources=held, requires=["inner"])
    async def outer(ctx: ToolContext) -> str:
        "Use the lock too."
        return (await ctx.call("inner")).output

    async with scratch_app(tmp_path, tools=[inner, outer]) as app:
        assert (await app.call("outer")).output == "inside"
