"""The lifecycle of a tool: its state, the legal transitions between states, and the history of transitions.

`TRANSITIONS` has all legal transitions; the rest enforces it. A tool that runs several calls at once is `executing`
until the last of them ends. A tool that is unregistered while calls run drains: it ends with the last of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from time import time
from typing import Final, Literal, TypeAlias

from surehand.core.errors import ToolFailure
from surehand.core.frozen import frozen

State = Literal["registered", "initializing", "ready", "executing", "error", "failed", "disabled", "unregistered"]

TRANSITIONS: Final[Mapping[State, frozenset[State]]] = {
    "registered": frozenset({"initializing", "disabled", "unregistered"}),
    "initializing": frozenset({"ready", "failed"}),
    "ready": frozenset({"executing", "disabled", "unregistered"}),
    "executing": frozenset({"ready", "error"}),
    "error": frozenset({"ready", "disabled", "unregistered"}),
    "failed": frozenset({"unregistered"}),
    "disabled": frozenset({"ready", "unregistered"}),
    "unregistered": frozenset(),
}
_IN_USE: Final = frozenset({"ready", "executing"})
"""A successful call moves its tool from one to the other and back."""
HISTORY_LIMIT: Final = 200
"""Most transitions kept of one tool."""
GONE_LIMIT: Final = 100
"""Most unregistered tools whose history is kept."""
TRIP_AFTER: Final = 5
"""Exceptions and time-outs in a row that disable a tool."""


@frozen
class Transition:
    """One transition of one tool; `at` in seconds since 1970. `before` is None for the registration."""

    tool: str
    before: State | None
    after: State
    at: float
    why: str = ""

    def to_dict(self) -> dict[str, object]:
        """Return it as plain data."""
        return {"tool": self.tool, "from": self.before, "to": self.after, "at": self.at, "why": self.why}


Hook: TypeAlias = Callable[[Transition], str | None]
"""Called before a transition; to refuse it, it returns the reason or raises."""
StateListener: TypeAlias = Callable[[Transition], None]


class IllegalTransition(ToolFailure):
    """A transition that is not legal, or that a hook refused; the message names both states."""

    def __init__(self, tool: str, before: State, after: State, reason: str = "") -> None:
        super().__init__(
            f"Invalid state transition: {before} -> {after} for tool {tool}" + (f": {reason}" if reason else ""),
            code="tool_unavailable",
            hint=HINTS.get(before, ""),
            details={"tool": tool, "from": before, "to": after},
        )


HINTS: Final[Mapping[State, str]] = {
    "disabled": "Enable the tool, or let a health check pass, before calling it again.",
    "failed": "Its initialization failed; unregister it, repair the cause and register it again.",
    "initializing": "It is still being initialized; try again in a moment.",
}


class Life:
    """State and history of one registered tool. Calls refer to it: a later tool of the same name has its own."""

    __slots__ = (
        "born",
        "draining",
        "failures",
        "initialized",
        "name",
        "past",
        "running",
        "spoiled",
        "state",
        "tripped",
    )

    def __init__(self, name: str, born: float) -> None:
        self.name = name
        self.state: State = "registered"
        self.born = born
        self.running = 0
        self.failures = 0
        """Exceptions and time-outs in a row."""
        self.spoiled = False
        """Whether a call failed since the tool was last idle."""
        self.draining = False
        """Whether its name is unregistered, but calls still run."""
        self.tripped = False
        """Whether the circuit breaker disabled it, so that a passing health check may enable it."""
        self.initialized = False
        # Created by the first transition: thousands of tools are registered and never run.
        self.past: deque[tuple[State, State, float, str]] | None = None

    def history(self) -> list[Transition]:
        """Return the recorded transitions, oldest first, beginning with the registration."""
        moves = [Transition(self.name, *each) for each in self.past or ()]
        whole = len(moves) < HISTORY_LIMIT
        return [Transition(self.name, None, "registered", self.born), *moves] if whole else moves


class Lifecycle:
    """The states of all tools by name; moves them by legal transitions only."""

    def __init__(self, *, trip_after: int = TRIP_AFTER) -> None:
        self.trip_after = trip_after
        self._lives: dict[str, Life | float] = {}
        """By name; only the time of registration for a tool that was never called or asked about."""
        self._gone: deque[Life] = deque(maxlen=GONE_LIMIT)
        self._before: list[Hook] = []
        self._after: list[StateListener] = []
        self._listeners: list[StateListener] = []
        self._quiet_listeners: list[StateListener] = []
        self.is_heard: Callable[[], bool] = lambda: True
        """Whether anybody subscribes to what the quiet listeners forward; if not, registering skips them."""
        self._watched = False
        """Whether a hook or listener wants every transition; otherwise calls take the fast path."""

    # Look-ups ------------------------------------------------------------------------------------------------------

    def state(self, name: str) -> State:
        """Return the state of a tool; a name nobody has is `unregistered`."""
        life = self._lives.get(name)
        if isinstance(life, Life):
            return life.state
        return "unregistered" if life is None else "registered"

    def life(self, name: str) -> Life | None:
        """Return the life behind a name, for callers that keep a reference to it."""
        life = self._lives.get(name)
        if life is None or isinstance(life, Life):
            return life
        made = self._lives[name] = Life(name, life)  # thousands of tools are registered and never asked about
        return made

    def history(self, name: str) -> list[Transition]:
        """Return the transitions of a name, oldest first, including those of earlier tools of that name."""
        lives = [life for life in self._gone if life.name == name]
        if (life := self.life(name)) is not None:
            lives.append(life)
        return [move for each in lives for move in each.history()]

    def listen(self, listener: StateListener, *, calls: bool = True) -> Callable[[], None]:
        """Call `listener` after every transition; return a function that unsubscribes it.

        `calls=False` leaves out those of successful calls, which are events anyway.
        """
        return self._join(self._listeners if calls else self._quiet_listeners, listener)

    def before(self, hook: Hook) -> Callable[[], None]:
        """Run `hook` before every transition, which it may refuse; return a function that removes it."""
        return self._join(self._before, hook)

    def after(self, hook: StateListener) -> Callable[[], None]:
        """Run `hook` after every transition, and after all listeners; return a function that removes it."""
        return self._join(self._after, hook)

    # Transitions ---------------------------------------------------------------------------------------------------

    def register(self, name: str) -> None:
        """Add a tool in the state `registered`."""
        if name in self._lives:
            raise IllegalTransition(name, self.state(name), "registered", "the name is taken")
        born = self._lives[name] = time()
        if self._listeners or self._after or (self._quiet_listeners and self.is_heard()):
            self._notify(Transition(name, None, "registered", born))

    def move(self, name: str, to: State, why: str = "") -> None:
        """Move a tool to another state; raise IllegalTransition if that is not legal or a hook refuses."""
        life = self.life(name)
        if life is None:
            if to != "registered":
                raise IllegalTransition(name, "unregistered", to)
            self.register(name)
        elif to == "unregistered":
            self.unregister(name, why)
        else:
            self._move(life, to, why)

    def unregister(self, name: str, why: str = "") -> None:
        """Free the name at once; a tool that still runs calls becomes `unregistered` when the last one ends."""
        life = self.life(name)
        if life is None:
            raise IllegalTransition(name, "unregistered", "unregistered")
        if life.state in ("executing", "initializing"):
            self._ask(life, "unregistered", why)
            life.draining = True
        else:
            self._move(life, "unregistered", why)
        del self._lives[name]
        self._gone.append(life)

    def begin_call(self, which: Life | str) -> Life:
        """Count a call that begins and return the life it belongs to. A tool in `error` recovers by being called.

        A call may begin on a life whose name is gone: the call was on its way when the tool was unregistered.
        """
        life = self.life(which) if isinstance(which, str) else which
        assert life is not None
        if life.running and life.state == "executing":
            life.running += 1
            return life
        if life.state == "unregistered":
            return life
        if life.state == "ready" and not self._watched and life.past is not None:
            life.state = "executing"
            life.past.append(("ready", "executing", time(), ""))
        else:
            if life.state == "error":
                self._move(life, "ready", "recovered: called again")
            self._move(life, "executing", "call")
        life.running = 1
        return life

    def end_call(self, which: Life | str, failed: bool = False) -> None:
        """Count a call that ended. `failed` is for exceptions and time-outs only, not for errors the tool reports."""
        life = self.life(which) if isinstance(which, str) else which
        assert life is not None
        if life.state == "unregistered":
            return
        life.running -= 1
        if failed:
            life.failures += 1
            life.spoiled = True
        else:
            life.failures = 0
        if life.running:
            return
        if not (life.spoiled or life.draining or self._watched) and life.past is not None:
            life.state = "ready"
            life.past.append(("executing", "ready", time(), ""))
        else:
            self._choose_state(life)

    def enable(self, name: str, why: str = "enabled") -> None:
        """Let a disabled tool be called again; no effect on one that is not in `disabled` or `error`."""
        life = self.life(name)
        if life is None:
            raise IllegalTransition(name, "unregistered", "ready")
        if life.state in ("disabled", "error"):
            self._move(life, "ready", why)
            life.failures = 0

    def trip(self, life: Life, why: str) -> None:
        """Disable a tool that keeps failing, until a passing health check or `enable`."""
        self._move(life, "disabled", why)
        life.tripped = True

    # Inside --------------------------------------------------------------------------------------------------------

    def _choose_state(self, life: Life) -> None:
        """Set the state after the last call: ready, error, or disabled if errors repeat. A draining life ends."""
        spoiled, life.spoiled = life.spoiled, False
        if not spoiled:
            self._move(life, "ready", "call ended")
        else:
            self._move(life, "error", "a call raised or ran out of time")
            if life.failures >= self.trip_after > 0 and not life.draining:
                self.trip(life, f"circuit breaker: {life.failures} failures in a row")
        if life.draining:
            self._move(life, "unregistered", "drained")

    def _move(self, life: Life, to: State, why: str) -> None:
        before = life.state
        if to not in TRANSITIONS[before]:
            raise IllegalTransition(life.name, before, to)
        # Hooks cannot refuse the end of a call, which has happened, nor the end of a draining life.
        if before != "executing" and not life.draining:
            self._ask(life, to, why)
        at = time()
        life.state = to
        life.tripped = False
        life.initialized = life.initialized or before == "initializing"
        if life.past is None:
            life.past = deque(maxlen=HISTORY_LIMIT)
        life.past.append((before, to, at, why))
        if self._listeners or self._quiet_listeners or self._after:
            self._notify(Transition(life.name, before, to, at, why))

    def _ask(self, life: Life, to: State, why: str) -> None:
        move = Transition(life.name, life.state, to, time(), why)
        for hook in tuple(self._before):
            try:
                reason = hook(move)
            except Exception as problem:
                raise IllegalTransition(life.name, life.state, to, f"a hook failed: {problem!r}") from problem
            if reason:
                raise IllegalTransition(life.name, life.state, to, reason)

    def _notify(self, move: Transition) -> None:
        ordinary = move.before in _IN_USE and move.after in _IN_USE
        quiet = () if ordinary else self._quiet_listeners
        for listener in (*self._listeners, *quiet, *self._after):
            try:
                listener(move)
            except Exception:  # a listener cannot veto what has happened
                import logging

                logging.getLogger("surehand.lifecycle").exception("a listener failed on %s", move)

    def _join(self, group: list[Hook] | list[StateListener], member: Hook | StateListener) -> Callable[[], None]:
        group.append(member)  # pyright: ignore[reportArgumentType]  # the two lists differ only in what they may return
        self._watch()

        def leave() -> None:
            if member in group:
                group.remove(member)  # pyright: ignore[reportArgumentType]
            self._watch()

        return leave

    def _watch(self) -> None:
        self._watched = bool(self._before or self._after or self._listeners)
