"""A call that is given up changes nothing any more, and the answer says what is true: not written, or written."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from surehand import Event, Settings, Surehand, ToolCall, ToolContext, ToolFailure, ToolResult, tool
from surehand.core.settings import HistorySettings, ToolSettings
from surehand.engine.running import DEADLINE
from surehand.history.history import HISTORY
from surehand.history.undo import apply, plan_undo
from surehand.history.words import Author
from surehand.testing import scratch_app

CHANGES: dict[str, dict[str, Any]] = {
    "Edit": {"file_path": "a.txt", "old_string": "old", "new_string": "new"},
    "MultiEdit": {"file_path": "a.txt", "edits": [{"old_string": "old", "new_string": "new"}]},
    "Write": {"file_path": "a.txt", "content": "new\n"},
    "Undo": {},
}


@pytest.fixture
async def app(tmp_path: Path) -> AsyncGenerator[Surehand]:
    (tmp_path / "a.txt").write_text("older\n")
    short = Settings(tools={"Edit": ToolSettings(timeout=0.05)})
    async with scratch_app(tmp_path, settings=short) as app:
        await app.call("Read", {"file_path": "a.txt"})
        # One change lies behind, so that there is something to undo.
        assert (await app.call("Write", {"file_path": "a.txt", "content": "old\n"})).ok
        yield app


@contextmanager
def holding(folder: Path) -> Generator[None]:
    """Hold the folder's lock, so that a writer stands still just before it writes."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def is_inside(function: str) -> bool:
    """Tell whether any thread is in a function of this name."""
    for thread, frame in sys._current_frames().items():
        walked = frame if thread != threading.get_ident() else None
        while walked is not None:
            if walked.f_code.co_name == function:
                return True
            walked = walked.f_back
    return False


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.002)


def finished(app: Surehand) -> list[ToolResult]:
    """Collect what is recorded of calls."""
    results: list[ToolResult] = []

    def listen(event: Event) -> None:
        if event.kind == "call_finished":
            results.append(event.data["result"])

    app.bus.subscribe(listen)
    return results


def no_leftovers(folder: Path) -> bool:
    return os.listdir(folder) == ["a.txt"]


@pytest.mark.spec("SESS-1")
@pytest.mark.parametrize("tool", ["Write", "MultiEdit", "Undo"])
async def test_a_writer_cancelled_before_it_writes_never_writes(app: Surehand, tmp_path: Path, tool: str) -> None:
    with holding(tmp_path):
        running = asyncio.create_task(app.call(tool, CHANGES[tool], id="c1"))
        await until(lambda: is_inside("wait_for_lock"))
        assert app.executor.cancel("c1")
        result = await running
    await until(lambda: not is_inside("job"))
    assert result.error is not None
    assert result.error.code == "cancelled"
    assert "Nothing was changed" in result.error.hint
    assert (tmp_path / "a.txt").read_text() == "old\n"
    assert no_leftovers(tmp_path)
    undone = await app.call("Undo")  # the change before is still the latest
    assert undone.ok
    assert (tmp_path / "a.txt").read_text() == "older\n"


@pytest.mark.spec("SESS-1")
async def test_a_writer_that_is_given_up_costs_no_older_change_its_undo(tmp_path: Path) -> None:
    large = [os.urandom(200_000).hex() for _ in range(4)]
    async with scratch_app(tmp_path, settings=Settings(history=HistorySettings(limit_mb=1))) as app:
        for number, content in enumerate(large[:2]):
            assert (await app.call("Write", {"file_path": f"{number}.txt", "content": content})).ok
            assert (await app.call("Write", {"file_path": f"{number}.txt", "content": "small\n"})).ok
        history = app.session.keep(HISTORY)
        before = [change.id for change in history.latest_first("1")]
        more = {"file_path": "0.txt", "content": large[2] + large[3]}
        with holding(tmp_path):
            running = asyncio.create_task(app.call("Write", more, id="c1"))
            await until(lambda: is_inside("wait_for_lock"))
            assert app.executor.cancel("c1")
            assert not (await running).ok
        await until(lambda: not is_inside("job"))
        assert [change.id for change in history.latest_first("1")] == before
        for _ in range(4):
            undone = await app.call("Undo")
            assert undone.ok, undone.output
    assert os.listdir(tmp_path) == []


@pytest.mark.spec("SESS-1")
async def test_a_writer_that_times_out_before_it_writes_never_writes(app: Surehand, tmp_path: Path) -> None:
    with holding(tmp_path):
        result = await app.call("Edit", CHANGES["Edit"])
        assert result.error is not None
        assert result.error.code == "timeout"
        assert "Nothing was changed" in result.error.hint
    await until(lambda: not is_inside("job") and no_leftovers(tmp_path))
    assert (tmp_path / "a.txt").read_text() == "old\n"


