"""Arguments repaired where the intent is plain, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from surehand.core.repair import repair

SCHEMA: dict[str, Any] = {
    "type": "object",
    "$defs": {"edit": {"type": "object", "properties": {"n": {"type": "integer"}}}},
    "properties": {
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "deep": {"type": "boolean"},
        "names": {"type": "array", "items": {"type": "string"}},
        "edits": {"type": "array", "items": {"$ref": "#/$defs/edit"}},
        "options": {"type": "object", "properties": {"n": {"type": "integer"}}},
        "mode": {"enum": ["files_with_matches", "content", "count"]},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "text": {"type": "string"},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
    },
    "required": ["text"],
}


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"count": "5"}, {"count": 5}),
        ({"count": 5.0}, {"count": 5}),
        ({"ratio": "0.5"}, {"ratio": 0.5}),
        ({"deep": "true"}, {"deep": True}),
        ({"deep": "False"}, {"deep": False}),
        ({"names": '["a", "b"]'}, {"names": ["a", "b"]}),
        ({"names": "a"}, {"names": ["a"]}),
        ({"edits": '[{"n": "3"}]'}, {"edits": [{"n": 3}]}),
        ({"options": '{"n": "3"}'}, {"options": {"n": 3}}),
        ({"mode": "Files-With-Matches"}, {"mode": "files_with_matches"}),
        ({"mode": "contents"}, {"mode": "content"}),
        ({"maybe": "7"}, {"maybe": 7}),
        ({"count": None}, {}),
    ],
)
def test_what_plainly_means_one_thing_is_mended_with_a_receipt(given: dict[str, Any], meant: dict[str, Any]) -> None:
    mended, notes = repair(given, SCHEMA)
    assert mended == meant
    assert notes


@pytest.mark.parametrize(
    "given",
    [
        {"count": "five"},
        {"count": "5.5"},
        {"deep": "maybe"},
        {"names": "[broken"},
        {"mode": "cont"},
        {"either": "5"},
        {"text": 5},
        {"maybe": None},
        {"text": None},
    ],
)
def test_everything_else_is_left_as_it_is(given: dict[str, Any]) -> None:
    mended, notes = repair(given, SCHEMA)
    assert mended == given
    assert not notes


def test_a_schema_that_refers_to_itself_ends() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    deep: dict[str, Any] = {}
    for _ in range(200):
        deep = {"next": deep}
    assert repair(deep, schema)[0]
