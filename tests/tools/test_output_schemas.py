"""Built-in tools promise what they answer with, and keep it; a function's return type is such a promise too."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

from surehand import Text, ToolResult, tool
from surehand.core.schema import schema_problems, schema_validator
from surehand.mcp.convert import result_shape, tool_shape
from surehand.testing import scratch_app

pytestmark = pytest.mark.spec("CORE-14", "MCP-3")

NOTEBOOK: dict[str, Any] = {
    "cells": [{"cell_type": "code", "id": "c", "source": "x", "metadata": {}, "outputs": [], "execution_count": None}],
    "metadata": {},
    "nbformat": 4,
    "nbformat_minor": 5,
}
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("Read", {"file_path": "a.txt"}),
    ("Read", {"file_path": "n.ipynb"}),
    ("Read", {"file_path": "empty.txt"}),
    ("Edit", {"file_path": "a.txt", "old_string": "one", "new_string": "1"}),
    ("Write", {"file_path": "b.txt", "content": "x"}),
    ("MultiEdit", {"file_path": "a.txt", "edits": [{"old_string": "1", "new_string": "uno"}]}),
    ("Glob", {"pattern": "*.txt"}),
    ("Grep", {"pattern": "uno"}),
    ("Grep", {"pattern": "uno", "output_mode": "count"}),
    ("Gitignore", {"action": "add", "dir": ".", "patterns": ["*.log"]}),
    ("Gitignore", {"action": "check", "dir": ".", "path": "x.log"}),
    ("Bash", {"command": "echo hi"}),
    ("Undo", {}),
    ("Redo", {}),
    ("Changes", {}),
    ("TaskCreate", {"title": "t"}),
    ("TaskList", {}),
    ("TaskUpdate", {"id": "task_1", "status": "in_progress"}),
    ("ToolSearch", {"query": "web"}),
    ("time.now", {}),
    ("tools.echo", {"text": "x"}),
    ("shell.pwd", {}),
    ("fs.list_dir", {"path": "."}),
    ("fs.read_file", {"path": "a.txt"}),
    ("calculate", {"expression": "1+1"}),
]
ELSEWHERE = {
    *("Agent", "TaskOutput", "TaskStop", "WebFetch", "WebSearch"),
    *("NotebookEdit", "ToolCreate", "ToolUpdate", "ToolRemove"),
}
"""Tools that need a model, a server or a call before: their answers are checked by their own tests."""


async def test_every_built_in_tool_promises_its_answers_and_keeps_it(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "n.ipynb").write_text(json.dumps(NOTEBOOK))
    async with scratch_app(tmp_path) as app:
        for info in app.registry.infos():
            assert info.output_schema is not None, info.name
            assert schema_problems(info.output_schema, "output schema") == []
            assert tool_shape(info)["outputSchema"]["type"] == "object"
        unproved = set(app.registry) - {name for name, _ in CALLS} - ELSEWHERE
        assert not unproved, "add an example to CALLS"
        for name, args in CALLS:
            result = await app.call(name, args)
            assert result.ok, (name, result.output)
            info = app.registry.info(name)
            assert info is not None
            assert info.output_schema is not None
            schema_validator(info.output_schema).validate(result.data)
            shape = result_shape(result, info.output_schema)
            assert shape["structuredContent"] == result.data
            assert not shape["isError"]


class Place(BaseModel):
    name: str
    size: int = 0


@dataclasses.dataclass
class Point:
    x: int
    y: int


class Row(TypedDict):
    key: str


async def test_a_return_type_becomes_an_output_schema() -> None:
    @tool(read_only=True)
    def place() -> Place:
        "Place."
        return Place(name="here")

    @tool(read_only=True)
    def point() -> Point:
        "Point."
        return Point(1, 2)

    @tool(read_only=True)
    async def rows() -> list[Row]:
        "Rows."
        return [{"key": "a"}]

    @tool(read_only=True)
    def count() -> int:
        "Count."
        return 3

    @tool(read_only=True)
    def text() -> str:
        "Text."
        return "words"

    wanted: dict[str, Any] = {
        "place": {"name": "here", "size": 0},
        "point": {"x": 1, "y": 2},
        "rows": {"result": [{"key": "a"}]},
        "count": {"result": 3},
    }
    async with scratch_app(tools=[place, point, rows, count, text]) as app:
        for name, structured in wanted.items():
            info = app.registry.info(name)
            assert info is not None
            promised = tool_shape(info)["outputSchema"]
            shape = result_shape(await app.call(name), info.output_schema)
            assert shape["structuredContent"] == structured
            schema_validator(promised).validate(structured)
        assert text.promise == {"type": "string"}
        assert "outputSchema" not in tool_shape(text.info())


def test_a_return_type_that_says_nothing_of_data_promises_nothing() -> None:
    def result() -> ToolResult:
        "R."
        return ToolResult()

    def block() -> Text | None:
        "B."
        return None

    def untyped():  # pyright: ignore
        "U."

    def odd() -> Any:
        "O."

    for function in (result, block, untyped, odd):
        assert tool(function).promise is None  # pyright: ignore
    explicit = tool(output_schema={"type": "object"})(odd)
    assert explicit.promise == {"type": "object"}


async def test_a_tool_that_breaks_its_promise_is_said_to_clients_and_works_elsewhere() -> None:
    @tool(read_only=True)
    def sloppy() -> int:
        "Count."
        return "three"  # pyright: ignore[reportReturnType]

    async with scratch_app(tools=[sloppy]) as app:
        result = await app.call("sloppy")
    assert result.ok
    shape = result_shape(result, sloppy.promise)
    assert shape["isError"]
    assert "output schema" in shape["content"][-1]["text"]
