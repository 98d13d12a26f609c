"""Sandboxes start with the first command and end when nothing has run in them for a while."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import psutil
import pytest

from surehand import Settings, Surehand
from surehand.commands import session as commands
from surehand.testing import Says


def children() -> set[int]:
    return {each.pid for each in psutil.Process().children(recursive=True) if each.status() != psutil.STATUS_ZOMBIE}


async def until(condition: Any, seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


async def test_an_idle_session_has_no_process_and_its_next_command_runs_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "REST_S", 0.5)
    async with Surehand(tmp_path, settings=Settings(), approver=Says("once"), keep_state=False) as app:
        (tmp_path / "a.txt").write_text("one\n")
        before = children()
        assert (await app.call("Read", {"file_path": "a.txt"})).ok
        assert children() <= before  # no command yet, no process
        first = await app.call("Bash", {"command": "echo kept > $TMPDIR/note; echo started"})
        assert first.ok, first.error
        await until(lambda: children() <= before | parsers())
        second = await app.call("Bash", {"command": "cat $TMPDIR/note"})
        assert "kept" in second.output
    assert children() <= before | parsers()


def parsers() -> set[int]:
    """The one process of the whole program that reads shell text; it is no session's."""
    found: set[int] = set()
    for each in psutil.Process().children(recursive=True):
        try:
            if "shfmt" in " ".join(each.cmdline()) or "parser" in " ".join(each.cmdline()):
                found.add(each.pid)
        except psutil.Error:
            continue
    return found


async def test_a_sandbox_with_a_command_in_the_background_is_not_at_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "REST_S", 0.3)
    async with Surehand(tmp_path, settings=Settings(), approver=Says("once"), keep_state=False) as app:
        line = "for i in 1 2 3; do sleep 0.5; echo tick; done; touch done; sleep 300"
        started = await app.call("Bash", {"command": line, "run_in_background": True})
        assert started.ok, started.error
        await until(lambda: (tmp_path / "done").exists())
        said = await app.call("TaskOutput", {"id": started.data["task_id"]})
        assert said.data["status"] == "in_progress"
        assert said.output.count("tick") == 3
