"""Closing: calls under way are stopped and awaited, calls after it refused, and nothing is written any more."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from surehand import Settings, Surehand, Tool, ToolContext, ToolResult, tool
from surehand.engine.audit import records, verify
from surehand.testing import Says, scratch_app


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SUREHAND_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def opened(folder: Path, *tools: Tool, **options: Any) -> Surehand:
    folder.mkdir(exist_ok=True)
    return Surehand(folder, settings=Settings(), approver=Says("once"), tools=tools, plugins=False, **options)


def audit_folder(app: Surehand) -> str:
    assert app.session.state_dir is not None
    return os.path.join(app.session.state_dir, "audit")


@pytest.mark.spec("SESS-1")
async def test_a_call_under_way_when_the_application_closes_is_stopped_and_recorded(tmp_path: Path) -> None:
    started, cleaned = asyncio.Event(), list[bool]()

    @tool(read_only=True)
    async def waiting() -> None:
        "Waits."
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(True)

    async with opened(tmp_path / "ws", waiting) as app:
        running = asyncio.create_task(app.call("waiting"))
        await started.wait()
    assert running.done() or await running
    result = running.result()
    assert result.error is not None
    assert result.error.code == "cancelled"
    assert "closed" in result.error.message
    assert cleaned == [True]
    assert [record["tool"] for record in records(audit_folder(app)) if record["kind"] == "call"] == ["waiting"]
    assert verify(audit_folder(app)).ok


@pytest.mark.spec("SESS-1")
async def test_a_call_that_waits_for_an_answer_is_stopped_too(tmp_path: Path) -> None:
    asked = asyncio.Event()

    async def never(question: Any) -> bool:
        asked.set()
        await asyncio.Event().wait()
        return True

    (tmp_path / "ws").mkdir()
    async with Surehand(tmp_path / "ws", settings=Settings(), approver=never, plugins=False) as app:
        running = asyncio.create_task(app.call("Write", {"file_path": "a.txt", "content": "x"}))
        await asked.wait()
    result = await running
    assert result.error is not None
    assert result.error.code == "cancelled"
    assert not (tmp_path / "ws" / "a.txt").exists()


@pytest.mark.spec("SESS-1")
async def test_a_call_after_the_end_is_refused_with_what_to_do(tmp_path: Path) -> None:
    async with opened(tmp_path / "ws") as app:
        pass
    for result in (
        await app.call("time.now"),
        await app.dry_run("Write", {"file_path": "a.txt", "content": ""}),
        *await app.run_calls([]),
    ):
        assert result.error is not None
        assert result.error.code == "tool_unavailable"
        assert "closed" in result.error.message
        assert result.error.hint
    await app.close()  # a second time is harmless


async def test_nothing_is_written_through_a_descriptor_after_the_end(tmp_path: Path) -> None:
    go_on, ended = threading.Event(), threading.Event()
    started = asyncio.Event()
    loop = asyncio.get_running_loop()

    @tool(read_only=True)
    def stubborn(ctx: ToolContext) -> str:
        "Outlives its session in a thread, and then reports."
        loop.call_soon_threadsafe(started.set)
        go_on.wait()
        ctx.session.emit("note", message="still here")
        ended.set()
        return "done"

    async with opened(tmp_path / "ws", stubborn, session="named", record=str(tmp_path / "calls.jsonl")) as app:
        running = asyncio.create_task(app.call("stubborn"))
        await started.wait()
    assert not (await running).ok
    # The user opens files: they get the numbers that the audit and the journal had.
    mine = [os.open(tmp_path / f"mine-{number}", os.O_RDWR | os.O_CREAT) for number in range(20)]
    go_on.set()
    await asyncio.to_thread(ended.wait)
    assert not (await app.call("time.now")).ok
    assert [os.fstat(descriptor).st_size for descriptor in mine] == [0] * 20
    for descriptor in mine:
        os.close(descriptor)
    assert verify(audit_folder(app)).ok


async def test_a_handler_that_ignores_its_cancellation_is_not_said_to_be_over(tmp_path: Path) -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    @tool(grace_s=0.05)
    async def stubborn() -> None:
        "Will not stop."
        begun.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        (tmp_path / "late.txt").write_text("late")

    async with scratch_app(tmp_path, tools=[stubborn]) as app:
        call = asyncio.create_task(app.call("stubborn"))
        await begun.wait()
    result = await call
    release.set()
    assert result.error is not None
    assert result.error.code == "cancelled"
    assert "left behind" in result.error.hint
    assert "Nothing" not in result.error.hint


async def test_calls_of_a_list_that_are_left_when_it_closes_are_refused(tmp_path: Path) -> None:
    started = asyncio.Event()

    @tool()
    async def waiting() -> None:
        "Waits."
        started.set()
        await asyncio.Event().wait()

    async def make(app: Surehand) -> Sequence[ToolResult]:
        from surehand import ToolCall

        return await app.run_calls([ToolCall("waiting"), ToolCall("waiting"), ToolCall("time.now")])

    async with opened(tmp_path / "ws", waiting) as app:
        running = asyncio.create_task(make(app))
        await started.wait()
    codes = [result.error.code for result in await running if result.error]
    assert codes == ["cancelled", "tool_unavailable", "tool_unavailable"]


async def test_a_tool_may_close_its_own_application() -> None:
    apps: list[Surehand] = []

    @tool(read_only=True)
    async def leave() -> None:
        "Closes everything."
        await apps[0].close()

    async with scratch_app(tools=[leave]) as app:
        apps.append(app)
        result = await app.call("leave")
    assert result.error is not None
    assert result.error.code == "cancelled"


async def test_a_caller_cancelled_while_it_closes_stays_cancelled(tmp_path: Path) -> None:
    started = asyncio.Event()

    @tool(read_only=True)
    async def waiting() -> None:
        "Waits."
        started.set()
        await asyncio.Event().wait()

    async with opened(tmp_path / "ws", waiting) as app:
        running = asyncio.create_task(app.call("waiting"))
        await started.wait()
        running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_what_is_kept_in_a_session_cannot_be_made_again_after_its_end(tmp_path: Path) -> None:
    from surehand import ToolFailure
    from surehand.history.history import HISTORY

    async with opened(tmp_path / "ws") as app:
        app.session.keep(HISTORY)
    with pytest.raises(ToolFailure, match="closed"):
        app.session.keep(HISTORY)


@pytest.mark.spec("SESS-1")
async def test_what_fails_to_end_keeps_nothing_else_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail() -> None:
        raise OSError("it does not end")

    app = opened(tmp_path / "ws")
    ended: list[str] = []
    app.bus.subscribe(lambda event: ended.append(event.kind))
    monkeypatch.setattr(app.servers, "close", fail)
    with pytest.raises(OSError, match="it does not end"):
        await app.close()
    assert app.session.closed
    assert "session_closed" in ended


@pytest.mark.parametrize("exists", [False, True])
async def test_closing_while_the_disk_is_slow_leaves_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exists: bool
) -> None:
    flushing, go_on, flush = threading.Event(), threading.Event(), os.fsync

    def flush_slowly(descriptor: int) -> None:
        flushing.set()
        go_on.wait()
        flush(descriptor)

    if exists:
        (tmp_path / "a.txt").write_text("old")
    app = opened(tmp_path, mode="accept-edits")
    await app.__aenter__()
    await app.call("Read", {"file_path": str(tmp_path / "a.txt")})
    monkeypatch.setattr(os, "fsync", flush_slowly)
    call = asyncio.ensure_future(app.call("Write", {"file_path": str(tmp_path / "a.txt"), "content": "new"}))
    try:
        await asyncio.to_thread(flushing.wait)
        await app.close()
        assert not [name for name in os.listdir(tmp_path) if name.startswith(".surehand-")]
    finally:
        go_on.set()
    assert (await call).error
    assert (tmp_path / "a.txt").exists() == exists
