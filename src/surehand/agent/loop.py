"""The loop: the model speaks, its calls go through the door, the results go back, until it answers or a limit is met.

Everything it says and gets is a message event, so the journal of a session is the session: `agent.transcript`
reads it back. The loop asks nobody and decides nothing about permission; the door does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from time import monotonic

from surehand.agent.answering import answered, taken_over
from surehand.agent.compaction import Room
from surehand.agent.foreign import marked
from surehand.agent.outcome import Limits, Outcome, Spent
from surehand.agent.rewind import PROMPT_SHOWN
from surehand.agent.speaking import speak
from surehand.agent.transcript import Transcript
from surehand.core.call import ToolCall, ToolResult
from surehand.core.model import Message, Model, ModelError, ModelRequest, Prompt, Turn, Usage, user_message
from surehand.core.session import Session
from surehand.core.view import Selection
from surehand.engine.executor import Executor

__all__ = ["Limits", "Loop", "Outcome"]


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
        """Whether a turn is under way."""
        self.outcome = Outcome()
        """What came of the latest question so far; whole also when it was interrupted."""
        self._room = Room()
        self._spent = spent
        self._unsettled: Mapping[int, ToolResult] | None = None
        self.restart(transcript or Transcript())
        self._on_text: Callable[[str], None] = on_text or (lambda text: None)

    def restart(self, transcript: Transcript) -> None:
        """Go on from a transcript, as a rewind leaves it."""
        self.messages, self._unsettled = list(transcript.messages), transcript.settled

    async def ask(self, prompt: Prompt) -> Outcome:
        """Put one question and go on until the model answers or a limit is met: one turn of the session.

        A prompt is text, a message, or content blocks (text and images).
        """
        message = user_message(prompt)
        outcome = self.outcome = Outcome(stop="interrupted", spent=self._spent or Spent())
        if self.session.agents is not None:
            self.session.agents.spent = outcome.spent
        limit = asyncio.timeout(self.limits.seconds)
        self.busy = True
        try:
            async with limit:
                await self._settle()
                self.session.emit("turn_started", turn=self.session.begin_turn(), prompt=message.text[:PROMPT_SHOWN])
                self._say(replace(message, text=self._with_notices(message.text)))
                await self._take_turns(outcome)
        except TimeoutError:
            if not limit.expired():
                raise
            outcome.stop = "time_limit"
        finally:
            self.session.end_turn()
            self.busy = False
        return outcome

    async def converse(self, prompts: AsyncIterator[Prompt]) -> AsyncIterator[Outcome]:
        """Take questions from a stream, one after the other, and yield what came of each."""
        async for prompt in prompts:
            yield await self.ask(prompt)

    async def _take_turns(self, outcome: Outcome) -> None:
        started = monotonic()
        while True:
            if reached := self.limits.reached(outcome, monotonic() - started):
                outcome.stop = reached
                return
            turn = await self._turn()
            message = taken_over(turn.message, self.messages, self.selection)
            outcome.turns += 1
            outcome.usage += turn.usage
            outcome.spent.usage += turn.usage
            outcome.text = message.text
            self._say(message, turn.usage)
            if not message.calls:
                outcome.stop = "empty" if turn.stop == "end" and not message.text.strip() else turn.stop
                return
            await self._answer(message.calls, {})

    async def _settle(self) -> None:
        """Answer the calls of a turn that a crash interrupted: those that began are not made again."""
        if self._unsettled is None:
            return
        known, self._unsettled = self._unsettled, None
        calls = self.messages[-1].calls
        if began := ", ".join(call.name for position, call in enumerate(calls) if position in known):
            told = f"the session was interrupted in {began}; what had begun is not made again, and the model is told so"
            self.session.emit("note", message=told)
        await self._answer(calls, known)

    async def _answer(self, calls: Sequence[ToolCall], known: Mapping[int, ToolResult]) -> None:
        """Have a turn's calls answered, and say what came of them."""
        results, stopped_by = await answered(calls, known, self.executor, self.session, self.selection)
        self.outcome.calls += calls
        self.outcome.results += results
        self._say(Message("tool", self._with_notices(""), results=tuple(map(marked, results))))
        if stopped_by is not None:
            raise stopped_by

    async def _turn(self) -> Turn:
        tools = self.selection.active_tools() if self.selection is not None else []
        self.messages, dropped = self._room.compacted(self.messages, self.system, tools, self.model.context_tokens)
        if dropped:
            self.session.emit("note", message=dropped)
        request = ModelRequest(self.system, tuple(self.messages), tools, self.limits.max_tokens)
        spoken: list[str] = []

        def heard(text: str) -> None:
            spoken.append(text)
            self._on_text(text)

        try:
            return await speak(self.model, request, heard, lambda wait: self.session.emit("note", message=wait))
        except (ModelError, asyncio.CancelledError):
            if text := "".join(spoken).strip():  # the user has seen it, and may speak of it
                self.outcome.text = text
                self._say(Message("assistant", f"{text} [broken off here]"))
            raise

    def _say(self, message: Message, usage: Usage | None = None) -> None:
        self.messages.append(message)
        self.session.emit("message", message=message, usage=usage)

    def _with_notices(self, text: str) -> str:
        told, self.session.notices = "\n\n".join(self.session.notices), []
        return f"{told}\n\n{text}".strip() if told else text
