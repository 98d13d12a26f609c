"""Deadlines under one timer: kept, dropped, and bound to the loop they belong to."""

from __future__ import annotations

import asyncio
import threading

import pytest

from surehand.core.tool import tool
from surehand.engine import running
from surehand.engine.running import DEADLINE, Deadlines
from surehand.testing import scratch_app


@pytest.fixture(params=["one timer for all", "a timer each"])
def kept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Deadlines:
    monkeypatch.setattr(running, "SHORT_S", 0.0 if request.param == "one timer for all" else 60.0)
    monkeypatch.setattr(running, "LOOK_EVERY_S", 0.005)
    return Deadlines()


async def test_a_waiter_is_cancelled_when_its_time_has_come(kept: Deadlines) -> None:
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()
    kept.set(waiter, 0.01, loop)
    with pytest.raises(asyncio.CancelledError) as cancelled:
        await asyncio.wait_for(waiter, 60)
    assert cancelled.value.args == (DEADLINE,)
    kept.drop(waiter)


async def test_a_waiter_that_was_let_go_is_left_alone(kept: Deadlines) -> None:
    loop = asyncio.get_running_loop()
    gone, stays = loop.create_future(), loop.create_future()
    kept.set(gone, 0.01, loop)
    kept.set(stays, 0.02, loop)
    kept.drop(gone)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(stays, 60)
    assert not gone.done()


def test_an_application_may_move_to_another_loop(kept: Deadlines) -> None:
    async def once() -> None:
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        kept.set(waiter, 0.01, loop)
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(waiter, 60)
        kept.drop(waiter)

    asyncio.run(once())
    asyncio.run(once())


async def test_a_call_is_stopped_at_a_deadline_of_either_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "LOOK_EVERY_S", 0.01)

    @tool(read_only=True, timeout_s=0.05)
    async def hangs() -> str:
        "Hangs."
        await asyncio.Event().wait()
        return ""

    for short in (0.0, 60.0):
        monkeypatch.setattr(running, "SHORT_S", short)
        async with scratch_app(tools=[hangs], builtin=False) as app:
            result = await app.call("hangs")
            assert result.error is not None
            assert result.error.code == "timeout"


async def test_a_sync_handler_takes_no_task_of_its_own() -> None:
    begun, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @tool(read_only=True)
    def waits() -> str:
        "Waits."
        loop.call_soon_threadsafe(begun.set)
        go_on.wait(60)
        return "waited"

    async with scratch_app(tools=[waits], builtin=False) as app:
        before = asyncio.all_tasks()
        calling = asyncio.create_task(app.call("waits"))
        await begun.wait()
        assert asyncio.all_tasks() - before == {calling}
        go_on.set()
        assert (await calling).data == "waited"


async def test_what_a_sync_handler_leaves_to_be_awaited_has_the_same_deadline() -> None:
    @tool(read_only=True, timeout_s=0.2)
    def leaves(hangs: bool) -> object:
        "Leave something to be awaited."
        return asyncio.Event().wait() if hangs else asyncio.sleep(0, "rested")

    async with scratch_app(tools=[leaves], builtin=False) as app:
        assert (await app.call("leaves", {"hangs": False})).data == "rested"
        result = await app.call("leaves", {"hangs": True})
        assert result.error is not None
        assert result.error.code == "timeout"
