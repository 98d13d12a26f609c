"""The loop: the model speaks, its calls go through the door, the results go back, until it answers or a limit is met.

Everything it says and gets is a message event, so the journal of a session is the session: `agent.transcript`
reads it back. The loop asks nobody and decides nothing about permission; the door does.

Structured output (`OutputShape`) is an answer validated against a schema, and asked for again if it does not fit. The
prompt holds the schema, which every provider understands; the answer is validated here, whatever a provider promises.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, cast

from surehand.agent.prompt import mark_foreign_text
from surehand.agent.rewind import PROMPT_SHOWN
from surehand.agent.transcript import LOOK_FIRST, Room, Transcript, summary_message, summary_request, unanswered_result
from surehand.core.call import ToolCall, ToolError, ToolResult, new_id
from surehand.core.errors import SettingsError, ToolFailure
from surehand.core.frozen import frozen
from surehand.core.model import (
    Delta,
    Message,
    Model,
    ModelError,
    ModelRequest,
    Prompt,
    Stop,
    ThoughtDelta,
    Turn,
    Usage,
    user_message,
)
from surehand.core.schema import schema_problems, schema_validator
from surehand.core.session import Session
from surehand.core.tool import ToolInfo
from surehand.core.view import Selection
from surehand.engine.executor import Executor
from surehand.engine.orchestrator import run_each

if TYPE_CHECKING:
    from surehand.core.model import Prompt


__all__ = ["Limits", "Loop", "Outcome"]
RETRY_WAITS_S: Final = (1.0, 4.0, 15.0)
"""Waits before trying an overloaded model again, where its server does not ask for longer ones."""
LONGEST_WAIT_S: Final = 60.0
"""Longest wait; if a server asks for more, the request fails."""


@frozen
class Limits:
    """The limits at which a conversation stops."""

    turns: int = 50
    tokens: int | None = None
    seconds: float | None = None
    """Of the whole answer: a call or a model that takes longer is stopped in the middle."""
    cost: float | None = None
    prices: tuple[float, float] | None = None
    """Of a million tokens in and out. Tokens read from the provider's cache count as full ones: never too little."""
    estimate: Callable[[str, str, Usage], float | None] | None = None
    """What a turn of a provider's model costs by public prices, where `prices` says nothing; None if nobody knows."""
    max_tokens: int = 8192

    def cost_of(self, usage: Usage) -> float | None:
        """Return what tokens cost, where prices are known."""
        return None if self.prices is None else usage.cost_at(self.prices)

    def find_reached(self, outcome: Outcome, elapsed_s: float) -> str | None:
        """Return the limit reached before the next turn, if any; sub-agents' spending counts."""
        if outcome.turns >= self.turns:
            return "turn_limit"
        if self.tokens is not None and outcome.spent.usage.total >= self.tokens:
            return "token_limit"
        spent = outcome.spent.cost
        if self.cost is not None and spent is not None and spent >= self.cost:
            return "cost_limit"
        return "time_limit" if self.seconds is not None and elapsed_s >= self.seconds else None


