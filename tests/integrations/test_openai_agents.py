"""The OpenAI Agents SDK with the real package and a model's server on loopback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, OpenAIResponsesModel, RunContextWrapper, Runner, RunState, function_tool, set_tracing_disabled
from openai import AsyncOpenAI
from tests.integrations.scenario import ResponsesScenario, Run
from tests.integrations.script import READ, TOUCH, function_outputs, responding
from tests.providers.model_stub import Stub

from surehand import Surehand
from surehand.integrations.openai_agents import surehand_tools, wrap
from surehand.testing import Says

pytestmark = pytest.mark.spec("INT-1")

set_tracing_disabled(True)


def make_agent(stub: Stub, app: Any, *names: str) -> tuple[Agent[Any], Any]:
    model = OpenAIResponsesModel("x", AsyncOpenAI(base_url=f"{stub.address}/v1", api_key="none"))
    tools = surehand_tools(app, names)
    return Agent(name="coder", model=model, tools=tools), tools


class TestOpenAIAgents(ResponsesScenario):
    async def run(self, stub: Stub, app: Any) -> Run:
        agent, tools = make_agent(stub, app)

        async def go_on(given: Any) -> Run:
            result = await Runner.run(agent, given)
            if not result.interruptions:
                return Run(result.final_output)

            async def answer(yes: bool) -> Run:
                state = result.to_state()
                for each in result.interruptions:
                    if yes:
                        state.approve(each)
                    else:
                        state.reject(each, rejection_message="not today")
                return await go_on(state)

            return Run(asked=tools.describe(result.interruptions[0])["text"], answer=answer)

        return await go_on("go")


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
