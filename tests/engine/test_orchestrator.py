"""Many calls: batches, order, overlap and non-overlap proved by events, limits, queues, cancellation, repeats."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from surehand.app import Surehand
from surehand.core.call import ToolCall, ToolResult
from surehand.core.context import ToolContext
from surehand.core.errors import ToolFailure
from surehand.core.settings import ConcurrencySettings, EngineSettings, Settings, ToolSettings
from surehand.core.tool import Tool, tool
from surehand.engine.orchestrator import _ordinal, batches, run_all
from surehand.testing import scratch_app


class Scene:
    """Tools that say when they begin and end, and wait for each other, so that overlap is a fact and not a timing."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.running = 0
        self.most = 0
        self.gates: dict[str, asyncio.Event] = {}

    async def reach(self, number: int) -> None:
        """Wait until so many have run at once."""
        while self.most < number:
            await asyncio.sleep(0)

    def gate(self, name: str) -> asyncio.Event:
        return self.gates.setdefault(name, asyncio.Event())

    def make(self, name: str, *, safe: bool | Callable[[Any, ToolContext], bool] = True, **options: Any) -> Tool:
        async def run(args: Any, ctx: ToolContext) -> str:
            label = args.get("label", name)
            self.running += 1
            self.most = max(self.most, self.running)
            self.log.append(f"+{label}")
            try:
                if "open" in args:
                    self.gate(args["open"]).set()
                if "until" in args:
                    await asyncio.wait_for(self.reach(args["until"]), 60)
                elif "await" in args:
                    await asyncio.wait_for(self.gate(args["await"]).wait(), 60)
                else:
                    await asyncio.sleep(0)
                if args.get("fail"):
                    raise RuntimeError("broken")
                return label
            finally:
                self.running -= 1
                self.log.append(f"-{label}")

        return Tool(
            name=name,
            description=name,
            run=run,
            args={"type": "object"},
            read_only=True,
            concurrency_safe=safe,
            effects=lambda args, ctx: [],
            **options,
        )


def call(name: str, **args: Any) -> ToolCall:
    return ToolCall(name, args)


def positions(app: Surehand, calls: list[ToolCall]) -> list[list[int]]:
    return [list(batch.positions) for batch in batches(calls, app.selection, app.session)]


async def test_the_example_of_the_reference_falls_into_four_batches() -> None:
    scene = Scene()
    safe = {"Glob": True, "Grep": True, "Edit": False, "Bash": False}
    tools = [scene.make(name, safe=flag) for name, flag in safe.items()]
    async with scratch_app(tools=tools, builtin=False) as app:
        calls = [call(name) for name in ("Glob", "Grep", "Edit", "Glob", "Grep", "Bash")]
        assert positions(app, calls) == [[0, 1], [2], [3, 4], [5]]
        results = await app.run_calls(calls)
        assert [result.meta["batch"] for result in results] == [0, 0, 1, 2, 2, 3]


async def test_safety_may_depend_on_the_arguments() -> None:
    scene = Scene()
    shell = scene.make("Bash", safe=lambda args, ctx: args["command"] == "ls")
    async with scratch_app(tools=[shell], builtin=False) as app:
        calls = [call("Bash", command="ls"), call("Bash", command="ls"), call("Bash", command="rm x")]
        assert positions(app, calls) == [[0, 1], [2]]


async def test_settings_override_what_a_tool_says_of_itself() -> None:
    scene = Scene()
    own = ToolSettings(concurrency=ConcurrencySettings(is_concurrency_safe=False))
    async with scratch_app(tools=[scene.make("t")], builtin=False, settings=Settings(tools={"t": own})) as app:
        assert positions(app, [call("t"), call("t")]) == [[0], [1]]


async def test_a_flag_that_raises_means_alone_and_a_call_that_cannot_run_disturbs_nobody() -> None:
    scene = Scene()

    def broken(args: Any, ctx: ToolContext) -> bool:
        raise KeyError("x")

    async with scratch_app(tools=[scene.make("t"), scene.make("odd", safe=broken)], builtin=False) as app:
        assert positions(app, [call("t"), call("odd"), call("nobody"), call("t")]) == [[0], [1], [2, 3]]


