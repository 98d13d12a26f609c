"""LangChain and LangGraph with the real packages and a model's server on loopback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import ToolException
from langchain_core.tools import tool as langchain_tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from tests.integrations.scenario import Run, Scenario, word_count
from tests.integrations.script import EDIT, READ, TOUCH, calling, shown_tools, tool_messages
from tests.providers.model_stub import Stub

from surehand import Progress, Surehand, tool
from surehand.integrations.langchain import SurehandMiddleware, surehand_tools, wrap
from surehand.testing import Says

pytestmark = pytest.mark.spec("INT-1")

GO = {"messages": [("user", "go")]}


def make_model(stub: Stub) -> ChatOpenAI:
    return ChatOpenAI(model="x", base_url=f"{stub.address}/v1", api_key="none", use_responses_api=False)


def make_agent(stub: Stub, app: Any) -> Any:
    return create_agent(make_model(stub), middleware=[SurehandMiddleware(app)], checkpointer=InMemorySaver())


def thread(name: str = "1") -> Any:
    return {"configurable": {"thread_id": name}}


class TestLangChain(Scenario):
    async def run(self, stub: Stub, app: Any) -> Run:
        agent = make_agent(stub, app)

        async def go_on(given: Any) -> Run:
            state = await agent.ainvoke(given, thread())
            if not (interrupts := state.get("__interrupt__")):
                return Run(state["messages"][-1].text)
            no = {"type": "reject", "message": "not today"}
            return Run(
                asked=interrupts[0].value["text"],
                answer=lambda yes: go_on(Command(resume={"type": "approve"} if yes else no)),
            )

        return await go_on(GO)


async def test_a_yes_holds_only_for_what_was_shown(stub: Stub, workspace: Path) -> None:
    stub.script = [
        calling(("0", "Read", READ)),
        calling(("1", "Edit", {**EDIT, "replace_all": True})),
        {"text": "done"},
    ]
    async with Surehand(workspace) as app:
        agent = make_agent(stub, app)
        await agent.ainvoke(GO, thread())
        (workspace / "notes.txt").write_text("alpha\nbeta\nbeta\n")
        await app.call("Read", READ)
        state = await agent.ainvoke(Command(resume=True), thread())
        (asked,) = state["__interrupt__"]
        assert asked.value["text"].count("+gamma") == 2
        refused = await agent.ainvoke(Command(resume=False), thread())
        assert "said no" in tool_messages(stub)["1"]
        assert refused["messages"][-1].text == "done"
        assert "gamma" not in (workspace / "notes.txt").read_text()


async def test_another_process_asks_again_unless_the_digest_comes_back(stub: Stub, workspace: Path) -> None:
    saver = InMemorySaver()
    stub.script = [calling(("1", "Bash", TOUCH)), {"text": "done"}]

    async def resume(command: Any) -> Any:
        async with Surehand(workspace) as app:  # knows nothing of what was asked before
            agent = create_agent(make_model(stub), tools=surehand_tools(app), checkpointer=saver)
            return await agent.ainvoke(command, thread())

    await resume(GO)
    state = await resume(Command(resume=True))
    (asked,) = state["__interrupt__"]
    assert not (workspace / "made.txt").exists()
    state = await resume(Command(resume={"type": "approve", "digest": asked.value["digest"]}))
    assert (workspace / "made.txt").exists()
    assert state["messages"][-1].text == "done"


async def test_two_commands_of_one_message_are_approved_one_by_one(stub: Stub, workspace: Path) -> None:
    stub.script = [calling(("1", "Bash", TOUCH), ("2", "Bash", {"command": "touch other.txt"})), {"text": "done"}]
    async with Surehand(workspace) as app:
        agent = make_agent(stub, app)
        state = await agent.ainvoke(GO, thread())
        answers = {each.id: "approve" if "made" in each.value["text"] else "reject" for each in state["__interrupt__"]}
        assert len(answers) == 2
        await agent.ainvoke(Command(resume=answers), thread())
        assert (workspace / "made.txt").exists()
        assert not (workspace / "other.txt").exists()


async def test_a_tool_that_is_found_is_shown_and_can_be_called(stub: Stub, workspace: Path) -> None:
    stub.script = [
        calling(("1", "ToolSearch", {"query": "select:Changes"})),
        calling(("2", "Changes", {})),
        {"text": "done"},
    ]
    async with Surehand(workspace) as app:
        state = await make_agent(stub, app).ainvoke(GO, thread())
        assert "Changes" not in shown_tools(stub, 0)
        assert "Changes" in shown_tools(stub, 1)
        assert [each.status for each in state["messages"] if each.type == "tool"] == ["success", "success"]


async def test_a_fixed_list_holds_what_is_named_and_nothing_that_leads_nowhere(workspace: Path) -> None:
    async with Surehand(workspace, tools=[word_count]) as app:
        names = [each.name for each in surehand_tools(app)]
        assert "word_count" in names
        assert not {"ToolSearch", "Agent"} & set(names)
        assert [each.name for each in surehand_tools(app, ["Read", "Undo"])] == ["Read", "Undo"]
        by_hand = {each.name: each for each in surehand_tools(app)}
        assert "alpha" in await by_hand["Read"].ainvoke(READ)
        assert "needs permission" in await by_hand["Bash"].ainvoke(TOUCH)


async def test_progress_goes_to_the_custom_stream(stub: Stub, workspace: Path) -> None:
    @tool(read_only=True)
    async def slowly() -> Any:
        "Report while it works."
        yield Progress("half", done=1, total=2)
        yield "finished"

    stub.script = [calling(("1", "slowly", {})), {"text": "done"}]
    async with Surehand(workspace, tools=[slowly]) as app:
        heard = [each async for each in make_agent(stub, app).astream(GO, thread(), stream_mode="custom")]
    assert heard == [{"surehand": {"tool": "slowly", "call_id": "1", "text": "half", "done": 1, "total": 2}}]


def test_plain_code_uses_it_with_the_plain_front(stub: Stub, workspace: Path) -> None:
    stub.script = [calling(("1", "Read", READ), ("2", "Bash", TOUCH)), {"text": "done"}]
    with Surehand.sync(workspace) as app:
        agent = make_agent(stub, app)
        assert len(agent.invoke(GO, thread())["__interrupt__"]) == 1
        agent.invoke(Command(resume="approve"), thread())
        assert "alpha" in tool_messages(stub)["1"]
        assert (workspace / "made.txt").exists()


async def test_plain_invoke_on_the_applications_own_loop_is_told_instead_of_hanging(workspace: Path) -> None:
    from surehand import SurehandError

    async with Surehand(workspace) as app:
        (read,) = surehand_tools(app, ["Read"])
        with pytest.raises(SurehandError, match=r"Surehand\.sync"):
            read.invoke(READ)


async def test_a_tool_of_the_framework_goes_through_our_door(stub: Stub, workspace: Path) -> None:
    @langchain_tool
    def book(seats: int) -> str:
        "Book seats."
        if seats > 4:
            raise ToolException("at most four")
        return f"booked {seats}"

    calls = [("1", "book", {"seats": 2}), ("2", "book", {"seats": 9}), ("3", "book", {"seats": "x"})]
    stub.script = [calling(*calls), {"text": "done"}]
    approver = Says("once")
    async with Surehand(workspace, approver=approver, tools=[wrap(book)]) as app:
        await make_agent(stub, app).ainvoke(GO, thread())
        said = tool_messages(stub)
        assert said["1"] == "booked 2"
        assert "at most four" in said["2"]
        assert "seats" in said["3"]
        assert [each.tool for each in approver.asked] == ["book", "book"]


async def test_results_and_failures_come_with_what_a_program_wants_to_know(stub: Stub, workspace: Path) -> None:
    calls = [("2", "Grep", {"nonsense": 1}), ("3", "Read", {"file_path": "missing.txt"}), ("4", "Edit", EDIT)]
    stub.script = [calling(("1", "Read", READ)), calling(*calls), {"text": "ok"}]
    async with Surehand(workspace, mode="accept-edits") as app:
        state = await make_agent(stub, app).ainvoke(GO, thread())
        results = {each.tool_call_id: each for each in state["messages"] if each.type == "tool"}
        assert [results[id].status for id in "1234"] == ["success", "error", "error", "success"]
        assert results["4"].artifact["undo"]["change_id"]
        codes = [results[id].artifact["error"]["code"] for id in "23"]
        assert codes == ["invalid_args", "execution_error"]
