"""`Toolbox`: what every framework's adapter shares, so that an adapter is only a translation.

Which tools a model is shown, running a call of it on the application's loop from wherever the framework is, in the
order the model wrote, and approvals that are given later: a call that would be asked about comes back as `Pending`,
with a digest. Once somebody has said yes in the framework's own way, the call is made again with that digest, judged
from the start, and runs only if what would be asked now is exactly what was approved.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar, Unpack, cast

from surehand.core.call import Foreign, Image, Text, ToolCall, ToolError, ToolResult, new_id
from surehand.core.context import ToolContext
from surehand.core.errors import StateError
from surehand.core.events import Event, Progress
from surehand.core.model import arguments
from surehand.core.session import Session
from surehand.core.shapes import readable_blocks
from surehand.core.tool import Tool, ToolInfo, ToolOptions
from surehand.core.view import Selection
from surehand.engine.bus import Bus
from surehand.engine.executor import Executor
from surehand.engine.loop_thread import LoopThread, Submitted
from surehand.engine.orchestrator import has_blocking_facts, is_safe, run_list
from surehand.policy.approval import Answer, Approver, Nobody, Question

T = TypeVar("T")
NO_LIMIT: Final = 1_000_000_000
REMEMBERED: Final = 1000
"""Open approvals remembered by call id; the oldest is dropped, and asked about again."""


class AsyncApp(Protocol):
    """An application (`surehand.Surehand`)."""

    @property
    def executor(self) -> Executor:
        """What runs calls."""
        ...

    @property
    def session(self) -> Session:
        """The session that calls belong to."""
        ...

    @property
    def selection(self) -> Selection:
        """The tools that session sees."""
        ...

    @property
    def bus(self) -> Bus:
        """Where events are heard."""
        ...

    @property
    def approver(self) -> Approver:
        """Who answers questions."""
        ...


class SyncApp(Protocol):
    """An application for plain code (`Surehand.sync(...)`)."""

    @property
    def inner(self) -> AsyncApp:
        """The application itself."""
        ...

    @property
    def thread(self) -> LoopThread:
        """The thread it lives on."""
        ...


App: TypeAlias = AsyncApp | SyncApp
OnProgress: TypeAlias = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class Pending:
    """A call that waits for an approval: what to show a person, and the digest a yes is bound to."""

    question: Question
    digest: str

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, for the framework's own request for approval."""
        decision = self.question.decision
        return {
            "tool": self.question.tool,
            "args": self.question.call.shown_args,
            "reason": decision.reason,
            "suggestion": decision.suggestion,
            "text": self.question.text(),
            "digest": self.digest,
        }


