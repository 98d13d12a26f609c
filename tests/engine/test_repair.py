"""Arguments repaired where the intent is plain, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from surehand.engine.arguments import repair

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
        ({"mode": "contnet"}, {"mode": "content"}),
        ({"mode": "filesWithMatches"}, {"mode": "files_with_matches"}),
        ({"mode": "files_with_mathces"}, {"mode": "files_with_matches"}),
        ({"maybe": "7"}, {"maybe": 7}),
        ({"deep": 1}, {"deep": True}),
        ({"count": None}, {}),
    ],
)
def test_what_plainly_means_one_thing_is_mended_with_a_receipt(given: dict[str, Any], meant: dict[str, Any]) -> None:
    mended, notes, _ = repair(given, SCHEMA)
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
    mended, notes, _ = repair(given, SCHEMA)
    assert mended == given
    assert not notes


def test_a_schema_that_refers_to_itself_ends() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    deep: dict[str, Any] = {}
    for _ in range(200):
        deep = {"next": deep}
    assert repair(deep, schema)[0]


ENUMS = (
    "allow",
    "install",
    "activate",
    "done",
    "production",
    "enable",
    "increase",
    "external",
    "maximum",
    "close",
    "resolve",
    "ascending",
    "wait",
    "head",
    "import",
    "merge",
    "stable",
)


@pytest.mark.spec("CORE-10")
@pytest.mark.parametrize(
    "given",
    [
        "disallow", "uninstall", "deactivate", "undone", "preproduction", "pre-production", "disable", "decrease",
        "internal", "minimum", "closed", "reresolve", "descending", "no_wait", "nowait", "read", "export", "unmerge",
        "merged", "merger", "unstable", "instable", "reactivate", "inactivate", "reinstall", "install_not", "prod",
        "c++", "-name", "-", "", " ",
    ],
)  # fmt: skip
def test_no_repair_turns_one_word_into_another(given: str) -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"mode": {"enum": [*ENUMS, "c", "name", "+"]}}}
    mended, notes, _ = repair({"mode": given}, schema)
    assert mended == {"mode": given}
    assert not notes


@pytest.mark.spec("CORE-10")
@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("Install", "install"), ("instal", "install"), ("instlal", "install"), ("prodution", "production"),
        ("PRODUCTION", "production"), ("prodcution", "production"), ("incresae", "increase"), ("maxximum", "maximum"),
        ("externl", "external"), ("activatee", "activate"),
    ],
)  # fmt: skip
def test_a_slip_of_the_keys_is_repaired(given: str, meant: str) -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"mode": {"enum": list(ENUMS)}}}
    assert repair({"mode": given}, schema)[0] == {"mode": meant}


@pytest.mark.spec("CORE-10")
@pytest.mark.parametrize(
    "given", [{"count": True}, {"ratio": False}, {"either": True}, {"maybe": True}, {"deep": 2}, {"ratio": "nan"}]
)
def test_a_value_that_a_lenient_check_would_convert_silently_is_a_fault(given: dict[str, Any]) -> None:
    mended, notes, faults = repair(given, SCHEMA)
    assert mended == given
    assert not notes
    assert [fault.path for fault in faults] == list(given)
