"""`EditorApprover`: the person in the editor answers, after seeing what will run.

The protocol knows four kinds of options. Ours are once, for this session and always (both with the rule that would be
kept, spelled out), a dry run where one is possible, and no.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from acp import RequestError, schema
from surehand.acp import convert
from surehand.core.errors import ToolFailure
from surehand.core.tool import Preview
from surehand.files.sanitize import visible
from surehand.policy.approvals import Answer, AnswerKind, Question

if TYPE_CHECKING:
    from acp import Client
    from surehand.acp.convert import Content
    from surehand.acp.updates import Updates

_TRY: Final = "try"
RULE_CHARACTERS: Final = 120


class EditorApprover:
    """Asks the client of one session."""

    def __init__(self, client: Client, updates: Updates, session_id: str) -> None:
        self._client = client
        self._updates = updates
        self._session_id = session_id

    async def ask(self, question: Question) -> Answer:
        """Ask the person in the editor; one who leaves has said no."""
        shown: Preview | None = question.preview
        dry_run: str | None = None  # the one the question itself shows, if any
        while True:
            try:
                chosen = await self._choose(question, shown)
            except RequestError as problem:
                return Answer("no", f"the editor could not ask: {problem}")
            if chosen is None:
                return Answer("no", "the user cancelled")
            if chosen == _TRY and question.try_first is not None:
                shown = await _try_first(question)
                dry_run = (
                    shown.dry_run.id if shown is not None and shown.dry_run is not None else ""
                )  # else: a run anew
                continue
            if chosen == "no":
                return Answer("no", "the user said no")
            rule = question.decision.suggestion if chosen != "once" else None
            return Answer(cast("AnswerKind", chosen), rule=rule, dry_run=dry_run)

    async def _choose(self, question: Question, shown: Preview | None) -> str | None:
        """Return the option that was chosen; None where the client took the question back."""
        self._updates.announce(question.call, question.agent)
        await self._updates.flush()
        options = _options(question, seen=shown is not None and shown.dry_run is not None)
        response = await self._client.request_permission(
            session_id=self._session_id, tool_call=_shown_call(question, shown), options=options
        )
        outcome = response.outcome
        if isinstance(outcome, schema.AllowedOutcome) and any(outcome.option_id == each.option_id for each in options):
            return outcome.option_id
        return None


async def _try_first(question: Question) -> Preview | None:
    assert question.try_first is not None
    try:
        return await question.try_first()
    except ToolFailure as failure:
        return Preview(f"A dry run was not possible: {failure.message}")


def _options(question: Question, *, seen: bool) -> list[schema.PermissionOption]:
    """Return what may be answered: what would be kept is spelled out."""
    rules = question.decision.suggestion
    options = [_option("once", "Apply exactly this" if seen else "Allow once", "allow_once")]
    if rules is not None:
        words = " and ".join(visible(line, lines=False) for line in rules.splitlines())
        words = words if len(words) <= RULE_CHARACTERS else f"{words[:RULE_CHARACTERS]}…"
        options.append(_option("session", f"Allow for this session: {words}", "allow_always"))
        options.append(_option("always", f"Always allow: {words}", "allow_always"))
    if question.try_first is not None:
        options.append(_option(_TRY, "Try on a copy again" if seen else "Try on a copy first", "allow_once"))
    return [*options, _option("no", "Reject", "reject_once")]


def _option(id: str, name: str, kind: schema.PermissionOptionKind) -> schema.PermissionOption:
    return schema.PermissionOption(option_id=id, name=name, kind=kind)


def _shown_call(question: Question, shown: Preview | None) -> schema.ToolCallUpdate:
    """Return the call as the question shows it: the diff it would make, and all that is to be known of it."""
    diffs: list[Content] = []
    if shown is not None and shown.diff:
        diffs = [each for each, _ in convert.diff_contents(shown.diff, question.cwd)]
    text = question.text() if shown is question.preview else visible(shown.text if shown is not None else "")
    return schema.ToolCallUpdate(
        tool_call_id=question.call.id,
        title=convert.title(question.call, question.agent),
        kind=convert.KINDS.get(question.tool, "other"),
        status="pending",
        content=[*diffs, convert.text_content(text)],
        locations=convert.locations(question.call, question.cwd),
        raw_input=question.call.shown_args,
    )
