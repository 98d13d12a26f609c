"""The OpenAI Agents SDK with the real package and a model's server on loopback."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, OpenAIResponsesModel, RunContextWrapper, Runner, RunState, function_tool, set_tracing_disabled
from openai import AsyncOpenAI
from tests.integrations.script import EDIT, READ, TOUCH, function_outputs, responding, shown_functions
from tests.providers.model_stub import Stub

from surehand import Surehand, tool
from surehand.integrations.openai_agents import surehand_tools, wrap
from surehand.testing import Says

pytestmark = pytest.mark.spec("INT-1")

set_tracing_disabled(True)


def make_agent(stub: Stub, app: Any, *names: str) -> tuple[Agent[Any], Any]:
    model = OpenAIResponsesModel("x", AsyncOpenAI(base_url=f"{stub.address}/v1", api_key="none"))
    tools = surehand_tools(app, names)
    return Agent(name="coder", model=model, tools=tools), tools


@tool(read_only=True)
def word_count(text: str) -> int:
    "Count the words of a text."
    return len(text.split())


async def test_it_searches_reads_edits_and_the_change_can_be_undone(stub: Stub, workspace: Path) -> None:
    stub.script = [
        responding(("1", "Grep", {"pattern": "beta"}), ("2", "Read", READ), ("3", "word_count", {"text": "a b"})),
        responding(("4", "Edit", EDIT)),
        responding(text="done"),
    ]
    async with Surehand(workspace, mode="accept-edits", tools=[word_count]) as app:
        agent, _ = make_agent(stub, app)
        result = await Runner.run(agent, "go")
        assert result.final_output == "done"
        assert "word_count" in shown_functions(stub, 0)
        assert not {"Agent", "Changes"} & set(shown_functions(stub, 0))
        said = function_outputs(stub)
        assert "notes.txt" in said["1"]
        assert "2\tbeta" in said["2"]
        assert said["3"] == "2"
        assert (workspace / "notes.txt").read_text() == "alpha\ngamma\n"
        assert (await app.undo()).ok
        assert (workspace / "notes.txt").read_text() == "alpha\nbeta\n"


async def test_a_command_interrupts_the_run_and_runs_once_it_is_approved(stub: Stub, workspace: Path) -> None:
    stub.script = [responding(("1", "Bash", TOUCH)), responding(text="done")]
    async with Surehand(workspace) as app:
        agent, tools = make_agent(stub, app)
        result = await Runner.run(agent, "go")
        (item,) = result.interruptions
        assert "touch made.txt" in tools.describe(item)["text"]
        assert not (workspace / "made.txt").exists()
        state = result.to_state()
        state.approve(item)
        result = await Runner.run(agent, state)
        assert result.final_output == "done"
        assert (workspace / "made.txt").exists()


async def test_a_refused_command_does_not_run_and_the_model_is_told(stub: Stub, workspace: Path) -> None:
    stub.script = [responding(("1", "Bash", TOUCH)), responding(text="sorry")]
    async with Surehand(workspace) as app:
        agent, _ = make_agent(stub, app)
        result = await Runner.run(agent, "go")
        state = result.to_state()
        state.reject(result.interruptions[0], rejection_message="not today")
        result = await Runner.run(agent, state)
        assert result.final_output == "sorry"
        assert "not today" in function_outputs(stub)["1"]
        assert not (workspace / "made.txt").exists()


async def test_a_yes_does_not_hold_once_the_file_has_changed(stub: Stub, workspace: Path) -> None:
    edit = {**EDIT, "replace_all": True}
    stub.script = [responding(("0", "Read", READ)), responding(("1", "Edit", edit)), responding(text="hm")]
    async with Surehand(workspace) as app:
        agent, _ = make_agent(stub, app)
        result = await Runner.run(agent, "go")
        (workspace / "notes.txt").write_text("alpha\nbeta\nbeta\n")
        await app.call("Read", READ)
        state = result.to_state()
        state.approve(result.interruptions[0])
        await Runner.run(agent, state)
        assert "not what was approved" in function_outputs(stub)["1"]
        assert "gamma" not in (workspace / "notes.txt").read_text()


async def test_a_yes_given_to_another_process_does_not_hold_here(stub: Stub, workspace: Path) -> None:
    stub.script = [responding(("1", "Bash", TOUCH)), responding(text="hm")]
    async with Surehand(workspace) as app:
        agent, _ = make_agent(stub, app)
        result = await Runner.run(agent, "go")
        kept = json.dumps(result.to_state().to_json())
    async with Surehand(workspace) as app:
        agent, _ = make_agent(stub, app)
        state = await RunState.from_json(agent, json.loads(kept))
        state.approve(state.get_interruptions()[0])
        await Runner.run(agent, state)
        assert "make the call again" in function_outputs(stub)["1"]
        assert not (workspace / "made.txt").exists()


async def test_approving_always_does_not_approve_what_nobody_saw(stub: Stub, workspace: Path) -> None:
    stub.script = [
        responding(("1", "Bash", TOUCH)),
        responding(("2", "Bash", {"command": "touch other.txt"})),
        responding(text="hm"),
    ]
    async with Surehand(workspace) as app:
        agent, _ = make_agent(stub, app)
        result = await Runner.run(agent, "go")
        state = result.to_state()
        state.approve(result.interruptions[0], always_approve=True)
        await Runner.run(agent, state)
        assert (workspace / "made.txt").exists()
        assert not (workspace / "other.txt").exists()


async def test_an_application_with_an_approver_asks_that_one(stub: Stub, workspace: Path) -> None:
    stub.script = [responding(("1", "Bash", TOUCH)), responding(text="done")]
    approver = Says("once")
    async with Surehand(workspace, approver=approver) as app:
        result = await Runner.run(make_agent(stub, app)[0], "go")
        assert result.interruptions == []
        assert len(approver.asked) == 1
        assert (workspace / "made.txt").exists()


async def test_an_image_reaches_the_model(stub: Stub, workspace: Path) -> None:
    stub.script = [responding(("1", "Read", {"file_path": "logo.png"})), responding(text="red")]
    async with Surehand(workspace) as app:
        await Runner.run(make_agent(stub, app)[0], "go")
        parts = function_outputs(stub)["1"]
        assert any(each.get("image_url", "").startswith("data:image/png;base64,") for each in parts)


async def test_failures_are_told_as_output(stub: Stub, workspace: Path) -> None:
    calls = [("1", "Read", {"nonsense": 1}), ("2", "Read", {"file_path": "missing.txt"})]
    stub.script = [responding(*calls), responding(text="I see")]
    async with Surehand(workspace) as app:
        await Runner.run(make_agent(stub, app)[0], "go")
        assert "invalid_args" in function_outputs(stub)["1"]
        assert "missing.txt" in function_outputs(stub)["2"]


async def test_a_write_and_a_read_of_one_message_keep_their_order(stub: Stub, workspace: Path) -> None:
    new = {"file_path": "new.txt"}
    calls = [("1", "Write", {**new, "content": "fresh\n"}), ("2", "Read", new), ("3", "Read", READ)]
    stub.script = [responding(*calls), responding(text="done")]
    async with Surehand(workspace, mode="accept-edits") as app:
        await Runner.run(make_agent(stub, app)[0], "go")
        assert "fresh" in function_outputs(stub)["2"]
        assert "alpha" in function_outputs(stub)["3"]


async def test_cancelling_the_run_stops_the_call(stub: Stub, workspace: Path) -> None:
    started = asyncio.Event()

    @tool(read_only=True)
    async def wait_long() -> str:
        "Wait."
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            (workspace / "stopped").touch()
        return "never"

    stub.script = [responding(("1", "wait_long", {}))]
    async with Surehand(workspace, tools=[wait_long]) as app:
        run = asyncio.create_task(Runner.run(make_agent(stub, app)[0], "go"))
        await started.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        await app.close()
        assert (workspace / "stopped").exists()


async def test_a_tool_that_is_found_is_there_in_the_next_step(stub: Stub, workspace: Path) -> None:
    stub.script = [responding(("1", "ToolSearch", {"query": "select:Changes"})), responding(text="done")]
    async with Surehand(workspace) as app:
        await Runner.run(make_agent(stub, app)[0], "go")
        assert "Changes" not in shown_functions(stub, 0)
        assert "Changes" in shown_functions(stub, 1)


def test_plain_code_uses_it_with_the_plain_front(stub: Stub, workspace: Path) -> None:
    stub.script = [responding(("1", "Read", READ)), responding(text="done")]
    with Surehand.sync(workspace) as app:
        assert Runner.run_sync(make_agent(stub, app)[0], "go").final_output == "done"
        assert "alpha" in function_outputs(stub)["1"]


async def test_a_tool_of_the_framework_goes_through_our_door(stub: Stub, workspace: Path) -> None:
    @function_tool
    def book(ctx: RunContextWrapper[Any], seats: int) -> str:
        "Book seats."
        return f"booked {seats} for {ctx.context}"

    stub.script = [responding(("1", "book", {"seats": 2}), ("2", "book", {"seats": "x"})), responding(text="done")]
    approver = Says("once")
    async with Surehand(workspace, approver=approver, tools=[wrap(book)]) as app:
        await Runner.run(make_agent(stub, app)[0], "go", context="Ann")
        said = function_outputs(stub)
        assert said["1"] == "booked 2 for Ann"
        assert "seats" in said["2"]
        assert [each.tool for each in approver.asked] == ["book"]
