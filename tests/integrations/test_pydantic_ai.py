"""pydantic-ai with the real package and a model's server on loopback."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import (
    Agent,
    BinaryContent,
    DeferredToolRequests,
    DeferredToolResults,
    ModelRetry,
    RunContext,
    ToolApproved,
    ToolDenied,
)
from pydantic_ai import Tool as PydanticTool
from pydantic_ai.messages import ToolReturnPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from tests.integrations.scenario import Run, Scenario
from tests.integrations.script import READ, TOUCH, calling, shown_tools, tool_messages
from tests.providers.model_stub import Stub

from surehand import Surehand, tool
from surehand.integrations.pydantic_ai import ToolProgressEvent, surehand_toolset, wrap
from surehand.testing import Says

pytestmark = pytest.mark.spec("INT-1")


def make_agent(stub: Stub, app: Any, *tools: str) -> Agent[None, Any]:
    model = OpenAIChatModel("x", provider=OpenAIProvider(base_url=f"{stub.address}/v1", api_key="none"))
    return Agent(model, toolsets=[surehand_toolset(app, tools)], output_type=[str, DeferredToolRequests])


class TestPydanticAI(Scenario):
    async def run(self, stub: Stub, app: Any) -> Run:
        agent = make_agent(stub, app)
        return read_run(agent, await agent.run("go"))


def read_run(agent: Agent[None, Any], result: Any) -> Run:
    requests = result.output
    if not isinstance(requests, DeferredToolRequests):
        return Run(requests)

    async def answer(yes: bool) -> Run:
        approvals: Any = {each.tool_call_id: yes or ToolDenied("not today") for each in requests.approvals}
        answers = DeferredToolResults(approvals=approvals, metadata=requests.metadata)
        return read_run(agent, await agent.run(message_history=result.all_messages(), deferred_tool_results=answers))

    return Run(asked=next(iter(requests.metadata.values()))["text"], answer=answer)


async def test_a_yes_does_not_hold_for_other_arguments(stub: Stub, workspace: Path) -> None:
    stub.script = [calling(("1", "Bash", TOUCH))]
    async with Surehand(workspace) as app:
        agent = make_agent(stub, app)
        first = await agent.run("go")
        other = ToolApproved(override_args={"command": "touch other.txt"})
        answers = DeferredToolResults(approvals={"1": other}, metadata=first.output.metadata)
        second = await agent.run(message_history=first.all_messages(), deferred_tool_results=answers)
        assert isinstance(second.output, DeferredToolRequests)
        assert "touch other.txt" in second.output.metadata["1"]["text"]
        assert not (workspace / "other.txt").exists()


async def test_an_image_reaches_the_model(stub: Stub, workspace: Path) -> None:
    stub.script = [calling(("1", "Read", {"file_path": "logo.png"})), {"text": "red"}]
    async with Surehand(workspace) as app:
        result = await make_agent(stub, app).run("go")
        assert "data:image/png;base64," in str(stub.requests[-1]["messages"])
        returned = [part for each in result.all_messages() for part in each.parts if isinstance(part, ToolReturnPart)]
        assert any(isinstance(each, BinaryContent) for each in returned[0].content)


async def test_wrong_arguments_are_a_retry_and_failures_are_told(stub: Stub, workspace: Path) -> None:
    stub.script = [
        calling(("1", "Read", {"nonsense": 1}), ("2", "Read", {"file_path": "missing.txt"})),
        {"text": "I see"},
    ]
    async with Surehand(workspace) as app:
        assert (await make_agent(stub, app).run("go")).output == "I see"
        said = tool_messages(stub)
        assert "file_path" in said["1"]
        assert "missing.txt" in said["2"]


async def test_named_tools_alone_are_shown_under_names_that_providers_take(stub: Stub, workspace: Path) -> None:
    stub.script = [{"text": "done"}]
    async with Surehand(workspace) as app:
        await make_agent(stub, app, "Read", "fs.*").run("go")
        names = shown_tools(stub, 0)
        assert "Read" in names
        assert any(each.startswith("fs_list_dir") for each in names)
        assert "Bash" not in names


async def test_progress_is_an_event_of_the_agents_stream(stub: Stub, workspace: Path) -> None:
    stub.script = [calling(("1", "slowly", {})), {"text": "done"}]

    @tool(read_only=True)
    async def slowly(ctx: Any = None) -> Any:
        "Report while it works."
        from surehand import Progress

        yield Progress("half", done=1, total=2)
        await asyncio.sleep(0)
        yield "finished"

    heard: list[Any] = []

    async def listen(ctx: RunContext[None], events: Any) -> None:
        heard.extend([event async for event in events if isinstance(event, ToolProgressEvent)])

    async with Surehand(workspace, tools=[slowly]) as app:
        await make_agent(stub, app).run("go", event_stream_handler=listen)
    assert [(each.text, each.done, each.tool_call_id) for each in heard] == [("half", 1, "1")]


def test_plain_code_uses_it_with_the_plain_front(stub: Stub, workspace: Path) -> None:
    stub.script = [calling(("1", "Read", READ)), {"text": "done"}]
    with Surehand.sync(workspace) as app:
        assert make_agent(stub, app).run_sync("go").output == "done"
        assert "alpha" in tool_messages(stub)["1"]


async def test_a_tool_of_the_framework_goes_through_our_door(stub: Stub, workspace: Path) -> None:
    def book(ctx: RunContext[None], seats: int) -> str:
        "Book seats."
        if seats > 4:
            raise ModelRetry("at most four")
        return f"booked {seats} for {ctx.tool_name}"

    stub.script = [
        calling(("1", "book", {"seats": 2}), ("2", "book", {"seats": 9}), ("3", "book", {"seats": "x"})),
        {"text": "done"},
    ]
    approver = Says("once")
    async with Surehand(workspace, approver=approver, tools=[wrap(PydanticTool(book))]) as app:
        await make_agent(stub, app).run("go")
        said = tool_messages(stub)
        assert said["1"] == "booked 2 for book"
        assert "at most four" in said["2"]
        assert "seats" in said["3"]
        assert [each.tool for each in approver.asked] == ["book", "book"]
        outside = await app.call("book", {"seats": 1})
        assert not outside.ok
