"""OpenAI and all servers of its chat completions API (Ollama, vLLM, LM Studio, llama.cpp ...), by its client library.

A model in this process (extra `local`) is llama.cpp's own server on loopback, with a GGUF file of the user. With the
Responses API (`[model] api = "responses"`) OpenAI's models think between calls, and get their thoughts back.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, cast

from surehand.core.call import Block, Image, Text, ToolCall, ToolResult
from surehand.core.installation import install_hint
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
from surehand.core.shapes import block_to_openai, call_to_openai, readable_blocks, result_to_openai, sendable
from surehand.providers.server import ServedModel

_STOPS: Final[Mapping[str, Stop]] = {
    "stop": "end",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}


class OpenAIModel(ServedModel):
    """A model behind an OpenAI-compatible API."""

    provider = package = "openai"

    def _open(self, library: Any, key: str, base_url: str | None, options: dict[str, Any]) -> Any:
        return library.AsyncOpenAI(api_key=key, base_url=base_url, **options)

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the answer to a request as it comes; the last event is the turn."""
        body, names = self._body(request), provider_map(tool.name for tool in request.tools)
        ask = self._client.chat.completions.create
        return self._server.stream(lambda: ask(**body, stream=True), _Answer(self.name, names))

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        quirks = self.row.quirks
        messages: list[dict[str, Any]] = [{"role": "system", "content": request.system}]
        before: Message | None = None
        for message in request.messages:
            messages += _shapes(message, before)
            before = message
        if quirks.short_ids:
            _shorten_ids(messages)
        body: dict[str, Any] = {"model": self.name, "messages": messages, quirks.max_tokens: request.max_tokens}
        if quirks.asks_for_usage:
            body["stream_options"] = {"include_usage": True}
        body |= self._reasoning()
        return sendable(body | ({"tools": [_tool(info) for info in request.tools]} if request.tools else {}))

    def _reasoning(self) -> dict[str, Any]:
        effort, tokens = self.reasoning.effort, self.reasoning.tokens
        match self.row.quirks.reasoning:
            case "effort" if effort is not None:
                return {"reasoning_effort": effort}
            case "object" if effort is not None or tokens is not None:
                wanted = {"max_tokens": tokens} if tokens is not None else {"effort": effort}
                return {"extra_body": {"reasoning": wanted}}
            case _:
                return {}


def _shorten_ids(messages: list[dict[str, Any]]) -> None:
    """Replace the ids of calls and results by nine letters and digits, the same for a call and its result."""
    for message in messages:
        for call in message.get("tool_calls", ()):
            call["id"] = _short_id(call["id"])
        if "tool_call_id" in message:
            message["tool_call_id"] = _short_id(message["tool_call_id"])


def _short_id(id: str) -> str:
    return id if len(id) == 9 and id.isalnum() and id.isascii() else sha256(id.encode()).hexdigest()[:9]


def _tool(info: Any) -> dict[str, Any]:
    function = {"name": provider_safe(info.name), "description": info.description, "parameters": info.input_schema}
    return {"type": "function", "function": function}


def _shapes(message: Message, before: Message | None) -> list[dict[str, Any]]:
    if message.role == "user":
        parts = [block_to_openai(block) for block in (*([Text(message.text)] if message.text else []), *message.images)]
        return [{"role": "user", "content": parts if message.images else message.text}]
    if message.role == "assistant":
        shape: dict[str, Any] = {"role": "assistant", "content": message.text or None}
        return [shape | ({"tool_calls": [call_to_openai(call) for call in message.calls]} if message.calls else {})]
    calls = before.calls if before is not None else ()
    shapes = [_result(call.id, result) for call, result in zip(calls, message.results, strict=True)]
    pictures = [block for result in message.results for block in result.content if isinstance(block, Image)]
    if pictures:
        shapes.append({"role": "user", "content": [block_to_openai(picture) for picture in pictures]})
    return [*shapes, {"role": "user", "content": message.text}] if message.text else shapes


def _result(call_id: str, result: ToolResult) -> dict[str, Any]:
    """Return a tool message, which has text alone; images follow in a user message."""
    shape = result_to_openai(call_id, result)
    if isinstance(shape["content"], list):
        parts = cast("Sequence[dict[str, Any]]", shape["content"])
        shape["content"] = "\n".join(part["text"] for part in parts if part["type"] == "text") or "(a picture follows)"
    return shape


