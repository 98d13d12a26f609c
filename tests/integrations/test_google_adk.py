"""Google's Agent Development Kit with the real package, and Gemini's API on loopback."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.models.google_llm import Gemini
from google.adk.runners import InMemoryRunner
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from tests.integrations.script import EDIT, READ, TOUCH
from tests.providers.model_stub import Stub

from surehand import Surehand, tool
from surehand.integrations.google_adk import SurehandToolset, wrap
from surehand.testing import Says

pytestmark = pytest.mark.spec("INT-1")

CONFIRM = "adk_request_confirmation"


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "none")


def saying(*calls: tuple[str, str, dict[str, Any]], text: str = "") -> dict[str, Any]:
    """A step that answers in the shape of Gemini's API."""
    parts: list[dict[str, Any]] = [{"functionCall": {"id": id, "name": name, "args": args}} for id, name, args in calls]
    parts += [{"text": text}] if text else []
    return {"whole": {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]}}


def responses(stub: Stub) -> dict[str, Any]:
    """What the last request answered to calls, by the tool's name."""
    found: dict[str, Any] = {}
    for content in stub.requests[-1]["contents"]:
        for part in content["parts"]:
            if "functionResponse" in part:
                found.setdefault(part["functionResponse"]["name"], []).append(part["functionResponse"])
    return found


def shown(stub: Stub, request: int) -> list[str]:
    return [each["name"] for group in stub.requests[request]["tools"] for each in group["functionDeclarations"]]


class Chat:
    """One conversation with an agent that has our tools."""

    def __init__(self, stub: Stub, app: Any) -> None:
        model = Gemini(model="gemini-2.5-flash", base_url=stub.address)
        self._runner = InMemoryRunner(LlmAgent(name="coder", model=model, tools=[SurehandToolset(app)]))
        self._session = ""

    async def send(self, *parts: types.Part) -> list[Any]:
        if not self._session:
            made = await self._runner.session_service.create_session(app_name=self._runner.app_name, user_id="me")
            self._session = made.id
        message = types.Content(role="user", parts=list(parts) or [types.Part(text="go")])
        events = self._runner.run_async(user_id="me", session_id=self._session, new_message=message)
        return [event async for event in events]

    async def confirm(self, events: list[Any], answer: dict[str, Any]) -> list[Any]:
        (asked,) = [call for event in events for call in event.get_function_calls() if call.name == CONFIRM]
        said = types.FunctionResponse(id=asked.id, name=CONFIRM, response=answer)
        return await self.send(types.Part(function_response=said))


def asked_in(events: list[Any]) -> dict[str, Any]:
    (call,) = [call for event in events for call in event.get_function_calls() if call.name == CONFIRM]
    return call.args["toolConfirmation"]


@tool(read_only=True)
def word_count(text: str) -> int:
    "Count the words of a text."
    return len(text.split())


async def test_it_searches_reads_edits_and_the_change_can_be_undone(stub: Stub, workspace: Path) -> None:
    stub.script = [
        saying(("1", "Grep", {"pattern": "beta"}), ("2", "Read", READ), ("3", "word_count", {"text": "a b"})),
        saying(("4", "Edit", EDIT)),
        saying(text="done"),
    ]
    async with Surehand(workspace, mode="accept-edits", tools=[word_count]) as app:
        events = await Chat(stub, app).send()
        assert events[-1].content.parts[0].text == "done"
        assert "word_count" in shown(stub, 0)
        said = responses(stub)
        assert "notes.txt" in said["Grep"][0]["response"]["result"]
        assert "2\tbeta" in said["Read"][0]["response"]["result"]
        assert said["word_count"][0]["response"]["result"] == "2"
        assert (workspace / "notes.txt").read_text() == "alpha\ngamma\n"
        assert (await app.undo()).ok
        assert (workspace / "notes.txt").read_text() == "alpha\nbeta\n"


async def test_a_command_requests_a_confirmation_and_runs_once_it_is_there(stub: Stub, workspace: Path) -> None:
    stub.script = [saying(("1", "Bash", TOUCH)), saying(text="done")]
    async with Surehand(workspace) as app:
        chat = Chat(stub, app)
        events = await chat.send()
        assert "touch made.txt" in asked_in(events)["hint"]
        assert not (workspace / "made.txt").exists()
        events = await chat.confirm(events, {"confirmed": True})
        assert events[-1].content.parts[0].text == "done"
        assert (workspace / "made.txt").exists()


