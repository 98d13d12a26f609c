"""Surehand's tools for LangChain and LangGraph (extra `langchain`).

    with Surehand.sync(".") as app:
        agent = create_agent("openai:gpt-5", middleware=[SurehandMiddleware(app)], checkpointer=InMemorySaver())
        agent.invoke({"messages": [("user", "Rename the function `load` everywhere.")]}, config)

The middleware shows the model the tools that the session shows; `surehand_tools(app)` is a fixed list for anything that
takes tools. Both work with `invoke` and `ainvoke`. A call that needs permission interrupts the graph (`interrupt`) with
the question as value. Resume with `Command(resume={"type": "approve"})` or `{"type": "reject", "message": "..."}`. An
application with an approver of its own asks that one instead. Failures are tool messages with `status="error"`;
progress goes to the stream `custom`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal, Unpack, cast

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, ToolException
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.config import get_stream_writer
from langgraph.errors import GraphInterrupt
from langgraph.types import interrupt
from pydantic import PrivateAttr

from surehand.core.call import Image, Text, ToolResult, block_of_any_shape
from surehand.core.context import ToolContext
from surehand.core.errors import ToolFailure
from surehand.core.events import Progress
from surehand.core.names import provider_safe
from surehand.core.tool import Tool, ToolInfo, ToolOptions
from surehand.integrations.toolbox import (
    REMEMBERED,
    App,
    OnProgress,
    Pending,
    Toolbox,
    artifact_of,
    list_content,
    refusal,
    result_of_blocks,
    text_of,
    wrap_tool,
)


def surehand_tools(app: App, tools: Iterable[str] = ()) -> list[BaseTool]:
    """Return the application's tools; `tools` (names, globs) narrows the list and holds all it names."""
    box, asked = Toolbox(app, tools), Asked()
    return [SurehandTool.of(info, box, asked) for info in box.list_fixed()]


class SurehandMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
    """Adds the application's tools to an agent, and shows its model those that the session shows at the time."""

    def __init__(self, app: App, tools: Iterable[str] = ()) -> None:
        super().__init__()
        self._box = Toolbox(app, tools)
        asked = Asked()
        self.tools = [SurehandTool.of(info, self._box, asked) for info in self._box.list_all()]

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Call the model with the tools that are shown now."""
        return handler(self._narrow(request))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """Call the model with the tools that are shown now."""
        return await handler(self._narrow(request))

    def _narrow(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        shown = {provider_safe(info.name) for info in self._box.list_shown()}
        ours = {tool.name for tool in self.tools}
        return request.override(
            tools=[
                each
                for each in request.tools
                if not isinstance(each, BaseTool) or each.name not in ours or each.name in shown
            ]
        )


class SurehandTool(BaseTool):
    """A tool of ours, as one of LangChain."""

    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"
    handle_tool_error: Any = True
    _box: Toolbox = PrivateAttr()
    _asked: Asked = PrivateAttr()

    @classmethod
    def of(cls, info: ToolInfo, box: Toolbox, asked: Asked) -> SurehandTool:
        """Make the tool of LangChain for one of ours."""
        made = cls(name=provider_safe(info.name), description=info.description, args_schema=info.input_schema)
        made._box, made._asked = box, asked
        return made

    def _to_args_and_kwargs(
        self, tool_input: str | dict[str, Any], tool_call_id: str | None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        # Not as parameters: an argument may be called `config`, and the call's id is needed.
        return (), {"given": tool_input, "call_id": tool_call_id}

    def _run(self, given: str | dict[str, Any], call_id: str | None) -> tuple[Any, Any]:
        approval, progress = _Approval(self._asked, self.name, call_id), _stream_progress(self.name, call_id)
        outcome = self._box.call_blocking(self.name, given, id=call_id, progress=progress)
        while isinstance(outcome, Pending):
            answer = approval.ask(outcome)
            if isinstance(answer, ToolResult):
                outcome = answer
            else:
                outcome = self._box.call_blocking(self.name, given, id=call_id, approved=answer, progress=progress)
        return _to_message(outcome, self.name, call_id)

    async def _arun(self, given: str | dict[str, Any], call_id: str | None) -> tuple[Any, Any]:
        approval, progress = _Approval(self._asked, self.name, call_id), _stream_progress(self.name, call_id)
        outcome = await self._box.call(self.name, given, id=call_id, progress=progress)
        while isinstance(outcome, Pending):
            answer = approval.ask(outcome)
            if isinstance(answer, ToolResult):
                outcome = answer
            else:
                outcome = await self._box.call(self.name, given, id=call_id, approved=answer, progress=progress)
        return _to_message(outcome, self.name, call_id)


def _to_message(result: ToolResult, name: str, call_id: str | None) -> tuple[Any, Any]:
    content = [_to_part(each) for each in list_content(result)]
    said: Any = content[0]["text"] if len(content) == 1 and content[0]["type"] == "text" else content
    if result.ok:
        return said, artifact_of(result)
    if call_id is None:
        raise ToolException(text_of(result))
    artifact = artifact_of(result)
    return ToolMessage(content=said, name=name, tool_call_id=call_id, status="error", artifact=artifact), artifact


def _to_part(content: Any) -> dict[str, Any]:
    """Return a block of content in LangChain's standard form, which its models convert."""
    match content:
        case Text(text):
            return {"type": "text", "text": text}
        case Image(data, mime_type):
            return {"type": "image", "base64": data, "mime_type": mime_type}
        case file:
            named = {"filename": file.name} if file.name else {}
            return {"type": "file", "base64": file.data, "mime_type": file.mime_type, **named}


