"""The orchestrator of lists of calls: concurrency-safe calls run together, all others alone and in order.

Consecutive concurrency-safe calls form one batch; any other call is a batch of its own. Batches run in order. Within a
batch a fixed number of workers take calls one by one: a thousand calls need ten tasks. Results are matched by position,
as models repeat call ids. A call that fails does not affect the others.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from surehand.core.call import ToolCall, ToolError, ToolResult
from surehand.core.context import ToolContext
from surehand.core.errors import ToolFailure
from surehand.core.frozen import frozen
from surehand.core.session import Kept, Session
from surehand.engine.arguments import check_arguments

if TYPE_CHECKING:
    from surehand.core.events import Progress
    from surehand.engine.executor import Executor
    from surehand.engine.prepared import View
    from surehand.policy.approval import Approver

Finished: TypeAlias = tuple[int, ToolResult]
NOTICE_AT: Final = 3
"""The number of identical outcomes from which on the result carries a warning."""
REMEMBERED: Final = 64
FORGET_AFTER_S: Final = 600.0


@frozen
class Batch:
    """Calls that run together, by position, in starting order."""

    number: int
    positions: tuple[int, ...]
    concurrency_safe: bool
    priority: int = 0
    estimated_s: float = 0.0
    """Estimated duration, from the tools' calls so far; 0 if unknown."""


def batches(
    calls: Sequence[ToolCall],
    view: View,
    session: Session,
    *,
    limit: int = 10,
    estimate: Callable[[str], float] | None = None,
    facts: dict[int, dict[str, Any]] | None = None,
) -> list[Batch]:
    """Split calls into batches, in the order they run.

    What was worked out about a call is stored in `facts`, by its position.
    """
    groups: list[tuple[bool, list[int]]] = []
    for position, call in enumerate(calls):
        safe = is_safe(call, view, session, facts.setdefault(position, {}) if facts is not None else None)
        if safe and groups and groups[-1][0]:
            groups[-1][1].append(position)
        else:
            groups.append((safe, [position]))
    return [
        _batch(number, safe, positions, calls, session, limit, estimate)
        for number, (safe, positions) in enumerate(groups)
    ]


def is_safe(call: ToolCall, view: View, session: Session, facts: dict[str, Any] | None = None) -> bool:
    """Whether a call may run beside others; this may depend on its arguments.

    A call that cannot run (no such tool, invalid arguments) is safe. What was worked out is stored in `facts`.
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
        if facts is not None:
            ctx.reuse_facts(facts)
        return bool(tool.concurrency_safe(check_arguments(tool, call)[0], ctx))
    except ToolFailure:
        return True
    except Exception:  # if in doubt, it is not safe
        return False


async def run_all(
    calls: Sequence[ToolCall],
    executor: Executor,
    session: Session,
    view: View,
    *,
    limit: int | None = None,
) -> AsyncGenerator[Finished, None]:
    """Make all calls and yield (position, result) as they finish. Closing the iterator cancels running calls."""
    finished: asyncio.Queue[Finished | BaseException] = asyncio.Queue()
    runner = _Runner(calls, executor, session, view, limit)
    for batch in await runner.plan():
        workers = runner.start(batch, finished.put_nowait, finished.put_nowait)
        try:
            for _ in batch.positions:
                outcome = await finished.get()
                if isinstance(outcome, BaseException):
                    raise outcome
                yield outcome
        finally:
            await _end(workers)


async def run_list(
    calls: Sequence[ToolCall],
    executor: Executor,
    session: Session,
    view: View,
    *,
    limit: int | None = None,
    approver: Approver | None = None,
) -> list[ToolResult]:
    """Make all calls and return their results in order; `approver` replaces the application's for these calls."""
    results: dict[int, ToolResult] = {}

    def put(finished: Finished) -> None:
        results.update((finished,))

    await run_each(calls, executor, session, view, put, limit=limit, approver=approver)
    return [results[position] for position in range(len(calls))]


async def run_each(
    calls: Sequence[ToolCall],
    executor: Executor,
    session: Session,
    view: View,
    put: Callable[[Finished], None],
    *,
    limit: int | None = None,
    approver: Approver | None = None,
) -> None:
    """Make all calls and pass each result to `put` as it comes, so that an interrupted caller has the finished ones."""
    runner = _Runner(calls, executor, session, view, limit, approver)
    for batch in await runner.plan():
        workers = runner.start(batch, put, _unheard)
        try:
            await asyncio.gather(*workers)
        finally:
            await _end(workers)