@dataclass(slots=True)
class Spent:
    """What a question has cost so far: its own turns and those of every sub-agent below, which share it."""

    usage: Usage = field(default_factory=Usage)
    cost: float | None = 0.0
    """None once a turn's price is unknown."""
    estimated: bool = False
    """Whether a part of the cost is by public prices."""

    def add(self, turn: Turn, model: Model, limits: Limits) -> None:
        """Count a turn. Prices have steps, so that each turn is priced by itself."""
        self.usage += turn.usage
        cost = limits.cost_of(turn.usage)
        if cost is None and limits.estimate is not None:
            cost = limits.estimate(model.provider, model.name, turn.usage)
            self.estimated = self.estimated or cost is not None
        self.cost = None if cost is None or self.cost is None else self.cost + cost

    def join(self, other: Spent) -> None:
        """Add what another question has cost."""
        self.usage += other.usage
        self.estimated = self.estimated or other.estimated
        self.cost = None if other.cost is None or self.cost is None else self.cost + other.cost


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
    value: Any = None
    """What the answer holds, where one of a given shape was asked for."""
    problem: str = ""
    """Why an answer did not fit that shape."""

    @property
    def answered(self) -> bool:
        """Whether the model gave an answer."""
        return self.stop == "end"

    def join(self, later: Outcome) -> Outcome:
        """Return a later outcome of the same question, with what this one took before it."""
        later.calls, later.results = [*self.calls, *later.calls], [*self.results, *later.results]
        later.usage, later.turns = self.usage + later.usage, self.turns + later.turns
        if self.spent is not later.spent:
            later.spent.join(self.spent)
        return later


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
        transcript: Transcript | None = None,
        on_text: Callable[[str], None] | None = None,
        on_thought: Callable[[str], None] | None = None,
        spent: Spent | None = None,
    ) -> None:
        self.model = model
        self.executor = executor
        self.session = session
        self.selection = selection
        self.system = system
        self.limits = limits or Limits()
        self.messages: list[Message] = []
        self.busy = False
        """Whether a turn is still running."""
        self.outcome = Outcome()
        """What came of the latest question so far; whole also when it was interrupted."""
        self._room = Room()
        self._spent = spent
        self._interrupted: Mapping[int, ToolResult] | None = None
        self.restart(transcript or Transcript())
        self._on_text: Callable[[str], None] = on_text or (lambda text: None)
        self._on_thought: Callable[[str], None] = on_thought or (lambda text: None)

    def restart(self, transcript: Transcript) -> None:
        """Go on from a transcript, as a rewind leaves it."""
        self.messages, self._interrupted = list(transcript.messages), transcript.interrupted

    async def ask(self, prompt: Prompt) -> Outcome:
        """Ask one question and loop until the model answers or a limit is met: one turn of the session.

        A prompt is text, a message, or content blocks (text and images). Raises ToolFailure while the session answers
        another question.
        """
        self.session.refuse_if_closed()
        self.session.refuse_while_answering()
        message = user_message(prompt)
        outcome = self.outcome = Outcome(stop="interrupted", spent=self._spent or Spent())
        if self.session.agents is not None:
            self.session.agents.spent = outcome.spent
        limit = asyncio.timeout(self.limits.seconds)
        self.busy = self.session.is_answering = True
        try:
            async with limit:
                await self._answer_interrupted()
                self.session.emit("turn_started", turn=self.session.begin_turn(), prompt=message.text[:PROMPT_SHOWN])
                self._say(replace(message, text=self._with_notices(message.text)))
                await self._take_turns(outcome)
        except TimeoutError:
            if not limit.expired():
                raise
            outcome.stop = "time_limit"
        finally:
            self.session.end_turn()
            self.busy = self.session.is_answering = False
        return outcome

    async def converse(self, prompts: AsyncIterator[Prompt]) -> AsyncIterator[Outcome]:
        """Take questions from a stream, one after the other, and yield the outcome of each."""
        async for prompt in prompts:
            yield await self.ask(prompt)

    async def _take_turns(self, outcome: Outcome) -> None:
        started = monotonic()
        while True:
            if reached := self.limits.find_reached(outcome, monotonic() - started):
                outcome.stop = reached
                return
            turn = await self._turn()
            message = normalize_calls(turn.message, self.messages, self.selection)
            outcome.turns += 1
            outcome.usage += turn.usage
            outcome.spent.add(turn, self.model, self.limits)
            outcome.text = message.text
            self._say(message, turn.usage)
            if not message.calls:
                outcome.stop = "empty" if turn.stop == "end" and not message.text.strip() else turn.stop
                return
            await self._answer(message.calls, {})
            if self.session.closed or self.executor.underway.closed:
                return  # interrupted: no call would run, and asking the model costs tokens

    async def _answer_interrupted(self) -> None:
        """Answer the calls of a turn that a crash interrupted: those that began are not made again."""
        if self._interrupted is None:
            return
        known, self._interrupted = self._interrupted, None
        calls = self.messages[-1].calls
        if began := ", ".join(call.name for position, call in enumerate(calls) if position in known):
            told = (
                f"the session was interrupted in {began}; calls that had begun are not repeated; the model is told so"
            )
            self.session.emit("note", message=told)
        await self._answer(calls, known)

    async def _answer(self, calls: Sequence[ToolCall], known: Mapping[int, ToolResult]) -> None:
        """Run a turn's calls, and record their results."""
        results, stopped_by = await run_calls(calls, known, self.executor, self.session, self.selection)
        self.outcome.calls += calls
        self.outcome.results += results
        self._say(Message("tool", self._with_notices(""), results=tuple(map(mark_foreign_text, results))))
        if stopped_by is not None:
            raise stopped_by

    async def _make_room(self, tools: Sequence[ToolInfo]) -> None:
        """Drop the oldest exchanges where the conversation nears its model's limit; report and summarize them."""
        window = self.model.context_tokens
        compacted = self._room.compact(self.messages, self.system, tools, window)
        self.messages = compacted.messages
        if not compacted.said:
            return
        summary = await self._summarize(compacted.dropped) if compacted.dropped else ""
        if summary:
            self.messages.insert(0, summary_message(summary))
        stands = "; a summary stands in its place" if summary else ""
        self.session.emit("note", message=f"{compacted.said}{stands}")

    async def _summarize(self, dropped: Sequence[Message]) -> str:
        """Return a model's summary of dropped exchanges; empty if that fails, which must not end the conversation."""
        request = summary_request(dropped, self.model.context_tokens, self.limits.max_tokens)
        try:
            turn = await request_turn(self.model, request, lambda piece: None, lambda wait: None)
        except ModelError as problem:
            self.session.emit("note", message=f"what was dropped is not summed up: {problem.message}")
            return ""
        self.outcome.usage += turn.usage
        self.outcome.spent.add(turn, self.model, self.limits)
        return turn.message.text.strip()

    async def _turn(self) -> Turn:
        tools = self.selection.active_tools() if self.selection is not None else []
        await self._make_room(tools)
        request = ModelRequest(self.system, tuple(self.messages), tools, self.limits.max_tokens)
        spoken: list[str] = []

        def heard(piece: Delta) -> None:
            if isinstance(piece, ThoughtDelta):
                self._on_thought(piece.text)
                return
            spoken.append(piece.text)
            self._on_text(piece.text)

        try:
            return await request_turn(self.model, request, heard, lambda wait: self.session.emit("note", message=wait))
        except (ModelError, asyncio.CancelledError):
            if text := "".join(spoken).strip():  # the user has seen it, and may refer to it
                self.outcome.text = text
                self._say(Message("assistant", f"{text} [broken off here]"))
            raise

    def _say(self, message: Message, usage: Usage | None = None) -> None:
        self.messages.append(message)
        spoke = {} if usage is None else {"model": f"{self.model.provider}/{self.model.name}"}
        self.session.emit("message", message=message, usage=usage, **spoke)

    def _with_notices(self, text: str) -> str:
        told, self.session.notices = "\n\n".join(self.session.notices), []
        return f"{told}\n\n{text}".strip() if told else text


