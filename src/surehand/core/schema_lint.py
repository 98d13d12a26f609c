"""Lint of a tool's schema: what each one refuses in a tool list, and what a definition costs in tokens.

One tool that a provider refuses makes it refuse the whole list, and the message rarely says which tool it was.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, cast

from surehand.core.frozen import frozen
from surehand.core.names import provider_safe
from surehand.core.tool import ToolInfo

Provider = Literal["anthropic", "openai"]
Weight = Literal["refused", "advice"]

CHARACTERS_PER_TOKEN: Final = 3.6
"""Measured over JSON schemas; a text in another script has fewer."""
OPENAI_DESCRIPTION: Final = 1024
DEEP: Final = 8
_TOP: Final = ("oneOf", "anyOf", "allOf", "enum", "not")
_KEY: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")


@frozen
class Finding:
    """One thing a provider minds about a tool; `refused` ones make it refuse the whole list."""

    tool: str
    provider: Provider
    weight: Weight
    message: str

    def to_dict(self) -> dict[str, str]:
        """Return it as plain data."""
        return {"tool": self.tool, "provider": self.provider, "weight": self.weight, "message": self.message}


def tokens(info: ToolInfo) -> int:
    """Return about how many tokens a tool's definition takes in every request."""
    shown = {"name": provider_safe(info.name), "description": info.description, "input_schema": info.input_schema}
    return round(len(json.dumps(shown, ensure_ascii=False)) / CHARACTERS_PER_TOKEN)


def lint(info: ToolInfo) -> list[Finding]:
    """Return everything the providers mind about a tool."""
    return [Finding(info.name, *found) for found in (*_top(info), *_keys(info), *_texts(info))]


def _top(info: ToolInfo) -> Iterator[tuple[Provider, Weight, str]]:
    schema = info.input_schema
    for provider in ("anthropic", "openai"):
        if schema.get("type") != "object":
            yield provider, "refused", f'the schema\'s type is {schema.get("type")!r}, and must be "object"'
        for word in _TOP:
            if word in schema:
                yield provider, "refused", f"{word} at the top of the schema; put it inside a property"
    if schema.get("type") == "object" and "properties" not in schema and "additionalProperties" not in schema:
        yield "openai", "advice", 'no properties; say "properties": {} for a tool without arguments'


def _keys(info: ToolInfo) -> Iterator[tuple[Provider, Weight, str]]:
    for path, schema, depth in _walk(info.input_schema):
        for key in _mapping(schema.get("properties")):
            if not _KEY.fullmatch(key):
                yield (
                    "anthropic",
                    "refused",
                    f"the property {path}{key!r}: only letters, digits, '_', '.', '-', at most 64",
                )
        if depth == DEEP:
            yield "openai", "advice", f"{path} is nested {DEEP} deep; models fill deep schemas badly"
        pattern = schema.get("pattern")
        if isinstance(pattern, str) and any(mark in pattern for mark in ("(?=", "(?!", "(?<")):
            yield "openai", "advice", f"{path}pattern looks around ({pattern[:40]}); constrained decoding ignores it"


def _texts(info: ToolInfo) -> Iterator[tuple[Provider, Weight, str]]:
    if len(info.description) > OPENAI_DESCRIPTION:
        size = len(info.description)
        yield "openai", "advice", f"the description has {size:,} characters; some models take {OPENAI_DESCRIPTION:,}"
    silent = [
        name
        for name, schema in _mapping(info.input_schema.get("properties")).items()
        if not _mapping(schema).get("description")
    ]
    if silent:
        yield "anthropic", "advice", f"no description: {', '.join(silent)}"


def _walk(schema: Mapping[str, Any], path: str = "", depth: int = 0) -> Iterator[tuple[str, Mapping[str, Any], int]]:
    """Yield every schema inside a schema with its path; definitions are visited where they are defined."""
    yield path, schema, depth
    if depth > DEEP:
        return
    for name, inner in (*_mapping(schema.get("properties")).items(), *_mapping(schema.get("$defs")).items()):
        yield from _walk(_mapping(inner), f"{path}{name}.", depth + 1)
    items = schema.get("items")
    if isinstance(items, Mapping):
        yield from _walk(cast("Mapping[str, Any]", items), f"{path}items.", depth + 1)
    for word in ("anyOf", "oneOf", "allOf"):
        choices = schema.get(word)
        for inner in cast("list[Any]", choices) if isinstance(choices, list) else []:
            yield from _walk(_mapping(inner), path, depth + 1)


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
