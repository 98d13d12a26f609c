"""The decision on a request: the facts of one call, the verdict on each of its effects, the verdict on the whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from surehand.core.effects import Effect, describe
from surehand.core.frozen import frozen
from surehand.policy.rules import Rule, Verdict

if TYPE_CHECKING:
    from surehand.core.settings import Mode, ToolPermissionSettings

STRICTNESS: dict[Verdict, int] = {"allow": 0, "ask": 1, "deny": 2}


@frozen
class Request:
    """One call as facts: its tool, its effects, and its context."""

    tool: str
    aliases: tuple[str, ...]
    module: str
    read_only: bool
    needs_permission: bool
    level: int
    effects: Sequence[Effect] | None
    """None when nobody thought about it; never the same as an empty list."""
    workspace: str
    roots: tuple[str, ...]
    cwd: str
    mode: Mode
    grants: Sequence[str] = ()
    """Allow rules an approver gave for this session."""
    origins: frozenset[str] = frozenset()
    source: str = "user"
    tool_settings: ToolPermissionSettings | None = None
    confined: bool = False
    """Whether nothing outside the roots may be changed, whatever rules allow."""
    always_asks: bool = False
    """Whether the tool declares that it asks although it only reads."""
    leads: dict[str, str] | None = None
    """Where the judgement writes down the place each path was judged at, for the tool to go there."""

    @property
    def names(self) -> tuple[str, ...]:
        """Every name a rule may use for this tool."""
        if not self.module:
            return (self.tool, *self.aliases)
        full = self.tool if self.tool.startswith("mcp__") else f"mcp__{self.module}__{self.tool}"
        return (self.tool, *self.aliases, full, f"mcp__{self.module}")


@frozen
class MatchedRule:
    """A rule that matched some effect; `decided` when it is the reason for the verdict."""

    rule: Rule
    decided: bool

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return self.rule.to_dict() | {"decided": self.decided}


@frozen
class JudgedEffect:
    """The verdict on one effect; `effect` is None for the tool as a whole."""

    effect: Effect | None
    verdict: Verdict
    reason: str
    rules: tuple[Rule, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        shown = describe(self.effect) if self.effect is not None else {"kind": "tool"}
        shown.pop("implies", None)  # judged one by one, beside their command
        return shown | {"verdict": self.verdict, "why": self.reason}


@frozen
class Decision:
    """The verdict on a call, why, and every rule that had a say."""

    verdict: Verdict
    reason: str
    rules: tuple[MatchedRule, ...] = ()
    judged: tuple[JudgedEffect, ...] = ()
    suggestion: str | None = None
    """The narrowest sensible allow rules that would answer the question for good, one a line; None: there are none."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "decision": self.verdict,
            "reason": self.reason,
            "rules": [rule.to_dict() for rule in self.rules],
            "effects": [each.to_dict() for each in self.judged if each.effect is not None],
            "suggestion": self.suggestion,
        }
