"""Validate arguments: repair what has only one possible meaning, otherwise list all faults and show an example."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final, cast

from surehand.core.call import BROKEN_ARGUMENTS, ToolCall
from surehand.core.errors import ToolFailure
from surehand.core.schema import Fault, InvalidArguments, Schema, path_text, truncate_text
from surehand.core.schema_limits import follow
from surehand.core.tool import Tool


def check_arguments(tool: Tool, call: ToolCall) -> tuple[Any, tuple[str, ...]]:
    """Return validated arguments and the repairs made; raise `invalid_args` if they cannot be repaired."""
    given: Any = call.args
    if type(given) is dict and BROKEN_ARGUMENTS in given:  # a model wrote invalid JSON
        message = f"the arguments of {tool.name} are not JSON: {str(call.args[BROKEN_ARGUMENTS])[:200]}"
        raise ToolFailure(message, code="invalid_args", hint="Send one JSON object.")
    try:
        return tool.arguments.check(call.args), ()
    except InvalidArguments:
        return repair_arguments(tool, call)


def repair_arguments(tool: Tool, call: ToolCall) -> tuple[Any, tuple[str, ...]]:
    """Repair and validate arguments; return them and the repairs made, or raise `invalid_args` with all faults."""
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
    """Rename arguments that the tool knows under other names; return them and the renames made."""
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
    """Return the failure that lists all faults with their paths, and valid example arguments."""
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
    """Return valid example arguments, or None if none are certain to be valid."""
    for example in (*tool.examples[:1], sample(tool.arguments.schema())):
        try:
            tool.arguments.check(example, strict=False)
        except Exception:  # a schema may demand anything; an example must be certainly valid
            continue
        return example
    return None


# -- sample arguments: the smallest that a schema allows ---------------------------------------------------------------

_SAMPLE_DEPTH: Final = 12
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
    """Return the required arguments of a schema, at their bounds. They may still be invalid."""
    made = _sample(schema, schema, 0)
    return cast("dict[str, Any]", made) if isinstance(made, dict) else {}


def _sample(schema: Any, root: Mapping[str, Any], depth: int) -> Any:
    if not isinstance(schema, dict) or depth > _SAMPLE_DEPTH:
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
            count = max(int(told.get("minItems", 0)), len(first)) if depth < _SAMPLE_DEPTH else 0
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
    """Return a schema with its `$ref` and `allOf` merged into it."""
    told = dict(cast("Mapping[str, Any]", schema)) if isinstance(schema, Mapping) else {}
    for _ in range(_SAMPLE_DEPTH):
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
    """Return 1, or the nearest number within the bounds."""
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


# Repair of arguments. Models send a JSON string for a list, a number in quotes, an enum value with a typo. What has
# only one possible meaning is repaired and reported; everything else stays a fault. A repair never guesses between
# words: `disallow` is no typo of `allow`.

_INTEGER: Final = re.compile(r"[+-]?\d{1,18}")
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_DEPTH_LIMIT: Final = 40
_STEPS_LIMIT: Final = 20_000
_STEPS_A_CHOICE: Final = 10
"""Cost of comparing two words, in steps."""
_SHORT: Final = 4
"""Shorter words are similar to too many others to be repaired."""
_LONG: Final = 8
"""From this length on, two typos are repaired."""
_SUBSTITUTION_FROM: Final = 6
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BETWEEN: Final = re.compile(r"(?<=[^\W_])[\s_-]+(?=[^\W_])|\s+")
"""Separators between words; at the start or end of a name signs have a meaning (`-name`, `c++`)."""
_ENDINGS: Final = frozenset("dnry")
"""Letters that, added at the end, make another word: `closed`, `shown`, `reader`, `quickly`."""


class _Report:
    """The repairs made, and the values that a lenient check would coerce silently."""

    __slots__ = ("faults", "notes", "steps")

    def __init__(self, steps: int = _STEPS_LIMIT) -> None:
        self.notes: list[str] = []
        self.faults: list[Fault] = []
        self.steps = steps
        """Remaining budget: a schema with many alternatives is not searched exhaustively."""

    def add(self, other: _Report) -> None:
        self.notes += other.notes
        self.faults += other.faults


def repair(value: Mapping[str, Any], schema: Schema) -> tuple[dict[str, Any], list[str], list[Fault]]:
    """Return the repaired arguments, a sentence per repair, and faults.

    The faults are values that a lenient check would coerce silently (`true` for a number).
    """
    report = _Report()
    mended = _mend(dict(value), schema, schema, (), report)
    return cast("dict[str, Any]", mended), report.notes, report.faults


def _mend(value: Any, schema: Any, root: Schema, path: tuple[str | int, ...], report: _Report) -> Any:
    report.steps -= 1
    if not isinstance(schema, Mapping) or len(path) > _DEPTH_LIMIT or report.steps < 0:
        return value
    schema = _resolve_reference(cast("Schema", schema), root)
    branches = cast("list[Schema]", schema.get("anyOf") or schema.get("oneOf") or [])
    if branches:
        return _mend_branches(value, [_resolve_reference(branch, root) for branch in branches], root, path, report)
    if "enum" in schema:
        return _mend_enum(value, schema["enum"], path, report)
    wanted = schema.get("type")
    if isinstance(wanted, list):
        kinds: list[Schema] = [{**schema, "type": kind} for kind in cast("list[str]", wanted)]
        return _mend_branches(value, kinds, root, path, report)
    if isinstance(wanted, str) and not _is(value, wanted):
        mended = _convert_to(value, wanted, schema)
        if mended is _NOTHING:
            if _must_refuse(value, wanted):
                shown = truncate_text(json.dumps(value, default=repr), 60)
                report.faults.append(Fault(path_text(path), f"{shown} is not {_KIND[wanted]}"))
            return value
        report.notes.append(
            f"{path_text(path)}: took {truncate_text(json.dumps(value, default=repr), 60)} as {_KIND[wanted]}"
        )
        value = mended
    if isinstance(value, dict):
        return _mend_object(cast("dict[str, Any]", value), schema, root, path, report)
    if isinstance(value, list) and "items" in schema:
        items = cast("list[Any]", value)
        mended_items: list[Any] = [
            _mend(each, schema["items"], root, (*path, index), report) for index, each in enumerate(items)
        ]
        return mended_items
    return cast("Any", value)


def _must_refuse(value: Any, wanted: str) -> bool:
    """Whether a lenient check would silently coerce this value."""
    if isinstance(value, bool):
        return wanted in ("integer", "number", "string", "null")
    return wanted in ("integer", "number", "boolean") and isinstance(value, str | int | float)


def _mend_object(
    value: dict[str, Any], schema: Schema, root: Schema, path: tuple[str | int, ...], report: _Report
) -> dict[str, Any]:
    properties = cast("dict[str, Schema]", schema.get("properties") or {})
    required = cast("list[str]", schema.get("required") or [])
    mended: dict[str, Any] = {}
    for name, each in value.items():
        wanted = properties.get(name)
        if each is None and wanted is not None and name not in required and not _allows_null(wanted, root, report):
            report.notes.append(f"{path_text((*path, name))}: null left out, its default applies")
            continue
        mended[name] = _mend(each, wanted, root, (*path, name), report) if wanted is not None else each
    return mended


def _mend_branches(
    value: Any, branches: list[Schema], root: Schema, path: tuple[str | int, ...], report: _Report
) -> Any:
    report.steps -= len(branches)
    if report.steps < 0:
        return value
    fitting = [branch for branch in branches if _fits(value, branch)]
    refused: list[Fault] = []
    for branch in fitting or branches:
        branch_report = _Report(report.steps)
        mended = _mend(value, branch, root, path, branch_report)
        report.steps = branch_report.steps
        if fitting or branch_report.notes:
            report.add(branch_report)
            return mended
        refused += branch_report.faults[:1]
    if not fitting and len(refused) >= len(branches) - sum(branch.get("type") == "null" for branch in branches):
        report.faults += refused[:1]
    return value


def _mend_enum(value: Any, choices: list[Any], path: tuple[str | int, ...], report: _Report) -> Any:
    report.steps -= len(choices) * _STEPS_A_CHOICE
    if report.steps < 0 or value in choices or not isinstance(value, str):
        return value
    named = [choice for choice in choices if isinstance(choice, str)]
    spelt = [choice for choice in named if _fold_word(choice) == _fold_word(value)]
    # A prefix of another choice may be meant as that one.
    near = spelt or [each for each in named if is_typo(value, each) or _fold_word(each).startswith(_fold_word(value))]
    if len(near) != 1 or not (spelt or is_typo(value, near[0])):
        return value
    report.notes.append(f"{path_text(path)}: took {value!r} as {near[0]!r}")
    return near[0]


def _fold_word(word: str) -> str:
    """Return a name in lower case, without separators between its words."""
    return "".join(words_of(word))


def _resolve_reference(schema: Schema, root: Schema) -> Schema:
    for _ in range(_DEPTH_LIMIT):
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return schema
        target: Any = root
        for part in reference[2:].split("/"):
            target = cast("Schema", target).get(part.replace("~1", "/").replace("~0", "~"), {})
            if not isinstance(target, dict):
                return {}
        schema = cast("Schema", target)
    return {}


def _allows_null(schema: Schema, root: Schema, report: _Report) -> bool:
    report.steps -= 1
    if report.steps < 0:
        return True
    schema = _resolve_reference(schema, root)
    kinds = schema.get("type")
    branches = cast("list[Schema]", schema.get("anyOf") or schema.get("oneOf") or [])
    if kinds is None and not branches:
        return True
    if kinds == "null" or (isinstance(kinds, list) and "null" in kinds):
        return True
    return any(_allows_null(branch, root, report) for branch in branches)


def _fits(value: Any, schema: Schema) -> bool:
    if "enum" in schema:
        return value in schema["enum"]
    wanted = schema.get("type")
    kinds = cast("list[str]", wanted) if isinstance(wanted, list) else [wanted]
    return wanted is None or any(isinstance(kind, str) and _is(value, kind) for kind in kinds)


def _is(value: Any, kind: str) -> bool:
    match kind:
        case "string":
            return isinstance(value, str)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "object":
            return isinstance(value, Mapping)
        case "array":
            return isinstance(value, list | tuple)
        case "null":
            return value is None
        case _:
            return True


_NOTHING: Final = object()
_KIND: Final = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "string": "text",
    "null": "null",
}
_TRUTH: Final = {
    "true": True,
    "false": False,
    "yes": True,
    "no": False,
    "on": True,
    "off": False,
    "1": True,
    "0": False,
}


def _convert_to(value: Any, wanted: str, schema: Schema) -> Any:
    """Convert a value to the wanted type if that is unambiguous; otherwise return _NOTHING."""
    if isinstance(value, str):
        text = value.strip()
        if wanted == "integer" and _INTEGER.fullmatch(text):
            return int(text)
        if wanted == "number" and _NUMBER.fullmatch(text):
            return int(text) if _INTEGER.fullmatch(text) else float(text)
        if wanted == "boolean" and text.lower() in _TRUTH:
            return _TRUTH[text.lower()]
        if wanted in ("array", "object") and text[:1] == ("[" if wanted == "array" else "{"):
            try:
                parsed = json.loads(text)
            except (ValueError, RecursionError):
                return _NOTHING
            return parsed if _is(parsed, wanted) else _NOTHING
    if wanted == "boolean" and isinstance(value, int) and value in (0, 1):
        return bool(value)
    if wanted == "integer" and isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return int(value)
    items = schema.get("items")
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        return _NOTHING  # looks like JSON, but is invalid
    if wanted == "array" and isinstance(items, Mapping) and isinstance(value, str | int | float | dict):
        return [value] if _fits(value, cast("Schema", items)) and "type" in items else _NOTHING
    return _NOTHING


# -- typos: is one word a misspelling of another? ----------------------------------------------------------------------

# Strict, since a repaired word is acted upon without a question. A letter added, missing, swapped with the next, or
# wrong inside a long word is a typo. Words that differ in a prefix or an ending are different words (`uninstall`,
# `undone`, `disabled`), and so are those with another beginning (`increase` and `decrease`).


def words_of(text: str) -> list[str]:
    """Return the words of a name in lower case: two of `maxTokens`, `max-tokens` and `MAX_TOKENS`."""
    return [word for word in _BETWEEN.split(_HUMP.sub(" ", text).casefold()) if word]


def is_typo(given: str, meant: str) -> bool:
    """Whether `given` can only be a misspelling of `meant`, compared word by word."""
    pairs = (words_of(given), words_of(meant))
    if len(pairs[0]) != len(pairs[1]) or not pairs[0]:
        return False
    return all(left == right or _is_slip(left, right) for left, right in zip(*pairs, strict=True))


def _is_slip(given: str, meant: str) -> bool:
    length = min(len(given), len(meant))
    if length < _SHORT or given.endswith(meant) or meant.endswith(given):
        return False
    shorter, longer = sorted((given, meant), key=len)
    if longer.startswith(shorter):
        return _is_slip_at_the_end(shorter, longer, cut_short=len(given) < len(meant))
    inserted, substituted, swapped = _edits(given, meant)
    if inserted + substituted + swapped > (2 if length >= _LONG else 1) or substituted > 1:
        return False
    if substituted and (length < _SUBSTITUTION_FROM or given[-1] != meant[-1]):
        return False
    if swapped and length <= _SHORT:
        return False
    return given[0] == meant[0] or (swapped == 1 and not inserted and not substituted)


def _is_slip_at_the_end(shorter: str, longer: str, *, cut_short: bool) -> bool:
    """Whether the words differ in a final letter that is a plural, doubled, or missing."""
    rest = longer[len(shorter) :]
    if len(rest) != 1:
        return False
    return rest == "s" or rest == shorter[-1] or (cut_short and rest not in _ENDINGS)


def _edits(given: str, meant: str) -> tuple[int, int, int]:
    """Return the edit distance as letters inserted or missing, letters wrong, and neighbours swapped."""
    rows: list[list[tuple[int, int, int]]] = [[(column, 0, 0) for column in range(len(meant) + 1)]]
    for row in range(1, len(given) + 1):
        rows.append([(row, 0, 0)])
        for column in range(1, len(meant) + 1):
            rows[row].append(_cheapest(rows, row, column, given, meant))
    return rows[-1][-1]


def _cheapest(
    rows: list[list[tuple[int, int, int]]], row: int, column: int, given: str, meant: str
) -> tuple[int, int, int]:
    inserted, substituted, swapped = rows[row - 1][column - 1]
    same = given[row - 1] == meant[column - 1]
    found = [(inserted, substituted + (not same), swapped)]
    for before in (rows[row - 1][column], rows[row][column - 1]):
        found.append((before[0] + 1, before[1], before[2]))
    if row > 1 and column > 1 and given[row - 2 : row] == meant[column - 2 : column][::-1]:
        before = rows[row - 2][column - 2]
        found.append((before[0], before[1], before[2] + 1))
    return min(found, key=sum)
