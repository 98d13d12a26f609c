"""Health: on demand, on an interval, and as the way back from the circuit breaker."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from surehand.core.session import Session
from surehand.core.tool import Health, Tool, tool
from surehand.engine.health import UNHEALTHY_LIMIT, HealthMonitor
from surehand.registry.lifecycle import IllegalTransition, State
from surehand.registry.registry import Registry
from surehand.testing import scratch_app


def make(name: str = "t", check: Any = None, **options: Any) -> Tool:
    return Tool(
        name=name,
        description=name,
        run=options.pop("run", lambda args, ctx: "fine"),
        args={"type": "object"},
        read_only=True,
        health_check=check,
        **options,
    )


def monitor(*tools: Tool, **options: Any) -> tuple[HealthMonitor, Registry]:
    registry = Registry()
    for each in tools:
        registry.register(each)
    return HealthMonitor(registry, registry.lifecycle, **options), registry


async def answer(healthy: bool, message: str = "", **details: Any) -> Health:
    return Health(healthy, message, details)


async def test_the_four_answers() -> None:
    async def broken() -> Health:
        raise OSError("no disk")

    health, _ = monitor(
        make("none"),
        make("good", lambda: answer(True)),
        make("bad", lambda: answer(False, "no key", missing="KEY")),
        make("broken", broken),
    )
    reports = {report.tool: report for report in await health.check_all(["none", "good", "bad", "broken", "ghost"])}
    assert {name: report.status for name, report in reports.items()} == {
        "none": "healthy",
        "good": "healthy",
        "bad": "unhealthy",
        "broken": "error",
        "ghost": "not_found",
    }
    assert reports["ghost"].message == "Tool ghost not found in registry"
    assert reports["broken"].message == "Health check failed: no disk"
    assert reports["bad"].details == {"missing": "KEY"}


async def test_a_check_that_hangs_or_blocks_is_bounded_and_holds_up_nobody() -> None:
    async def hangs() -> Health:
        await asyncio.Event().wait()
        return Health()

    def blocks() -> Health:
        time.sleep(2.0)
        return Health()

    health, _ = monitor(make("hangs", hangs), make("blocks", blocks), make("good"), timeout_s=0.5)
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            beats += 1
            await asyncio.sleep(0.005)

    heart = asyncio.create_task(beat())
    reports = await asyncio.wait_for(health.check_all(), 60)
    heart.cancel()
    assert [report.status for report in reports] == ["error", "error", "healthy"]
    assert "no answer within 0.5 s" in reports[0].message
    assert beats > 3, "the loop went on"


async def test_a_tripped_tool_comes_back_by_a_passing_check_and_one_disabled_by_hand_does_not() -> None:
    health, registry = monitor(make("tripped"), make("by_hand"))
    for name in ("tripped", "by_hand"):
        registry.lifecycle.move(name, "initializing")
        registry.lifecycle.move(name, "ready")
    for _ in range(registry.lifecycle.trip_after):
        registry.lifecycle.end_call(registry.lifecycle.begin_call("tripped"), failed=True)
    registry.lifecycle.move("by_hand", "disabled", "the user said so")
    reports = {report.tool: report for report in await health.check_all()}
    assert registry.lifecycle.state("tripped") == "ready"
    assert registry.lifecycle.state("by_hand") == "disabled"
    assert reports["by_hand"].status == "unhealthy"
    assert "the user said so" in reports["by_hand"].message


async def test_failing_checks_in_a_row_take_a_tool_out_and_a_passing_one_brings_it_back() -> None:
    well = False

    async def check() -> Health:
        return Health(well)

    health, registry = monitor(make(check=check))
    registry.lifecycle.move("t", "initializing")
    registry.lifecycle.move("t", "ready")
    for _ in range(UNHEALTHY_LIMIT):
        assert registry.lifecycle.state("t") == "ready"
        await health.check("t")
    assert registry.lifecycle.state("t") == "disabled"
    well = True
    await health.check("t")
    assert registry.lifecycle.state("t") == "ready"


async def test_on_an_interval_it_checks_again_and_again_until_cancelled() -> None:
    count = 0
    enough = asyncio.Event()

    async def check() -> Health:
        nonlocal count
        count += 1
        if count == 3:
            enough.set()
        return Health()

    health, _ = monitor(make(check=check))
    watching = asyncio.create_task(health.watch(0.001))
    await asyncio.wait_for(enough.wait(), 60)
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching
    assert health.latest["t"].status == "healthy"


async def test_a_call_brings_back_a_tripped_tool_once_it_has_rested_and_is_well() -> None:
    broken = True

    @tool(read_only=True)
    async def flaky() -> str:
        "Raises until mended."
        if broken:
            raise RuntimeError("bug")
        return "fine"

    async with scratch_app(tools=[flaky], builtin=False) as app:
        for _ in range(app.registry.lifecycle.trip_after):
            await app.call("flaky")
        assert app.registry.lifecycle.state("flaky") == "disabled"
        resting = await app.call("flaky")
        assert resting.error is not None
        assert resting.error.code == "tool_unavailable"
        assert "circuit breaker" in resting.error.message
        assert app.selection.infos() == [], "a model is not shown what it cannot call"
        broken = False
        app.health._cool_down_s = 0.0  # pyright: ignore[reportPrivateUsage]
        assert (await app.call("flaky")).output == "fine"
        assert app.registry.lifecycle.state("flaky") == "ready"


async def test_expected_failures_never_trip_the_breaker() -> None:
    from surehand.core.errors import ToolFailure

    @tool(read_only=True)
    async def picky() -> str:
        "Fails on purpose."
        raise ToolFailure("no such file")

    async with scratch_app(tools=[picky], builtin=False) as app:
        for _ in range(20):
            await app.call("picky")
        assert app.registry.lifecycle.state("picky") == "ready"


async def test_a_tool_is_initialised_once_for_all_who_call_it_first() -> None:
    began, go = asyncio.Event(), asyncio.Event()
    count = 0

    async def initialize(session: Session) -> None:
        nonlocal count
        count += 1
        began.set()
        await go.wait()

    async with scratch_app(tools=[make(initialize=initialize)], builtin=False) as app:
        first = asyncio.create_task(app.call("t"))
        others = [asyncio.create_task(app.call("t")) for _ in range(5)]
        await began.wait()
        first.cancel()
        go.set()
        results = await asyncio.gather(*others)
        assert all(result.ok for result in results)
        assert count == 1
        with pytest.raises(asyncio.CancelledError):
            await first


async def test_a_failed_initialisation_is_said_once_and_clearly() -> None:
    async def initialize(session: Session) -> None:
        raise OSError("no such device")

    async with scratch_app(tools=[make(initialize=initialize)], builtin=False) as app:
        first, second = await app.call("t"), await app.call("t")
        assert first.error is not None
        assert second.error is not None
        assert "could not be initialised: no such device" in first.error.message
        assert "t is failed (no such device)" in second.error.message
        assert app.registry.lifecycle.state("t") == "failed"
        assert second.error.hint.startswith("It stays out until it is registered again")
        back: tuple[State, ...] = ("ready", "initializing", "registered")
        for move in back:  # and nothing else brings it back, as the hint says
            with pytest.raises(IllegalTransition):
                app.registry.lifecycle.move("t", move)
        app.registry.unregister("t")
        app.registry.register(make())
        assert (await app.call("t")).ok


async def test_checks_on_an_interval_are_a_setting_and_end_with_the_application() -> None:
    from surehand.core.settings import EngineSettings, Settings

    checked = asyncio.Event()

    async def check() -> Health:
        checked.set()
        return Health()

    settings = Settings(engine=EngineSettings(health_interval=0.01))
    async with scratch_app(tools=[make(check=check)], builtin=False, settings=settings):
        await asyncio.wait_for(checked.wait(), 60)
    assert len(asyncio.all_tasks()) == 1


async def test_the_breaker_s_patience_is_a_setting() -> None:
    from surehand.core.settings import EngineSettings, Settings

    @tool(read_only=True)
    async def broken() -> str:
        "Raises."
        raise RuntimeError("bug")

    for limit, state in ((2, "disabled"), (0, "error")):
        settings = Settings(engine=EngineSettings(trip_after=limit))
        async with scratch_app(tools=[broken], builtin=False, settings=settings) as app:
            for _ in range(10):
                await app.call("broken")
            assert app.registry.lifecycle.state("broken") == state


async def test_changes_of_state_reach_the_event_stream_without_ordinary_calls() -> None:
    async with scratch_app(tools=[make()], builtin=False) as app:
        seen: list[tuple[str, str]] = []
        app.bus.subscribe(
            lambda event: seen.append((event.data["from"], event.data["to"])) if event.kind == "tool_state" else None
        )
        await app.call("t")
        await app.call("t")
        app.registry.lifecycle.move("t", "disabled", "by hand")
        assert seen == [("registered", "initializing"), ("initializing", "ready"), ("ready", "disabled")]


async def test_at_the_end_used_tools_are_closed_and_one_that_fails_keeps_no_other_open() -> None:
    closed: list[str] = []

    async def broken() -> None:
        raise RuntimeError("will not close")

    async def closes() -> None:
        closed.append("second")

    async def unused() -> None:
        closed.append("unused")

    tools = [make("first", close=broken), make("second", close=closes), make("third", close=unused)]
    async with scratch_app(tools=tools, builtin=False) as app:
        await app.call("first")
        await app.call("second")
    assert closed == ["second"]
