"""Many calls: safe ones run together, every other one alone and in its turn.

Consecutive calls that are safe beside each other form one batch; any other call is a batch of its own. Batches run
in order. Within a batch a few workers take the next call as they become free, so a thousand calls cost a thousand
calls and ten tasks. Results are known by position: models repeat ids. A call that fails leaves the others alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from holdfast.core.call import ToolCall, ToolError, ToolResult
from holdfast.core.context import ToolContext
from holdfast.core.errors import ToolFailure
from holdfast.core.schema import InvalidArguments
from holdfast.core.tool import Tool
from holdfast.engine.arguments import mended
from holdfast.engine.repeats import REPEATS

if TYPE_CHECKING:
    from holdfast.core.events import Progress
    from holdfast.core.session import Session
    from holdfast.engine.executor import Executor, View

Finished: TypeAlias = tuple[int, ToolResult]


@dataclass(frozen=True, slots=True)
class Batch:
    """Calls that run together, by their positions in the order they are begun."""

    number: int
    positions: tuple[int, ...]
    concurrency_safe: bool
    priority: int = 0
    estimated_s: float = 0.0
    """How long it may take, by what the tools took so far; 0 when nothing is known."""


def batches(
    calls: Sequence[ToolCall],
    view: View,
    session: Session,
    *,
    limit: int = 10,
    estimate: Callable[[str], float] | None = None,
) -> list[Batch]:
    """Return the batches a list of calls falls into, in the order they run."""
    groups: list[tuple[bool, list[int]]] = []
    for position, call in enumerate(calls):
        safe = is_safe(call, view, session)
        if safe and groups and groups[-1][0]:
            groups[-1][1].append(position)
        else:
            groups.append((safe, [position]))
    return [
        _batch(number, safe, positions, calls, session, limit, estimate)
        for number, (safe, positions) in enumerate(groups)
    ]


def is_safe(call: ToolCall, view: View, session: Session) -> bool:
    """Return whether a call may run beside others; which may depend on its arguments.

    A call that cannot run at all (no such tool, bad arguments) disturbs nobody.
    """
    try:
        tool = view.get(call.name)
        if tool is None:
            return True
        settings = session.settings.tools.get(tool.name)
        if settings is not None and settings.concurrency.is_concurrency_safe is not None:
            return settings.concurrency.is_concurrency_safe
        if isinstance(tool.concurrency_safe, bool):
            return tool.concurrency_safe
        ctx = ToolContext(call, session, _unheard, settings.custom if settings else {})
        return bool(tool.concurrency_safe(_arguments(tool, call), ctx))
    except ToolFailure:
        return True
    except Exception:  # a flag that cannot be had is never the careless answer
        return False


async def run_all(
    calls: Sequence[ToolCall],
    executor: Executor,
    session: Session,
    view: View,
    *,
    limit: int | None = None,
) -> AsyncGenerator[Finished, None]:
    """Make all calls and yield (position, result) as they finish. Closing the iterator cancels what still runs."""
    at_once = limit or session.settings.engine.max_parallel
    planned = batches(calls, view, session, limit=at_once, estimate=executor.meter.estimate_s)
    for batch in planned:

        async def make(position: int, number: int = batch.number) -> ToolResult:
            result = await _one(calls[position], executor, session, view)
            return result.with_meta(batch=number)

        if len(batch.positions) == 1:
            yield batch.positions[0], await make(batch.positions[0])
            continue
        finished = _together(batch.positions, make, at_once)
        try:
            async for each in finished:
                yield each
        finally:
            await finished.aclose()


async def _one(call: ToolCall, executor: Executor, session: Session, view: View) -> ToolResult:
    """Make one call; one that is cancelled by itself, or repeats itself, is a result like any other."""
    if call.source != "model":
        return await _isolated(call, executor, session, view)
    repeats = session.keep(REPEATS)
    if (refused := repeats.refusal(call)) is not None:
        return refused
    result = await _isolated(call, executor, session, view)
    tool = view.get(call.name)
    return repeats.noted(call, result, changes=tool is not None and tool.read_only is not True)


async def _isolated(call: ToolCall, executor: Executor, session: Session, view: View) -> ToolResult:
    try:
        return await executor.run(call, session, view)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        error = ToolError("cancelled", f"{call.name} cancelled itself", "Nothing more will happen.")
        return ToolResult.failed(error).with_meta(tool=call.name, call_id=call.id)


async def _together(
    positions: Sequence[int], make: Callable[[int], Coroutine[Any, Any, ToolResult]], at_once: int
) -> AsyncGenerator[Finished, None]:
    """Run calls on a fixed number of workers that take the next one as they become free."""
    finished: asyncio.Queue[Finished | BaseException] = asyncio.Queue()
    following: Iterator[int] = iter(positions)

    async def work() -> None:
        try:
            for position in following:
                finished.put_nowait((position, await make(position)))
        except BaseException as problem:
            finished.put_nowait(problem)
            raise

    workers = [asyncio.create_task(work()) for _ in range(min(at_once, len(positions)))]
    try:
        for _ in positions:
            outcome = await finished.get()
            if isinstance(outcome, BaseException):
                raise outcome
            yield outcome
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


def _batch(
    number: int,
    safe: bool,
    positions: list[int],
    calls: Sequence[ToolCall],
    session: Session,
    limit: int,
    estimate: Callable[[str], float] | None,
) -> Batch:
    settings = session.settings.tools
    priorities = {at: settings[calls[at].name].priority if calls[at].name in settings else 0 for at in positions}
    if any(priorities.values()):
        positions = sorted(positions, key=lambda at: -priorities[at])
    times = [estimate(calls[at].name) for at in positions] if estimate else [0.0]
    expected = max(max(times), sum(times) / limit)
    return Batch(number, tuple(positions), safe, max(priorities.values()), expected)


def _arguments(tool: Tool, call: ToolCall) -> Any:
    try:
        return tool.arguments.parse(call.args)
    except InvalidArguments:
        return mended(tool, call)[0]


def _unheard(progress: Progress) -> None:
    del progress
