"""Calls of MCP clients, each on its way: what it reports while it runs, and what it asks the client.

The two eras of the protocol ask differently. Up to 2025-11-25 the server sends a request of its own and waits; from
2026-07-28 on, the answer to the call is "input required", and the client calls again with what it was asked for. Here
both are one thing: the call stops, its question is sent to the client, and the call continues.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from surehand.core.errors import ToolFailure
from surehand.core.events import Progress
from surehand.policy.approvals import Answer, Question

REPORTS_LIMIT: Final = 200
"""Reports that may wait for a slow client; older ones are dropped."""

LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
LEVELS: Final[tuple[LogLevel, ...]] = (
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
)


NEEDED: Final[Mapping[str, str]] = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
"""What a client must offer to be asked, by request."""


class Log(NamedTuple):
    """A message for the client's log."""

    level: LogLevel
    data: Any
    logger: str = "surehand"


@dataclass(eq=False, slots=True)
class Asked:
    """A question on its way to the client: a request in the protocol's words, and the place for its answer."""

    method: str
    params: Mapping[str, Any]
    answer: asyncio.Future[Mapping[str, Any]]
    key: str = ""
    """What the question is called, for those who look at the wire; otherwise a number."""


@dataclass(eq=False, slots=True)
class ClientCall:
    """A call that a client made. Handlers reach it by `current()`, to ask the client or to write to its log."""

    name: str
    args: Mapping[str, Any]
    capabilities: Mapping[str, Any]
    """What the client says it can do, in the protocol's words."""
    task: asyncio.Task[Any] | None = None
    close_stream: Callable[[], Awaitable[None]] | None = None
    """Ends the HTTP stream of the call early; the client comes back for the rest."""
    request_id: Any = None
    """What the client calls its request, in the older protocol unique in its session."""
    lacking: str = ""
    """What the call wanted of the client and the client does not offer."""
    reports: deque[Progress | Log] = field(default_factory=lambda: deque(maxlen=REPORTS_LIMIT))
    questions: list[Asked] = field(default_factory=list[Asked])
    _attention: asyncio.Future[None] | None = None
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _thread: int = field(default_factory=threading.get_ident)

    @property
    def done(self) -> bool:
        """Whether the call has ended."""
        return self.task is not None and self.task.done()

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run the call's work in a task of its own, in which this call is the current one."""

        async def run() -> Any:
            _CURRENT.set(self)
            return await work

        # A task of its own: the SDK's cancellation comes again and again, and would break into the clean-up.
        self.task = asyncio.get_running_loop().create_task(run())
        self.task.add_done_callback(lambda _: self.notify())

    def notify(self) -> None:
        """Wake the task that sends reports and questions to the client."""
        if self._attention is not None and not self._attention.done():
            self._attention.set_result(None)

    async def attention(self) -> None:
        """Return when there is something for the client: a report, a question, or the result."""
        if self.done or self.reports or self.questions:
            return
        self._attention = asyncio.get_running_loop().create_future()
        await self._attention

    def report(self, what: Progress | Log) -> None:
        """Queue a message for the client; safe from any thread."""
        self.reports.append(what)
        if threading.get_ident() == self._thread:
            self.notify()
        else:
            self._loop.call_soon_threadsafe(self.notify)

    def log(self, level: LogLevel, data: Any, logger: str = "surehand") -> None:
        """Write to the client's log, where the client wants one."""
        self.report(Log(level, data, logger))

    async def ask(self, method: str, params: Mapping[str, Any], *, key: str = "") -> Mapping[str, Any]:
        """Send a request to the client and return its result; raise ToolFailure where it cannot be asked."""
        capability = NEEDED[method]
        if capability not in self.capabilities:
            self.lacking = capability
            raise ToolFailure(f"this client cannot be asked: it does not support {capability}", code="tool_unavailable")
        if self.done:
            raise ToolFailure("the call has ended, and its client can no longer be asked", code="tool_unavailable")
        asked = Asked(method, params, asyncio.get_running_loop().create_future(), key)
        self.questions.append(asked)
        self.notify()
        try:
            return await asked.answer
        finally:
            if asked in self.questions:
                self.questions.remove(asked)

    async def elicit(self, message: str, schema: Mapping[str, Any], *, key: str = "") -> Mapping[str, Any]:
        """Ask the client's user to fill in a form; the result has `action` and, when accepted, `content`."""
        params = {"mode": "form", "message": message, "requestedSchema": dict(schema)}
        return await self.ask("elicitation/create", params, key=key)

    async def sample(self, text: str, *, max_tokens: int = 1000, key: str = "") -> Mapping[str, Any]:
        """Ask the client's model; the result has `role`, `content` and `model`."""
        messages = [{"role": "user", "content": {"type": "text", "text": text}}]
        return await self.ask("sampling/createMessage", {"messages": messages, "maxTokens": max_tokens}, key=key)

    async def roots(self, *, key: str = "") -> Mapping[str, Any]:
        """Ask the client for its folders; the result has `roots`."""
        return await self.ask("roots/list", {}, key=key)


_CURRENT: Final[ContextVar[ClientCall | None]] = ContextVar("surehand_client_call", default=None)


def current() -> ClientCall | None:
    """Return the client's call that this code runs for; None outside of one."""
    return _CURRENT.get()


_ANSWERS: Final = {
    "once": "Allow once",
    "session": "Allow for this session",
    "always": "Always allow",
    "no": "Do not allow",
}
FORM: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "answer": {
            "type": "string",
            "title": "May this run?",
            "oneOf": [{"const": kind, "title": title} for kind, title in _ANSWERS.items()],
        },
        "reason": {"type": "string", "title": "A reason for the model, when you refuse"},
    },
    "required": ["answer"],
}
_NOT_OFFERED: Final = (
    "this client cannot be asked (it offers no elicitation); start the server with a rule that allows it (`--allow`), "
    "or with `--approvals mailbox` to answer from a terminal"
)


class AsksClient:
    """The approver of a client's session: the client's own user answers."""

    async def ask(self, question: Question) -> Answer:
        """Have the client's user answer a question."""
        call = current()
        if call is None or call.done:
            said = "the call that started this has ended, and its client can no longer be asked"
            return Answer("no", said, unasked=True)
        if "elicitation" not in call.capabilities:
            return Answer("no", _NOT_OFFERED, unasked=True)
        return answer_of(await call.elicit(question.text(), FORM))


def answer_of(result: Mapping[str, Any]) -> Answer:
    """Return the answer in a filled-in form; anything but a plain yes is a no."""
    action = result.get("action")
    if action != "accept":
        return Answer("no", "the user declined" if action == "decline" else "the user gave no answer")
    content: Any = result.get("content")
    if not isinstance(content, Mapping):
        return Answer("no", "the client accepted without an answer")
    return Answer.from_dict({"kind": content.get("answer"), "reason": content.get("reason")})  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
