"""Surehand's tools for Anthropic's client (extra `anthropic`): for its tool runner, and for a program's own loop.

    async with Surehand(".") as app:
        tools = surehand_tools(app)
        runner = client.beta.messages.tool_runner(model=MODEL, max_tokens=4000, messages=messages, tools=tools)
        final = await runner.until_done()

With `Surehand.sync(...)` the tools are for the synchronous client. The runner cannot wait for an approval: the
application's approver is asked for permission, and without one calls that need it are refused. `SurehandTools` is for a
program's own loop, where approvals can be given between two requests (`pending`, `answer`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Unpack, cast, overload

from anthropic.lib.tools import (
    BetaAsyncBuiltinFunctionTool,
    BetaAsyncFunctionTool,
    BetaBuiltinFunctionTool,
    BetaFunctionTool,
    BetaFunctionToolResultType,
    ToolError,
)
from anthropic.types import Message, ToolParam
from anthropic.types.beta import BetaMessage, BetaToolParam

from surehand.core.call import Image, Text, ToolCall, ToolResult, block_of_any_shape
from surehand.core.context import ToolContext
from surehand.core.errors import ToolFailure
from surehand.core.names import provider_safe
from surehand.core.shapes import sendable
from surehand.core.tool import Tool, ToolInfo, ToolOptions
from surehand.integrations.toolbox import (
    AsyncApp,
    FileContent,
    MessageTools,
    SyncApp,
    Toolbox,
    describe_content,
    list_content,
    result_of_blocks,
    wrap_tool,
)


@overload
def surehand_tools(app: AsyncApp, tools: Iterable[str] = ()) -> list[BetaAsyncBuiltinFunctionTool]: ...
@overload
def surehand_tools(app: SyncApp, tools: Iterable[str] = ()) -> list[BetaBuiltinFunctionTool]: ...
def surehand_tools(app: Any, tools: Iterable[str] = ()) -> Any:
    """Return the tools for `client.beta.messages.tool_runner`; `tools` (names, globs) narrows the list."""
    box = Toolbox(app, tools)
    kind = _PlainTool if hasattr(app, "inner") else _AsyncTool
    return [kind(info, box) for info in box.list_fixed()]


class _AsyncTool(BetaAsyncBuiltinFunctionTool):
    def __init__(self, info: ToolInfo, box: Toolbox) -> None:
        self._info = info
        self._box = box

    def to_dict(self) -> BetaToolParam:
        return cast("BetaToolParam", _to_param(self._info))

    async def call(self, input: object) -> BetaFunctionToolResultType:
        return _to_content(await self._box.call_unasked(self._info.name, cast("Mapping[str, Any]", input)))


class _PlainTool(BetaBuiltinFunctionTool):
    def __init__(self, info: ToolInfo, box: Toolbox) -> None:
        self._info = info
        self._box = box

    def to_dict(self) -> BetaToolParam:
        return cast("BetaToolParam", _to_param(self._info))

    def call(self, input: object) -> BetaFunctionToolResultType:
        return _to_content(self._box.call_unasked_blocking(self._info.name, cast("Mapping[str, Any]", input)))


def _to_param(info: ToolInfo) -> dict[str, Any]:
    return {"name": provider_safe(info.name), "description": info.description, "input_schema": info.input_schema}


def _to_content(result: ToolResult) -> Any:
    content = _to_blocks(result)
    if not result.ok:
        raise ToolError(content)
    return content


def _to_blocks(result: ToolResult) -> Any:
    return sendable([_to_block(each) for each in list_content(result)])


def _to_block(content: Text | Image | FileContent) -> dict[str, Any]:
    match content:
        case Image(data, mime_type):
            return {"type": "image", "source": {"type": "base64", "media_type": mime_type, "data": data}}
        case FileContent(data, "application/pdf"):
            return {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": data}}
        case other:
            return {"type": "text", "text": describe_content(other)}


class SurehandTools(MessageTools[Message | BetaMessage]):
    """The tools for a program's own loop.

    turn = await client.messages.create(model=MODEL, max_tokens=4000, messages=messages, tools=tools.params())
    messages += [{"role": "assistant", "content": turn.content}, *await tools.answer(turn)]
    """

    def params(self) -> list[ToolParam]:
        """Return the tools to show a model now, for each request: it may activate others."""
        return [cast("ToolParam", _to_param(info)) for info in self._box.list_shown()]

    def _read_calls(self, message: Message | BetaMessage) -> list[ToolCall]:
        return [
            ToolCall(self._box.real_name(block.name), cast("Mapping[str, Any]", block.input), block.id, "model")
            for block in message.content
            if block.type == "tool_use"
        ]

    def _write_results(
        self, message: Message | BetaMessage, calls: list[ToolCall], results: list[ToolResult]
    ) -> list[Any]:
        del message
        blocks = [
            {"type": "tool_result", "tool_use_id": call.id, "content": _to_blocks(result)}
            | ({} if result.ok else {"is_error": True})
            for call, result in zip(calls, results, strict=True)
        ]
        return [{"role": "user", "content": blocks}] if blocks else []


# -- the other way round ----------------------------------------------------------------------------------------------


def wrap(tool: BetaFunctionTool[Any] | BetaAsyncFunctionTool[Any], **options: Unpack[ToolOptions]) -> Tool:
    """Wrap a `@beta_tool` of the client as a tool of ours: `app.register(wrap(tool, read_only=True))`."""

    async def invoke(args: Mapping[str, Any], ctx: ToolContext) -> Any:
        del ctx
        try:
            if isinstance(tool, BetaAsyncFunctionTool):
                said = await tool.call(dict(args))
            else:
                said = await asyncio.to_thread(tool.call, dict(args))
        except ToolError as problem:
            raise ToolFailure(str(problem)) from problem
        return (
            said
            if isinstance(said, str)
            else result_of_blocks([block_of_any_shape(cast("Any", each)) for each in said])
        )

    schema = cast("dict[str, Any]", tool.input_schema)
    return wrap_tool(tool.name, tool.description, schema, invoke, **options)
