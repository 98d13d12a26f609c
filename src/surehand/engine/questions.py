"""Open questions: the approver or any follower of the session's channel may answer; the first answer counts.

Another process of the user (a console) may list open questions, have dry runs made and answer. If the approver can ask
nobody, the question waits for such a process, and is answered no when that disconnects.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

from surehand.core.call import new_id
from surehand.core.errors import RuleError, ToolFailure
from surehand.core.frozen import replace_values
from surehand.policy.approval import Answer, Approver, Nobody, Question, ask_approver, effect_line, printable
from surehand.policy.rules import parse_rule

if TYPE_CHECKING:
    from surehand.core.effects import Effect
    from surehand.core.session import Session
    from surehand.core.tool import Preview
    from surehand.policy.rules import Decision

ANSWERED_LIMIT: Final = 200
"""Answered questions remembered, to tell a late answerer who was first."""
ARGS_LIMIT: Final = 2_000_000
"""Characters of arguments that are sent to be edited; longer ones can only be edited in the calling process."""

Reply = Mapping[str, Any]


class OpenQuestion:
    """One question waiting for an answer."""

    def __init__(self, question: Question, session: Session) -> None:
        self.id = new_id("question")
        self.asked = time.time()
        self.timeout_s = session.settings.permissions.approval_timeout
        self.question = question
        self.otherwise: Answer | None = None
        """The approver's answer if it could ask nobody; it counts unless a follower answers."""
        self.dry_run = question.preview.dry_run.id if question.preview and question.preview.dry_run else ""
        """The id of the newest dry run made for it; empty if there is none."""
        self._session = session
        self._answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._trying = asyncio.Lock()
        self._tries: set[asyncio.Task[Any]] = set()
        if question.try_first is not None:
            self.question = replace_values(question, try_first=self.try_first)
        self._make_dry_run = question.try_first

    async def try_first(self) -> Preview | None:
        """Repeat the dry run of the call; one at a time for all followers."""
        assert self._make_dry_run is not None
        async with self._trying:
            shown = await self._make_dry_run()
            self.dry_run = shown.dry_run.id if shown is not None and shown.dry_run is not None else ""
            return shown

    async def try_for(self) -> Preview | None:
        """Make a dry run for a follower; cancelled when the question closes."""
        task = asyncio.create_task(self.try_first())
        self._tries.add(task)
        task.add_done_callback(self._tries.discard)
        return await task

    def give(self, answer: Answer) -> None:
        """Answer it; the first answer counts."""
        if not self._answer.done():
            self._answer.set_result(answer)

    async def wait(
        self, approver: Approver, *, reachable: bool, has_answerers: Callable[[], bool], tell: Callable[[str], None]
    ) -> Answer:
        """Return the first answer, of the approver or by the channel; call `tell` if only the channel is left."""
        if not reachable:
            return await ask_approver(approver, self.question, self.timeout_s)
        asking = asyncio.create_task(ask_approver(approver, self.question, self.timeout_s))
        try:
            await asyncio.wait({asking, self._answer}, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                said = asking.result()
                if not (said.unasked and has_answerers()):
                    return said
                tell(self.id)
                return await self._wait_for_others(said)
            answer = self._answer.result()
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        if (withdraw := getattr(approver, "withdraw", None)) is not None:
            withdraw(self.question, answer)
        return answer

    async def _wait_for_others(self, otherwise: Answer) -> Answer:
        self.otherwise = otherwise
        try:
            async with asyncio.timeout(self.timeout_s):
                return await self._answer
        except TimeoutError:
            return Answer("no", f"nobody answered within {self.timeout_s:g} s")

    async def close(self) -> None:
        """Cancel dry runs still being made for it, which would leave their copies behind."""
        for task in list(self._tries):
            task.cancel()
        if self._tries:
            await asyncio.gather(*self._tries, return_exceptions=True)

    def to_dict(self) -> dict[str, Any]:
        """Return everything a person needs to judge the call, exactly as it would run: nothing is masked."""
        question, session = self.question, self._session
        decision, preview = question.decision, question.preview
        return {
            "id": self.id,
            "digest": question.digest,
            "session_id": session.id,
            "root": session.main.id,
            "workspace": session.workspace,
            "call_id": question.call.id,
            "tool": question.tool,
            "args": _sendable(question.call.shown_args),
            "text": question.text(),
            "reason": decision.reason,
            "arguments": question.arguments_text(),
            "effects": _describe_effects(decision),
            "rules": decision.to_dict()["rules"],
            "suggestion": decision.suggestion,
            "source": question.call.source,
            "agent": question.agent,
            "cwd": question.cwd,
            "origins": list(question.origins),
            "asked": self.asked,
            "expires": self.asked + self.timeout_s,
            "can_try": question.try_first is not None,
            **describe_preview(preview),
        }


def describe_preview(preview: Preview | None) -> dict[str, Any]:
    """Return a preview's text and diff, printable, and the id of its dry run."""
    if preview is None:
        return {"preview": "", "diff": "", "dry_run": ""}
    dry_run = preview.dry_run.id if preview.dry_run is not None else ""
    return {"preview": printable(preview.text), "diff": printable(preview.diff), "dry_run": dry_run}


def _describe_effects(decision: Decision) -> list[dict[str, str]]:
    judged = [each for each in decision.judged if each.effect is not None]
    lines = [(effect_line(cast("Effect", each.effect)), each.verdict, each.reason) for each in judged]
    return [{"text": text, "verdict": verdict, "why": why} for text, verdict, why in dict.fromkeys(lines)]


def _sendable(args: Mapping[str, Any]) -> Any:
    text = json.dumps(args, ensure_ascii=False, default=str)
    return json.loads(text) if len(text) <= ARGS_LIMIT else None


class OpenQuestions:
    """The open questions of one application, and the channel's requests about them."""

    def __init__(self) -> None:
        self.reachable = False
        """Whether other processes can reach the application."""
        self.has_answerers: Callable[[], bool] = lambda: False
        """Whether a follower that answers questions is connected."""
        self.tell: Callable[[str, Question], None] = lambda id, question: None
        """Called with a question that only another process can answer, to tell the waiting user."""
        self._open: dict[str, OpenQuestion] = {}
        self._answered: OrderedDict[str, dict[str, Any]] = OrderedDict()

    def has_nobody(self, approver: Approver) -> bool:
        """Whether neither the approver nor a follower can answer."""
        return isinstance(approver, Nobody) and not self.has_answerers()

    @contextmanager
    def put_up(self, question: Question, session: Session) -> Generator[OpenQuestion]:
        """Keep a question open while inside."""
        waiting = OpenQuestion(question, session)
        self._open[waiting.id] = waiting
        try:
            yield waiting
        finally:
            del self._open[waiting.id]

    async def wait(self, waiting: OpenQuestion, approver: Approver) -> Answer:
        """Return the first answer to an open question."""
        return await waiting.wait(
            approver,
            reachable=self.reachable,
            has_answerers=self.has_answerers,
            tell=lambda id: self.tell(id, waiting.question),
        )

    def note_answer(self, waiting: OpenQuestion, answer: Answer, by: str) -> None:
        """Remember an answer and who gave it, to tell a late answerer."""
        self._answered[waiting.id] = {"answer": answer.kind, "by": by, "reason": answer.reason, "at": time.time()}
        while len(self._answered) > ANSWERED_LIMIT:
            self._answered.popitem(last=False)

    def lose_answerers(self) -> None:
        """Answer no to questions that waited only for followers, which have all disconnected."""
        for waiting in list(self._open.values()):
            if waiting.otherwise is not None:
                waiting.give(
                    replace_values(waiting.otherwise, reason=f"{waiting.otherwise.reason}; the console was closed")
                )

    # -- requests by the channel ---------------------------------------------------------------------------------------

    @property
    def requests(self) -> dict[str, Callable[[Mapping[str, Any]], Awaitable[Reply]]]:
        """Request handlers by name."""
        return {"questions": self._list, "answer": self._take_answer, "try": self._try}

    async def _list(self, request: Mapping[str, Any]) -> Reply:
        del request
        return {"questions": [each.to_dict() for each in self._open.values()]}

    def _find(self, request: Mapping[str, Any]) -> OpenQuestion | Reply:
        """Return the open question of a request, or the error reply if it is answered, closed or changed."""
        id = str(request.get("id"))
        if answered := self._answered.get(id):
            by = f" by {answered['by']}" if answered["by"] else ""
            return {"error": f"it was answered already{by}: {answered['answer']}", "hint": "", "answered": answered}
        waiting = self._open.get(id)
        if waiting is None:
            return {"error": "this question is no longer waiting for an answer", "hint": ""}
        if request.get("digest") != waiting.question.digest:
            return {"error": "what waits is not what was shown", "hint": "Look at the question again."}
        return waiting

    async def _take_answer(self, request: Mapping[str, Any]) -> Reply:
        waiting = self._find(request)
        if not isinstance(waiting, OpenQuestion):
            return waiting
        given: Any = request.get("answer")
        if not isinstance(given, dict):
            return {"error": "there is no answer in the request", "hint": ""}
        answer = Answer.from_dict(cast("dict[str, Any]", given))
        if problem := _answer_problem(waiting, answer, cast("dict[str, Any]", given)):
            return {"error": problem, "hint": ""}
        by = str(request.get("by") or "another process")[:200]
        waiting.give(replace_values(answer, by=by))
        return {"ok": True, "id": waiting.id, "answer": answer.kind, "by": by}

    async def _try(self, request: Mapping[str, Any]) -> Reply:
        waiting = self._find(request)
        if not isinstance(waiting, OpenQuestion):
            return waiting
        if waiting.question.try_first is None:
            return {"error": f"{waiting.question.tool} has no dry run", "hint": ""}
        try:
            shown = await waiting.try_for()
        except ToolFailure as failure:
            return {"error": f"a dry run was not possible: {failure.message}", "hint": failure.hint}
        return {"id": waiting.id, **describe_preview(shown)}


def _answer_problem(waiting: OpenQuestion, answer: Answer, given: Mapping[str, Any]) -> str:
    """Return what is wrong with an answer; empty if it is valid."""
    if answer.kind != given.get("kind"):
        return answer.reason
    if answer.args is not None and not isinstance(answer.args, dict):
        return "arguments are an object"
    if answer.dry_run and answer.dry_run != waiting.dry_run:
        return "a newer dry run was made since: look at what the newest dry run shows"
    if answer.kind not in ("session", "always"):
        return ""
    rules = answer.rule if answer.rule is not None else waiting.question.decision.suggestion
    if not rules or not rules.strip():
        return "there is no rule to remember for this call; allow it once"
    try:
        for line in rules.splitlines():
            parse_rule("allow", line)
    except RuleError as problem:
        return str(problem)
    return ""