def normalize_calls(message: Message, before: Iterable[Message], selection: Selection | None) -> Message:
    """Return a model's message with unique call ids and the tools' registered names.

    Models repeat ids, which providers refuse when the conversation is sent back to them; and they call a deferred tool
    by the name a provider once saw.
    """
    if not message.calls:
        return message
    used = {call.id for earlier in before for call in earlier.calls}
    calls: list[ToolCall] = []
    for call in message.calls:
        id = new_id("call") if call.id in used else call.id
        used.add(id)
        calls.append(replace(call, id=id, name=selection.real_name(call.name) if selection else call.name))
    return replace(message, calls=tuple(calls))


async def run_calls(
    calls: Sequence[ToolCall],
    known: Mapping[int, ToolResult],
    executor: Executor,
    session: Session,
    selection: Selection | None,
) -> tuple[list[ToolResult], asyncio.CancelledError | None]:
    """Run calls through the door, but for those with a known result; return all results by position, and what stopped
    them if something did.

    What is stopped gets a result all the same: a conversation that goes on later must not hold a call without one.
    """
    if selection is None:
        return [no_tools_result(call) for call in calls], None
    results = dict(known)
    waiting = [position for position in range(len(calls)) if position not in results]
    stopped_by: asyncio.CancelledError | None = None

    def take(finished: tuple[int, ToolResult]) -> None:
        results[waiting[finished[0]]] = finished[1]

    try:
        await run_each([calls[position] for position in waiting], executor, session, selection, take)
    except asyncio.CancelledError as cancelled:
        stopped_by = cancelled
    return [results.get(position) or stopped_result(call) for position, call in enumerate(calls)], stopped_by


def no_tools_result(call: ToolCall) -> ToolResult:
    """Answer a call in a conversation without tools."""
    problem = ToolError("tool_unavailable", f"{call.name} was called, but this conversation has no tools")
    return unanswered_result(call, problem)


