"""Sandboxes start with the first command and end when nothing has run in them for a while."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import psutil
import pytest

from surehand import Settings, Surehand
from surehand.commands import session as commands
from surehand.core.settings import SandboxSettings
from surehand.testing import Says


def sandboxes() -> set[int]:
    """The processes of sandboxes: launchers and the seats they made."""
    found: set[int] = set()
    for each in psutil.Process().children(recursive=True):
        try:
            if each.status() != psutil.STATUS_ZOMBIE and any("launcher" in word for word in each.cmdline()):
                found.add(each.pid)
        except psutil.Error:
            continue
    return found


async def until(condition: Any, seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


async def test_an_idle_session_has_no_process_and_its_next_command_runs_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "IDLE_S", 1.0)
    async with Surehand(tmp_path, settings=Settings(), approver=Says("once"), keep_state=False) as app:
        (tmp_path / "a.txt").write_text("one\n")
        before = sandboxes()
        assert (await app.call("Read", {"file_path": "a.txt"})).ok
        assert sandboxes() <= before  # no command yet, no process
        line = "echo kept > $TMPDIR/note; touch started; until [ -e seen ]; do sleep 0.05; done"
        first = asyncio.create_task(app.call("Bash", {"command": line}))
        await until((tmp_path / "started").exists)
        assert sandboxes() - before
        (tmp_path / "seen").touch()
        assert (await first).ok
        await until(lambda: sandboxes() <= before)
        second = await app.call("Bash", {"command": "cat $TMPDIR/note"})
        assert "kept" in second.output
    assert sandboxes() <= before


async def test_a_sandbox_with_a_command_in_the_background_is_not_at_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "IDLE_S", 0.3)
    async with Surehand(tmp_path, settings=Settings(), approver=Says("once"), keep_state=False) as app:
        line = "for i in 1 2 3; do sleep 0.5; echo tick; done; touch done; sleep 300"
        started = await app.call("Bash", {"command": line, "run_in_background": True})
        assert started.ok, started.error
        await until(lambda: (tmp_path / "done").exists())
        said = await app.call("TaskOutput", {"id": started.data["task_id"]})
        assert said.data["status"] == "in_progress"
        assert said.output.count("tick") == 3


async def test_launchers_that_are_asked_for_at_once_are_one_and_end_with_the_session(tmp_path: Path) -> None:
    before = sandboxes()
    settings = Settings(sandbox=SandboxSettings(network=True))
    async with Surehand(tmp_path, settings=settings, approver=Says("once"), keep_state=False) as app:
        shells = app.session.keep(commands.SHELLS)
        tools = await asyncio.gather(*(shells.tool_launcher((), network=False) for _ in range(3)))
        dry_runs = await asyncio.gather(*(shells.dry_run_launcher() for _ in range(3)))
        assert len({id(each) for each in tools}) == 1
        assert len({id(each) for each in dry_runs}) == 1
    assert sandboxes() <= before


async def test_a_launcher_of_dry_runs_that_no_longer_fits_is_ended(tmp_path: Path) -> None:
    before = sandboxes()
    (secret := tmp_path / ".env").write_text("PASSWORD=one\n")
    settings = Settings(sandbox=SandboxSettings(network=True))
    async with Surehand(tmp_path, settings=settings, approver=Says("once"), keep_state=False) as app:
        shells = app.session.keep(commands.SHELLS)
        first = await shells.dry_run_launcher()
        (tmp_path / "new").write_text("PASSWORD=two\n")
        (tmp_path / "new").replace(secret)
        second = await shells.dry_run_launcher()
        if first is None or second is None:
            pytest.skip("commands have no private view here")
        assert second is not first
    assert first.closed
    assert second.closed
    assert sandboxes() <= before


async def test_a_path_shown_while_the_first_launcher_starts_is_seen_by_the_next_command(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "note.txt").write_text("seen\n")
    async with Surehand(tmp_path, settings=Settings(), approver=Says("once"), keep_state=False) as app:
        shells = app.session.keep(commands.SHELLS)
        first = asyncio.create_task(shells.launcher())
        await asyncio.sleep(0)  # its profile is made, and its process is starting
        shells.show([str(outside / "note.txt")])
        second = await shells.launcher()
        await first
        if not second.profile.private_view:
            pytest.skip("commands have no private view here")
        assert str(outside / "note.txt") in second.profile.shown
