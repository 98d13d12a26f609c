"""OpenAI's client, Chat Completions and Responses, with the real package and a model's server on loopback."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI
from openai.lib.responses_tool_runner import AsyncRegisteredFunction, AsyncResponsesToolRunner, ResponsesToolRunner
from tests.integrations.script import (
    EDIT,
    READ,
    TOUCH,
    calling,
    function_outputs,
    responding,
    shown_functions,
    shown_tools,
    tool_messages,
)
from tests.providers.model_stub import Stub

from surehand import Surehand, ToolCall, tool
from surehand.integrations.openai import ChatTools, ResponsesTools, surehand_functions, wrap
from surehand.testing import Says

pytestmark = pytest.mark.spec("INT-1")


def client(stub: Stub) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{stub.address}/v1", api_key="none")


async def chat(stub: Stub, app: Any) -> str:
    tools, messages = ChatTools(app), list[Any]([{"role": "user", "content": "go"}])
    while True:
        turn = await client(stub).chat.completions.create(model="x", messages=messages, tools=tools.params())
        message = turn.choices[0].message
        if not message.tool_calls:
            return message.content or ""
        messages += [message, *await tools.answer(message)]


async def respond(stub: Stub, app: Any) -> str:
    tools, items = ResponsesTools(app), list[Any]([{"role": "user", "content": "go"}])
    while True:
        response = await client(stub).responses.create(model="x", input=items, tools=tools.params())
        if not (answers := await tools.answer(response)):
            return response.output_text
        items += [*response.output, *answers]


@tool(read_only=True)
def word_count(text: str) -> int:
    "Count the words of a text."
    return len(text.split())


async def test_chat_searches_reads_edits_and_the_change_can_be_undone(stub: Stub, workspace: Path) -> None:
    stub.script = [
        calling(("1", "Grep", {"pattern": "beta"}), ("2", "Read", READ), ("3", "word_count", {"text": "a b"})),
        calling(("4", "Edit", EDIT)),
        {"text": "done"},
    ]
    async with Surehand(workspace, mode="accept-edits", tools=[word_count]) as app:
        assert await chat(stub, app) == "done"
        assert "word_count" in shown_tools(stub, 0)
        said = tool_messages(stub)
        assert "notes.txt" in said["1"]
        assert "2\tbeta" in said["2"]
        assert said["3"] == "2"
        assert (workspace / "notes.txt").read_text() == "alpha\ngamma\n"
        assert (await app.undo()).ok
        assert (workspace / "notes.txt").read_text() == "alpha\nbeta\n"


async def test_responses_searches_reads_edits_and_finds_a_tool(stub: Stub, workspace: Path) -> None:
    stub.script = [
        responding(("1", "Grep", {"pattern": "beta"}), ("2", "Read", READ)),
        responding(("3", "Edit", EDIT), ("4", "ToolSearch", {"query": "select:Changes"})),
        responding(text="done"),
    ]
    async with Surehand(workspace, mode="accept-edits") as app:
        assert await respond(stub, app) == "done"
        assert "Changes" not in shown_functions(stub, 0)
        assert "Changes" in shown_functions(stub, 2)
        assert "2\tbeta" in function_outputs(stub)["2"]
        assert (workspace / "notes.txt").read_text() == "alpha\ngamma\n"


async def test_an_approver_of_the_application_is_asked(stub: Stub, workspace: Path) -> None:
    approver = Says("once")
    async with Surehand(workspace, approver=approver) as app:
        stub.script = [calling(("1", "Bash", TOUCH)), {"text": "done"}]
        await chat(stub, app)
        stub.script = [responding(("1", "Bash", {"command": "touch other.txt"})), responding(text="done")]
        await respond(stub, app)
        assert len(approver.asked) == 2
        assert (workspace / "made.txt").exists()
        assert (workspace / "other.txt").exists()


async def test_without_one_what_waits_is_told_and_runs_by_its_digest(stub: Stub, workspace: Path) -> None:
    other = {"command": "touch other.txt"}
    stub.script = [calling(("1", "Bash", TOUCH), ("2", "Bash", other), ("3", "Read", READ))]
    async with Surehand(workspace) as app:
        tools = ChatTools(app)
        messages: Any = [{"role": "user", "content": "go"}]
        turn = await client(stub).chat.completions.create(model="x", messages=messages, tools=tools.params())
        message = turn.choices[0].message
        waiting = await tools.pending(message)
        assert set(waiting) == {"1", "2"}
        assert "touch made.txt" in waiting["1"]["text"]
        answers = await tools.answer(message, {"1": waiting["1"]["digest"], "2": waiting["1"]["digest"]})
        said = {each["tool_call_id"]: each["content"] for each in answers}
        assert (workspace / "made.txt").exists()
        assert not (workspace / "other.txt").exists()
        assert "not what was approved" in said["2"]
        assert "alpha" in said["3"]


async def test_a_refused_command_is_told(stub: Stub, workspace: Path) -> None:
    stub.script = [responding(("1", "Bash", TOUCH)), responding(text="sorry")]
    async with Surehand(workspace) as app:
        await respond(stub, app)
        assert "needs permission" in function_outputs(stub)["1"]
        assert not (workspace / "made.txt").exists()


async def test_an_image_reaches_the_model_either_way(stub: Stub, workspace: Path) -> None:
    async with Surehand(workspace) as app:
        stub.script = [calling(("1", "Read", {"file_path": "logo.png"})), {"text": "red"}]
        await chat(stub, app)
        last = stub.requests[-1]["messages"][-1]
        assert last["role"] == "user"
        assert last["content"][-1]["image_url"]["url"].startswith("data:image/png;base64,")
        stub.script = [responding(("1", "Read", {"file_path": "logo.png"})), responding(text="red")]
        await respond(stub, app)
        assert function_outputs(stub)["1"][-1]["image_url"].startswith("data:image/png;base64,")


async def test_arguments_that_are_no_json_are_told(stub: Stub, workspace: Path) -> None:
    stub.script = [{"calls": [("1", "Read", '{"file_path": ')]}, {"text": "sorry"}]
    async with Surehand(workspace) as app:
        await chat(stub, app)
        assert "JSON" in tool_messages(stub)["1"]


async def test_a_batch_keeps_its_order(stub: Stub, workspace: Path) -> None:
    new = {"file_path": "new.txt"}
    stub.script = [
        calling(("1", "Write", {**new, "content": "fresh\n"}), ("2", "Read", new), ("3", "Read", READ)),
        {"text": "done"},
    ]
    async with Surehand(workspace, mode="accept-edits") as app:
        await chat(stub, app)
        assert "fresh" in tool_messages(stub)["2"]
        assert "alpha" in tool_messages(stub)["3"]


async def test_cancelling_the_loop_stops_the_call(stub: Stub, workspace: Path) -> None:
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
        run = asyncio.create_task(chat(stub, app))
        await started.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert (workspace / "stopped").exists()


def test_plain_code_uses_the_plain_client(stub: Stub, workspace: Path) -> None:
    plain = OpenAI(base_url=f"{stub.address}/v1", api_key="none")
    stub.script = [calling(("1", "Read", READ), ("2", "Bash", TOUCH)), {"text": "done"}]
    with Surehand.sync(workspace) as app:
        tools = ChatTools(app)
        messages: list[Any] = [{"role": "user", "content": "go"}]
        message = plain.chat.completions.create(model="x", messages=messages, tools=tools.params()).choices[0].message
        approved = {id: each["digest"] for id, each in tools.pending_blocking(message).items()}
        answers = tools.answer_blocking(message, approved)
        assert "alpha" in answers[0]["content"]
        assert (workspace / "made.txt").exists()


async def test_the_clients_own_runner_takes_the_tools(stub: Stub, workspace: Path) -> None:
    stub.script = [
        responding(("1", "Read", {"file_path": "logo.png"}), ("2", "Bash", TOUCH), ("3", "Grep", {"pattern": "beta"})),
        responding(text="done"),
    ]
    async with Surehand(workspace) as app:
        runner = AsyncResponsesToolRunner(functions=surehand_functions(app))
        response = await runner.run(client(stub), {"model": "x", "input": "go"})
        assert response.output_text == "done"
        said = function_outputs(stub)
        assert said["1"][-1]["type"] == "input_image"
        assert "needs permission" in said["2"]
        assert "notes.txt" in said["3"]


def test_the_clients_own_plain_runner_takes_them_too(stub: Stub, workspace: Path) -> None:
    stub.script = [responding(("1", "Read", READ)), responding(text="done")]
    with Surehand.sync(workspace) as app:
        runner = ResponsesToolRunner(functions=surehand_functions(app))
        plain = OpenAI(base_url=f"{stub.address}/v1", api_key="none")
        assert runner.run(plain, {"model": "x", "input": "go"}).output_text == "done"
        assert "alpha" in function_outputs(stub)["1"]


async def test_a_function_of_the_runner_goes_through_our_door(workspace: Path) -> None:
    async def book(args: dict[str, object]) -> str:
        return f"booked {args['seats']}"

    schema: dict[str, object] = {
        "type": "object",
        "properties": {"seats": {"type": "integer"}},
        "required": ["seats"],
    }
    function = AsyncRegisteredFunction(
        {"type": "function", "name": "book", "description": "Book seats.", "parameters": schema, "strict": False}, book
    )
    approver = Says("once")
    async with Surehand(workspace, approver=approver, tools=[wrap(function)]) as app:
        results = await app.run_calls([ToolCall("book", {"seats": 2}), ToolCall("book", {"seats": "x"})])
        assert results[0].output == "booked 2"
        assert not results[1].ok
        assert len(approver.asked) == 1
