"""Shapes: convert calls and results to and from the forms of MCP, Anthropic and OpenAI. Plain data, no vendor types.

MCP has a field for everything (`_meta`), so results convert back without loss. The two model APIs carry text, images
and errors. `left_out(result)` names what they have no field for; with `whole=True` that is appended as one more text
block and parsed on the way back. Models get results without it, since each token costs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from surehand.core.call import (
    Block,
    Foreign,
    Image,
    Text,
    ToolCall,
    ToolError,
    ToolResult,
    Undo,
    block_from_dict,
    block_of_any_shape,
    block_to_dict,
)
from surehand.core.errors import ERROR_CODES, ErrorCode
from surehand.core.model import arguments
from surehand.core.names import provider_safe

_META_KEY: Final = "surehand"
_ERROR: Final = re.compile(rf"\AError \(({'|'.join(ERROR_CODES)})\): (.*)\Z", re.DOTALL)
_HINT: Final = "\nHint: "

# -- MCP ----------------------------------------------------------------------------------------------------------


def result_to_mcp(result: ToolResult) -> dict[str, Any]:
    """Return the result of `tools/call`; what MCP has no field for goes into `_meta`."""
    shape: dict[str, Any] = {
        "content": [block_to_dict(block) for block in result.blocks],
        "isError": not result.ok,
        "_meta": {
            _META_KEY: {
                "output": result.output,
                "blocks": len(result.content),
                "data": result.data,
                "error": result.error.to_dict() if result.error else None,
                "undo": result.undo.to_dict() if result.undo else None,
                "meta": dict(result.meta),
            }
        },
    }
    data: Any = result.data
    if type(data) is dict:
        shape["structuredContent"] = data
    return shape


_RPC_CODES: Final[Mapping[int, ErrorCode]] = {-32601: "tool_not_found", -32602: "invalid_args"}
"""JSON-RPC error codes that map to one of ours; all others are `execution_error`."""


def result_from_mcp(shape: Mapping[str, Any]) -> ToolResult:
    """Parse an MCP server's result; one made by `result_to_mcp` converts back without loss.

    Accepts a JSON-RPC response too: its `result` is parsed, its `error` becomes a failed result.
    """
    if isinstance(error := shape.get("error"), Mapping):
        return ToolResult.failed(_rpc_error(cast("Mapping[str, Any]", error)))
    if "jsonrpc" in shape and isinstance(inner := shape.get("result"), Mapping):
        return result_from_mcp(cast("Mapping[str, Any]", inner))
    content = tuple(block_from_dict(block) for block in shape.get("content") or ())
    kept = _ours(shape)
    failed = bool(shape.get("isError"))
    if "output" in kept:
        error, undo = kept.get("error"), kept.get("undo")
        return ToolResult(
            ok=not failed,
            data=kept["data"] if "data" in kept else shape.get("structuredContent"),
            output=kept["output"],
            content=content if kept.get("blocks") else (),
            error=ToolError(**error) if error else None,
            undo=Undo(**undo) if undo else None,
            meta=kept.get("meta") or {},
        )
    output = "\n".join(block.text for block in content if isinstance(block, Text))
    data = shape.get("structuredContent")
    error = ToolError("execution_error", output or "the server reported an error") if failed else None
    meta = {"mcp": dict(shape["_meta"])} if shape.get("_meta") else {}
    return ToolResult(ok=not failed, data=data, output=output, content=content, error=error, meta=meta)


def _rpc_error(error: Mapping[str, Any]) -> ToolError:
    number, data = error.get("code"), error.get("data")
    code: ErrorCode = _RPC_CODES.get(number, "execution_error") if isinstance(number, int) else "execution_error"
    details = {"rpc_code": number} | ({"data": data} if data is not None else {})
    return ToolError(code, str(error.get("message") or "the server reported an error"), details=details)


def _ours(shape: Mapping[str, Any]) -> Mapping[str, Any]:
    meta: Mapping[str, Any] = shape.get("_meta") or {}
    kept = meta.get(_META_KEY)
    return cast("Mapping[str, Any]", kept) if isinstance(kept, Mapping) else {}


def call_to_mcp(call: ToolCall) -> dict[str, Any]:
    """Return a `tools/call` request."""
    return {
        "jsonrpc": "2.0",
        "id": call.id,
        "method": "tools/call",
        "params": {"name": call.name, "arguments": call.shown_args, "_meta": {_META_KEY: {"source": call.source}}},
    }


def call_from_mcp(request: Mapping[str, Any]) -> ToolCall:
    """Parse a `tools/call` request."""
    params = request["params"]
    source = _ours(params).get("source", "mcp")
    return ToolCall(params["name"], params.get("arguments") or {}, id=str(request.get("id", "")), source=source)


# -- Anthropic ----------------------------------------------------------------------------------------------------


def call_to_anthropic(call: ToolCall) -> dict[str, Any]:
    """Return a `tool_use` block."""
    return {"type": "tool_use", "id": call.id, "name": provider_safe(call.name), "input": call.shown_args}


def call_from_anthropic(block: Mapping[str, Any], names: Mapping[str, str] | None = None) -> ToolCall:
    """Parse a `tool_use` block; `names` maps safe names back (`core.names.provider_map`)."""
    name: str = block["name"]
    return ToolCall(names.get(name, name) if names else name, block.get("input") or {}, id=block["id"], source="model")


def result_to_anthropic(call_id: str, result: ToolResult, *, whole: bool = False) -> dict[str, Any]:
    """Return a `tool_result` block; `whole` appends what it has no field for."""
    content = sendable([block_to_anthropic(block) for block in readable_blocks(result, whole)])
    shape = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    return shape | ({"is_error": True} if not result.ok else {})


def result_from_anthropic(block: Mapping[str, Any]) -> ToolResult:
    """Parse a `tool_result` block."""
    content = block.get("content") or ""
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else cast("Sequence[Any]", content)
    return _read([_from_part(part) for part in parts], failed=bool(block.get("is_error")))


def block_to_anthropic(block: Block) -> dict[str, Any]:
    """Return a content block of a message."""
    if isinstance(block, Image):
        return {"type": "image", "source": {"type": "base64", "media_type": block.mime_type, "data": block.data}}
    return {"type": "text", "text": _text(block)}


# -- OpenAI -------------------------------------------------------------------------------------------------------


def call_to_openai(call: ToolCall) -> dict[str, Any]:
    """Return a `tool_calls` entry."""
    arguments = json.dumps(call.shown_args, ensure_ascii=False)
    return {"id": call.id, "type": "function", "function": {"name": provider_safe(call.name), "arguments": arguments}}


def call_from_openai(entry: Mapping[str, Any], names: Mapping[str, str] | None = None) -> ToolCall:
    """Parse a `tool_calls` entry. Arguments that are not a JSON object make the call fail validation."""
    function = entry["function"]
    name: str = function["name"]
    args = arguments(function.get("arguments") or "")
    return ToolCall(names.get(name, name) if names else name, args, id=entry["id"], source="model")


def result_to_openai(call_id: str, result: ToolResult, *, whole: bool = False) -> dict[str, Any]:
    """Return a `tool` message, with plain text if all blocks are text; `whole` appends what it has no field for."""
    blocks = readable_blocks(result, whole)
    if not whole and all(isinstance(block, Text) for block in blocks):
        content: Any = "\n".join(_text(block) for block in blocks)
    else:
        content = [block_to_openai(block) for block in blocks]
    return {"role": "tool", "tool_call_id": call_id, "content": sendable(content)}


def result_from_openai(message: Mapping[str, Any]) -> ToolResult:
    """Parse a `tool` message; a failure is recognized by its `Error (code):` prefix."""
    content = message.get("content") or ""
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else cast("Sequence[Any]", content)
    return _read([_from_part(part) for part in parts], failed=False)


def block_to_openai(block: Block) -> dict[str, Any]:
    """Return a part of a message."""
    if isinstance(block, Image):
        return {"type": "image_url", "image_url": {"url": f"data:{block.mime_type};base64,{block.data}"}}
    return {"type": "text", "text": _text(block)}


def _from_part(part: Mapping[str, Any]) -> Block:
    block = block_of_any_shape(part)
    return Text(str(part.get("text", ""))) if isinstance(block, Foreign) else block


# -- what a model reads -------------------------------------------------------------------------------------------


_REST: Final = "surehand-result: "
"""Prefix of the text block that holds what a form has no field for."""
_SAME: Final = "data_is_output"


def left_out(result: ToolResult) -> tuple[str, ...]:
    """Return the names of the parts of a result that Anthropic's and OpenAI's forms lose without `whole`."""
    return tuple(name for name in _rest(result) if name != _SAME)


def _rest(result: ToolResult) -> dict[str, Any]:
    """Return the parts of a result that the model APIs have no field for."""
    kept = {"data": result.data, "undo": result.undo.to_dict() if result.undo else None, "meta": dict(result.meta)}
    kept["details"] = dict(result.error.details) if result.error else None
    if result.data is not None and result.data == result.output:
        kept["data"], kept[_SAME] = None, True
    if result.error is not None and result.content and result.output not in ("", result.error.text):
        kept["output"] = result.output
    return {name: value for name, value in kept.items() if value not in (None, {})}


def readable_blocks(result: ToolResult, whole: bool = False) -> list[Block]:
    """Return the blocks a model gets, an error first, in a form that `_read` can parse."""
    rest = _rest(result) if whole else {}
    last: list[Block] = [Text(_REST + json.dumps(rest, ensure_ascii=False))] if rest else []
    error = result.error
    if error is None:
        return [*result.blocks, *last]
    said = f"Error ({error.code}): {error.message}" + (f"{_HINT}{error.hint}" if error.hint else "")
    more: list[Block] = list(result.content)
    if not more and result.output and result.output != error.text:
        more = [Text(result.output)]
    return [Text(said), *more, *last]


def _read(blocks: list[Block], *, failed: bool) -> ToolResult:
    rest: dict[str, Any] = {}
    if blocks and isinstance(last := blocks[-1], Text) and last.text.startswith(_REST):
        rest, blocks = json.loads(last.text.removeprefix(_REST)), blocks[:-1]
    error: ToolError | None = None
    if blocks and isinstance(blocks[0], Text) and (found := _ERROR.match(blocks[0].text)):
        message, _, hint = found[2].partition(_HINT)
        error = ToolError(cast("Any", found[1]), message, hint, rest.get("details") or {})
        blocks = blocks[1:]
    text = "\n".join(block.text for block in blocks if isinstance(block, Text))
    if failed and error is None:
        error = ToolError("execution_error", text or "the tool failed")
    plain = all(isinstance(block, Text) for block in blocks) and len(blocks) <= 1
    output = rest.get("output") or text or (error.text if error else "")
    undo = rest.get("undo")
    return ToolResult(
        ok=error is None,
        data=output if rest.get(_SAME) else rest.get("data"),
        output=output,
        content=() if plain else tuple(blocks),
        error=error,
        undo=Undo(**undo) if undo else None,
        meta=rest.get("meta") or {},
    )


def _text(block: Block) -> str:
    match block:
        case Text(text):
            return text
        case Foreign(raw):
            return json.dumps(dict(raw), ensure_ascii=False)
        case Image(_, mime_type):
            return f"[image, {mime_type}]"


# Lone surrogates (bytes of file names that are not UTF-8) cannot be encoded, so providers' clients refuse them.

_HALVES: Final = re.compile("[\ud800-\udfff]")


def sendable(value: Any) -> Any:
    """Replace lone surrogates by U+FFFD, at any depth."""
    if isinstance(value, str):
        return value if value.isascii() else _HALVES.sub("\ufffd", value)
    if isinstance(value, Mapping):
        entries = cast("Mapping[Any, Any]", value)
        return {sendable(key): sendable(each) for key, each in entries.items()}
    if isinstance(value, list | tuple):
        return [sendable(each) for each in cast("list[Any]", value)]
    return value
