"""Attacks that are no single input: on the door itself, its arguments, its approvals and its records."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from surehand import Surehand, ToolContext, WritePath, tool
from surehand.core.errors import RegistrationError
from surehand.core.settings import Settings
from surehand.core.tool import Tool
from surehand.engine.audit import Audit
from surehand.policy.approval import Answer, Callback, Question

RAN: list[str] = []


def writer() -> Tool:
    """Return a tool that says it writes where its argument points, and notes that it ran."""

    @tool(effects=lambda args, ctx: [WritePath(ctx.resolve(args.path))])
    def note(path: str, ctx: ToolContext) -> str:
        "Write a note."
        RAN.append(path)
        return path

    return note


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RAN.clear()


async def test_arguments_an_approver_changes_to_a_denied_path_are_judged_again(tmp_path: Path) -> None:
    def change(question: Question) -> Answer:
        return Answer("once", args={"path": str(tmp_path / ".git" / "config")})

    async with Surehand(tmp_path, tools=[writer()], approver=Callback(change), keep_state=False) as app:
        result = await app.call("note", {"path": "a"})
    assert result.error is not None
    assert result.error.code == "permission_denied"
    assert RAN == []


async def test_an_approval_holds_for_exactly_the_arguments_that_were_shown(tmp_path: Path) -> None:
    args: dict[str, Any] = {"path": "shown"}
    asked: list[str] = []

    def approve(question: Question) -> Answer:
        asked.append(str(question.call.args["path"]))
        args["path"] = "swapped"  # whoever holds the arguments changes them while the person reads
        return Answer("once")

    async with Surehand(tmp_path, tools=[writer()], approver=Callback(approve), keep_state=False) as app:
        await app.call("note", args)
    assert asked == ["shown"]
    assert RAN in ([], ["shown"])


async def test_a_second_tool_of_the_same_name_is_refused(tmp_path: Path) -> None:
    async with Surehand(tmp_path, tools=[writer()], keep_state=False) as app:
        with pytest.raises(RegistrationError, match="note"):
            app.register(writer())


@pytest.mark.parametrize(
    "raw",
    [
        '{"command":"ls","command":"rm -rf src"}',
        '{"command":"ls","timeout":Infinity}',
        '{"command":"ls","timeout":NaN}',
    ],
)
def test_arguments_with_repeated_keys_or_odd_numbers_are_refused(tmp_path: Path, raw: str) -> None:
    (tmp_path / "src").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "surehand", "tools", "invoke", "Bash", "--json", "--args", raw, "--cwd", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode in (2, 4), done.stdout
    assert json.loads(done.stdout)["ok"] is False
    assert (tmp_path / "src").is_dir()


async def test_a_bearer_token_reaches_no_log_and_no_audit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "audit"
    async with Surehand(tmp_path, settings=Settings(), tools=[writer()], keep_state=False) as app:
        audit = Audit(str(folder))
        app.bus.subscribe(audit)
        with caplog.at_level("DEBUG", logger="surehand"):
            await app.call("note", {"path": "Authorization: Bearer SECRETCANARY123"})
            await app.call("nope", {"headers": {"Authorization": "SECRETCANARY456"}})
        audit.close()
    assert "SECRETCANARY" not in caplog.text
    assert "SECRETCANARY" not in (folder / "audit.jsonl").read_text()
