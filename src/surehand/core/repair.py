"""Arguments repaired where the intent is plain, with a receipt.

Models send a JSON string for a list, a number in quotes, a nearly right enum value. What can only mean one thing is
mended and reported; everything else stays a fault.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final, cast

from surehand.core.schema import Schema, path_text, trimmed

_INTEGER: Final = re.compile(r"[+-]?\d{1,18}")
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_DEPTH_LIMIT: Final = 40


def repair(value: Mapping[str, Any], schema: Schema) -> tuple[dict[str, Any], list[str]]:
    """Return the arguments with plain slips mended, and a sentence for each mend."""
    notes: list[str] = []
    mended = _mend(dict(value), schema, schema, (), notes)
    return cast("dict[str, Any]", mended), notes


def _mend(value: Any, schema: Any, root: Schema, path: tuple[str | int, ...], notes: list[str]) -> Any:
    if not isinstance(schema, Mapping) or len(path) > _DEPTH_LIMIT:
        return value
    schema = _resolved(cast("Schema", schema), root)
    branches = cast("list[Schema]", schema.get("anyOf") or schema.get("oneOf") or [])
    if branches:
        return _mend_branches(value, [_resolved(branch, root) for branch in branches], root, path, notes)
    if "enum" in schema:
        return _mend_enum(value, schema["enum"], path, notes)
    wanted = schema.get("type")
    if isinstance(wanted, list):
        kinds: list[Schema] = [{**schema, "type": kind} for kind in cast("list[str]", wanted)]
        return _mend_branches(value, kinds, root, path, notes)
    if isinstance(wanted, str) and not _is(value, wanted):
        mended = _converted(value, wanted, schema)
        if mended is _NOTHING:
            return value
        notes.append(f"{path_text(path)}: took {trimmed(json.dumps(value, default=repr), 60)} as {_KIND[wanted]}")
        value = mended
    if isinstance(value, dict):
        return _mend_object(cast("dict[str, Any]", value), schema, root, path, notes)
    if isinstance(value, list) and "items" in schema:
        items = cast("list[Any]", value)
        mended_items: list[Any] = [
            _mend(each, schema["items"], root, (*path, index), notes) for index, each in enumerate(items)
        ]
        return mended_items
    return cast("Any", value)


def _mend_object(
    value: dict[str, Any], schema: Schema, root: Schema, path: tuple[str | int, ...], notes: list[str]
) -> dict[str, Any]:
    properties = cast("dict[str, Schema]", schema.get("properties") or {})
    required = cast("list[str]", schema.get("required") or [])
    mended: dict[str, Any] = {}
    for name, each in value.items():
        wanted = properties.get(name)
        if each is None and wanted is not None and name not in required and not _allows_null(wanted, root):
            notes.append(f"{path_text((*path, name))}: null left out, its default applies")
            continue
        mended[name] = _mend(each, wanted, root, (*path, name), notes) if wanted is not None else each
    return mended


def _mend_branches(
    value: Any, branches: list[Schema], root: Schema, path: tuple[str | int, ...], notes: list[str]
) -> Any:
    fitting = [branch for branch in branches if _fits(value, branch)]
    for branch in fitting or branches:
        trial: list[str] = []
        mended = _mend(value, branch, root, path, trial)
        if fitting or trial:
            notes.extend(trial)
            return mended
    return value


def _mend_enum(value: Any, choices: list[Any], path: tuple[str | int, ...], notes: list[str]) -> Any:
    if value in choices or not isinstance(value, str):
        return value
    words = {_folded(choice): choice for choice in choices if isinstance(choice, str)}
    near = set(get_close_matches(_folded(value), words, n=2, cutoff=0.75))
    near |= {word for word in words if value and word.startswith(_folded(value))}
    if _folded(value) in words:
        near = {_folded(value)}
    if len(near) != 1:
        return value
    meant = words[near.pop()]
    notes.append(f"{path_text(path)}: took {value!r} as {meant!r}")
    return meant


def _folded(word: str) -> str:
    return re.sub(r"[\s_-]+", "", word).casefold()


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


def _allows_null(schema: Schema, root: Schema) -> bool:
    schema = _resolved(schema, root)
    kinds = schema.get("type")
    if kinds is None and not schema.get("anyOf") and not schema.get("oneOf"):
        return True
    branches = cast("list[Schema]", schema.get("anyOf") or schema.get("oneOf") or [])
    return (
        kinds == "null" or (isinstance(kinds, list) and "null" in kinds) or any(_allows_null(b, root) for b in branches)
    )


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
_TRUTH: Final = {"true": True, "false": False, "yes": True, "no": False}


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
    if wanted == "integer" and isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return int(value)
    items = schema.get("items")
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        return _NOTHING  # meant as JSON, and broken
    if wanted == "array" and isinstance(items, Mapping) and isinstance(value, str | int | float | dict):
        return [value] if _fits(value, cast("Schema", items)) and "type" in items else _NOTHING
    return _NOTHING