def stopped_result(call: ToolCall) -> ToolResult:
    """Answer a call that ended with its conversation: by Ctrl-C, or by a limit of time."""
    message = f"{call.name} was stopped before it ended; a part of it may have been done"
    return unanswered_result(call, ToolError("cancelled", message, LOOK_FIRST, {"interrupted": True}))


async def request_turn(
    model: Model, request: ModelRequest, on_piece: Callable[[Delta], None], on_wait: Callable[[str], None]
) -> Turn:
    """Return a model's turn; streamed pieces go to `on_piece`, reasons for waiting to `on_wait`."""
    for wait_s in (*RETRY_WAITS_S, None):
        spoken = False
        try:
            async for event in model.stream(request):
                if isinstance(event, Turn):
                    return event
                spoken = True
                on_piece(event)
            raise ModelError(f"{model.name} ended its stream without a turn", "Try again.", retryable=True)
        except ModelError as problem:
            # Once a piece of the answer was shown, another try would show it twice.
            if not problem.retryable or spoken or wait_s is None or problem.after_s > LONGEST_WAIT_S:
                raise
            wait_s = max(wait_s, problem.after_s)
            on_wait(f"{problem.message}; trying again in {wait_s:g} s")
            await asyncio.sleep(wait_s)
    raise AssertionError("unreachable")


RETRIES: Final = 3
"""How often an answer that does not fit is asked for again."""
FAULTS_TOLD: Final = 10
_FENCED: Final = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n?```", re.DOTALL)
_WANTED: Final = "Answer with one JSON value and nothing else, no words round it. It must fit this JSON Schema:\n"


class OutputShape:
    """The shape an answer must have. `shape` is a JSON Schema or a pydantic model (a class)."""

    def __init__(self, shape: Mapping[str, Any] | type[Any]) -> None:
        self._parse = None
        if isinstance(shape, Mapping):
            self.schema = dict(shape)
        elif hasattr(shape, "model_json_schema"):
            given = cast("Any", shape)
            self.schema, self._parse = cast("dict[str, Any]", given.model_json_schema()), given.model_validate
        else:
            raise SettingsError(f"an output is a JSON Schema or a pydantic model, not {shape!r}")
        if problems := schema_problems(self.schema, "output schema"):
            raise SettingsError("; ".join(problems))
        try:
            self._validator = schema_validator(self.schema)
        except ToolFailure as problem:
            raise SettingsError(problem.message) from None

    def read(self, text: str) -> Any:
        """Return the value an answer holds; raise ValueError that says what does not fit."""
        value = _json_of(text)
        faults: Any = islice(self._validator.iter_errors(value), FAULTS_TOLD)
        if told := [f"at {_format_location(fault)}: {fault.message}" for fault in faults]:
            raise ValueError("\n".join(told))
        return value if self._parse is None else self._parse(value)  # a pydantic error is a ValueError

    def extend_prompt(self, prompt: Prompt) -> Message:
        """Return the prompt with the schema its answer must have."""
        message = user_message(prompt)
        text = f"{message.text}\n\n{_WANTED}{json.dumps(self.schema, ensure_ascii=False)}"
        return Message("user", text, images=message.images)


async def ask_for(loop: Loop, prompt: Prompt, shape: OutputShape) -> Outcome:
    """Ask until the answer fits or the retries are spent; the outcome has its `value`, and all that it took.

    Where no answer fits, its `stop` is `invalid_output`; where a limit was met first, that limit.
    """
    outcome = await loop.ask(shape.extend_prompt(prompt))
    for left in reversed(range(RETRIES + 1)):
        if not outcome.answered:
            return outcome
        try:
            outcome.value = shape.read(outcome.text)
            return outcome
        except ValueError as problem:
            if not left:
                outcome.stop, outcome.problem = "invalid_output", str(problem)
                return outcome
            again = f"That does not fit the schema:\n{problem}\nAnswer again, with the JSON value alone."
        outcome = outcome.join(await loop.ask(again))
    return outcome


def _json_of(text: str) -> Any:
    """Return the JSON value of an answer, also where a model put it between fences."""
    for candidate in (text.strip(), *(found.strip() for found in _FENCED.findall(text))):
        try:
            return json.loads(candidate)
        except (ValueError, RecursionError):
            continue
    raise ValueError("the answer is not a JSON value")


def _format_location(fault: Any) -> str:
    return "/" + "/".join(map(str, fault.instance_path))
