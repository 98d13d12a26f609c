"""Surehand's tools for the OpenAI Agents SDK (extra `openai-agents`).

    async with Surehand(".") as app:
        agent = Agent(name="Coder", tools=surehand_tools(app))
        result = await Runner.run(agent, "Rename the function `load` everywhere.")

A call that needs permission interrupts the run (`result.interruptions`); `tools.describe(item)` returns the question.
Approve or reject it on `state = result.to_state()`, and continue with `Runner.run(agent, state)`. An approval is valid
for the call as it was shown, in the process that asked; `always_approve` does not extend it, rules do
(`Surehand(allow=[...])`). An application with an approver of its own asks that one instead. Failures are the tool's
output.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, Unpack, cast

from agents import FunctionTool, RunContextWrapper, ToolOutputFileContent, ToolOutputImage, ToolOutputText
from agents.agent import AgentBase
from agents.items import ToolApprovalItem
from agents.tool_context import ToolContext as AgentToolContext

from surehand.core.call import Image, Text, ToolResult
from surehand.core.context import ToolContext
from surehand.core.names import provider_safe
from surehand.core.tool import Tool, ToolInfo, ToolOptions
from surehand.integrations.toolbox import (
    CHANGED,
    App,
    FileContent,
    Pending,
    Toolbox,
    list_content,
    refusal,
    result_of_blocks,
    wrap_tool,
)

_run_context: ContextVar[RunContextWrapper[Any] | None] = ContextVar("surehand_openai_agents_context", default=None)


def surehand_tools(app: App, tools: Iterable[str] = ()) -> SurehandTools:
    """Return the application's tools; `tools` (names, globs) narrows the list and shows all it names."""
    return SurehandTools(Toolbox(app, tools))


class SurehandTools(list[Any]):
    """All tools, for an agent; the SDK shows those that the session shows."""

    def __init__(self, box: Toolbox) -> None:
        super().__init__(_make_tool(info, box) for info in box.list_all())
        self._box = box

    def describe(self, item: ToolApprovalItem) -> dict[str, Any] | None:
        """Return the question of an interruption: text, reason, arguments; None if it is not one of ours."""
        pending = self._box.get_pending(item.call_id or "")
        return pending.to_dict() if pending is not None else None


def _make_tool(info: ToolInfo, box: Toolbox) -> FunctionTool:
    name = provider_safe(info.name)
    return FunctionTool(
        name=name,
        description=info.description,
        params_json_schema=info.input_schema,
        on_invoke_tool=partial(_invoke, box, name),
        strict_json_schema=False,  # strict mode has no optional parameters
        is_enabled=partial(_is_enabled, box, info.name),
        needs_approval=partial(_needs_approval, box, name),
    )


def _is_enabled(box: Toolbox, name: str, ctx: RunContextWrapper[Any], agent: AgentBase) -> bool:
    del ctx, agent
    return box.is_shown(name)


async def _needs_approval(
    box: Toolbox, name: str, ctx: RunContextWrapper[Any], params: dict[str, Any], call_id: str
) -> bool:
    del ctx
    return await box.find_pending(name, params, id=call_id) is not None


async def _invoke(box: Toolbox, name: str, ctx: AgentToolContext[Any], given: str) -> Any:
    approved = ctx.is_tool_approved(name, ctx.tool_call_id) is True
    token = _run_context.set(ctx)
    try:
        outcome = await box.call(name, given, id=ctx.tool_call_id, approved=approved)
    finally:
        _run_context.reset(token)
    if isinstance(outcome, Pending):
        outcome = refusal(name, CHANGED)
    return _to_output(outcome)


def _to_output(result: ToolResult) -> Any:
    parts: list[Any] = []
    for each in list_content(result):
        match each:
            case Text(text):
                parts.append(ToolOutputText(text=text))
            case Image(data, mime_type):
                parts.append(ToolOutputImage(image_url=f"data:{mime_type};base64,{data}"))
            case FileContent(data, mime_type, name):
                file = f"data:{mime_type};base64,{data}"
                parts.append(ToolOutputFileContent(file_data=file, filename=name or "file"))
    return parts[0].text if len(parts) == 1 and isinstance(parts[0], ToolOutputText) else parts


# -- the other way round ----------------------------------------------------------------------------------------------


def wrap(tool: FunctionTool, **options: Unpack[ToolOptions]) -> Tool:
    """Wrap a function tool of the SDK as a tool of ours: `app.register(wrap(tool, read_only=True))`.

    It gets the context of the run, or None outside of one. Its `needs_approval` is ignored: the policy decides.
    """

    async def invoke(args: Mapping[str, Any], ctx: ToolContext) -> Any:
        given, run = json.dumps(dict(args)), _run_context.get()
        inner: AgentToolContext[Any] = AgentToolContext(
            context=run.context if run is not None else None,
            tool_name=tool.name,
            tool_call_id=ctx.call.id,
            tool_arguments=given,
        )
        return _from_output(await tool.on_invoke_tool(inner, given))

    return wrap_tool(tool.name, tool.description, tool.params_json_schema, invoke, **options)


def _from_output(said: Any) -> Any:
    items = list(cast("Sequence[Any]", said)) if isinstance(said, list | tuple) else [said]
    if not any(isinstance(each, ToolOutputText | ToolOutputImage | ToolOutputFileContent) for each in items):
        return cast("Any", said)
    return result_of_blocks([_to_block(each) for each in items])


def _to_block(item: Any) -> Text | Image:
    match item:
        case ToolOutputText():
            return Text(item.text)
        case ToolOutputImage(image_url=str(url)) if ";base64," in url:
            mime_type, _, data = url.removeprefix("data:").partition(";base64,")
            return Image(data, mime_type)
        case other:
            return Text(ToolResult.of(other).output)