class Toolbox:
    """The tools of one application, as an adapter needs them. `tools` are names and globs; none means the session's."""

    def __init__(self, app: App, tools: Iterable[str] = ()) -> None:
        self._order = CallOrder()
        self._open: OrderedDict[str, Pending] = OrderedDict()
        if hasattr(app, "inner"):
            plain = cast("SyncApp", app)
            self.app: AsyncApp = plain.inner
            self._loop: asyncio.AbstractEventLoop | None = plain.thread.loop
        else:
            self.app = cast("AsyncApp", app)
            self._loop = _running_loop()
        selection, session, named = self.app.selection, self.app.session, tuple(tools)
        # Tools requested by name are all shown.
        self.selection = selection.narrow(named, session=session, threshold=NO_LIMIT) if named else selection

    # -- which tools -------------------------------------------------------------------------------------------------

    def list_all(self) -> list[ToolInfo]:
        """Return every tool that can work here, for a framework that can hide some of them (`is_shown`)."""
        return [info for info in self.selection.infos() if not self._cannot_work(info.name)]

    def list_shown(self) -> list[ToolInfo]:
        """Return the tools a model is to see now: those named, or else the core, all own ones, what was activated."""
        return [info for info in self.selection.active_tools() if not self._cannot_work(info.name)]

    def list_fixed(self) -> list[ToolInfo]:
        """Return the tools for a framework whose list never changes; searching for more would lead nowhere there."""
        return [info for info in self.list_shown() if info.name != "ToolSearch"]

    def is_shown(self, name: str) -> bool:
        """Say whether a model is to see a tool now."""
        return self.selection.shows(name) and not self._cannot_work(name)

    def real_name(self, shown: str) -> str:
        """Return the tool's own name for the one a model knows it by."""
        return self.selection.real_name(shown)

    def _cannot_work(self, name: str) -> bool:
        # Sub-agents need a model of ours; the framework has the model here, and agents of its own.
        return name == "Agent" and self.app.session.agents is None

    # -- running calls -----------------------------------------------------------------------------------------------

    @property
    def has_approver(self) -> bool:
        """Whether the application has an approver of its own; then the framework is not asked."""
        return not isinstance(self.app.approver, Nobody)

    async def call(
        self,
        name: str,
        args: Mapping[str, Any] | str,
        *,
        id: str | None = None,
        approved: bool | str = False,
        progress: OnProgress | None = None,
    ) -> ToolResult | Pending:
        """Make a model's call, or return what has to be approved first.

        `approved` says that the framework has a yes for it: the digest it was given with, or True for the digest that
        is remembered for the call's id.
        """
        if progress is not None and (here := asyncio.get_running_loop()) is not self._loop:
            told = progress
            progress = lambda each: here.call_soon_threadsafe(told, each) and None  # noqa: E731
        call = make_call(self.real_name(name), args, id)
        return await self.on_loop(self._call(call, approved, progress))

    def call_blocking(
        self,
        name: str,
        args: Mapping[str, Any] | str,
        *,
        id: str | None = None,
        approved: bool | str = False,
        progress: OnProgress | None = None,
    ) -> ToolResult | Pending:
        """Make a model's call from plain code; `progress` is called on the application's thread."""
        return self.wait(self._call(make_call(self.real_name(name), args, id), approved, progress))

    async def call_unasked(self, name: str, args: Mapping[str, Any] | str, *, id: str | None = None) -> ToolResult:
        """Make a model's call for a framework without approvals: what needs one asks the application's approver."""
        return await self.on_loop(self._run(make_call(self.real_name(name), args, id)))

    def call_unasked_blocking(self, name: str, args: Mapping[str, Any] | str, *, id: str | None = None) -> ToolResult:
        """Make such a call from plain code."""
        return self.wait(self._run(make_call(self.real_name(name), args, id)))

    async def run_message(self, calls: Sequence[ToolCall], approved: Mapping[str, str]) -> list[ToolResult]:
        """Make the calls of one message: safe ones together, results in the order of the calls.

        `approved` holds the digest of what somebody said yes to, by the call's id (`find_message_pending`).
        """
        approver = None if self.has_approver else FrameworkApproval(approved)
        return await run_list(calls, self.app.executor, self.app.session, self.selection, approver=approver)

    async def find_message_pending(self, calls: Sequence[ToolCall]) -> dict[str, Pending]:
        """Return what has to be approved of the calls of one message, by the call's id."""
        found = {call.id: await self._find_pending(call) for call in calls}
        return {id: pending for id, pending in found.items() if pending is not None}

    async def find_pending(self, name: str, args: Mapping[str, Any] | str, *, id: str | None = None) -> Pending | None:
        """Return what has to be approved before a call can be made, and remember it; None where nothing has to."""

        async def find() -> Pending | None:
            call = make_call(self.real_name(name), args, id)
            pending = await self._find_pending(call)
            if pending is not None:
                self._remember(call.id, pending)
            return pending

        return await self.on_loop(find())

    def get_pending(self, id: str) -> Pending | None:
        """Return what a call waits for, by its id."""
        return self._open.get(id)

    async def on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the application's loop, wherever this one runs."""
        here = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = here
        return await work if here is self._loop else await Submitted(self._loop, work).result()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the application's loop and wait for it."""
        problem = ""
        if self._loop is None or not self._loop.is_running():
            problem = "plain code needs an application with a loop: open it with Surehand.sync(...)"
        elif _running_loop() is self._loop:
            problem = "this would block the application's own loop: use the framework's async way or Surehand.sync(...)"
        if problem or self._loop is None:
            work.close()
            raise StateError(problem)
        return Submitted(self._loop, work).wait()

    # -- on the application's loop -----------------------------------------------------------------------------------

    async def _call(self, call: ToolCall, approved: bool | str, progress: OnProgress | None) -> ToolResult | Pending:
        async with self._order.turn(lambda: self._is_safe(call)):
            pending = await self._find_pending(call)
            if pending is None:
                return await self._run_heard(call, None, progress)
            asked = self._open.get(call.id)
            known = (asked.digest if asked else "") if approved is True else approved
            if not known or known != pending.digest:
                self._remember(call.id, pending)
                return pending
            self._open.pop(call.id, None)
            return await self._run_heard(call, FrameworkApproval({call.id: known}), progress)

    async def _find_pending(self, call: ToolCall) -> Pending | None:
        if self.has_approver:
            return None
        question = await self.app.executor.find_question(call, self.app.session, self.selection)
        return Pending(question, bind_approval(question)) if question is not None else None

    def _remember(self, id: str, pending: Pending) -> None:
        self._open[id] = pending
        while len(self._open) > REMEMBERED:
            self._open.popitem(last=False)

    async def _run(self, call: ToolCall) -> ToolResult:
        async with self._order.turn(lambda: self._is_safe(call)):
            return await self._run_heard(call, None, None)

    async def _run_heard(self, call: ToolCall, approver: Approver | None, progress: OnProgress | None) -> ToolResult:
        app = self.app

        def listen(event: Event) -> None:
            if progress is not None and event.kind == "call_progress" and event.call_id == call.id:
                progress(event.data["progress"])

        unsubscribe = app.bus.subscribe(listen) if progress is not None else None
        try:
            (result,) = await run_list([call], app.executor, app.session, self.selection, approver=approver)
            return result
        finally:
            if unsubscribe is not None:
                unsubscribe()

    async def _is_safe(self, call: ToolCall) -> bool:
        session, view = self.app.session, self.selection
        if has_blocking_facts(call, view):
            return await self.app.executor.workers.submit(lambda: is_safe(call, view, session))
        return is_safe(call, view, session)