@dataclass(slots=True)
class _Answer:
    """An answer, assembled from its stream: text, and calls in pieces."""

    model: str
    names: Mapping[str, str]
    texts: list[str] = field(default_factory=list[str])
    calls: list[_Call] = field(default_factory=list["_Call"])
    usage: Usage = field(default_factory=Usage)
    stop: str = ""
    size: int = 0

    @property
    def began(self) -> bool:
        return bool(self.texts or self.calls)

    def take(self, chunk: Any) -> Delta | None:
        if chunk.usage:
            self.usage = _usage(chunk.usage)
        for choice in chunk.choices or ():
            self.stop = self.stop or choice.finish_reason or ""
            return self._delta(choice.delta) if choice.delta is not None else None
        return None

    def _delta(self, delta: Any) -> Delta | None:
        for part in delta.tool_calls or ():
            self._grow(self._call(part).add(part))
        if refusal := getattr(delta, "refusal", None):
            self.stop = "content_filter"
        text = str(refusal or delta.content or "")
        self.texts += [text] if text else []
        # Servers that stream thoughts have two names for them; OpenAI's protocol has none.
        thought = str(getattr(delta, "reasoning_content", None) or getattr(delta, "reasoning", None) or "")
        self._grow(len(text) + len(thought))
        if text:
            return TextDelta(text)
        return ThoughtDelta(thought) if thought else None

    def _grow(self, size: int) -> None:
        self.size = check_turn_size(self.model, self.size + size)

    def _call(self, part: Any) -> _Call:
        """Return the call that a piece belongs to; some servers give all calls of an answer the same index."""
        index = part.index or 0
        for call in reversed(self.calls):
            if call.index == index and (not part.id or part.id == call.id):
                return call
        self.calls.append(_Call(index))
        return self.calls[-1]

    def turn(self) -> Turn:
        calls = tuple(call.to_tool_call(self.names) for call in sorted(self.calls, key=lambda call: call.index))
        # Some servers send "stop" with calls of tools.
        stop = "tool_use" if calls else _STOPS.get(self.stop, "end")
        return Turn(Message("assistant", "".join(self.texts), calls), stop, self.usage)


@dataclass(slots=True)
class _Call:
    """A call, assembled from its pieces."""

    index: int
    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list[str])

    def add(self, part: Any) -> int:
        """Add a piece; return its size."""
        self.id = part.id or self.id
        if part.function is None:
            return 1
        self.name = part.function.name or self.name
        self.pieces.append(part.function.arguments or "")
        return len(self.pieces[-1]) + 1

    def to_tool_call(self, names: Mapping[str, str]) -> ToolCall:
        args = arguments("".join(self.pieces))
        return ToolCall(names.get(self.name, self.name), args, self.id or f"call_{self.index}", "model")


def _usage(raw: Any) -> Usage:
    details = getattr(raw, "prompt_tokens_details", None)
    cached = (getattr(details, "cached_tokens", 0) or 0) if details else 0
    return Usage((raw.prompt_tokens or 0) - cached, raw.completion_tokens or 0, cached)


