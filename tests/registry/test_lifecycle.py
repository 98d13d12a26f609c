"""The life of a tool: the table of moves, the record of them, listeners, hooks and the circuit breaker."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from surehand.core.errors import SurehandError
from surehand.registry.lifecycle import HISTORY_LIMIT, TRANSITIONS, IllegalTransition, Lifecycle, State, Transition

ALLOWED = {
    ("registered", "initializing"),
    ("registered", "disabled"),
    ("registered", "unregistered"),
    ("initializing", "ready"),
    ("initializing", "failed"),
    ("ready", "executing"),
    ("ready", "disabled"),
    ("ready", "unregistered"),
    ("executing", "ready"),
    ("executing", "error"),
    ("error", "ready"),
    ("error", "disabled"),
    ("error", "unregistered"),
    ("failed", "unregistered"),
    ("disabled", "ready"),
    ("disabled", "unregistered"),
}
WAYS: dict[State, tuple[State, ...]] = {
    "registered": (),
    "initializing": ("initializing",),
    "ready": ("initializing", "ready"),
    "executing": ("initializing", "ready", "executing"),
    "error": ("initializing", "ready", "executing", "error"),
    "failed": ("initializing", "failed"),
    "disabled": ("disabled",),
}


def in_state(state: State) -> Lifecycle:
    lifecycle = Lifecycle()
    lifecycle.register("t")
    for step in WAYS[state]:
        lifecycle.move("t", step)
    assert lifecycle.state("t") == state
    return lifecycle


def ready() -> Lifecycle:
    return in_state("ready")


@pytest.mark.parametrize(("before", "after"), list(product(WAYS, TRANSITIONS)))
def test_exactly_the_moves_of_the_diagram_are_legal(before: State, after: State) -> None:
    lifecycle = in_state(before)
    draining = after == "unregistered" and before in ("executing", "initializing")
    if (before, after) in ALLOWED or draining:
        lifecycle.move("t", after)
        assert lifecycle.state("t") == after
    else:
        with pytest.raises(SurehandError, match=f"{before} -> {after} for tool t"):
            lifecycle.move("t", after)
        assert lifecycle.state("t") == before


def test_a_name_nobody_has_is_unregistered_and_cannot_move() -> None:
    lifecycle = Lifecycle()
    assert lifecycle.state("nobody") == "unregistered"
    with pytest.raises(IllegalTransition, match="unregistered -> ready"):
        lifecycle.move("nobody", "ready")


def test_every_move_is_recorded_with_its_reason() -> None:
    lifecycle = in_state("initializing")
    lifecycle.move("t", "failed", "no network")
    moves = [(move.before, move.after, move.why) for move in lifecycle.history("t")]
    assert moves == [
        (None, "registered", ""),
        ("registered", "initializing", ""),
        ("initializing", "failed", "no network"),
    ]
    assert all(a.at <= b.at for a, b in zip(lifecycle.history("t"), lifecycle.history("t")[1:], strict=False))


def test_the_history_is_bounded() -> None:
    lifecycle = ready()
    for _ in range(HISTORY_LIMIT * 2):
        lifecycle.end_call(lifecycle.begin_call("t"))
    assert len(lifecycle.history("t")) == HISTORY_LIMIT


def test_a_tool_is_executing_until_the_last_of_its_calls_ends() -> None:
    lifecycle = ready()
    first, second = lifecycle.begin_call("t"), lifecycle.begin_call("t")
    lifecycle.end_call(first)
    assert lifecycle.state("t") == "executing"
    lifecycle.end_call(second)
    assert lifecycle.state("t") == "ready"


def test_a_failure_among_several_calls_shows_when_the_last_ends() -> None:
    lifecycle = ready()
    first, second = lifecycle.begin_call("t"), lifecycle.begin_call("t")
    lifecycle.end_call(first, failed=True)
    lifecycle.end_call(second)
    assert lifecycle.state("t") == "error"


def test_an_error_recovers_by_the_next_call() -> None:
    lifecycle = ready()
    lifecycle.end_call(lifecycle.begin_call("t"), failed=True)
    assert lifecycle.state("t") == "error"
    lifecycle.end_call(lifecycle.begin_call("t"))
    assert lifecycle.state("t") == "ready"
    assert "recovered" in " ".join(move.why for move in lifecycle.history("t"))


def test_repeated_errors_trip_the_breaker_and_enable_brings_the_tool_back() -> None:
    lifecycle = ready()
    for _ in range(lifecycle.trip_after):
        lifecycle.end_call(lifecycle.begin_call("t"), failed=True)
    life = lifecycle.life("t")
    assert lifecycle.state("t") == "disabled"
    assert life is not None
    assert life.tripped
    with pytest.raises(IllegalTransition, match="disabled -> executing"):
        lifecycle.begin_call("t")
    lifecycle.enable("t")
    assert lifecycle.state("t") == "ready"
    lifecycle.end_call(lifecycle.begin_call("t"), failed=True)
    assert lifecycle.state("t") == "error", "the count starts anew"


def test_a_success_in_between_keeps_the_breaker_closed() -> None:
    lifecycle = ready()
    for _ in range(3 * lifecycle.trip_after):
        lifecycle.end_call(lifecycle.begin_call("t"), failed=True)
        lifecycle.end_call(lifecycle.begin_call("t"))
    assert lifecycle.state("t") == "ready"


def test_unregistering_a_running_tool_takes_the_name_at_once_and_lets_it_drain() -> None:
    lifecycle = ready()
    old = lifecycle.begin_call("t")
    lifecycle.unregister("t", "replaced")
    assert lifecycle.state("t") == "unregistered"
    assert old.state == "executing"
    lifecycle.register("t")
    lifecycle.end_call(old)
    assert old.state == "unregistered"
    assert lifecycle.state("t") == "registered", "a later tool of that name is another life"
    assert [move.after for move in lifecycle.history("t")][-4:] == ["executing", "ready", "unregistered", "registered"]


def test_listeners_hear_every_move_and_quiet_ones_no_ordinary_calls() -> None:
    lifecycle = Lifecycle()
    loud: list[Transition] = []
    quiet: list[Transition] = []
    stop = lifecycle.listen(loud.append)
    lifecycle.listen(quiet.append, calls=False)
    lifecycle.register("t")
    lifecycle.move("t", "initializing")
    lifecycle.move("t", "ready")
    lifecycle.end_call(lifecycle.begin_call("t"))
    assert [move.after for move in loud] == ["registered", "initializing", "ready", "executing", "ready"]
    assert [move.after for move in quiet] == ["registered", "initializing", "ready"]
    stop()
    lifecycle.move("t", "disabled")
    assert len(loud) == 5
    assert quiet[-1].after == "disabled"


def test_a_listener_that_raises_stops_nothing() -> None:
    lifecycle = Lifecycle()
    heard: list[Transition] = []

    def broken(move: Transition) -> None:
        raise RuntimeError("broken")

    lifecycle.listen(broken)
    lifecycle.listen(heard.append)
    lifecycle.register("t")
    lifecycle.move("t", "disabled")
    assert [move.after for move in heard] == ["registered", "disabled"]


def test_a_hook_may_refuse_a_move_before_it_happens() -> None:
    lifecycle = ready()
    stop = lifecycle.before(lambda move: "not on Sundays" if move.after == "disabled" else None)
    with pytest.raises(IllegalTransition, match="ready -> disabled for tool t: not on Sundays"):
        lifecycle.move("t", "disabled")
    assert lifecycle.state("t") == "ready"
    stop()
    lifecycle.move("t", "disabled")
    assert lifecycle.state("t") == "disabled"


def test_a_hook_that_raises_refuses() -> None:
    lifecycle = ready()

    def broken(move: Transition) -> str | None:
        raise KeyError("x")

    lifecycle.before(broken)
    with pytest.raises(IllegalTransition, match="a hook failed"):
        lifecycle.move("t", "unregistered")
    assert lifecycle.state("t") == "ready"


def test_hooks_run_before_and_after_with_the_state_they_expect() -> None:
    lifecycle = ready()
    seen: list[tuple[str, State]] = []
    lifecycle.before(lambda move: seen.append(("before", lifecycle.state("t"))))
    lifecycle.after(lambda move: seen.append(("after", lifecycle.state("t"))))
    lifecycle.move("t", "disabled")
    assert seen == [("before", "ready"), ("after", "disabled")]


def test_a_hook_that_refuses_keeps_the_tool_in_the_registry() -> None:
    from surehand.core.tool import Tool
    from surehand.registry.registry import Registry

    registry = Registry()
    registry.register(Tool(name="t", description="t", run=print, args={"type": "object"}, aliases=("other",)))
    registry.lifecycle.before(lambda move: "needed" if move.after == "unregistered" else None)
    with pytest.raises(IllegalTransition, match="needed"):
        registry.unregister("t")
    assert registry.get("other") is not None
    assert registry.lifecycle.state("t") == "registered"


def test_a_name_that_is_taken_cannot_be_registered_again() -> None:
    lifecycle = in_state("registered")
    with pytest.raises(IllegalTransition, match="the name is taken"):
        lifecycle.register("t")


class Model(RuleBasedStateMachine):
    """The life cycle against the simplest thing that could be right: a state, a count, a row of failures."""

    def __init__(self) -> None:
        super().__init__()
        self.real = Lifecycle(trip_after=3)
        self.real.register("t")
        self.state: State = "registered"
        self.calls: list[object] = []
        self.spoiled = False
        self.row = 0

    @rule(to=st.sampled_from([state for state in TRANSITIONS if state not in ("unregistered", "executing")]))
    def move(self, to: State) -> None:
        if (self.state, to) in ALLOWED and self.state != "executing":
            self.real.move("t", to)
            self.state = to
        elif self.state != "executing":
            with pytest.raises(IllegalTransition):
                self.real.move("t", to)

    @rule()
    def begin(self) -> None:
        if self.state in ("ready", "error", "executing"):
            self.calls.append(self.real.begin_call("t"))
            self.state = "executing"
        else:
            with pytest.raises(IllegalTransition):
                self.real.begin_call("t")

    @precondition(lambda self: bool(self.calls))
    @rule(failed=st.booleans())
    def end(self, failed: bool) -> None:
        self.real.end_call(self.calls.pop(), failed)  # type: ignore[arg-type]
        self.spoiled = self.spoiled or failed
        self.row = self.row + 1 if failed else 0
        if not self.calls:
            self.state = "ready" if not self.spoiled else "disabled" if self.row >= 3 else "error"
            self.spoiled = False

    @precondition(lambda self: self.state in ("disabled", "error"))
    @rule()
    def enable(self) -> None:
        self.real.enable("t")
        self.state, self.row = "ready", 0

    @invariant()
    def agrees(self) -> None:
        assert self.real.state("t") == self.state
        moves = self.real.history("t")
        assert all((a.before, a.after) in ALLOWED for a in moves if a.before is not None)
        assert all(a.after == b.before for a, b in pairwise(moves))
        assert moves[-1].after == self.state


Model.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAgainstAModel = Model.TestCase
