"""Sandboxes start with the first command and end when nothing has run in them for a while."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from surehand import Settings, Surehand
from surehand.commands import session as commands
from surehand.core.settings import SandboxSettings
from surehand.sandbox import profile
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
    monkeypatch.setattr(commands, "REST_S", 1.0)
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
    monkeypatch.setattr(commands, "REST_S", 0.3)
    async with Surehand(tmp_path, settings=Settings(), approver=Says("once"), keep_state=False) as app:
        line = "for i in 1 2 3; do sleep 0.5; echo tick; done; touch done; sleep 300"
        started = await app.call("Bash", {"command": line, "run_in_background": True})
        assert started.ok, started.error
        await until(lambda: (tmp_path / "done").exists())
        said = await app.call("TaskOutput", {"id": started.data["task_id"]})
        assert said.data["status"] == "in_progress"
        assert said.output.count("tick") == 3


async def test_the_folders_of_secrets_are_walked_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walked: list[threading.Thread] = []

    def walk(*folders: Any, **options: Any) -> Any:
        walked.append(threading.current_thread())
        return profile.closed_profile(*folders, **options)

    monkeypatch.setattr("surehand.commands.session.closed_profile", walk)
    async with Surehand(tmp_path) as app:
        result = await app.call("Bash", {"command": "echo hello"})
    assert result.ok, result.output
    assert walked
    assert threading.current_thread() not in walked


async def test_two_tools_or_dry_runs_that_begin_at_once_share_a_launcher(tmp_path: Path) -> None:
    settings = Settings(sandbox=SandboxSettings(network=True))
    async with Surehand(tmp_path, settings=settings, keep_state=False) as app:
        shells = app.session.keep(commands.SHELLS)
        first, second = await asyncio.gather(*(shells.tool_launcher((), network=False) for _ in range(2)))
        assert first is second
        first, second = await asyncio.gather(*(shells.dry_run_launcher() for _ in range(2)))
        assert first is second


async def test_profiles_that_are_built_at_once_have_the_same_private_folder(tmp_path: Path) -> None:
    async with Surehand(tmp_path, settings=Settings(), keep_state=False) as app:
        shells = app.session.keep(commands.SHELLS)
        made = await asyncio.gather(*(shells.make_profile(private_view=False) for _ in range(4)))
        assert {each.private_dir for each in made} == {shells.private_dir}


async def test_a_repository_made_while_a_launcher_starts_is_kept_by_the_next_one(tmp_path: Path) -> None:
    async with Surehand(tmp_path, settings=Settings(), keep_state=False) as app:
        shells = app.session.keep(commands.SHELLS)
        before = shells.closed_profile(private_view=False)
        subprocess.run(["git", "init", "-q", tmp_path / "new"], check=True)
        starting = asyncio.create_task(shells.launcher())
        await asyncio.sleep(0)
        shells.touched_repositories([str(tmp_path / "new" / ".git" / "HEAD")], before)
        first = await starting
        assert await shells.launcher() is not first
