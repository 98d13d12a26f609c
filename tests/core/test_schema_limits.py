"""Schemas of others are measured before they are used: a small one can be made to take hours."""

from __future__ import annotations

from typing import Any

import pytest

from surehand import RegistrationError, Registry, Tool
from surehand.core.schema import ForeignArguments, InvalidArguments, schema_problems
from surehand.core.schema_limits import SchemaWork, limit_faults
from surehand.engine.arguments import repair


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


def old_dependencies(levels: int) -> dict[str, Any]:
    """Return the same with the keyword that newer drafts have split in two."""
    parts: dict[str, Any] = {
        f"a{level}": {"dependencies": {"x": {"anyOf": [{"$ref": f"#/definitions/a{level + 1}"}] * 2}}}
        for level in range(levels)
    }
    parts[f"a{levels}"] = {"required": ["missing"]}
    draft = "http://json-schema.org/draft-07/schema#"
    return {"$schema": draft, "type": "object", "definitions": parts, "allOf": [{"$ref": "#/definitions/a0"}]}


def with_decoys(levels: int) -> dict[str, Any]:
    """Return the same inside a part with an address of its own; the names it uses mean something harmless outside."""
    inner = doubled(levels) | {"$id": "http://inner.test/"}
    harmless = {name: {"type": "string"} for name in inner["$defs"]}
    return {"type": "object", "$defs": {**harmless, "inner": inner}, "properties": {"y": {"$ref": "#/$defs/inner"}}}


def two_of_a_name(levels: int) -> dict[str, Any]:
    """Return the same by names that stand for something harmless where they are met first."""
    parts: dict[str, Any] = {
        f"a{level}": {"$anchor": f"a{level}", "anyOf": [{"$ref": f"#a{level + 1}"}] * 2} for level in range(levels)
    }
    parts[f"a{levels}"] = {"$anchor": f"a{levels}", "type": "string"}
    inner = {"$id": "http://inner.test/", "$defs": parts, "properties": {"x": {"$ref": "#a0"}}}
    harmless = {name: {"$anchor": name, "type": "string"} for name in parts}
    return {"type": "object", "$defs": {"inner": inner, **harmless}, "properties": {"y": {"$ref": "#/$defs/inner"}}}


BRANCH: dict[str, Any] = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}, "required": ["next"]}


LOOKS_FAR = "".join(rf"(?=[\s\S]{{1,{900 - number}}}x)\w" for number in range(600))


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (doubled(16), "too many alternatives"),
        (doubled(60), "too many alternatives"),
        ({"type": "object", "properties": {"x": written_out(15)}}, "parts"),
        (tree_of({"anyOf": [{"$ref": "#/$defs/node"}, {"type": "string"}]}), "refers to itself"),
        (old_dependencies(24), "too many alternatives"),
        (with_decoys(24), "too many alternatives"),
        (two_of_a_name(24), "too many alternatives"),
        ({"type": "object", "patternProperties": {f"x{number}y": True for number in range(300)}}, "patterns"),
        ({"type": "object", "properties": {"x": {"pattern": "|".join(map(str, range(20_000)))}}}, "patterns"),
        ({"type": "object", "properties": {"x": {"pattern": r"(\p{L}{1,50}\s{1,50}){1,50}"}}}, "too large"),
        ({"type": "object", "properties": {"x": {"pattern": LOOKS_FAR}}}, "too large"),
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
    assert arguments.is_slow({})
    deep: Any = "end"
    for _ in range(60):
        deep = {"next": deep}
    with pytest.raises(InvalidArguments, match="steps"):
        arguments.check({"x": deep})
    assert arguments.check({"x": {"next": {"next": "end"}}})
    with pytest.raises(InvalidArguments, match="x: "):
        arguments.check({"x": {"next": 5}})


def of_items(**schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": {"type": "array", "items": schema}}}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (of_items(enum=[f"choice {number}" for number in range(18_000)]), ["none of them"] * 100_000),
        (of_items(allOf=[{"minLength": 0}] * 6_000), ["text"] * 100_000),
        (of_items(oneOf=[{"const": number} for number in range(6_000)]), ["text"] * 100_000),
        (of_items(const=[0] * 9_000), [[0] * 9_000] * 200),
        (of_items(pattern=r"^(a+)+\1$"), ["a" * 28 + "!"] * 20_000),
        (of_items(type="object", propertyNames={"pattern": "^(?=(a|aa)+$)"}), [{"a" * 40 + "!": 1}] * 20_000),
        (of_items(allOf=[{"pattern": f"{number}x"} for number in range(150)]), ["a" * 1_000_000]),
    ],
)
def test_more_values_than_can_be_checked_in_a_moment_are_refused(schema: dict[str, Any], value: list[Any]) -> None:
    arguments = ForeignArguments(schema)
    assert arguments.problems() == []
    assert arguments.is_slow({"x": value})
    with pytest.raises(InvalidArguments, match="send less at a time"):
        arguments.check({"x": value})


