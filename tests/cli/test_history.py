"""`surehand log`, `diff`, `undo`, `redo`: from one process to the next, as a person types them."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.pty_terminal import Terminal


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    folder.mkdir()
    return folder


def surehand(workspace: Path, *words: str, code: int = 0) -> Any:
    """Run a command in a process of its own; return the JSON it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "surehand", *words, "--cwd", str(workspace)],
        capture_output=True,
        text=True,
        env=os.environ.copy(),
    )
    assert done.returncode == code, done.stderr + done.stdout
    return json.loads(done.stdout) if done.stdout else done.stderr


def invoke(workspace: Path, tool: str, *words: str, code: int = 0, **args: Any) -> Any:
    more = ("--mode", "accept-edits", "--session", "work", *words)
    return surehand(workspace, "tools", "invoke", tool, "--args", json.dumps(args), *more, code=code)


def test_a_change_is_listed_shown_undone_and_redone_in_later_processes(workspace: Path) -> None:
    path = workspace / "a.txt"
    invoke(workspace, "Write", file_path="a.txt", content="one\ntwo\n")
    edited = invoke(workspace, "Edit", file_path="a.txt", old_string="two", new_string="2")
    listed = surehand(workspace, "log")["changes"]
    assert [(change["tool"], change["files"][0]["action"]) for change in listed] == [
        ("Edit", "changed"),
        ("Write", "created"),
    ]
    assert edited["undo"]["change_id"] == listed[0]["id"]
    assert "-two\n+2\n" in surehand(workspace, "diff")["diff"]
    assert "+one\n+two\n" in surehand(workspace, "diff", listed[1]["id"])["diff"]
    assert surehand(workspace, "undo")["ok"]
    assert path.read_text() == "one\ntwo\n"
    assert surehand(workspace, "undo")["ok"]
    assert not path.exists()
    assert "nothing to undo" in surehand(workspace, "undo", code=1)["error"]["message"]
    surehand(workspace, "redo")
    surehand(workspace, "redo")
    assert path.read_text() == "one\n2\n"


def test_newer_work_is_not_undone_without_force(workspace: Path) -> None:
    path = workspace / "a.txt"
    invoke(workspace, "Write", file_path="a.txt", content="one\n")
    path.write_text("one\nmine\n")
    refused = surehand(workspace, "undo", code=1)
    assert "+mine" in refused["error"]["details"]["diff"]
    assert path.read_text() == "one\nmine\n"
    surehand(workspace, "undo", "--force")
    assert not path.exists()


def test_a_point_and_a_session_can_be_gone_back_to(workspace: Path) -> None:
    for number in range(4):
        invoke(workspace, "Write", file_path=f"f{number}", content=str(number))
    first = surehand(workspace, "log", "-n", "0")["changes"][-1]["id"]
    assert len(surehand(workspace, "undo", "--to", first)["data"]["paths"]) == 3
    assert os.listdir(workspace) == ["f0"]
    surehand(workspace, "redo")
    assert len(os.listdir(workspace)) == 4
    surehand(workspace, "undo", "--of", "work")
    assert os.listdir(workspace) == []
    assert surehand(workspace, "log", "f1", "--of", "work")["changes"]


def test_a_dry_run_writes_nothing(workspace: Path) -> None:
    shown = invoke(workspace, "Write", "--dry-run", file_path="new/a.txt", content="one\n")
    assert "+one" in shown["output"]
    assert os.listdir(workspace) == []
    invoke(workspace, "Write", file_path="a.txt", content="one\n")
    assert "-one" in surehand(workspace, "undo", "--dry-run")["output"]
    assert (workspace / "a.txt").exists()


def test_unknown_changes_are_errors_with_a_way_on(workspace: Path) -> None:
    assert surehand(workspace, "log") == {"changes": [], "dropped": ""}
    assert "no changes yet" in surehand(workspace, "diff", code=1)["error"]["message"]
    assert "there is no change 9" in surehand(workspace, "undo", "9", code=1)["error"]["message"]


