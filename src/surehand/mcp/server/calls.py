"""Calls of MCP clients: what each reports and asks while it runs, and which tools are listed for a client.

The two eras of the protocol ask differently. Up to 2025-11-25 the server sends a request of its own and waits; from
2026-07-28 on, the call is answered "input required", and the client calls again with the answers. `ClientCall` hides
the difference: `ask` waits until there is an answer.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, NamedTuple, cast

from surehand.core.errors import ToolFailure
from surehand.core.events import Progress
from surehand.core.frozen import frozen
from surehand.core.tool import ToolInfo
from surehand.core.view import Selection
from surehand.mcp import convert
from surehand.policy.approval import Answer, Question

REPORTS_LIMIT: Final = 200
"""Reports queued for a slow client; older ones are dropped."""

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
"""The capability a client needs for each request of ours."""


class Log(NamedTuple):
    """A message for the client's log."""

    level: LogLevel
    data: Any
    logger: str = "surehand"


@dataclass(eq=False, slots=True)
class Asked:
    """A request to the client, and the future of its answer."""

    method: str
    params: Mapping[str, Any]
    answer: asyncio.Future[Mapping[str, Any]]
    key: str = ""
    """Its name in `inputRequests`; a number if empty."""


@dataclass(eq=False, slots=True)
class ClientCall:
    """A call of a client. Handlers get it from `current()`, to ask the client or to write to its log."""

    name: str
    args: Mapping[str, Any]
    capabilities: Mapping[str, Any]
    """The client's capabilities, as the protocol names them."""
    task: asyncio.Task[Any] | None = None
    close_stream: Callable[[], Awaitable[None]] | None = None
    """Closes the HTTP stream of the call early; the client reconnects for the rest."""
    request_id: Any = None
    """The id of the client's request; in the older protocol unique in its session."""
    lacking: str = ""
    """A capability that the call needed and the client does not have."""
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
        """Run the call's work in a new task, in which this call is the current one."""

        async def run() -> Any:
            _CURRENT.set(self)
            try:
                return await work
            finally:
                self.notify()  # a turn of the event loop earlier than the callback below

        # A task of its own: the SDK cancels a request repeatedly, which would interrupt clean-up.
        self.task = asyncio.get_running_loop().create_task(run())
        self.task.add_done_callback(lambda _: self.notify())  # if cancelled before it began

    def notify(self) -> None:
        """Wake the task that sends reports and questions to the client."""
        if self._attention is not None and not self._attention.done():
            self._attention.set_result(None)

    async def attention(self) -> None:
        """Wait until there is something for the client: a report, a question, or the result."""
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
        """Send a log message to the client, if its log level admits it."""
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
    """Return the client's call that the current task works for; None outside of one."""
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
    """Return the answer of a submitted form; anything but a plain yes is a no."""
    action = result.get("action")
    if action != "accept":
        return Answer("no", "the user declined" if action == "decline" else "the user gave no answer")
    content: Any = result.get("content")
    if not isinstance(content, Mapping):
        return Answer("no", "the client accepted without an answer")
    return Answer.from_dict({"kind": content.get("answer"), "reason": content.get("reason")})  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]


# The listing of tools: which of them an MCP client is shown, with how much of their schemas.
#
# A model pays for every listed tool with each request, and most clients show it all that a server lists. So the listing
# is lean by default: the tools that nearly all work is done with. The rest can still be called by name, unless
# `--tools` names some.

LEAN_TOOLS: Final = (
    "Bash",
    "Read",
    "Edit",
    "MultiEdit",
    "Write",
    "Glob",
    "Grep",
    "WebFetch",
    "TaskCreate",
    "TaskList",
    "TaskUpdate",
    "TaskOutput",
    "TaskStop",
    "Undo",
)
"""The built-in tools of the lean listing; a test limits them to 10,000 bytes with their schemas."""
_RARE_ARGS: Final = {"Undo": frozenset({"turns", "to", "session", "all", "all_sessions"})}
"""Arguments that the lean listing leaves out: a client has no turns, and names no other sessions."""
_INSTEAD: Final = {"fs.read_file": "Read"}
"""Tools left out of the listing if a better one is listed, by name."""


