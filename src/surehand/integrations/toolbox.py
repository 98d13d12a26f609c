"""`Toolbox`: what the adapters of all frameworks share, so that each only converts.

It lists the tools for a model, and makes calls on the application's loop, from any thread, in the model's order. For
approvals in a framework, a call that would be asked about returns `Pending` with a digest. Once a person has approved
it there, the call is made again with the digest; it is judged anew, and runs only if the question is still the same.
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
"""Pending approvals that are kept by call id; a call whose approval was dropped is asked about again."""


class AsyncApp(Protocol):
    """An application (`surehand.Surehand`)."""

    @property
    def executor(self) -> Executor:
        """What runs calls."""
        ...

    @property
    def session(self) -> Session:
        """The session of the calls."""
        ...

    @property
    def selection(self) -> Selection:
        """The tools that the session sees."""
        ...

    @property
    def bus(self) -> Bus:
        """The event bus."""
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
        """The thread of its event loop."""
        ...


App: TypeAlias = AsyncApp | SyncApp
OnProgress: TypeAlias = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class Pending:
    """A call that waits for approval: the question to show, and the digest that an approval is bound to."""

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
    """The tools of an application, for an adapter. `tools` are names and globs; without any, the session's tools."""

    def __init__(self, app: App, tools: Iterable[str] = ()) -> None:
        self._order = CallOrder()
        self._pending: OrderedDict[str, Pending] = OrderedDict()
        if hasattr(app, "inner"):
            sync_app = cast("SyncApp", app)
            self.app: AsyncApp = sync_app.inner
            self._loop: asyncio.AbstractEventLoop | None = sync_app.thread.loop
        else:
            self.app = cast("AsyncApp", app)
            self._loop = _running_loop()
        selection, session, patterns = self.app.selection, self.app.session, tuple(tools)
        # Without a threshold: tools requested by name are all shown.
        self.selection = selection.narrow(patterns, session=session, threshold=NO_LIMIT) if patterns else selection

    # -- which tools -------------------------------------------------------------------------------------------------

    def list_all(self) -> list[ToolInfo]:
        """Return all tools that can work here, for a framework that can hide some at any time (`is_shown`)."""
        return [info for info in self.selection.infos() if not self._cannot_work(info.name)]

    def list_shown(self) -> list[ToolInfo]:
        """Return the tools to show a model now: those requested, or the core, the user's own and activated ones."""
        return [info for info in self.selection.active_tools() if not self._cannot_work(info.name)]

    def list_fixed(self) -> list[ToolInfo]:
        """Return the tools for a framework whose list never changes: without `ToolSearch`, which adds some."""
        return [info for info in self.list_shown() if info.name != "ToolSearch"]

    def is_shown(self, name: str) -> bool:
        """Return whether to show a model a tool now."""
        return self.selection.shows(name) and not self._cannot_work(name)

    def real_name(self, shown: str) -> str:
        """Return the registered name of a tool, by the name shown to models."""
        return self.selection.real_name(shown)

    def _cannot_work(self, name: str) -> bool:
        # Sub-agents need a model of the application; here the framework has the model.
        return name == "Agent" and self.app.session.agents is None

    # -- running calls -----------------------------------------------------------------------------------------------

    @property
    def has_approver(self) -> bool:
        """Whether the application has an approver; then the framework does not ask."""
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
        """Make a model's call, or return the approval that it needs first.

        `approved` is the digest that was approved in the framework, or True for the one kept by the call's id.
        """
        if progress is not None and (here := asyncio.get_running_loop()) is not self._loop:
            report = progress
            progress = lambda each: here.call_soon_threadsafe(report, each) and None  # noqa: E731
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
        """Make a model's call from synchronous code; `progress` is called in the application's thread."""
        return self.wait(self._call(make_call(self.real_name(name), args, id), approved, progress))

    async def call_unasked(self, name: str, args: Mapping[str, Any] | str, *, id: str | None = None) -> ToolResult:
        """Make a model's call for a framework without approvals: only the application's approver is asked."""
        return await self.on_loop(self._run(make_call(self.real_name(name), args, id)))

    def call_unasked_blocking(self, name: str, args: Mapping[str, Any] | str, *, id: str | None = None) -> ToolResult:
        """Make such a call from synchronous code."""
        return self.wait(self._run(make_call(self.real_name(name), args, id)))

    async def run_message(self, calls: Sequence[ToolCall], approved: Mapping[str, str]) -> list[ToolResult]:
        """Make the calls of a message, safe ones concurrently; return results in the order of the calls.

        `approved` has the digests that were approved, by call id (`find_message_pending`).
        """
        approver = None if self.has_approver else FrameworkApproval(approved)
        return await run_list(calls, self.app.executor, self.app.session, self.selection, approver=approver)

    async def find_message_pending(self, calls: Sequence[ToolCall]) -> dict[str, Pending]:
        """Return the approvals that the calls of a message need, by call id."""
        found = {call.id: await self._find_pending(call) for call in calls}
        return {id: pending for id, pending in found.items() if pending is not None}

    async def find_pending(self, name: str, args: Mapping[str, Any] | str, *, id: str | None = None) -> Pending | None:
        """Return the approval that a call needs, and keep it by the call's id; None if it needs none."""

        async def find() -> Pending | None:
            call = make_call(self.real_name(name), args, id)
            pending = await self._find_pending(call)
            if pending is not None:
                self._keep_pending(call.id, pending)
            return pending

        return await self.on_loop(find())

    def get_pending(self, id: str) -> Pending | None:
        """Return the pending approval of a call, by its id."""
        return self._pending.get(id)

    async def on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the application's loop, from any loop."""
        here = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = here
        return await work if here is self._loop else await Submitted(self._loop, work).result()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the application's loop and block until it ends."""
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
                return await self._run_with_progress(call, None, progress)
            asked = self._pending.get(call.id)
            known = (asked.digest if asked else "") if approved is True else approved
            if not known or known != pending.digest:
                self._keep_pending(call.id, pending)
                return pending
            self._pending.pop(call.id, None)
            return await self._run_with_progress(call, FrameworkApproval({call.id: known}), progress)

    async def _find_pending(self, call: ToolCall) -> Pending | None:
        if self.has_approver:
            return None
        question = await self.app.executor.find_question(call, self.app.session, self.selection)
        return Pending(question, bind_approval(question)) if question is not None else None

    def _keep_pending(self, id: str, pending: Pending) -> None:
        self._pending[id] = pending
        while len(self._pending) > REMEMBERED:
            self._pending.popitem(last=False)

    async def _run(self, call: ToolCall) -> ToolResult:
        async with self._order.turn(lambda: self._is_safe(call)):
            return await self._run_with_progress(call, None, None)

    async def _run_with_progress(
        self, call: ToolCall, approver: Approver | None, progress: OnProgress | None
    ) -> ToolResult:
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
    """Return a model's call. Arguments that are no JSON object fail when it is made, so that the model is told."""
    parsed = arguments(args) if isinstance(args, str) else args
    return ToolCall(name, parsed, id=id or new_id(), source="model")


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


