"""The documented name of what a program that answers questions needs: `approval` is `surehand.policy.approvals`."""

from __future__ import annotations

from surehand.policy.approvals.mailbox import Mailbox
from surehand.policy.approvals.question import Answer, Approver, Callback, First, Nobody, Question
from surehand.policy.approvals.terminal import Terminal

__all__ = ["Answer", "Approver", "Callback", "First", "Mailbox", "Nobody", "Question", "Terminal"]
