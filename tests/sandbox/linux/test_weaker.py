"""A sandbox that cannot be set up as the system promised: said, noted, and no command runs that was judged by more."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from surehand.sandbox.linux import probe

PROGRAM = """
import asyncio, json, sys
from surehand.testing import Says, scratch_app

async def main():
    says, told, notes = Says("once"), [], []
    async with scratch_app(sys.argv[1], approver=says) as app:
        app.bus.subscribe(lambda event: notes.append(event.data["message"]) if event.kind == "note" else None)
        for command in sys.argv[2:]:
            result = await app.call("Bash", {"command": command})
            told.append(result.to_dict() | {"asked": len(says.asked)})
    print(json.dumps([told, notes], default=str))

asyncio.run(main())
"""
# Limits of a user namespace are its own: here nobody can make a mount namespace, and no setting says so beforehand.
WITHOUT_MOUNTS = 'echo 0 > /proc/sys/user/max_mnt_namespaces && exec "$@"'


def run_without_mounts(workspace: Path, *commands: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Run commands in a process for which mounts fail as late as they are made."""
    if not shutil.which("unshare") or not probe.abilities().landlock or not probe.abilities().private_view:
        pytest.skip("needs unshare, namespaces and Landlock")
    words = ["unshare", "--user", "--map-root-user", "sh", "-c", WITHOUT_MOUNTS, "sh", sys.executable, "-c", PROGRAM]
    command = [*words, str(workspace), *commands]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    if ran.returncode and ("max_mnt_namespaces" in ran.stderr or "unshare:" in ran.stderr):
        pytest.skip(f"no user namespace with limits of its own: {ran.stderr}")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_mounts_that_cannot_be_made_are_a_note_and_said_in_the_result(tmp_path: Path) -> None:
    (first, second), notes = run_without_mounts(tmp_path, "echo x > made", "echo y > made")
    said = (
        "the sandbox could not be set up as usual (unshare: No space left on device): Landlock alone contains commands"
    )
    assert [note for note in notes if said in note]
    assert said in first["output"]
    assert said not in second["output"], "once is enough for who reads"
    for each in (first, second):
        assert each["ok"]
        assert said in each["data"]["sandbox"]["problems"][0]
        assert each["data"]["sandbox"]["by"][0].startswith("landlock")


def test_a_command_that_was_judged_by_mounts_does_not_run_without_them(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("TOKEN=secret-value\n")
    command = "python3 -c \"print(open('.env').read())\" > out"
    (first, second), _ = run_without_mounts(tmp_path, command, command)
    assert first["error"]["code"] == "precondition_failed"
    assert "the command was judged for: the sandbox cannot cover" in first["error"]["message"]
    assert (first["asked"], second["asked"]) == (1, 2)
    assert second["ok"], "it was asked about, and allowed"