async def test_calls_of_a_safe_batch_really_overlap() -> None:
    scene = Scene()
    async with scratch_app(tools=[scene.make("t")], builtin=False) as app:
        # Each waits for what only the other does: run one after the other they would never end.
        calls = [call("t", label="a", open="a", **{"await": "b"}), call("t", label="b", open="b", **{"await": "a"})]
        results = await app.run_calls(calls)
        assert [result.output for result in results] == ["a", "b"]
        assert scene.log[:2] == ["+a", "+b"]


async def test_other_calls_never_overlap_and_keep_their_order() -> None:
    scene = Scene()
    async with scratch_app(tools=[scene.make("safe"), scene.make("alone", safe=False)], builtin=False) as app:
        names = ["safe", "alone", "alone", "safe", "safe", "alone"]
        await app.run_calls([call(name, label=str(at)) for at, name in enumerate(names)])
        order = [int(entry[1:]) for entry in scene.log if entry.startswith("+")]
        assert order == sorted(order)
        for number in (1, 2, 5):
            at = scene.log.index(f"+{number}")
            assert scene.log[at + 1] == f"-{number}", "nothing else happens while it runs"


async def test_at_most_ten_run_at_once() -> None:
    scene = Scene()
    async with scratch_app(tools=[scene.make("t")], builtin=False) as app:
        await app.run_calls([call("t", label=str(number), until=10) for number in range(100)])
        assert scene.most == 10


async def test_the_limit_at_once_is_a_setting() -> None:
    scene = Scene()
    settings = Settings(engine=EngineSettings(max_parallel=3))
    async with scratch_app(tools=[scene.make("t")], builtin=False, settings=settings) as app:
        await app.run_calls([call("t", label=str(number), until=3) for number in range(20)])
        assert scene.most == 3


async def test_results_stream_as_they_finish_and_list_in_call_order() -> None:
    scene = Scene()
    async with scratch_app(tools=[scene.make("t")], builtin=False) as app:
        calls = [call("t", label="slow", **{"await": "go"}), call("t", label="fast")]
        seen: list[int] = []
        async for position, _ in app.stream(calls):
            seen.append(position)
            scene.gate("go").set()  # the slow one ends only once the fast one's result was handed out
        assert seen == [1, 0]
        assert [result.output for result in await app.run_calls(calls)] == ["slow", "fast"]


async def test_calls_that_share_an_id_keep_their_own_results() -> None:
    scene = Scene()
    async with scratch_app(tools=[scene.make("t")], builtin=False) as app:
        calls = [ToolCall("t", {"label": label}, id="same") for label in "abc"]
        assert [result.output for result in await app.run_calls(calls)] == ["a", "b", "c"]


async def test_a_failing_call_leaves_its_siblings_alone() -> None:
    scene = Scene()
    async with scratch_app(tools=[scene.make("t")], builtin=False) as app:
        calls = [
            call("t", label="a", **{"await": "b"}),
            call("t", label="x", fail=True),
            call("t", label="b", open="b"),
        ]
        results = await app.run_calls([*calls, call("nobody")])
        assert [result.ok for result in results] == [True, False, True, False]
        codes = [result.error.code for result in results if result.error]
        assert codes == ["execution_error", "tool_not_found"]


async def test_one_call_can_be_cancelled_without_the_others() -> None:
    scene = Scene()
    async with scratch_app(tools=[scene.make("t")], builtin=False) as app:
        calls = [ToolCall("t", {"label": "stuck", "await": "never", "open": "began"}, id="stuck"), call("t", label="b")]
        running = asyncio.create_task(app.run_calls(calls))
        await scene.gate("began").wait()
        assert app.executor.cancel("stuck")
        stuck, other = await running
        assert stuck.error is not None
        assert stuck.error.code == "cancelled"
        assert other.ok


