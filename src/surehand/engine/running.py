"""Running one handler: on the loop, in a worker thread or in a process, under a deadline.

An async handler gets its own task, so that one that ignores its cancellation can be abandoned. A thread cannot be
stopped, only abandoned; it needs no task, and wakes the caller itself. A process is killed. Deadlines of many calls
share one timer.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import queue
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from surehand.core.call import ToolError, ToolResult
from surehand.core.context import NOTHING_CHANGED, ToolContext
from surehand.core.errors import ToolFailure
from surehand.core.events import Progress
from surehand.core.tool import Tool

if TYPE_CHECKING:
    from surehand.engine.prepared import Prepared


Run = Callable[[Any, ToolContext], Coroutine[Any, Any, ToolResult]]
Waiter = asyncio.Future[None]
Outcome: TypeAlias = asyncio.Future[Any]
"""A ToolResult, or an awaitable that a handler in a thread returned."""
Start = Callable[[Any, ToolContext, Waiter], Outcome]
"""Starts a handler; sets the waiter when the outcome is done."""


def starter(tool: Tool, workers: Workers) -> Start:
    """Return the function that starts this tool's handler; chosen once per tool."""
    if _runs_in_thread(tool):
        handler = _thread_handler(tool)

        def start(args: Any, ctx: ToolContext, waiter: Waiter) -> Outcome:
            ctx.afterwards = []
            return workers.submit(lambda: _finish(handler(args, ctx)), waiter, ctx.afterwards)

        return start
    run = runner(tool, workers)
    return lambda args, ctx, waiter: start_task(run(args, ctx), waiter)


def start_task(work: Coroutine[Any, Any, ToolResult], waiter: Waiter) -> Outcome:
    """Run a coroutine in its own task, which sets the waiter at its end."""
    return asyncio.get_running_loop().create_task(_run_and_wake(work, waiter))


def runner(tool: Tool, workers: Workers) -> Run:
    """Return a coroutine function that runs this tool's handler to its result; chosen once per tool."""
    run = tool.run
    if tool.where == "process":
        from surehand.engine.process import run_in_process  # lazy: process, 35 ms

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
                raise _exit_failure(stop) from stop
            return value if type(value) is ToolResult else ToolResult.of(value)

        return on_loop

    handler = _thread_handler(tool)

    async def in_thread(args: Any, ctx: ToolContext) -> ToolResult:
        value = await workers.submit(lambda: _finish(handler(args, ctx)))
        return value if isinstance(value, ToolResult) else await _await_rest(value)

    return in_thread


def _runs_in_thread(tool: Tool) -> bool:
    return tool.where != "process" and not _is_async(tool)


def _thread_handler(tool: Tool) -> Callable[[Any, ToolContext], Any]:
    """Return the function a thread runs for a sync tool: the handler, after the check if that was not made before."""
    run = tool.run

    def handle(args: Any, ctx: ToolContext) -> Any:
        ctx.unasked = True
        check_once(tool, args, ctx)
        return run(args, ctx)

    return handle if checks_itself(tool) else run


def _finish(value: Any) -> Any:
    """Convert a handler's value in its thread; an awaitable is left to the loop."""
    return value if inspect.isawaitable(value) else ToolResult.of(value)


async def _await_rest(value: Any) -> ToolResult:
    """Await the awaitable that a sync handler returned, and return its result."""
    return ToolResult.of(await value)


@lru_cache(1000)
def checks_itself(tool: Tool) -> bool:
    """Whether check and handler run in one thread, one after the other: a switch to a thread costs as much as both.

    If a question comes first, the check runs alone before it, and is not repeated.
    """
    if tool.check is None or tool.where == "process":
        return False
    return not _is_async(tool) and not checks_on_loop(tool)


@lru_cache(1000)
def checks_on_loop(tool: Tool) -> bool:
    """Whether a tool's check is a coroutine function; cached, as `inspect` is slow."""
    return inspect.iscoroutinefunction(tool.check)


def check_once(tool: Tool, args: Any, ctx: ToolContext) -> None:
    """Check a call's preconditions unless this was done before."""
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
        raise _exit_failure(stop) from stop
    finally:
        if close := getattr(values, "aclose", None):
            await close()
    if last is missing:
        raise ToolFailure("the tool ended without a result", hint="Yield the result as the last value.")
    return last


