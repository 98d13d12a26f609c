"""Schemas of others are measured before they are used: a small one can be made to take hours."""

from __future__ import annotations

from typing import Any

import pytest

from surehand import RegistrationError, Registry, Tool
from surehand.core.schema import ForeignArguments, InvalidArguments, schema_problems
from surehand.core.schema_limits import SchemaWork, limit_faults


def doubled(levels: int) -> dict[str, Any]:
    """Return two kilobytes of schema in which each level is looked at twice by the one above."""
    parts: dict[str, Any] = {
        f"a{level}": {"anyOf": [{"$ref": f"#/$defs/a{level + 1}"}, {"$ref": f"#/$defs/a{level + 1}"}]}
        for level in range(levels)
    }
    parts[f"a{levels}"] = {"type": "string"}
    return {"type": "object", "$defs": parts, "properties": {"x": {"$ref": "#/$defs/a0"}}}


def written_out(levels: int) -> dict[str, Any]:
    return {"type": "string"} if levels == 0 else {"anyOf": [written_out(levels - 1), written_out(levels - 1)]}


def tree_of(node: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "$defs": {"node": node}, "properties": {"x": {"$ref": "#/$defs/node"}}}


BRANCH: dict[str, Any] = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}, "required": ["next"]}


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (doubled(16), "too many alternatives"),
        (doubled(60), "too many alternatives"),
        ({"type": "object", "properties": {"x": written_out(15)}}, "parts"),
        (tree_of({"anyOf": [{"$ref": "#/$defs/node"}, {"type": "string"}]}), "refers to itself"),
    ],
)
def test_a_schema_that_would_take_for_ever_is_refused_when_it_is_registered(schema: dict[str, Any], why: str) -> None:
    foreign = Tool(name="foreign", description="Foreign.", args=schema, run=lambda args, ctx: "")
    with pytest.raises(RegistrationError, match=why):
        Registry().register(foreign)


def test_a_schema_nested_without_end_is_refused_without_running_out_of_stack() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(100_000):
        deep = {"not": deep}
    assert "levels deep" in limit_faults({"type": "object", "properties": {"x": deep}})[0]


def test_values_that_make_a_recursive_schema_explode_are_refused() -> None:
    arguments = ForeignArguments(tree_of({"anyOf": [BRANCH, dict(BRANCH), {"type": "string"}]}))
    assert arguments.problems() == []
    assert arguments.is_slow
    deep: Any = "end"
    for _ in range(60):
        deep = {"next": deep}
    with pytest.raises(InvalidArguments, match="steps"):
        arguments.check({"x": deep})
    assert arguments.check({"x": {"next": {"next": "end"}}})
    with pytest.raises(InvalidArguments, match="x: "):
        arguments.check({"x": {"next": 5}})


def test_what_does_not_fit_any_of_very_many_alternatives_is_refused_without_listing_them() -> None:
    with pytest.raises(InvalidArguments, match="too many alternatives to say where"):
        ForeignArguments(doubled(12)).check({"x": 5})
    assert ForeignArguments(doubled(12)).check({"x": "text"})


def test_everyday_schemas_are_measured_as_little_work() -> None:
    tree = tree_of({"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/node"}}}})
    assert limit_faults(tree) == []
    assert SchemaWork(tree).checks() < 20
    assert not ForeignArguments({"type": "object", "properties": {"x": {"enum": ["a", "b"]}}}).is_slow


@pytest.mark.spec("REG-4")
def test_every_fault_of_a_schema_is_listed() -> None:
    found = schema_problems(
        {
            "type": "array",
            "properties": {
                "a": {"type": "strng"},
                "b": {"minimum": "x", "pattern": "("},
                "c": {"$ref": "#/$defs/nowhere"},
                "d": {"$ref": "#/$defs/elsewhere"},
            },
            "required": "a",
        }
    )
    for fault in ("'array'", "a.type", "b.minimum", "b.pattern", "required", "#/$defs/nowhere", "#/$defs/elsewhere"):
        assert any(fault in each for each in found), fault


@pytest.mark.parametrize("draft", ["http://json-schema.org/draft-07/schema#", "http://json-schema.org/draft-04/schema"])
def test_a_schema_is_checked_by_the_draft_it_names(draft: str) -> None:
    schema: dict[str, Any] = {"$schema": draft, "type": "object", "definitions": {"a": {"type": "string"}}}
    schema["properties"] = {"x": {"$ref": "#/definitions/a"}}
    assert schema_problems(schema) == []
    schema["definitions"]["a"] = {"type": "strng"}
    assert "definitions.a.type" in schema_problems(schema)[0]
