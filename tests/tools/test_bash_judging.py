"""A command is read beside the event loop, and once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from surehand import Surehand, ToolCall
from surehand.shell import syntax
from surehand.shell.syntax import PARSERS


@pytest.fixture
def parser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand a program in for the parser that notes each run, waits for a file named `go`, and then is the parser."""
    folder = tmp_path / "parser"
    folder.mkdir()
    stub = folder / "shfmt"
    stub.write_text(
        f"#!/bin/sh\nsource=$(cat; echo x)\necho run >> {folder}/runs\nwhile [ ! -e {folder}/go ]; do /bin/sleep 0.01; "
        f'done\nprintf %s "${{source%x}}" | {syntax.parser_path()} "$@"\n'
    )
    stub.chmod(0o755)
    PARSERS.end()
    monkeypatch.setattr(syntax, "parser_path", lambda: str(stub))
    return folder


async def test_the_loop_goes_on_while_a_command_is_read(tmp_path: Path, parser: Path) -> None:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    async with Surehand(workspace, keep_state=False) as app:
        call = asyncio.create_task(app.call("Bash", {"command": 'for word in a b; do echo "$word"; done'}))
        while not (parser / "runs").exists():
            await asyncio.sleep(0)  # were the loop held, this would come too late: the parser waits for what follows
        (parser / "go").touch()
        result = await call
    assert result.ok, result.error
    assert result.output.split() == ["a", "b"]


async def test_each_command_of_a_turn_is_read_once(tmp_path: Path, parser: Path) -> None:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    (parser / "go").touch()
    text = "#" * 5_000  # longer than what is remembered between two readings
    calls = [ToolCall("Bash", {"command": f"for n in {n}; do echo $n; done {text}"}, source="model") for n in range(3)]
    async with Surehand(workspace, keep_state=False) as app:
        results = await app.run_calls(calls)
    assert [result.output.strip() for result in results] == ["0", "1", "2"]
    assert (parser / "runs").read_text().count("run") == 3
