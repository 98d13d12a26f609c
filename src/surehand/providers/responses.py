"""OpenAI's Responses API (`[model] api = "responses"`): its models think between calls, and get their thoughts back."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from surehand.core.call import Block, Image, Text, ToolCall, ToolResult
from surehand.core.model import (
    Delta,
    Message,
    ModelError,
    ModelEvent,
    ModelRequest,
    Stop,
    TextDelta,
    ThoughtDelta,
    Turn,
    Usage,
    arguments,
    check_turn_size,
)
from surehand.core.names import provider_map, provider_safe
from surehand.core.shapes import block_to_openai, readable_blocks, sendable
from surehand.providers.openai import OpenAIModel

_KEPT: Final = "openai"
_STOPS: Final[Mapping[str, Stop]] = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}


class ResponsesModel(OpenAIModel):
    """A model of OpenAI's, asked by the Responses API. Nothing is kept on the server: each request has all of it."""

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the answer to a request as it comes; the last event is the turn."""
        body, names = self._body(request), provider_map(tool.name for tool in request.tools)
        ask = self._client.responses.create
        return self._server.stream(lambda: ask(**body, stream=True), _Answer(self.name, names))

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        items: list[dict[str, Any]] = []
        before: Message | None = None
        for message in request.messages:
            items += _items(message, before)
            before = message
        body: dict[str, Any] = {
            "model": self.name,
            "instructions": request.system,
            "input": items,
            "max_output_tokens": request.max_tokens,
            "store": False,
            "include": ["reasoning.encrypted_content"],
        }
        if (effort := self.reasoning.effort) is not None:
            body["reasoning"] = {"effort": effort, "summary": "auto"}
        return sendable(body | ({"tools": [_tool(info) for info in request.tools]} if request.tools else {}))


def _tool(info: Any) -> dict[str, Any]:
    # Strict mode needs a restricted dialect of JSON Schema; arguments are validated here anyway.
    shape = {"name": provider_safe(info.name), "description": info.description, "parameters": info.input_schema}
    return {"type": "function", "strict": False, **shape}


def _items(message: Message, before: Message | None) -> list[dict[str, Any]]:
    if message.role == "assistant":
        kept = cast("list[dict[str, Any]]", message.kept.get(_KEPT) or [])
        said = [{"role": "assistant", "content": message.text}] if message.text else []
        return [*kept, *said, *map(_call, message.calls)]
    items: list[dict[str, Any]] = []
    if message.role == "tool" and before is not None:
        items = [_result(call.id, result) for call, result in zip(before.calls, message.results, strict=True)]
    parts = [_part(block) for block in (*([Text(message.text)] if message.text else []), *message.images)]
    return [*items, {"role": "user", "content": parts}] if parts else items


def _call(call: ToolCall) -> dict[str, Any]:
    shape = {"call_id": call.id, "name": provider_safe(call.name), "arguments": json.dumps(call.shown_args)}
    return {"type": "function_call", **shape}


def _result(call_id: str, result: ToolResult) -> dict[str, Any]:
    return {
        "type": "function_call_output",
        "call_id": call_id,
        "output": [_part(block) for block in readable_blocks(result)],
    }


def _part(block: Block) -> dict[str, Any]:
    shape = block_to_openai(block)
    if isinstance(block, Image):
        return {"type": "input_image", "image_url": shape["image_url"]["url"]}
    return {"type": "input_text", "text": shape["text"]}


@dataclass(slots=True)
class _Answer:
    """One answer, as it comes: text in pieces, calls and thoughts whole."""

    model: str
    names: Mapping[str, str]
    spoken: list[str] = field(default_factory=list[str])
    calls: list[ToolCall] = field(default_factory=list[ToolCall])
    thoughts: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    usage: Usage = field(default_factory=Usage)
    stop: str = ""
    refused: bool = False
    size: int = 0

    @property
    def began(self) -> bool:
        return bool(self.spoken or self.calls)

    def take(self, event: Any) -> Delta | None:
        match event.type:
            case "response.output_text.delta" | "response.refusal.delta":
                self.refused = self.refused or event.type == "response.refusal.delta"
                self.spoken.append(event.delta)
                self.size = check_turn_size(self.model, self.size + len(event.delta))
                return TextDelta(event.delta)
            case "response.reasoning_summary_text.delta":
                self.size = check_turn_size(self.model, self.size + len(event.delta))
                return ThoughtDelta(event.delta)
            case "response.output_item.done":
                self._add(event.item)
            case "response.completed" | "response.incomplete":
                self._end(event.response)
            case "response.failed" | "error":
                raise _failure(event)
            case _:
                pass
        return None

    def _add(self, item: Any) -> None:
        if item.type == "function_call":
            self.size = check_turn_size(self.model, self.size + len(item.arguments or ""))
            name = self.names.get(item.name, item.name)
            self.calls.append(ToolCall(name, arguments(item.arguments or ""), item.call_id, "model"))
        elif item.type == "reasoning":
            # A thought goes back as it came; its id means nothing where nothing is stored.
            kept = item.model_dump(mode="json", exclude_none=True, exclude={"id", "status"})
            self.thoughts.append({"type": "reasoning", "summary": [], **kept})

    def _end(self, response: Any) -> None:
        reason = response.incomplete_details.reason if response.incomplete_details is not None else ""
        self.stop = str(reason or response.status or "completed")
        if (raw := response.usage) is not None:
            cached = raw.input_tokens_details.cached_tokens if raw.input_tokens_details is not None else 0
            self.usage = Usage(raw.input_tokens - cached, raw.output_tokens, cached)

    def turn(self) -> Turn:
        stop: Stop = "tool_use" if self.calls else "refusal" if self.refused else _STOPS.get(self.stop, "end")
        kept = {_KEPT: self.thoughts} if self.thoughts else {}
        return Turn(Message("assistant", "".join(self.spoken), tuple(self.calls), kept=kept), stop, self.usage)


def _failure(event: Any) -> ModelError:
    error: Any = event.response.error if event.type == "response.failed" else event
    code = str(getattr(error, "code", "") or "")
    retryable = code in ("server_error", "rate_limit_exceeded")
    return ModelError(f"OpenAI stopped: {getattr(error, 'message', '') or code}", "Try again.", retryable=retryable)
