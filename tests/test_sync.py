"""`Surehand.sync`: plain code waits for calls, in a notebook's loop, through Ctrl-C, forks and unclosed ends."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from surehand import Question, Surehand, SurehandError, ToolCall, ToolContext, tool

pytestmark = pytest.mark.spec("INT-1")

PRELUDE = """
import os, sys
from surehand import Surehand
app = Surehand.sync(sys.argv[1], allow=["Bash"])
"""


def run_script(code: str, workspace: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PRELUDE + code, str(workspace)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_plain_code_reads_edits_undoes_and_batches(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    with Surehand.sync(tmp_path, mode="accept-edits") as app:
        assert "one" in app.call("Read", {"file_path": "a.txt"}).output
        edit = {"file_path": "a.txt", "old_string": "one", "new_string": "two"}
        assert "+two" in app.dry_run("Edit", edit).output
        assert app.call("Edit", edit).ok
        assert (tmp_path / "a.txt").read_text() == "two\n"
        assert len(app.changes().data["changes"]) == 1
        assert app.undo().ok
        assert (tmp_path / "a.txt").read_text() == "one\n"
        assert app.redo().ok
        results = app.run_calls([ToolCall("Read", {"file_path": "a.txt"}), ToolCall("Glob", {"pattern": "*.txt"})])
        assert [each.ok for each in results] == [True, True]


async def test_it_works_where_a_loop_runs_already(tmp_path: Path) -> None:
    asyncio.get_running_loop()
    (tmp_path / "a.txt").write_text("one\n")
    with Surehand.sync(tmp_path) as app:
        assert "one" in app.call("Read", {"file_path": "a.txt"}).output


def test_an_own_tool_and_an_approver_are_asked_on_its_thread(tmp_path: Path) -> None:
    asked: list[str] = []

    @tool
    def send(text: str) -> str:
        "Send a text."
        return f"sent {text}"

    def answer(question: Question) -> bool:
        asked.append(question.tool)
        return True

    with Surehand.sync(tmp_path, approver=answer) as app:
        app.register(send)
        assert app.call("send", {"text": "hi"}).output == "sent hi"
    assert asked == ["send"]


def test_closing_twice_is_no_mistake_and_a_call_after_it_says_so(tmp_path: Path) -> None:
    app = Surehand.sync(tmp_path)
    app.close()
    app.close()
    with pytest.raises(SurehandError, match="closed"):
        app.call("Read", {"file_path": "a.txt"})


def test_waiting_on_its_own_loop_is_refused_and_does_not_hang(tmp_path: Path) -> None:
    @tool(read_only=True)
    async def inner(ctx: ToolContext) -> str:
        "Call the application that runs it, the wrong way."
        return app.call("Glob", {"pattern": "*"}).output

    with Surehand.sync(tmp_path, tools=[inner]) as app:
        result = app.call("inner")
        assert not result.ok
        assert "wait for itself" in result.output


def test_what_cannot_be_opened_leaves_no_thread_behind(tmp_path: Path) -> None:
    import threading

    before = set(threading.enumerate())
    with pytest.raises(SurehandError):
        Surehand.sync(tmp_path / "missing")
    assert set(threading.enumerate()) <= before


def test_ctrl_c_cancels_the_call_and_the_application_goes_on(tmp_path: Path) -> None:
    code = """
try:
    app.call("Bash", {"command": "echo started > begun; sleep 600; echo done > ended"})
except KeyboardInterrupt:
    print("interrupted", flush=True)
print(app.call("Bash", {"command": "echo still here"}).output, flush=True)
app.close()
"""
    os.mkfifo(tmp_path / "begun")
    ran = subprocess.Popen(
        [sys.executable, "-c", PRELUDE + code, str(tmp_path)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert (tmp_path / "begun").read_text() == "started\n"
        ran.send_signal(signal.SIGINT)
        output, _ = ran.communicate(timeout=300)
    finally:
        ran.kill()
    assert output.splitlines()[0] == "interrupted"
    assert "still here" in output
    assert not (tmp_path / "ended").exists()


def test_a_program_that_never_closes_it_ends_cleanly(tmp_path: Path) -> None:
    ran = run_script('print(app.call("Bash", {"command": "echo hello"}).output)', tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "hello" in ran.stdout


def test_a_forked_child_is_told_and_does_not_hang(tmp_path: Path) -> None:
    code = """
child = os.fork()
if child == 0:
    try:
        app.call("Glob", {"pattern": "*"})
    except Exception as problem:
        print(problem, flush=True)
    app.close()
    os._exit(7)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), app.call("Bash", {"command": "echo parent"}).output)
app.close()
"""
    ran = run_script(code, tmp_path)
    assert "before a fork" in ran.stdout
    assert "7 parent" in ran.stdout, ran.stderr