@frozen
class Listing:
    """Which tools are listed. `allow`: the only ones that may be called. `unlisted`: callable, but not listed."""

    allow: tuple[str, ...] = ()
    unlisted: frozenset[str] = frozenset()
    lean: bool = False

    @classmethod
    def of(cls, words: Sequence[str], builtin: Iterable[str]) -> Listing:
        """Parse `--tools`: nothing, `all`, or names, globs and `core`."""
        if "all" in words:
            return cls()
        if not words:
            return cls(unlisted=frozenset(builtin) - frozenset(LEAN_TOOLS), lean=True)
        return cls(tuple(each for word in words for each in (LEAN_TOOLS if word == "core" else (word,))), lean=True)

    def infos(self, selection: Selection) -> list[ToolInfo]:
        """Return the tools listed for a client, without those that cannot work for it."""
        unlisted = frozenset[str]() if selection.allow else self.unlisted  # the user has chosen already
        infos = selection.infos()
        names = {info.name for info in infos}
        agents = selection.session is not None and selection.session.agents is not None
        left_out = {"ToolSearch", *(() if agents else ("Agent",))}
        left_out |= {name for name, better in _INSTEAD.items() if better in names}
        return [info for info in infos if info.name not in unlisted and info.name not in left_out]

    def shape(self, info: ToolInfo, name: str) -> dict[str, Any]:
        """Return a tool as `tools/list` shows it."""
        shape = convert.tool_shape(info, name)
        if self.lean and info.name in LEAN_TOOLS:
            shape["inputSchema"] = _shorten(shape["inputSchema"], _RARE_ARGS.get(info.name, frozenset()))
        return shape


_UNLISTED: Final = frozenset({"minLength", "maxLength", "minItems", "minimum", "maximum"})
"""Bounds that are enforced but not listed: models rarely exceed one, and a call that does fails with its reason."""


def _shorten(schema: Any, rare: frozenset[str] = frozenset(), *, named: bool = True) -> Any:
    """Return a schema without what a model does not need: bounds, defaults, `additionalProperties: false`.

    Items of an array (`named` is False) are the arguments of another listed tool, and are not described again.
    """
    if not isinstance(schema, dict):
        return schema
    short: dict[str, Any] = {}
    for key, value in cast("dict[str, Any]", schema).items():
        if key == "properties":
            short[key] = {name: _shorten(each, named=named) for name, each in value.items() if name not in rare}
        elif key == "items":
            short[key] = _shorten(value, named=False)
        elif key not in _UNLISTED and (key, value) != ("additionalProperties", False) and (key != "default" or value):
            short[key] = value
    return short if named else {key: value for key, value in short.items() if key != "description"}


# The gateway: the tools of other MCP servers, served beside Surehand's own.

NAME: Final = "surehand-gateway"
GATHER_S: Final = 10.0
"""How long a listing or a call waits for servers; tools that come later are announced by a notification."""

Gather = Callable[[Any], Coroutine[Any, Any, None]]
"""Connects an application to other servers, and registers their tools."""


def gathering(patterns: Sequence[str]) -> Gather | None:
    """Return a function that connects the servers whose names match a pattern; None without patterns."""
    return (lambda app: _gather(app, patterns)) if patterns else None


async def _gather(app: Any, patterns: Sequence[str]) -> None:
    known = len(app.warnings)
    servers = app.servers
    servers.introduced_as = NAME
    names = [name for name in servers.names() if any(fnmatchcase(name, pattern) for pattern in patterns)]
    problems = app.warnings[known:]  # naming the servers reads their configuration, which may be wrong
    problems += [f"no MCP server is called {each}" for each in patterns if not any(fnmatchcase(n, each) for n in names)]
    for name, why in (await servers.connect_all(names)).items():
        problems.append(f"the tools of {name} are not served: {why}")
    for problem in problems:
        app.session.emit("note", message=problem)


def is_gateway(ctx: Any) -> bool:
    """Return whether a request comes from another gateway."""
    stated = ctx.session.client_params
    return stated is not None and stated.client_info.name == NAME
