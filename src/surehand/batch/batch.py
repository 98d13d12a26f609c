"""Run a batch: up to `parallel` tasks at once, each attempt in its own workspace, exactly one result per task.

    async for result in app.batch(["fix the failing test", ...], parallel=8): ...

A result is on the disk before it is yielded. On resume, tasks with a result are skipped; interrupted ones run again.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from surehand.agent.subagents import load_profiles
from surehand.batch.tasks import ResultsFile, Task, TaskResult, make_tasks
from surehand.batch.work import MakeApprover, ModelOf, Setting, Work
from surehand.batch.workspaces import Workspaces
from surehand.core.errors import SettingsError, StateError, ToolFailure
from surehand.core.frozen import frozen
from surehand.core.session import Kept
from surehand.core.tool import Tool
from surehand.engine.metrics import HeardCalls
from surehand.files.trees import remove_tree
from surehand.state import locations

if TYPE_CHECKING:
    from surehand.app import Surehand
    from surehand.core.events import Event, Listener
    from surehand.core.model import Model


class Runner(Protocol):
    """Where attempts at tasks run: here, or on a cluster."""

    def begin(self, setting: Setting, workspaces: Workspaces) -> None:
        """Receive the shared settings of the tasks, and the maker of their workspaces; called once, first."""
        ...

    async def run(self, task: Task, attempt: int, timeout_s: float | None) -> dict[str, Any]:
        """Run one attempt and return the fields of its result. A cancelled attempt leaves nothing behind."""
        ...

    async def close(self, *, finished: bool) -> None:
        """Free everything; `finished` means that no task of the batch is left to run."""
        ...


@frozen(kw_only=True)
class Options:
    """How a batch runs."""

    parallel: int = 4
    retries: int = 0
    timeout_s: float | None = None
    """For tasks that set no timeout of their own."""
    on_start: Callable[[Task, int], None] | None = None


class LocalRunner:
    """Runs attempts in this process, in workspaces below one folder."""

    def __init__(self, *, keep_workspaces: bool = False) -> None:
        self._keep = keep_workspaces

    def begin(self, setting: Setting, workspaces: Workspaces) -> None:
        """Receive the shared settings of the tasks, and the maker of their workspaces; called once, first."""
        self._setting = setting
        self._workspaces = workspaces

    async def run(self, task: Task, attempt: int, timeout_s: float | None) -> dict[str, Any]:
        """Run one attempt and return the fields of its result."""
        try:
            workspace = await self._workspaces.make(task, attempt)
        except (ToolFailure, StateError) as problem:
            hint = problem.hint if isinstance(problem, ToolFailure) else ""
            error = {"code": "precondition_failed", "message": str(problem), "hint": hint}
            return {"status": "error", "error": error}
        try:
            work = Work(task, workspace.folder, self._setting)
            found = await work.run(workspace.base, self._workspaces.pieces, timeout_s)
        except BaseException:
            await self._workspaces.remove(workspace)
            raise
        if self._keep:
            self._workspaces.keep(workspace)
            return found | {"workspace": workspace.folder}
        await self._workspaces.remove(workspace)
        return found

    async def close(self, *, finished: bool) -> None:
        """Close the git sessions; delete the workspaces if no task is left to run."""
        await self._workspaces.close(remove=finished)


class Batch:
    """A running batch; `run` yields results as tasks finish."""

    def __init__(self, tasks: list[Task], runner: Runner, options: Options, results: ResultsFile | None = None) -> None:
        self.options = options
        self._runner = runner
        self._results = results
        self.open = list(tasks) if results is None else results.find_open(tasks)
        """The tasks that had no result when the batch began."""
        self._finished: asyncio.Queue[TaskResult | Exception] = asyncio.Queue()
        self._workers: list[asyncio.Task[None]] = []
        self._stopping = False

    async def run(self) -> AsyncGenerator[TaskResult]:
        """Run the tasks that have no result yet; yield each result once it is written."""
        waiting = iter(self.open)
        left = len(self.open)

        async def work() -> None:
            try:
                for task in waiting:
                    result = await self._run_task(task)
                    if self._results is not None:
                        await asyncio.to_thread(self._results.append, result)
                    self._finished.put_nowait(result)
            except Exception as problem:
                self._finished.put_nowait(problem)

        self._workers = [asyncio.ensure_future(work()) for _ in range(min(self.options.parallel, left))]
        try:
            while left:
                result = await self._finished.get()
                if isinstance(result, Exception):
                    raise result
                left -= 1
                yield result
        finally:
            await self._stop_workers()
            await self._runner.close(finished=not left)

    async def stop(self, why: Exception) -> None:
        """Stop the running tasks and start no more; `run` raises `why`."""
        self._finished.put_nowait(why)
        await self._stop_workers()

    async def _stop_workers(self) -> None:
        """Cancel the tasks, once: a second cancel during clean-up would leave the workspace behind."""
        if not self._stopping:
            self._stopping = True
            for worker in self._workers:
                worker.cancel()
        if self._workers:
            await asyncio.wait(self._workers)

    async def _run_task(self, task: Task) -> TaskResult:
        """Run a task until an attempt passes or the retries are used up."""
        began = time.monotonic()
        found: dict[str, Any] = {}
        spent: list[dict[str, Any]] = []
        attempt = 0
        while attempt <= self.options.retries and found.get("status") != "passed":
            attempt += 1
            if self.options.on_start is not None:
                self.options.on_start(task, attempt)
            found = await self._runner.run(task, attempt, task.timeout or self.options.timeout_s)
            spent.append(found)
        found |= _sum_usage(spent)
        seconds = round(time.monotonic() - began, 3)
        return TaskResult.from_dict(
            {"id": task.id, "task": task.digest, "seconds": seconds, "attempts": attempt} | found
        )


async def _stop_batches(running: set[Batch]) -> None:
    why = ToolFailure("the session was closed while the batch was under way", code="cancelled", hint=_GO_ON)
    await asyncio.gather(*(batch.stop(why) for batch in list(running)))


_GO_ON: Final = "What has a result is done; with a results file, `resume` goes on with the rest."
BATCHES: Final[Kept[set[Batch]]] = Kept("batches", lambda session: set(), _stop_batches)
"""The running batches of a session, stopped when it closes."""


def _sum_usage(attempts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Sum the usage of all attempts at a task: each was paid for."""
    usage: Counter[str] = Counter()
    for each in attempts:
        usage.update({name: count for name, count in each.get("usage", {}).items() if isinstance(count, int)})
    costs = [each["cost"] for each in attempts if each.get("cost") is not None]
    return {"usage": dict(usage), "cost": sum(costs) if costs else None}


