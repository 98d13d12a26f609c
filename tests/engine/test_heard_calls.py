"""Calls made elsewhere, counted by what is heard of them."""

from __future__ import annotations

from typing import Any

import pytest

from surehand.core.call import ToolError, ToolResult
from surehand.core.events import Event
from surehand.engine.heard_calls import HeardCalls
from surehand.engine.metrics import Metrics

FAILED = ToolResult.failed(ToolError("timeout", "too long")).with_meta(duration_ms=250.0, queued_ms=50.0)


def begin(call: str, session: str = "s") -> Event:
    return Event("call_started", session, call, "Bash")


def end(call: str, result: Any, session: str = "s") -> Event:
    return Event("call_finished", session, call, "Bash", {} if result is None else {"result": result})


@pytest.mark.parametrize("result", [FAILED, FAILED.to_dict()], ids=["object", "plain"])
def test_the_end_of_a_call_says_what_it_cost(result: Any) -> None:
    heard = HeardCalls(Metrics())
    heard(begin("a"))
    heard(begin("a"))  # made again elsewhere
    heard(end("a", result))
    figures = heard.metrics.of("Bash")
    assert figures is not None
    assert figures.execution.total_calls == 1
    assert figures.execution.max_ms == pytest.approx(250)
    assert figures.errors.by_code == {"timeout": 1}
    assert figures.concurrency.max_queue_ms == pytest.approx(50)
    assert (figures.concurrency.max_calls, figures.concurrency.running) == (1, 0)


def test_nothing_runs_on_that_will_not_be_heard_of_again() -> None:
    heard = HeardCalls(Metrics())
    for session in ("one", "two", "three"):
        heard(begin("a", session))
    assert heard.metrics.records["Bash"].running == 3
    heard(end("a", None, "one"))
    heard(Event("session_closed", "two"))
    heard(Event("subagent_event", "three", data={"event": begin("b", "below")}))
    assert heard.metrics.records["Bash"].running == 2
    heard.forget_running()
    assert heard.metrics.records["Bash"].running == 0
