"""The agent loop: the model's calls are run and their results sent back, until it answers or a limit is reached.

Each message is an event in the session's journal, from which `agent.transcript` reads the conversation back. Permission
is the executor's business; the loop asks nobody.

Structured output (`OutputShape`) is an answer validated against a schema, and requested again if it does not fit. The
prompt contains the schema, which works with every provider; the answer is validated here, whatever a provider promises.
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
"""Waits before retries of an overloaded model; longer if its server says so."""
LONGEST_WAIT_S: Final = 60.0
"""Longest wait; if a server asks for a longer one, the request fails."""


@frozen
class Limits:
    """The limits at which a conversation stops."""

    turns: int = 50
    tokens: int | None = None
    seconds: float | None = None
    """For the whole answer: a call or a model that takes longer is cancelled."""
    cost: float | None = None
    prices: tuple[float, float] | None = None
    """Of a million tokens in and out. Tokens from the provider's cache count in full, so the cost is never too low."""
    estimate: Callable[[str, str, Usage], float | None] | None = None
    """Cost of a turn (provider, model, usage) by public prices, used without `prices`; None if it is unknown."""
    max_tokens: int = 8192

    def cost_of(self, usage: Usage) -> float | None:
        """Return the cost of tokens; None without prices."""
        return None if self.prices is None else usage.cost_at(self.prices)

    def find_reached(self, outcome: Outcome, elapsed_s: float) -> str | None:
        """Return the limit that forbids another turn, if any; what sub-agents spent counts."""
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
    """The cost of a question so far, with that of all sub-agents below, which share the object."""

    usage: Usage = field(default_factory=Usage)
    cost: float | None = 0.0
    """None once a turn's price is unknown."""
    estimated: bool = False
    """Whether a part of the cost is estimated by public prices."""

    def add(self, turn: Turn, model: Model, limits: Limits) -> None:
        """Add a turn. Each is priced by itself, since prices depend on a turn's size."""
        self.usage += turn.usage
        cost = limits.cost_of(turn.usage)
        if cost is None and limits.estimate is not None:
            cost = limits.estimate(model.provider, model.name, turn.usage)
            self.estimated = self.estimated or cost is not None
        self.cost = None if cost is None or self.cost is None else self.cost + cost

    def join(self, other: Spent) -> None:
        """Add the cost of another question."""
        self.usage += other.usage
        self.estimated = self.estimated or other.estimated
        self.cost = None if other.cost is None or self.cost is None else self.cost + other.cost


@dataclass(slots=True)
class Outcome:
    """The outcome of one question: the answer, the calls with their results, and why it ended."""

    text: str = ""
    calls: list[ToolCall] = field(default_factory=list[ToolCall])
    results: list[ToolResult] = field(default_factory=list[ToolResult])
    usage: Usage = field(default_factory=Usage)
    turns: int = 0
    stop: Stop | str = "end"
    spent: Spent = field(default_factory=Spent)
    value: Any = None
    """The parsed answer, if one of a given shape was requested."""
    problem: str = ""
    """Why the answer did not fit that shape."""

    @property
    def answered(self) -> bool:
        """Whether the model gave an answer."""
        return self.stop == "end"

    def join(self, later: Outcome) -> Outcome:
        """Return a later outcome of the same question, with the calls and usage of this one added."""
        later.calls, later.results = [*self.calls, *later.calls], [*self.results, *later.results]
        later.usage, later.turns = self.usage + later.usage, self.turns + later.turns
        if self.spent is not later.spent:
            later.spent.join(self.spent)
        return later


class Loop:
    """A conversation of a model in a session, with the session's tools."""

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
        """The outcome of the latest question so far; valid also if it was interrupted."""
        self._room = Room()
        self._spent = spent
        self._interrupted: Mapping[int, ToolResult] | None = None
        self.restart(transcript or Transcript())
        self._on_text: Callable[[str], None] = on_text or (lambda text: None)
        self._on_thought: Callable[[str], None] = on_thought or (lambda text: None)

    def restart(self, transcript: Transcript) -> None:
        """Continue from another transcript, as after a rewind."""
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
                self._add_message(replace(message, text=self._with_notices(message.text)))
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
        """Ask the questions of a stream one after the other, and yield their outcomes."""
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
            self._add_message(message, turn.usage)
            if not message.calls:
                outcome.stop = "empty" if turn.stop == "end" and not message.text.strip() else turn.stop
                return
            await self._answer(message.calls, {})
            if self.session.closed or self.executor.underway.closed:
                return  # closing: no call would run any more, and another turn costs tokens

    async def _answer_interrupted(self) -> None:
        """Answer the calls of a turn that a crash interrupted; those that had begun are not repeated."""
        if self._interrupted is None:
            return
        known, self._interrupted = self._interrupted, None
        calls = self.messages[-1].calls
        if began := ", ".join(call.name for position, call in enumerate(calls) if position in known):
            note = (
                f"the session was interrupted in {began}; calls that had begun are not repeated; the model is told so"
            )
            self.session.emit("note", message=note)
        await self._answer(calls, known)

    async def _answer(self, calls: Sequence[ToolCall], known: Mapping[int, ToolResult]) -> None:
        """Run a turn's calls and record their results."""
        results, cancellation = await run_calls(calls, known, self.executor, self.session, self.selection)
        self.outcome.calls += calls
        self.outcome.results += results
        self._add_message(Message("tool", self._with_notices(""), results=tuple(map(mark_foreign_text, results))))
        if cancellation is not None:
            raise cancellation

    async def _compact(self, tools: Sequence[ToolInfo]) -> None:
        """Compact a conversation that nears the model's limit: drop the oldest results and exchanges, and summarize."""
        window = self.model.context_tokens
        compacted = self._room.compact(self.messages, self.system, tools, window)
        self.messages = compacted.messages
        if not compacted.report:
            return
        summary = await self._summarize(compacted.dropped) if compacted.dropped else ""
        if summary:
            self.messages.insert(0, summary_message(summary))
        replaced = "; a summary stands in its place" if summary else ""
        self.session.emit("note", message=f"{compacted.report}{replaced}")

    async def _summarize(self, dropped: Sequence[Message]) -> str:
        """Return the model's summary of dropped exchanges; empty if that fails, which must not end the conversation."""
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
        await self._compact(tools)
        request = ModelRequest(self.system, tuple(self.messages), tools, self.limits.max_tokens)
        streamed: list[str] = []

        def on_piece(piece: Delta) -> None:
            if isinstance(piece, ThoughtDelta):
                self._on_thought(piece.text)
                return
            streamed.append(piece.text)
            self._on_text(piece.text)

        try:
            return await request_turn(
                self.model, request, on_piece, lambda wait: self.session.emit("note", message=wait)
            )
        except (ModelError, asyncio.CancelledError):
            if text := "".join(streamed).strip():  # the user has seen it, and may refer to it
                self.outcome.text = text
                self._add_message(Message("assistant", f"{text} [broken off here]"))
            raise

    def _add_message(self, message: Message, usage: Usage | None = None) -> None:
        self.messages.append(message)
        model = {} if usage is None else {"model": f"{self.model.provider}/{self.model.name}"}
        self.session.emit("message", message=message, usage=usage, **model)

    def _with_notices(self, text: str) -> str:
        notices, self.session.notices = "\n\n".join(self.session.notices), []
        return f"{notices}\n\n{text}".strip() if notices else text


