"""From raw arguments to checked ones: repair what plainly means one thing, otherwise say everything that is wrong
and show a sample that is right."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final, cast

from surehand.core.call import BROKEN_ARGUMENTS, ToolCall
from surehand.core.errors import ToolFailure
from surehand.core.repair import repair
from surehand.core.schema import Fault, InvalidArguments
from surehand.core.schema_limits import follow
from surehand.core.tool import Tool


def check_arguments(tool: Tool, call: ToolCall) -> tuple[Any, tuple[str, ...]]:
    """Return the checked arguments and a receipt of repairs, where any were needed; raise `invalid_args` otherwise."""
    given: Any = call.args
    if type(given) is dict and BROKEN_ARGUMENTS in given:  # a model wrote no JSON
        message = f"the arguments of {tool.name} are not JSON: {str(call.args[BROKEN_ARGUMENTS])[:200]}"
        raise ToolFailure(message, code="invalid_args", hint="Send one JSON object.")
    try:
        return tool.arguments.check(call.args), ()
    except InvalidArguments:
        return repair_arguments(tool, call)


def repair_arguments(tool: Tool, call: ToolCall) -> tuple[Any, tuple[str, ...]]:
    """Return checked arguments and a receipt of repairs; raise `invalid_args` with every fault."""
    refused: list[Fault] = []
    try:
        given, renamed = _rename(tool, call.args)
        raw, notes, refused = repair(given, tool.arguments.schema())
        notes = [*renamed, *notes]
        parsed = tool.arguments.check(raw, strict=False)
    except InvalidArguments as problem:
        known = {fault.path for fault in problem.faults}
        raise invalid(tool, [*problem.faults, *(each for each in refused if each.path not in known)]) from None
    except (TypeError, ValueError, AttributeError) as problem:
        raise invalid(tool, [Fault("", f"arguments must be an object: {problem}")]) from None
    if refused:
        raise invalid(tool, refused)
    return parsed, tuple(notes)


def _rename(tool: Tool, given: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[str]]:
    """Return arguments under the tool's own names where its class of arguments knows the other ones, and a receipt."""
    names: Mapping[str, str] = getattr(tool.args, "synonyms", {})
    values: Mapping[str, Mapping[str, str]] = getattr(tool.args, "value_synonyms", {})
    if not names and not values:
        return given, []
    found, notes = dict(given), list[str]()
    for other, own in names.items():
        if other in found and own not in found:
            found[own] = found.pop(other)
            notes.append(f"{other} was read as {own}")
    for own, words in values.items():
        said = found.get(own)
        if isinstance(said, str) and (meant := words.get(said.lower())) is not None:
            found[own] = meant
            notes.append(f"{own}: {said!r} was read as {meant!r}")
    return found, notes


def invalid(tool: Tool, faults: list[Fault]) -> ToolFailure:
    """Return the failure that lists every fault with its path, and an example that would do."""
    listed = "; ".join(map(str, faults[:20])) + (f"; and {len(faults) - 20} more" if len(faults) > 20 else "")
    example = _example(tool)
    shown = f", for example with {json.dumps(example, ensure_ascii=False)}" if example else "."
    return ToolFailure(
        f"invalid arguments for {tool.name}: {listed}",
        code="invalid_args",
        hint=f"Correct them and call again{shown}",
        details={"faults": [{"path": fault.path, "message": fault.message} for fault in faults]},
    )


def _example(tool: Tool) -> Mapping[str, Any] | None:
    """Return arguments that the tool would take; none rather than wrong ones."""
    for example in (*tool.examples[:1], sample(tool.arguments.schema())):
        try:
            tool.arguments.check(example, strict=False)
        except Exception:  # a schema can ask for anything; an example is only offered where one is sure
            continue
        return example
    return None


# Sample arguments: the smallest that a schema takes, an example for whoever sent wrong ones.

