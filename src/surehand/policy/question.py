"""What is asked and what is answered: the question as a person sees it, bound to exactly what would run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, Protocol

from surehand.core.call import ToolCall
from surehand.core.frozen import frozen
from surehand.core.tool import Preview
from surehand.policy.policy import Decision

AnswerKind = Literal["once", "session", "always", "no"]
SHOWN_LIMIT = 20_000


@frozen
class Question:
    """One call that needs permission, and all a person needs to judge it."""

    call: ToolCall
    tool: str
    decision: Decision
    preview: Preview | None
    digest: str
    origins: tuple[str, ...] = ()
    """Where text in this session came from; anything but the workspace may have put words into the model's mouth."""
    cwd: str = ""
    agent: str = ""
    """Which sub-agent asks; empty for the conversation itself."""
    try_first: Callable[[], Awaitable[Preview | None]] | None = None
    """Runs the call on a copy and shows the difference, where that is possible but too costly to do unasked. What it
    returns has a `trial` whose id an answer may name."""

    def text(self) -> str:
        """Return exactly what a person is shown: no control or invisible character is left raw."""
        from surehand.policy.wording import question_text

        return question_text(self)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "call": self.call.to_dict(),
            "tool": self.tool,
            "decision": self.decision.to_dict(),
            "digest": self.digest,
            "origins": list(self.origins),
            "cwd": self.cwd,
            "agent": self.agent,
            "text": self.text(),
        }


@frozen
class Answer:
    """What the approver said. `args` are changed arguments, judged again; `rule` is what to remember instead of the
    suggestion.

    A yes to a call that was tried on a copy makes real what that showed, without running it again: `trial` names it,
    None is the one the question itself shows, and an empty text has the call run anew.
    """

    kind: AnswerKind
    reason: str = ""
    args: Mapping[str, Any] | None = None
    rule: str | None = None
    trial: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        shown: dict[str, Any] = {"kind": self.kind, "reason": self.reason, "rule": self.rule, "trial": self.trial}
        return shown | ({"args": dict(self.args)} if self.args is not None else {})

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Answer:
        """Return what plain data stands for."""
        if data.get("kind") not in ("once", "session", "always", "no"):
            return cls("no", f"the answer {data.get('kind')!r} is none of once, session, always, no")
        return cls(data["kind"], str(data.get("reason") or ""), data.get("args"), data.get("rule"), data.get("trial"))


class Approver(Protocol):
    """Whoever answers: a terminal, a console, a client, a function."""

    async def ask(self, question: Question) -> Answer:
        """Return the answer to a question."""
        ...


def digest(tool: str, version: str, args: Mapping[str, Any], cwd: str) -> str:
    """Return the digest an approval is bound to; anything that differs in what runs makes another one."""
    import hashlib
    import json

    facts = json.dumps([tool, version, args, cwd], sort_keys=True, ensure_ascii=True, default=repr)
    return hashlib.sha256(facts.encode()).hexdigest()
