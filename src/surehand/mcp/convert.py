"""Convert to and from MCP's shapes: tools, pages, results, requests, versions.

Everything here is plain data; the SDK validates it against the protocol version of the connection.
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
"""The first version without connections and without requests of the server."""
WORKSPACE: Final = "workspace:///"
"""Prefix of the URIs of the workspace's files."""
PAGE: Final = 200
"""Entries of a page."""


def is_modern(version: str) -> bool:
    """Return whether a protocol version is of the newer era, in which a client calls again instead of being asked."""
    return version >= MODERN


def tool_shape(info: ToolInfo, name: str = "") -> dict[str, Any]:
    """Return a tool as an entry of `tools/list`, under a name that clients and model providers accept."""
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
"""Key of a result that is no object: only objects can be structured content."""


def promised_object(schema: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return a tool's output schema as that of an object; None without one, and for text, which is the content."""
    if not schema or schema.get("type") == "string":
        return None
    if schema.get("type") == "object":
        return schema
    parts = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    return {"type": "object", "properties": {_RESULT: inner}, "required": [_RESULT], **parts}


def object_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema with `type: object` at the top, which the protocol requires for arguments."""
    return {**schema, "type": "object"}


def result_shape(
    result: ToolResult, output_schema: Mapping[str, Any] | None, repeated: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the result of `tools/call`.

    Structured content is sent only if the tool has an output schema: some clients show their model nothing else, and
    what a model should read is the output. Otherwise the data is in `_meta`, without the keys `repeated` in the output.
    """
    shape = result_to_mcp(result)
    own_meta: dict[str, Any] = shape["_meta"]["surehand"]
    if own_meta["data"] == result.output:
        del own_meta["data"]  # a tool that returns text
    elif repeated and isinstance(own_meta["data"], dict):
        data = cast("dict[str, Any]", own_meta["data"])
        own_meta["data"] = {key: value for key, value in data.items() if key not in repeated}
    if not result.content:
        del own_meta["output"]  # it is the content
    shape["_meta"]["surehand"] = {key: value for key, value in own_meta.items() if value is not None}
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
"""Compiled output schemas by the id of the schema, which is kept alive beside them so that no other gets its id."""


def _fits(data: Any, promised: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
    cached = _VALIDATORS.get(id(schema))
    if cached is None or cached[0] is not schema:
        if len(_VALIDATORS) > 1000:
            _VALIDATORS.clear()
        cached = _VALIDATORS[id(schema)] = (schema, ForeignArguments(promised))
    try:
        return cached[1].fits(data)
    except InvalidArguments:  # validating it would take too long
        return False
    except ValueError:  # lone surrogates, or values that JSON cannot express
        return cached[1].fits(clean_json(data))


def _broken_promise(shape: dict[str, Any]) -> dict[str, Any]:
    """Return a result as a failure because its data does not match the output schema: clients would refuse it."""
    note = "(The result does not match the tool's output schema; it is shown above.)"
    return clean_json({**shape, "isError": True, "content": [*shape["content"], {"type": "text", "text": note}]})


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
"""Characters of the largest block passed on that is neither text nor image."""
IMAGE_BYTES: Final = 5 * 1024 * 1024
_IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Types that every provider accepts. A model gets the whole transcript: one bad image would end the conversation."""


def limit_blocks(blocks: list[Any]) -> list[Any]:
    """Return a server's content in few blocks: the SDK takes a while to validate each."""
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
    """Return a content block of a server as a model can get it; a note replaces one that it cannot."""
    match block:
        case {"type": "text", "text": str(text)}:
            return _text(text)  # without annotations
        case {"type": "image", "data": str(data)}:
            mime = _image_type(data)
            return {"type": "image", "data": data, "mimeType": mime} if mime else _text("[a picture was left out]")
        case _ if (size := len(json.dumps(block))) > FOREIGN_CHARS:
            return _text(f"[a block of {size:,} characters was left out ({str(block.get('type'))[:20]})]")
        case _:
            return block


def _image_type(data: str) -> str:
    """Return the type of an image, from its bytes; empty if it is none, or too large."""
    try:
        body = base64.b64decode(data, validate=True) if len(data) <= IMAGE_BYTES * 4 // 3 + 4 else b""
    except (binascii.Error, ValueError):
        return ""
    mime = sniff(body[:HEAD_BYTES]).mime
    return mime if mime in _IMAGES else ""


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def page(entries: Sequence[T], cursor: str | None, size: int = PAGE) -> tuple[Sequence[T], str | None]:
    """Return the page at a cursor, and the cursor of the next page; raise ToolFailure for an invalid cursor."""
    start = 0 if cursor is None else _parse_cursor(cursor)
    if start > len(entries):
        raise ToolFailure(f"the cursor {cursor!r} points past the end of the list", code="invalid_args")
    end = start + size
    return entries[start:end], _format_cursor(end) if end < len(entries) else None


def _format_cursor(position: int) -> str:
    return base64.urlsafe_b64encode(f"at:{position}".encode()).decode()


def _parse_cursor(cursor: str) -> int:
    try:
        prefix, _, number = base64.urlsafe_b64decode(cursor.encode()).decode().partition(":")
        if prefix == "at" and number.isascii() and number.isdigit():
            return int(number)
    except (binascii.Error, ValueError):
        pass
    raise ToolFailure(f"{cursor!r} is not a cursor of this server", code="invalid_args")


def input_required(requests: Mapping[str, Mapping[str, Any]], state: str) -> dict[str, Any]:
    """Return the result that has the client call again with the requested input."""
    return {"resultType": "input_required", "inputRequests": dict(requests), "requestState": state}


def root_path(uri: str) -> str | None:
    """Return the path of a `file://` root on this machine; None for any other URI."""
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
    """Return ` (did you mean ...?)` with the names nearest to an unknown one; empty if none is near."""
    from difflib import get_close_matches

    near = get_close_matches(name[:100], names, n=3, cutoff=0.5)
    return f" (did you mean {', '.join(near)}?)" if near else ""


def plain(value: Any) -> Any:
    """Return a model of the SDK as plain data; anything else unchanged."""
    return value.model_dump(by_alias=True, mode="json", exclude_none=True) if hasattr(value, "model_dump") else value


_ANSWER_KEYS: Final = {"elicitation/create": "action", "sampling/createMessage": "content", "roots/list": "roots"}


def answers(method: str, response: Any) -> bool:
    """Return whether a client's response fits the request."""
    return isinstance(response, Mapping) and _ANSWER_KEYS[method] in response


def lacks_capability(name: str) -> Exception:
    """Return the protocol error for a request that needs a capability the client does not have."""
    import mcp_types as types
    from mcp.shared.exceptions import MCPError

    message = f"this request needs a client that offers {name}"
    return MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, message, {"requiredCapabilities": {name: {}}})


def invalid(message: str, **data: Any) -> Exception:
    """Return the protocol error for invalid parameters."""
    import mcp_types as types
    from mcp.shared.exceptions import MCPError

    return MCPError(types.INVALID_PARAMS, message, data or None)
