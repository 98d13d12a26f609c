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
from tests.integrations.script import EDIT, READ, TOUCH, calling, shown_tools, tool_messages
from tests.providers.model_stub import Stub

from surehand import Surehand, tool
from surehand.integrations.pydantic_ai import ToolProgressEvent, surehand_toolset, wrap
from surehand.testing import Says

pytestmark = pytest.mark.spec("INT-1")


def make_agent(stub: Stub, app: Any, *tools: str) -> Agent[None, Any]:
    model = OpenAIChatModel("x", provider=OpenAIProvider(base_url=f"{stub.address}/v1", api_key="none"))
    return Agent(model, toolsets=[surehand_toolset(app, tools)], output_type=[str, DeferredToolRequests])


@tool(read_only=True)
def word_count(text: str) -> int:
    "Count the words of a text."
    return len(text.split())


async def test_it_searches_reads_edits_and_the_change_can_be_undone(stub: Stub, workspace: Path) -> None:
    stub.script = [
        calling(
            ("1", "Grep", {"pattern": "beta"}),
            ("2", "Read", READ),
            ("3", "word_count", {"text": "a b"}),
        ),
        calling(("4", "Edit", EDIT)),
        {"text": "done"},
    ]
    async with Surehand(workspace, mode="accept-edits", tools=[word_count]) as app:
        result = await make_agent(stub, app).run("go")
        assert result.output == "done"
        assert "word_count" in shown_tools(stub, 0)
        assert "Agent" not in shown_tools(stub, 0)
        said = tool_messages(stub)
        assert "notes.txt" in said["1"]
        assert "2\tbeta" in said["2"]
        assert said["3"] == "2"
        assert (workspace / "notes.txt").read_text() == "alpha\ngamma\n"
        assert (await app.undo()).ok
        assert (workspace / "notes.txt").read_text() == "alpha\nbeta\n"
        assert [each["tool"] for each in (await app.changes()).data["changes"]][-1] == "Edit"


async def test_a_command_waits_for_its_approval_and_runs_once_it_is_there(stub: Stub, workspace: Path) -> None:
    stub.script = [calling(("1", "Bash", TOUCH)), {"text": "done"}]
    async with Surehand(workspace) as app:
        agent = make_agent(stub, app)
        first = await agent.run("go")
        requests = first.output
        assert isinstance(requests, DeferredToolRequests)
        assert [each.tool_name for each in requests.approvals] == ["Bash"]
        assert "touch made.txt" in requests.metadata["1"]["text"]
        assert not (workspace / "made.txt").exists()
        answers = DeferredToolResults(approvals={"1": True}, metadata=requests.metadata)
        second = await agent.run(message_history=first.all_messages(), deferred_tool_results=answers)
        assert second.output == "done"
        assert (workspace / "made.txt").exists()


async def test_a_refused_command_does_not_run_and_the_model_is_told(stub: Stub, workspace: Path) -> None:
    stub.script = [calling(("1", "Bash", TOUCH)), {"text": "sorry"}]
    async with Surehand(workspace) as app:
        agent = make_agent(stub, app)
        first = await agent.run("go")
        answers = DeferredToolResults(approvals={"1": ToolDenied("not today")})
        await agent.run(message_history=first.all_messages(), deferred_tool_results=answers)
        assert "not today" in tool_messages(stub)["1"]
        assert not (workspace / "made.txt").exists()


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


async def test_a_yes_to_an_edit_does_not_hold_once_the_file_has_changed(stub: Stub, workspace: Path) -> None:
    stub.script = [
        calling(("0", "Read", READ)),
        calling(("1", "Edit", {**EDIT, "replace_all": True})),
    ]
    async with Surehand(workspace) as app:
        agent = make_agent(stub, app)
        first = await agent.run("go")
        assert "+gamma" in first.output.metadata["1"]["text"]
        (workspace / "notes.txt").write_text("alpha\nbeta\nbeta\n")
        await app.call("Read", READ)
        answers = DeferredToolResults(approvals={"1": True}, metadata=first.output.metadata)
        second = await agent.run(message_history=first.all_messages(), deferred_tool_results=answers)
        assert isinstance(second.output, DeferredToolRequests)
        assert (workspace / "notes.txt").read_text() == "alpha\nbeta\nbeta\n"


async def test_a_rule_that_denies_is_not_asked_about(stub: Stub, workspace: Path) -> None:
    from surehand import Settings
    from surehand.core.settings import PermissionSettings

    stub.script = [calling(("1", "Bash", TOUCH)), {"text": "sorry"}]
    settings = Settings(permissions=PermissionSettings(deny=("Bash",)))
    async with Surehand(workspace, settings=settings) as app:
        assert (await make_agent(stub, app).run("go")).output == "sorry"
        assert "permission_denied" in tool_messages(stub)["1"]


async def test_an_application_with_an_approver_asks_that_one(stub: Stub, workspace: Path) -> None:
    stub.script = [calling(("1", "Bash", TOUCH)), {"text": "done"}]
    approver = Says("once")
    async with Surehand(workspace, approver=approver) as app:
        assert (await make_agent(stub, app).run("go")).output == "done"
        assert len(approver.asked) == 1
        assert (workspace / "made.txt").exists()


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


async def test_a_write_and_a_read_of_one_message_keep_their_order(stub: Stub, workspace: Path) -> None:
    stub.script = [
        calling(
            ("1", "Write", {"file_path": "new.txt", "content": "fresh\n"}),
            ("2", "Read", {"file_path": "new.txt"}),
            ("3", "Read", READ),
        ),
        {"text": "done"},
    ]
    async with Surehand(workspace, mode="accept-edits") as app:
        await make_agent(stub, app).run("go")
        said = tool_messages(stub)
        assert "fresh" in said["2"]
        assert "alpha" in said["3"]


async def test_cancelling_the_run_stops_the_command(stub: Stub, workspace: Path) -> None:
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

    stub.script = [calling(("1", "wait_long", {}))]
    async with Surehand(workspace, tools=[wait_long]) as app:
        run = asyncio.create_task(make_agent(stub, app).run("go"))
        await started.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert (workspace / "stopped").exists()
        assert (await app.call("Read", READ)).ok


async def test_a_tool_that_is_found_is_there_in_the_next_step(stub: Stub, workspace: Path) -> None:
    stub.script = [calling(("1", "ToolSearch", {"query": "select:Changes"})), {"text": "done"}]
    async with Surehand(workspace) as app:
        await make_agent(stub, app).run("go")
        assert "Changes" not in shown_tools(stub, 0)
        assert "Changes" in shown_tools(stub, 1)


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
