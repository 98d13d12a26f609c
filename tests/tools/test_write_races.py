"""Folders that come and go while a file is written into them."""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path

from surehand import Surehand
from surehand.testing import Says


def _open_folders(folder: Path) -> int:
    """Count the descriptors of this process that stand for the folder."""
    wanted, count = str(folder), 0
    for name in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{name}") == wanted
        except OSError:
            continue
    return count


async def test_a_folder_taken_back_while_a_write_waits_for_it_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "sub"
    folder.mkdir()
    lock = os.open(folder, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    says = Says("once")
    async with Surehand(tmp_path, approver=says, plugins=False) as app:
        writing = asyncio.create_task(app.call("Write", {"file_path": "sub/new.txt", "content": "new\n"}))
        while not says.asked or (_open_folders(folder) < 2 and not writing.done()):
            await asyncio.sleep(0.001)
        folder.rmdir()
        os.close(lock)
        result = await writing
        assert result.ok, result.output
        assert (folder / "new.txt").read_text() == "new\n"
        assert (await app.call("Undo", {})).ok
        assert not folder.exists()
