"""What a command did for real is taken back and brought back exactly, whatever it did."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from tests.tools.changing import COMMANDS, furnish, snapshot

from surehand.core.events import Event
from surehand.history import command_changes
from surehand.testing import scratch_app


@pytest.mark.spec("SHELL-11")
@pytest.mark.parametrize("case", COMMANDS)
async def test_undo_and_redo_of_a_command_are_exact(case: str, tmp_path: Path) -> None:
    workspace = furnish(tmp_path / "ws")
    before = snapshot(workspace)
    command, expected = COMMANDS[case]
    async with scratch_app(workspace) as app:
        done = await app.call("Bash", {"command": command})
        assert done.ok, done.output
        after = snapshot(workspace)
        assert (done.undo is not None) == bool(expected)
        if done.undo is None:
            assert after == before
            return
        undone = await app.call("Undo", {})
        assert undone.ok, undone.output
        assert snapshot(workspace) == before
        redone = await app.call("Redo", {})
        assert redone.ok, redone.output
        assert snapshot(workspace) == after


@pytest.mark.skipif(os.geteuid() != 0, reason="for anybody else the file stays their own")
async def test_root_brings_no_program_back_that_would_run_as_root(tmp_path: Path) -> None:
    program = tmp_path / "tool"
    program.write_text("#!/bin/sh\n")
    os.chown(program, 12345, 12345)
    program.chmod(0o6755)
    async with scratch_app(tmp_path) as app:
        assert (await app.call("Bash", {"command": "rm tool"})).ok
        assert (await app.call("Undo", {})).ok
    assert stat.S_IMODE(program.stat().st_mode) == 0o755


async def test_whoever_watches_sees_how_far_the_recording_of_many_changes_has_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_changes, "TOLD_EVERY", 5)
    seen: list[tuple[float | None, float | None]] = []

    def hear(event: Event) -> None:
        if event.kind == "call_progress" and "recording" in (progress := event.data["progress"]).text:
            seen.append((progress.done, progress.total))

    async with scratch_app(tmp_path) as app:
        app.bus.subscribe(hear)
        done = await app.call("Bash", {"command": "touch a{1..12}"})
        assert done.ok, done.output
    assert seen == [(5, 12), (10, 12)]


async def test_what_is_kept_of_a_file_leaves_its_time_of_access_alone(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("one\n")
    os.utime(file, ns=(0, file.stat().st_mtime_ns))
    async with scratch_app(tmp_path) as app:
        done = await app.call("Bash", {"command": "echo two >> notes.txt"})
        assert done.ok, done.output
        assert done.undo is not None
        assert file.stat().st_atime_ns == 0
        assert (await app.call("Undo", {})).ok
    assert file.read_text() == "one\n"
