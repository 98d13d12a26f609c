"""Approvals: what is asked about a call, who answers, and how an answer is remembered."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from surehand.policy.approvals.question import (
    Answer,
    AnswerFunction,
    AnswerKind,
    Approver,
    Callback,
    First,
    Nobody,
    Question,
    approver_of,
    ask_approver,
    digest,
)
from surehand.policy.rule_files import remember

if TYPE_CHECKING:
    from surehand.policy.approvals.mailbox import Mailbox
    from surehand.policy.approvals.terminal import Terminal

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
    "ask_approver",
    "digest",
    "remember",
]

_ELSEWHERE = {"Mailbox": "mailbox", "Terminal": "terminal"}


def __getattr__(name: str) -> Any:
    """Import an approver when it is asked for: a call that nobody asks about pays for none."""
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_ELSEWHERE[name]}"), name)
