"""What came of a question, and where a conversation stops by itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from surehand.core.call import ToolCall, ToolResult
from surehand.core.frozen import frozen
from surehand.core.model import Stop, Usage


@frozen
class Limits:
    """Where a conversation stops by itself."""

    turns: int = 50
    tokens: int | None = None
    seconds: float | None = None
    """Of the whole answer: a call or a model that takes longer is stopped in the middle."""
    cost: float | None = None
    prices: tuple[float, float] | None = None
    """Of a million tokens in and out. Tokens read from the provider's cache count as full ones: never too little."""
    max_tokens: int = 8192

    def cost_of(self, usage: Usage) -> float | None:
        """Return what tokens cost, where prices are known."""
        if self.prices is None:
            return None
        return ((usage.total - usage.output_tokens) * self.prices[0] + usage.output_tokens * self.prices[1]) / 1e6

    def reached(self, outcome: Outcome, elapsed_s: float) -> str | None:
        """Return which limit an answer has met before its next turn; what its sub-agents spend counts."""
        if outcome.turns >= self.turns:
            return "turn_limit"
        if self.tokens is not None and outcome.spent.usage.total >= self.tokens:
            return "token_limit"
        spent = self.cost_of(outcome.spent.usage)
        if self.cost is not None and spent is not None and spent >= self.cost:
            return "cost_limit"
        return "time_limit" if self.seconds is not None and elapsed_s >= self.seconds else None


@dataclass(slots=True)
class Spent:
    """What a question has cost so far: its own turns and those of every sub-agent below, which share it."""

    usage: Usage = field(default_factory=Usage)


@dataclass(slots=True)
class Outcome:
    """What came of one question: the answer, every call with its result, and why it ended."""

    text: str = ""
    calls: list[ToolCall] = field(default_factory=list[ToolCall])
    results: list[ToolResult] = field(default_factory=list[ToolResult])
    usage: Usage = field(default_factory=Usage)
    turns: int = 0
    stop: Stop | str = "end"
    spent: Spent = field(default_factory=Spent)

    @property
    def answered(self) -> bool:
        """Whether the model gave an answer."""
        return self.stop == "end"