async def test_a_handler_that_cancels_itself_is_a_result_and_no_end_of_the_batch() -> None:
    @tool(read_only=True)
    async def suicidal() -> str:
        "Cancels the task it runs in."
        raise asyncio.CancelledError

    scene = Scene()
    async with scratch_app(tools=[suicidal, scene.make("t")], builtin=False) as app:
        results = await app.run_calls([call("suicidal"), call("t", label="a"), call("t", label="b")])
        assert [result.ok for result in results] == [False, True, True]
        assert results[0].error is not None
        assert results[0].error.code == "cancelled"


async def test_closing_the_stream_ends_what_still_runs() -> None:
    scene = Scene()
    async with scratch_app(tools=[scene.make("t")], builtin=False) as app:
        calls = [call("t", label="stuck", **{"await": "never"}), call("t", label="quick")]
        stream = run_all(calls, app.executor, app.session, app.selection)
        position, _ = await anext(stream)
        assert position == 1
        await stream.aclose()
        assert scene.running == 0
        assert "-stuck" in scene.log


async def test_a_declared_resource_is_never_used_by_two_calls_at_once() -> None:
    scene = Scene()
    held: dict[str, int] = {}
    worst = 0

    async def run(args: Any, ctx: ToolContext) -> str:
        nonlocal worst
        for name in args["uses"]:
            held[name] = held.get(name, 0) + 1
            worst = max(worst, held[name])
        await asyncio.sleep(0.001)
        for name in args["uses"]:
            held[name] -= 1
        return "done"

    sharing = Tool(
        name="use",
        description="Uses resources",
        run=run,
        args={"type": "object"},
        read_only=True,
        concurrency_safe=True,
        resources=lambda args, ctx: args["uses"],
    )
    async with scratch_app(tools=[sharing, scene.make("t")], builtin=False) as app:
        # Every pair in both orders: taken in the order given, two of them would wait for each other for ever.
        pairs = [[a, b] for a in "wxyz" for b in "wxyz"]
        results = await asyncio.wait_for(app.run_calls([call("use", uses=pair) for pair in pairs]), 60)
        assert all(result.ok for result in results)
        assert worst == 2, "one call may name a resource twice; two calls never hold it together"
        assert not any(held.values())


async def test_calls_on_different_resources_overlap() -> None:
    scene = Scene()
    tools = [scene.make("t", resources=lambda args, ctx: [f"file:{args['label']}"])]
    async with scratch_app(tools=tools, builtin=False) as app:
        calls = [call("t", label="a", open="a", **{"await": "b"}), call("t", label="b", open="b", **{"await": "a"})]
        assert all(result.ok for result in await app.run_calls(calls))


async def test_a_tool_runs_no_more_calls_at_once_than_its_own_limit_whoever_calls() -> None:
    scene = Scene()
    own = ToolSettings(concurrency=ConcurrencySettings(max_concurrent_calls=2))
    async with scratch_app(tools=[scene.make("t")], builtin=False, settings=Settings(tools={"t": own})) as app:
        waits = {"await": "go"}
        calls = [asyncio.create_task(app.call("t", {"label": str(number), **waits})) for number in range(20)]

        async def all_but_two_wait() -> None:
            while sum(len(slot.waiting) for slot in app.executor.slots()) < 18:
                await asyncio.sleep(0)

        await asyncio.wait_for(all_but_two_wait(), 60)
        scene.gate("go").set()
        assert all(result.ok for result in await asyncio.gather(*calls))
        assert scene.most == 2
        figures = app.metrics.of("t")
        assert figures is not None
        assert figures.concurrency.bottlenecks == 18, "who had to wait was counted"
        assert figures.concurrency.running == 0


