"""The loop: the model speaks, its calls go through the door, the results go back, until it answers or a limit is met.

Everything it says and gets is a message event, so the journal of a session is the session: `agent.history` reads it
back. The loop asks nobody and decides nothing about permission; the door does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Final

from holdfast.agent.compaction import compacted
from holdfast.agent.foreign import marked
from holdfast.agent.history import Past
from holdfast.core.call import ToolCall, ToolError, ToolResult
from holdfast.core.frozen import frozen
from holdfast.core.model import BROKEN_ARGUMENTS, Message, Model, ModelError, ModelRequest, Stop, TextDelta, Turn, Usage
from holdfast.core.session import Session
from holdfast.core.view import Selection
from holdfast.engine.executor import Executor
from holdfast.engine.orchestrator import run_all

RETRY_WAITS_S: Final = (1.0, 4.0, 15.0)
"""Waits before trying an overloaded model again."""


@frozen
class Limits:
    """Where a conversation stops by itself."""

    turns: int = 50
    tokens: int | None = None
    seconds: float | None = None
    cost: float | None = None
    prices: tuple[float, float] | None = None
    """Of a million tokens in and out. Tokens read from the provider's cache count as full ones: never too little."""
    max_tokens: int = 8192

    def cost_of(self, usage: Usage) -> float | None:
        """Return what tokens cost, where prices are known."""
        if self.prices is None:
            return None
        return ((usage.total - usage.output_tokens) * self.prices[0] + usage.output_tokens * self.prices[1]) / 1e6


@dataclass(slots=True)
class Outcome:
    """What came of one question: the answer, every call with its result, and why it ended."""

    text: str = ""
    calls: list[ToolCall] = field(default_factory=list[ToolCall])
    results: list[ToolResult] = field(default_factory=list[ToolResult])
    usage: Usage = field(default_factory=Usage)
    turns: int = 0
    stop: Stop | str = "end"

    @property
    def answered(self) -> bool:
        return self.stop == "end"


class Loop:
    """One conversation of one model over one session's tools."""

    def __init__(
        self,
        model: Model,
        executor: Executor,
        session: Session,
        selection: Selection | None,
        *,
        system: str,
        limits: Limits | None = None,
        past: Past | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> None:
        self.model = model
        self.executor = executor
        self.session = session
        self.selection = selection
        self.system = system
        self.limits = limits or Limits()
        self.messages: list[Message] = list(past.messages) if past else []
        self._unsettled = past.settled if past else None
        self._on_text: Callable[[str], None] = on_text or _silent

    async def ask(self, text: str) -> Outcome:
        """Put one question and go on until the model answers or a limit is met."""
        await self._settle()
        self._say(Message("user", self._with_notices(text)))
        return await self.go_on()

    async def _settle(self) -> None:
        """Answer the calls of a turn that was interrupted: those that began are not made again."""
        if self._unsettled is None:
            return
        calls, known = self.messages[-1].calls, self._unsettled
        self._unsettled = None
        fresh = [position for position in range(len(calls)) if position not in known]
        made = await self.answer_calls([calls[position] for position in fresh])
        results = {**known, **dict(zip(fresh, made, strict=True))}
        self._say(Message("tool", results=tuple(results[position] for position in range(len(calls)))))

    async def converse(self, texts: AsyncIterator[str]) -> AsyncIterator[Outcome]:
        """Take questions from a stream, one after the other, and yield what came of each."""
        async for text in texts:
            yield await self.ask(text)

    async def go_on(self) -> Outcome:
        """Go on from where the messages end: a question, or results nobody has answered yet."""
        outcome, started = Outcome(), monotonic()
        while True:
            if reached := self._limit(outcome, started):
                outcome.stop = reached
                return outcome
            turn = self._named(await self._turn())
            outcome.turns += 1
            outcome.usage += turn.usage
            outcome.text, outcome.stop = turn.message.text, turn.stop
            self._say(turn.message)
            if not turn.message.calls:
                return outcome
            results = await self.answer_calls(turn.message.calls)
            outcome.calls += turn.message.calls
            outcome.results += results
            self._say(Message("tool", self._with_notices(""), results=tuple(map(marked, results))))

    async def answer_calls(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Run a turn's calls through the door; results by position, since models repeat ids."""
        results: dict[int, ToolResult] = {}
        sound = [(position, call) for position, call in enumerate(calls) if BROKEN_ARGUMENTS not in call.args]
        for position, call in enumerate(calls):
            if BROKEN_ARGUMENTS in call.args:
                results[position] = _broken(call)
        if self.selection is None:
            results |= {position: _no_tools(call) for position, call in sound}
        elif sound:
            wanted = [call for _, call in sound]
            async for position, result in run_all(wanted, self.executor, self.session, self.selection):
                results[sound[position][0]] = result
        return [results[position] for position in range(len(calls))]

    async def _turn(self) -> Turn:
        tools = self.selection.active_tools() if self.selection is not None else []
        self.messages, dropped = compacted(self.messages, self.system, tools, self.model.context_tokens)
        if dropped:
            self.session.emit("note", message=dropped)
        request = ModelRequest(self.system, tuple(self.messages), tools, self.limits.max_tokens)
        for wait_s in (*RETRY_WAITS_S, None):
            spoken = False
            try:
                async for event in self.model.stream(request):
                    if isinstance(event, TextDelta):
                        spoken = True
                        self._on_text(event.text)
                    else:
                        return event
                raise ModelError(f"{self.model.name} ended its stream without a turn", retryable=not spoken)
            except ModelError as problem:
                # Once a piece of the answer was shown, another try would show it twice.
                if not problem.retryable or spoken or wait_s is None:
                    raise
                self.session.emit("note", message=f"{problem.message}; trying again in {wait_s:g} s")
                await asyncio.sleep(wait_s)
        raise AssertionError("unreachable")

    def _named(self, turn: Turn) -> Turn:
        """Give calls their tools' own names: a deferred tool may be called by the name a provider once saw."""
        if self.selection is None or not turn.message.calls:
            return turn
        calls = tuple(replace(call, name=self.selection.real_name(call.name)) for call in turn.message.calls)
        return replace(turn, message=replace(turn.message, calls=calls))

    def _limit(self, outcome: Outcome, started: float) -> str | None:
        if outcome.turns >= self.limits.turns:
            return "turn_limit"
        if self.limits.tokens is not None and outcome.usage.total >= self.limits.tokens:
            return "token_limit"
        spent = self.limits.cost_of(outcome.usage)
        if self.limits.cost is not None and spent is not None and spent >= self.limits.cost:
            return "cost_limit"
        if self.limits.seconds is not None and monotonic() - started >= self.limits.seconds:
            return "time_limit"
        return None

    def _say(self, message: Message) -> None:
        self.messages.append(message)
        self.session.emit("message", message=message)

    def _with_notices(self, text: str) -> str:
        told, self.session.notices = "\n\n".join(self.session.notices), []
        return f"{told}\n\n{text}".strip() if told else text


def _silent(text: str) -> None:
    del text


def _broken(call: ToolCall) -> ToolResult:
    shown = str(call.args[BROKEN_ARGUMENTS])[:200]
    error = ToolError("invalid_args", f"the arguments of {call.name} are not JSON: {shown}", "Send one JSON object.")
    return ToolResult.failed(error).with_meta(tool=call.name, call_id=call.id)


def _no_tools(call: ToolCall) -> ToolResult:
    error = ToolError("tool_unavailable", f"{call.name} was called, but this conversation has no tools")
    return ToolResult.failed(error).with_meta(tool=call.name, call_id=call.id)
