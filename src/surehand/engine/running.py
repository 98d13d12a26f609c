"""How one handler runs: on the loop, in a thread or in a process, and always under a deadline.

An async handler gets a task of its own, so that one which swallows its cancellation can be left behind. A thread
cannot be stopped, only left behind. A process is killed.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final

from surehand.core.call import ToolResult
from surehand.core.context import ToolContext
from surehand.core.errors import ToolFailure
from surehand.core.events import Progress
from surehand.core.tool import Tool
from surehand.engine.deadlines import DEADLINE, Deadlines
from surehand.engine.workers import Workers

Run = Callable[[Any, ToolContext], Coroutine[Any, Any, ToolResult]]


def runner(tool: Tool, workers: Workers) -> Run:
    """Return the coroutine function that runs this tool's handler to its result; decided once per tool."""
    run = tool.run
    if tool.where == "process":
        from surehand.engine.process import run_in_process

        async def in_process(args: Any, ctx: ToolContext) -> ToolResult:
            return await run_in_process(tool, ctx)

        return in_process
    if inspect.isasyncgenfunction(run):

        async def generate(args: Any, ctx: ToolContext) -> ToolResult:
            return ToolResult.of(await _last(run(args, ctx), ctx))

        return generate
    if inspect.iscoroutinefunction(run):

        async def on_loop(args: Any, ctx: ToolContext) -> ToolResult:
            try:
                value = await run(args, ctx)
            except (SystemExit, KeyboardInterrupt) as stop:
                raise _stopped(stop) from stop
            return value if type(value) is ToolResult else ToolResult.of(value)

        return on_loop

    def handle(args: Any, ctx: ToolContext) -> Any:
        checked(tool, args, ctx)
        return run(args, ctx)

    handler = handle if checks_itself(tool) else run

    async def in_thread(args: Any, ctx: ToolContext) -> ToolResult:
        value = await workers.submit(lambda: handler(args, ctx))
        if inspect.isawaitable(value):
            value = await value
        return ToolResult.of(value)

    return in_thread


def checks_itself(tool: Tool) -> bool:
    """Say whether check and handler run in one thread, one after the other: a way to a thread costs what both do.

    Where somebody is to be asked first, the check runs by itself before that, and the handler does not repeat it.
    """
    sync = not inspect.iscoroutinefunction(tool.run) and not inspect.isasyncgenfunction(tool.run)
    return sync and tool.check is not None and not inspect.iscoroutinefunction(tool.check) and tool.where != "process"


def checked(tool: Tool, args: Any, ctx: ToolContext) -> None:
    """Check a call's preconditions, once."""
    if (check := tool.check) is not None:
        ctx.once("checked", lambda: check(args, ctx))


async def _last(values: AsyncIterator[Any], ctx: ToolContext) -> Any:
    """Return the last value a generator yields; `Progress` and every value before the last are progress."""
    missing: Any = object()
    last = missing
    try:
        async for value in values:
            if isinstance(value, Progress):
                ctx.progress(value.text, done=value.done, total=value.total, **value.data)
                continue
            if last is not missing:
                ctx.progress(last if isinstance(last, str) else ToolResult.of(last).output)
            last = value
    except (SystemExit, KeyboardInterrupt) as stop:
        raise _stopped(stop) from stop
    finally:
        if close := getattr(values, "aclose", None):
            await close()
    if last is missing:
        raise ToolFailure("the tool ended without a result", hint="Yield the result as the last value.")
    return last


def _stopped(stop: BaseException) -> ToolFailure:
    return ToolFailure(f"the tool called {type(stop).__name__}({stop}); a tool reports failure by raising ToolFailure")


class Overrun(Exception):
    """The deadline passed; `abandoned` when the handler did not stop even then."""

    def __init__(self, abandoned: bool) -> None:
        self.abandoned = abandoned
        super().__init__("deadline passed")


async def within(
    work: Coroutine[Any, Any, ToolResult],
    timeout_s: float,
    grace_s: float,
    deadlines: Deadlines,
    running: dict[str, Waiter],
    call_id: str,
) -> ToolResult:
    """Run `work` in a task of its own and return its result; raise Overrun at the deadline.

    While it runs, cancelling `running[call_id]` ends this call alone. When the caller itself is cancelled, the work
    is cancelled first and gets its time to clean up.
    """
    loop = asyncio.get_running_loop()
    waiter: Waiter = loop.create_future()
    task = loop.create_task(_announced(work, waiter))
    deadlines.set(waiter, timeout_s, loop)
    running[call_id] = waiter
    try:
        await waiter
    except asyncio.CancelledError as cancelled:
        stopped = await _end(task, grace_s)
        if cancelled.args == (DEADLINE,):
            raise Overrun(abandoned=not stopped) from None
        if cancelled.args == (STOPPED,):
            raise ToolFailure("the call was cancelled", code="cancelled", hint="Nothing more will happen.") from None
        raise
    finally:
        deadlines.drop(waiter)
        running.pop(call_id, None)
    return task.result()


Waiter = asyncio.Future[None]
STOPPED: Final = "surehand: stopped"
"""The message of a cancellation meant for one call, not for whoever waits for it."""


async def stoppable(turn: Waiter, waiters: dict[str, Waiter], call_id: str) -> None:
    """Wait for `turn`; whoever cancels `waiters[call_id]` meanwhile ends this call alone."""
    waiters[call_id] = turn
    try:
        await turn
    except asyncio.CancelledError as cancelled:
        if cancelled.args == (STOPPED,):
            raise ToolFailure("the call was cancelled", code="cancelled", hint="Nothing more will happen.") from None
        raise
    finally:
        waiters.pop(call_id, None)


async def _announced(work: Coroutine[Any, Any, ToolResult], waiter: asyncio.Future[None]) -> ToolResult:
    """Wake the waiter from inside the task: one turn of the loop less than a done-callback."""
    try:
        return await work
    finally:
        if not waiter.done():
            waiter.set_result(None)


async def _end(task: asyncio.Task[ToolResult], grace_s: float) -> bool:
    """Cancel a task and wait for its clean-up; False when it does not stop in time."""
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=grace_s)
    if done and not task.cancelled():
        task.exception()  # retrieved, so that asyncio does not report it as forgotten
    return bool(done)