@pytest.mark.parametrize(
    ("schema", "value", "told"),
    [
        (of_items(type="string"), [1] * 100_000, r"^x\[0\]: 1 is not of type"),
        (of_items(type="string"), [1] * 5, r"x\[4\]: 1 is not of type"),
        ({"type": "object", "required": [f"k{number}" for number in range(100_000)]}, None, '^"k0" is a required'),
    ],
)
def test_of_very_many_faults_the_first_is_told_and_of_few_every_one(
    schema: dict[str, Any], value: object, told: str
) -> None:
    with pytest.raises(InvalidArguments, match=told):
        ForeignArguments(schema).check({"x": value})


# As a widely used library writes its type for e-mail addresses out.
ADDRESS = r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"


def test_a_long_list_of_addresses_is_checked() -> None:
    arguments, addresses = ForeignArguments(of_items(pattern=ADDRESS)), [f"a.b{n}@example.org" for n in range(1_500)]
    assert arguments.check({"x": addresses})
    with pytest.raises(InvalidArguments, match=r"x\[1500\]: .*does not match"):
        arguments.check({"x": [*addresses, "a..b@example.org"]})


@pytest.mark.parametrize(
    "plain", [{"enum": [f"Zone/{number}" for number in range(400)]}, {"type": "string", "pattern": ADDRESS}]
)
def test_a_wrong_value_is_told_beside_alternatives(plain: dict[str, Any]) -> None:
    arguments = ForeignArguments({"type": "object", "properties": {"x": {"anyOf": [plain, {"type": "null"}]}}})
    with pytest.raises(InvalidArguments, match='x: "none of them"'):
        arguments.check({"x": "none of them"})


def test_a_wide_pattern_has_room_beside_many_small_ones() -> None:
    small = {f"p{number}": {"pattern": rf"^[a-z]{{1,{number + 2}}}$"} for number in range(50)}
    arguments = ForeignArguments({"type": "object", "properties": {**small, "x": {"pattern": r"^[\s\S]{1,4000}$"}}})
    assert arguments.problems() == []
    assert arguments.check({"x": "some text", "p0": "a"})


def test_patterns_that_look_around_are_matched_within_a_number_of_steps() -> None:
    arguments = ForeignArguments({"type": "object", "properties": {"x": {"pattern": "^(?!.*[.]{2})[a-z.]+$"}}})
    assert arguments.check({"x": "a.b.c"})
    with pytest.raises(InvalidArguments, match="x: "):
        arguments.check({"x": "a..b"})
    greedy = {"type": "object", "properties": {"x": {"pattern": "a?" * 3_000 + "a" * 3_000 + "(?!b)"}}}
    with pytest.raises(InvalidArguments, match="backtracking"):
        ForeignArguments(greedy).check({"x": "a" * 3_000})


def test_repairs_of_a_value_that_fits_none_of_very_many_choices_end() -> None:
    assert repair({"x": ["txt"] * 100_000}, of_items(oneOf=[{"type": "integer"}] * 6_000))[1] == []
    assert (
        repair({"x": "chioce"}, {"properties": {"x": {"enum": [f"c{number}" for number in range(100_000)]}}})[1] == []
    )


def test_what_does_not_fit_any_of_very_many_alternatives_is_refused_without_listing_them() -> None:
    with pytest.raises(InvalidArguments, match="too many alternatives to say where"):
        ForeignArguments(doubled(12)).check({"x": 5})
    assert ForeignArguments(doubled(12)).check({"x": "text"})


def test_everyday_schemas_are_measured_as_little_work() -> None:
    tree = tree_of({"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/node"}}}})
    assert limit_faults(tree) == []
    assert SchemaWork(tree).checks() < 20
    assert not ForeignArguments({"type": "object", "properties": {"x": {"enum": ["a", "b"]}}}).is_slow({"x": "a"})


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