def _exit_failure(stop: BaseException) -> ToolFailure:
    return ToolFailure(f"the tool called {type(stop).__name__}({stop}); a tool reports failure by raising ToolFailure")


class Overrun(Exception):
    """The deadline passed before the handler had made any change."""


async def within(
    start: Callable[[Waiter], Outcome],
    prepared: Prepared,
    deadlines: Deadlines,
    running: dict[str, Waiter],
    timeout_s: float,
) -> ToolResult:
    """Start a call's work and return its result; raise Overrun at the deadline.

    Cancelling `running[call_id]` cancels this call alone. If the caller is cancelled, the work is cancelled first and
    given its grace period. A change that has begun by then is awaited, and its outcome becomes the call's result; for
    a cancelled caller it is stored in `prepared.outcome`.
    """
    loop = asyncio.get_running_loop()
    began, waiter = loop.time(), loop.create_future()
    deadlines.set(waiter, timeout_s, loop)
    running[prepared.call.id] = waiter
    outcome: Outcome | None = None
    try:
        outcome = start(waiter)  # last: a thread woken earlier would wait for the GIL
        await waiter
    except asyncio.CancelledError as cancelled:
        assert outcome is not None
        by_us = cancelled.args in ((DEADLINE,), (STOPPED,))
        if not prepared.ctx.give_up():
            return await _outcome(outcome, prepared, by_us=by_us)
        try:
            await _end(outcome, prepared.tool.grace_s)
        finally:
            prepared.abandoned = not outcome.done()
        if cancelled.args == (DEADLINE,):
            raise Overrun from None
        if by_us:
            raise cancellation(prepared) from None
        raise
    finally:
        deadlines.drop(waiter)
        running.pop(prepared.call.id, None)
    value = outcome.result()
    if isinstance(value, ToolResult):
        return value
    left_s = max(timeout_s - (loop.time() - began), 0.0)
    return await within(partial(start_task, _await_rest(value)), prepared, deadlines, running, left_s)


async def _outcome(task: Outcome, prepared: Prepared, *, by_us: bool) -> ToolResult:
    """Wait for a change that has begun and return its result; a cancelled caller is cancelled afterwards."""
    limit = asyncio.get_running_loop().time() + CHANGE_LIMIT_S
    while not task.done() and (left := limit - asyncio.get_running_loop().time()) > 0:
        try:
            await asyncio.wait({task}, timeout=left)
        except asyncio.CancelledError:  # cancelled again: the change still has to be awaited
            by_us = False
    if not task.done():
        failure = _unknown_outcome(prepared.tool)
    elif not task.cancelled() and task.exception() is None:
        value = task.result()
        if not isinstance(value, ToolResult):
            rest = start_task(_await_rest(value), asyncio.get_running_loop().create_future())
            return await _outcome(rest, prepared, by_us=by_us)
        prepared.outcome = value
        if by_us:
            return prepared.outcome
        raise asyncio.CancelledError
    else:
        problem = None if task.cancelled() else task.exception()
        failure = problem or cancellation(prepared)
    if by_us:
        raise failure
    if isinstance(failure, ToolFailure):
        prepared.outcome = ToolResult.failed(ToolError.of(failure))
    raise asyncio.CancelledError


def cancellation(prepared: Prepared) -> ToolFailure:
    """Return the failure of a cancelled call, which says what may still happen."""
    return ToolFailure("the call was cancelled", code="cancelled", hint=aftermath(prepared))


def aftermath(prepared: Prepared) -> str:
    """Describe what a cancelled call has changed, as far as is known."""
    tool = prepared.tool
    if tool.cancel_safe or prepared.dry_run is not None:
        return NOTHING_CHANGED
    ends = tool.where == "process" or _is_async(tool)
    if prepared.abandoned:
        return "It ignored its cancellation and was left behind: what it still does is not in this result."
    if tool.read_only is True:
        return NOTHING_CHANGED if ends else f"Nothing was changed. {_THREAD}."
    if ends:
        return "Nothing more will happen; what it had done by then stays."
    return f"{_THREAD}: what it still changes is not in this result."


_THREAD: Final = "Its thread cannot be stopped and ends by itself"


