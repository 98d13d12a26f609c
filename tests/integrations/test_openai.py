"""OpenAI's client, Chat Completions and Responses, with the real package and a model's server on loopback."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI
from openai.lib.responses_tool_runner import AsyncRegisteredFunction, AsyncResponsesToolRunner, ResponsesToolRunner
from tests.integrations.scenario import ResponsesScenario, Run, Scenario, converse
from tests.integrations.script import READ, TOUCH, calling, function_outputs, responding, tool_messages
from tests.providers.model_stub import Stub

from surehand import Surehand, ToolCall
from surehand.integrations.openai import ChatTools, ResponsesTools, surehand_functions, wrap
from surehand.testing import Says

pytestmark = pytest.mark.spec("INT-1")


def client(stub: Stub) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{stub.address}/v1", api_key="none")


class TestChatCompletions(Scenario):
    refusal = "needs permission"

    async def run(self, stub: Stub, app: Any) -> Run:
        tools, messages = ChatTools(app), list[Any]([{"role": "user", "content": "go"}])

        async def ask() -> Any:
            turn = await client(stub).chat.completions.create(model="x", messages=messages, tools=tools.params())
            return turn.choices[0].message

        def extend(message: Any, answers: Sequence[Any]) -> None:
            messages.extend([message, *answers])

        return await converse(tools, ask, extend, lambda message: message.content)

    async def test_arguments_that_are_no_json_are_told(self, stub: Stub, workspace: Path) -> None:
        stub.script = [{"calls": [("1", "Read", '{"file_path": ')]}, {"text": "sorry"}]
        async with Surehand(workspace) as app:
            await self.run(stub, app)
            assert "JSON" in tool_messages(stub)["1"]


class TestResponses(ResponsesScenario):
    refusal = "needs permission"

    async def run(self, stub: Stub, app: Any) -> Run:
        tools, items = ResponsesTools(app), list[Any]([{"role": "user", "content": "go"}])
        return await converse(
            tools,
            lambda: client(stub).responses.create(model="x", input=items, tools=tools.params()),
            lambda response, answers: items.extend([*response.output, *answers]),
            lambda response: response.output_text,
        )


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
