"""`surehand ps`: one board over all sessions, seen, listened to and stopped from another process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.pty_terminal import Terminal

PROGRAM = """
import asyncio, sys
from surehand import Surehand
from surehand.testing import ScriptedModel

def answer(request):
    agent = request.messages[0].text == "wait"
    return [("Bash", {"command": "echo agent at work; sleep 301"})] if agent else "started"

async def work(session):
    async with Surehand(sys.argv[1], session=session, allow=["Bash", "Agent"]) as app:
        model = ScriptedModel(
            [("TaskCreate", {"title": "write the docs"}), ("TaskCreate", {"title": "test it"}),
             ("Bash", {"command": "echo begun; echo trouble >&2; sleep 300", "run_in_background": True}),
             ("Agent", {"prompt": "wait", "description": "waiter", "mode": "background"})],
            answer, answer,
        )
        await app.conversation(model).ask("go")
        await app.call("TaskUpdate", {"id": "task_1", "status": "in_progress"})
        while not app.session.agents.registry.agents["agent_1"].tool_calls:
            await asyncio.sleep(0.01)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        print((await app.call("TaskOutput", {"id": "bg_task_1"})).output, flush=True)

asyncio.run(work(sys.argv[2]))
"""


def ps(*words: str, cwd: Path) -> Any:
    command = [sys.executable, "-m", "surehand", "ps", *words]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return json.loads(done.stdout)


def start(workspace: Path, session: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, str(workspace), session]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.fixture
def program(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = start(tmp_path, "work")
    yield process
    process.kill()
    process.communicate()


def rows_by_id(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in rows if row["kind"] != "process"}


def test_the_board_of_a_running_session_is_seen_from_another_process(
    tmp_path: Path, program: subprocess.Popen[str]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    rows = rows_by_id(ps(cwd=elsewhere))
    assert {id: (row["kind"], row["state"]) for id, row in rows.items()} == {
        "task_1": ("todo", "in_progress"),
        "task_2": ("todo", "pending"),
        "bg_task_1": ("command", "in_progress"),
        "agent_1": ("agent", "in_progress"),
    }
    assert {row["session_id"] for row in rows.values()} == {"session_work"}
    assert {row["workspace"] for row in rows.values()} == {str(tmp_path)}
    agent = rows["agent_1"]
    assert (agent["title"], agent["tool_calls"], agent["running"]) == ("waiter", 1, True)
    assert agent["tokens"] > 0
    assert agent["created"] <= agent["last_activity"] <= time.time()
    assert rows["bg_task_1"]["pid"] is not None
    assert ps("--session", "another", cwd=elsewhere) == []


def test_what_runs_is_listened_to_and_stopped_from_another_process(
    tmp_path: Path, program: subprocess.Popen[str]
) -> None:
    assert ps("output", "bg_task_1", cwd=tmp_path)["output"] == "begun\n[stderr] trouble"
    assert "[Bash] echo agent at work" in ps("output", "agent_1", cwd=tmp_path)["output"]
    assert ps("stop", "agent_1", cwd=tmp_path)["status"] == "cancelled"
    assert rows_by_id(ps(cwd=tmp_path)).keys() == {"task_1", "task_2", "bg_task_1"}
    # Looking on from outside does not take from the session what it has not seen itself.
    said, _ = program.communicate("\n", timeout=120)
    assert said.startswith("begun\n")


def test_nothing_else_is_stopped(tmp_path: Path, program: subprocess.Popen[str]) -> None:
    assert "is a to-do" in ps("stop", "task_1", cwd=tmp_path)["error"]["message"]
    assert "running: bg_task_1, agent_1" in ps("stop", "nope", cwd=tmp_path)["error"]["message"]
    other = start(tmp_path, "other")
    try:
        assert "name the session with --session" in ps("stop", "bg_task_1", cwd=tmp_path)["error"]["message"]
        assert ps("stop", "bg_task_1", "--session", "other", cwd=tmp_path)["session_id"] == "session_other"
        assert "bg_task_1" in rows_by_id(ps("--session", "work", cwd=tmp_path))
    finally:
        other.kill()
        other.communicate()


def test_a_killed_session_leaves_its_to_dos_and_nothing_that_runs(tmp_path: Path) -> None:
    process = start(tmp_path, "work")
    process.kill()
    process.communicate()
    kept = [row for row in ps(cwd=tmp_path) if row["kind"] != "process"]
    assert [(row["id"], row["state"], row["live"]) for row in kept] == [
        ("task_1", "in_progress", False),
        ("task_2", "pending", False),
    ]
    every = rows_by_id(ps("--all", cwd=tmp_path))
    assert (every["bg_task_1"]["state"], every["agent_1"]["state"]) == ("cancelled", "cancelled")
    assert os.listdir(Path(os.environ["SUREHAND_HOME"]) / "channels") == []


def test_a_session_that_goes_on_has_its_tasks_back(tmp_path: Path) -> None:
    process = start(tmp_path, "work")
    process.kill()
    process.communicate()
    command = [sys.executable, "-m", "surehand", "tools", "invoke", "TaskList", "--session", "work"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    tasks = json.loads(done.stdout)["data"]["tasks"]
    assert [(task["id"], task["status"]) for task in tasks] == [
        ("task_1", "in_progress"),
        ("task_2", "pending"),
        ("bg_task_1", "cancelled"),
        ("agent_1", "cancelled"),
    ]


def test_a_state_folder_with_a_long_name_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUREHAND_HOME", str(tmp_path / ("x" * 100) / ("y" * 100)))
    process = start(tmp_path, "s" * 64)
    try:
        assert "bg_task_1" in rows_by_id(ps(cwd=tmp_path))
    finally:
        process.kill()
        process.communicate()


def test_tasks_kept_for_all_sessions_of_a_folder_are_listed_once(tmp_path: Path) -> None:
    environment = {**os.environ, "SUREHAND_TOOLSET__KEEP_TASKS": "true"}
    words = ("tools", "invoke", "TaskCreate", "--args", '{"title": "later"}', "--session", "s")
    subprocess.run([sys.executable, "-m", "surehand", *words], cwd=tmp_path, env=environment, check=True)
    assert [(row["id"], row["title"]) for row in ps(cwd=tmp_path)] == [("task_1", "later")]


def test_a_person_sees_a_table(tmp_path: Path, program: subprocess.Popen[str]) -> None:
    with Terminal("ps", cwd=tmp_path, columns=160) as terminal:
        shown = terminal.wait_for("waiter")
        assert terminal.ended() == 0
    assert "ID         KIND" in shown
    assert "1 call" in shown
