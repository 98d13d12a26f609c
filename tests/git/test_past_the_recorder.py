"""What a program changes past the recorder of its changes is put back all the same."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from surehand.core.settings import HistorySettings, Settings
from surehand.sandbox import protocol
from surehand.testing import scratch_app

pytestmark = pytest.mark.skipif(not protocol.available(), reason="nothing contains commands here")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    subprocess.run(["git", "init", "-q", "-b", "main", str(folder)], check=True, timeout=60)
    (folder / ".git/hooks").mkdir(exist_ok=True)
    (folder / ".git/hooks/pre-commit").write_text("#!/bin/sh\n# " + "x" * 100_000 + "\n")
    return folder


async def test_settings_and_hooks_are_kept_when_there_is_no_room_for_more_contents(
    workspace: Path, sandbox: str
) -> None:
    config, hook = workspace / ".git/config", workspace / ".git/hooks/pre-commit"
    before = config.read_text(), hook.read_text()
    (workspace / "large").write_bytes(b"x" * 999_999)
    (workspace / "larger").write_bytes(b"x" * 9_999_999)
    (workspace / "script.sh").write_text(
        "echo y >> large; echo y >> larger; echo '[core]' >> .git/config; echo ' pager = canary' >> .git/config; "
        "echo canary >> .git/hooks/pre-commit"
    )
    settings = Settings(history=HistorySettings(command_mb=1))
    async with scratch_app(workspace, settings=settings) as app:
        await app.call("Bash", {"command": "sh script.sh"})
    assert (config.read_text(), hook.read_text()) == before


# One thread names a file that it may change; another turns the name round after the recorder has read it.
RACE = r"""
import ctypes, os, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
fine, bad = (sys.argv[1] + "/aa.txt").encode(), sys.argv[2].encode()
path = ctypes.create_string_buffer(max(len(fine), len(bad)) + 1)
stop = False

def turn():
    while not stop:
        ctypes.memmove(path, bad + b"\0", len(bad) + 1)
        ctypes.memmove(path, fine + b"\0", len(fine) + 1)

turner = threading.Thread(target=turn)
turner.start()
for _ in range(2000):
    number = libc.openat(-100, path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o755)
    won = number >= 0 and os.readlink("/proc/self/fd/%d" % number) == bad.decode()
    if won:
        os.write(number, b"[core]\n\tpager = canary\n")
    if number >= 0:
        os.close(number)
    if won:
        break
stop = True
turner.join()
"""


@pytest.mark.parametrize("target", [".git/config", ".git/hooks/pre-push", "new/.git/config", "plain/config"])
async def test_a_thread_that_turns_paths_round_leaves_nothing(workspace: Path, sandbox: str, target: str) -> None:
    (workspace / "race.py").write_text(RACE)
    (workspace / "race.sh").write_text(f"python3 race.py {workspace} {workspace}/{target}\n")
    before = (workspace / ".git/config").read_text()
    async with scratch_app(workspace) as app:
        if not target.startswith(".git/"):
            assert (await app.call("Bash", {"command": "git init -q new && git init -q --bare plain"})).ok
        for _ in range(5):
            result = await app.call("Bash", {"command": "sh race.sh"})
            assert result.error is None or result.error.code != "permission_denied"
            assert (workspace / ".git/config").read_text() == before
            path = workspace / target
            assert not path.exists() or "canary" not in path.read_text()
