"""A dry run and then a decision, as a person at a terminal, a script, and a second terminal make it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.pty_terminal import Terminal

from surehand.sandbox.linux.probe import abilities

pytestmark = pytest.mark.skipif(not abilities().enough, reason=f"dry runs are not possible here: {abilities().why_not}")

COMMAND = json.dumps({"command": "echo $RANDOM > stamp; rm old"})


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    folder.mkdir()
    (folder / "old").write_text("old\n")
    return folder


def surehand(workspace: Path, *words: str) -> tuple[int, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "surehand", *words],
        cwd=workspace,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=300,
        check=False,
    )
    return done.returncode, json.loads(done.stdout)


def at_a_terminal(workspace: Path, *words: str, answers: list[str]) -> tuple[int, str]:
    """Run a command on a terminal of its own and answer what it asks; return its exit code and all it showed."""
    with Terminal(*words, cwd=workspace) as terminal:
        for answer in answers:
            terminal.wait_for("[n] ")
            terminal.wait_for("> ")
            terminal.type(f"{answer}\n")
        return terminal.ended(), terminal.plain


INVOKE = ("tools", "invoke", "Bash", "--args", COMMAND)


def test_a_dry_run_alone_shows_and_drops(workspace: Path) -> None:
    code, result = surehand(workspace, *INVOKE, "--dry-run")
    assert code == 0
    assert {each["path"]: each["action"] for each in result["data"]["changes"]} == {
        "old": "deleted",
        "stamp": "created",
    }
    assert [each.name for each in workspace.iterdir()] == ["old"]


def test_without_a_person_the_rules_decide_whether_a_dry_run_is_applied(workspace: Path) -> None:
    code, refused = surehand(workspace, *INVOKE, "--dry-run", "--apply")
    assert code == 4
    assert refused["error"]["code"] == "permission_denied"
    assert (workspace / "old").exists()
    code, applied = surehand(workspace, "--allow", "Bash", *INVOKE, "--dry-run", "--apply")
    assert code == 0, applied
    assert applied["meta"]["applied_from_dry_run"] == applied["data"]["applied_from_dry_run"]
    assert f"+{(workspace / 'stamp').read_text()}" in applied["data"]["diff"]
    assert not (workspace / "old").exists()
    code, undone = surehand(workspace, "--allow", "Edit", "undo")
    assert code == 0, undone
    assert [each.name for each in workspace.iterdir()] == ["old"]


def test_apply_needs_a_dry_run(workspace: Path) -> None:
    code, result = surehand(workspace, *INVOKE, "--apply")
    assert code == 2
    assert "goes with --dry-run" in result["error"]["message"]


def test_a_person_applies_or_drops_what_was_shown(workspace: Path) -> None:
    code, shown = at_a_terminal(workspace, *INVOKE, "--dry-run", "--apply", answers=["n not today"])
    assert code == 4
    assert "[y] apply exactly this" in shown
    assert "not today" in shown
    assert [each.name for each in workspace.iterdir()] == ["old"]
    code, shown = at_a_terminal(workspace, *INVOKE, "--dry-run", "--apply", answers=["y"])
    assert code == 0, shown
    assert "the command did not run again" in shown
    assert f"+{(workspace / 'stamp').read_text()}" in shown
    assert not (workspace / "old").exists()


def test_at_a_question_a_dry_run_is_made_again_applied_or_run_anew(workspace: Path) -> None:
    code, shown = at_a_terminal(workspace, *INVOKE, answers=["d", "d", "y"])
    assert code == 0, shown
    stamps = re.findall(r"^\+(\d+)$", shown, re.MULTILINE)
    assert len(stamps) == 2
    assert (workspace / "stamp").read_text() == f"{stamps[1]}\n"
    (workspace / "old").write_text("old\n")
    code, shown = at_a_terminal(workspace, *INVOKE, answers=["d", "r"])
    assert code == 0, shown
    assert "did not run again" not in shown
    assert not (workspace / "old").exists()


def test_another_terminal_applies_what_the_question_shows(workspace: Path) -> None:
    invoked = subprocess.Popen(
        [sys.executable, "-m", "surehand", *INVOKE, "--dry-run", "--apply", "--approvals", "mailbox"],
        cwd=workspace,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 300
        while not (waiting := surehand(workspace, "approvals", "list")[1]) and time.monotonic() < deadline:
            time.sleep(0.05)
        (row,) = waiting
        assert "stamp" in row["text"]
        assert surehand(workspace, "approvals", "allow", row["id"])[0] == 0
        out, _ = invoked.communicate(timeout=120)
    finally:
        invoked.kill()
        invoked.wait()
    result = json.loads(out)
    assert result["ok"], result
    assert result["meta"]["applied_from_dry_run"]
    assert f"+{(workspace / 'stamp').read_text()}" in row["text"] + "\n"


def test_dry_runs_and_what_became_of_them_are_in_the_audit_and_the_session(workspace: Path) -> None:
    surehand(workspace, "--allow", "Bash", "--session", "work", *INVOKE, "--dry-run", "--apply")
    surehand(
        workspace, "--session", "work", "tools", "invoke", "Bash", "--args", '{"command": "rm stamp"}', "--dry-run"
    )
    _, rows = surehand(workspace, "audit", "show")
    dry_runs = [row for row in rows if row["kind"] == "dry_run"]
    calls = [row for row in rows if row["kind"] == "call"]
    assert [row["args"]["command"] for row in dry_runs] == [json.loads(COMMAND)["command"], "rm stamp"]
    assert [row["call"] for row in calls] == [dry_runs[0]["call"]]
    assert surehand(workspace, "audit", "verify")[0] == 0
    _, session = surehand(workspace, "sessions", "show", "work")
    kinds = [record["kind"] for record in session if record["kind"].startswith("dry_run")]
    assert kinds == ["dry_run_made", "dry_run_applied", "dry_run_made", "dry_run_discarded"]
