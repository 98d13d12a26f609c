"""Ask permission for a call: pass its facts to the policy, and its question, if there is one, to an approver.

An answer holds for exactly what was shown: tool, version, arguments and directory, by digest. If a dry run was shown,
that dry run is applied.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from surehand.core.call import ToolCall
from surehand.core.context import ToolContext
from surehand.core.effects import DeletePath, Effect, ReadPath, WritePath
from surehand.core.errors import RuleError, StateError, ToolFailure
from surehand.core.events import EventKind
from surehand.core.frozen import frozen, replace_values
from surehand.core.tool import DryRun, Permission, Preview, ShowPreview, Tool
from surehand.engine.questions import OpenQuestions
from surehand.engine.running import Workers, check_once
from surehand.policy.approval import Answer, Approver, Question, digest
from surehand.policy.paths import Roots
from surehand.policy.policy import Decision, Policy, Request

if TYPE_CHECKING:
    from surehand.core.session import Session

_STRICTNESS: Final = {"allow": 0, "ask": 1, "deny": 2}
_OF_FILES: Final = (WritePath, DeletePath, ReadPath)
_KEPT: Final = "own word"
_PREVIEWED: Final = "previewed"
_MUST_TRY: Final = "the settings require a dry run, and a look at its changes, before it is applied"
_SHOWN_FIRST: Final = "its changes must be reviewed before they are applied"


class Waits:
    """How long calls have waited for answers, which is not the tools' time; overlapping questions count once."""

    def __init__(self) -> None:
        self._total_s: dict[str, float] = {}
        self._open: dict[str, tuple[int, float]] = {}

    @contextmanager
    def of(self, ids: Sequence[str]) -> Generator[None]:
        """Count the time inside as waiting, for these call ids."""
        for id in ids:
            count, since = self._open.get(id, (0, perf_counter()))
            self._open[id] = (count + 1, since)
        try:
            yield
        finally:
            for id in ids:
                count, since = self._open.pop(id)
                if count > 1:
                    self._open[id] = (count - 1, since)
                else:
                    self._total_s[id] = self._total_s.get(id, 0.0) + perf_counter() - since

    def take(self, id: str) -> float:
        """Return the seconds a call has waited, and forget them."""
        return self._total_s.pop(id, 0.0) if self._total_s else 0.0


def _waiting(call: ToolCall, session: Session) -> list[str]:
    """Return the ids of the calls that wait for a question: the call, its parent, and those of enclosing sub-agents."""
    ids = [call.id] if call.parent is None else [call.id, call.parent.id]
    above: Session | None = session
    while above is not None:
        ids += [above.caller] if above.caller else []
        above = above.parent
    return list(dict.fromkeys(ids))


