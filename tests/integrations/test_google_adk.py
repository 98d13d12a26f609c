"""Google's Agent Development Kit with the real package, and Gemini's API on loopback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.models.google_llm import Gemini
from google.adk.runners import InMemoryRunner
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from tests.integrations.scenario import Call, Run, Scenario
from tests.providers.model_stub import Stub

from surehand import Surehand
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
    calls = [call for event in events for call in event.get_function_calls() if call.name == CONFIRM]
    return calls[0].args["toolConfirmation"] if calls else {}


class TestGoogleADK(Scenario):
    refusal = "said no"

    def step(self, *calls: Call, text: str = "") -> dict[str, Any]:
        return saying(*calls, text=text)

    def said(self, stub: Stub) -> dict[str, Any]:
        return {each["id"]: each["response"] for found in responses(stub).values() for each in found}

    def shown(self, stub: Stub, request: int) -> list[str]:
        return shown(stub, request)

    def has_image(self, stub: Stub) -> bool:
        return responses(stub)["Read"][0]["parts"][0]["inline_data"]["mime_type"] == "image/png"

    async def run(self, stub: Stub, app: Any) -> Run:
        chat = Chat(stub, app)

        def read_run(events: list[Any]) -> Run:
            if not (asked := asked_in(events)):
                return Run(events[-1].content.parts[0].text)

            async def answer(yes: bool) -> Run:
                return read_run(await chat.confirm(events, {"confirmed": yes, "payload": asked["payload"]}))

            return Run(asked=asked["hint"], answer=answer)

        return read_run(await chat.send())


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