class _Runner:
    """The calls of one `run_all`: planned once, started batch by batch."""

    def __init__(
        self,
        calls: Sequence[ToolCall],
        executor: Executor,
        session: Session,
        view: View,
        limit: int | None,
        approver: Approver | None = None,
    ) -> None:
        self._calls = calls
        self._executor = executor
        self._session = session
        self._view = view
        self._approver = approver
        self._at_once = limit or session.settings.engine.max_parallel
        self._facts: dict[int, dict[str, Any]] = {}
        self._unchanged = True  # until a call has run that may invalidate facts of later ones

    async def plan(self) -> list[Batch]:
        """Return the batches, in order; works out facts that block in a thread. A single call needs no facts."""
        if len(self._calls) == 1:
            return [Batch(0, (0,), concurrency_safe=False)]
        estimate = self._executor.meter.estimate_s

        def find_batches() -> list[Batch]:
            limit = self._at_once
            return batches(self._calls, self._view, self._session, limit=limit, estimate=estimate, facts=self._facts)

        blocks = any(has_blocking_facts(call, self._view) for call in self._calls)
        return await self._executor.workers.submit(find_batches) if blocks else find_batches()

    def start(
        self, batch: Batch, put: Callable[[Finished], None], fail: Callable[[BaseException], None]
    ) -> list[asyncio.Task[None]]:
        """Start a batch on a fixed number of workers, each of which takes the next call when it is free."""
        facts = self._facts if self._unchanged else {}
        self._unchanged = self._unchanged and batch.concurrency_safe
        following = iter(batch.positions)
        count = min(self._at_once, len(batch.positions))
        return [asyncio.create_task(self._work(following, facts, batch.number, put, fail)) for _ in range(count)]

    async def _work(
        self,
        following: Iterator[int],
        facts: dict[int, dict[str, Any]],
        number: int,
        put: Callable[[Finished], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        try:
            for position in following:
                call = self._calls[position]
                try:
                    if call.source == "model":
                        result = await self._run_watching_repeats(call, facts.pop(position, None))
                    else:
                        result = await self._run(call, facts.pop(position, None))
                except asyncio.CancelledError:
                    if _is_cancelled():
                        raise
                    result = _cancelled_itself(call)
                put((position, result.with_meta(batch=number)))
        except BaseException as problem:
            fail(problem)
            raise

    async def _run(self, call: ToolCall, facts: dict[str, Any] | None) -> ToolResult:
        return await self._executor.run(call, self._session, self._view, facts=facts or None, approver=self._approver)

    async def _run_watching_repeats(self, call: ToolCall, facts: dict[str, Any] | None) -> ToolResult:
        """Make a call, unless a model repeats one that has failed too often."""
        repeats = self._session.keep(REPEATS)
        if (refused := repeats.refusal(call)) is not None:
            return refused
        result = await self._run(call, facts)
        return repeats.note(call, result, changes=self._may_change(call.name))

    def _may_change(self, name: str) -> bool:
        try:
            tool = self._view.get(name)
        except ToolFailure:
            return False  # it cannot be imported, so it did not run
        return tool is not None and tool.read_only is not True


def has_blocking_facts(call: ToolCall, view: View) -> bool:
    """Whether `is_safe` may have to import the tool, start a process or read files."""
    tool = view.at_hand(call.name)
    return tool is None or tool.facts_block


def _cancelled_itself(call: ToolCall) -> ToolResult:
    """Return the result of a call whose handler raised CancelledError without being cancelled."""
    error = ToolError("cancelled", f"{call.name} cancelled itself", "Nothing more will happen.")
    return ToolResult.failed(error).with_meta(tool=call.name, call_id=call.id)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


async def _end(workers: list[asyncio.Task[None]]) -> None:
    running = [worker for worker in workers if not worker.done()]
    for worker in running:
        worker.cancel()
    if running:
        await asyncio.gather(*running, return_exceptions=True)


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


def _unheard(said: Progress | BaseException) -> None:
    del said


# -- repeats -----------------------------------------------------------------------------------------------------------

# A model that repeats a call with the same outcome is warned, and after further repeats of a failure refused. Polling
# with changing results does not count. A successful call that may change something resets the counts, since the next
# try may end differently.


@dataclass(slots=True)
class _Outcome:
    outcome: int
    count: int
    failed: bool
    at: float


class Repeats:
    """The recent calls of one session, and how often each had the same outcome."""

    def __init__(self, limit: int, clock: Callable[[], float] = monotonic) -> None:
        self.limit = limit
        self._clock = clock
        self._rows: OrderedDict[tuple[str, str], _Outcome] = OrderedDict()

    def refusal(self, call: ToolCall) -> ToolResult | None:
        """Return the refusal of a call that has failed too often, or None."""
        row = self._rows.get(_call_key(call))
        if row is None or not row.failed or not 0 < self.limit <= row.count:
            return None
        if self._clock() - row.at > FORGET_AFTER_S:
            return None
        error = ToolError(
            "precondition_failed",
            f"{call.name} was not run: this exact call failed {row.count} times in a row in the same way",
            "Change the arguments or the approach, or ask the user; the same call will not be tried again for now.",
            {"repeated": row.count, "tool": call.name},
        )
        return ToolResult.failed(error).with_meta(tool=call.name, call_id=call.id, repeated=row.count)

    def note(self, call: ToolCall, result: ToolResult, *, changes: bool) -> ToolResult:
        """Count an outcome and return the result, with a warning if this call had the same outcome before."""
        key, outcome, now = _call_key(call), hash((result.ok, result.output)), self._clock()
        row = self._rows.pop(key, None)
        if result.ok and changes:
            self._rows.clear()
        same = row is not None and row.outcome == outcome and now - row.at <= FORGET_AFTER_S
        count = row.count + 1 if row is not None and same else 1
        self._rows[key] = _Outcome(outcome, count, not result.ok, now)
        if len(self._rows) > REMEMBERED:
            self._rows.popitem(last=False)
        return result if count < NOTICE_AT else self._add_remark(result, count)

    def _add_remark(self, result: ToolResult, count: int) -> ToolResult:
        remark = f"[This is the same call with the same outcome for the {_ordinal(count)} time in a row.]"
        if not result.ok and self.limit:
            remark = f"{remark[:-1]} After {self.limit} it is no longer run; try another way.]"
        return replace(result, output=f"{result.output}\n\n{remark}", meta={**result.meta, "repeated": count})


def _ordinal(number: int) -> str:
    """Return 1st, 2nd, 3rd, 4th, 11th, 22nd..."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


REPEATS: Final = Kept[Repeats]("repeats", make=lambda session: _repeats_of(session))


def _repeats_of(session: Session) -> Repeats:
    return Repeats(session.settings.engine.repeat_limit)


def _call_key(call: ToolCall) -> tuple[str, str]:
    return call.name, json.dumps(call.args, sort_keys=True, default=repr)