class Permissions:
    """Has calls judged, and asks about those that need it."""

    def __init__(self, policy: Policy, approver: Approver, remember: Callable[[str], None] | None = None) -> None:
        self.policy = policy
        self.approver = approver
        self._remember = remember
        self._plain: dict[tuple[object, ...], Decision] = {}
        self.waits = Waits()
        self.questions = OpenQuestions()
        """Questions waiting for an answer; other processes of the user may answer them."""

    def request(self, tool: Tool, args: Any, ctx: ToolContext) -> Request:
        """Return the facts of a call, as the policy judges them."""
        read_only = tool.read_only if isinstance(tool.read_only, bool) else tool.read_only(args, ctx)
        effects: Sequence[Effect] | None = [] if read_only else None
        if tool.effects is not None:
            effects = tool.effects(args, ctx)
        return self._request(tool, ctx.session, read_only, effects, ctx.served.source, ctx.leads)

    def _request(
        self,
        tool: Tool,
        session: Session,
        read_only: bool,
        effects: Sequence[Effect] | None,
        source: str,
        leads: dict[str, str] | None = None,
    ) -> Request:
        settings = session.settings.tools.get(tool.name)
        # A tool that always only reads and still says that it asks means that; one for which it is a matter of the
        # arguments (Bash) means the calls that change something.
        always_asks = tool.read_only is True and tool.requires_permission is True
        return Request(
            tool=tool.name,
            aliases=tool.aliases,
            module=tool.module,
            read_only=read_only,
            needs_permission=tool.needs_permission and (always_asks or not read_only),
            always_asks=always_asks,
            level=_level(tool, effects),
            effects=effects,
            workspace=session.workspace,
            roots=session.roots,
            cwd=session.cwd,
            mode=session.mode,
            grants=session.grants,
            origins=frozenset(session.origins),
            source=source,
            tool_settings=settings.permissions if settings else None,
            confined=session.confined,
            leads=leads,
        )

    async def decide(self, tool: Tool, args: Any, ctx: ToolContext, workers: Workers) -> Decision:
        """Return the verdict on a call; in a thread if the tool says that its facts block.

        A tool without effects and with a constant `read_only` is judged once, not for every call.
        """
        if tool.facts_block:
            return await workers.submit(lambda: self.policy.judge(self.request(tool, args, ctx)))
        if tool.effects is not None or not isinstance(tool.read_only, bool):
            return self.policy.judge(self.request(tool, args, ctx))
        session = ctx.session
        key = (tool, session.mode, len(session.grants), len(session.origins), id(session.settings), self.policy)
        decision = self._plain.get(key)
        if decision is None:
            if len(self._plain) > 10_000:
                self._plain.clear()
            decision = self._plain[key] = self.policy.judge(self.request(tool, args, ctx))
        return decision

    def permits(self, tool: Tool, effect: Effect, session: Session) -> bool:
        """Whether a further effect of a running call is allowed without a question."""
        return self.policy.judge(self._request(tool, session, False, [effect], "system")).verdict == "allow"

    def refusal(self, tool: Tool, decision: Decision) -> ToolFailure:
        """Return the failure of a denied call, with the rules and what to do instead."""
        edits = tool.check is not None and bool(_written(decision))
        return ToolFailure(
            f"{tool.name} was not permitted: {decision.reason}",
            code="permission_denied",
            hint="Do it another way, or ask the user. `surehand policy check` explains the verdict.",
            details={"verdict": decision.verdict, "rules": [rule.to_dict() for rule in decision.rules]}
            | ({"layer": 2, "number": 2} if edits else {}),  # the nine layers are those of edits
        )

    def refuse_look_outside(self, tool: Tool, decision: Decision, session: Session) -> None:
        """Raise ToolFailure if a dry run would show a path outside the roots that needs permission."""
        if decision.verdict != "ask" or tool.preview is None:
            return
        roots = Roots(session.workspace, session.roots)
        if any(not roots.resolve(path).inside for path in _written(decision)):
            raise ToolFailure(
                f"{tool.name} had no dry run: {decision.reason}",
                code="permission_denied",
                hint="Paths outside the workspace are shown only after permission; make the call itself, which asks.",
                details={"verdict": "ask", "reason": decision.reason, "suggestion": decision.suggestion},
            )

    async def preview(self, tool: Tool, args: Any, ctx: ToolContext, workers: Workers) -> Preview | None:
        """Return the tool's preview of a call; None if it has none."""
        if tool.preview is None:
            return None
        if beforehand := ctx.once(_PREVIEWED, list[Any]):
            shown = beforehand.pop()
        elif inspect.iscoroutinefunction(tool.preview):
            shown = await tool.preview(args, ctx)
        else:
            shown = await workers.submit(lambda: tool.preview(args, ctx) if tool.preview else None)
        shown = await shown if inspect.isawaitable(shown) else shown
        if shown is not None and shown.dry_run is not None:
            emit_dry_run("dry_run_made", tool, ctx, shown.dry_run, call=ctx.call, exit_code=shown.data.get("exit_code"))
        return shown

    def shows_always(self, tool: Tool) -> bool:
        """Whether every question about a tool shows a preview made in a thread, and there is somebody to ask."""
        return _always_previews(tool) and not self.questions.has_nobody(self.approver)

    def must_try(self, tool: Tool, args: Any, ctx: ToolContext) -> bool:
        """Whether a call needs a dry run and a question even if a rule allows it."""
        return _when_shown(tool, args, ctx) == "always"

    async def ask(
        self,
        tool: Tool,
        args: Any,
        ctx: ToolContext,
        decision: Decision,
        workers: Workers,
        *,
        shown_first: bool = False,
        approver: Approver | None = None,
    ) -> AskOutcome:
        """Ask `approver`, or the application's, about a call; raise ToolFailure if the answer is no.

        With `shown_first` a dry run is shown even if a rule allows the call; if there is nobody to ask, the rules
        decide.
        """
        approver = approver or self.approver
        must, nobody = self.must_try(tool, args, ctx), self.questions.has_nobody(approver)
        unasked = shown_first and decision.verdict == "allow" and nobody and not must
        if decision.verdict == "allow" and not unasked:
            decision = replace_values(decision, verdict="ask", reason=_MUST_TRY if must else _SHOWN_FIRST)
        dry_runs = DryRuns(tool, ctx, partial(self.preview, tool, args, ctx, workers))
        try:
            shown = None
            if unasked or not nobody:
                shown = await self._preview_for_question(tool, args, ctx, dry_runs, must=must or shown_first)
                shown = add_own_permission(ctx, shown) if tool.check_permission is not None else shown
            if unasked:
                return AskOutcome(dry_run=dry_runs.take(None, shown))
            answer = await self._ask_approver(approver, tool, ctx, decision, shown, dry_runs)
            if answer.kind == "no":
                raise self._refusal_by_answer(tool, decision, answer)
            if answer.kind in ("session", "always"):
                self._keep(answer, (answer.rule or decision.suggestion or "").splitlines(), ctx.session)
            if answer.args is not None and dict(answer.args) != dict(ctx.served.args):
                return AskOutcome(args=answer.args)
            return AskOutcome(dry_run=dry_runs.take(answer.dry_run, shown))
        finally:
            await dry_runs.close()

    async def find_question(
        self, tool: Tool, args: Any, ctx: ToolContext, decision: Decision, workers: Workers
    ) -> Question:
        """Return the question about a call without asking it; a dry run made for it is discarded again."""
        must = self.must_try(tool, args, ctx)
        if decision.verdict == "allow":
            decision = replace_values(decision, verdict="ask", reason=_MUST_TRY)
        dry_runs = DryRuns(tool, ctx, partial(self.preview, tool, args, ctx, workers))
        try:
            shown = await self._preview_for_question(tool, args, ctx, dry_runs, must=must)
            shown = add_own_permission(ctx, shown) if tool.check_permission is not None else shown
        finally:
            await dry_runs.close()
        return self._make_question(tool, ctx, decision, shown)

    async def _preview_for_question(
        self, tool: Tool, args: Any, ctx: ToolContext, dry_runs: DryRuns, *, must: bool
    ) -> Preview | None:
        """Return the preview for a question; raise ToolFailure if the call needs a dry run and has none."""
        if not must and _when_shown(tool, args, ctx) == "offered":
            return None
        try:
            shown = await dry_runs.make()
        except ToolFailure as failure:
            if must:
                raise
            return Preview(f"(no preview: {failure.message})")
        if must and shown is None:
            raise ToolFailure(f"{tool.name} cannot say what it would change", code="precondition_failed")
        return shown

    def _make_question(
        self,
        tool: Tool,
        ctx: ToolContext,
        decision: Decision,
        shown: Preview | None,
        try_first: Callable[[], Awaitable[Preview | None]] | None = None,
    ) -> Question:
        call, session = ctx.call, ctx.session
        return Question(
            call=call,
            tool=tool.name,
            decision=decision,
            preview=shown,
            digest=digest(tool.name, tool.version, call.args, session.cwd),
            origins=tuple(sorted(session.origins)),
            cwd=session.cwd,
            agent=session.agent,
            try_first=try_first,
        )

    async def _ask_approver(
        self,
        approver: Approver,
        tool: Tool,
        ctx: ToolContext,
        decision: Decision,
        shown: Preview | None,
        dry_runs: DryRuns,
    ) -> Answer:
        call, session = ctx.call, ctx.session
        can_try = tool.preview is not None and (shown is None or shown.dry_run is not None)
        question = self._make_question(tool, ctx, decision, shown, dry_runs.make if can_try else None)
        with self.questions.put_up(question, session) as waiting:
            session.emit(
                "permission_asked",
                tool=tool.name,
                call_id=call.id,
                call=call,
                reason=decision.reason,
                digest=question.digest,
                question=waiting.id,
            )
            try:
                with self.waits.of(_waiting(call, session)):
                    answer = await self.questions.wait(waiting, approver)
            except asyncio.CancelledError:
                session.emit("permission_withdrawn", tool=tool.name, call_id=call.id, question=waiting.id)
                raise
            finally:
                await waiting.close()
        by = answer.by or type(approver).__name__
        self.questions.note_answer(waiting, answer, by)
        dry_run = dry_runs.find_dry_run(answer.dry_run, shown) if answer.kind != "no" else None
        session.emit(
            "permission_decided",
            tool=tool.name,
            call_id=call.id,
            answer=answer.kind,
            reason=answer.reason,
            rules=(answer.rule or decision.suggestion or "").splitlines(),
            by=by,
            question=waiting.id,
            **({"dry_run": dry_run.id} if dry_run is not None else {}),
        )
        return answer

    def _keep(self, answer: Answer, rules: list[str], session: Session) -> None:
        """Remember the rules of an answer, for this session or always."""
        for rule in rules:
            if rule not in session.grants:
                session.grants.append(rule)
            if answer.kind == "always" and self._remember is not None:
                try:
                    self._remember(rule)
                except (RuleError, StateError) as problem:  # the yes stands all the same, for this session
                    session.emit("note", message=f"{rule} holds for this session only: {problem}")

    def _refusal_by_answer(self, tool: Tool, decision: Decision, answer: Answer) -> ToolFailure:
        allow = f"allow it with the rule {decision.suggestion}" if decision.suggestion else "allow it with a rule"
        return ToolFailure(
            f"{tool.name} needs permission and did not get it: {answer.reason or 'the user said no'}",
            code="permission_denied",
            hint=f"Asked because: {decision.reason}. Do it another way, or {allow} (`--allow` on the command line).",
            details={"verdict": "ask", "reason": decision.reason, "suggestion": decision.suggestion},
        )


