"""Convert from and to the protocol's shapes: tools, pages, results, requests, versions. Nowhere else.

Everything here is plain data; the SDK checks it against the protocol version of the connection.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar, cast

from surehand.core.call import ToolResult
from surehand.core.errors import ToolFailure
from surehand.core.names import provider_safe
from surehand.core.schema import ForeignArguments, InvalidArguments
from surehand.core.shapes import result_to_mcp
from surehand.core.tool import ToolInfo
from surehand.core.view import mcp_tool
from surehand.files.sniff import HEAD_BYTES, sniff

T = TypeVar("T")

MODERN: Final = "2026-07-28"
"""The first version without connections and without requests from the server."""
WORKSPACE: Final = "workspace:///"
"""How the URIs of the workspace's files begin."""
PAGE: Final = 200
"""Entries of a list in one answer."""


def is_modern(version: str) -> bool:
    """Say whether a protocol version is of the era in which the client calls again instead of being asked."""
    return version >= MODERN


def tool_shape(info: ToolInfo, name: str = "") -> dict[str, Any]:
    """Return a tool as `tools/list` shows it, under a name that every client and every model behind it accepts."""
    shape = mcp_tool(info)
    shape["name"] = name or provider_safe(info.name)
    if shape["name"] != info.name:
        shape["title"] = info.name
    shape["inputSchema"] = object_schema(info.input_schema)
    shape.pop("outputSchema", None)
    if (promised := promised_object(info.output_schema)) is not None:
        shape["outputSchema"] = promised
    return shape


_RESULT: Final = "result"
"""The name under which an answer that is no object travels: only objects can be structured content."""