def normalize_calls(message: Message, before: Iterable[Message], selection: Selection | None) -> Message:
    """Return a model's message with unique call ids and the registered names of tools.

    Models repeat ids, which providers refuse in a later request; and they call a deferred tool by the name that a
    provider accepts, which may differ.
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
    """Run calls, except those with a known result; return all results by position, and the cancellation if any.

    Cancelled calls get a result too: providers refuse a call without one when the conversation continues.
    """
    if selection is None:
        return [no_tools_result(call) for call in calls], None
    results = dict(known)
    to_run = [position for position in range(len(calls)) if position not in results]
    cancellation: asyncio.CancelledError | None = None

    def record(finished: tuple[int, ToolResult]) -> None:
        results[to_run[finished[0]]] = finished[1]

    try:
        await run_each([calls[position] for position in to_run], executor, session, selection, record)
    except asyncio.CancelledError as cancelled:
        cancellation = cancelled
    return [results.get(position) or stopped_result(call) for position, call in enumerate(calls)], cancellation


def no_tools_result(call: ToolCall) -> ToolResult:
    """Answer a call in a conversation without tools."""
    problem = ToolError("tool_unavailable", f"{call.name} was called, but this conversation has no tools")
    return unanswered_result(call, problem)


def stopped_result(call: ToolCall) -> ToolResult:
    """Answer a call that was cancelled: by Ctrl-C, or by the time limit."""
    message = f"{call.name} was stopped before it ended; a part of it may have been done"
    return unanswered_result(call, ToolError("cancelled", message, LOOK_FIRST, {"interrupted": True}))


async def request_turn(
    model: Model, request: ModelRequest, on_piece: Callable[[Delta], None], on_wait: Callable[[str], None]
) -> Turn:
    """Return a model's turn, with retries; streamed pieces go to `on_piece`, the reasons for waits to `on_wait`."""
    for wait_s in (*RETRY_WAITS_S, None):
        streamed = False
        try:
            async for event in model.stream(request):
                if isinstance(event, Turn):
                    return event
                streamed = True
                on_piece(event)
            raise ModelError(f"{model.name} ended its stream without a turn", "Try again.", retryable=True)
        except ModelError as problem:
            # After a piece was streamed, a retry would stream it again.
            if not problem.retryable or streamed or wait_s is None or problem.after_s > LONGEST_WAIT_S:
                raise
            wait_s = max(wait_s, problem.after_s)
            on_wait(f"{problem.message}; trying again in {wait_s:g} s")
            await asyncio.sleep(wait_s)
    raise AssertionError("unreachable")


RETRIES: Final = 3
"""How often an answer that does not fit is requested again."""
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
        """Parse and validate an answer; raise ValueError with what does not fit."""
        value = _parse_json(text)
        faults: Any = islice(self._validator.iter_errors(value), FAULTS_TOLD)
        if lines := [f"at {_format_location(fault)}: {fault.message}" for fault in faults]:
            raise ValueError("\n".join(lines))
        return value if self._parse is None else self._parse(value)  # a pydantic error is a ValueError

    def extend_prompt(self, prompt: Prompt) -> Message:
        """Return the prompt with the schema added."""
        message = user_message(prompt)
        text = f"{message.text}\n\n{_WANTED}{json.dumps(self.schema, ensure_ascii=False)}"
        return Message("user", text, images=message.images)


async def ask_for(loop: Loop, prompt: Prompt, shape: OutputShape) -> Outcome:
    """Ask until an answer fits or the retries are used up; the outcome has its `value`, and the cost of all attempts.

    Its `stop` is `invalid_output` if no answer fits, or the limit that was reached first.
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


def _parse_json(text: str) -> Any:
    """Return the JSON value of an answer, which may be fenced."""
    for candidate in (text.strip(), *(found.strip() for found in _FENCED.findall(text))):
        try:
            return json.loads(candidate)
        except (ValueError, RecursionError):
            continue
    raise ValueError("the answer is not a JSON value")


def _format_location(fault: Any) -> str:
    return "/" + "/".join(map(str, fault.instance_path))