async def test_a_refused_command_does_not_run_and_the_model_is_told(stub: Stub, workspace: Path) -> None:
    stub.script = [saying(("1", "Bash", TOUCH)), saying(text="sorry")]
    async with Surehand(workspace) as app:
        chat = Chat(stub, app)
        await chat.confirm(await chat.send(), {"confirmed": False})
        assert "said no" in responses(stub)["Bash"][-1]["response"]["error"]
        assert not (workspace / "made.txt").exists()


async def test_a_yes_does_not_hold_once_the_file_has_changed(stub: Stub, workspace: Path) -> None:
    edit = {**EDIT, "replace_all": True}
    stub.script = [saying(("0", "Read", READ)), saying(("1", "Edit", edit)), saying(text="done")]
    async with Surehand(workspace) as app:
        chat = Chat(stub, app)
        events = await chat.send()
        (workspace / "notes.txt").write_text("alpha\nbeta\nbeta\n")
        await app.call("Read", READ)
        await chat.confirm(events, {"confirmed": True, "payload": asked_in(events)["payload"]})
        assert "not what was approved" in responses(stub)["Edit"][-1]["response"]["error"]
        assert "gamma" not in (workspace / "notes.txt").read_text()


async def test_an_application_with_an_approver_asks_that_one(stub: Stub, workspace: Path) -> None:
    stub.script = [saying(("1", "Bash", TOUCH)), saying(text="done")]
    approver = Says("once")
    async with Surehand(workspace, approver=approver) as app:
        await Chat(stub, app).send()
        assert len(approver.asked) == 1
        assert (workspace / "made.txt").exists()


async def test_an_image_reaches_the_model(stub: Stub, workspace: Path) -> None:
    stub.script = [saying(("1", "Read", {"file_path": "logo.png"})), saying(text="red")]
    async with Surehand(workspace) as app:
        await Chat(stub, app).send()
        assert responses(stub)["Read"][0]["parts"][0]["inline_data"]["mime_type"] == "image/png"


async def test_a_batch_keeps_its_order_and_failures_are_errors(stub: Stub, workspace: Path) -> None:
    new = {"file_path": "new.txt"}
    stub.script = [
        saying(("1", "Write", {**new, "content": "fresh\n"}), ("2", "Read", new), ("3", "Grep", {"nonsense": 1})),
        saying(text="done"),
    ]
    async with Surehand(workspace, mode="accept-edits") as app:
        await Chat(stub, app).send()
        said = responses(stub)
        assert "fresh" in said["Read"][0]["response"]["result"]
        assert "invalid_args" in said["Grep"][0]["response"]["error"]


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

    stub.script = [saying(("1", "wait_long", {}))]
    async with Surehand(workspace, tools=[wait_long]) as app:
        run = asyncio.create_task(Chat(stub, app).send())
        await started.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        await app.close()
        assert (workspace / "stopped").exists()


async def test_a_tool_that_is_found_is_there_in_the_next_step(stub: Stub, workspace: Path) -> None:
    stub.script = [saying(("1", "ToolSearch", {"query": "select:Changes"})), saying(text="done")]
    async with Surehand(workspace) as app:
        await Chat(stub, app).send()
        assert "Changes" not in shown(stub, 0)
        assert "Changes" in shown(stub, 1)


async def test_a_tool_of_the_framework_goes_through_our_door(stub: Stub, workspace: Path) -> None:
    def book(seats: int) -> dict[str, Any]:
        "Book seats."
        return {"error": "at most four"} if seats > 4 else {"booked": seats}

    def whoami(tool_context: ToolContext) -> str:
        "Say who calls."
        return str(tool_context.agent_name)

    stub.script = [
        saying(("1", "book", {"seats": 2}), ("2", "book", {"seats": 9}), ("3", "whoami", {})),
        saying(text="done"),
    ]
    approver = Says("once")
    tools = [wrap(FunctionTool(book)), wrap(FunctionTool(whoami), read_only=True)]
    async with Surehand(workspace, approver=approver, tools=tools) as app:
        await Chat(stub, app).send()
        said = responses(stub)
        assert said["book"][0]["response"]["result"] == '{"booked": 2}'
        assert "at most four" in said["book"][1]["response"]["error"]
        assert said["whoami"][0]["response"]["result"] == "coder"
        assert [each.tool for each in approver.asked] == ["book", "book"]
        assert (await app.call("book", {"seats": 1})).data == {"booked": 1}
        assert not (await app.call("book", {"seats": "x"})).ok
