"""What providers mind about tools, and what tools cost."""

from __future__ import annotations

from typing import Any

import pytest

from surehand.cli.doctor import lint, tokens
from surehand.core.tool import ToolInfo


def info(schema: dict[str, Any], description: str = "Does something.", name: str = "t") -> ToolInfo:
    return ToolInfo(name=name, description=description, input_schema=schema)


TEXT = {"type": "string", "description": "A text"}


@pytest.mark.parametrize(
    ("schema", "provider", "weight", "said"),
    [
        ({"type": "array"}, "openai", "refused", '"object"'),
        ({"type": "object", "properties": {}, "anyOf": []}, "anthropic", "refused", "anyOf at the top"),
        ({"type": "object", "properties": {"näme": TEXT}}, "anthropic", "refused", "'näme'"),
        (
            {"type": "object", "properties": {"a": {"type": "object", "properties": {"b c": TEXT}}}},
            "anthropic",
            "refused",
            "a.'b c'",
        ),
        ({"type": "object"}, "openai", "advice", "no properties"),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, "anthropic", "advice", "no description: a"),
        ({"type": "object", "properties": {"a": {**TEXT, "pattern": "(?=x)"}}}, "openai", "advice", "looks around"),
    ],
)
def test_what_a_provider_minds_is_named(schema: dict[str, Any], provider: str, weight: str, said: str) -> None:
    found = [each for each in lint(info(schema)) if (each.provider, each.weight) == (provider, weight)]
    assert any(said in each.message for each in found)


def test_a_plain_tool_is_fine_everywhere() -> None:
    assert lint(info({"type": "object", "properties": {"text": TEXT}, "required": ["text"]}, name="time.now")) == []


def test_strange_schemas_are_looked_at_without_harm() -> None:
    deep: dict[str, Any] = {"type": "object", "properties": {}}
    here = deep
    for _ in range(100):
        here["properties"] = {"a": {"type": "object", "properties": {}, "description": "x"}}
        here = here["properties"]["a"]
    assert any("nested" in each.message for each in lint(info(deep)))
    for schema in ({"properties": 5}, {"type": "object", "properties": {"a": 1}}, {"items": [1], "anyOf": 3}):
        lint(info(schema))


def test_every_built_in_tool_is_taken_by_every_provider() -> None:
    from surehand.catalog import rows

    for row in rows():
        refused = [each for each in lint(ToolInfo.from_dict(row)) if each.weight == "refused"]
        assert refused == []


def test_longer_definitions_cost_more() -> None:
    short, long = info({"type": "object"}), info({"type": "object"}, "word " * 720)
    assert tokens(long) - tokens(short) == pytest.approx(1000, rel=0.05)
