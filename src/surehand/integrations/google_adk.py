"""Surehand's tools for Google's Agent Development Kit (extra `google-adk`), as a toolset.

    async with Surehand(".") as app:
        agent = LlmAgent(name="coder", model="gemini-2.5-pro", tools=[SurehandToolset(app)])
        runner = InMemoryRunner(agent)

A call that needs permission requests a confirmation: its hint is the text to show, its payload the question. Answer it
as any confirmation of ADK, with a function response `{"confirmed": True, "payload": ...}`; with the payload, it is
valid in another process too. An application with an approver of its own asks that one instead. Failures are
`{"error": ...}`.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from typing import Any, Unpack, cast

from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext as AdkToolContext
from google.genai import types

from surehand.core.call import Image, Text, ToolResult
from surehand.core.context import ToolContext
from surehand.core.errors import ToolFailure
from surehand.core.names import provider_safe
from surehand.core.tool import Tool, ToolInfo, ToolOptions
from surehand.integrations.toolbox import (
    CHANGED,
    App,
    Pending,
    Toolbox,
    list_content,
    refusal,
    result_of_blocks,
    text_of,
    wrap_tool,
)

_tool_context: ContextVar[AdkToolContext | None] = ContextVar("surehand_google_adk_context", default=None)


class SurehandToolset(BaseToolset):
    """The tools that an application's session shows; `tools` (names, globs) restricts them."""

    def __init__(self, app: App, tools: Iterable[str] = ()) -> None:
        super().__init__()
        self._box = Toolbox(app, tools)
        self._use_invocation_cache = False  # a tool that a model activates is in its next step

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        """Return the tools to show the model now."""
        del readonly_context
        return [SurehandTool(info, self._box) for info in self._box.list_shown()]

    async def close(self) -> None:
        """Leave the application open: its owner closes it."""


class SurehandTool(BaseTool):
    """A tool of ours, as one of ADK."""

    def __init__(self, info: ToolInfo, box: Toolbox) -> None:
        super().__init__(name=provider_safe(info.name), description=info.description)
        self._schema = info.input_schema
        self._box = box

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=self._schema
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: AdkToolContext) -> Any:
        """Make the call; request a confirmation first if it needs approval."""
        confirmation = tool_context.tool_confirmation
        if confirmation is not None and not confirmation.confirmed:
            return _to_response(refusal(self.name))
        approved: bool | str = False
        if confirmation is not None:
            payload: Any = confirmation.payload
            digest = cast("Mapping[str, Any]", payload).get("digest") if isinstance(payload, Mapping) else None
            approved = digest if isinstance(digest, str) else True
        token = _tool_context.set(tool_context)
        try:
            outcome = await self._box.call(self.name, args, id=tool_context.function_call_id, approved=approved)
        finally:
            _tool_context.reset(token)
        if isinstance(outcome, Pending) and confirmation is not None:
            return _to_response(refusal(self.name, CHANGED))  # ADK asks about a call once
        if isinstance(outcome, Pending):
            asked = outcome.to_dict()
            tool_context.request_confirmation(hint=asked["text"], payload=asked)
            tool_context.actions.skip_summarization = True
            return {"error": f"{self.name} waits for a confirmation"}
        return _to_response(outcome)


def _to_response(result: ToolResult) -> dict[str, Any]:
    if not result.ok:
        return {"error": text_of(result)}
    content = list_content(result)
    response: dict[str, Any] = {"result": "\n".join(each.text for each in content if isinstance(each, Text))}
    # ADK sends the parts in a response as media.
    for number, each in enumerate(each for each in content if not isinstance(each, Text)):
        data = base64.b64decode(each.data)
        response[f"part_{number + 1}"] = types.Part.from_bytes(data=data, mime_type=each.mime_type)
    return response


# -- the other way round ----------------------------------------------------------------------------------------------


def wrap(tool: BaseTool, **options: Unpack[ToolOptions]) -> Tool:
    """Wrap a tool of ADK as a tool of ours: `app.register(wrap(FunctionTool(book), read_only=True))`.

    It gets the context of the call it is made in; outside an agent's run only a plain function works.
    """
    declaration = tool._get_declaration()  # pyright: ignore[reportPrivateUsage]  # ADK has no public method for it
    schema = _find_schema(declaration) if declaration is not None else {"type": "object"}

    async def invoke(args: Mapping[str, Any], ctx: ToolContext) -> Any:
        del ctx
        context = _tool_context.get()
        if context is not None:
            return _from_response(await tool.run_async(args=dict(args), tool_context=context))
        if not isinstance(tool, FunctionTool) or "tool_context" in inspect.signature(tool.func).parameters:
            raise ToolFailure(f"{tool.name} needs the context of an agent's run, and there is none here")
        function = cast("Any", tool.func)
        if inspect.iscoroutinefunction(function):
            return _from_response(await function(**args))
        return _from_response(await asyncio.to_thread(function, **args))

    return wrap_tool(tool.name, tool.description, schema, invoke, **options)


def _find_schema(declaration: types.FunctionDeclaration) -> dict[str, Any]:
    if declaration.parameters_json_schema is not None:
        return cast("dict[str, Any]", declaration.parameters_json_schema)
    if declaration.parameters is None:
        return {"type": "object"}
    return declaration.parameters.json_schema.model_dump(mode="json", exclude_none=True)


def _from_response(response: Any) -> Any:
    match response:
        case {"error": str(problem)}:
            raise ToolFailure(problem)
        case types.Part():
            return result_of_blocks([_from_part(response)])
        case _:
            return response


def _from_part(part: types.Part) -> Text | Image:
    blob = part.inline_data
    if blob is not None and blob.data is not None and (blob.mime_type or "").startswith("image/"):
        return Image(base64.b64encode(blob.data).decode(), blob.mime_type or "")
    return Text(part.text or "")
