"""The task board: to-dos move by the rules, what runs is seen beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from surehand import Settings, Surehand
from surehand.core.tasks import Status
from surehand.testing import scratch_app
from surehand.tools.tasks import BOARD


async def test_a_todo_is_created_listed_and_moved() -> None:
    async with scratch_app() as app:
        created = await app.call("TaskCreate", {"title": "write docs", "description": "all of them"})
        assert created.data["status"] == "pending"
        moved = await app.call("TaskUpdate", {"id": created.data["id"], "status": "in_progress"})
        assert moved.data["status"] == "in_progress"
        listed = await app.call("TaskList")
    assert listed.output == "task_1 [in_progress] write docs"


@pytest.mark.parametrize(
    ("path", "legal"),
    [
        (["done"], ["in_progress", "cancelled"]),
        (["in_progress", "pending"], ["done", "failed", "cancelled"]),
        (["in_progress", "done", "in_progress"], []),
        (["cancelled", "pending"], []),
    ],
)
async def test_an_illegal_change_names_the_legal_ones(path: list[str], legal: list[str]) -> None:
    async with scratch_app() as app:
        await app.call("TaskCreate", {"title": "x"})
        for status in path[:-1]:
            assert (await app.call("TaskUpdate", {"id": "task_1", "status": status})).ok
        refused = await app.call("TaskUpdate", {"id": "task_1", "status": path[-1]})
    assert refused.error is not None
    assert refused.error.details["legal"] == legal
    assert all(word in refused.error.hint for word in legal)


async def test_an_unknown_task_and_a_wrong_status_are_named() -> None:
    async with scratch_app() as app:
        unknown = await app.call("TaskUpdate", {"id": "task_9", "status": "done"})
        assert unknown.error is not None
        assert "none" in unknown.error.hint
        wrong = await app.call("TaskUpdate", {"id": "task_9", "status": "finished"})
        assert wrong.error is not None
        assert wrong.error.code == "invalid_args"
        assert (await app.call("TaskCreate", {"title": ""})).error is not None


class Clock:
    """Something that runs."""

    def __init__(self) -> None:
        self.state: Status = "in_progress"
        self.said = ["tick"]

    def output(self) -> str:
        return self.said.pop() if self.said else ""

    def facts(self) -> dict[str, Any]:
        return {"hands": 2}

    async def stop(self) -> None:
        self.state = "cancelled"


async def test_what_runs_is_listed_listened_to_and_stopped() -> None:
    async with scratch_app() as app:
        app.session.keep(BOARD).join("clock_1", "a clock", "agent", Clock())
        assert "clock_1 [in_progress] (agent) a clock" in (await app.call("TaskList")).output
        assert "tick" in (await app.call("TaskOutput", {"id": "clock_1"})).output
        silent = await app.call("TaskOutput", {"id": "clock_1"})
        assert "(nothing new)" in silent.output
        assert silent.data["details"] == {"hands": 2}
        assert (await app.call("TaskUpdate", {"id": "clock_1", "status": "done"})).error is not None
        assert (await app.call("TaskStop", {"id": "clock_1"})).data["status"] == "cancelled"
        assert "already" in (await app.call("TaskStop", {"id": "clock_1"})).output


async def test_a_todo_has_no_output() -> None:
    async with scratch_app() as app:
        await app.call("TaskCreate", {"title": "x"})
        refused = await app.call("TaskOutput", {"id": "task_1"})
    assert refused.error is not None
    assert "to-do" in refused.error.message


@pytest.mark.parametrize("keep", [True, False])
async def test_tasks_are_kept_across_sessions_where_asked(tmp_path: Path, keep: bool) -> None:
    settings = Settings.parse({"toolset": {"keep_tasks": keep}})
    async with Surehand(tmp_path, settings=settings) as app:
        await app.call("TaskCreate", {"title": "later"})
        app.session.keep(BOARD).join("clock_1", "a clock", "agent", Clock())
    async with Surehand(tmp_path, settings=settings) as app:
        tasks: list[dict[str, Any]] = (await app.call("TaskList")).data["tasks"]
        again = await app.call("TaskCreate", {"title": "next"})
    assert [(task["title"], task["status"]) for task in tasks] == (
        [("later", "pending"), ("a clock", "cancelled")] if keep else []
    )
    assert again.data["id"] == ("task_2" if keep else "task_1")


async def test_a_damaged_task_file_is_set_aside(tmp_path: Path) -> None:
    settings = Settings.parse({"toolset": {"keep_tasks": True}})
    async with Surehand(tmp_path, settings=settings) as app:
        await app.call("TaskCreate", {"title": "later"})
        path = Path(str(app.session.state_dir)) / "tasks.json"
    path.write_text(json.dumps(["nonsense"]))
    async with Surehand(tmp_path, settings=settings) as app:
        assert (await app.call("TaskList")).data == {"tasks": []}
    assert (path.parent / "tasks.json.damaged").exists()
