"""Anthropic's client, its tool runner and a loop of one's own, with the real package and a server on loopback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from anthropic import Anthropic, AsyncAnthropic, beta_async_tool, beta_tool
from anthropic.lib.tools import ToolError
from tests.integrations.scenario import Run, Scenario, converse, word_count
from tests.integrations.script import EDIT, READ, TOUCH, calling, shown_functions
from tests.providers.model_stub import Stub

from surehand import Surehand
from surehand.integrations.anthropic import SurehandTools, surehand_tools, wrap
from surehand.testing import Says

pytestmark = pytest.mark.spec("INT-1")

GO: Any = [{"role": "user", "content": "go"}]


async def run(stub: Stub, app: Any) -> str:
    client = AsyncAnthropic(base_url=stub.address, api_key="none")
    runner = client.beta.messages.tool_runner(model="x", max_tokens=100, messages=GO, tools=surehand_tools(app))
    final = await runner.until_done()
    return "".join(block.text for block in final.content if block.type == "text")


def tool_results(stub: Stub) -> dict[str, Any]:
    """The results that were sent, by the call's id; the runner may send only what is new."""
    blocks = [
        block
        for request in stub.requests
        for message in request["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_result"
    ]
    return {each["tool_use_id"]: each for each in blocks}


class TestAnthropic(Scenario):
    """In a loop of one's own, where approvals are given between requests."""

    refusal = "needs permission"

    def said(self, stub: Stub) -> dict[str, Any]:
        return tool_results(stub)

    def shown(self, stub: Stub, request: int) -> list[str]:
        return shown_functions(stub, request)

    def has_image(self, stub: Stub) -> bool:
        image = tool_results(stub)["1"]["content"][-1]
        return (image["type"], image["source"]["media_type"]) == ("image", "image/png")

    async def run(self, stub: Stub, app: Any) -> Run:
        tools, client = SurehandTools(app), AsyncAnthropic(base_url=stub.address, api_key="none")
        messages: list[Any] = list(GO)
        return await converse(
            tools,
            lambda: client.messages.create(model="x", max_tokens=100, messages=messages, tools=tools.params()),
            lambda turn, answers: messages.extend([{"role": "assistant", "content": turn.content}, *answers]),
            lambda turn: turn.content[0].text,
        )


async def test_it_searches_reads_edits_and_the_change_can_be_undone(stub: Stub, workspace: Path) -> None:
    stub.script = [
        calling(("1", "Grep", {"pattern": "beta"}), ("2", "Read", READ), ("3", "word_count", {"text": "a b"})),
        calling(("4", "Edit", EDIT)),
        {"text": "done"},
    ]
    async with Surehand(workspace, mode="accept-edits", tools=[word_count]) as app:
        assert await run(stub, app) == "done"
        assert "word_count" in shown_functions(stub, 0)
        assert "ToolSearch" not in shown_functions(stub, 0)
        said = tool_results(stub)
        assert "notes.txt" in said["1"]["content"][0]["text"]
        assert "2\tbeta" in said["2"]["content"][0]["text"]
        assert said["3"]["content"][0]["text"] == "2"
        assert (workspace / "notes.txt").read_text() == "alpha\ngamma\n"
        assert (await app.undo()).ok
        assert (workspace / "notes.txt").read_text() == "alpha\nbeta\n"


async def test_a_command_is_refused_without_an_approver_and_runs_with_one(stub: Stub, workspace: Path) -> None:
    stub.script = [calling(("1", "Bash", TOUCH)), {"text": "sorry"}]
    async with Surehand(workspace) as app:
        await run(stub, app)
        assert tool_results(stub)["1"]["is_error"]
        assert not (workspace / "made.txt").exists()
    stub.script = [calling(("1", "Bash", TOUCH)), {"text": "done"}]
    async with Surehand(workspace, approver=Says("once")) as app:
        await run(stub, app)
        assert (workspace / "made.txt").exists()


async def test_in_a_loop_of_ones_own_approvals_are_given_between_requests(stub: Stub, workspace: Path) -> None:
    other = {"command": "touch other.txt"}
    stub.script = [
        calling(("1", "Bash", TOUCH), ("2", "Bash", other), ("3", "ToolSearch", {"query": "select:Changes"}))
    ]
    async with Surehand(workspace) as app:
        tools, client = SurehandTools(app), AsyncAnthropic(base_url=stub.address, api_key="none")
        turn = await client.messages.create(model="x", max_tokens=100, messages=GO, tools=tools.params())
        waiting = await tools.pending(turn)
        assert set(waiting) == {"1", "2"}
        (message,) = await tools.answer(turn, {"1": waiting["1"]["digest"]})
        assert [block.get("is_error", False) for block in message["content"]] == [False, True, False]
        assert (workspace / "made.txt").exists()
        assert not (workspace / "other.txt").exists()
        assert "Changes" in [each["name"] for each in tools.params()]


def test_plain_code_uses_the_plain_client(stub: Stub, workspace: Path) -> None:
    stub.script = [calling(("1", "Read", READ)), {"text": "done"}]
    client = Anthropic(base_url=stub.address, api_key="none")
    with Surehand.sync(workspace) as app:
        runner = client.beta.messages.tool_runner(model="x", max_tokens=100, messages=GO, tools=surehand_tools(app))
        assert runner.until_done().content[0].text == "done"
        assert "alpha" in tool_results(stub)["1"]["content"][0]["text"]


async def test_tools_of_the_client_go_through_our_door(stub: Stub, workspace: Path) -> None:
    @beta_tool
    def book(seats: int) -> str:
        """Book seats."""
        if seats > 4:
            raise ToolError("at most four")
        return f"booked {seats}"

    @beta_async_tool
    async def look(place: str) -> Any:
        """Look at a place."""
        return [{"type": "text", "text": f"at {place}"}]

    stub.script = [
        calling(("1", "book", {"seats": 2}), ("2", "book", {"seats": 9}), ("3", "look", {"place": "sea"})),
        {"text": "done"},
    ]
    approver = Says("once")
    async with Surehand(workspace, approver=approver, tools=[wrap(book), wrap(look, read_only=True)]) as app:
        await run(stub, app)
        said = {id: each["content"][0]["text"] for id, each in tool_results(stub).items()}
        assert said["1"] == "booked 2"
        assert "at most four" in said["2"]
        assert said["3"] == "at sea"
        assert [each.tool for each in approver.asked] == ["book", "book"]
