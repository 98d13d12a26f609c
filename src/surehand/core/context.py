"""`ToolContext`: what a handler gets beside its arguments."""

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
"""Guards the decision between "given up" and "change begun". One lock for all calls: it is held for an instant."""


MakeCall: TypeAlias = "Callable[[ToolContext, str, Mapping[str, Any], bool], Coroutine[Any, Any, ToolResult]]"


@frozen
class OwnCall(ToolCall):
    """The call a handler serves. It is callable: that runs another tool this one `requires`, as a child call.

    The child goes through the executor like any other call (validated, judged, asked about, recorded), with rights
    never wider than this call's. Its failure is a result, not an exception.
    """

    context: ToolContext = field(default=None, repr=False)

    def __call__(self, name: str, args: Mapping[str, Any] | None = None) -> Coroutine[Any, Any, ToolResult]:
        """Call a tool that this one requires, and return its result."""
        return self._make(name, args or {}, True)

    def any(self, name: str, args: Mapping[str, Any] | None = None) -> Coroutine[Any, Any, ToolResult]:
        """Call a tool named at run time, so not listed in `requires` (the compensating call of an undo)."""
        return self._make(name, args or {}, False)

    def wait(self, name: str, args: Mapping[str, Any] | None = None, *, listed: bool = True) -> ToolResult:
        """Call a tool from a sync handler (which runs in a thread) and wait for its result."""
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
    """What a handler gets beside its arguments: its call, the session, progress reports, child calls."""

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
        """The call being served, as a plain record; `call` adds child calls."""
        self.session = session
        self.turn = call.parent.turn if call.parent is not None else session.turn or call.id
        """The turn the call began in; outside a conversation each call is a turn of its own."""
        self.options = options
        """The tool's own settings (`[tools.NAME.custom]`)."""
        self._report = report
        self._permits = permits
        self._made: dict[str, Any] | None = None
        self._given_up = self._changing = False
        self._discard: Callable[[], object] | None = None
        self.make_call: MakeCall | None = None
        """Runs child calls through the executor, which sets it."""
        self.loop: asyncio.AbstractEventLoop | None = None
        """The event loop child calls run on; set by the executor."""
        self.leads: dict[str, str] = {}
        """Path → its target when the policy judged it, so that a link retargeted since cannot redirect the call."""
        self.holds: frozenset[str] = frozenset()
        """The resources this call holds while it runs."""
        self.unasked = False
        """Whether check and handler run back to back in one thread, since nobody is asked; set by the executor."""
        self.afterwards: list[Callable[[], object]] | None = None
        """Work the handler's thread does after its result is returned; None if it runs in no thread. Set by the
        executor."""

    @property
    def call(self) -> OwnCall:
        """The call being served, and the way to make child calls: `await ctx.call("other", {...})`."""
        served = self.served
        return OwnCall(served.name, served.args, served.id, served.source, served.parent, context=self)

    @property
    def cwd(self) -> str:
        """The session's directory; relative paths start here."""
        return self.session.cwd

    def resolve(self, path: str) -> str:
        """Make `path` absolute (from the session's directory). Links and `..` are left for the policy to resolve."""
        if path.startswith("/"):  # most paths of most calls, asked for several times a call
            return path
        return os.path.join(self.session.cwd, os.path.expanduser(path))

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Compute a value once per call, so that effects, check and run can share it."""
        if self._made is None:
            self._made = {}
        if name not in self._made:
            self._made[name] = make()
        return self._made[name]

    def reuse_facts(self, facts: dict[str, Any]) -> None:
        """Start from the values that `once` computed when this same call was scheduled."""
        self._made = facts

    def permits(self, effect: Effect) -> bool:
        """Whether a further effect, discovered while running (a redirect), is allowed without a question."""
        return self._permits is not None and self._permits(effect)

    def check_wanted(self) -> None:
        """Raise ToolFailure if the call was given up. Call it just before each change, under the lock that guards it.

        A thread cannot be stopped, so the handler has to ask. Once it has, whoever gives the call up waits for the
        handler to end and reports its result. A later check may still stop it; it then reverts what it did.
        """
        with _FATE:
            self._changing = self._changing or not self._given_up
            if not self._given_up:
                return
        raise _refusal()

    def discard_with(self, discard: Callable[[], object]) -> None:
        """Set what discards a prepared change if the call is given up; raise ToolFailure if it already was."""
        with _FATE:
            self._discard = discard
            if not self._given_up:
                return
        raise _refusal()

    @property
    def is_given_up(self) -> bool:
        """Whether nobody waits for this call's result any more."""
        return self._given_up

    def give_up(self) -> bool:
        """Give the call up. False if a change has begun, whose outcome must then be awaited."""
        with _FATE:
            self._given_up = True
            if self._changing:
                return False
        if self._discard is not None:
            self._discard()  # here, because the thread may hang on a slow disk or die with the process
        return True

    def progress(self, text: str = "", *, done: float | None = None, total: float | None = None, **data: Any) -> None:
        """Report progress to everyone who listens to the call."""
        self._report(Progress(text, done, total, data))


def _refusal() -> ToolFailure:
    return ToolFailure("the call was given up before its change was made", code="cancelled", hint=NOTHING_CHANGED)