# -- approvals --------------------------------------------------------------------------------------------------------


def bind_approval(question: Question) -> str:
    """Return the digest that an approval is bound to: of the call as it would run, and of the diff that was shown."""
    diff = question.preview.diff if question.preview is not None else ""
    return hashlib.sha256(f"{question.digest}\n{diff}".encode("utf-8", "surrogatepass")).hexdigest()


class FrameworkApproval:
    """The approver of calls approved in a framework: the digests of their questions, by call id."""

    def __init__(self, digests: Mapping[str, str]) -> None:
        self._digests = digests

    async def ask(self, question: Question) -> Answer:
        """Approve exactly what was approved in the framework."""
        known = self._digests.get(question.call.id)
        if known is None:
            return Answer("no", "nobody has approved it")
        if bind_approval(question) == known:
            return Answer("once")
        return Answer("no", CHANGED)


CHANGED: Final = "what would run now is not what was approved; make the call again to have it asked about"


def refusal(name: str, reason: str = "") -> ToolResult:
    """Return the result of a call that was refused in a framework."""
    why = reason or "the user said no"
    error = ToolError("permission_denied", f"{name} needs permission and did not get it: {why}", "Do it another way.")
    return ToolResult.failed(error)


# -- the order of calls -----------------------------------------------------------------------------------------------

_inside: ContextVar[bool] = ContextVar("surehand_inside_a_call", default=False)


