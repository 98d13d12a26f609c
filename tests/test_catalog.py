"""The written catalogue is the snapshot of all a model reads: it must equal what the tools themselves say."""

from __future__ import annotations

import json
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from scripts.docs_pages import tools_page

from surehand import Tool, ToolCall, catalog
from surehand.agent.subagents import BUILT_IN
from surehand.cli.doctor import lint
from surehand.core.text import LINE_CHARACTERS
from surehand.core.tool import ToolInfo
from surehand.mcp.server.serving import TEXT_KEYS
from surehand.registry.registry import Registry, problems
from surehand.tools.grep import HEAD_LIMIT
from surehand.tools.read import LINES

ROWS = catalog.rows()
DOCS = Path(__file__).parents[1] / "docs"


def test_the_catalogue_equals_what_the_tools_say() -> None:
    assert catalog.rows() == catalog.build_rows(), "run `make docs`"


def test_the_tools_page_is_written_from_the_catalogue() -> None:
    assert (DOCS / "tools.md").read_text() == tools_page(ROWS), "run `make docs`"


def test_every_module_of_tools_is_in_the_list() -> None:
    folder = Path(catalog.__file__).parent / "tools"
    having = {path.stem for path in folder.glob("*.py") if "\nTOOLS" in path.read_text()}
    assert {f"surehand.tools.{name}" for name in having} == set(catalog.MODULES)


def test_what_only_looks_is_what_the_explorer_has() -> None:
    looking = {row["name"] for row in ROWS if row["kind"] in ("read", "search", "fetch")}
    explorer = next(profile for profile in BUILT_IN if profile.name == "explorer")
    has = {row["name"] for row in ROWS if any(fnmatch(row["name"], each) for each in explorer.tools)}
    assert has == looking, "tools of the kinds read, search and fetch belong to `explorer` in agent/subagents.py"
    assert all(row["read_only"] for row in ROWS if row["name"] in has)


def test_what_answers_with_the_text_of_a_file_sends_it_once() -> None:
    texts = {row["name"] for row in ROWS if "content" in row["outputSchema"]["properties"]}
    assert texts == set(TEXT_KEYS), "name the keys that repeat the text in TEXT_KEYS of mcp/server/serving.py"


def test_the_texts_for_models_say_the_limits_that_hold() -> None:
    said = {row["name"]: row["description"] for row in ROWS}
    assert f"{LINES:,} lines" in said["Read"], "tools/prompts/read.md"
    assert f"over {LINE_CHARACTERS:,} characters" in said["Read"], "tools/prompts/read.md"
    limit = next(row for row in ROWS if row["name"] == "Grep")["inputSchema"]["properties"]["head_limit"]
    assert f"default {HEAD_LIMIT}" in limit["description"], "tools/grep.py"


def test_a_line_about_a_call_names_what_it_is_about() -> None:
    calls = {row["name"]: ToolCall(row["name"], row["examples"][-1]) for row in ROWS if row["examples"]}
    subjects = {name: call.subject for name, call in calls.items()}
    for name, subject in {
        "Bash": "command",
        "Write": "file_path",
        "Grep": "pattern",
        "NotebookEdit": "notebook_path",
    }.items():
        assert subjects[name] == subject
    bulk = {"content", "old_string", "new_string", "new_source", "source"}
    assert not bulk & {*subjects.values()}, "add the argument to _SUBJECTS of core/call.py"
    assert ToolCall("mcp__a__b", {"count": 3, "city": "Bern"}).subject == "city"
    assert ToolCall("TaskList").subject == ""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_what_is_registered_lazily_is_the_tool_itself(row: dict[str, Any]) -> None:
    registry = Registry()
    catalog.register_builtin(registry)
    told = registry.info(row["name"])
    tool = registry.get(row["name"])
    assert isinstance(tool, Tool)
    assert told == tool.info()
    assert problems(tool) == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_examples_are_valid_arguments(row: dict[str, Any]) -> None:
    tool = catalog.builtin_tool(row["name"])
    assert tool is not None
    for example in row["examples"]:
        tool.arguments.parse(example)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_every_argument_is_described_and_every_provider_takes_the_schema(row: dict[str, Any]) -> None:
    for name, schema in row["inputSchema"]["properties"].items():
        assert schema.get("description"), name
    assert [found for found in lint(ToolInfo.from_dict(row)) if found.weight == "refused"] == []


def test_a_builtin_tool_is_found_by_name_and_alias() -> None:
    for name in ("Read", "FileRead"):
        found = catalog.builtin_tool(name)
        assert found is not None
        assert found.name == "Read"
    assert catalog.builtin_tool("Raed") is None


def test_the_catalogue_is_plain_json_in_a_stable_form() -> None:
    text = Path(catalog.__file__).with_name("catalog.json").read_text()
    assert text == json.dumps(ROWS, indent=1, ensure_ascii=False) + "\n"