class LocalModel:
    """Runs llama.cpp's own server on loopback, as an OpenAI-compatible one."""

    provider = "local"
    caches_prompts = False

    def __init__(self, path: str, context_tokens: int = 8192) -> None:
        if not os.path.isfile(path):
            raise ModelError(f"there is no model file {path}", "Set [model] path to a GGUF file.")
        try:
            import xllamacpp  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise ModelError("xllamacpp is not installed", install_hint("local")) from None
        params = xllamacpp.CommonParams()  # pyright: ignore
        params.model.path = path  # pyright: ignore
        params.n_ctx = context_tokens  # pyright: ignore
        params.use_jinja = True  # pyright: ignore
        params.verbosity = 0  # pyright: ignore  # its log would go to the user's terminal
        self.name = os.path.basename(path)
        self.context_tokens = context_tokens
        self._server = xllamacpp.Server(params)  # pyright: ignore
        self._model = OpenAIModel(self.name, "none", f"{self._server.listening_address}/v1", context_tokens)  # pyright: ignore

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the answer to a request as it comes; the last event is the turn."""
        return self._model.stream(request)

    async def close(self) -> None:
        """Close connections and free memory."""
        await self._model.close()


_THOUGHTS_KEY: Final = "openai"
_INCOMPLETE_STOPS: Final[Mapping[str, Stop]] = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}


class ResponsesModel(OpenAIModel):
    """A model of OpenAI's, by the Responses API. Nothing is stored on the server: each request has the whole input."""

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the answer to a request as it comes; the last event is the turn."""
        body, names = self._body(request), provider_map(tool.name for tool in request.tools)
        ask = self._client.responses.create
        return self._server.stream(lambda: ask(**body, stream=True), _ResponsesAnswer(self.name, names))

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
        return sendable(body | ({"tools": [_responses_tool(info) for info in request.tools]} if request.tools else {}))


def _responses_tool(info: Any) -> dict[str, Any]:
    # Strict mode needs a restricted dialect of JSON Schema; arguments are validated here anyway.
    shape = {"name": provider_safe(info.name), "description": info.description, "parameters": info.input_schema}
    return {"type": "function", "strict": False, **shape}


def _items(message: Message, before: Message | None) -> list[dict[str, Any]]:
    if message.role == "assistant":
        kept = cast("list[dict[str, Any]]", message.kept.get(_THOUGHTS_KEY) or [])
        said = [{"role": "assistant", "content": message.text}] if message.text else []
        return [*kept, *said, *map(_call, message.calls)]
    items: list[dict[str, Any]] = []
    if message.role == "tool" and before is not None:
        items = [_output_item(call.id, result) for call, result in zip(before.calls, message.results, strict=True)]
    parts = [_part(block) for block in (*([Text(message.text)] if message.text else []), *message.images)]
    return [*items, {"role": "user", "content": parts}] if parts else items


def _call(call: ToolCall) -> dict[str, Any]:
    shape = {"call_id": call.id, "name": provider_safe(call.name), "arguments": json.dumps(call.shown_args)}
    return {"type": "function_call", **shape}


def _output_item(call_id: str, result: ToolResult) -> dict[str, Any]:
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
class _ResponsesAnswer:
    """An answer, assembled from its stream: text in pieces, calls and thoughts whole."""

    model: str
    names: Mapping[str, str]
    texts: list[str] = field(default_factory=list[str])
    calls: list[ToolCall] = field(default_factory=list[ToolCall])
    thoughts: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    usage: Usage = field(default_factory=Usage)
    stop: str = ""
    refused: bool = False
    size: int = 0

    @property
    def began(self) -> bool:
        return bool(self.texts or self.calls)

    def take(self, event: Any) -> Delta | None:
        match event.type:
            case "response.output_text.delta" | "response.refusal.delta":
                self.refused = self.refused or event.type == "response.refusal.delta"
                self.texts.append(event.delta)
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
            # A thought is sent back unchanged, but without its id, which refers to stored responses.
            kept = item.model_dump(mode="json", exclude_none=True, exclude={"id", "status"})
            self.thoughts.append({"type": "reasoning", "summary": [], **kept})

    def _end(self, response: Any) -> None:
        reason = response.incomplete_details.reason if response.incomplete_details is not None else ""
        self.stop = str(reason or response.status or "completed")
        if (raw := response.usage) is not None:
            cached = raw.input_tokens_details.cached_tokens if raw.input_tokens_details is not None else 0
            self.usage = Usage(raw.input_tokens - cached, raw.output_tokens, cached)

    def turn(self) -> Turn:
        stop: Stop = (
            "tool_use" if self.calls else "refusal" if self.refused else _INCOMPLETE_STOPS.get(self.stop, "end")
        )
        kept = {_THOUGHTS_KEY: self.thoughts} if self.thoughts else {}
        return Turn(Message("assistant", "".join(self.texts), tuple(self.calls), kept=kept), stop, self.usage)


def _failure(event: Any) -> ModelError:
    error: Any = event.response.error if event.type == "response.failed" else event
    code = str(getattr(error, "code", "") or "")
    retryable = code in ("server_error", "rate_limit_exceeded")
    return ModelError(f"OpenAI stopped: {getattr(error, 'message', '') or code}", "Try again.", retryable=retryable)


class VertexModel(OpenAIModel):
    """A model on Vertex AI other than Claude, by its OpenAI-compatible API."""

    provider = "vertex"

    def _open(self, library: Any, key: str, base_url: str | None, options: dict[str, Any]) -> Any:
        # Google's tokens expire after an hour; one that the user did not set is refreshed.
        return super()._open(library, key if key != "none" else _GoogleToken(), base_url, options)  # pyright: ignore


class _GoogleToken:
    """Returns an access token of the user's Google credentials, refreshed once it has expired."""

    def __init__(self) -> None:
        try:
            import google.auth as auth  # pyright: ignore[reportMissingImports]
        except ImportError:
            hint = "Set VERTEX_ACCESS_TOKEN (`gcloud auth print-access-token`), or install google-auth."
            raise ModelError("there is no token for Vertex AI", hint) from None
        found: Any = auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])  # pyright: ignore
        self._credentials: Any = found[0]

    async def __call__(self) -> str:
        if not self._credentials.valid:
            from google.auth.transport.requests import Request  # pyright: ignore

            await asyncio.to_thread(self._credentials.refresh, Request())
        return str(self._credentials.token)
