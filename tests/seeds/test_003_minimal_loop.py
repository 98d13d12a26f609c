"""Document 003, the minimal tool loop: one test per requirement."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from surehand import ToolCall, ToolResult
from surehand.cli.ask import answer
from surehand.testing import ScriptedModel, scratch_app


def surehand(*words: str, cwd: Path) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "surehand", *words], cwd=cwd, capture_output=True, text=True, timeout=300, check=False
    )
    return json.loads(done.stdout)


@pytest.mark.spec("CORE-4")
def test_the_three_models_have_their_fields() -> None:
    call = ToolCall("time.now", {})
    assert set(call.to_dict()) == {"id", "name", "args", "source"}
    assert {"ok", "data", "error", "meta"} <= set(ToolResult().to_dict())


@pytest.mark.spec("REG-2")
async def test_the_registry_lists_and_gets_and_an_allow_list_filters() -> None:
    async with scratch_app(tool_allow=["time.now", "shell.pwd"]) as app:
        assert [info.name for info in app.selection.infos()] == ["time.now", "shell.pwd"]
        assert app.selection.get("tools.echo") is None


@pytest.mark.spec("CLI-2")
async def test_time_now_returns_timestamp_and_iso() -> None:
    async with scratch_app() as app:
        data = (await app.call("time.now")).data
    assert isinstance(data["timestamp"], int)
    assert data["timestamp"] > 1_600_000_000_000
    assert "T" in data["iso"]


@pytest.mark.spec("CLI-2")
async def test_tools_echo_returns_its_text_unchanged() -> None:
    async with scratch_app() as app:
        assert (await app.call("tools.echo", {"text": " as it is\n"})).output == " as it is\n"


@pytest.mark.spec("CLI-2")
async def test_shell_pwd_returns_the_working_directory(tmp_path: Path) -> None:
    async with scratch_app(tmp_path) as app:
        assert (await app.call("shell.pwd")).output == os.path.realpath(tmp_path)


@pytest.mark.spec("FIND-4")
async def test_fs_list_dir_lists_flat_and_recursively(tmp_path: Path) -> None:
    (tmp_path / "a/b/c/d/e/f").mkdir(parents=True)
    async with scratch_app(tmp_path) as app:
        flat = await app.call("fs.list_dir", {"path": "."})
        deep = await app.call("fs.list_dir", {"path": ".", "recursive": True})
        shallow = await app.call("fs.list_dir", {"path": ".", "recursive": True, "maxDepth": 2})
    assert "b" not in flat.output.replace("a", "")
    assert "a/b/c/d" in json.dumps(deep.data)
    assert "a/b/c/d/e" not in json.dumps(deep.data)
    assert "a/b/c" not in json.dumps(shallow.data)


@pytest.mark.spec("FIND-4")
async def test_fs_read_file_refuses_what_is_over_its_limit(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 204_801)
    async with scratch_app(tmp_path) as app:
        assert not (await app.call("fs.read_file", {"path": "a"})).ok
        assert (await app.call("fs.read_file", {"path": "a", "maxBytes": 300_000})).ok


@pytest.mark.spec("CORE-5")
@pytest.mark.parametrize(
    ("name", "args", "code"),
    [
        ("no.such", {}, "tool_not_found"),
        ("tools.echo", {}, "invalid_args"),
        ("fs.read_file", {"path": "missing"}, "execution_error"),
    ],
)
async def test_the_three_fixed_error_codes(tmp_path: Path, name: str, args: Any, code: str) -> None:
    async with scratch_app(tmp_path) as app:
        result = await app.call(name, args)
    assert result.error is not None
    assert result.error.code == code


def test_the_three_commands(tmp_path: Path) -> None:
    rows = surehand("tools", "list", cwd=tmp_path)
    assert {"name", "description", "inputSchema"} <= set(rows[0])
    assert surehand("tools", "info", "time.now", cwd=tmp_path)["inputSchema"]
    assert surehand("tools", "invoke", "tools.echo", "--args", '{"text": "x"}', cwd=tmp_path)["ok"] is True


@pytest.mark.spec("ASK-1")
async def test_the_loop_runs_calls_and_gives_the_model_their_results() -> None:
    model = ScriptedModel([("tools.echo", {"text": "a"}), ("no.such", {})], "done")
    async with scratch_app() as app:
        outcome = await app.conversation(model).ask("go")
    shown = answer(outcome, session="s", model={})
    assert [call["name"] for call in shown["toolCalls"]] == ["tools.echo", "no.such"]
    assert [result["ok"] for result in shown["toolResults"]] == [True, False]
    assert {"tool", "code", "message"} == set(shown["toolError"])
    assert shown["sessionContextUpdated"] is True


@pytest.mark.spec("ASK-2")
def test_ask_has_tools_unless_told_otherwise(tmp_path: Path) -> None:
    assert surehand("ask", "what time is it", cwd=tmp_path)["toolCalls"]
    assert not surehand("ask", "what time is it", "--with-tools=false", cwd=tmp_path)["toolCalls"]
    limited = surehand("ask", "where am i", "--tool-allow=time.now", cwd=tmp_path)
    assert limited["toolError"]["code"] == "tool_unavailable"


@pytest.mark.spec("ENG-6")
async def test_results_are_reused_within_a_session(tmp_path: Path) -> None:
    from surehand import Settings

    (tmp_path / "a.txt").write_text("one\n")
    settings = Settings.parse({"engine": {"cache": True}})
    async with scratch_app(tmp_path, settings=settings) as app:
        first = await app.call("Read", {"file_path": "a.txt"})
        second = await app.call("Read", {"file_path": "a.txt"})
        (tmp_path / "a.txt").write_text("two, and longer\n")
        third = await app.call("Read", {"file_path": "a.txt"})
    assert (first.meta["cached"], second.meta["cached"], third.meta["cached"]) == (False, True, False)
    assert "two" in third.output
