"""Document 002, the overview: life cycle, health, metrics, tuning, settings, extensions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_args

import pytest

from surehand import Event, Health, Settings, Tool, ToolCall, ToolFailure, ToolResult, tool
from surehand.engine.extensions import Extension
from surehand.engine.metrics import Metrics
from surehand.engine.metrics_export import ToolMetrics, to_json
from surehand.engine.tuning import advise_caching, advise_concurrency, advise_timeout
from surehand.registry.lifecycle import IllegalTransition, Lifecycle, State, Transition
from surehand.testing import scratch_app


@tool(read_only=True, concurrency_safe=True)
async def look(text: str = "") -> str:
    "Look."
    return text or "seen"


@tool(read_only=True, concurrency_safe=False)
async def alone() -> str:
    "Runs alone."
    return "alone"


# -- life cycle --------------------------------------------------------------------------------------------------------

DIAGRAM: dict[State, set[State]] = {
    "registered": {"initializing"},
    "initializing": {"ready", "failed"},
    "ready": {"executing", "disabled", "unregistered"},
    "executing": {"ready", "error"},
    "error": {"ready", "disabled"},
    "disabled": {"ready", "unregistered"},
    "failed": {"unregistered"},
    "unregistered": set(),
}
OURS: set[tuple[State, State]] = {
    ("registered", "disabled"),
    ("registered", "unregistered"),
    ("error", "unregistered"),
}
WAYS: dict[State, list[State]] = {
    "registered": [],
    "initializing": ["initializing"],
    "ready": ["initializing", "ready"],
    "executing": ["initializing", "ready", "executing"],
    "error": ["initializing", "ready", "executing", "error"],
    "failed": ["initializing", "failed"],
    "disabled": ["disabled"],
}
STATES: tuple[State, ...] = get_args(State)


@pytest.mark.spec("LIFE-1")
@pytest.mark.parametrize(("before", "after"), [pair for pair in product(WAYS, STATES) if pair[1] != "registered"])
def test_the_state_diagram(before: State, after: State) -> None:
    life = Lifecycle()
    life.register("t")
    for step in WAYS[before]:
        life.move("t", step)
    draining = before in ("executing", "initializing") and after == "unregistered"
    if after in DIAGRAM[before] or (before, after) in OURS or draining:
        life.move("t", after, "a reason")
        assert life.state("t") == after
    else:
        with pytest.raises(IllegalTransition) as refused:
            life.move("t", after)
        assert str(refused.value).startswith(f"Invalid state transition: {before} -> {after} for tool t")
        assert life.state("t") == before


@pytest.mark.spec("LIFE-1")
async def test_a_tool_lives_through_the_diagram() -> None:
    async def initialize(session: object) -> None:
        del session

    made = Tool(
        name="t",
        description="T.",
        args={"type": "object"},
        run=lambda args, ctx: "x",
        read_only=True,
        initialize=initialize,
    )
    async with scratch_app(tools=[made], builtin=False) as app:
        assert (await app.call("t")).ok
        app.registry.unregister("t")
        history = app.registry.lifecycle.history("t")
    assert [move.after for move in history] == [
        "registered",
        "initializing",
        "ready",
        "executing",
        "ready",
        "unregistered",
    ]
    assert all(move.at > 0 for move in history)


@pytest.mark.spec("LIFE-2")
def test_moves_are_recorded_and_told_and_may_be_refused() -> None:
    life, told = Lifecycle(), list[Transition]()
    life.register("t")
    life.listen(told.append)
    stop = life.before(lambda move: "not today" if move.after == "disabled" else None)
    with pytest.raises(IllegalTransition, match="not today"):
        life.move("t", "disabled")
    stop()
    life.move("t", "disabled", "switched off")
    assert [(move.before, move.after, move.why) for move in told] == [("registered", "disabled", "switched off")]


@pytest.mark.spec("CORE-7")
async def test_a_failed_initialization_ends_in_failed() -> None:
    async def initialize(session: object) -> None:
        raise RuntimeError("no power")

    made = Tool(name="t", description="T.", args={"type": "object"}, run=lambda args, ctx: "x", initialize=initialize)
    async with scratch_app(tools=[made], builtin=False) as app:
        result = await app.call("t")
        assert app.registry.lifecycle.state("t") == "failed"
    assert result.error is not None
    assert result.error.code == "tool_unavailable"
    assert "no power" in result.error.message


# -- health ------------------------------------------------------------------------------------------------------------


def checked(answer: Health | Exception) -> Tool:
    async def health_check() -> Health:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return Tool(
        name="t", description="T.", args={"type": "object"}, run=lambda args, ctx: "x", health_check=health_check
    )


@pytest.mark.spec("LIFE-3")
@pytest.mark.parametrize(
    ("answer", "status", "message"),
    [
        (Health(), "healthy", "Health check passed"),
        (Health(message="all green"), "healthy", "all green"),
        (Health(healthy=False, message="no disk", details={"free": 0}), "unhealthy", "no disk"),
        (RuntimeError("boom"), "error", "Health check failed: boom"),
    ],
)
async def test_health_report(answer: Health | Exception, status: str, message: str) -> None:
    async with scratch_app(tools=[checked(answer)], builtin=False) as app:
        report = await app.health.check("t")
    assert (report.status, report.message) == (status, message)
    if isinstance(answer, Health):
        assert report.details == answer.details


@pytest.mark.spec("LIFE-3")
async def test_health_of_an_unknown_tool_is_not_found() -> None:
    async with scratch_app(builtin=False) as app:
        report = await app.health.check("t")
    assert (report.status, report.message) == ("not_found", "Tool t not found in registry")


async def test_a_tool_without_a_check_is_healthy() -> None:
    async with scratch_app(tools=[look], builtin=False) as app:
        assert (await app.health.check("look")).status == "healthy"


# -- metrics -----------------------------------------------------------------------------------------------------------

GROUPS = {
    "execution": {
        "totalCalls",
        "successfulCalls",
        "failedCalls",
        "avgExecutionTime",
        "p95ExecutionTime",
        "maxExecutionTime",
    },
    "resources": {"avgMemoryUsage", "peakMemoryUsage", "avgCpuUsage", "totalIOOperations"},
    "concurrency": {"maxConcurrentCalls", "avgConcurrencyLevel", "concurrencyBottlenecks"},
    "errors": {"validationErrors", "executionErrors", "timeoutErrors", "permissionErrors"},
}


@pytest.mark.spec("ENG-4")
async def test_metrics_have_the_groups_and_names_of_the_overview() -> None:
    @tool(read_only=True)
    async def moody(mood: Literal["good", "bad"]) -> str:
        "Moody."
        if mood == "bad":
            raise ToolFailure("in a bad mood")
        return mood

    async with scratch_app(tools=[moody], builtin=False) as app:
        for mood in ("good", "good", "bad", "ugly"):
            await app.call("moody", {"mood": mood})
        found = app.metrics.of("moody")
    assert found is not None
    shown = to_json(found)
    for group, names in GROUPS.items():
        assert names <= set(shown[group]), group
    execution = shown["execution"]
    assert (execution["totalCalls"], execution["successfulCalls"], execution["failedCalls"]) == (4, 2, 2)
    assert (shown["errors"]["validationErrors"], shown["errors"]["executionErrors"]) == (1, 1)
    assert 0 < execution["avgExecutionTime"] <= execution["maxExecutionTime"]


async def test_refusals_count_as_permission_errors() -> None:
    @tool
    async def careful() -> str:
        "Asks."
        return "x"

    async with scratch_app(tools=[careful], builtin=False, approve=False) as app:
        await app.call("careful")
        found = app.metrics.of("careful")
    assert found is not None
    assert found.errors.permission == 1


def measured(seconds: list[float], waited: int = 0) -> ToolMetrics:
    metrics = Metrics(clock=lambda: 1.0)
    for number, each in enumerate(seconds):
        metrics.count_start("t")
        metrics.count_end("t", each, None, queue_s=0.1 if number < waited else 0.0)
    found = metrics.of("t")
    assert found is not None
    return found


@pytest.mark.spec("ENG-5")
@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ([20.0] * 100, 60.0),  # three times the average
        ([1.0] * 90 + [40.0] * 10, 60.0),  # one and a half times the 95th percentile
        ([0.1] * 100, 5.0),  # five seconds at least
    ],
)
def test_adaptive_timeout(seconds: list[float], expected: float) -> None:
    advice = advise_timeout(measured(seconds), 30.0)
    assert advice is not None
    assert advice.after == pytest.approx(expected, rel=0.03)
    assert advice.reason


@pytest.mark.spec("ENG-5")
@pytest.mark.parametrize(("waited", "after"), [(11, 9), (10, None), (1, None), (0, 11)])
def test_concurrency_goes_down_over_ten_percent_and_up_under_one(waited: int, after: int | None) -> None:
    advice = advise_concurrency(measured([0.1] * 100, waited), 10)
    assert (advice and advice.after) == after


@pytest.mark.spec("ENG-5")
@pytest.mark.parametrize(("calls", "seconds", "on"), [(11, 0.2, True), (10, 0.2, False), (11, 0.1, False)])
def test_caching_for_frequent_and_slow_tools(calls: int, seconds: float, on: bool) -> None:
    assert (advise_caching(measured([seconds] * calls), enabled=False) is not None) is on


# -- settings ----------------------------------------------------------------------------------------------------------

CONFIGURATION = {
    "enabled": True,
    "priority": 1,
    "timeout": 5,
    "retry_attempts": 2,
    "concurrency": {"is_concurrency_safe": True, "max_concurrent_calls": 3, "queue_size": 4},
    "permissions": {
        "allowed_paths": ["src"],
        "forbidden_paths": ["src/secret"],
        "required_capabilities": ["undo"],
        "security_level": 1,
    },
    "monitoring": {"enable_metrics": False, "enable_tracing": False, "log_level": "debug"},
    "custom": {"anything": ["goes"]},
}


@pytest.mark.spec("ENG-3")
def test_a_tool_has_every_setting_of_the_overview() -> None:
    assert Settings.parse({"tools": {"x": CONFIGURATION}}).tools["x"].to_dict() == CONFIGURATION


async def test_a_disabled_tool_is_unavailable() -> None:
    settings = Settings.parse({"tools": {"look": {"enabled": False}}})
    async with scratch_app(tools=[look], builtin=False, settings=settings) as app:
        result = await app.call("look")
        assert app.selection.active_tools() == []
    assert result.error is not None
    assert result.error.code == "tool_unavailable"


async def test_a_timeout_of_the_settings_holds() -> None:
    @tool(read_only=True)
    async def slow() -> None:
        "Slow."
        await asyncio.sleep(60)

    settings = Settings.parse({"tools": {"slow": {"timeout": 0.05}}})
    async with scratch_app(tools=[slow], builtin=False, settings=settings) as app:
        result = await app.call("slow")
    assert result.error is not None
    assert result.error.code == "timeout"


@pytest.mark.spec("ENG-3")
async def test_a_read_only_call_is_tried_again() -> None:
    tries: list[int] = []

    @tool(read_only=True)
    async def shaky() -> str:
        "Shaky."
        tries.append(1)
        if len(tries) < 3:
            raise RuntimeError("not yet")
        return "at last"

    settings = Settings.parse({"tools": {"shaky": {"retry_attempts": 2}}})
    async with scratch_app(tools=[shaky], builtin=False, settings=settings) as app:
        assert (await app.call("shaky")).output == "at last"
    assert len(tries) == 3


@pytest.mark.spec("ENG-3")
async def test_a_full_queue_refuses() -> None:
    gate = asyncio.Event()

    @tool(read_only=True, concurrency_safe=True)
    async def held() -> None:
        "Held."
        await gate.wait()

    own = {"concurrency": {"max_concurrent_calls": 1, "queue_size": 0}}
    async with scratch_app(tools=[held], builtin=False, settings=Settings.parse({"tools": {"held": own}})) as app:
        first = asyncio.create_task(app.call("held"))
        while not app.metrics.records or not app.metrics.records["held"].running:
            await asyncio.sleep(0)
        second = await app.call("held")
        gate.set()
        assert (await first).ok
    assert second.error is not None
    assert second.error.code == "queue_full"


@pytest.mark.spec("PERM-8")
async def test_paths_of_a_tool_are_bounded(tmp_path: Path) -> None:
    for name in ("src", "src/secret", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_text("x\n")
    own = {"permissions": {"allowed_paths": ["src"], "forbidden_paths": ["src/secret"]}}
    async with scratch_app(tmp_path, settings=Settings.parse({"tools": {"Read": own}})) as app:
        outcomes = {name: await app.call("Read", {"file_path": f"{name}/a"}) for name in ("src", "src/secret", "other")}
    assert outcomes["src"].ok
    for name in ("src/secret", "other"):
        error = outcomes[name].error
        assert error is not None
        assert error.code == "permission_denied"


@pytest.mark.spec("PERM-8")
@pytest.mark.parametrize("own", [{"required_capabilities": ["undo"]}, {"security_level": 2}])
async def test_a_tool_without_a_required_capability_is_refused(own: dict[str, Any]) -> None:
    settings = Settings.parse({"tools": {"look": {"permissions": own}}})
    async with scratch_app(tools=[look], builtin=False, settings=settings) as app:
        result = await app.call("look")
    assert result.error is not None
    assert result.error.code == "permission_denied"


# -- extensions --------------------------------------------------------------------------------------------------------


class Watching(Extension):
    """Sees everything, and makes every text of `look` loud."""

    name = "watching"
    version = "2.1.0"
    description = "Watches tools."

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.config: Mapping[str, Any] = {}

    def configure(self, config: Mapping[str, Any]) -> None:
        self.config = config

    def on_register(self, tool: Any) -> None:
        self.seen.append(f"+{tool.name}")

    def on_unregister(self, tool: Any) -> None:
        self.seen.append(f"-{tool.name}")

    async def before(self, tool: Tool, call: ToolCall) -> Mapping[str, Any] | None:
        self.seen.append(f"execute {tool.name}")
        return {"text": str(call.args.get("text", "")).upper()}

    async def after(self, tool: Tool, call: ToolCall, result: ToolResult) -> ToolResult | None:
        self.seen.append(f"complete {tool.name}")
        return None


@pytest.mark.spec("ENG-7")
async def test_an_extension_sees_register_execute_complete_unregister() -> None:
    extension, events = Watching(), list[Event]()
    settings = Settings.parse({"extensions": {"watching": {"loud": True}}})
    async with scratch_app(builtin=False, settings=settings) as app:
        app.bus.subscribe(events.append)
        app.extend(extension)
        app.register(look)
        result = await app.call("look", {"text": "hey"})
        app.registry.unregister("look")
    assert result.output == "HEY"
    assert extension.seen == ["+look", "execute look", "complete look", "-look"]
    assert extension.config == {"loud": True}
    told = next(event for event in events if event.kind == "extension_registered")
    assert (told.data["name"], told.data["version"]) == ("watching", "2.1.0")


@pytest.mark.spec("ENG-7")
async def test_extensions_are_applied_by_priority() -> None:
    def marking(mark: str, order: int) -> Extension:
        class Marking(Extension):
            name = mark
            priority = order

            async def after(self, tool: Tool, call: ToolCall, result: ToolResult) -> ToolResult | None:
                return ToolResult(output=result.output + mark)

        return Marking()

    async with scratch_app(tools=[look], builtin=False) as app:
        app.extend(marking("outer", 10))
        app.extend(marking("inner", 1))
        assert (await app.call("look", {"text": ">"})).output == ">innerouter"


async def test_an_extension_may_replace_a_tool_and_only_those_it_applies_to() -> None:
    from dataclasses import replace

    class Swapping(Extension):
        name = "swapping"
        tools = ("look",)

        def extend(self, tool: Tool) -> Tool:
            def run(args: object, ctx: object) -> str:
                return "swapped"

            return replace(tool, run=run)

    async with scratch_app(tools=[look, alone], builtin=False) as app:
        app.extend(Swapping())
        assert (await app.call("look")).output == "swapped"
        assert (await app.call("alone")).output == "alone"