def test_an_edit_without_permission_changes_nothing(workspace: Path) -> None:
    (workspace / "a.txt").write_text("one\n")
    surehand(workspace, "tools", "invoke", "Read", "--args", '{"file_path": "a.txt"}', "--session", "work")
    args = json.dumps({"file_path": "a.txt", "old_string": "one", "new_string": "two"})
    denied = surehand(workspace, "tools", "invoke", "Edit", "--args", args, "--session", "work", code=4)
    assert denied["error"]["code"] == "permission_denied"
    assert (workspace / "a.txt").read_text() == "one\n"


def test_a_conflict_in_a_later_process_shows_what_changed(workspace: Path) -> None:
    path = workspace / "a.txt"
    path.write_text("one\ntwo\n")
    invoke(workspace, "Read", file_path="a.txt")
    path.write_text("one\nTWO\n")
    wish: dict[str, Any] = {"file_path": "a.txt", "old_string": "one", "new_string": "1"}
    refused = invoke(workspace, "Edit", code=1, **wish)
    assert "-two\n+TWO\n" in refused["error"]["details"]["diff"]
    invoke(workspace, "Edit", **wish)
    assert path.read_text() == "1\nTWO\n"


def on_a_terminal(workspace: Path, *words: str) -> str:
    """Return what a command shows to somebody at a terminal without colours."""
    shown, terminal = pty.openpty()
    done = subprocess.Popen(
        [sys.executable, "-m", "surehand", *words, "--cwd", str(workspace)],
        stdout=terminal,
        stderr=terminal,
        env=os.environ | {"NO_COLOR": "1"},
    )
    os.close(terminal)
    parts: list[bytes] = []
    try:
        while part := os.read(shown, 65536):
            parts.append(part)
    except OSError:  # how Linux says that nobody has the terminal open any more
        pass
    os.close(shown)
    assert done.wait() == 0
    return b"".join(parts).decode().replace("\r\n", "\n")


def test_no_name_and_no_content_steers_the_terminal_it_is_shown_on(workspace: Path) -> None:
    name = "a\n+++ forged\x1b[31m\u202e.txt"
    invoke(workspace, "Write", file_path=name, content="clear \x1b[2J and \u202e turn\n")
    for words in (("log",), ("diff",), ("undo", "--dry-run"), ("undo",)):
        shown = on_a_terminal(workspace, *words)
        assert all(sign.isprintable() or sign in "\n\t" for sign in shown), words
    shown = on_a_terminal(workspace, "diff", "1")
    assert "clear \\x1b[2J and \\u202e turn" in shown
    assert "\n+++ forged" not in shown


def test_the_log_names_what_people_keep_first_and_says_what_was_undone_in_part(workspace: Path) -> None:
    command = "mkdir __pycache__; touch __pycache__/a.pyc __pycache__/b.pyc; echo one > kept.txt"
    invoke(workspace, "Bash", "--allow", "Bash", command=command)

    def last_row() -> str:
        shown = subprocess.run(
            [sys.executable, "-m", "surehand", "log", "--text", "--cwd", str(workspace)], capture_output=True, text=True
        )
        return shown.stdout.splitlines()[-1]

    assert "done" in last_row()
    assert "+ kept.txt, " in last_row()
    assert "and 1 more" in last_row()
    surehand(workspace, "undo")
    assert not (workspace / "kept.txt").exists()
    assert "undone in part" in last_row()
    surehand(workspace, "redo")
    assert "undone in part" not in last_row()


def test_arguments_given_without_their_option_are_told_where_to_go(workspace: Path) -> None:
    said = surehand(workspace, "tools", "invoke", "Read", '{"file_path": "a.txt"}', code=2)
    assert "arguments of a tool go after --args" in said


def test_the_end_of_the_input_is_a_no_to_a_rewind(workspace: Path) -> None:
    surehand(workspace, "ask", "run `touch made`", "--allow", "Bash(touch:*)")
    assert (workspace / "made").exists()
    with Terminal("rewind", "--to", "1", "--text", cwd=workspace) as terminal:
        terminal.wait_for("Rewind? [y/N]", within_s=120)
        terminal.type("\x04")
        terminal.wait_for("Nothing was changed.", within_s=120)
    assert (workspace / "made").exists()