def _stream_progress(name: str, call_id: str | None) -> OnProgress | None:
    try:
        write = get_stream_writer()
    except (RuntimeError, KeyError):  # not inside a graph
        return None

    def report(progress: Progress) -> None:
        told = {"text": progress.text, "done": progress.done, "total": progress.total}
        write({"surehand": {"tool": name, "call_id": call_id, **told}})

    return report


# -- approvals --------------------------------------------------------------------------------------------------------


class Asked(OrderedDict[str, list[str]]):
    """The digests of questions, by call id: the nth answer of a resumed graph is for the nth of them."""

    def put(self, id: str, position: int, digest: str) -> None:
        """Store the digest of a question."""
        known = self.setdefault(id, [])
        known[position:] = ["" for _ in range(position - len(known))] + [digest]
        while len(self) > REMEMBERED:
            self.popitem(last=False)


class _Approval:
    """Asks by interrupting the graph. A resumed node runs from its start, and gets the answers so far in order."""

    def __init__(self, asked: Asked, name: str, call_id: str | None) -> None:
        self._asked = asked
        self._name = name
        self._id = call_id or ""
        self._position = 0

    def ask(self, pending: Pending) -> str | ToolResult:
        """Return the approved digest, empty if it is not known in this process; or the result of a refusal."""
        position, self._position = self._position, self._position + 1
        try:
            answer: Any = interrupt({"action": "approve_tool_call", "id": self._id, **pending.to_dict()})
        except GraphInterrupt:
            self._asked.put(self._id, position, pending.digest)
            raise
        except (RuntimeError, KeyError):
            return refusal(self._name, "it needs approval, and there is no graph to interrupt")
        reason = _parse_refusal(answer)
        if reason is not None:
            return refusal(self._name, reason)
        known = self._asked.get(self._id, [])
        digest = cast("Mapping[str, Any]", answer).get("digest") if isinstance(answer, Mapping) else None
        return str(digest) if digest else known[position] if position < len(known) else ""


def _parse_refusal(answer: Any) -> str | None:
    """Return the reason of a refusal; None for an approval. Anything but a plain approval is a refusal."""
    match answer:
        case True | "approve" | {"type": "approve"} | {"decisions": [{"type": "approve"}]}:
            return None
        case {"type": "reject", "message": str(why)} | {"decisions": [{"type": "reject", "message": str(why)}]}:
            return why
        case _:
            return "the user said no"


# -- the other way round ----------------------------------------------------------------------------------------------


def wrap(tool: BaseTool, **options: Unpack[ToolOptions]) -> Tool:
    """Wrap a tool of LangChain as a tool of ours: `app.register(wrap(tool, read_only=True))`.

    It does not get what only a graph can inject (its state, its store).
    """
    schema: dict[str, Any] = convert_to_openai_tool(tool)["function"].get("parameters") or {"type": "object"}

    async def invoke(args: Mapping[str, Any], ctx: ToolContext) -> Any:
        call = {"type": "tool_call", "id": ctx.call.id, "name": tool.name, "args": dict(args)}
        try:
            said: Any = await tool.ainvoke(cast("Any", call))
        except ToolException as problem:
            raise ToolFailure(str(problem)) from problem
        if not isinstance(said, ToolMessage):
            return said
        if said.status == "error":
            raise ToolFailure(said.text)
        if isinstance(said.content, str):
            return said.content
        return result_of_blocks([_from_part(part) for part in said.content])

    return wrap_tool(tool.name, tool.description, schema, invoke, **options)


def _from_part(part: Any) -> Any:
    match part:
        case str(text):
            return Text(text)
        case {"type": "image", "base64": str(data), "mime_type": str(mime_type)}:
            return Image(data, mime_type)
        case other:
            return block_of_any_shape(other)
