"""What tools require of each other: names, ranges of versions, cycles."""

from __future__ import annotations

import pytest

from surehand.core.errors import RegistrationError
from surehand.core.tool import Tool
from surehand.registry.registry import Registry, order_by_requirements, requirement_problems, split_requirement

SCHEMA = {"type": "object"}


def make(name: str, *requires: str, version: str = "1.0.0", aliases: tuple[str, ...] = ()) -> Tool:
    return Tool(
        name=name,
        description=name,
        run=lambda a, c: None,
        args=SCHEMA,
        requires=requires,
        version=version,
        aliases=aliases,
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Grep", ("Grep", "")),
        ("Grep>=1.2,<2", ("Grep", ">=1.2,<2")),
        ("pkg.search ~=1.0", ("pkg.search", "~=1.0")),
        ("a tool with blanks == 1", ("a tool with blanks", "== 1")),
        (" mcp__x__y ", ("mcp__x__y", "")),
    ],
)
def test_a_requirement_is_a_name_and_a_range(text: str, expected: tuple[str, str]) -> None:
    assert split_requirement(text) == expected


@pytest.mark.parametrize(
    ("requires", "fault"),
    [
        ("Missing", "requires Missing, which is not registered"),
        ("Missing>=1", "requires Missing>=1, which is not registered"),
        ("Lib>=2", "requires Lib>=2, but Lib has version 1.4.2"),
        ("Lib>=1,<1.4", "requires Lib>=1,<1.4, but Lib has version 1.4.2"),
        ("Lib>=one", "requirement 'Lib>=one' has no valid range"),
        (">=1", "names no tool"),
        ("Odd>=1", "has the version 'tuesday', which cannot be compared"),
    ],
)
def test_what_cannot_be_met_is_named(requires: str, fault: str) -> None:
    there = {"Lib": make("Lib", version="1.4.2"), "Odd": make("Odd", version="tuesday")}
    assert fault in requirement_problems(make("new", requires), there.get)[0]


@pytest.mark.parametrize("requires", ["Lib", "Lib>=1.2,<2", "Lib~=1.4", "Lib!=1.4.1", "L"])
def test_what_is_there_meets_the_requirement(requires: str) -> None:
    lib = make("Lib", version="1.4.2", aliases=("L",))
    assert requirement_problems(make("new", requires), {"Lib": lib, "L": lib}.get) == []


def test_every_unmet_requirement_is_listed() -> None:
    assert len(requirement_problems(make("new", "a", "b>=1", "c"), {}.get)) == 3


def test_a_cycle_is_named_from_end_to_end() -> None:
    there = {"b": make("b", "c"), "c": make("c", "a")}
    assert requirement_problems(make("a", "b"), there.get) == ["requires itself: a -> b -> c -> a"]


def test_a_group_is_ordered_by_what_its_members_require() -> None:
    names, faults = order_by_requirements([make("top", "middle"), make("middle", "base"), make("base")], {}.get)
    assert (names, faults) == (["base", "middle", "top"], {})


def test_a_member_that_cannot_be_had_takes_along_those_that_require_it() -> None:
    names, faults = order_by_requirements([make("a", "b"), make("b", "nowhere"), make("c")], {}.get)
    assert names == ["c"]
    assert faults["b"] == ["requires nowhere, which is not registered"]
    assert faults["a"] == ["requires b, which cannot be registered"]


def test_registering_checks_requirements_and_versions() -> None:
    registry = Registry()
    with pytest.raises(RegistrationError, match="requires base>=2, which is not registered"):
        registry.register(make("a", "base>=2"))
    registry.register(make("base", version="2.1"))
    registry.register(make("a", "base>=2"))
    assert "a" in registry


def test_a_module_whose_members_require_each_other_in_a_circle_is_refused_whole() -> None:
    registry = Registry()
    with pytest.raises(RegistrationError, match="requires itself: a -> b -> a"):
        registry.register_module("ring", [make("a", "b"), make("b", "a")])
    assert len(registry) == 0


def test_unregistering_what_others_need_is_refused_or_cascades() -> None:
    registry = Registry()
    registry.register(make("base"))
    registry.register(make("a", "base"))
    registry.register(make("b", "a"))
    with pytest.raises(RegistrationError, match="still required by a"):
        registry.unregister("base")
    assert set(registry.unregister("base", cascade=True)) == {"base", "a", "b"}
    assert len(registry) == 0


def test_a_replacement_must_still_serve_those_who_require_it() -> None:
    registry = Registry()
    registry.register(make("base", version="2.0"))
    registry.register(make("a", "base>=2"))
    with pytest.raises(RegistrationError, match=r"requires base>=2, but base has version 1\.0"):
        registry.replace(make("base", version="1.0"))
    registry.replace(make("base", version="2.5"))
    card = registry.card("base")
    assert card is not None
    assert card.version == "2.5"
