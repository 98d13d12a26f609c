"""The one door: each step of a call, and what bad handlers cannot do to the engine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from surehand import (
    Event,
    Preview,
    Progress,
    Question,
    ReadPath,
    Settings,
    Surehand,
    Tool,
    ToolCall,
    ToolContext,
    ToolFailure,
    ToolResult,
    WritePath,
    tool,
)
from surehand.core.call import BROKEN_ARGUMENTS, Image, Text
from surehand.core.names import provider_map, provider_safe
from surehand.core.shapes import call_from_openai
from surehand.engine.metrics_export import to_json
from surehand.testing import Says, run_tool, scratch_app


@tool(read_only=True)
async def echo(text: str, times: int = 1) -> str:
    "Say it."
    return text * times


@pytest.mark.spec("ENG-1")
async def test_a_call_goes_in_and_a_result_comes_out() -> None:
    result = await run_tool(echo, {"text": "hi", "times": 2})
    assert result.ok
    assert result.output == "hihi"
    assert result.meta["tool"] == "echo"
    assert result.meta["duration_ms"] >= 0
    assert result.meta["cached"] is False
    assert result.meta["truncated"] is False


@pytest.mark.spec("CORE-5")
async def test_an_unknown_tool_suggests_the_nearest_names() -> None:
    async with scratch_app(tools=[echo]) as app:
        result = await app.call("ehco", {})
    assert result.error is not None
    assert result.error.code == "tool_not_found"
    assert "echo" in result.error.hint


async def test_a_tool_outside_the_allow_list_is_unavailable() -> None:
    async with scratch_app(tools=[echo], tool_allow=["time.*"]) as app:
        result = await app.call("echo", {"text": "x"})
        assert (await app.call("time.now")).ok
    assert result.error is not None
    assert result.error.code == "tool_unavailable"


@pytest.mark.spec("CORE-10")
async def test_wrong_arguments_list_every_fault_and_an_example() -> None:
    result = await run_tool(echo, {"times": [], "tex": "a"})
    assert result.error is not None
    assert result.error.code == "invalid_args"
    assert {fault["path"] for fault in result.error.details["faults"]} == {"text", "times", "tex"}
    assert '"text"' in result.error.hint


async def test_plain_slips_are_repaired_with_a_receipt() -> None:
    result = await run_tool(echo, {"text": "a", "times": "3"})
    assert result.output == "aaa"
    assert "times" in result.meta["repaired"][0]


async def test_a_handler_that_raises_gives_one_structured_error() -> None:
    @tool(read_only=True)
    async def broken() -> str:
        "Breaks."
        raise ZeroDivisionError("by zero")

    result = await run_tool(broken)
    assert result.error is not None
    assert result.error.code == "execution_error"
    assert "ZeroDivisionError: by zero" in result.error.message


async def test_a_failure_a_tool_chose_keeps_its_words() -> None:
    @tool(read_only=True)
    def choosy() -> str:
        "Fails on purpose."
        raise ToolFailure("no such city", hint="Try another.", details={"city": "X"}, output="partial", data={"n": 1})

    result = await run_tool(choosy)
    assert result.error is not None
    assert (result.error.message, result.error.hint, result.error.details) == (
        "no such city",
        "Try another.",
        {"city": "X"},
    )
    assert (result.output, result.data) == ("partial", {"n": 1})


@pytest.mark.parametrize("where", ["loop", "thread"])
async def test_a_handler_that_calls_exit_leaves_the_engine_working(where: str) -> None:
    import sys

    if where == "loop":

        @tool(read_only=True)
        async def leaving() -> None:
            "Leaves."
            sys.exit(3)
    else:

        @tool(read_only=True)
        def leaving() -> None:
            "Leaves."
            sys.exit(3)

    async with scratch_app(tools=[leaving, echo]) as app:
        result = await app.call("leaving")
        assert result.error is not None
        assert result.error.code == "execution_error"
        assert "SystemExit" in result.error.message
        assert (await app.call("echo", {"text": "alive"})).output == "alive"


async def test_a_handler_that_returns_nonsense_says_so() -> None:
    @tool(read_only=True)
    async def nonsense() -> object:
        "Returns an object."
        return object()

    result = await run_tool(nonsense)
    assert result.error is not None
    assert "not JSON data" in result.error.message


async def test_an_async_handler_is_stopped_at_its_deadline_and_cleans_up() -> None:
    cleaned: list[bool] = []

    @tool(read_only=True, timeout_s=0.05)
    async def sleepy() -> None:
        "Sleeps."
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.append(True)

    result = await run_tool(sleepy)
    assert result.error is not None
    assert result.error.code == "timeout"
    assert cleaned == [True]


async def test_a_handler_that_swallows_its_cancellation_is_left_behind() -> None:
    release = asyncio.Event()

    @tool(read_only=True, timeout_s=0.05, grace_s=0.05)
    async def stubborn() -> None:
        "Will not stop."
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    result = await run_tool(stubborn)
    release.set()
    assert result.error is not None
    assert result.error.code == "timeout"
    assert "left behind" in result.error.hint


async def test_a_timeout_error_of_the_tools_own_is_not_taken_for_ours() -> None:
    @tool(read_only=True)
    async def impatient() -> None:
        "Times out by itself."
        raise TimeoutError("the database is slow")

    result = await run_tool(impatient)
    assert result.error is not None
    assert result.error.code == "execution_error"


async def test_a_sync_handler_runs_in_a_thread_and_returns_at_its_deadline() -> None:
    release = threading.Event()
    threads: list[str] = []

    @tool(read_only=True, timeout_s=0.1)
    def blocking() -> str:
        "Blocks."
        threads.append(threading.current_thread().name)
        release.wait(30)
        return "late"

    async with scratch_app(tools=[blocking, echo]) as app:
        slow = asyncio.create_task(app.call("blocking"))
        assert (await app.call("echo", {"text": "not blocked"})).ok
        result = await slow
        release.set()
    assert result.error is not None
    assert result.error.code == "timeout"
    assert 'where="process"' in result.error.hint
    assert threads[0] != threading.main_thread().name


async def test_a_timeout_comes_from_settings_before_the_tool() -> None:
    @tool(read_only=True, timeout_s=60)
    async def slow() -> None:
        "Sleeps."
        await asyncio.sleep(60)

    settings = Settings.parse({"tools": {"slow": {"timeout": 0.05}}})
    result = await run_tool(slow, settings=settings)
    assert result.error is not None
    assert result.error.details == {"timeout_s": 0.05}


async def test_a_generator_reports_progress_and_ends_with_its_result() -> None:
    @tool(read_only=True)
    async def counting(to: int) -> AsyncIterator[object]:
        "Counts."
        for number in range(to):
            yield Progress(f"step {number}", done=number, total=to)
        yield "text is progress too"
        yield {"counted": to}

    seen: list[str] = []
    async with scratch_app(tools=[counting]) as app:
        app.bus.subscribe(lambda e: seen.append(e.data["progress"].text) if e.kind == "call_progress" else None)
        result = await app.call("counting", {"to": 2})
    assert result.data == {"counted": 2}
    assert seen == ["step 0", "step 1", "text is progress too"]


async def test_progress_reaches_listeners_from_a_context() -> None:
    @tool(read_only=True)
    async def telling(ctx: ToolContext) -> str:
        "Tells."
        ctx.progress("half", done=1, total=2)
        return ctx.cwd

    seen: list[Any] = []
    async with scratch_app(tools=[telling]) as app:
        app.bus.subscribe(lambda e: seen.append(e.data["progress"]) if e.kind == "call_progress" else None)
        result = await app.call("telling")
        assert result.output == app.session.workspace
    assert seen == [Progress("half", 1, 2)]


@pytest.mark.spec("CORE-3")
async def test_one_running_call_can_be_cancelled_alone() -> None:
    started = asyncio.Event()
    cleaned: list[bool] = []

    @tool(read_only=True)
    async def waiting() -> None:
        "Waits."
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.append(True)

    async with scratch_app(tools=[waiting]) as app:
        running = asyncio.create_task(app.call("waiting", id="c1"))
        await started.wait()
        assert app.executor.cancel("c1")
        result = await running
    assert result.error is not None
    assert result.error.code == "cancelled"
    assert cleaned == [True]
    assert not app.executor.cancel("c1")


async def test_a_cancelled_caller_cancels_the_work_and_it_is_recorded() -> None:
    started = asyncio.Event()
    cleaned: list[bool] = []
    codes: list[str] = []

    @tool(read_only=True)
    async def waiting() -> None:
        "Waits."
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.append(True)

    async with scratch_app(tools=[waiting]) as app:
        app.bus.subscribe(lambda e: codes.append(e.data["result"].error.code) if e.kind == "call_finished" else None)
        running = asyncio.create_task(app.call("waiting"))
        await started.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert cleaned == [True]
    assert codes == ["cancelled"]


async def test_what_writes_asks_and_nobody_to_ask_means_no() -> None:
    ran: list[bool] = []

    @tool
    async def writer() -> None:
        "Writes."
        ran.append(True)

    async with scratch_app(tools=[writer], approver=None) as app:
        result = await app.call("writer")
    assert result.error is not None
    assert result.error.code == "permission_denied"
    assert ran == []


async def test_a_custom_tool_marked_read_only_runs_unasked() -> None:
    approver = Says("no")
    async with scratch_app(tools=[echo], approver=approver) as app:
        assert (await app.call("echo", {"text": "x"})).ok
    assert approver.asked == []


async def test_a_read_only_tool_that_says_it_asks_is_asked_about() -> None:
    @tool(read_only=True, requires_permission=True)
    async def payroll() -> str:
        "Reads what not everybody may."
        return "a lot"

    async with scratch_app(tools=[payroll], approver=(says := Says("once"))) as app:
        assert payroll.info().requires_permission
        assert (await app.call("payroll")).ok
        assert len(says.asked) == 1
        app.approver = Says("no")
        assert not (await app.call("payroll")).ok
    async with scratch_app(tools=[payroll], approver=(says := Says("no")), allow=["payroll"]) as app:
        assert (await app.call("payroll")).ok  # a rule of the user's answers it
        assert not says.asked


async def test_the_time_a_person_takes_to_answer_is_not_the_tools_time() -> None:
    @tool()
    async def act() -> None:
        "Acts."

    async def slow(question: Any) -> bool:
        await asyncio.sleep(0.3)
        return question.call.args == {} and answers.pop()

    answers = [False, True]
    async with scratch_app(tools=[act], approver=slow) as app:
        began = perf_counter()
        done = await app.call("act")
        took_ms = (perf_counter() - began) * 1000
        refused = await app.call("act")
    assert done.ok
    assert not refused.ok
    for result in (done, refused):
        assert result.meta["asked_ms"] >= 290
    assert done.meta["asked_ms"] + done.meta["duration_ms"] <= took_ms  # no time is counted twice


async def test_an_approval_for_the_session_is_not_asked_again() -> None:
    @tool
    async def writer(n: int) -> None:
        "Writes."

    approver = Says("session")
    async with scratch_app(tools=[writer], approver=approver) as app:
        assert (await app.call("writer", {"n": 1})).ok
        assert (await app.call("writer", {"n": 2})).ok
    assert len(approver.asked) == 1


async def test_a_no_carries_its_reason_to_the_model() -> None:
    @tool
    async def writer() -> None:
        "Writes."

    result = await run_tool(writer, approver=Says("no", "use the other branch"))
    assert result.error is not None
    assert "use the other branch" in result.error.message


async def test_changed_arguments_are_validated_and_judged_again() -> None:
    seen: list[str] = []

    def effects(args: Any, ctx: ToolContext) -> list[WritePath]:
        return [WritePath(ctx.resolve(args["path"]))]

    async def run(args: Any, ctx: ToolContext) -> str:
        seen.append(args["path"])
        return "ok"

    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    writer = Tool(name="writer", description="Writes.", args=schema, run=run, effects=effects)

    async with scratch_app(tools=[writer], approver=Says("once", args={"path": 5})) as app:
        result = await app.call("writer", {"path": "a"})
        assert result.error is not None
        assert result.error.code == "invalid_args"
    async with scratch_app(tools=[writer], approver=Says("once", args={"path": "src/../.git/hooks/pre-commit"})) as app:
        result = await app.call("writer", {"path": "a"})
        assert result.error is not None
        assert result.error.code == "permission_denied"
    assert seen == []


async def test_preconditions_run_before_anyone_is_asked() -> None:
    def check(args: Any, ctx: ToolContext) -> None:
        raise ToolFailure("not read yet", code="precondition_failed", details={"layer": 7, "number": 6})

    writer = Tool(
        name="writer", description="Writes.", args={"type": "object"}, run=lambda args, ctx: None, check=check
    )
    approver = Says("once")
    result = await run_tool(writer, approver=approver)
    assert result.error is not None
    assert result.error.code == "precondition_failed"
    assert approver.asked == []


async def test_a_denied_path_is_refused_before_preconditions_could_leak_anything() -> None:
    checked: list[bool] = []
    secret = Tool(
        name="peek",
        description="Reads.",
        args={"type": "object"},
        run=lambda args, ctx: None,
        read_only=True,
        effects=lambda args, ctx: [ReadPath(ctx.resolve(".env"))],
        check=lambda args, ctx: checked.append(True),
    )
    settings = Settings.parse({"permissions": {"deny": ["Read(.env)"]}})
    result = await run_tool(secret, settings=settings)
    assert result.error is not None
    assert result.error.code == "permission_denied"
    assert checked == []


async def test_long_output_is_cut_at_both_ends_and_said_so() -> None:
    settings = Settings.parse({"engine": {"output_limit": 1000}})
    result = await run_tool(echo, {"text": "x", "times": 5000}, settings=settings)
    assert len(result.output) < 1100
    assert "4,000 characters left out" in result.output
    assert result.meta["truncated"] is True


async def test_blocks_of_text_are_held_to_the_limit_together_and_pictures_stay() -> None:
    picture = Image("aGk=", "image/png")

    @tool(read_only=True)
    def pages() -> ToolResult:
        "Return three long texts with a picture between them."
        blocks = (Text("a" * 900), picture, Text("b" * 900), Text("c" * 900))
        return ToolResult(data=None, output="three pages", content=blocks)

    result = await run_tool(pages, settings=Settings.parse({"engine": {"output_limit": 1000}}))
    first, second, third, fourth = result.blocks
    assert (first, second) == (Text("a" * 900), picture)
    assert isinstance(third, Text)
    assert isinstance(fourth, Text)
    assert "800 characters left out" in third.text
    assert fourth.text == "... 900 characters left out ..."
    assert result.meta["truncated"] is True


async def test_a_switched_off_tool_is_unavailable() -> None:
    settings = Settings.parse({"tools": {"echo": {"enabled": False}}})
    result = await run_tool(echo, {"text": "x"}, settings=settings)
    assert result.error is not None
    assert result.error.code == "tool_unavailable"


@pytest.mark.spec("CORE-7")
async def test_a_tool_is_initialised_on_first_use_and_closed_at_the_end() -> None:
    story: list[str] = []

    async def initialize(session: Any) -> None:
        story.append("initialise")

    async def close() -> None:
        story.append("close")

    async def run(args: Any, ctx: ToolContext) -> str:
        story.append("run")
        return "ok"

    keeper = Tool(
        name="keeper",
        description="Keeps.",
        args={"type": "object"},
        run=run,
        read_only=True,
        initialize=initialize,
        close=close,
    )
    async with scratch_app(tools=[keeper]) as app:
        assert story == []
        await app.call("keeper")
        await app.call("keeper")
        assert app.registry.lifecycle.state("keeper") == "ready"
    assert story == ["initialise", "run", "run", "close"]


async def test_a_tool_that_cannot_be_initialised_is_failed_and_says_why() -> None:
    async def initialize(session: Any) -> None:
        raise OSError("no licence")

    lost = Tool(
        name="lost",
        description="Lost.",
        args={"type": "object"},
        run=lambda a, c: 1,
        read_only=True,
        initialize=initialize,
    )
    async with scratch_app(tools=[lost]) as app:
        first, second = await app.call("lost"), await app.call("lost")
        assert app.registry.lifecycle.state("lost") == "failed"
    assert first.error is not None
    assert "no licence" in first.error.message
    assert second.error is not None
    assert second.error.code == "tool_unavailable"


async def test_every_call_is_an_event_with_its_start_and_end() -> None:
    events: list[Event] = []
    async with scratch_app(tools=[echo]) as app:
        app.bus.subscribe(events.append)
        await app.call("echo", {"text": "x"}, id="c9")
    kinds = [event.kind for event in events if event.call_id == "c9"]
    assert kinds == ["call_started", "call_finished"]
    shown = events[-2].to_dict() if events[-1].kind == "session_closed" else events[-1].to_dict()
    assert shown["data"]["result"]["output"] == "x"


async def test_a_listener_that_raises_hurts_no_call() -> None:
    def angry(event: Event) -> None:
        raise RuntimeError("no")

    async with scratch_app(tools=[echo]) as app:
        app.bus.subscribe(angry)
        assert (await app.call("echo", {"text": "x"})).ok


async def test_calls_are_counted_by_their_outcome() -> None:
    async with scratch_app(tools=[echo]) as app:
        await app.call("echo", {"text": "x"})
        await app.call("echo", {})
        measured = app.metrics.of("echo")
    assert measured is not None
    shown = to_json(measured)
    assert shown["execution"]["totalCalls"] == 2
    assert shown["execution"]["failedCalls"] == 1
    assert shown["errors"]["validationErrors"] == 1


@tool(where="process", timeout_s=20)
def in_process(text: str) -> dict[str, Any]:
    "Runs in a process of its own."
    import os

    print("this is no result")
    return {"text": text, "pid": os.getpid()}


async def test_a_tool_in_a_process_returns_its_result() -> None:
    import os

    result = await run_tool(in_process, {"text": "hi"})
    assert result.data["text"] == "hi"
    assert result.data["pid"] != os.getpid()


async def test_many_calls_at_once_keep_their_results_apart() -> None:
    async with scratch_app(tools=[echo]) as app:
        calls = [ToolCall("echo", {"text": str(number)}, id="same") for number in range(50)]
        results = await app.run_calls(calls)
    assert [result.output for result in results] == [str(number) for number in range(50)]


async def test_a_plain_result_record_is_passed_on_whole() -> None:
    @tool(read_only=True)
    async def whole() -> ToolResult:
        "Returns a record."
        return ToolResult(data={"a": 1}, output="text", meta={"mine": True})

    result = await run_tool(whole)
    assert (result.data, result.output, result.meta["mine"]) == ({"a": 1}, "text", True)


async def test_a_workspace_that_is_no_folder_is_named(tmp_path: Any) -> None:
    from surehand import SurehandError

    with pytest.raises(SurehandError, match="not a folder"):
        Surehand(tmp_path / "nowhere")


async def test_what_takes_no_waiting_runs_without_a_thread() -> None:
    where: list[tuple[str, int]] = []

    def quick(args: Any, ctx: ToolContext) -> ToolResult | None:
        where.append(("quick", threading.get_ident()))
        return ToolResult.of("at once") if args["easy"] else None

    def run(args: Any, ctx: ToolContext) -> str:
        where.append(("run", threading.get_ident()))
        return "with patience"

    record = Tool(name="t", description="T.", args={"type": "object"}, run=run, read_only=True, at_once=quick)
    async with scratch_app(tools=[record]) as app:
        assert (await app.call("t", {"easy": True})).output == "at once"
        assert (await app.call("t", {"easy": False})).output == "with patience"
    here = threading.get_ident()
    assert [each for each, _ in where] == ["quick", "quick", "run"]
    assert [ident == here for _, ident in where] == [True, True, False]


@pytest.mark.parametrize("at_hand", [True, False])
async def test_a_check_that_need_not_wait_runs_without_a_thread(at_hand: bool) -> None:
    where: dict[str, bool] = {}

    def note(step: str) -> None:
        where[step] = threading.get_ident() == here

    def preview(args: Any, ctx: ToolContext) -> Preview:
        note("preview")
        return Preview("it would")

    record = Tool(
        name="t",
        description="T.",
        args={"type": "object"},
        check=lambda args, ctx: note("check"),
        check_at_once=lambda args, ctx: at_hand,
        preview=preview,
        run=lambda args, ctx: note("run"),
    )
    here = threading.get_ident()
    async with scratch_app(tools=[record]) as app:
        assert (await app.call("t")).ok
    assert where == {"check": at_hand, "preview": at_hand, "run": False}


async def test_check_and_handler_of_an_allowed_call_share_a_thread_and_the_check_runs_once() -> None:
    steps: list[tuple[str, int]] = []
    fails = False

    def check(args: Any, ctx: ToolContext) -> None:
        steps.append(("check", threading.get_ident()))
        if fails:
            raise ToolFailure("not now", code="precondition_failed")

    def run(args: Any, ctx: ToolContext) -> str:
        steps.append(("run", threading.get_ident()))
        return "done"

    schema = {"type": "object"}
    allowed = Tool(name="allowed", description="A.", args=schema, run=run, check=check, read_only=True)
    asked = Tool(name="asked", description="B.", args=schema, run=run, check=check)
    async with scratch_app(tools=[allowed, asked], approve=True) as app:
        assert (await app.call("allowed")).ok
        assert [each for each, _ in steps] == ["check", "run"]
        assert steps[0][1] == steps[1][1] != threading.get_ident()
        steps.clear()
        assert (await app.call("asked")).ok
        assert [each for each, _ in steps] == ["check", "run"]
        steps.clear()
        fails = True
        for name in ("allowed", "asked"):
            result = await app.call(name)
            assert result.error is not None
            assert result.error.message == "not now"
        assert [each for each, _ in steps] == ["check", "check"]


async def test_an_async_check_runs_on_the_loop() -> None:
    seen: list[int] = []

    async def check(args: Any, ctx: ToolContext) -> None:
        seen.append(threading.get_ident())

    record = Tool(
        name="t", description="T.", args={"type": "object"}, run=lambda args, ctx: "x", check=check, read_only=True
    )
    async with scratch_app(tools=[record]) as app:
        assert (await app.call("t")).ok
    assert seen == [threading.get_ident()]


async def test_arguments_that_were_no_json_are_refused_also_by_a_tool_that_takes_anything() -> None:
    anything = Tool(name="anything", description="Takes anything.", args={"type": "object"}, run=lambda args, ctx: args)
    entry = {"id": "1", "type": "function", "function": {"name": "anything", "arguments": '{"path": "a'}}
    async with scratch_app(tools=[anything], builtin=False) as app:
        result = (await app.run_calls([call_from_openai(entry)]))[0]
    assert result.error is not None
    assert result.error.code == "invalid_args"
    assert '{"path": "a' in result.error.message


async def test_a_model_that_writes_an_underscore_for_a_dot_gets_the_tool_it_means() -> None:
    async with scratch_app() as app:
        (result,) = await app.run_calls([ToolCall("time_now", source="model")])
        assert result.ok
        assert result.meta["tool"] == "time.now"


async def test_a_model_is_told_near_names_as_it_has_to_write_them() -> None:
    async with scratch_app() as app:
        (result,) = await app.run_calls([ToolCall("time_nows", source="model")])
        near = provider_safe("time.now")
        assert result.error is not None
        assert near in result.error.hint
        (again,) = await app.run_calls([ToolCall(provider_map(app.selection.names())[near], source="model")])
        assert again.ok


async def test_two_tools_that_read_alike_with_underscores_are_never_confused() -> None:
    said: list[str] = []

    def one(name: str) -> Tool:
        return Tool(
            name=name,
            description="T.",
            args={"type": "object"},
            run=lambda args, ctx: said.append(name),
            read_only=True,
        )

    async with scratch_app(tools=[one("a.b"), one("a_b"), one("x.y"), one("x/y")]) as app:
        results = await app.run_calls([ToolCall("a_b", source="model"), ToolCall("x_y", source="model")])
    assert [result.ok for result in results] == [True, False]
    assert said == ["a_b"]


async def test_a_dry_run_tells_a_tool_that_changes_nothing_from_one_that_cannot_say_what() -> None:
    @tool(read_only=True)
    def looks() -> str:
        """Look."""
        raise AssertionError

    @tool
    def acts() -> str:
        """Act."""
        raise AssertionError

    async with scratch_app(tools=[looks, acts]) as app:
        assert (await app.dry_run("looks")).output == "looks changes nothing; it was not run."
        assert (await app.dry_run("acts")).output == "acts cannot say what it would change; it was not run."


async def test_calls_that_never_wait_give_the_loop_back_between_them() -> None:
    @tool(read_only=True)
    def lies_in_memory() -> str:
        "Answers at once."
        return ""

    def busy(args: Any, ctx: ToolContext) -> ToolResult:
        began = perf_counter()
        while perf_counter() - began < 0.002:
            pass
        return ToolResult(output="x")

    quick = replace(lies_in_memory, at_once=busy)
    beats, ended = 0, False

    async def beat() -> None:
        nonlocal beats
        while not ended:
            beats += 1
            await asyncio.sleep(0)

    async with scratch_app(tools=[quick]) as app:
        for make in (
            lambda: app.run_calls([ToolCall("lies_in_memory") for _ in range(60)]),
            lambda: asyncio.gather(*(app.call("lies_in_memory") for _ in range(60))),
        ):
            beats, ended = 0, False
            heart = asyncio.create_task(beat())
            results = await make()
            ended = True
            await heart
            assert all(result.ok for result in results)
            assert beats >= 15  # two or three calls of 2 ms fill a turn


@pytest.mark.parametrize("name", ["echo", "Bash", "Edit", "nobody"])
async def test_how_broken_arguments_are_handed_over_is_told_to_nobody(name: str) -> None:
    args = {BROKEN_ARGUMENTS: '{"text": '}
    async with scratch_app(tools=[echo]) as app:
        (result,) = await app.run_calls([ToolCall(name, args, source="model")])
        tried = await app.dry_run(name, args)
    for each in (result, tried):
        assert not each.ok
        assert BROKEN_ARGUMENTS not in str(each.to_dict())


@pytest.mark.parametrize(("shown", "asked"), [("offered", [""]), ("asked", ["would nap"]), ("always", ["would nap"])])
async def test_a_tool_says_when_its_preview_is_shown(tmp_path: Path, shown: Any, asked: list[str]) -> None:
    questions: list[Question] = []

    @tool(preview=lambda args, ctx: Preview("would nap"), show_preview=shown)
    def nap() -> str:
        "Nap."
        return "napped"

    def answer(question: Question) -> bool:
        questions.append(question)
        return True

    for rules in ([], ["nap"]):
        async with Surehand(tmp_path, builtin=False, tools=[nap], allow=rules, approver=answer) as app:
            assert (await app.call("nap", {})).output == "napped"
    assert [question.preview.text if question.preview else "" for question in questions] == asked * (
        2 if shown == "always" else 1
    )


@pytest.mark.parametrize("many", [False, True])
async def test_a_tool_that_is_first_called_is_imported_beside_the_loop(tmp_path: Path, many: bool) -> None:
    loaded: list[threading.Thread] = []

    def load() -> Tool:
        loaded.append(threading.current_thread())
        return echo

    async with Surehand(tmp_path, builtin=False) as app:
        app.registry.register_lazy(echo.info(), load)
        calls = [ToolCall("echo", {"text": "x"}) for _ in range(3)]
        if many:
            results = await app.run_calls(calls)
        else:
            results = await asyncio.gather(*(app.call(call.name, call.args) for call in calls))
    assert [result.output for result in results] == ["x"] * 3
    assert len(loaded) == 1
    assert loaded[0] is not threading.current_thread()


@pytest.mark.parametrize("replaced", [True, False])
async def test_a_tool_that_goes_while_it_is_imported_is_not_called(tmp_path: Path, replaced: bool) -> None:
    @tool(name="echo", read_only=True)
    def new(text: str) -> str:
        "Say something else."
        return "the new one"

    async with Surehand(tmp_path, builtin=False) as app:

        def load() -> Tool:  # in a thread, while the loop goes on
            app.registry.unregister("echo")
            if replaced:
                app.registry.register(new)
            assert app.session.selection is not None
            assert len(app.session.selection) == replaced
            return echo

        app.registry.register_lazy(echo.info(), load)
        for _ in range(2):
            result = await app.call("echo", {"text": "the old one"})
            assert result.data == ("the new one" if replaced else None)
