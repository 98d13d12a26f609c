"""From raw arguments to checked ones: repair what plainly means one thing, otherwise say everything that is wrong."""

from __future__ import annotations

import json
from typing import Any, cast

from surehand.core.call import BROKEN_ARGUMENTS, ToolCall
from surehand.core.errors import ToolFailure
from surehand.core.repair import repair
from surehand.core.schema import Fault, InvalidArguments, Schema
from surehand.core.tool import Tool


def mended(tool: Tool, call: ToolCall) -> tuple[Any, tuple[str, ...]]:
    """Return checked arguments and a receipt of repairs; raise `invalid_args` with every fault."""
    refused: list[Fault] = []
    try:
        raw, notes, refused = repair(call.args, tool.arguments.schema())
        parsed = tool.arguments.parse(raw, strict=False)
    except InvalidArguments as problem:
        known = {fault.path for fault in problem.faults}
        raise invalid(tool, [*problem.faults, *(each for each in refused if each.path not in known)]) from None
    except (TypeError, ValueError, AttributeError) as problem:
        raise invalid(tool, [Fault("", f"arguments must be an object: {problem}")]) from None
    if refused:
        raise invalid(tool, refused)
    return parsed, tuple(notes)


def broken(tool: Tool, call: ToolCall) -> ToolFailure:
    """Return the failure of a call whose arguments a model wrote in no JSON."""
    shown = str(call.args[BROKEN_ARGUMENTS])[:200]
    message = f"the arguments of {tool.name} are not JSON: {shown}"
    return ToolFailure(message, code="invalid_args", hint="Send one JSON object.")


def invalid(tool: Tool, faults: list[Fault]) -> ToolFailure:
    """Return the failure that lists every fault with its path, and an example that would do."""
    example = json.dumps(tool.examples[0] if tool.examples else sample(tool.arguments.schema()), ensure_ascii=False)
    listed = "; ".join(map(str, faults[:20])) + (f"; and {len(faults) - 20} more" if len(faults) > 20 else "")
    return ToolFailure(
        f"invalid arguments for {tool.name}: {listed}",
        code="invalid_args",
        hint=f"Correct them and call again, for example with {example}",
        details={"faults": [{"path": fault.path, "message": fault.message} for fault in faults]},
    )


_SAMPLES: dict[str, Any] = {
    "string": "...",
    "integer": 1,
    "number": 1.0,
    "boolean": True,
    "array": [],
    "object": {},
    "null": None,
}


def sample(schema: Schema) -> dict[str, Any]:
    """Return the smallest arguments a schema's required names describe."""
    properties: Schema = schema.get("properties") or {}
    wanted: list[str] = schema.get("required") or []
    return {name: _sample(properties.get(name)) for name in wanted}


def _sample(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return "..."
    described = cast("Schema", schema)
    choices: list[Any] = described.get("enum") or described.get("examples") or []
    return choices[0] if choices else _SAMPLES.get(str(described.get("type")), "...")