async def run_batch(
    app: Surehand,
    tasks: Iterable[Task | Mapping[str, Any] | str],
    *,
    parallel: int = 4,
    retries: int = 0,
    timeout: float | None = None,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    model: str | Model | ModelOf | None = None,
    keep_workspaces: bool = False,
    make_approver: MakeApprover | None = None,
    runner: Runner | None = None,
    on_start: Callable[[Task, int], None] | None = None,
) -> AsyncGenerator[TaskResult]:
    """Run tasks and yield their results: the implementation of `Surehand.batch`."""
    if parallel < 1 or retries < 0:
        raise SettingsError("a batch needs parallel of at least 1, and retries of at least 0")
    if resume and out is None:
        raise SettingsError("resume needs the results file (`out`)")
    if runner is not None and (keep_workspaces or make_approver):
        raise SettingsError("on a cluster the fleet's approver answers questions, and workspaces are not kept")
    app.session.refuse_if_closed()
    running_batches = app.session.keep(BATCHES)
    made = make_tasks(tasks)
    setting = make_setting(app, model, make_approver)
    setting.check_profiles(made)
    results = None if out is None else ResultsFile(os.fspath(out), resume=resume)
    scratch = tempfile.mkdtemp(prefix="surehand-batch-") if results is None else ""
    try:
        folder = scratch if results is None else locations.batch_folder(results.path)
        workspaces = Workspaces(folder, app.session.workspace, app.settings, type(app))
        await workspaces.clear_leftovers()
        runner = runner or LocalRunner(keep_workspaces=keep_workspaces)
        runner.begin(setting, workspaces)
        options = Options(parallel=parallel, retries=retries, timeout_s=timeout, on_start=on_start)
        batch = Batch(made, runner, options, results)
        running_batches.add(batch)
        running = batch.run()
        try:
            async for result in running:
                yield result
        finally:
            await running.aclose()
            running_batches.discard(batch)
    finally:
        if results is not None:
            results.close()
        if scratch and not keep_workspaces:
            with suppress(OSError):
                remove_tree(scratch)


def make_setting(app: Surehand, model: str | Model | ModelOf | None, make_approver: MakeApprover | None) -> Setting:
    """Build the settings that all tasks share from the application that starts the batch."""
    known, _ = load_profiles(app.session.workspace, trusted=app.trusted)
    return Setting(
        app.settings,
        type(app),
        model_of=None if model is None or isinstance(model, str) else _model_of(model),
        model=model if isinstance(model, str) else None,
        profiles=tuple(known),
        tools=tuple(card for name in app.registry if isinstance(card := app.registry.card(name), Tool)),
        allow=app.allow,
        make_approver=make_approver,
        listener=make_task_listener(app),
    )


def make_task_listener(app: Surehand) -> Listener:
    """Return a listener that forwards events of tasks to the application's bus and counts calls in its metrics."""
    count = HeardCalls(app.metrics)

    def pass_on(event: Event) -> None:
        count(event)
        app.bus.emit(event)

    return pass_on


def _model_of(model: Model | ModelOf) -> ModelOf:
    """Return a function that gives every task a model; a model object is shared, and closed by its owner."""
    if callable(model):
        return model
    shared = _SharedModel(model)
    return lambda task: shared


class _SharedModel:
    """A model that several tasks use at once; only its owner closes it."""

    def __init__(self, model: Model) -> None:
        self.provider, self.name = model.provider, model.name
        self.context_tokens, self.caches_prompts = model.context_tokens, model.caches_prompts
        self.stream = model.stream

    async def close(self) -> None:
        """Do nothing: the model belongs to the caller of the batch."""
