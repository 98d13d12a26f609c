"""The server the official conformance suite talks to, built on Surehand's public API.

    python tests/mcp/conformance_server.py PORT

`make conformance` runs it. Tools, resources and prompts are those the suite asks for.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from surehand import Settings, Surehand, Tool, ToolContext, ToolResult, tool
from surehand.core.call import Foreign, Image, Text
from surehand.core.errors import ToolFailure
from surehand.mcp.server.calls import ClientCall, current
from surehand.mcp.server.http import Door, serve_http
from surehand.mcp.server.resources import Extras, Message, Prompt, Resource
from surehand.mcp.server.serving import Serving

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAVE = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="


def client() -> ClientCall:
    call = current()
    if call is None:
        raise ToolFailure("this tool is for MCP clients")
    return call


def form(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


@tool(read_only=True)
def test_simple_text() -> str:
    "Return a text."
    return "This is a simple text response for testing."


@tool(read_only=True)
def test_image_content() -> Image:
    "Return an image."
    return Image(PIXEL, "image/png")


@tool(read_only=True)
def test_audio_content() -> Foreign:
    "Return a sound."
    return Foreign({"type": "audio", "data": WAVE, "mimeType": "audio/wav"})


def embedded(uri: str, mime_type: str, text: str) -> Foreign:
    return Foreign({"type": "resource", "resource": {"uri": uri, "mimeType": mime_type, "text": text}})


@tool(read_only=True)
def test_embedded_resource() -> Foreign:
    "Return a resource."
    return embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")


@tool(read_only=True)
def test_multiple_content_types() -> ToolResult:
    "Return several kinds of content."
    data = json.dumps({"test": "data", "value": 123})
    resource = embedded("test://mixed-content-resource", "application/json", data)
    return ToolResult(content=(Text("Multiple content types test:"), Image(PIXEL, "image/png"), resource))


@tool(read_only=True)
async def test_tool_with_logging() -> str:
    "Write to the client's log."
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        client().log("info", text)
        await asyncio.sleep(0.05)
    return "Logged three messages."


@tool(read_only=True)
def test_logging_tool() -> str:
    "Write to the client's log once."
    client().log("info", "a message")
    return "Logged."


@tool(read_only=True)
async def test_tool_with_progress(ctx: ToolContext) -> str:
    "Report progress."
    for done in (0, 50, 100):
        ctx.progress(done=done, total=100)
        await asyncio.sleep(0.05)
    return "Done."


@tool(read_only=True)
def test_error_handling() -> str:
    "Fail."
    raise ToolFailure("This tool intentionally returns an error for testing")


@tool(read_only=True)
async def test_sampling(prompt: str) -> str:
    "Ask the client's model."
    said = await client().sample(prompt, max_tokens=100)
    return f"LLM response: {said['content']}"


@tool(read_only=True)
async def test_missing_capability() -> str:
    "Need a model that the client may not have."
    return str(await client().sample("anything", max_tokens=10))


def completed(said: Mapping[str, Any]) -> str:
    content = json.dumps(said.get("content") or {})
    return f"Elicitation completed: action={said['action']}, content={content}"


@tool(read_only=True)
async def test_elicitation(message: str) -> str:
    "Ask the client's user."
    answer = {"type": "string", "description": "User's response"}
    email = {"type": "string", "description": "User's email address"}
    said = await client().elicit(message, form(username=answer, email=email))
    return f"User response: {completed(said)}"


@tool(read_only=True)
async def test_streaming_elicitation() -> str:
    "Ask the client's user, over a stream."
    return completed(await client().elicit("Go on?", form(ok={"type": "boolean"})))


@tool(read_only=True)
async def test_elicitation_sep1034_defaults() -> str:
    "Ask with defaults."
    fields = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    return completed(await client().elicit("Please check these values", form(**fields)))


@tool(read_only=True)
async def test_elicitation_sep1330_enums() -> str:
    "Ask with every kind of choice."
    plain = ["option1", "option2", "option3"]
    titled = [{"const": f"value{number}", "title": f"Choice {number}"} for number in (1, 2, 3)]
    fields: dict[str, Any] = {
        "untitledSingle": {"type": "string", "enum": plain},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    return completed(await client().elicit("Please choose", {"type": "object", "properties": fields, "required": []}))


@tool(read_only=True)
async def test_reconnection() -> str:
    "Close the stream and go on."
    close = client().close_stream
    if close is not None:
        await close()
    await asyncio.sleep(0.2)
    return "Reconnection test completed"


NAME = form(name={"type": "string"})


@tool(read_only=True)
async def test_input_required_result_elicitation() -> str:
    "Ask for a name."
    said = await client().elicit("What is your name?", NAME, key="user_name")
    return f"Hello, {(said.get('content') or {}).get('name', 'nobody')}!"


@tool(read_only=True)
async def test_input_required_result_sampling() -> str:
    "Ask the model for a capital."
    said = await client().sample("What is the capital of France?", max_tokens=100, key="capital_question")
    return f"The model said: {said['content']}"


@tool(read_only=True)
async def test_input_required_result_list_roots() -> str:
    "Ask for the client's folders."
    return json.dumps((await client().roots(key="client_roots"))["roots"])


@tool(read_only=True)
async def test_input_required_result_request_state() -> str:
    "Ask for a confirmation."
    said = await client().elicit("Please confirm", form(ok={"type": "boolean"}), key="confirm")
    return f"state-ok {said['action']}"


@tool(read_only=True)
async def test_input_required_result_tampered_state() -> str:
    "Ask for a confirmation, with a state that must not be changed."
    said = await client().elicit("Please confirm", form(ok={"type": "boolean"}), key="confirm")
    return f"state-ok {said['action']}"


@tool(read_only=True)
async def test_input_required_result_multiple_inputs() -> str:
    "Ask for three things at once."
    call = client()
    name, greeting, roots = await asyncio.gather(
        call.elicit("What is your name?", NAME, key="user_name"),
        call.sample("Generate a greeting", max_tokens=50, key="greeting"),
        call.roots(key="client_roots"),
    )
    return json.dumps([name, greeting, roots])


@tool(read_only=True)
async def test_input_required_result_multi_round() -> str:
    "Ask twice, one after the other."
    name = await client().elicit("Step 1: What is your name?", NAME, key="step1")
    color = await client().elicit("Step 2: What is your favorite color?", form(color={"type": "string"}), key="step2")
    return json.dumps([name, color])


@tool(read_only=True)
async def test_input_required_result_capabilities() -> str:
    "Ask only for what the client offers."
    call = client()
    asked: list[Any] = []
    if "sampling" in call.capabilities:
        asked.append(call.sample("Generate a greeting", max_tokens=50, key="greeting"))
    if "elicitation" in call.capabilities:
        asked.append(call.elicit("What is your name?", NAME, key="user_name"))
    return json.dumps(await asyncio.gather(*asked))


SCHEMA_2020_12: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
json_schema = Tool(
    name="json_schema_2020_12_tool",
    description="Tool with JSON Schema 2020-12 features",
    args=SCHEMA_2020_12,
    run=lambda args, ctx: json.dumps(dict(args)),
    read_only=True,
)
headers = Tool(
    name="test_headers",
    description="Mirrors an argument into an HTTP header.",
    args={
        "type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}, "query": {"type": "string"}},
        "required": ["region"],
    },
    run=lambda args, ctx: json.dumps(dict(args)),
    read_only=True,
)
TOOLS = [each for each in globals().values() if isinstance(each, Tool)]


async def ask_context(given: Mapping[str, str]) -> Sequence[Message]:
    said = await client().elicit(
        "What context should the prompt use?", form(context={"type": "string"}), key="user_context"
    )
    return [("user", f"Use this context: {said.get('content')}")]


def with_arguments(given: Mapping[str, str]) -> Sequence[Message]:
    return [("user", f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'")]


def with_resource(given: Mapping[str, str]) -> Sequence[Message]:
    resource = embedded(given["resourceUri"], "text/plain", "Embedded resource content for testing.")
    return [("user", resource), ("user", "Please process the embedded resource above.")]


def with_image(given: Mapping[str, str]) -> Sequence[Message]:
    return [("user", Image(PIXEL, "image/png")), ("user", "Please analyze the image above.")]


def of_template(uri: str, client: Any) -> str:
    number = uri.split("/")[-2]
    return json.dumps({"id": number, "templateTest": True, "data": f"Data for ID: {number}"})


PROMPTS = [
    Prompt("test_simple_prompt", lambda given: [("user", "This is a simple prompt for testing.")], "A simple prompt."),
    Prompt(
        "test_prompt_with_arguments",
        with_arguments,
        "A prompt with arguments.",
        {"arg1": "First test argument", "arg2": "Second test argument"},
        ("arg1", "arg2"),
    ),
    Prompt(
        "test_prompt_with_embedded_resource",
        with_resource,
        "A prompt with a resource.",
        {"resourceUri": "URI of the resource to embed"},
        ("resourceUri",),
    ),
    Prompt("test_prompt_with_image", with_image, "A prompt with an image."),
    Prompt("test_input_required_result_prompt", ask_context, "A prompt that asks."),
]
RESOURCES = [
    Resource(
        "test://static-text", "Static text", lambda uri, client: "This is the content of the static text resource."
    ),
    Resource("test://static-binary", "Static binary", lambda uri, client: b"\x89PNG\r\n", mime_type="image/png"),
    Resource("test://watched-resource", "Watched", lambda uri, client: "Watched."),
    Resource("test://template/{id}/data", "Template", of_template, mime_type="application/json"),
]


def complete(about: str, argument: str, beginning: str) -> Sequence[str]:
    return [word for word in ("paris", "park", "party") if word.startswith(beginning)]


def serving(workspace: str) -> Serving:
    """Return the server of the fixture, over an empty workspace."""
    served: list[Serving] = []
    changes = 0

    @tool(read_only=True)
    async def test_trigger_tool_change() -> str:
        "Add a tool."
        nonlocal changes
        changes += 1

        @tool(name=f"added_{changes}", read_only=True)
        def added() -> str:
            "Was added."
            return "added"

        for app in apps:
            app.register(added)
        return "added"

    @tool(read_only=True)
    async def test_trigger_prompt_change() -> str:
        "Change the prompts."
        await served[0].prompts_changed()
        return "changed"

    apps: list[Surehand] = []

    def open_app(approver: Any, root: str | None) -> Surehand:
        tools = [*TOOLS, test_trigger_tool_change, test_trigger_prompt_change]
        app = Surehand(root or workspace, settings=Settings(), approver=approver, builtin=False, tools=tools)
        apps.append(app)
        return app

    extras = Extras(RESOURCES, PROMPTS, complete)
    served.append(Serving(open_app, name="surehand-conformance", version="1.0.0", extras=extras, follow_roots=False))
    return served[0]


async def main(port: int) -> None:
    with tempfile.TemporaryDirectory() as workspace:
        os.environ["SUREHAND_HOME"] = os.path.join(workspace, "home")
        door = Door("127.0.0.1", (), None)
        await serve_http(serving(workspace), door, port, lambda url: print(url, file=sys.stderr, flush=True))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