def _unknown_outcome(tool: Tool) -> ToolFailure:
    return ToolFailure(
        f"{tool.name} was stopped in the middle of a change, which did not finish within {CHANGE_LIMIT_S:g} s",
        code="cancelled",
        hint="Whether it was made is unknown. Check the files and `surehand log` before you try again.",
    )


def _is_async(tool: Tool) -> bool:
    return inspect.iscoroutinefunction(tool.run) or inspect.isasyncgenfunction(tool.run)


STOPPED: Final = "surehand: stopped"
"""The message of a cancellation meant for one call, not for its caller."""
CHANGE_LIMIT_S: Final = 30.0
"""How long (s) a change that has begun is awaited after its call was cancelled."""


async def stoppable(turn: Waiter, waiters: dict[str, Waiter], call_id: str) -> None:
    """Await `turn`; cancelling `waiters[call_id]` meanwhile cancels this call alone."""
    waiters[call_id] = turn
    try:
        await turn
    except asyncio.CancelledError as cancelled:
        if cancelled.args == (STOPPED,):
            raise ToolFailure("the call was cancelled", code="cancelled", hint=NOTHING_CHANGED) from None
        raise
    finally:
        waiters.pop(call_id, None)


async def _run_and_wake(work: Coroutine[Any, Any, ToolResult], waiter: asyncio.Future[None]) -> ToolResult:
    """Set the waiter from inside the task, one turn of the loop earlier than a done-callback would."""
    try:
        return await work
    finally:
        if not waiter.done():
            waiter.set_result(None)


async def _end(task: Outcome, grace_s: float) -> None:
    """Cancel a task and wait for its clean-up, `grace_s` at the most; a cancellation meanwhile is raised at the end."""
    task.cancel()
    limit, again = asyncio.get_running_loop().time() + grace_s, None
    while not task.done() and (left := limit - asyncio.get_running_loop().time()) > 0:
        try:
            await asyncio.wait({task}, timeout=left)
        except asyncio.CancelledError as cancelled:
            again = cancelled
    if task.done() and not task.cancelled():
        task.exception()  # or asyncio logs that it was never retrieved
    if again is not None:
        raise again


# -- calls in progress -------------------------------------------------------------------------------------------------

CLOSE_LIMIT_S: Final = CHANGE_LIMIT_S + 10.0
"""How long (s) closing waits for the calls it has cancelled; one that outlasts this is not recorded."""
Caller: TypeAlias = asyncio.Task[Any]


class Underway:
    """The tasks that are inside a call: counted while they run, cancelled and awaited on closing."""

    def __init__(self) -> None:
        self.closed = False
        self._callers: dict[Caller, int] = {}
        self._stopped: set[Caller] = set()
        self._all_ended = asyncio.Event()

    def begin(self) -> Caller | None:
        """Count the current task in; calls of one task may be nested."""
        caller = asyncio.current_task()
        if caller is not None:
            self._callers[caller] = self._callers.get(caller, 0) + 1
        return caller

    def end(self, caller: Caller | None) -> None:
        """Count a task out, as returned by `begin`."""
        if caller is None:
            return
        depth = self._callers.pop(caller) - 1
        if depth:
            self._callers[caller] = depth
            return
        self._stopped.discard(caller)
        if self.closed and not self._callers:
            self._all_ended.set()

    def take_stop(self) -> bool:
        """Whether the current cancellation came from `close` alone; if so, uncancel the task."""
        caller = asyncio.current_task()
        if caller is None or caller not in self._stopped:
            return False
        self._stopped.discard(caller)
        return caller.uncancel() == 0

    async def close(self) -> None:
        """Refuse further calls, cancel those in progress and wait for their end."""
        self.closed = True
        for caller in self._callers.keys() - self._stopped:
            self._stopped.add(caller)
            caller.cancel()
        if self._callers:
            try:
                async with asyncio.timeout(CLOSE_LIMIT_S):
                    await self._all_ended.wait()
            except TimeoutError:
                pass


# -- deadlines ---------------------------------------------------------------------------------------------------------

SHORT_S: Final = 2.0
"""Shorter deadlines have a timer of their own; longer ones may be late by `LOOK_EVERY_S`."""
LOOK_EVERY_S: Final = 0.1
DEADLINE: Final = "surehand: deadline"
"""The message of a cancellation at a deadline."""