def make_call(name: str, args: Mapping[str, Any] | str, id: str | None) -> ToolCall:
    """Return a model's call; arguments that are no JSON object are refused when it is made, and the model told."""
    given = arguments(args) if isinstance(args, str) else args
    return ToolCall(name, given, id=id or new_id(), source="model")


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


# -- approvals --------------------------------------------------------------------------------------------------------


def bind_approval(question: Question) -> str:
    """Return the digest a later yes is bound to: the call as it would run, and the changes that were shown."""
    diff = question.preview.diff if question.preview is not None else ""
    return hashlib.sha256(f"{question.digest}\n{diff}".encode("utf-8", "surrogatepass")).hexdigest()


class FrameworkApproval:
    """What somebody said yes to in a framework: the digest of what was shown, by the call's id."""

    def __init__(self, digests: Mapping[str, str]) -> None:
        self._digests = digests

    async def ask(self, question: Question) -> Answer:
        """Say yes to what was approved, and no to anything else."""
        known = self._digests.get(question.call.id)
        if known is None:
            return Answer("no", "nobody has approved it")
        if bind_approval(question) == known:
            return Answer("once")
        return Answer("no", CHANGED)


CHANGED: Final = "what would run now is not what was approved; make the call again to have it asked about"


def refusal(name: str, reason: str = "") -> ToolResult:
    """Return the result of a call that somebody said no to in a framework."""
    said = reason or "the user said no"
    error = ToolError("permission_denied", f"{name} needs permission and did not get it: {said}", "Do it another way.")
    return ToolResult.failed(error)


# -- the order of calls -----------------------------------------------------------------------------------------------

_inside: ContextVar[bool] = ContextVar("surehand_inside_a_call", default=False)


class _Ticket:
    __slots__ = ("admitted", "safe")

    def __init__(self) -> None:
        self.safe: bool | None = None
        self.admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class CallOrder:
    """Calls that frameworks start all at once: safe ones run concurrently, every other one alone and in order."""

    def __init__(self) -> None:
        self._waiting: deque[_Ticket] = deque()
        self._running = 0
        self._alone = False

    @asynccontextmanager
    async def turn(self, is_safe: Callable[[], Awaitable[bool]]) -> AsyncGenerator[None]:
        """Wait for the turn of a call. One made inside another (an agent that is a tool) has its turn already."""
        if _inside.get():
            yield
            return
        ticket = _Ticket()
        self._waiting.append(ticket)
        try:
            ticket.safe = await is_safe()
            self._admit()
            await ticket.admitted
        except BaseException:
            self._withdraw(ticket)
            raise
        token = _inside.set(True)
        try:
            yield
        finally:
            _inside.reset(token)
            self._leave()

    def _admit(self) -> None:
        while self._waiting and (safe := self._waiting[0].safe) is not None:
            if self._alone or (not safe and self._running):
                return
            self._running, self._alone = self._running + 1, not safe
            ticket = self._waiting.popleft()
            if not ticket.admitted.done():
                ticket.admitted.set_result(None)

    def _withdraw(self, ticket: _Ticket) -> None:
        if ticket in self._waiting:
            self._waiting.remove(ticket)
            self._admit()
        else:
            self._leave()

    def _leave(self) -> None:
        self._running -= 1
        self._alone = self._alone and self._running > 0
        self._admit()


# -- results ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileContent:
    """A file or a sound in a result: base64 data with its type, and a name where it has one."""

    data: str
    mime_type: str
    name: str = ""


Content: TypeAlias = Text | Image | FileContent


def list_content(result: ToolResult) -> list[Content]:
    """Return what a model gets of a result: texts, images and files, the error first; what is none of them as text."""
    return [_to_content(block) for block in readable_blocks(result)]


