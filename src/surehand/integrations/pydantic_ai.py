"""Surehand's tools for pydantic-ai (extra `pydantic-ai`), as a toolset.

    async with Surehand(".") as app:
        agent = Agent("openai:gpt-5", toolsets=[surehand_toolset(app)], output_type=[str, DeferredToolRequests])
        result = await agent.run("Rename the function `load` everywhere.")

A call that needs permission is a deferred tool call (`DeferredToolRequests.approvals`), with the question to show as
its `metadata`. Resume with `DeferredToolResults(approvals={id: True}, metadata=requests.metadata)`. An application with
an approver of its own asks that one instead. Wrong arguments are a `ModelRetry`, other failures `ToolFailed`, progress
a `ToolProgressEvent`.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Unpack, cast

from pydantic_ai import (
    AbstractToolset,
    ApprovalRequired,
    BinaryContent,
    CustomEvent,
    ModelRetry,
    RunContext,
    ToolFailed,
    ToolReturn,
    ToolsetTool,
)
from pydantic_ai.tools import AgentDepsT, ToolDefinition
from pydantic_ai.tools import Tool as PydanticTool
from pydantic_core import SchemaValidator, ValidationError, core_schema

from surehand.core.call import Image, Text, ToolResult
from surehand.core.context import ToolContext
from surehand.core.errors import ToolFailure
from surehand.core.events import Progress
from surehand.core.names import provider_safe
from surehand.core.tool import Tool, ToolOptions
from surehand.integrations.toolbox import (
    App,
    Pending,
    Toolbox,
    artifact_of,
    list_content,
    result_of_blocks,
    text_of,
    wrap_tool,
)

RETRIES: Final = 5
"""How often a model may get the arguments of one tool wrong in a row before pydantic-ai ends the run."""
# The executor validates arguments: it repairs unambiguous ones, and its errors are written for models.
_ANY_OBJECT: Final = SchemaValidator(core_schema.dict_schema(keys_schema=core_schema.str_schema()))
_run_context: ContextVar[RunContext[Any] | None] = ContextVar("surehand_pydantic_ai_context", default=None)


@dataclass(kw_only=True)
class ToolProgressEvent(CustomEvent):
    """Progress of a call, in the agent's stream of events."""

    text: str = ""
    done: float | None = None
    total: float | None = None


def surehand_toolset(app: App, tools: Iterable[str] = (), *, id: str = "surehand") -> SurehandToolset[Any]:
    """Return the application's tools as a toolset; `tools` (names, globs) narrows it and shows all it names."""
    return SurehandToolset(app, tools, id=id)


class SurehandToolset(AbstractToolset[AgentDepsT]):
    """The tools that an application's session shows; one that a model activates is in its next step."""

    def __init__(self, app: App, tools: Iterable[str] = (), *, id: str = "surehand") -> None:
        self._box = Toolbox(app, tools)
        self._id = id

    @property
    def id(self) -> str | None:
        """The name of this toolset, for durable execution."""
        return self._id

    async def get_tools(self, ctx: RunContext[AgentDepsT]) -> dict[str, ToolsetTool[AgentDepsT]]:
        """Return the tools to show the model in this step."""
        del ctx
        found: dict[str, ToolsetTool[AgentDepsT]] = {}
        for info in self._box.list_shown():
            name = provider_safe(info.name)
            definition = ToolDefinition(
                name=name,
                description=info.description,
                parameters_json_schema=info.input_schema,
            )
            found[name] = ToolsetTool(
                toolset=self, tool_def=definition, max_retries=RETRIES, args_validator=_ANY_OBJECT
            )
        return found

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[AgentDepsT], tool: ToolsetTool[AgentDepsT]
    ) -> Any:
        """Make a call; raise ApprovalRequired if it needs approval first."""
        del tool
        reports: asyncio.Queue[Progress | None] = asyncio.Queue()
        emitting = asyncio.create_task(_emit(reports, ctx))
        token = _run_context.set(ctx)
        try:
            outcome = await self._box.call(
                name, tool_args, id=ctx.tool_call_id, approved=_find_approval(ctx), progress=reports.put_nowait
            )
        finally:
            _run_context.reset(token)
            reports.put_nowait(None)
            await asyncio.gather(emitting, return_exceptions=True)
        if isinstance(outcome, Pending):
            raise ApprovalRequired(metadata=outcome.to_dict())
        return _to_return(outcome)


async def _emit(reports: asyncio.Queue[Progress | None], ctx: RunContext[Any]) -> None:
    while (each := await reports.get()) is not None:
        await ctx.emit(ToolProgressEvent(text=each.text, done=each.done, total=each.total))


def _find_approval(ctx: RunContext[Any]) -> bool | str:
    """Return the approved digest, or whether the call is approved if there is none."""
    metadata: Any = ctx.tool_call_metadata
    if not ctx.tool_call_approved:
        return False
    digest = cast("Mapping[str, Any]", metadata).get("digest") if isinstance(metadata, Mapping) else None
    return digest if isinstance(digest, str) else True


def _to_return(result: ToolResult) -> Any:
    if result.error is not None:
        text = text_of(result)
        raise ModelRetry(text) if result.error.code == "invalid_args" else ToolFailed(text)
    content = list_content(result)
    parts: list[Any] = [
        each.text if isinstance(each, Text) else BinaryContent(base64.b64decode(each.data), media_type=each.mime_type)
        for each in content
    ]
    value: Any = parts[0] if len(parts) == 1 else parts
    return ToolReturn(return_value=value, metadata=artifact_of(result))


# -- the other way round ----------------------------------------------------------------------------------------------


def wrap(tool: PydanticTool[Any], **options: Unpack[ToolOptions]) -> Tool:
    """Wrap a tool of pydantic-ai as a tool of ours: `app.register(wrap(tool, read_only=True))`.

    One that takes a `RunContext` gets that of the agent's run.
    """
    definition = tool.tool_def

    async def invoke(args: Mapping[str, Any], ctx: ToolContext) -> Any:
        del ctx
        run = _run_context.get()
        if run is None and tool.takes_ctx:
            raise ToolFailure(f"{tool.name} needs the context of an agent's run, and there is none here")
        try:
            values = tool.function_schema.validator.validate_python(dict(args))
            returned = await tool.function_schema.call(values, cast("RunContext[Any]", run))
        except (ModelRetry, ToolFailed) as problem:
            raise ToolFailure(problem.message) from problem
        except ValidationError as problem:
            raise ToolFailure(str(problem), code="invalid_args") from problem
        return _from_return(returned)

    return wrap_tool(tool.name, definition.description or "", definition.parameters_json_schema, invoke, **options)


def _from_return(returned: Any) -> Any:
    value = returned.return_value if isinstance(returned, ToolReturn) else returned
    items = list(cast("Sequence[Any]", value)) if isinstance(value, list | tuple) else [value]
    if not any(isinstance(each, BinaryContent) for each in items):
        return cast("Any", value)
    return result_of_blocks([_to_block(each) for each in items])


def _to_block(item: Any) -> Text | Image:
    if isinstance(item, BinaryContent) and item.is_image:
        return Image(item.base64, item.media_type)
    return Text(item if isinstance(item, str) else ToolResult.of(item).output)
