"""Approvers: who answers when a call needs permission.

Nobody to ask means no; an approver that hangs or fails means no.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeAlias, cast

from surehand.policy.approvals.question import Answer, Approver, Question


class Nobody:
    """There is nobody to ask, and that means no; `instead` says what would help."""

    def __init__(self, instead: str = "") -> None:
        self.reason = "nobody can be asked here" + (f"; {instead}" if instead else "")

    async def ask(self, question: Question) -> Answer:
        """Say no: nobody is there."""
        del question
        return Answer("no", self.reason, unasked=True)


AnswerFunction: TypeAlias = Callable[[Question], Answer | str | bool | Awaitable[Answer | str | bool]]
"""A function that answers: plain or async, with an Answer, its kind, or a plain yes or no."""


def approver_of(answers: Approver | AnswerFunction) -> Approver:
    """Wrap a plain function as an Approver; an approver stays as it is."""
    if hasattr(answers, "ask"):
        return cast("Approver", answers)
    if not callable(answers):
        raise TypeError(f"an approver is a function of the question, or has `async def ask(question)`; not {answers!r}")
    return Callback(answers)


class Callback:
    """A function answers: plain or async, with an Answer, its kind, or a plain yes or no."""

    def __init__(self, function: AnswerFunction) -> None:
        self.function = function

    async def ask(self, question: Question) -> Answer:
        """Ask the function."""
        said = self.function(question)
        if inspect.isawaitable(said):
            said = await said
        if isinstance(said, Answer):
            return said
        if isinstance(said, bool):
            return Answer("once") if said else Answer("no")
        return Answer.from_dict({"kind": said})


class First:
    """Several may answer; the first answer counts, and the question is withdrawn from the others."""

    def __init__(self, *approvers: Approver) -> None:
        self.approvers = approvers

    async def ask(self, question: Question) -> Answer:
        """Ask everyone at once, and take the first answer."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ask_approver(each, question)) for each in self.approvers]
            if not tasks:
                return Answer("no", "nobody can be asked here")
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
        return next(iter(done)).result()

    def withdraw(self, question: Question, answer: Answer) -> None:
        """Notify the other approvers that one has answered."""
        for each in self.approvers:
            if (withdraw := getattr(each, "withdraw", None)) is not None:
                withdraw(question, answer)


async def ask_approver(approver: Approver, question: Question, timeout_s: float | None = None) -> Answer:
    """Return the approver's answer; one that hangs or fails has said no."""
    try:
        async with asyncio.timeout(timeout_s):
            answer: object = await approver.ask(question)
    except TimeoutError:
        return Answer("no", f"nobody answered within {timeout_s:g} s" if timeout_s else "nobody answered in time")
    except Exception as problem:  # an approver may be anybody's code, and its failure is no permission
        return Answer("no", f"the approver failed: {type(problem).__name__}: {problem}")
    return answer if isinstance(answer, Answer) else Answer("no", f"the approver gave {answer!r}, which is no Answer")