def _to_content(block: Text | Image | Foreign) -> Content:
    if not isinstance(block, Foreign):
        return block
    match block.block:
        case {"type": "audio", "data": str(data), "mimeType": str(mime)}:
            return FileContent(data, mime)
        case {"type": "resource", "resource": {"blob": str(data), "mimeType": str(mime), **more}}:
            uri = more.get("uri")
            return FileContent(data, mime, uri.rsplit("/", 1)[-1] if isinstance(uri, str) else "")
        case {"type": "resource", "resource": {"text": str(text)}}:
            return Text(text)
        case raw:
            return Text(json.dumps(dict(raw), ensure_ascii=False))


def artifact_of(result: ToolResult) -> dict[str, Any]:
    """Return what the program gets beside what the model reads: data, error, undo, meta."""
    return {name: value for name, value in result.to_dict().items() if name not in ("output", "content")}


def text_of(result: ToolResult) -> str:
    """Return what a model gets of a result, as one text; images and files are named."""
    return "\n".join(describe_content(each) for each in list_content(result))


def describe_content(content: Content) -> str:
    """Return a block of content as text."""
    match content:
        case Text(text):
            return text
        case Image(_, mime_type):
            return f"[image, {mime_type}]"
        case FileContent(_, mime_type, name):
            return f"[file{f' {name}' if name else ''}, {mime_type}]"


def result_of_blocks(blocks: Sequence[Text | Image | Foreign]) -> ToolResult:
    """Return the result that a wrapped tool's content stands for."""
    output = "\n".join(block.text for block in blocks if isinstance(block, Text))
    return ToolResult(data=output, output=output, content=tuple(blocks))


# -- a framework's own tools, brought under our door ------------------------------------------------------------------

Invoke: TypeAlias = Callable[[Mapping[str, Any], ToolContext], Awaitable[Any]]


def wrap_tool(
    name: str,
    description: str,
    schema: Mapping[str, Any],
    invoke: Invoke,
    /,
    **options: Unpack[ToolOptions],
) -> Tool:
    """Make a tool of ours from a framework's own: policy, audit, time-outs and history are those of every call.

    Nothing is known of what it does, so it is asked about unless `options` (those of `@tool`) say that it only reads,
    or what its effects are.
    """
    values: dict[str, Any] = {"name": name, "description": description, **options}
    if values.get("concurrency_safe") is None:
        values["concurrency_safe"] = values.get("read_only", False)

    async def run(args: Mapping[str, Any], ctx: ToolContext) -> Any:
        return await invoke(args, ctx)

    return Tool(args=dict(schema), run=run, **values)


# Answering the calls of a model's message in a loop of one's own: what the adapters of plain clients share.

MessageT = TypeVar("MessageT")


class MessageTools(ABC, Generic[MessageT]):
    """The tools of one application for a client: shown as its parameters, run as its messages' calls.

    What needs permission asks the application's approver. Without one, `pending` says what waits, and `answer` runs
    what was approved, by the digest that was shown, and refuses the rest.
    """

    def __init__(self, app: App, tools: Iterable[str] = ()) -> None:
        self._box = Toolbox(app, tools)

    @abstractmethod
    def _read_calls(self, message: MessageT) -> list[ToolCall]:
        """Return the calls of a message."""

    @abstractmethod
    def _write_results(self, message: MessageT, calls: list[ToolCall], results: list[ToolResult]) -> list[Any]:
        """Return the results as the client's next request takes them."""

    async def answer(self, message: MessageT, approved: Mapping[str, str] | None = None) -> list[Any]:
        """Make the calls of a message, safe ones together, and return what goes into the next request."""
        calls = self._read_calls(message)
        results = await self._box.on_loop(self._box.run_message(calls, approved or {}))
        return self._write_results(message, calls, results)

    def answer_blocking(self, message: MessageT, approved: Mapping[str, str] | None = None) -> list[Any]:
        """Do the same from plain code, with an application of `Surehand.sync(...)`."""
        calls = self._read_calls(message)
        return self._write_results(message, calls, self._box.wait(self._box.run_message(calls, approved or {})))

    async def pending(self, message: MessageT) -> dict[str, dict[str, Any]]:
        """Return what has to be approved first, by the call's id: text to show, reason, and the digest for a yes."""
        found = await self._box.on_loop(self._box.find_message_pending(self._read_calls(message)))
        return {id: each.to_dict() for id, each in found.items()}

    def pending_blocking(self, message: MessageT) -> dict[str, dict[str, Any]]:
        """Do the same from plain code."""
        found = self._box.wait(self._box.find_message_pending(self._read_calls(message)))
        return {id: each.to_dict() for id, each in found.items()}