async def test_a_full_queue_is_said_so_and_the_waiting_ones_still_run() -> None:
    scene = Scene()
    own = ToolSettings(concurrency=ConcurrencySettings(max_concurrent_calls=1, queue_size=2))
    async with scratch_app(tools=[scene.make("t")], builtin=False, settings=Settings(tools={"t": own})) as app:
        first = asyncio.create_task(app.call("t", {"label": "first", "open": "began", "await": "go"}))
        await scene.gate("began").wait()
        waiting = [asyncio.create_task(app.call("t", {"label": str(number)})) for number in range(2)]
        await asyncio.sleep(0)
        refused = await app.call("t", {"label": "late"})
        assert refused.error is not None
        assert refused.error.code == "queue_full"
        assert refused.error.details["queue_size"] == 2
        scene.gate("go").set()
        assert [result.ok for result in await asyncio.gather(first, *waiting)] == [True, True, True]


async def test_a_call_cancelled_while_it_waits_gives_its_turn_to_the_next() -> None:
    scene = Scene()
    own = ToolSettings(concurrency=ConcurrencySettings(max_concurrent_calls=1))
    async with scratch_app(tools=[scene.make("t")], builtin=False, settings=Settings(tools={"t": own})) as app:
        first = asyncio.create_task(app.call("t", {"label": "first", "open": "began", "await": "go"}))
        await scene.gate("began").wait()
        second = asyncio.create_task(app.call("t", {"label": "second"}, id="second"))
        third = asyncio.create_task(app.call("t", {"label": "third"}))
        while not app.executor.cancel("second"):  # until it waits: a busy loop holds new calls back for a turn
            await asyncio.sleep(0)
        scene.gate("go").set()
        results = await asyncio.wait_for(asyncio.gather(first, second, third), 60)
        assert [result.ok for result in results] == [True, False, True]
        assert "+second" not in scene.log


async def test_among_calls_that_wait_the_higher_priority_begins_first() -> None:
    scene = Scene()
    settings = Settings(engine=EngineSettings(max_parallel=2), tools={"urgent": ToolSettings(priority=5)})
    async with scratch_app(tools=[scene.make("t"), scene.make("urgent")], builtin=False, settings=settings) as app:
        calls = [call("t", label=str(at)) for at in range(4)] + [call("urgent", label="u")]
        (batch,) = batches(calls, app.selection, app.session)
        assert batch.positions == (4, 0, 1, 2, 3)
        assert batch.priority == 5
        results = await app.run_calls(calls)
        assert scene.log[0] == "+u"
        assert [result.output for result in results] == ["0", "1", "2", "3", "u"], "results keep the order of the calls"


async def test_a_batch_knows_how_long_it_may_take_from_what_was_measured() -> None:
    scene = Scene()
    async with scratch_app(tools=[scene.make("t")], builtin=False) as app:
        app.metrics.count_start("t")
        app.metrics.count_end("t", 0.5, None)
        (batch,) = batches([call("t")] * 40, app.selection, app.session, estimate=app.metrics.estimate_s)
        assert batch.estimated_s == pytest.approx(2.0)


async def test_retries_only_touch_calls_that_may_be_repeated() -> None:
    tries: dict[str, int] = {}

    def flaky(name: str, **options: Any) -> Tool:
        async def run(args: Any, ctx: ToolContext) -> str:
            tries[name] = tries.get(name, 0) + 1
            if tries[name] < 3:
                raise ToolFailure("try again")
            return "at last"

        return Tool(name=name, description=name, run=run, args={"type": "object"}, **options)

    tools = [flaky("reader", read_only=True), flaky("writer"), flaky("repeatable", idempotent=True)]
    own = ToolSettings(retry_attempts=2)
    settings = Settings(tools=dict.fromkeys(("reader", "writer", "repeatable"), own))
    async with scratch_app(tools=tools, builtin=False, settings=settings) as app:
        results = {name: await app.call(name) for name in ("reader", "writer", "repeatable")}
        assert {name: result.ok for name, result in results.items()} == {
            "reader": True,
            "writer": False,
            "repeatable": True,
        }
        assert tries == {"reader": 3, "writer": 1, "repeatable": 3}
        assert results["reader"].meta["attempts"] == 3