class Deadlines:
    """Cancels each waiter at its deadline, unless it was dropped before."""

    __slots__ = ("_due", "_looking", "_loop")

    def __init__(self) -> None:
        self._due: dict[asyncio.Future[None], float | asyncio.TimerHandle] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._looking = False

    def set(self, waiter: asyncio.Future[None], timeout_s: float, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel `waiter` in `timeout_s` seconds."""
        if timeout_s < SHORT_S:
            self._due[waiter] = loop.call_later(timeout_s, waiter.cancel, DEADLINE)
            return
        self._due[waiter] = loop.time() + timeout_s
        if not self._looking or loop is not self._loop:
            self._loop, self._looking = loop, True
            loop.call_later(LOOK_EVERY_S, self._look, loop)

    def drop(self, waiter: asyncio.Future[None]) -> None:
        """Remove a waiter whose call has ended."""
        due = self._due.pop(waiter)
        if isinstance(due, asyncio.TimerHandle):
            due.cancel()

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop is not self._loop:
            return  # the application moved to another loop, which has a timer of its own
        now = loop.time()
        for waiter, due in list(self._due.items()):
            if isinstance(due, float) and due <= now and not waiter.done():
                waiter.cancel(DEADLINE)
        self._looking = bool(self._due)
        if self._looking:
            loop.call_later(LOOK_EVERY_S, self._look, loop)


_IDLE_S: Final = 30.0
_Jobs: TypeAlias = "queue.SimpleQueue[Callable[[], None]]"


class Workers:
    """Threads that are started when all others are busy, and end after being idle for long.

    Daemon threads, unlike those of `ThreadPoolExecutor`: a handler that never returns must not keep the process alive.
    """

    def __init__(self, name: str = "surehand") -> None:
        self._name = name
        self._idle: list[_Jobs] = []
        """One queue per idle thread. The last one became idle last and takes the next job, with its caches warm."""

    def submit(
        self,
        function: Callable[[], Any],
        waiter: asyncio.Future[None] | None = None,
        afterwards: Sequence[Callable[[], object]] = (),
    ) -> asyncio.Future[Any]:
        """Run `function` in a thread; set `waiter` at its end. Cancelling the future does not stop the thread.

        Callables that `function` adds to `afterwards` run in the thread after the outcome is on its way.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()

        def job() -> None:
            try:
                value, problem = context.run(function), None
            except BaseException as raised:  # handed to the caller, whatever it is
                value, problem = None, raised
            try:
                loop.call_soon_threadsafe(_set_outcome, future, value, problem, waiter)
            except RuntimeError:
                pass  # the loop was closed meanwhile
            for each in afterwards:
                each()

        try:
            jobs = self._idle.pop()
        except IndexError:
            jobs = self._start_thread()
        jobs.put(job)
        return future

    def _start_thread(self) -> _Jobs:
        jobs: _Jobs = queue.SimpleQueue()
        try:
            threading.Thread(target=self._serve, args=(jobs,), name=f"{self._name}-worker", daemon=True).start()
        except RuntimeError:
            raise ToolFailure(
                "the system cannot start more threads: Resource temporarily unavailable",
                code="tool_unavailable",
                hint="Too many processes are running; end some, then try again.",
            ) from None
        return jobs

    def _serve(self, jobs: _Jobs) -> None:
        while True:
            try:
                job = jobs.get(timeout=_IDLE_S)
            except queue.Empty:
                try:
                    self._idle.remove(jobs)
                except ValueError:
                    continue  # `submit` has just taken this queue to put a job in
                return
            job()
            # Only after the job: a thread still finishing one would start the next later than another thread.
            self._idle.append(jobs)


def _set_outcome(
    future: asyncio.Future[Any], value: Any, problem: BaseException | None, waiter: asyncio.Future[None] | None
) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
    if future.done():
        return
    if problem is None:
        future.set_result(value)
    elif isinstance(problem, StopIteration | SystemExit | KeyboardInterrupt | asyncio.CancelledError):
        # These have a meaning to asyncio; raised by a handler they are plain failures.
        future.set_exception(RuntimeError(f"the handler raised {type(problem).__name__}({problem})"))
    else:
        future.set_exception(problem)
