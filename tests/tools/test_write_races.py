"""Folders that come and go while a file is written into them, and files that change while their edit is asked about."""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from surehand import Surehand, ToolResult
from surehand.core.events import Event
from surehand.core.session import SETTLED_NS
from surehand.core.settings import Mode
from surehand.files.opening import read_to_end
from surehand.policy.approval import Answer, Question
from surehand.testing import Says, scratch_app
from surehand.tools import file_write


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


LARGE = "".join(f"row {number:06d} of a file too large to be held while somebody is asked\n" for number in range(5000))


class _Meanwhile(Says):
    """Says yes, after something has happened to the file."""

    def __init__(self, happen: Callable[[], object]) -> None:
        super().__init__("once")
        self._happen = happen

    async def ask(self, question: Question) -> Answer:
        self._happen()
        return await super().ask(question)


def _write_old(path: Path, text: str) -> os.stat_result:
    """Write a file and wait until its status is old enough to prove something."""
    path.write_text(text)
    status = path.stat()
    while time.time_ns() - status.st_ctime_ns <= SETTLED_NS:
        pass
    return status


async def _edit_large(path: Path, happen: Callable[[], object]) -> ToolResult:
    def happen_late() -> None:
        app.session.keep(file_write.CHECKED_FILES)[str(path)].let_go()  # as for a person, who takes a while
        happen()

    async with Surehand(path.parent, approver=_Meanwhile(happen_late), plugins=False) as app:
        assert (await app.call("Read", {"file_path": path.name})).ok
        edit = {"file_path": path.name, "old_string": "row 002500", "new_string": "ROW 2500"}
        return await app.call("Edit", edit)


async def test_a_large_file_is_edited_as_it_was_shown(tmp_path: Path) -> None:
    path = tmp_path / "large.txt"
    _write_old(path, LARGE)
    result = await _edit_large(path, lambda: None)
    assert result.ok, result.output
    assert path.read_text() == LARGE.replace("row 002500", "ROW 2500")
    assert "@@ -2498,7 +2498,7 @@" in result.data["diff"]
    assert "  2501\tROW 2500 of" in result.output


async def test_a_large_file_that_moves_while_its_edit_is_asked_about_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "large.txt"
    moved = LARGE[100:] + LARGE[:100]
    status = _write_old(path, LARGE)

    def move() -> None:
        with path.open("r+") as file:
            file.write(moved)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    result = await _edit_large(path, move)
    assert result.error is not None
    assert result.error.code == "precondition_failed"
    assert path.read_text() == moved


@pytest.mark.parametrize("meanwhile", ["rewritten", "touched", "read", "removed", "a directory"])
@pytest.mark.parametrize("tool", ["Edit", "Write"])
async def test_a_small_file_is_written_as_its_state_allows_once_the_answer_is_there(
    tmp_path: Path, tool: str, meanwhile: str
) -> None:
    path = tmp_path / "a.txt"
    status = _write_old(path, "one\ntwo\n")

    async def happen(question: Question) -> str:
        if meanwhile == "rewritten":  # with the same size and time
            path.write_text("two\none\n")
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        elif meanwhile == "touched":
            os.utime(path, ns=(0, 0))
        elif meanwhile == "read":
            assert (await app.call("Read", {"file_path": "a.txt"})).ok
        else:
            path.unlink()
            if meanwhile == "a directory":
                path.mkdir()
        return "once"

    async with Surehand(tmp_path, approver=happen, plugins=False) as app:
        assert (await app.call("Read", {"file_path": "a.txt"})).ok
        args = {"old_string": "one", "new_string": "ONE"} if tool == "Edit" else {"content": "ONE\ntwo\n"}
        result = await app.call(tool, {"file_path": "a.txt", **args})
    layers = {"rewritten": 8, "removed": 5 if tool == "Edit" else None, "a directory": 6}
    layer = layers.get(meanwhile)
    assert (result.error and result.error.details["layer"]) == layer, result.output
    if layer is None:
        assert path.read_text() == "ONE\ntwo\n"


def _write_while_read(path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have somebody write a text into the file between the look at its status and the look at its bytes."""

    def read_moved(fd: int, size: int) -> bytes:
        with path.open("r+") as file:
            file.write(text)
        return read_to_end(fd, size)

    monkeypatch.setattr(file_write, "read_to_end", read_moved)


async def test_a_large_file_that_moves_while_it_is_read_again_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "large.txt"
    moved = LARGE[100:] + LARGE[:100]
    _write_old(path, LARGE)
    result = await _edit_large(path, lambda: _write_while_read(path, moved, monkeypatch))
    assert result.error is not None
    assert result.error.details["number"] == 7
    assert path.read_text() == moved


@pytest.mark.parametrize("mode", ["default", "accept-edits"])
async def test_a_file_written_to_while_its_edit_reads_it_counts_as_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:
    path = tmp_path / "app.py"
    _write_old(path, "one\r\ntwo\r\n")  # CRLF: found by a thread, not at once
    async with Surehand(tmp_path, approver=Says("once"), mode=mode, plugins=False) as app:
        assert (await app.call("Read", {"file_path": "app.py"})).ok
        _write_while_read(path, "ONE\r\ntwo\r\nthree", monkeypatch)
        result = await app.call("Edit", {"file_path": "app.py", "old_string": "two\n", "new_string": "zwei\n"})
    assert result.error is not None
    assert result.error.details["number"] == 7
    assert path.read_bytes() == b"ONE\r\ntwo\r\nthree"


async def test_a_refusal_that_only_a_question_shows_does_not_count_as_a_read(tmp_path: Path) -> None:
    path, workspace = tmp_path / "outside.txt", tmp_path / "ws"
    workspace.mkdir()
    path.write_text("one\ntwo\n")
    says = Says("once")
    async with Surehand(workspace, approver=says, plugins=False) as app:
        assert (await app.call("Read", {"file_path": str(path)})).ok
        path.write_text("ONE\ntwo\n")
        edit = {"file_path": str(path), "old_string": "two", "new_string": "zwei"}
        result = await app.call("Edit", edit)
        assert says.asked[-1].preview is not None
        assert "modified since read" in says.asked[-1].preview.text
        assert result.error is not None
        assert result.error.details["number"] == 7
        assert path.read_text() == "ONE\ntwo\n"
        assert (await app.call("Edit", edit)).ok


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("Write", {"content": "new\n"}),
        ("Edit", {"old_string": "old", "new_string": "new"}),
        ("MultiEdit", {"edits": [{"old_string": "old", "new_string": "new"}]}),
    ],
)
async def test_a_link_turned_round_after_the_judgement_leads_no_write_elsewhere(
    tmp_path: Path, tool: str, args: dict[str, Any]
) -> None:
    for name in ("plain", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file.txt").write_text("old\n")
    link = tmp_path / "link"
    link.symlink_to("plain")

    def turn(event: Event) -> None:
        if event.tool == tool:
            link.unlink()
            link.symlink_to("other")

    async with scratch_app(tmp_path, approve=False) as app:
        app.session.mode = "accept-edits"
        for folder in (link, tmp_path / "other"):
            await app.call("Read", {"file_path": str(folder / "file.txt")})
        app.bus.subscribe(turn, kinds=("call_started",))
        await app.call(tool, {"file_path": str(link / "file.txt"), **args})
    assert (tmp_path / "other/file.txt").read_text() == "old\n"
    assert (tmp_path / "plain/file.txt").read_text() == "new\n"
