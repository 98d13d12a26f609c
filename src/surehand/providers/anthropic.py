"""Anthropic's models through the official client, also on Bedrock and Vertex AI: the only file that knows its types.

The system prompt, the tools and the conversation so far are marked for the provider's prompt cache. Tool names are
mapped to ones the API accepts, and back.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, cast

from surehand.core.call import ToolCall
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
from surehand.core.shapes import block_to_anthropic, call_to_anthropic, result_to_anthropic, sendable
from surehand.providers.server import ServedModel

if TYPE_CHECKING:
    from surehand.core.settings import Effort
    from surehand.core.tool import ToolInfo

_BUDGETS: Final[Mapping[Effort, int]] = {
    "none": 0,
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 16384,
    "xhigh": 32768,
}
"""Thinking budget in tokens by effort, for models without an effort setting."""
_BY_BUDGET: Final = re.compile(r"claude-(?:3|[a-z]+-4(?:-[0-5])?(?![-.]?[6-9]))")
"""Models up to 4.5 have a thinking budget; later ones an effort."""
_CACHED: Final = {"cache_control": {"type": "ephemeral"}}
_STOPS: Final[Mapping[str, Stop]] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "refusal": "refusal",
}


class AnthropicModel(ServedModel):
    """A Claude model."""

    provider = package = "anthropic"
    context = 200_000

    def _open(self, library: Any, key: str, base_url: str | None, options: dict[str, Any]) -> Any:
        return library.AsyncAnthropic(api_key=key, base_url=base_url, **options)

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the answer to a request as it comes; the last event is the turn."""
        body, names = self._body(request), provider_map(tool.name for tool in request.tools)
        return self._server.stream(lambda: self._client.messages.create(**body, stream=True), _Answer(self.name, names))

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        messages = [_shape(message, before) for before, message in _pairs(request.messages)]
        if messages and messages[-1]["content"]:
            messages[-1]["content"][-1] |= _CACHED
        body: dict[str, Any] = {
            "model": self.name,
            "max_tokens": request.max_tokens,
            "system": [{"type": "text", "text": request.system, **_CACHED}],
            "messages": messages,
        }
        body |= self._thinking(request.max_tokens)
        return sendable(body | ({"tools": _tools(request.tools)} if request.tools else {}))

    def _thinking(self, max_tokens: int) -> dict[str, Any]:
        """Return the thinking options of a request: an effort, or a budget, which is added to `max_tokens`."""
        effort, budget = self.reasoning.effort, self.reasoning.tokens
        if effort is not None and budget is None and _BY_BUDGET.search(self.name) is None:
            if effort == "none":
                return {"thinking": {"type": "disabled"}}
            level = "low" if effort == "minimal" else effort
            return {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": level}}
        budget = budget or (_BUDGETS[effort] if effort is not None else 0)
        if not budget:
            return {}
        return {"thinking": {"type": "enabled", "budget_tokens": budget}, "max_tokens": max_tokens + budget}


def _tools(infos: Sequence[ToolInfo]) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = [
        {"name": provider_safe(info.name), "description": info.description, "input_schema": info.input_schema}
        for info in infos
    ]
    tools[-1] |= _CACHED
    return tools


def _pairs(messages: Sequence[Message]) -> list[tuple[Message | None, Message]]:
    return list(zip([None, *messages], messages, strict=False))


def _shape(message: Message, before: Message | None) -> dict[str, Any]:
    if message.role == "assistant":
        kept = cast("list[dict[str, Any]]", message.kept.get("anthropic") or [])
        said = [{"type": "text", "text": message.text}] if message.text.strip() else []
        calls = [call_to_anthropic(call) | {"id": provider_safe(call.id)} for call in message.calls]
        return {"role": "assistant", "content": [*kept, *said, *calls] or [{"type": "text", "text": "(nothing)"}]}
    content: list[dict[str, Any]] = []
    if message.role == "tool" and before is not None:
        # Ids of another vendor's model may have characters that this API refuses.
        answered = zip(before.calls, message.results, strict=True)
        content = [result_to_anthropic(provider_safe(call.id), result) for call, result in answered]
    content += [block_to_anthropic(image) for image in message.images]
    if message.text:
        content.append({"type": "text", "text": message.text})
    return {"role": "user", "content": content or [{"type": "text", "text": "(nothing)"}]}


@dataclass(slots=True)
class _Answer:
    """An answer, assembled from its stream: blocks of text, thought and calls, each in pieces."""

    model: str
    names: Mapping[str, str]
    blocks: dict[int, _Block] = field(default_factory=dict[int, "_Block"])
    usage: Usage = field(default_factory=Usage)
    stop: str = ""
    size: int = 0

    @property
    def began(self) -> bool:
        return bool(self.blocks)

    def take(self, event: Any) -> Delta | None:
        match event.type:
            case "message_start":
                self.usage = _usage(event.message.usage)
            case "content_block_start":
                self.blocks[event.index] = _Block(event.content_block.model_dump(mode="json"))
            case "content_block_delta":
                piece = self.blocks[event.index].add(event.delta)
                self.size = check_turn_size(self.model, self.size + len(piece) + 1)
                make_delta = _STREAMED.get(event.delta.type)
                return make_delta(piece) if make_delta is not None and piece else None
            case "message_delta":
                self.stop = event.delta.stop_reason or self.stop
                self.usage = replace(self.usage, output_tokens=event.usage.output_tokens or 0)
            case _:
                pass
        return None

    def turn(self) -> Turn:
        blocks = [self.blocks[index].to_dict() for index in sorted(self.blocks)]
        return Turn(_message(blocks, self.names), _STOPS.get(self.stop, "end"), self.usage)


_PIECES: Final = {
    "text_delta": ("text", "text"),
    "input_json_delta": ("json", "partial_json"),
    "thinking_delta": ("thinking", "thinking"),
}
"""By kind of delta: the key of its block, and its own key."""
_STREAMED: Final[Mapping[str, type[TextDelta] | type[ThoughtDelta]]] = {
    "text_delta": TextDelta,
    "thinking_delta": ThoughtDelta,
}
"""The kinds of delta that are streamed."""


@dataclass(slots=True)
class _Block:
    """A block of an answer, assembled from its pieces."""

    given: dict[str, Any]
    pieces: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def add(self, delta: Any) -> str:
        """Add a piece; return it."""
        if delta.type == "signature_delta":
            self.given["signature"] = delta.signature
        if delta.type not in _PIECES:
            return ""
        part, name = _PIECES[delta.type]
        piece = str(getattr(delta, name))
        self.pieces.setdefault(part, []).append(piece)
        return piece

    def to_dict(self) -> dict[str, Any]:
        """Return the whole block; the text of a call's arguments is `json`."""
        joined = {part: str(self.given.get(part) or "") + "".join(pieces) for part, pieces in self.pieces.items()}
        return {"json": "", **self.given, **joined}


def _message(blocks: list[dict[str, Any]], names: Mapping[str, str]) -> Message:
    text = "".join(block.get("text") or "" for block in blocks if block["type"] == "text")
    calls = tuple(_call(block, names) for block in blocks if block["type"] == "tool_use")
    thoughts = [
        {key: value for key, value in block.items() if key != "json"}
        for block in blocks
        if block["type"] in ("thinking", "redacted_thinking")
    ]
    return Message("assistant", text, calls, kept={"anthropic": thoughts} if thoughts else {})


def _call(block: dict[str, Any], names: Mapping[str, str]) -> ToolCall:
    args = arguments(block["json"]) if block["json"] else cast("dict[str, Any]", block.get("input") or {})
    name = str(block["name"])
    return ToolCall(names.get(name, name), args, str(block["id"]), "model")


def _usage(raw: Any) -> Usage:
    return Usage(
        raw.input_tokens or 0,
        raw.output_tokens or 0,
        getattr(raw, "cache_read_input_tokens", 0) or 0,
        getattr(raw, "cache_creation_input_tokens", 0) or 0,
    )


class BedrockClaude(AnthropicModel):
    """A Claude model on Amazon Bedrock; without a key, the client signs requests with AWS credentials."""

    provider = "bedrock"

    def _open(self, library: Any, key: str, base_url: str | None, options: dict[str, Any]) -> Any:
        region = _variable(self.row.title, "AWS_REGION") if base_url is None else os.environ.get("AWS_REGION")
        token = None if key == "none" else key
        return library.AsyncAnthropicBedrockMantle(api_key=token, base_url=base_url, aws_region=region, **options)


class VertexClaude(AnthropicModel):
    """A Claude model on Vertex AI; without a token, the client uses Google credentials."""

    provider = "vertex"

    def _open(self, library: Any, key: str, base_url: str | None, options: dict[str, Any]) -> Any:
        return library.AsyncAnthropicVertex(
            project_id=_variable(self.row.title, "GOOGLE_CLOUD_PROJECT"),
            region=_variable(self.row.title, "GOOGLE_CLOUD_LOCATION"),
            access_token=None if key == "none" else key,
            base_url=base_url,
            **options,
        )


def _variable(title: str, name: str) -> str:
    if not (value := os.environ.get(name, "").strip()):
        raise ModelError(f"{title} needs {name}", f"Set {name}.")
    return value
