"""`surehand batch`: run many tasks, show their results, apply the changes of one; `cluster`: remote sessions."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from argparse import ArgumentParser, Namespace
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from surehand.batch.batch import make_task_listener, run_batch
from surehand.batch.tasks import read_results, read_tasks, summarize
from surehand.batch.work import FleetRunner
from surehand.cli import render, session
from surehand.cli.parser import amount_above_zero, count_above_zero, whole_number
from surehand.cli.session import mailbox
from surehand.cli.tools import EXIT_CODES
from surehand.cluster.fleet import Fleet
from surehand.core.errors import SettingsError, StateError
from surehand.files.sanitize import visible

if TYPE_CHECKING:
    from surehand.app import Surehand
    from surehand.batch.tasks import TaskResult
    from surehand.cluster.session import RemoteSession
    from surehand.core.call import ToolResult


_ABOUT = """\
  surehand batch TASKS.jsonl --out RESULTS.jsonl   run tasks; one result line each
  surehand batch show RESULTS.jsonl                a table of what came of them
  surehand batch apply RESULTS.jsonl ID            apply one task's changes here; `surehand undo` takes them back"""


def configure(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = _ABOUT
    parser.add_argument(
        "words", nargs="+", metavar="TASKS | show RESULTS | apply RESULTS ID", help="a file of tasks, or a subcommand"
    )
    parser.add_argument("--out", metavar="FILE", help="the results file, one line per task; it survives a crash")
    parser.add_argument(
        "--parallel", type=count_above_zero, default=4, metavar="N", help="tasks run in parallel (default 4)"
    )
    parser.add_argument("--resume", action="store_true", help="run only the tasks without a result in --out")
    parser.add_argument(
        "--retries", type=whole_number, default=0, metavar="N", help="retry tasks that did not pass, up to N times"
    )
    parser.add_argument("--timeout", type=amount_above_zero, metavar="S", help="timeout of a task, its check included")
    parser.add_argument("--model", metavar="NAME", help="for tasks that name none")
    parser.add_argument(
        "--keep-workspaces", action="store_true", help="keep the workspaces; results say where they are"
    )
    parser.add_argument(
        "--approvals",
        choices=("nobody", "console", "mailbox"),
        default="nobody",
        metavar="nobody|console",
        help="who answers questions: nobody (default), or the console and `surehand approvals`",
    )
    parser.add_argument(
        "--cluster",
        metavar="ADDRESS",
        help="run on a Ray cluster: HOST:PORT, auto, or local; tasks end with this command, --resume continues",
    )
    parser.add_argument("--cpu", type=amount_above_zero, metavar="X", help="with --cluster: cores each task needs")
    parser.add_argument("--memory", metavar="SIZE", help="with --cluster: memory each task needs, such as 1GiB")
    parser.add_argument("--dry-run", action="store_true", help="of apply: show what would change; change nothing")


def run(options: Namespace) -> int:
    """Run the command and return its exit code."""
    match options.words:
        case ["show", path]:
            return _show(options, path)
        case ["apply", path, task]:
            return _apply(options, path, task)
        case [path] if path not in ("show", "apply"):
            return _run(options, path)
        case _:
            render.error("these words make no sense together", f"Say one of:\n{_ABOUT}", code="invalid_args")
            return 2


# -- running ----------------------------------------------------------------------------------------------------------


def _run(options: Namespace, path: str) -> int:
    if options.out is None:
        raise SettingsError("name the results file: --out RESULTS.jsonl")
    tasks = read_tasks(path)
    if not tasks:
        raise SettingsError(f"{path} has no tasks; `surehand help batch` shows how to write one")
    return session.run(_run_tasks(options, tasks))


async def _run_tasks(options: Namespace, tasks: list[Any]) -> int:
    async with AsyncExitStack() as stack:
        app = await stack.enter_async_context(session.open_app(options, shows=("call_finished", "note")))
        runner = None
        if options.cluster is not None:
            fleet = await stack.enter_async_context(_make_fleet(options, app))
            wanted = {"cpu": options.cpu, "memory": options.memory}
            runner = FleetRunner(fleet, needs={name: value for name, value in wanted.items() if value})
        asks_here = runner is None and options.approvals != "nobody"
        progress = _Progress(len(tasks), _count_done(options, tasks), quiet=render.as_json(options))
        results = run_batch(
            app,
            tasks,
            parallel=options.parallel,
            retries=options.retries,
            timeout=options.timeout,
            out=options.out,
            resume=options.resume,
            model=options.model,
            keep_workspaces=options.keep_workspaces,
            make_approver=session.mailbox if asks_here else None,
            runner=runner,
            on_start=progress.begin,
        )
        try:
            async for result in results:
                progress.add(result)
        finally:
            progress.end()
            await results.aclose()
    found = {result.id: result for result in read_results(options.out)}
    summary = summarize(found[task.id] for task in tasks)
    render.facts(options, summary, lambda: format_summary(summary))
    return 0 if summary["passed"] == summary["tasks"] else 1


def _make_fleet(options: Namespace, app: Surehand) -> Fleet:
    """Return the fleet that runs the tasks; it passes their events and questions to this command."""
    approver = None if options.approvals == "nobody" else mailbox(app)
    listener = make_task_listener(app)
    return Fleet(options.cluster, settings=app.settings, approver=approver, listener=listener, queue=options.parallel)


def _count_done(options: Namespace, tasks: list[Any]) -> int:
    """Return how many tasks already have a result that `--resume` keeps."""
    if not (options.resume and os.path.exists(options.out)):
        return 0
    return len({result.id for result in read_results(options.out)} & {task.id for task in tasks})


class _Progress:
    """The progress line of a batch, with an estimate of the remaining time."""

    def __init__(self, total: int, before: int, *, quiet: bool) -> None:
        self._total = total
        self._before = before
        """Tasks finished in an earlier run; the estimate leaves them out."""
        self._began = time.monotonic()
        self._counts: dict[str, int] = {}
        self._quiet = quiet
        self._bar = sys.stderr.isatty() and not quiet
        self._started: set[str] = set()

    def begin(self, task: Any, attempt: int) -> None:
        """Record that a task has started."""
        if task.id not in self._started:
            self._started.add(task.id)
            self._draw()

    def add(self, result: TaskResult) -> None:
        """Record a result."""
        self._counts[result.status] = self._counts.get(result.status, 0) + 1
        self._started.discard(result.id)
        if not self._bar and not self._quiet:
            done = self._before + sum(self._counts.values())
            render.note(f"{done}  {result.id}  {result.status}  {result.seconds:.1f} s{_reason(result)}")
        self._draw()

    def _draw(self) -> None:
        if not self._bar:
            return
        done = self._before + sum(self._counts.values())
        width = 24
        filled = "#" * (width * done // self._total)
        counts = ", ".join(f"{count} {status}" for status, count in self._counts.items())
        text = f"[{filled:<{width}}] {done}/{self._total}  {len(self._started)} running  {counts}{self._estimate(done)}"
        sys.stderr.write("\r\x1b[K" + render.shorten_line(text, render.columns() - 1))
        sys.stderr.flush()

    def _estimate(self, done: int) -> str:
        new = done - self._before
        if not new or done == self._total:
            return ""
        left = (time.monotonic() - self._began) / new * (self._total - done)
        return f"  about {left / 60:.0f} min left" if left >= 90 else f"  about {left:.0f} s left"

    def end(self) -> None:
        """End the progress line."""
        if self._bar:
            sys.stderr.write("\n")


# -- results ----------------------------------------------------------------------------------------------------------


def _show(options: Namespace, path: str) -> int:
    results = read_results(path)
    summary = summarize(results)

    def text() -> str:
        rows = [_row(result) for result in results]
        heads = ("TASK", "STATUS", "TIME", "CALLS", "TOKENS", "COST", "FILES", "CHECK", "WHY")
        return (render.table(rows, heads) + "\n\n" if rows else "") + format_summary(summary)

    data = {"summary": summary, "results": [result.to_dict() | {"diff": bool(result.diff)} for result in results]}
    render.facts(options, data, text)
    return 0


def _row(result: TaskResult) -> tuple[str, ...]:
    tokens = sum(value for value in result.usage.values() if isinstance(value, int))
    check = "-" if result.check is None else "ok" if result.check.get("ok") else f"exit {result.check.get('exit_code')}"
    return (
        result.id,
        result.status,
        f"{result.seconds:.1f} s",
        str(len(result.calls)),
        f"{tokens:,}" if tokens else "-",
        "-" if result.cost is None else f"{result.cost:.4f}",
        str(len(result.files)),
        check,
        render.shorten_line(_reason(result).removeprefix(": "), 60),
    )


def _reason(result: TaskResult) -> str:
    """Return why a task did not pass, on one line after a colon; empty if it passed."""
    if result.ok:
        return ""
    if result.error is not None:
        return ": " + visible(result.error.get("message", ""), lines=False)
    cause = _find_cause(result)
    if result.check is not None and not result.check.get("ok"):
        return f": {cause and cause + '; '}the check ended with exit code {result.check.get('exit_code')}"
    if cause:
        return f": {cause}"
    return f": it ended with {result.stop}" if result.stop else ""


def _find_cause(result: TaskResult) -> str:
    """Return which call explains the failure of a task, and why it failed; empty if none does.

    If the task had a model and a check, only refused calls count: a model can recover from other failures.
    """
    for call in result.calls:
        tool: str = call["tool"]
        error: dict[str, str] = call.get("error") or {}
        if error and (not result.turns or result.check is None or error.get("code") == "permission_denied"):
            message = error["message"]
            return visible(message if message.startswith(tool) else f"{tool}: {message}", lines=False)
    return ""


def format_summary(summary: dict[str, Any]) -> str:
    """Format a summary as text."""
    counts = ", ".join(f"{summary[name]} {name}" for name in ("passed", "failed", "error", "timeout") if summary[name])
    tasks = summary["tasks"]
    lines = [f"{tasks} task{'s' if tasks != 1 else ''}: {counts or 'none'}"]
    for name, unit in (("seconds", " s"), ("tokens", ""), ("cost", "")):
        if (found := summary[name]) and found["total"]:
            values = ", ".join(f"{key} {found[key]:g}{unit}" for key in ("median", "p95", "max", "total"))
            lines.append(f"{name}: {values}")
    return "\n".join(lines)


# -- applying ---------------------------------------------------------------------------------------------------------


def _apply(options: Namespace, path: str, task: str) -> int:
    """Apply a task's diff; typing the command counts as the approval."""
    result = next((each for each in read_results(path) if each.id == task), None)
    if result is None:
        raise StateError(f"{path} has no result of a task {task!r}")
    if not result.diff:
        render.facts(options, {"paths": []}, f"The task {task} changed nothing.")
        return 0
    options.allow = [*options.allow, "ApplyPatch"]
    done = session.run(_apply_result(options, result))
    if render.as_json(options):
        render.line(json.dumps(done.to_dict(), ensure_ascii=False, default=str))
    elif done.error is not None:
        render.error(done.error.message, done.error.hint)
    else:
        render.line(render.diff(done.output) if options.dry_run else done.output)
    return 0 if done.ok else EXIT_CODES.get(done.error.code if done.error else "", 1)


async def _apply_result(options: Namespace, result: TaskResult) -> ToolResult:
    async with session.open_app(options) as app:
        described = f"Apply the changes of task {result.id}"
        return await app.apply_patch(result.diff, description=described, dry_run=options.dry_run)


def configure_cluster(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="open | attach | call | pull | stop")
    opening = commands.add_parser("open", help="open a session over a copy of this folder", allow_abbrev=False)
    opening.add_argument(
        "--count", type=count_above_zero, default=1, metavar="N", help="number of sessions (default 1)"
    )
    opening.add_argument("--cpu", type=float, default=0.0, metavar="X", help="cores per session")
    opening.add_argument("--memory", default="0", metavar="SIZE", help="memory per session, such as 1GiB")
    attach = commands.add_parser(
        "attach", help="list the sessions of a name, and follow their events", allow_abbrev=False
    )
    attach.add_argument("--follow", action="store_true", help="show their events until Ctrl-C")
    call = commands.add_parser("call", help="make a call in a session", allow_abbrev=False)
    call.add_argument("remote", metavar="SESSION", help="its id, as `attach` lists it")
    call.add_argument("tool", metavar="TOOL")
    call.add_argument("--args", default="{}", metavar="JSON", help="the arguments, an object")
    pull = commands.add_parser("pull", help="apply a session's changes here; `surehand undo` takes them back")
    pull.add_argument("remote", metavar="SESSION", help="its id, as `attach` lists it")
    stop = commands.add_parser("stop", help="end the sessions of a name", allow_abbrev=False)
    opening.add_argument(
        "--name",
        "--detach",
        required=True,
        metavar="NAME",
        help="the name that keeps them running after this command has ended",
    )
    for command in (attach, call, pull, stop):
        command.add_argument("--name", required=True, metavar="NAME", help="the name of the sessions")
    for command in (opening, attach, call, pull, stop):
        command.add_argument("--address", default="auto", metavar="HOST:PORT", help="of the cluster (default: auto)")


def run_cluster(options: Namespace) -> int:
    """Run the command and return its exit code."""
    actions = {"open": _open, "attach": _attach, "call": _call, "pull": _pull, "stop": _stop}
    return session.run(actions[options.action](options))


def _fleet(options: Namespace, **more: Any) -> Fleet:
    return Fleet(options.address, detach=options.name, allow=options.allow, mode=options.mode, **more)


def _rows(sessions: list[RemoteSession]) -> list[dict[str, str]]:
    return [{"session": each.id, "node": each.node, "workspace": each.workspace} for each in sessions]


def _show_sessions(options: Namespace, sessions: list[RemoteSession]) -> None:
    rows = _rows(sessions)
    table = [(row["session"], row["node"][:12], row["workspace"]) for row in rows]
    render.facts(options, rows, lambda: render.table(table, ("SESSION", "NODE", "WORKSPACE")) if rows else "none")


async def _open(options: Namespace) -> int:
    needs = {"cpu": options.cpu, "memory": options.memory if options.memory != "0" else 0}
    async with _fleet(options) as fleet:
        opened = [await fleet.session(options.cwd, needs=needs) for _ in range(options.count)]
        _show_sessions(options, opened)
    return 0


async def _attach(options: Namespace) -> int:
    def tell(event: Any) -> None:
        if event.kind in ("call_started", "call_finished", "note"):
            render.note(f"{event.session_id}  {event.kind}  {event.tool} {event.data.get('message', '')}".rstrip())

    async with _fleet(options, listener=tell if options.follow else None) as fleet:
        _show_sessions(options, list(fleet.sessions.values()))
        if options.follow:
            await asyncio.Event().wait()
    return 0


def _find(fleet: Fleet, id: str) -> RemoteSession:
    if (found := fleet.sessions.get(id)) is None:
        raise SettingsError(f"there is no session {id!r}; there are: {', '.join(fleet.sessions) or 'none'}")
    return found


async def _call(options: Namespace) -> int:
    try:
        args = json.loads(options.args)
    except ValueError as problem:
        raise SettingsError(f"--args is not JSON: {problem}") from None
    async with _fleet(options) as fleet:
        result = await _find(fleet, options.remote).call(options.tool, args, source="cli")
    render.facts(options, result.to_dict(), result.output or (result.error.text if result.error else ""))
    return 0 if result.ok else 1


async def _pull(options: Namespace) -> int:
    """Apply a session's changes here; typing the command counts as the approval."""
    async with _fleet(options) as fleet:
        options.allow = [*options.allow, "ApplyPatch"]
        async with session.open_app(options) as app:
            result = await _find(fleet, options.remote).pull(app)
    render.facts(options, result.to_dict(), result.output or (result.error.text if result.error else ""))
    return 0 if result.ok else 1


async def _stop(options: Namespace) -> int:
    async with _fleet(options) as fleet:
        count = len(fleet.sessions)
        await fleet.close()
    render.facts(options, {"ended": count}, f"ended {count} sessions")
    return 0
