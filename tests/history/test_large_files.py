"""Large files are passed through, not held: what a change, its undo and its diff may take of memory does not grow."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from surehand.core.errors import ToolFailure
from surehand.files.text import Splice, splice_bytes
from surehand.history.contents import Stream, _spliced_blocks  # pyright: ignore[reportPrivateUsage]
from surehand.testing import scratch_app

MB = 1 << 20

CHILD = """
import asyncio, os, resource, sys, threading
from surehand import Settings, Surehand
from surehand.core.settings import HistorySettings
from surehand.testing import Says

def data_bytes():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmData"))

async def main(workspace, room, calls):
    settings = Settings(history=HistorySettings(limit_mb=8192))  # room for every version of a large file
    async with Surehand(workspace, approver=Says("once"), settings=settings) as app:
        await app.call("Bash", {"command": "echo warm > small"})  # threads and modules are there from now on
        assert (await app.call("Undo", {})).ok
        limit = data_bytes() + room
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        for tool, args in calls:
            result = await app.call(tool, args)
            assert result.ok, (tool, result.output)

threading.stack_size(512 * 1024)
asyncio.run(main(sys.argv[1], int(sys.argv[2]), eval(sys.argv[3])))
"""


def within_room(workspace: Path, room: int, calls: object) -> None:
    """Make calls in a process that may take only so much memory more than it has when it begins, arguments included.

    `calls` may be an expression: what it comes to is there before the room is measured.
    """
    code = calls if isinstance(calls, str) else repr(calls)
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(workspace), str(room), code],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited as Linux does")
@pytest.mark.parametrize("size", [64, pytest.param(1024, marks=pytest.mark.slow)])
def test_a_large_file_is_deleted_changed_and_brought_back_in_little_memory(tmp_path: Path, size: int) -> None:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    large = workspace / "large"
    with large.open("wb") as file:
        for number in range(size):
            file.write(zlib.compress(b"%d" % number) + os.urandom(1000) * (MB // 1000))
    before = digest(large)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("Bash", {"command": "rm large"}),
        ("Undo", {}),
        ("Redo", {}),
        ("Undo", {}),
        ("Bash", {"command": "echo more >> large"}),
        ("Undo", {}),
    ]
    within_room(workspace, 40 * MB, calls)
    assert digest(large) == before


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited as Linux does")
@pytest.mark.parametrize("size", [56, pytest.param(400, marks=pytest.mark.slow)])
def test_a_large_file_is_edited_written_and_brought_back_in_little_memory(tmp_path: Path, size: int) -> None:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    large, half = workspace / "large", ("a line with é\r\n" * (size * MB // 32)).encode()
    large.write_bytes(half + b"here\r\nit is\r\n" + half)
    before = digest(large)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("Read", {"file_path": "large", "limit": 1}),
        ("Edit", {"file_path": "large", "old_string": "here\nit is\n", "new_string": "here\nand\nthere\n"}),
        (
            "MultiEdit",
            {
                "file_path": "large",
                "edits": [
                    {"old_string": "and\nthere", "new_string": "both"},
                    {"old_string": "here\nboth\n", "new_string": "all\n"},
                ],
            },
        ),
    ]
    within_room(workspace, 48 * MB, calls)
    assert large.read_bytes() == half + b"all\r\n" + half
    content = f"'é and more\\n' * ({size} * 2**20 // 12)"
    writes = f"""[
        ("Undo", {{"all_sessions": True}}),
        ("Undo", {{"all_sessions": True}}),
        ("Read", {{"file_path": "large", "limit": 1}}),
        ("Write", {{"file_path": "large", "content": {content}}}),
        ("Write", {{"file_path": "new", "content": {content}}}),
        ("Undo", {{"file": "large"}}),
    ]"""
    within_room(workspace, 48 * MB, writes)
    assert (workspace / "new").read_bytes() == ("é and more\n" * (size * 2**20 // 12)).encode()
    assert digest(large) == before
    assert sorted(os.listdir(workspace)) == ["large", "new"]


async def test_a_large_content_that_was_damaged_in_the_store_is_never_put_back(tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(os.urandom(6 * MB))
    async with scratch_app(tmp_path, keep_state=True) as app:
        assert (await app.call("Bash", {"command": "rm large"})).ok
        assert app.session.state_dir is not None
        [stored] = [path for path in Path(app.session.state_dir, "history/contents").rglob("*") if path.is_file()]
        with stored.open("r+b") as file:
            file.write(b"damaged")
        result = await app.undo()
        assert not result.ok
        assert "was altered" in result.output
        assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("block", [1, 3, 7, 100])
def test_splices_on_blocks_are_splices_on_the_whole(block: int) -> None:
    whole = bytes(range(60))
    for splices in (
        [],
        [Splice(0, 0, b"front")],
        [Splice(60, 60, b"end")],
        [Splice(0, 60, b"")],
        [Splice(2, 9, b"x"), Splice(9, 9, b"y"), Splice(20, 41, b""), Splice(41, 42, b"abc" * 30)],
        [Splice(number, number + 1, b"-" * (number % 4)) for number in range(0, 60, 2)],
    ):
        blocks = [whole[at : at + block] for at in range(0, 60, block)]
        assert b"".join(_spliced_blocks(blocks, splices)) == b"".join(splice_bytes(whole, splices))


def test_a_stream_ends_where_its_content_ends_and_tells_what_is_damaged() -> None:
    name = hashlib.sha256(b"content").hexdigest()
    assert b"".join(Stream(name, [b"con", b"tent and what was appended"], 7, [])) == b"content"
    with pytest.raises(ToolFailure, match="was altered"):
        b"".join(Stream(name, [b"CONTENT"], 7, []))
