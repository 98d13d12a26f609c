"""Names: rules, full forms, and the one-to-one map to what providers accept."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surehand.core.names import full_name, name_problems, nearest, provider_map, provider_safe, split_full_name

SAFE = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@pytest.mark.spec("CORE-9")
@given(st.lists(st.text(min_size=1, max_size=100), min_size=1, max_size=30, unique=True))
def test_every_name_reaches_every_provider_and_comes_back(names: list[str]) -> None:
    mapped = provider_map(names)
    assert len(mapped) == len(names)
    for name in names:
        assert SAFE.fullmatch(provider_safe(name))
        assert mapped[provider_safe(name)] == name


def test_a_name_that_is_already_safe_stays() -> None:
    assert provider_safe("mcp__github__list_issues") == "mcp__github__list_issues"


def test_dotted_names_that_differ_by_one_character_stay_apart() -> None:
    assert provider_safe("time.now") != provider_safe("time_now")


def test_full_names_are_made_and_taken_apart() -> None:
    assert full_name("calculator", "calculate") == "mcp__calculator__calculate"
    assert split_full_name("mcp__calculator__calculate") == ("calculator", "calculate")
    assert split_full_name("mcp__a__b__c") == ("a", "b__c")


@pytest.mark.parametrize("name", ["Read", "mcp__", "mcp__server", "mcp____x"])
def test_other_names_have_no_full_form_to_take_apart(name: str) -> None:
    assert split_full_name(name) is None


@pytest.mark.parametrize("name", ["", " x", "x ", "a\nb", "a\u200bb", "x" * 257, 5])
def test_names_that_cannot_be_shown_are_refused(name: object) -> None:
    assert name_problems(name)


@pytest.mark.parametrize("name", ["Read", "time.now", "查询", "my tool", "🔧", "a/b"])
def test_names_of_foreign_servers_are_taken(name: str) -> None:
    assert name_problems(name) == []


@pytest.mark.parametrize(
    ("word", "meant"),
    [("Raed", "Read"), ("raed", "Read"), ("Reed", "Read"), ("Redoo", "Redo"), ("desc", "description"), ("xyz", None)],
)
def test_the_nearest_name_is_the_one_that_was_probably_meant(word: str, meant: str | None) -> None:
    assert nearest(word, ["Redo", "Read", "Write", "description"]) == meant