def promised_object(schema: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return what clients are promised of a tool's answers; None for nothing, and for text, which is the content."""
    if not schema or schema.get("type") == "string":
        return None
    if schema.get("type") == "object":
        return schema
    parts = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    return {"type": "object", "properties": {_RESULT: inner}, "required": [_RESULT], **parts}


def object_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema whose top says `object`, as the protocol demands of a tool's arguments."""
    return {**schema, "type": "object"}


def result_shape(
    result: ToolResult, output_schema: Mapping[str, Any] | None, repeated: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the answer to `tools/call`.

    Structured content is sent only where the tool's schema promises it: some clients show their model nothing else,
    and what a model should read is the output. The data travel in `_meta` all the same, without what is `repeated`
    in the output.
    """
    shape = result_to_mcp(result)
    kept: dict[str, Any] = shape["_meta"]["surehand"]
    if kept["data"] == result.output:
        del kept["data"]  # a tool that returns text
    elif repeated and isinstance(kept["data"], dict):
        told = cast("dict[str, Any]", kept["data"])
        kept["data"] = {key: value for key, value in told.items() if key not in repeated}
    if not result.content:
        del kept["output"]  # it is the content
    shape["_meta"]["surehand"] = {key: value for key, value in kept.items() if value is not None}
    promised = promised_object(output_schema)
    shape.pop("structuredContent", None)
    if promised is not None and output_schema is not None and result.ok:
        data = result.data if output_schema.get("type") == "object" else {_RESULT: result.data}
        if not _fits(data, promised, output_schema):
            return _broken_promise(shape)
        shape["structuredContent"] = data
        if data is result.data:
            shape["_meta"]["surehand"].pop("data", None)  # it is the structured content
    return clean_json(shape)


_VALIDATORS: Final[dict[int, tuple[Mapping[str, Any], ForeignArguments]]] = {}
"""Compiled promises by the identity of their schema, which is held beside: it lives as long as its tool."""


def _fits(data: Any, promised: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
    known = _VALIDATORS.get(id(schema))
    if known is None or known[0] is not schema:
        if len(_VALIDATORS) > 1000:
            _VALIDATORS.clear()
        known = _VALIDATORS[id(schema)] = (schema, ForeignArguments(promised))
    try:
        return known[1].fits(data)
    except InvalidArguments:  # it would take too long to say
        return False
    except ValueError:  # half characters, or values that JSON has no word for
        return known[1].fits(clean_json(data))


def _broken_promise(shape: dict[str, Any]) -> dict[str, Any]:
    """Return an answer that clients take, where a tool returned something else than its hint says."""
    said = "(The result does not match the tool's output schema; it is shown above.)"
    return clean_json({**shape, "isError": True, "content": [*shape["content"], {"type": "text", "text": said}]})


def clean_json(value: Any) -> Any:
    """Return plain data that every JSON reader accepts: lone surrogates and non-finite numbers are replaced."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict | Mapping):  # dict first: the test for the abstract class is ten times as slow
        items = cast("Mapping[Any, Any]", value).items()
        return {
            key if isinstance(key, str) and key.isascii() else clean_json(str(key)): clean_json(each)
            for key, each in items
        }
    if isinstance(value, list | tuple):
        return [clean_json(each) for each in cast("list[Any]", value)]
    return value


BLOCKS_LIMIT: Final = 100
FOREIGN_CHARS: Final = 100_000
"""Characters of the largest block of another kind than text and picture that is passed on."""
IMAGE_BYTES: Final = 5 * 1024 * 1024
_IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""What every provider takes. A model is sent its whole transcript: one wrong picture would end the conversation."""


def limit_blocks(blocks: list[Any]) -> list[Any]:
    """Return the content of a server's answer in few blocks: checking each takes a while."""
    if len(blocks) <= BLOCKS_LIMIT:
        return blocks
    texts = [_text_in(each) for each in blocks]
    if None not in texts:
        return [_text("\n".join(filter(None, texts)))]
    return [*blocks[:BLOCKS_LIMIT], _text(f"[{len(blocks) - BLOCKS_LIMIT:,} more blocks were left out]")]


def _text_in(block: Any) -> str | None:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case _:
            return None


def read_block(block: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a block of a server's answer as a model can take it; a note stands for what it cannot."""
    match block:
        case {"type": "text", "text": str(text)}:
            return _text(text)  # whom it is for, and what else a server says of it, is not for the model
        case {"type": "image", "data": str(data)}:
            mime = _image_type(data)
            return {"type": "image", "data": data, "mimeType": mime} if mime else _text("[a picture was left out]")
        case _ if (size := len(json.dumps(block))) > FOREIGN_CHARS:
            return _text(f"[a block of {size:,} characters was left out ({str(block.get('type'))[:20]})]")
        case _:
            return block


def _image_type(data: str) -> str:
    """Return what kind of picture this is by its bytes; nothing for what is none, or too large."""
    try:
        body = base64.b64decode(data, validate=True) if len(data) <= IMAGE_BYTES * 4 // 3 + 4 else b""
    except (binascii.Error, ValueError):
        return ""
    mime = sniff(body[:HEAD_BYTES]).mime
    return mime if mime in _IMAGES else ""


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def page(entries: Sequence[T], cursor: str | None, size: int = PAGE) -> tuple[Sequence[T], str | None]:
    """Return the entries after a cursor and the cursor of the next page; raise ToolFailure for one nobody was given."""
    start = 0 if cursor is None else _position(cursor)
    if start > len(entries):
        raise ToolFailure(f"the cursor {cursor!r} points past the end of the list", code="invalid_args")
    following = start + size
    return entries[start:following], _cursor(following) if following < len(entries) else None


def _cursor(position: int) -> str:
    return base64.urlsafe_b64encode(f"at:{position}".encode()).decode()


def _position(cursor: str) -> int:
    try:
        word, _, number = base64.urlsafe_b64decode(cursor.encode()).decode().partition(":")
        if word == "at" and number.isascii() and number.isdigit():
            return int(number)
    except (binascii.Error, ValueError):
        pass
    raise ToolFailure(f"{cursor!r} is not a cursor of this server", code="invalid_args")


def input_required(requests: Mapping[str, Mapping[str, Any]], state: str) -> dict[str, Any]:
    """Return the answer that asks the client to call again with the requested input."""
    return {"resultType": "input_required", "inputRequests": dict(requests), "requestState": state}


def root_path(uri: str) -> str | None:
    """Return the folder a `file://` root names on this machine, or None."""
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(uri)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        return None
    return unquote(parts.path) or None


def file_uri(workspace: str, path: str) -> str:
    """Return the URI of a file of the workspace."""
    from urllib.parse import quote

    return WORKSPACE + quote(path.removeprefix(workspace).lstrip("/"))


def nearest(name: str, names: Sequence[str]) -> str:
    """Return the end of a sentence that suggests the names nearest to one nobody has."""
    from difflib import get_close_matches

    near = get_close_matches(name[:100], names, n=3, cutoff=0.5)
    return f" (did you mean {', '.join(near)}?)" if near else ""


def plain(value: Any) -> Any:
    """Return one of the SDK's records as plain data."""
    return value.model_dump(by_alias=True, mode="json", exclude_none=True) if hasattr(value, "model_dump") else value


_ANSWERED_BY: Final = {"elicitation/create": "action", "sampling/createMessage": "content", "roots/list": "roots"}


def answers(method: str, said: Any) -> bool:
    """Return whether a client's response matches the request."""
    return isinstance(said, Mapping) and _ANSWERED_BY[method] in said


def lacks_capability(name: str) -> Exception:
    """Return the protocol error for a request that needs what the client does not offer."""
    import mcp_types as types
    from mcp.shared.exceptions import MCPError

    message = f"this request needs a client that offers {name}"
    return MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, message, {"requiredCapabilities": {name: {}}})


def invalid(message: str, **data: Any) -> Exception:
    """Return the protocol error for parameters that make no sense."""
    import mcp_types as types
    from mcp.shared.exceptions import MCPError

    return MCPError(types.INVALID_PARAMS, message, data or None)