def check_and_preview(tool: Tool, args: Any, ctx: ToolContext) -> None:
    """Check a call and make the preview for its question, in one thread: switching to it costs as much as either."""
    check_once(tool, args, ctx)
    try:
        shown = tool.preview(args, ctx) if tool.preview is not None else None
    except Exception:  # `preview` runs into it again, and reports it
        return
    ctx.once(_PREVIEWED, list[Any]).append(shown)


def _written(decision: Decision) -> list[str]:
    """Return the paths a call writes; empty if it has any other effect."""
    effects = [each.effect for each in decision.judged if each.effect is not None]
    paths = [each.path for each in effects if isinstance(each, WritePath)]
    return paths if len(paths) == len(effects) else []


def _level(tool: Tool, effects: Sequence[Effect] | None) -> int:
    """Return a call's undo level: the tool's, or that of recorded file changes if all its effects are such."""
    if tool.level or not effects or tool.read_only is True:
        return tool.level
    recorded = all(isinstance(each, _OF_FILES) for each in effects)
    return (2 if tool.preview is not None else 1) if recorded else 0


@lru_cache(1000)
def _always_previews(tool: Tool) -> bool:
    """Whether a tool has a preview for every question, made in a thread."""
    return tool.preview is not None and tool.show_preview == "asked" and not inspect.iscoroutinefunction(tool.preview)


