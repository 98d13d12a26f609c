"""Arguments repaired where the intent is plain, with a receipt.

Models send a JSON string for a list, a number in quotes, an enum value with a slip in it. What can only mean one thing
is mended and reported; everything else stays a fault. A repair never guesses between words: `disallow` is no slip of
`allow`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, cast

from surehand.core.schema import Fault, Schema, path_text, trimmed
from surehand.core.typos import is_typo, words_of

_INTEGER: Final = re.compile(r"[+-]?\d{1,18}")
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_DEPTH_LIMIT: Final = 40
_STEPS_LIMIT: Final = 20_000


class _Report:
    """What was mended, and what no kind check may let pass although it could be read as the type that is wanted."""

    __slots__ = ("faults", "notes", "steps")

    def __init__(self, steps: int = _STEPS_LIMIT) -> None:
        self.notes: list[str] = []
        self.faults: list[Fault] = []
        self.steps = steps
        """What may still be looked at: a schema of many alternatives is not searched for all that could be meant."""

    def add(self, other: _Report) -> None:
        self.notes += other.notes
        self.faults += other.faults


def repair(value: Mapping[str, Any], schema: Schema) -> tuple[dict[str, Any], list[str], list[Fault]]:
    """Return the arguments with plain slips mended, a sentence for each mend, and what must not be converted silently.

    The faults are those that a lenient check would take without a word (`true` for a number).
    """
    report = _Report()
    mended = _mend(dict(value), schema, schema, (), report)
    return cast("dict[str, Any]", mended), report.notes, report.faults


def _mend(value: Any, schema: Any, root: Schema, path: tuple[str | int, ...], report: _Report) -> Any:
    report.steps -= 1
    if not isinstance(schema, Mapping) or len(path) > _DEPTH_LIMIT or report.steps < 0:
        return value
    schema = _resolved(cast("Schema", schema), root)
    branches = cast("list[Schema]", schema.get("anyOf") or schema.get("oneOf") or [])
    if branches:
        return _mend_branches(value, [_resolved(branch, root) for branch in branches], root, path, report)
    if "enum" in schema:
        return _mend_enum(value, schema["enum"], path, report)
    wanted = schema.get("type")
    if isinstance(wanted, list):
        kinds: list[Schema] = [{**schema, "type": kind} for kind in cast("list[str]", wanted)]
        return _mend_branches(value, kinds, root, path, report)
    if isinstance(wanted, str) and not _is(value, wanted):
        mended = _converted(value, wanted, schema)
        if mended is _NOTHING:
            if _must_refuse(value, wanted):
                shown = trimmed(json.dumps(value, default=repr), 60)
                report.faults.append(Fault(path_text(path), f"{shown} is not {_KIND[wanted]}"))
            return value
        report.notes.append(
            f"{path_text(path)}: took {trimmed(json.dumps(value, default=repr), 60)} as {_KIND[wanted]}"
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
    """Say whether a lenient check could turn this value into another one without a word."""
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
    fitting = [branch for branch in branches if _fits(value, branch)]
    refused: list[Fault] = []
    for branch in fitting or branches:
        trial = _Report(report.steps)
        mended = _mend(value, branch, root, path, trial)
        report.steps = trial.steps
        if fitting or trial.notes:
            report.add(trial)
            return mended
        refused += trial.faults[:1]
    if not fitting and len(refused) >= len(branches) - sum(branch.get("type") == "null" for branch in branches):
        report.faults += refused[:1]
    return value


def _mend_enum(value: Any, choices: list[Any], path: tuple[str | int, ...], report: _Report) -> Any:
    if value in choices or not isinstance(value, str):
        return value
    named = [choice for choice in choices if isinstance(choice, str)]
    spelt = [choice for choice in named if _folded(choice) == _folded(value)]
    # What may be the beginning of another choice is no plain slip of this one.
    near = spelt or [each for each in named if is_typo(value, each) or _folded(each).startswith(_folded(value))]
    if len(near) != 1 or not (spelt or is_typo(value, near[0])):
        return value
    report.notes.append(f"{path_text(path)}: took {value!r} as {near[0]!r}")
    return near[0]


def _folded(word: str) -> str:
    """Return a name without what only its spelling adds: capitals, and the signs between its words."""
    return "".join(words_of(word))


def _resolved(schema: Schema, root: Schema) -> Schema:
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
    schema = _resolved(schema, root)
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


def _converted(value: Any, wanted: str, schema: Schema) -> Any:
    """Return `value` as the wanted type where only one reading is possible, otherwise _NOTHING."""
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
        return _NOTHING  # meant as JSON, and broken
    if wanted == "array" and isinstance(items, Mapping) and isinstance(value, str | int | float | dict):
        return [value] if _fits(value, cast("Schema", items)) and "type" in items else _NOTHING
    return _NOTHING