class Standstill:
    """Stops the thread that writes just after its change, until it is let go."""

    def __init__(self, app: Surehand) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()
        app.bus.subscribe(self)

    def __call__(self, event: Event) -> None:
        if event.kind == "file_changed":
            self.reached.set()
            self.go_on.wait()


@pytest.mark.spec("SESS-1")
@pytest.mark.parametrize("tool", ["Write", "MultiEdit", "Undo"])
async def test_a_writer_cancelled_after_it_wrote_says_written_with_its_undo(app: Surehand, tool: str) -> None:
    stop = Standstill(app)
    running = asyncio.create_task(app.call(tool, CHANGES[tool], id="c1"))
    await until(stop.reached.is_set)
    assert app.executor.cancel("c1")
    await asyncio.sleep(0)
    assert not running.done()
    stop.go_on.set()
    result = await running
    assert result.ok
    assert result.undo is not None
    assert (await app.call("Undo", {"change_id": result.undo.change_id})).ok


async def test_a_writer_that_times_out_after_it_wrote_says_written_with_its_undo(app: Surehand, tmp_path: Path) -> None:
    stop = Standstill(app)
    running = asyncio.create_task(app.call("Write", CHANGES["Write"], id="c1"))
    await until(stop.reached.is_set)
    app.executor._running["c1"].cancel(DEADLINE)  # as the clock would, but not at the mercy of a slow machine
    await asyncio.sleep(0)
    stop.go_on.set()
    result = await running
    assert result.ok
    assert result.undo is not None
    assert (tmp_path / "a.txt").read_text() == "new\n"


async def test_what_a_cancelled_caller_no_longer_hears_is_recorded_as_it_was(app: Surehand, tmp_path: Path) -> None:
    results, stop = finished(app), Standstill(app)
    running = asyncio.create_task(app.call("Write", CHANGES["Write"]))
    await until(stop.reached.is_set)
    running.cancel()
    await asyncio.sleep(0)
    running.cancel()  # a second time changes nothing
    stop.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (tmp_path / "a.txt").read_text() == "new\n"
    assert [result.ok for result in results] == [True]
    assert results[0].undo is not None


async def test_applying_a_dry_run_that_is_cancelled_before_it_begins_changes_nothing(
    app: Surehand, tmp_path: Path
) -> None:
    with holding(tmp_path):
        running = asyncio.create_task(app.call("Bash", {"command": "echo more > b.txt"}, id="c1", shown_first=True))
        await until(lambda: is_inside("carry_out"))
        assert app.executor.cancel("c1")
        await asyncio.sleep(0)
    result = await running
    assert result.error is not None
    assert result.error.code == "cancelled"
    assert "Nothing was changed" in result.error.hint
    assert no_leftovers(tmp_path)


async def test_an_undo_of_many_files_that_is_given_up_half_way_takes_back_what_it_did(
    app: Surehand, tmp_path: Path
) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(5):
        (folder / f"{number}.txt").write_text("before\n")
    assert (await app.call("Bash", {"command": "for f in many/*.txt; do echo after > $f; done"})).ok
    ctx = ToolContext(ToolCall("Undo"), app.session, lambda progress: None, {})
    asked: list[int] = []

    def give_up_at_the_fourth() -> None:
        asked.append(1)
        if len(asked) == 4:
            assert not ctx.give_up()  # a change has begun, so whoever gives up waits
        ctx.check_wanted()

    history = app.session.keep(HISTORY)
    who, plan = Author("Undo", check_wanted=give_up_at_the_fourth), plan_undo(history)
    with pytest.raises(ToolFailure, match="given up"):
        apply(history, plan, who, lambda path: [str(tmp_path)], force=False)
    assert len(asked) == 4
    assert {each.read_text() for each in folder.iterdir()} == {"after\n"}
    assert (await app.call("Undo")).ok
    assert {each.read_text() for each in folder.iterdir()} == {"before\n"}


async def test_who_is_cancelled_while_a_late_call_clears_up_waits_for_it_and_stays_cancelled() -> None:
    clearing, cleared = asyncio.Event(), asyncio.Event()

    @tool(read_only=True, timeout_s=0.05, grace_s=60)
    async def late() -> str:
        "Clear up after the deadline, for a while."
        try:
            await asyncio.Event().wait()
        finally:
            clearing.set()
            await asyncio.sleep(0.2)
            cleared.set()
        return ""

    async with scratch_app(tools=[late]) as app:
        calling = asyncio.create_task(app.call("late"))
        await clearing.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert cleared.is_set()