_DEPTH_LIMIT: Final = 12
_FORMATS: Final = {
    "date": "2025-01-31",
    "date-time": "2025-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "email": "name@example.com",
    "uri": "https://example.com/",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "hostname": "example.com",
    "binary": "...",
}


def sample(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the smallest arguments a schema describes: what is required, at its bounds. They may still not do."""
    made = _sample(schema, schema, 0)
    return cast("dict[str, Any]", made) if isinstance(made, dict) else {}


def _sample(schema: Any, root: Mapping[str, Any], depth: int) -> Any:
    if not isinstance(schema, dict) or depth > _DEPTH_LIMIT:
        return "..."
    told = _merge_schema(cast("dict[str, Any]", schema), root)
    for word in ("const", "default"):
        if word in told:
            return told[word]
    for word in ("examples", "enum"):
        if isinstance(told.get(word), list) and told[word]:
            return told[word][0]
    for word in ("anyOf", "oneOf"):
        branches = cast("list[Any]", told.get(word) or [])
        if branches:
            rest = {key: value for key, value in told.items() if key != word}
            return _sample({**rest, **_merge_schema(branches[0], root)}, root, depth + 1)
    kinds = told.get("type", "object" if "properties" in told else None)
    kind: object = cast("list[Any]", kinds)[0] if isinstance(kinds, list) and kinds else cast("object", kinds)
    match kind:
        case "object":
            properties = cast("dict[str, Any]", told.get("properties") or {})
            required = cast("list[str]", told.get("required") or [])
            return {name: _sample(properties.get(name, {}), root, depth + 1) for name in required}
        case "array":
            first = cast("list[Any]", told.get("prefixItems") or [])
            count = max(int(told.get("minItems", 0)), len(first)) if depth < _DEPTH_LIMIT else 0
            return [
                _sample(first[at] if at < len(first) else told.get("items"), root, depth + 1) for at in range(count)
            ]
        case "integer" | "number":
            return _number(told, whole=kind == "integer")
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return _text(told)


def _merge_schema(schema: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema with its reference and its `allOf` put into it."""
    told = dict(cast("Mapping[str, Any]", schema)) if isinstance(schema, Mapping) else {}
    for _ in range(_DEPTH_LIMIT):
        reference = told.pop("$ref", None)
        target = follow(root, reference[1:]) if isinstance(reference, str) and reference.startswith("#/") else None
        if not isinstance(target, Mapping):
            break
        told = {**cast("Mapping[str, Any]", target), **told}
    for part in cast("list[Any]", told.pop("allOf", None) or []):
        inner = _merge_schema(part, root)
        properties = {**inner.get("properties", {}), **told.get("properties", {})}
        required = [*told.get("required", []), *inner.get("required", [])]
        told = {**inner, **told} | ({"properties": properties} if properties else {})
        told |= {"required": list(dict.fromkeys(required))} if required else {}
    return told


def _number(told: Mapping[str, Any], *, whole: bool) -> float:
    """Return 1 where that is within the bounds, otherwise the nearest number that is."""
    step = told.get("multipleOf") or (1 if whole else None)
    low, high = told.get("minimum", -math.inf), told.get("maximum", math.inf)
    gap = step or 1e-6 * max(1.0, abs(told.get("exclusiveMinimum", 0)), abs(told.get("exclusiveMaximum", 0)))
    low = max(low, told["exclusiveMinimum"] + gap) if "exclusiveMinimum" in told else low
    high = min(high, told["exclusiveMaximum"] - gap) if "exclusiveMaximum" in told else high
    wanted = min(max(1, low), high)
    if step:
        wanted = math.ceil(wanted / step) * step
        wanted = wanted if wanted <= high else math.floor(high / step) * step
    return int(wanted) if whole or float(wanted).is_integer() else wanted


def _text(told: Mapping[str, Any]) -> str:
    text = _FORMATS.get(str(told.get("format")), "...")
    least, most = int(told.get("minLength", 0)), told.get("maxLength")
    text = text.ljust(min(least, 200), ".")
    return text if most is None else text[: int(most)]