async def test_a_repeated_failing_call_of_a_model_is_remarked_upon_and_then_stopped() -> None:
    runs = 0

    @tool(read_only=True)
    async def stubborn(number: int) -> str:
        "Fails."
        nonlocal runs
        runs += 1
        raise ToolFailure(f"no such number: {number}")

    async with scratch_app(tools=[stubborn], builtin=False) as app:

        async def ask(number: int) -> ToolResult:
            (result,) = await app.run_calls([ToolCall("stubborn", {"number": number}, source="model")])
            return result

        results = [await ask(1) for _ in range(7)]
        assert runs == 5, "the limit of the settings"
        assert "same call with the same outcome" not in results[1].output
        assert "for the 3rd time in a row" in results[2].output
        assert [_ordinal(number) for number in (1, 2, 4, 11, 12, 13, 21, 112, 123)] == (
            ["1st", "2nd", "4th", "11th", "12th", "13th", "21st", "112th", "123rd"]
        )
        assert results[5].error is not None
        assert "failed 5 times in a row" in results[5].error.message
        other = await ask(2)
        assert other.error is not None
        assert other.error.code == "execution_error", "another call is another matter"


async def test_a_poll_whose_answer_changes_is_no_loop_and_a_person_is_never_stopped() -> None:
    count = 0

    @tool(read_only=True)
    async def poll() -> str:
        "Counts."
        nonlocal count
        count += 1
        return f"{count}"

    @tool(read_only=True)
    async def fails() -> str:
        "Fails."
        raise ToolFailure("no")

    async with scratch_app(tools=[poll, fails], builtin=False) as app:
        for _ in range(8):
            (result,) = await app.run_calls([ToolCall("poll", source="model")])
            assert "same call" not in result.output
        for _ in range(8):
            (result,) = await app.run_calls([ToolCall("fails", source="user")])
            assert result.error is not None
            assert result.error.code == "execution_error"


async def test_a_successful_change_starts_the_count_anew() -> None:
    @tool(read_only=True)
    async def fails() -> str:
        "Fails."
        raise ToolFailure("no")

    @tool
    async def change() -> str:
        "Changes something."
        return "done"

    async with scratch_app(tools=[fails, change], builtin=False) as app:
        for _ in range(4):
            await app.run_calls([ToolCall("fails", source="model")])
        await app.run_calls([ToolCall("change", source="model")])
        (result,) = await app.run_calls([ToolCall("fails", source="model")])
        assert "same call" not in result.output


async def soak(calls: int) -> None:
    logging.disable(logging.CRITICAL)  # the test run keeps every record, with the frames of its traceback
    try:
        await _soak(calls)
    finally:
        logging.disable(logging.NOTSET)


async def _soak(calls: int) -> None:
    import gc
    import os

    scene = Scene()
    own = ToolSettings(retry_attempts=1, concurrency=ConcurrencySettings(max_concurrent_calls=5))
    async with scratch_app(tools=[scene.make("t")], builtin=False, settings=Settings(tools={"t": own})) as app:

        async def some(number: int) -> None:
            scene.log.clear()
            await app.run_calls([call("t", label="x", fail=at % 97 == 0) for at in range(number)])

        async def growth(number: int) -> int:
            before = len(gc.get_objects())
            await some(number)
            scene.log.clear()
            gc.collect()
            return len(gc.get_objects()) - before

        await some(500)
        gc.collect()
        descriptors, tasks = len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())
        # What is kept of calls is kept each time; a module imported on the way, by whatever takes its time, only once.
        assert min(await growth(calls), await growth(calls)) < 100, "nothing is kept of a call that ended"
        assert len(os.listdir("/proc/self/fd")) <= descriptors
        assert len(asyncio.all_tasks()) == tasks


async def test_a_soak_leaves_memory_and_descriptors_where_they_were() -> None:
    await soak(1000)


@pytest.mark.slow
async def test_a_long_soak_leaves_memory_and_descriptors_where_they_were() -> None:
    await soak(10_000)