class _Ticket:
    __slots__ = ("admitted", "safe")

    def __init__(self) -> None:
        self.safe: bool | None = None
        self.admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class CallOrder:
    """Orders calls that a framework starts all at once: safe ones run concurrently, others alone and in order."""

    def __init__(self) -> None:
        self._waiting: deque[_Ticket] = deque()
        self._running = 0
        self._alone = False

    @asynccontextmanager
    async def turn(self, is_safe: Callable[[], Awaitable[bool]]) -> AsyncGenerator[None]:
        """Wait for a call's turn. A call inside another (an agent used as a tool) runs in the turn of the outer one."""
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
    """A file or audio in a result: base64 data, its type, and a name if it has one."""

    data: str
    mime_type: str
    name: str = ""


Content: TypeAlias = Text | Image | FileContent


def list_content(result: ToolResult) -> list[Content]:
    """Return a result's content for a model: texts, images and files, the error first; other blocks as JSON text."""
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
    """Return the parts of a result for the program, not the model: data, error, undo, meta."""
    return {name: value for name, value in result.to_dict().items() if name not in ("output", "content")}


def text_of(result: ToolResult) -> str:
    """Return a result's content for a model as one text; images and files are described."""
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
    """Return the content of a wrapped tool as a result."""
    output = "\n".join(block.text for block in blocks if isinstance(block, Text))
    return ToolResult(data=output, output=output, content=tuple(blocks))


# -- a framework's own tools, wrapped as ours -------------------------------------------------------------------------

Invoke: TypeAlias = Callable[[Mapping[str, Any], ToolContext], Awaitable[Any]]


def wrap_tool(
    name: str,
    description: str,
    schema: Mapping[str, Any],
    invoke: Invoke,
    /,
    **options: Unpack[ToolOptions],
) -> Tool:
    """Make a tool from a framework's own; policy, audit and time-outs apply to its calls as to all others.

    Its effects are unknown, so each call is asked about, unless `options` (those of `@tool`) state them, or that it
    only reads.
    """
    values: dict[str, Any] = {"name": name, "description": description, **options}
    if values.get("concurrency_safe") is None:
        values["concurrency_safe"] = values.get("read_only", False)

    async def run(args: Mapping[str, Any], ctx: ToolContext) -> Any:
        return await invoke(args, ctx)

    return Tool(args=dict(schema), run=run, **values)


# Answering the calls of a message in a program's own loop: what the adapters of API clients share.

MessageT = TypeVar("MessageT")


class MessageTools(ABC, Generic[MessageT]):
    """The tools of an application for an API client: parameters for its requests, results for calls in its messages.

    The application's approver is asked. Without one, `pending` returns the approvals that are needed, and `answer` runs
    what was approved, by digest, and refuses the rest.
    """

    def __init__(self, app: App, tools: Iterable[str] = ()) -> None:
        self._box = Toolbox(app, tools)

    @abstractmethod
    def _read_calls(self, message: MessageT) -> list[ToolCall]:
        """Return the calls of a message."""

    @abstractmethod
    def _write_results(self, message: MessageT, calls: list[ToolCall], results: list[ToolResult]) -> list[Any]:
        """Return the results as items of the client's next request."""

    async def answer(self, message: MessageT, approved: Mapping[str, str] | None = None) -> list[Any]:
        """Make the calls of a message, safe ones concurrently, and return the items for the next request."""
        calls = self._read_calls(message)
        results = await self._box.on_loop(self._box.run_message(calls, approved or {}))
        return self._write_results(message, calls, results)

    def answer_blocking(self, message: MessageT, approved: Mapping[str, str] | None = None) -> list[Any]:
        """Do the same from synchronous code, with an application of `Surehand.sync(...)`."""
        calls = self._read_calls(message)
        return self._write_results(message, calls, self._box.wait(self._box.run_message(calls, approved or {})))

    async def pending(self, message: MessageT) -> dict[str, dict[str, Any]]:
        """Return the approvals that calls need, by call id: text to show, reason, and the digest to approve with."""
        found = await self._box.on_loop(self._box.find_message_pending(self._read_calls(message)))
        return {id: each.to_dict() for id, each in found.items()}

    def pending_blocking(self, message: MessageT) -> dict[str, dict[str, Any]]:
        """Do the same from synchronous code."""
        found = self._box.wait(self._box.find_message_pending(self._read_calls(message)))
        return {id: each.to_dict() for id, each in found.items()}
