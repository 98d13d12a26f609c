"""`ToolContext`: all a tool may know about the call it serves."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from surehand.core.call import ToolCall, ToolResult
from surehand.core.errors import ToolFailure
from surehand.core.events import Progress
from surehand.core.frozen import field, frozen

if TYPE_CHECKING:
    import asyncio

    from surehand.core.effects import Effect
    from surehand.core.session import Session


T = TypeVar("T")
NOTHING_CHANGED: Final = "Nothing was changed, and nothing more will happen."
_FATE: Final = threading.Lock()
"""Held for the moment in which a call is given up or passes its point of no return; one for all, both are rare."""


MakeCall: TypeAlias = "Callable[[ToolContext, str, Mapping[str, Any], bool], Coroutine[Any, Any, ToolResult]]"


@frozen
class OwnCall(ToolCall):
    """The call a handler serves. Calling it calls another tool that this one `requires`, as a child of this call.

    The child goes through the door like any other call: it is validated, judged, asked about, recorded, and can never
    do what this call may not. Its failure is a result, not an exception.
    """

    context: ToolContext = field(default=None, repr=False)

    def __call__(self, name: str, args: Mapping[str, Any] | None = None) -> Coroutine[Any, Any, ToolResult]:
        """Call a tool that this one requires, and return what it came to."""
        return self._make(name, args or {}, True)

    def any(self, name: str, args: Mapping[str, Any] | None = None) -> Coroutine[Any, Any, ToolResult]:
        """Call a tool that is named by data, not by the author of this one (what an undo has to call)."""
        return self._make(name, args or {}, False)

    def wait(self, name: str, args: Mapping[str, Any] | None = None, *, listed: bool = True) -> ToolResult:
        """Call a tool from a sync handler, which runs in a thread, and wait for what it came to."""
        import asyncio  # lazy: a listing of tools needs none of it
        import concurrent.futures

        work, loop = self._make(name, args or {}, listed), self.context.loop
        assert loop is not None
        future = asyncio.run_coroutine_threadsafe(work, loop)
        while True:
            try:
                return future.result(timeout=0.1)
            except concurrent.futures.TimeoutError:
                if self.context.is_given_up:
                    future.cancel()
                    raise ToolFailure("the call was given up", code="cancelled", hint=NOTHING_CHANGED) from None

    def _make(self, name: str, args: Mapping[str, Any], listed: bool) -> Coroutine[Any, Any, ToolResult]:
        context = self.context
        if context.make_call is None:
            raise ToolFailure(f"{self.name} makes no calls here", code="tool_unavailable")
        return context.make_call(context, name, args, listed)


class ToolContext:
    """What a handler gets beside its arguments: the call, the session, a way to report progress."""

    __slots__ = (
        "_changing",
        "_discard",
        "_given_up",
        "_made",
        "_permits",
        "_report",
        "afterwards",
        "holds",
        "leads",
        "loop",
        "make_call",
        "options",
        "served",
        "session",
        "turn",
        "unasked",
    )

    def __init__(
        self,
        call: ToolCall,
        session: Session,
        report: Callable[[Progress], None],
        options: Mapping[str, Any],
        permits: Callable[[Effect], bool] | None = None,
    ) -> None:
        self.served = call
        """The call being served, without what `call` can do."""
        self.session = session
        self.turn = call.parent.turn if call.parent is not None else session.turn or call.id
        """The turn the call began in: that of the conversation, or the call itself where there is none."""
        self.options = options
        """The tool's own settings (`[tools.NAME.custom]`)."""
        self._report = report
        self._permits = permits
        self._made: dict[str, Any] | None = None
        self._given_up = self._changing = False
        self._discard: Callable[[], object] | None = None
        self.make_call: MakeCall | None = None
        """Makes the calls of this call, through the door; set by the executor."""
        self.loop: asyncio.AbstractEventLoop | None = None
        """Where calls are made; set by the executor."""
        self.leads: dict[str, str] = {}
        """Path → where it led when the policy judged it: a link turned round since leads the call nowhere else."""
        self.holds: frozenset[str] = frozenset()
        """The resources this call holds while it runs."""
        self.unasked = False
        """Whether the handler follows the check at once, in one thread, as nobody is asked; set by the executor."""
        self.afterwards: list[Callable[[], object]] | None = None
        """What the thread of a handler does once its result is on its way; None where no thread does it. Set by the
        executor."""

    @property
    def call(self) -> OwnCall:
        """The call being served; calling it makes a call of another tool: `await ctx.call("other", {...})`."""
        served = self.served
        return OwnCall(served.name, served.args, served.id, served.source, served.parent, context=self)

    @property
    def cwd(self) -> str:
        """The session's directory; relative paths are meant from here."""
        return self.session.cwd

    def resolve(self, path: str) -> str:
        """Return `path` as an absolute one, from the session's directory; links and `..` stay for the policy."""
        if path.startswith("/"):  # most paths of most calls, asked for several times a call
            return path
        return os.path.join(self.session.cwd, os.path.expanduser(path))

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Return what `make` gives, made once for this call: effects, check and run share what they worked out."""
        if self._made is None:
            self._made = {}
        if name not in self._made:
            self._made[name] = make()
        return self._made[name]

    def go_on_from(self, facts: dict[str, Any]) -> None:
        """Take over, and add to, what `once` made for the very same call when it was planned."""
        self._made = facts

    def permits(self, effect: Effect) -> bool:
        """Say whether a further effect, found out while running (a redirect), would be allowed without a question."""
        return self._permits is not None and self._permits(effect)

    def check_wanted(self) -> None:
        """Raise ToolFailure when the call was given up; call it just before each change, under the lock that guards it.

        A thread cannot be stopped, so a handler has to ask. Once it has asked, whoever gives the call up waits for the
        handler's end and reports what it came to; a later check may still stop it, and it takes back what it did.
        """
        with _FATE:
            self._changing = self._changing or not self._given_up
            if not self._given_up:
                return
        raise _refusal()

    def discard_with(self, discard: Callable[[], object]) -> None:
        """Have what is prepared for a change discarded by whoever gives the call up; raise where that has happened."""
        with _FATE:
            self._discard = discard
            if not self._given_up:
                return
        raise _refusal()

    @property
    def is_given_up(self) -> bool:
        """Whether nobody waits for this call any more."""
        return self._given_up

    def give_up(self) -> bool:
        """Say that nobody wants the call any more. False when a change has begun: its outcome has to be awaited."""
        with _FATE:
            self._given_up = True
            if self._changing:
                return False
        if self._discard is not None:
            self._discard()  # the thread may hang in a slow disk for long, or end with the process
        return True

    def progress(self, text: str = "", *, done: float | None = None, total: float | None = None, **data: Any) -> None:
        """Report progress; it reaches everyone who listens to the call."""
        self._report(Progress(text, done, total, data))


def _refusal() -> ToolFailure:
    return ToolFailure("the call was given up before its change was made", code="cancelled", hint=NOTHING_CHANGED)
