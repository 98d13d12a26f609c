"""`ToolCall` and `ToolResult`: what goes into the executor and what comes out. Both serialize to plain data."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from surehand.core.errors import ErrorCode, ToolFailure
from surehand.core.frozen import field, frozen
from surehand.core.text import HEAD_SHARE

Source = Literal["model", "user", "cli", "mcp", "agent", "replay", "system"]


_count = itertools.count(1)
_process = os.urandom(6).hex()


def new_id(prefix: str = "call") -> str:
    """Return a new identifier, unique across processes: a random part of the process and a counter."""
    return f"{prefix}_{_process}{next(_count):x}"


def _renew_process_id() -> None:
    global _process
    _process = os.urandom(6).hex()


os.register_at_fork(after_in_child=_renew_process_id)


BROKEN_ARGUMENTS: Final = "__broken_json__"
"""Holds the raw text of arguments that are not valid JSON, so that the error can quote it to the model."""


@frozen
class Parent:
    """The call that made another call: the rights the child may not exceed, and the resources they share."""

    id: str
    tools: tuple[str, ...] = ()
    """The tools from the outermost call to this one."""
    turn: str = ""
    read_only: bool = False
    holds: frozenset[str] = frozenset()
    """Resources held by the calls above, which the child uses without waiting for them."""


_SUBJECTS: Final = (
    *("command", "file_path", "notebook_path", "pattern", "path", "url", "query", "title", "description", "prompt"),
    *("expression", "text", "id", "name"),
)


@frozen
class ToolCall:
    """A request to run a tool: which one, with which arguments, on whose behalf."""

    name: str
    args: Mapping[str, Any] = field(default_factory=dict[str, Any])
    id: str = field(default_factory=new_id)
    source: Source = "user"
    parent: Parent | None = None
    """Set for a call that a tool made (`ctx.call`)."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        shown = {"id": self.id, "name": self.name, "args": self.shown_args, "source": self.source}
        if BROKEN_ARGUMENTS in self.args:
            shown["broken_args"] = self.args[BROKEN_ARGUMENTS]
        return shown if self.parent is None else {**shown, "parent": self.parent.id}

    @property
    def shown_args(self) -> dict[str, Any]:
        """The arguments for display and storage; empty where the model's text was not valid JSON."""
        return {} if BROKEN_ARGUMENTS in self.args else dict(self.args)

    @property
    def subject(self) -> str:
        """The name of the text argument that best identifies the call in one line (`command`, `path`); may be empty."""
        args = self.shown_args
        return next((name for name in (*_SUBJECTS, *args) if isinstance(args.get(name), str)), "")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ToolCall:
        """Build a call from the output of `to_dict`."""
        return cls(
            name=data["name"],
            args={BROKEN_ARGUMENTS: data["broken_args"]} if "broken_args" in data else data.get("args") or {},
            id=data.get("id") or new_id(),
            source=data.get("source", "user"),
            parent=Parent(data["parent"]) if data.get("parent") else None,
        )


@frozen
class Text:
    """A block of text."""

    text: str


@frozen
class Image:
    """An image, base64 encoded."""

    data: str
    mime_type: str


@frozen
class Foreign:
    """A content block with no type of its own here, passed through unchanged (MCP resource links, audio)."""

    block: Mapping[str, Any]


Block: TypeAlias = Text | Image | Foreign


@frozen
class ToolError:
    """Why a call failed: a code of the closed set, what was wrong, and what to do next."""

    code: ErrorCode
    message: str
    hint: str = ""
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def of(cls, failure: ToolFailure) -> ToolError:
        """Build the error of a failure."""
        return cls(failure.code, failure.message, failure.hint, failure.details)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"code": self.code, "message": self.message, "hint": self.hint, "details": dict(self.details)}

    @property
    def text(self) -> str:
        """The error as a model or a person reads it."""
        return f"{self.message}\n{self.hint}" if self.hint else self.message


@frozen
class Undo:
    """The compensating operation of a call: a change kept in the history under `change_id`.

    A tool that changed something other than files returns the call that reverts it,
    `Undo(call=ToolCall("unsend", {"id": 7}))`; the executor records it and fills in the id.
    """

    change_id: str = ""
    description: str = ""
    call: ToolCall | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"change_id": self.change_id, "description": self.description}


