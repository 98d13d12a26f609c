"""A session's private temp goes with it: at its end, and after a kill with the next session or `surehand reap`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from surehand.cli.main import main
from surehand.commands.leftovers import PrivateFolder, find_abandoned
from surehand.testing import scratch_app

PROGRAM = """
import asyncio, sys
from surehand import Surehand
async def main():
    async with Surehand(sys.argv[1], allow=["Bash"], keep_state=False) as app:
        done = await app.call("Bash", {"command": "ls"})
        assert done.ok, done.output
        print("ready", flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""


@pytest.fixture
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "temp").mkdir()
    (tmp_path / "ws").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temp"))
    return tmp_path / "temp"


def folders(temp: Path) -> list[str]:
    return [each.name for each in temp.iterdir() if each.name.startswith("surehand-")]


def killed_session(tmp_path: Path, *, launcher_too: bool = True, **environment: str) -> None:
    """Run a program with a session that keeps no state, and kill it while the session is open."""
    words = [sys.executable, "-c", PROGRAM, str(tmp_path / "ws")]
    program = subprocess.Popen(words, stdout=subprocess.PIPE, env={**os.environ, **environment})
    assert program.stdout is not None
    assert program.stdout.readline() == b"ready\n"
    assert list(find_abandoned()) == []  # it lives, and this is another process
    # Of all its threads: the launcher is started beside the judgement of the first command.
    tasks = Path(f"/proc/{program.pid}/task").glob("*/children")
    for pid in " ".join(task.read_text() for task in tasks).split() if launcher_too else ():
        os.kill(int(pid), signal.SIGKILL)
    program.kill()
    program.wait()
    program.stdout.close()


def gone(temp: Path, within_s: float = 10) -> bool:
    deadline = time.monotonic() + within_s
    while folders(temp) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not folders(temp)


async def test_nothing_is_left_when_a_session_closes(tmp_path: Path, temp: Path) -> None:
    async with scratch_app(tmp_path / "ws") as app:
        await app.call("Bash", {"command": "mkdir -m 0 $TMPDIR/shut; echo x > $TMPDIR/x"})
        await app.dry_run("Bash", {"command": "echo x > y"})
        assert len(folders(temp)) == 1
    assert folders(temp) == []


@pytest.mark.parametrize("mode", ["preferred", "off"])
def test_the_launcher_of_a_killed_session_removes_what_it_left(mode: str, tmp_path: Path, temp: Path) -> None:
    killed_session(tmp_path, launcher_too=False, SUREHAND_SANDBOX__MODE=mode)
    assert gone(temp)


async def test_the_next_session_removes_what_a_killed_one_left(tmp_path: Path, temp: Path) -> None:
    killed_session(tmp_path)
    assert len(folders(temp)) == 1
    async with scratch_app(tmp_path / "ws") as app:
        await app.call("Bash", {"command": "true"})
    assert gone(temp)


def test_reap_removes_what_a_killed_session_left_that_kept_no_state(
    tmp_path: Path, temp: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    killed_session(tmp_path)
    (left,) = (str(temp / name) for name in folders(temp))
    assert main(["--json", "reap", "--dry-run"]) == 0
    assert json.loads(capfd.readouterr().out)["removed"] == [left]
    assert os.path.isdir(left)
    assert main(["--json", "reap"]) == 0
    assert json.loads(capfd.readouterr().out)["removed"] == [left]
    assert folders(temp) == []


def test_only_folders_of_ours_that_nobody_uses_are_taken(tmp_path: Path, temp: Path) -> None:
    used = PrivateFolder.make()
    outside = tmp_path / "outside"
    (outside / ".scratch").mkdir(parents=True)
    (temp / "surehand-0123456789ab").symlink_to(outside)
    (temp / "surehand-worktree-x" / ".scratch").mkdir(parents=True)
    (temp / "surehand-aaaaaaaaaaaa").mkdir()  # being made just now
    (temp / "surehand-bbbbbbbbbbbb").write_text("a file")
    left = temp / "surehand-cccccccccccc"
    (left / ".scratch").mkdir(parents=True)
    old = temp / "surehand-dddddddddddd"
    old.mkdir()
    os.utime(old, (0, 0))
    assert sorted(find_abandoned()) == [str(left), str(old)]
    used.remove()
    assert not os.path.exists(used.path)


@pytest.mark.parametrize("place", ["nowhere", "relative/nowhere", "file"])
def test_a_temp_folder_that_is_not_there_is_left_alone(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TMPDIR", place if place.startswith("relative") else str(tmp_path / place))
    folder = PrivateFolder.make()
    try:
        assert os.path.dirname(folder.path) == os.path.realpath("/tmp")
    finally:
        folder.remove()
