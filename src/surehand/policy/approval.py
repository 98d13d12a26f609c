"""Who answers when a call needs permission, and how an answer is remembered.

Nobody to ask means no; an approver that hangs or fails means no.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from surehand.policy.question import Answer, AnswerKind, Approver, Question, digest

if TYPE_CHECKING:
    from surehand.policy.mailbox import Mailbox
    from surehand.policy.terminal import Terminal

__all__ = [
    "Answer",
    "AnswerFunction",
    "AnswerKind",
    "Approver",
    "Callback",
    "First",
    "Mailbox",
    "Nobody",
    "Question",
    "Terminal",
    "approver_of",
    "digest",
    "remember",
    "settled",
]


_ELSEWHERE = {"Mailbox": "surehand.policy.mailbox", "Terminal": "surehand.policy.terminal"}


def __getattr__(name: str) -> Any:
    """Import an approver when it is asked for: a call that nobody asks about pays for none."""
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_ELSEWHERE[name]), name)


def remember(rules: str) -> None:
    """Add allow rules, one a line, to the user's settings file."""
    from surehand.policy import remembering

    remembering.remember(rules)


class Nobody:
    """There is nobody to ask, and that means no; `instead` says what would help."""

    def __init__(self, instead: str = "") -> None:
        self.reason = "there is nobody here to ask" + (f"; {instead}" if instead else "")

    async def ask(self, question: Question) -> Answer:
        """Say no: nobody is there."""
        del question
        return Answer("no", self.reason)


AnswerFunction: TypeAlias = Callable[[Question], Answer | str | bool | Awaitable[Answer | str | bool]]
"""A function that answers: plain or async, with an Answer, its kind, or a plain yes or no."""


def approver_of(answers: Approver | AnswerFunction) -> Approver:
    """Return who answers: an approver as it is, a function as one."""
    return cast("Approver", answers) if hasattr(answers, "ask") else Callback(cast("AnswerFunction", answers))


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
    """Several may answer; the first answer counts, the others are told no more."""

    def __init__(self, *approvers: Approver) -> None:
        self.approvers = approvers

    async def ask(self, question: Question) -> Answer:
        """Ask everyone at once, and take the first answer."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(settled(each, question)) for each in self.approvers]
            if not tasks:
                return Answer("no", "there is nobody here to ask")
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
        return next(iter(done)).result()


async def settled(approver: Approver, question: Question, timeout_s: float | None = None) -> Answer:
    """Return the approver's answer; one that hangs or fails has said no."""
    try:
        async with asyncio.timeout(timeout_s):
            return await approver.ask(question)
    except TimeoutError:
        return Answer("no", f"nobody answered within {timeout_s:g} s" if timeout_s else "nobody answered in time")
    except Exception as problem:  # an approver may be anybody's code, and its failure is no permission
        return Answer("no", f"the approver failed: {type(problem).__name__}: {problem}")