def _when_shown(tool: Tool, args: Any, ctx: ToolContext) -> ShowPreview:
    shown = tool.show_preview
    return shown(args, ctx) if callable(shown) else shown


# -- dry runs made for a question --------------------------------------------------------------------------------------


@frozen
class AskOutcome:
    """The outcome of a question: changed arguments, to be judged again, or the dry run to apply instead of running."""

    args: Mapping[str, Any] | None = None
    dry_run: DryRun | None = None


class DryRuns:
    """The dry runs made for one question. Only the newest is kept, and discarded unless the answer applies it."""

    def __init__(self, tool: Tool, ctx: ToolContext, preview: Callable[[], Awaitable[Preview | None]]) -> None:
        self._tool = tool
        self._ctx = ctx
        self._preview = preview
        self._newest: DryRun | None = None

    async def make(self) -> Preview | None:
        """Make a dry run, in place of the one before."""
        await self.close()
        shown = await self._preview()
        self._newest = shown.dry_run if shown is not None else None
        return shown

    def find_dry_run(self, wanted: str | None, shown: Preview | None) -> DryRun | None:
        """Return the dry run an answer applies: the one it names, or else the one the question showed."""
        dry_run = self._newest
        if wanted is None:
            return dry_run if dry_run is not None and shown is not None and shown.dry_run is dry_run else None
        return dry_run if dry_run is not None and dry_run.id == wanted else None

    def take(self, wanted: str | None, shown: Preview | None) -> DryRun | None:
        """Return the dry run an answer applies, which is then the caller's; raise ToolFailure if it was replaced."""
        dry_run = self.find_dry_run(wanted, shown)
        if dry_run is None and (wanted or (wanted is None and shown is not None and shown.dry_run is not None)):
            raise ToolFailure(
                "the dry run to apply is gone: a newer one has replaced it",
                code="precondition_failed",
                hint="Nothing was changed. Ask again.",
            )
        if dry_run is not None:
            self._newest = None
        return dry_run

    async def close(self) -> None:
        """Discard the dry run, unless it was taken."""
        if self._newest is not None:
            dry_run, self._newest = self._newest, None
            await discard_dry_run(self._tool, self._ctx, dry_run)


