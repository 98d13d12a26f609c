"""The interface to language models: messages and tools in; text, thinking and one finished turn out.

Only the modules of `providers/` know a vendor's types; the agent loop knows these alone.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias, cast

from surehand.core.call import (
    BROKEN_ARGUMENTS,
    Block,
    Image,
    Text,
    ToolCall,
    ToolResult,
    block_of_any_shape,
    block_to_dict,
)
from surehand.core.errors import SurehandError
from surehand.core.frozen import field, frozen
from surehand.core.tool import ToolInfo

Role = Literal["user", "assistant", "tool"]
Stop = Literal["end", "tool_use", "max_tokens", "refusal"]


@frozen
class Usage:
    """Tokens of one turn, or a sum of turns. `input_tokens` excludes those read from the provider's cache."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
        )

    @property
    def total(self) -> int:
        """All tokens, read and written."""
        return self.input_tokens + self.output_tokens + self.cache_read_tokens + self.cache_write_tokens

    def cost_at(self, prices: tuple[float, float]) -> float:
        """Return the cost at (input, output) prices per million tokens; cached tokens are charged in full."""
        return ((self.total - self.output_tokens) * prices[0] + self.output_tokens * prices[1]) / 1e6

    def to_dict(self) -> dict[str, int]:
        """Return it as plain data."""
        return {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cache_read_tokens": self.cache_read_tokens,
            "cache_write_tokens": self.cache_write_tokens,
        }


@frozen
class Message:
    """One message of a conversation. A tool message holds the results of all calls of the turn before it, in order."""

    role: Role
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()
    kept: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Data a provider needs returned unchanged (signed thinking), under the provider's name."""
    images: tuple[Image, ...] = ()
    """Images of a user's message, beside its text."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "role": self.role,
            "text": self.text,
            **({"images": [block_to_dict(image) for image in self.images]} if self.images else {}),
            "calls": [call.to_dict() for call in self.calls],
            "results": [result.to_dict() for result in self.results],
            "kept": dict(self.kept),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Message:
        """Build a message from the output of `to_dict`."""
        return cls(
            role=data["role"],
            text=data.get("text", ""),
            calls=tuple(ToolCall.from_dict(call) for call in data.get("calls", ())),
            results=tuple(ToolResult.from_dict(result) for result in data.get("results", ())),
            kept=data.get("kept") or {},
            images=tuple(Image(raw["data"], raw["mimeType"]) for raw in data.get("images", ())),
        )


Prompt: TypeAlias = str | Message | Sequence[Block | str] | Mapping[str, Any]
"""A prompt: text, a message, content blocks, or a user's message in Anthropic's or OpenAI's form."""


def user_message(prompt: Prompt) -> Message:
    """Convert a prompt to a user's message; raise ValueError if it is not one."""
    if isinstance(prompt, str):
        return Message("user", prompt)
    if isinstance(prompt, Message):
        if prompt.role != "user":
            raise ValueError(f"only a user's message can be asked, not one of the {prompt.role}")
        return prompt
    if isinstance(prompt, Mapping):
        if (role := prompt.get("role", "user")) != "user":
            raise ValueError(f"only a user's message can be asked, not one of the {role}")
        content: Any = prompt.get("content", ())
        if isinstance(content, str):
            return Message("user", content)
        return _message_of([block_of_any_shape(part) for part in content])
    return _message_of([Text(part) if isinstance(part, str) else part for part in prompt])


def _message_of(blocks: Sequence[Block]) -> Message:
    texts: list[str] = []
    images: list[Image] = []
    for block in blocks:
        match block:
            case Text(text=text):
                texts.append(text)
            case Image():
                images.append(block)
            case _:
                raise ValueError("a prompt contains text and base64 images; this is neither")
    return Message("user", "\n".join(texts), images=tuple(images))


@frozen
class ModelRequest:
    """The input of one turn."""

    system: str
    messages: Sequence[Message]
    tools: Sequence[ToolInfo] = ()
    max_tokens: int = 8192


@frozen
class TextDelta:
    """A piece of the answer, as it is streamed."""

    text: str


@frozen
class ThoughtDelta:
    """A piece of the model's thinking, if its provider streams that."""

    text: str


@frozen
class Turn:
    """The finished turn, the last item of a stream."""

    message: Message
    stop: Stop = "end"
    usage: Usage = field(default_factory=Usage)


Delta: TypeAlias = TextDelta | ThoughtDelta
ModelEvent: TypeAlias = Delta | Turn


class Model(Protocol):
    """A language model, or something that behaves like one."""

    provider: str
    name: str
    context_tokens: int
    """Size of the context window; the loop compacts the transcript before it is full."""
    caches_prompts: bool
    """Whether the provider caches prompts; sub-agents then share their parent's prefix."""

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield text and thinking deltas and, last, the finished turn. Raises ModelError."""
        ...

    async def close(self) -> None:
        """Close connections and free memory."""
        ...


class ModelError(SurehandError):
    """The model could not answer: what was wrong, and what to do next."""

    def __init__(self, message: str, hint: str = "", *, retryable: bool = False, after_s: float = 0.0) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.retryable = retryable
        self.after_s = after_s
        """Retry-After of the server, in seconds."""


TURN_LIMIT: Final = 8_000_000
"""Maximum characters of a turn, far above any real one: bounds a server that never stops streaming."""


def check_turn_size(name: str, size: int) -> int:
    """Return `size`, the characters of a turn so far; raise ModelError above the limit."""
    if size > TURN_LIMIT:
        raise ModelError(
            f"{name} sent more than {TURN_LIMIT:,} characters in one turn, and was disconnected", "Try again."
        )
    return size


def arguments(text: str) -> dict[str, Any]:
    """Parse the arguments a model wrote; text that is not a JSON object is kept under `BROKEN_ARGUMENTS`."""
    try:
        found: Any = json.loads(text or "{}")
    except (ValueError, RecursionError):
        found = None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {BROKEN_ARGUMENTS: text}
