"""The executor: `Executor.run` turns a ToolCall into a ToolResult, and nothing else does.

Steps: resolve, make ready, validate, judge, check, ask, record the intent, run, close. Every caller (a model, a person,
the command line, an MCP client, an undo) takes the same ones; no handler is reached by another way.
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
from surehand.engine.audit import is_flat, mask_arguments
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
        """Connects to the MCP server that has a tool, by the tool's name; raises ToolFailure if it cannot."""
        self.tuned_timeouts: dict[str, float] = {}
        """Timeouts (s) by tool name, for tools that declare none; set by tuning."""
        self.ledger: Ledger | None = None
        """The audit log, in which a call with effects is recorded before it runs; None if there is none."""
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
        """Run a call and return its result. Raises nothing but CancelledError, if the caller itself is cancelled.

        With `shown_first` a dry run is made and asked about even if a rule allows the call. `facts` are the results
        of `ctx.once` from planning this call, if nothing has changed since. `approver` replaces the application's
        for this call.
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
            # Taken here: a tool registered under the name while this call waits for an answer has another life.
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
            if bug := failure.code == "execution_error":  # a missing extra is no bug
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
        """Return the verdict on a call and the tool's preview of it. Nothing is changed."""
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
        """Return the question a call would raise; None if it runs or is refused without one.

        For callers that cannot answer while a call waits: they make the call when they have the answer, with an
        `approver` that gives it; it is judged again then. Extensions see the arguments both times. Nothing is changed.
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
            return None  # making the call reports it
        except asyncio.CancelledError:
            if self.underway.take_stop():
                return None
            raise
        except Exception:  # a bug of the tool: making the call reports it
            return None
        finally:
            self.underway.end(caller)

    def verdict(self, call: ToolCall, session: Session, view: View) -> tuple[str, str]:
        """Return the policy's verdict on a call and its reason; `error` for a call that cannot run."""
        try:
            tool = self._resolve(call, view)
            args, _ = _check_with_repairs(tool, call)
            request = self.permissions.request(tool, args, self._make_context(call, tool, session))
            decision = self.policy.judge(request)
        except ToolFailure as failure:
            return "error", failure.message
        return decision.verdict, decision.reason

    def cancel(self, call_id: str) -> bool:
        """Cancel one running call, whose result is then `cancelled`; False if no such call runs."""
        work = self._running.get(call_id)
        return work is not None and work.cancel(STOPPED)

    def forget(self, tool: Tool) -> None:
        """Forget the pipeline and slot of a tool, so that changed settings or extensions take effect."""
        self._pipelines.pop(tool, None)
        self._runs.pop(tool, None)

    def forget_all(self) -> None:
        """Forget the pipelines of all tools."""
        self._pipelines.clear()

    def slot(self, name: str) -> tuple[Tool, Slot] | None:
        """Return a tool that has run, by name, and its slot."""
        return next(((tool, slot) for tool, (_, slot) in self._runs.items() if tool.name == name), None)

    def slots(self) -> list[Slot]:
        """Return the slots of all tools that have run."""
        return [slot for _, slot in self._runs.values()]

    def _forget_idle(self) -> None:
        """Forget the pipelines of tools that are not running; they are composed again when needed."""
        for tool in [tool for tool, (_, slot) in self._runs.items() if not slot.running and not slot.waiting]:
            self.forget(tool)

    # -- the steps -----------------------------------------------------------------------------------------------------

    async def _find_tool(self, call: ToolCall, view: View) -> Tool:
        """Import a tool's module in a thread, so that the loop goes on; or connect to the MCP server that has it."""
        await self.workers.submit(partial(view.get, call.name))
        if (tool := view.at_hand(call.name)) is not None:  # looked up again: it may have been replaced meanwhile
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
        """Validate the arguments; return them and the repairs made. Runs in a thread if it may take long."""
        given: Any = call.args
        broken = type(given) is dict and BROKEN_ARGUMENTS in given  # also refused if the schema would take anything
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
        """Validate, judge and check a call; raise ToolFailure if it is refused.

        Returns the call (its arguments may have been changed by `check_permission`), context, arguments, decision, the
        changes `check_permission` made, and the repairs.
        """
        ctx = self._make_context(call, tool, session)
        args, repairs = await self._check_arguments(call, tool)
        ctx.loop, ctx.make_call = asyncio.get_running_loop(), partial(make_child_call, self, tool, args)
        if facts is not None:
            ctx.reuse_facts(facts)
        if call.parent is not None:
            refuse_wider(call.parent, tool, args, ctx)
        decision = await self.permissions.decide(tool, args, ctx, self.workers)
        if tool.check_permission is not None:
            decision, other = await narrow(tool, args, ctx, decision, self.workers)
            if other is not None and decision.verdict != "deny":  # changed arguments: judge again from the start
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
            if said.args is not None:  # changed arguments: judge again from the start
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
        """Check a call's preconditions; with `shows`, make the preview for its question in the same thread."""
        check: Any = tool.check
        if check is not None and checks_on_loop(tool):
            await check(args, ctx)
        elif check is not None:
            work = partial(check_and_preview if shows else check_once, tool, args, ctx)
            if tool.check_at_once is not None and tool.check_at_once(args, ctx):
                work()
            else:  # checks read files: in a thread, so that a slow disk does not block the loop
                await self.workers.submit(work)

    async def _invoke(self, prepared: Prepared, session: Session, life: Life | None) -> ToolResult:
        tool, call = prepared.tool, prepared.call
        if self.ledger is not None and tool.read_only is not True and not prepared.read_only:
            masked = None if is_flat(call.args) else await self.workers.submit(partial(mask_arguments, call))
            self.ledger.intend(call, tool.name, session.id, prepared.decision, masked)
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
        """Trace a call that was refused before it ran."""
        assert self.tracing is not None
        try:
            with self.tracing(call, tool):
                raise failure
        except ToolFailure:
            pass

    def _compose_pipeline(self, tool: Tool, settings: ToolSettings | None) -> Proceed:
        """Wrap `_run_handler` in the middleware this tool needs, if any."""
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
        turn = self._turns.number
        at_once = tool.at_once if tool.resources is None and prepared.dry_run is None else None
        try:
            if at_once is not None and (result := at_once(prepared.args, prepared.ctx)) is not None:
                return result
            if tool.resources is not None:
                result = await self._run_exclusively(prepared, start)
            else:
                result = await self._run_within_deadline(prepared, start)
        finally:
            slot.leave()
        self._turns.end(turn)
        return result

    def _run_within_deadline(self, prepared: Prepared, start: Start) -> Awaitable[ToolResult]:
        dry_run = prepared.dry_run
        begin = partial(start, prepared.args, prepared.ctx) if dry_run is None else partial(start_task, dry_run.apply())
        return within(begin, prepared, self._deadlines, self._running, prepared.timeout_s)

    async def _run_exclusively(self, prepared: Prepared, start: Start) -> ToolResult:
        """Run a call while holding the resources it declares."""
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
            "duration_ms": int(duration * 1e6) / 1000,  # `round` is a fifth of all this method takes
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