async def discard_dry_run(tool: Tool, ctx: ToolContext, dry_run: DryRun, *, applied: bool = False) -> None:
    """Discard a dry run, and emit whether it was applied."""
    await asyncio.shield(dry_run.discard())
    emit_dry_run("dry_run_applied" if applied else "dry_run_discarded", tool, ctx, dry_run)


def emit_dry_run(kind: EventKind, tool: Tool, ctx: ToolContext, dry_run: DryRun, **data: Any) -> None:
    """Emit an event about a dry run."""
    ctx.session.emit(kind, tool=tool.name, call_id=ctx.served.id, dry_run=dry_run.id, **data)


# -- `check_permission` of a tool: may make the policy's decision stricter, never laxer --------------------------------


async def narrow(
    tool: Tool, args: Any, ctx: ToolContext, decision: Decision, workers: Workers
) -> tuple[Decision, Mapping[str, Any] | None]:
    """Ask a tool's `check_permission`; return the decision, perhaps stricter, and changed arguments, if any."""
    check = tool.check_permission
    if check is None:
        return decision, None
    if inspect.iscoroutinefunction(check):
        said = await check(args, ctx)
    else:
        said = await workers.submit(lambda: check(args, ctx))
    return apply_own_permission(tool, ctx, decision, said)


def apply_own_permission(
    tool: Tool, ctx: ToolContext, decision: Decision, said: Any
) -> tuple[Decision, Mapping[str, Any] | None]:
    """Apply what `check_permission` returned to a decision; raise ToolFailure if it is no Permission."""
    if said is None:
        return decision, None
    if not isinstance(said, Permission) or said.verdict not in _STRICTNESS:
        raise ToolFailure(
            f"check_permission of {tool.name} returned {said!r}, which is not a Permission",
            hint="This is a fault in the tool; the call was not made.",
        )
    ctx.once(_KEPT, lambda: said)
    wanted = said.args if said.args is not None and dict(said.args) != dict(ctx.served.args) else None
    if _STRICTNESS[said.verdict] <= _STRICTNESS[decision.verdict]:
        return decision, wanted
    reason = said.reason or f"{tool.name} itself says so"
    # No suggested rule: the tool would ask again despite it.
    return replace_values(decision, verdict=said.verdict, reason=reason, suggestion=None), wanted


def add_own_permission(ctx: ToolContext, shown: Preview | None) -> Preview | None:
    """Put the text that `check_permission` wants shown before a question's preview."""
    said: Permission | None = ctx.once(_KEPT, lambda: None)
    if said is None or not said.show:
        return shown
    if shown is None:
        return Preview(said.show)
    return replace_values(shown, text=f"{said.show}\n{shown.text}".rstrip())