@frozen
class ToolResult:
    """The outcome of a call. `output` is the text a model reads, `data` the same as structure, `content` all blocks.

    Tools return one (or plainer values, see `ToolResult.of`); the executor fills `meta`.
    """

    ok: bool = True
    data: Any = None
    output: str = ""
    content: tuple[Block, ...] = ()
    error: ToolError | None = None
    undo: Undo | None = None
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def of(cls, value: Any) -> ToolResult:
        """Wrap a handler's plain return value; raise ToolFailure for one that cannot be serialized."""
        if isinstance(value, ToolResult):
            return value
        if isinstance(value, str):
            return cls(data=value, output=value)
        if value is None:
            return cls(output="Done.")
        if isinstance(value, Text | Image | Foreign):
            return cls(output=value.text if isinstance(value, Text) else "", content=(value,))
        if hasattr(value, "model_dump"):
            value = value.model_dump(mode="json")
        try:
            output = json.dumps(value, ensure_ascii=False, allow_nan=False)
        except TypeError:
            value, output = _dump_with_pydantic(value)
        except (ValueError, RecursionError) as problem:
            raise _no_data(value, problem) from None
        return cls(data=value, output=output)

    @classmethod
    def failed(cls, error: ToolError, *, data: Any = None, output: str | None = None) -> ToolResult:
        """Return the result of a call that failed."""
        return cls(ok=False, data=data, output=error.text if output is None else output, error=error)

    def with_meta(self, **values: Any) -> ToolResult:
        """Return a copy with further entries in `meta`."""
        # Not `replace`: this is on the path of every scheduled call, and four times as fast.
        meta = {**self.meta, **values}
        return ToolResult(self.ok, self.data, self.output, self.content, self.error, self.undo, meta)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """All content blocks; `output` alone becomes one text block."""
        return self.content or (Text(self.output),)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "ok": self.ok,
            "data": self.data,
            "output": self.output,
            "content": [block_to_dict(block) for block in self.content],
            "error": self.error.to_dict() if self.error else None,
            "undo": self.undo.to_dict() if self.undo else None,
            "meta": dict(self.meta),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ToolResult:
        """Build a result from the output of `to_dict`."""
        error, undo = data.get("error"), data.get("undo")
        return cls(
            ok=bool(data["ok"]),
            data=data.get("data"),
            output=data.get("output", ""),
            content=tuple(block_from_dict(block) for block in data.get("content", ())),
            error=ToolError(**error) if error else None,
            undo=Undo(**undo) if undo else None,
            meta=data.get("meta", {}),
        )


def _dump_with_pydantic(value: Any) -> tuple[Any, str]:
    """Serialize values that `json` does not know (dates, dataclasses, models inside lists)."""
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        plain = to_jsonable_python(value)
        return plain, json.dumps(plain, ensure_ascii=False, allow_nan=False)
    except (PydanticSerializationError, TypeError, ValueError, RecursionError) as problem:
        raise _no_data(value, problem) from None


def _no_data(value: Any, problem: Exception) -> ToolFailure:
    return ToolFailure(
        f"the tool returned a {type(value).__name__} that is not JSON data: {problem}",
        hint="Return text, a ToolResult, a pydantic model, or values that JSON can hold.",
    )


def block_to_dict(block: Block) -> dict[str, Any]:
    """Return a block in MCP's form, which is also how results are stored."""
    match block:
        case Text(text):
            return {"type": "text", "text": text}
        case Image(data, mime_type):
            return {"type": "image", "data": data, "mimeType": mime_type}
        case Foreign(raw):
            return dict(raw)


def block_of_any_shape(raw: Mapping[str, Any]) -> Block:
    """Parse a content block in our form, MCP's, Anthropic's or OpenAI's."""
    match raw:
        case {"type": "text" | "input_text", "text": str(text)}:
            return Text(text)
        case {"type": "image", "source": {"type": "base64", "media_type": str(mime), "data": str(data)}}:
            return Image(data, mime)
        case {"type": "image_url", "image_url": {"url": str(url)}} | {"type": "input_image", "image_url": str(url)}:
            mime, encoded, data = url.removeprefix("data:").partition(";base64,")
            return Image(data, mime) if encoded else Foreign(raw)
        case _:
            return block_from_dict(raw)


def block_from_dict(raw: Mapping[str, Any]) -> Block:
    """Parse a block in MCP's form; an unknown kind becomes `Foreign`, unchanged."""
    match raw:
        case {"type": "text", "text": str(text)} if raw.keys() <= {"type", "text"}:
            return Text(text)
        case {"type": "image", "data": str(data), "mimeType": str(mime)} if raw.keys() <= {"type", "data", "mimeType"}:
            return Image(data, mime)
        case _:
            return Foreign(raw)


def truncate_middle(text: str, limit: int) -> str:
    """Truncate to about `limit` characters: `HEAD_SHARE` of them from the head, the rest from the tail."""
    if len(text) <= limit:
        return text
    head = int(limit * HEAD_SHARE)
    tail = limit - head
    return f"{text[:head]}\n... {len(text) - limit:,} characters left out ...\n{text[-tail:]}"


def truncate_blocks(content: tuple[Block, ...], limit: int) -> tuple[Block, ...]:
    """Truncate blocks to about `limit` characters of text in all; returns `content` itself if it is short enough."""
    if sum(len(block.text) for block in content if isinstance(block, Text)) <= limit:
        return content
    kept: list[Block] = []
    left = limit
    for block in content:
        if isinstance(block, Text):
            length = len(block.text)
            text = truncate_middle(block.text, left) if left > 0 else f"... {length:,} characters left out ..."
            block, left = Text(text), left - length
        kept.append(block)
    return tuple(kept)
