"""Advice from what was measured, and a tuner that follows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from surehand.app import Surehand
from surehand.core.events import Event
from surehand.core.settings import ConcurrencySettings, EngineSettings, Settings, ToolSettings
from surehand.core.tool import tool
from surehand.engine.metrics import Metrics
from surehand.engine.metrics_export import ToolMetrics
from surehand.engine.tuning import MOST_AT_ONCE, advise_caching, advise_concurrency, advise_timeout
from surehand.state import locations
from surehand.testing import ScriptedModel, scratch_app


def measured(seconds: float, calls: int = 50, waited: int = 0) -> ToolMetrics:
    metrics = Metrics()
    for number in range(calls):
        metrics.count_start("t")
        metrics.count_end("t", seconds, None, queue_s=0.1 if number < waited else 0.0)
    found = metrics.of("t")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("seconds", "current", "expected"),
    [
        (0.01, 30.0, 5.0),
        (10.0, 5.0, 30.0),
        (4.0, 30.0, 12.0),
        (1000.0, 30.0, 600.0),
    ],
)
def test_the_timeout_is_the_greatest_of_the_three(seconds: float, current: float, expected: float) -> None:
    advice = advise_timeout(measured(seconds), current)
    assert advice is not None
    assert advice.after == pytest.approx(expected, rel=0.05)
    assert "1.5 x p95" in advice.reason


def test_no_advice_on_few_calls_or_small_differences() -> None:
    assert advise_timeout(measured(0.01, calls=3), 30.0) is None
    assert advise_timeout(measured(0.01), 5.2) is None
    assert advise_concurrency(measured(0.01, calls=3), 10) is None


@pytest.mark.parametrize(
    ("waited", "current", "expected"),
    [(10, 10, 9), (0, 10, 11), (3, 10, None), (10, 1, None), (0, MOST_AT_ONCE, None)],
)
def test_the_limit_goes_down_above_a_tenth_and_up_under_a_hundredth(
    waited: int, current: int, expected: int | None
) -> None:
    advice = advise_concurrency(measured(0.01, waited=waited), current)
    assert (None if advice is None else advice.after) == expected


@pytest.mark.parametrize(
    ("seconds", "calls", "wanted"), [(0.2, 50, True), (0.05, 50, False), (0.2, 10, False), (0.2, 11, True)]
)
def test_caching_is_advised_for_slow_and_frequent_tools(seconds: float, calls: int, wanted: bool) -> None:
    assert (advise_caching(measured(seconds, calls), False) is not None) is wanted
    assert advise_caching(measured(seconds, calls), True) is None


@tool(read_only=True, depends_on=lambda args, ctx: 1)
async def slow() -> str:
    "A tool whose results may be kept."
    return "x"


async def test_switched_on_it_changes_limits_says_why_and_is_bounded_by_what_people_chose() -> None:
    settings = Settings(engine=EngineSettings(tuning=True))
    heard: list[Event] = []
    async with scratch_app(tools=[slow], builtin=False, settings=settings) as app:
        app.bus.subscribe(lambda event: heard.append(event) if event.kind == "tuning_changed" else None)
        await app.call("slow")
        for _ in range(50):
            app.metrics.count_start("slow")
            app.metrics.count_end("slow", 0.2, None)
        assert app.tuner is not None
        kinds = {advice.kind: advice for advice in app.tuner.step()}
        assert set(kinds) == {"timeout", "concurrency", "caching"}
        assert app.executor.tuned_timeouts == {"slow": 5.0}
        assert {event.data["kind"] for event in heard} == set(kinds)
        assert all(event.data["reason"] for event in heard)
        first, second = await app.call("slow"), await app.call("slow")
        assert (first.meta["cached"], second.meta["cached"]) == (False, True)


@pytest.mark.spec("ENG-5")
async def test_what_the_user_fixed_is_never_moved_even_where_it_is_the_usual_value() -> None:
    fixed = ToolSettings(timeout=30.0, concurrency=ConcurrencySettings(max_concurrent_calls=10))
    settings = Settings(engine=EngineSettings(tuning=True), tools={"slow": fixed})
    async with scratch_app(tools=[slow], builtin=False, settings=settings) as app:
        await app.call("slow")
        for _ in range(50):
            app.metrics.count_start("slow")
            app.metrics.count_end("slow", 0.2, None)
        assert app.tuner is not None
        assert {advice.kind for advice in app.tuner.step()} == {"caching"}
        assert app.executor.tuned_timeouts == {}


@pytest.mark.spec("ENG-5")
@pytest.mark.parametrize("spelt", ["timeout = 30.0", "cache = false"])
async def test_a_value_in_the_users_file_is_never_moved_even_where_it_is_the_usual_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelt: str
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    file = Path(locations.user_settings())
    file.parent.mkdir(parents=True)
    file.write_text(f"[engine]\ntuning = true\n{spelt}\n")
    async with Surehand(tmp_path, tools=[slow], builtin=False, keep_state=False) as app:
        await app.call("slow")
        for _ in range(50):
            app.metrics.count_start("slow")
            app.metrics.count_end("slow", 0.2, None)
        assert app.tuner is not None
        moved = {advice.kind for advice in app.tuner.step()}
        assert moved == {"timeout", "concurrency", "caching"} - {"timeout" if "timeout" in spelt else "caching"}
        assert app.executor.tuned_timeouts == ({} if "timeout" in spelt else {"slow": 5.0})
        await app.call("slow")
        assert (await app.call("slow")).meta["cached"] is ("timeout" in spelt)


@pytest.mark.spec("ENG-5")
async def test_a_conversation_reuses_results_unless_the_user_said_no() -> None:
    for engine, reused in ((EngineSettings(), True), (EngineSettings(cache=False), False)):
        async with scratch_app(tools=[slow], builtin=False, settings=Settings(engine=engine)) as app:
            app.conversation(ScriptedModel("done"))
            await app.call("slow")
            assert (await app.call("slow")).meta["cached"] is reused


async def test_switched_off_nothing_changes() -> None:
    async with scratch_app(tools=[slow], builtin=False) as app:
        assert app.tuner is None
        await app.call("slow")
        assert not (await app.call("slow")).meta["cached"]


async def test_what_tuning_changed_is_kept_in_the_journal_of_a_session(tmp_path: Path) -> None:
    settings = Settings(engine=EngineSettings(tuning=True))
    async with scratch_app(
        tmp_path, tools=[slow], builtin=False, settings=settings, session="work", keep_state=True
    ) as app:
        await app.call("slow")
        for _ in range(50):
            app.metrics.count_start("slow")
            app.metrics.count_end("slow", 0.2, None)
        assert app.tuner is not None
        app.tuner.step()
        journal = Path(str(app.session.state_dir)) / "sessions" / "work.jsonl"
    kept = [json.loads(line) for line in journal.read_text().splitlines()]
    reasons = [each["data"]["reason"] for each in kept if each["kind"] == "tuning_changed"]
    assert len(reasons) == 3
    assert all(reasons)
