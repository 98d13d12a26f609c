"""Surehand's tools for OpenAI's client (extra `openai`): Chat Completions, Responses, and its tool runner.

    async with Surehand(".") as app:
        tools = ResponsesTools(app)
        response = await client.responses.create(model=MODEL, input=items, tools=tools.params())
        items += [*response.output, *await tools.answer(response)]

`ChatTools` does the same for Chat Completions. With `Surehand.sync(...)` use `answer_blocking`. The application's
approver is asked for permission; without one, `pending` returns the approvals that are needed, and `answer` takes the
digests of those given. `surehand_functions(app)` returns functions for the client's `AsyncResponsesToolRunner`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Unpack, cast, overload

from openai.lib.responses_tool_runner import AsyncRegisteredFunction, RegisteredFunction
from openai.types.chat import ChatCompletionMessage, ChatCompletionToolParam
from openai.types.responses import FunctionToolParam, Response

from surehand.core.call import Image, Text, ToolCall, ToolResult
from surehand.core.context import ToolContext
from surehand.core.names import provider_safe
from surehand.core.shapes import sendable
from surehand.core.tool import Tool, ToolInfo, ToolOptions
from surehand.integrations.toolbox import (
    AsyncApp,
    FileContent,
    MessageTools,
    SyncApp,
    Toolbox,
    list_content,
    make_call,
    text_of,
    wrap_tool,
)


class ChatTools(MessageTools[ChatCompletionMessage]):
    """The tools for `client.chat.completions`."""

    def params(self) -> list[ChatCompletionToolParam]:
        """Return the tools to show a model now, for each request: it may activate others."""
        return [{"type": "function", "function": cast("Any", _to_function(info))} for info in self._box.list_shown()]

    def _read_calls(self, message: ChatCompletionMessage) -> list[ToolCall]:
        return [
            make_call(self._box.real_name(each.function.name), each.function.arguments, each.id)
            for each in message.tool_calls or ()
            if each.type == "function"
        ]

    def _write_results(
        self, message: ChatCompletionMessage, calls: list[ToolCall], results: list[ToolResult]
    ) -> list[Any]:
        del message
        said: list[Any] = [
            {"role": "tool", "tool_call_id": call.id, "content": sendable(text_of(result))}
            for call, result in zip(calls, results, strict=True)
        ]
        # A tool's message has text alone: images and files follow in a user message.
        parts: list[dict[str, Any]] = []
        for call, result in zip(calls, results, strict=True):
            if media := [_to_chat_part(each) for each in list_content(result) if not isinstance(each, Text)]:
                parts += [{"type": "text", "text": f"What {call.name} returned for the call {call.id}:"}, *media]
        return [*said, {"role": "user", "content": parts}] if parts else said


def _to_function(info: ToolInfo) -> dict[str, Any]:
    return {"name": provider_safe(info.name), "description": info.description, "parameters": info.input_schema}


def _to_chat_part(content: Image | FileContent) -> dict[str, Any]:
    url = f"data:{content.mime_type};base64,{content.data}"
    if isinstance(content, Image):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"filename": content.name or "file", "file_data": url}}


class ResponsesTools(MessageTools[Response]):
    """The tools for `client.responses`."""

    def params(self) -> list[FunctionToolParam]:
        """Return the tools to show a model now, for each request: it may activate others."""
        return [_to_param(info) for info in self._box.list_shown()]

    def _read_calls(self, message: Response) -> list[ToolCall]:
        return [
            make_call(self._box.real_name(item.name), item.arguments, item.call_id)
            for item in message.output
            if item.type == "function_call"
        ]

    def _write_results(self, message: Response, calls: list[ToolCall], results: list[ToolResult]) -> list[Any]:
        del message
        return [
            {"type": "function_call_output", "call_id": call.id, "output": _to_output(result)}
            for call, result in zip(calls, results, strict=True)
        ]


def _to_param(info: ToolInfo) -> FunctionToolParam:
    # Strict mode has no optional parameters; the executor validates arguments anyway.
    return cast("FunctionToolParam", {"type": "function", **_to_function(info), "strict": False})


def _to_output(result: ToolResult) -> Any:
    content = list_content(result)
    if all(isinstance(each, Text) for each in content):
        return sendable(text_of(result))
    return sendable([_to_input_part(each) for each in content])


def _to_input_part(content: Text | Image | FileContent) -> dict[str, Any]:
    match content:
        case Text(text):
            return {"type": "input_text", "text": text}
        case Image(data, mime_type):
            return {"type": "input_image", "detail": "auto", "image_url": f"data:{mime_type};base64,{data}"}
        case FileContent(data, mime_type, name):
            file = f"data:{mime_type};base64,{data}"
            return {"type": "input_file", "filename": name or "file", "file_data": file}


# -- the client's own runner ------------------------------------------------------------------------------------------


@overload
def surehand_functions(app: AsyncApp, tools: Iterable[str] = ()) -> list[AsyncRegisteredFunction]: ...
@overload
def surehand_functions(app: SyncApp, tools: Iterable[str] = ()) -> list[RegisteredFunction]: ...
def surehand_functions(app: Any, tools: Iterable[str] = ()) -> Any:
    """Return the tools as functions of the client's Responses tool runner; `tools` (names, globs) narrows the list."""
    box = Toolbox(app, tools)
    plain = hasattr(app, "inner")

    async def run(name: str, args: dict[str, object]) -> Any:
        return _to_output(await box.call_unasked(name, args))

    def run_blocking(name: str, args: dict[str, object]) -> Any:
        return _to_output(box.call_unasked_blocking(name, args))

    kind: Any = RegisteredFunction if plain else AsyncRegisteredFunction
    execute: Callable[..., Any] = run_blocking if plain else run
    return [
        kind(_to_param(info), partial(execute, info.name), independent=info.concurrency_safe)
        for info in box.list_fixed()
    ]


# -- the other way round ----------------------------------------------------------------------------------------------


def wrap(function: AsyncRegisteredFunction | RegisteredFunction, **options: Unpack[ToolOptions]) -> Tool:
    """Wrap a function of the client's tool runner as a tool of ours: `app.register(wrap(function, read_only=True))`."""
    param = function.tool

    async def invoke(args: Mapping[str, Any], ctx: ToolContext) -> Any:
        del ctx
        if isinstance(function, AsyncRegisteredFunction):
            said: Any = await function.execute(dict(args))
        else:
            said = await asyncio.to_thread(function.execute, dict(args))
        return said if isinstance(said, str) else json.loads(json.dumps(said))

    schema = cast("dict[str, Any]", param.get("parameters") or {"type": "object"})
    return wrap_tool(param["name"], param.get("description") or "", schema, invoke, **options)
