"""The one door: `Executor.run` turns a ToolCall into a ToolResult, and nothing else does.

resolve → ready → validate → effects → forbid → check → decide → run → close, a line a step. Whoever calls (a model,
a person, the command line, an MCP client, undo) passes the same steps; nothing reaches a handler by another way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from time import perf_counter, time
from typing import TYPE_CHECKING, Any, Final

from surehand.core.call import BROKEN_ARGUMENTS, ToolCall, ToolResult, truncate_blocks, truncate_middle
from surehand.core.context import ToolContext
from surehand.core.errors import ToolFailure
from surehand.core.events import Event, Progress
from surehand.core.frozen import replace_values
from surehand.core.tool import Tool
from surehand.engine.ask import Permissions, check_and_preview, discard_dry_run, narrow
from surehand.engine.bus import Bus
from surehand.engine.extensions import Extensions
from surehand.engine.health import Readiness
from surehand.engine.prepared import (
    CLOSED,
    SWITCHED_OFF,
    Ledger,
    Meter,
    Middleware,
    Prepared,
    Proceed,
    View,
    closed_result,
    crash_failure,
    failed_result,
    given_up,
    make_child_call,
    missing,
    refuse_wider,
    timed_out,
)
from surehand.engine.running import (
    STOPPED,
    Deadlines,
    Overrun,
    Start,
    Underway,
    Workers,
    check_once,
    checks_itself,
    checks_on_loop,
    start_task,
    starter,
    within,
)
from surehand.engine.slots import DEFAULT_LIMIT, Resources, Slot, Turns, sort_names
from surehand.policy.approval import Approver, Question
from surehand.policy.policy import Decision, Policy
from surehand.registry.lifecycle import Life, Lifecycle

if TYPE_CHECKING:
    from surehand.core.session import Session
    from surehand.core.settings import ToolSettings

_log = logging.getLogger("surehand")
_NO_OPTIONS: Final[Mapping[str, Any]] = {}
TOOLS_REMEMBERED: Final = 20_000
CHANGES_LIMIT: Final = 3
"""How often a tool may change the arguments of one call (`check_permission`)."""
APPLYING_S: Final = 600.0
"""Minimum timeout (s) while a dry run is applied, however short that of the call itself is."""


class Executor:
    """Runs single calls. One per application; any number of calls at once."""

    def __init__(
        self,
        *,
        policy: Policy,
        asking: Permissions,
        lifecycle: Lifecycle,
        bus: Bus,
        meter: Meter,
        middleware: Callable[[Tool], list[Middleware]] = lambda tool: [],
        tracing: Callable[[ToolCall, Tool], Any] | None = None,
        extensions: Extensions | None = None,
    ) -> None:
        self.policy = policy
        self.permissions = asking
        self.lifecycle = lifecycle
        self.bus = bus
        self.meter = meter
        self.middleware = middleware
        self.tracing = tracing
        self.extensions = extensions or Extensions(bus)
        self.extensions.changed = self.forget_all
        self.readiness = Readiness(lifecycle)
        self.seek: Callable[[str], Awaitable[None]] | None = None
        """Brings tools in that come from elsewhere (MCP servers), by name; raises ToolFailure when it cannot."""
        self.tuned_timeouts: dict[str, float] = {}
        """Seconds by tool, for tools that do not say themselves; set by tuning."""
        self.ledger: Ledger | None = None
        """Where a call with effects is written down before it runs; None where nothing is kept."""
        self.workers = Workers()
        self._pipelines: dict[Tool, Proceed] = {}
        self._runs: dict[Tool, tuple[Start, Slot]] = {}
        self._resources = Resources()
        self._deadlines = Deadlines()
        self._running: dict[str, asyncio.Future[Any]] = {}
        self._turns = Turns()
        self.underway = Underway()

    async def run(
        self,
        call: ToolCall,
        session: Session,
        view: View,
        *,
        shown_first: bool = False,
        facts: dict[str, Any] | None = None,
        approver: Approver | None = None,
    ) -> ToolResult:
        """Return what the call came to. Raises nothing but CancelledError, when the caller itself is cancelled.

        With `shown_first` a dry run is made, and asked about, also where a rule allows the call. `facts` are
        what was worked out about this call when it was planned, if nothing has changed since. `approver` answers for
        this call alone, in the application's stead.
        """
        if self.underway.closed or session.closed:
            return closed_result(call)
        caller = self.underway.begin()
        try:
            return await self._run(call, session, view, shown_first, facts, approver)
        finally:
            self.underway.end(caller)

    async def _run(
        self,
        call: ToolCall,
        session: Session,
        view: View,
        shown_first: bool,
        facts: dict[str, Any] | None,
        approver: Approver | None,
    ) -> ToolResult:
        at, clock, planned = time(), perf_counter(), call
        name, bug, tool, prepared = call.name, False, None, None
        try:
            if self._turns.is_over():
                await self._turns.wait()
            tool = view.at_hand(call.name) or await self._find_tool(call, view)
            name = tool.name
            # Held from here on: a tool that takes the name while this call is asked about is another life.
            life = self.lifecycle.life(name)
            if not self._is_ready(tool, session):
                await self.readiness.make_ready(tool, session)
            if self.extensions.active:
                tool = self.extensions.extend_tool(tool)
                call = await self.extensions.begin(tool, call)
            facts = facts if call is planned else None
            prepared = await self._prepare(call, tool, session, shown_first, facts, approver=approver)
            result = await self._invoke(prepared, session, life)
        except ToolFailure as failure:
            result = failed_result(failure)
            if self.tracing is not None and prepared is None and tool is not None:
                self._trace_refusal(call, tool, failure)
        except Overrun:
            bug, result = True, timed_out(prepared)
        except asyncio.CancelledError:
            ours = self.underway.take_stop()
            result = given_up(prepared, CLOSED if ours else "the call was cancelled")
            result = self._close(call, name, session, result, at, clock, prepared, bug)
            if ours:
                return result
            raise
        except Exception as problem:  # the one place where bugs of tools are caught
            failure = crash_failure(name, problem)
            if bug := failure.code == "execution_error":  # an extra that is not installed is nobody's bug
                _log.exception("tool %s failed on call %s", name, call.id)
            result = failed_result(failure)
        if self.extensions.active and prepared is not None:
            try:
                result = await self.extensions.end(prepared.tool, call, result)
            except ToolFailure as failure:
                result = failed_result(failure)
            except asyncio.CancelledError:
                result = self._close(call, name, session, result, at, clock, prepared, bug)
                if self.underway.take_stop():
                    return result
                raise
        return self._close(call, name, session, result, at, clock, prepared, bug)

    async def dry_run(self, call: ToolCall, session: Session, view: View) -> ToolResult:
        """Return what the call would do: its effects, the verdict, and the tool's own preview. Nothing is changed."""
        if self.underway.closed or session.closed:
            return closed_result(call)
        caller = self.underway.begin()
        try:
            return await self._dry_run(call, session, view)
        except asyncio.CancelledError:
            if self.underway.take_stop():
                return given_up(None, CLOSED).with_meta(tool=call.name, call_id=call.id, dry_run=True)
            raise
        finally:
            self.underway.end(caller)

    async def _dry_run(self, call: ToolCall, session: Session, view: View) -> ToolResult:
        try:
            tool = view.at_hand(call.name) or await self._find_tool(call, view)
            if not self._is_ready(tool, session):
                await self.readiness.make_ready(tool, session)
            ctx = self._make_context(call, tool, session)
            args, repairs = await self._check_arguments(call, tool)
            decision = await self.permissions.decide(tool, args, ctx, self.workers)
            if tool.check_permission is not None:
                decision, _ = await narrow(tool, args, ctx, decision, self.workers)
            if decision.verdict == "deny":
                raise self.permissions.refusal(tool, decision)
            self.permissions.refuse_look_outside(tool, decision, session)
            await self._check(tool, args, ctx)
            shown = await self.permissions.preview(tool, args, ctx, self.workers)
            if shown is not None and shown.dry_run is not None:
                await discard_dry_run(tool, ctx, shown.dry_run)
        except ToolFailure as failure:
            return failed_result(failure).with_meta(tool=call.name, call_id=call.id, dry_run=True)
        unknown = "changes nothing" if tool.read_only is True else "cannot say what it would change"
        said = (shown.text, shown.diff) if shown else (f"{tool.name} {unknown}; it was not run.",)
        if shown and shown.diff.startswith(shown.text):  # as a question shows it, which has no text beside
            said = (shown.diff,)
        text = "\n".join(filter(None, said))
        data = {"verdict": decision.to_dict(), "diff": shown.diff if shown else "", **(shown.data if shown else {})}
        meta = {"tool": tool.name, "call_id": call.id, "dry_run": True} | (
            {"repaired": list(repairs)} if repairs else {}
        )
        return ToolResult(data=data, output=text, meta=meta)

    async def find_question(self, call: ToolCall, session: Session, view: View) -> Question | None:
        """Return what would be asked about a call; None for one that runs, or is refused, without being asked about.

        For callers that cannot answer while a call waits: it is made once they have the answer, with an `approver` that
        gives it, and is judged again then. Extensions are asked about the arguments both times. Nothing is changed.
        """
        if self.underway.closed or session.closed:
            return None
        caller = self.underway.begin()
        try:
            tool = view.at_hand(call.name) or await self._find_tool(call, view)
            if not self._is_ready(tool, session):
                await self.readiness.make_ready(tool, session)
            if self.extensions.active:
                tool = self.extensions.extend_tool(tool)
                call = await self.extensions.begin(tool, call)
            _, ctx, args, decision, *_ = await self._judge(call, tool, session)
            if decision.verdict != "ask" and not self.permissions.must_try(tool, args, ctx):
                return None
            return await self.permissions.find_question(tool, args, ctx, decision, self.workers)
        except ToolFailure:
            return None  # the call itself says why it cannot run
        except asyncio.CancelledError:
            if self.underway.take_stop():
                return None
            raise
        except Exception:  # a bug of a tool, which the call itself reports
            return None
        finally:
            self.underway.end(caller)

    def verdict(self, call: ToolCall, session: Session, view: View) -> tuple[str, str]:
        """Return the policy's verdict on a call and why, without running or asking; `error` for one that cannot run."""
        try:
            tool = self._resolve(call, view)
            args, _ = _check_with_repairs(tool, call)
            request = self.permissions.request(tool, args, self._make_context(call, tool, session))
            decision = self.policy.judge(request)
        except ToolFailure as failure:
            return "error", failure.message
        return decision.verdict, decision.reason

    def cancel(self, call_id: str) -> bool:
        """Stop one running call; it reports `cancelled`. False when no such call runs."""
        work = self._running.get(call_id)
        return work is not None and work.cancel(STOPPED)

    def forget(self, tool: Tool) -> None:
        """Drop the middleware composed for a tool, so that changed settings or extensions take effect."""
        self._pipelines.pop(tool, None)
        self._runs.pop(tool, None)

    def forget_all(self) -> None:
        """Drop the middleware composed for all tools."""
        self._pipelines.clear()

    def slot(self, name: str) -> tuple[Tool, Slot] | None:
        """Return a tool that has run and its places, for those who tune them."""
        return next(((tool, slot) for tool, (_, slot) in self._runs.items() if tool.name == name), None)

    def slots(self) -> list[Slot]:
        """Return the places of every tool that has run."""
        return [slot for _, slot in self._runs.values()]

    def _forget_idle(self) -> None:
        """Drop the middleware of tools that are not running: it is composed again when needed."""
        for tool in [tool for tool, (_, slot) in self._runs.items() if not slot.running and not slot.waiting]:
            self.forget(tool)

    # -- the steps -----------------------------------------------------------------------------------------------

    async def _find_tool(self, call: ToolCall, view: View) -> Tool:
        """Load a tool that is first wanted, in a thread: its import holds up nobody else; or look for it elsewhere."""
        await self.workers.submit(partial(view.get, call.name))
        if (tool := view.at_hand(call.name)) is not None:  # not what was loaded, if it was replaced since
            return tool
        if self.seek is not None and not view.hides(call.name):
            await self.seek(call.name)
        return self._resolve(call, view)

    def _resolve(self, call: ToolCall, view: View) -> Tool:
        tool = view.get(call.name)
        if tool is None:
            raise missing(call.name, view, by_model=call.source == "model")
        return tool

    def _is_ready(self, tool: Tool, session: Session) -> bool:
        settings = session.settings.tools.get(tool.name)
        enabled = tool.enabled if isinstance(tool.enabled, bool) else tool.enabled(session)
        if not enabled or (settings is not None and not settings.enabled):
            raise ToolFailure(f"{tool.name} is switched off", code="tool_unavailable", hint=SWITCHED_OFF)
        return self.lifecycle.state(tool.name) in ("ready", "executing", "error")

    def _make_context(self, call: ToolCall, tool: Tool, session: Session) -> ToolContext:
        settings = session.settings.tools.get(tool.name)
        bus = self.bus

        def report(progress: Progress) -> None:
            if bus.hears("call_progress"):
                session.forward(Event("call_progress", session.id, call.id, tool.name, {"progress": progress}))

        def permits(effect: Any) -> bool:
            return self.permissions.permits(tool, effect, session)

        return ToolContext(call, session, report, settings.custom if settings else _NO_OPTIONS, permits)

    async def _check_arguments(self, call: ToolCall, tool: Tool) -> tuple[Any, tuple[str, ...]]:
        """Return the checked arguments and what was mended in them; in a thread where that takes more than a moment."""
        given: Any = call.args
        broken = type(given) is dict and BROKEN_ARGUMENTS in given  # a tool whose schema takes anything must not get it
        args = None if broken else tool.arguments.check_at_once(call.args)
        return (args, ()) if args is not None else await self.workers.submit(partial(_check_with_repairs, tool, call))

    async def _judge(
        self,
        call: ToolCall,
        tool: Tool,
        session: Session,
        facts: dict[str, Any] | None = None,
        told: tuple[str, ...] = (),
    ) -> tuple[ToolCall, ToolContext, Any, Decision, tuple[str, ...], tuple[str, ...]]:
        """Check and judge a call; return it as it would run, and the decision, allow or ask.

        The last two are what changed its arguments: the tool's own word, and repairs.
        """
        ctx = self._make_context(call, tool, session)
        args, repairs = await self._check_arguments(call, tool)
        ctx.loop, ctx.make_call = asyncio.get_running_loop(), partial(make_child_call, self, tool, args)
        if facts is not None:
            ctx.go_on_from(facts)
        if call.parent is not None:
            refuse_wider(call.parent, tool, args, ctx)
        decision = await self.permissions.decide(tool, args, ctx, self.workers)
        if tool.check_permission is not None:
            decision, other = await narrow(tool, args, ctx, decision, self.workers)
            if other is not None and decision.verdict != "deny":  # another call: judged from the start
                if len(told) >= CHANGES_LIMIT:
                    raise ToolFailure(f"{tool.name} keeps changing its arguments", code="permission_denied")
                told = (*told, f"{tool.name} itself changed the arguments to {other}")
                return await self._judge(replace_values(call, args=other), tool, session, told=told)
        if decision.verdict == "deny":
            raise self.permissions.refusal(tool, decision)
        if tool.check is not None and (decision.verdict == "ask" or not checks_itself(tool)):
            await self._check(tool, args, ctx, shows=decision.verdict == "ask" and self.permissions.shows_always(tool))
        return call, ctx, args, decision, told, repairs

    async def _prepare(
        self,
        call: ToolCall,
        tool: Tool,
        session: Session,
        shown_first: bool = False,
        facts: dict[str, Any] | None = None,
        told: tuple[str, ...] = (),
        approver: Approver | None = None,
    ) -> Prepared:
        call, ctx, args, decision, told, repairs = await self._judge(call, tool, session, facts, told)
        dry_run = None
        shown_first = shown_first or (tool.show_preview != "asked" and self.permissions.must_try(tool, args, ctx))
        if decision.verdict == "ask" or shown_first:
            said = await self.permissions.ask(
                tool, args, ctx, decision, self.workers, shown_first=shown_first, approver=approver
            )
            if said.args is not None:  # other arguments are another call: judged from the start
                changed = replace_values(call, args=said.args)
                return await self._prepare(changed, tool, session, shown_first, told=told, approver=approver)
            dry_run = said.dry_run
        settings = session.settings.tools.get(tool.name)
        timeout = settings.timeout if settings else None
        if timeout is None:
            timeout = tool.timeout_s(args) if callable(tool.timeout_s) else tool.timeout_s
        timeout = timeout or self.tuned_timeouts.get(tool.name) or session.settings.engine.timeout_s
        if dry_run is not None:
            timeout = max(timeout, APPLYING_S)
        return Prepared(call, tool, args, ctx, decision, settings, timeout, (*told, *repairs), dry_run)

    async def _check(self, tool: Tool, args: Any, ctx: ToolContext, *, shows: bool = False) -> None:
        """Check a call's preconditions; with `shows`, work out on the same way what its question will show."""
        check: Any = tool.check
        if check is not None and checks_on_loop(tool):
            await check(args, ctx)
        elif check is not None:
            work = partial(check_and_preview if shows else check_once, tool, args, ctx)
            if tool.check_at_once is not None and tool.check_at_once(args, ctx):
                work()
            else:  # checks read files: in a thread, so that a slow disk holds up nobody else
                await self.workers.submit(work)

    async def _invoke(self, prepared: Prepared, session: Session, life: Life | None) -> ToolResult:
        tool, call = prepared.tool, prepared.call
        if self.ledger is not None and tool.read_only is not True and not prepared.read_only:
            self.ledger.intend(call, tool.name, session.id, prepared.decision)
        if self.bus.hears("call_started"):
            session.forward(Event("call_started", session.id, call.id, tool.name, {"call": call}))
        self.meter.count_start(tool.name)
        pipeline = self._pipelines.get(tool) or self._compose_pipeline(tool, prepared.settings)
        if life is not None:
            self.lifecycle.begin_call(life)
        failed, applied = True, False
        try:
            if self.tracing is None:
                result = await pipeline(prepared)
            else:
                with self.tracing(call, tool):
                    result = await pipeline(prepared)
            if tool.undo is not None or (result.undo is not None and result.undo.call is not None):
                result = await _with_compensation(prepared, result)
            failed, applied = False, True
        except (ToolFailure, asyncio.CancelledError):
            failed = False
            raise
        finally:
            if life is not None:
                self.lifecycle.end_call(life, failed)
            if prepared.dry_run is not None:
                await discard_dry_run(tool, prepared.ctx, prepared.dry_run, applied=applied)
        return result

    def _trace_refusal(self, call: ToolCall, tool: Tool, failure: ToolFailure) -> None:
        """Give a call that never came to run a span too."""
        assert self.tracing is not None
        try:
            with self.tracing(call, tool):
                raise failure
        except ToolFailure:
            pass

    def _compose_pipeline(self, tool: Tool, settings: ToolSettings | None) -> Proceed:
        """Wrap the innermost step in the middleware this tool needs; a plain tool pays for none."""
        if len(self._runs) > TOOLS_REMEMBERED:
            self._forget_idle()
        if tool not in self._runs:
            limits = settings.concurrency if settings else None
            slot = Slot(tool.name)
            if limits is not None:
                slot = Slot(tool.name, limits.max_concurrent_calls or DEFAULT_LIMIT, limits.queue_size)
            self._runs[tool] = starter(tool, self.workers), slot
        pipeline: Proceed = self._run_handler
        for layer in reversed(self.middleware(tool)):
            pipeline = _wrap_layer(layer, pipeline)
        self._pipelines[tool] = pipeline
        return pipeline

    async def _run_handler(self, prepared: Prepared) -> ToolResult:
        tool = prepared.tool
        start, slot = self._runs[tool]
        if not slot.take():
            prepared.queue_s += await slot.wait(self._running, prepared.call.id)
        try:
            if tool.resources is not None:
                return await self._run_exclusively(prepared, start)
            if (
                prepared.dry_run is None
                and tool.at_once is not None
                and (result := tool.at_once(prepared.args, prepared.ctx)) is not None
            ):
                return result
            return await self._run_within_deadline(prepared, start)
        finally:
            slot.leave()

    def _run_within_deadline(self, prepared: Prepared, start: Start) -> Awaitable[ToolResult]:
        if prepared.dry_run is None:
            begin = partial(start, prepared.args, prepared.ctx)
        else:
            begin = partial(start_task, prepared.dry_run.apply())
        return within(begin, prepared, self._deadlines, self._running, prepared.timeout_s)

    async def _run_exclusively(self, prepared: Prepared, start: Start) -> ToolResult:
        """Run a call while it holds the resources it declares."""
        declared = prepared.tool.resources
        above = prepared.call.parent.holds if prepared.call.parent is not None else frozenset[str]()
        names = sort_names(
            each for each in (declared(prepared.args, prepared.ctx) if declared else ()) if each not in above
        )
        prepared.ctx.holds = above.union(names)
        if not self._resources.take(names):
            prepared.queue_s += await self._resources.wait(names, self._running, prepared.call.id)
        try:
            return await self._run_within_deadline(prepared, start)
        finally:
            self._resources.leave(names)

    def _close(
        self,
        call: ToolCall,
        name: str,
        session: Session,
        result: ToolResult,
        at: float,
        clock: float,
        prepared: Prepared | None,
        bug: bool,
    ) -> ToolResult:
        waited = self.permissions.waits.take(call.id)
        duration = perf_counter() - clock - waited
        meta: dict[str, Any] = {
            "tool": name,
            "call_id": call.id,
            "started": at,
            "duration_ms": round(duration * 1000, 3),
            "cached": False,
            "truncated": False,
            **result.meta,
        }
        if call.parent is not None:
            meta["parent"] = call.parent.id
        if waited:
            meta["asked_ms"] = round(waited * 1000, 3)
        queue_s = prepared.queue_s if prepared is not None else 0.0
        if queue_s:
            meta["queued_ms"] = round(queue_s * 1000, 3)
        if prepared is not None and prepared.repairs:
            meta["repaired"] = list(prepared.repairs)
        output, limit = result.output, session.settings.engine.output_limit
        if notes := session.main.result_notes:
            meta["notes"] = list(dict.fromkeys(notes))
            output += "".join(f"\n[{note}]" for note in meta["notes"])
            notes.clear()
        if len(output) > limit:
            output, meta["truncated"] = truncate_middle(output, limit), True
        if (content := result.content) and (shorter := truncate_blocks(content, limit)) is not content:
            content, meta["truncated"] = shorter, True
        if prepared is not None and (origin := meta.get("origin") or prepared.tool.origin):
            meta["origin"] = origin
            if origin != "workspace":
                session.origins.add(origin)
        result = ToolResult(result.ok, result.data, output, content, result.error, result.undo, meta)
        error = result.error.code if result.error else None
        ran = prepared is not None
        self.meter.count_end(name, duration, error, queue_s=queue_s, bytes_out=len(output), ran=ran)
        if (use := meta.get("resources")) is not None:
            self.meter.count_use(name, use, duration)
        if bug or self.bus.hears("call_finished"):
            data = {"call": call, "result": result, "decision": prepared.decision if prepared else None, "bug": bug}
            session.forward(Event("call_finished", session.id, call.id, name, data))
        if self.ledger is not None and self.ledger.problem:
            return result.with_meta(unrecorded=self.ledger.problem)
        return result


def _wrap_layer(layer: Middleware, inner: Proceed) -> Proceed:
    async def proceed(prepared: Prepared) -> ToolResult:
        return await layer(prepared, inner)

    return proceed


async def _with_compensation(prepared: Prepared, result: ToolResult) -> ToolResult:
    from surehand.engine.record_changes import record_compensation  # lazy: record_changes, 55 ms

    return await asyncio.to_thread(record_compensation, prepared, result)


def _check_with_repairs(tool: Tool, call: ToolCall) -> tuple[Any, tuple[str, ...]]:
    from surehand.engine.arguments import check_arguments  # lazy: arguments, 8 ms

    return check_arguments(tool, call)
