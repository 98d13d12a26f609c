"""What `ask` answers, in the fixed form programs read."""

from __future__ import annotations

from typing import Any

from surehand.agent.loop import Outcome
from surehand.core.call import ToolCall, ToolResult


def answer(outcome: Outcome, *, session: str, model: dict[str, str]) -> dict[str, Any]:
    """Return the JSON answer: `toolCalls` and `toolResults` of all turns, `toolError` the last failure or null."""
    spent = outcome.spent
    shaped = {} if outcome.value is None else {"output": plain_value(outcome.value)}
    return {
        "answer": outcome.text,
        **shaped,
        "toolCalls": [_call(call) for call in outcome.calls],
        "toolResults": [_result(call, result) for call, result in zip(outcome.calls, outcome.results, strict=True)],
        "toolError": _last_error(outcome),
        "sessionContextUpdated": bool(outcome.results),
        "usage": {**spent.usage.to_dict(), "cost": spent.cost, "cost_estimated": spent.estimated},
        "session": session,
        "model": model,
        "turns": outcome.turns,
        "stop": outcome.stop,
    }


def plain_value(value: Any) -> Any:
    """Return the value of a structured answer as JSON data."""
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


def _call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "name": call.name, "args": call.shown_args, "source": call.source}


def _result(call: ToolCall, result: ToolResult) -> dict[str, Any]:
    return {"id": call.id, "tool": call.name, **result.to_dict()}


def _last_error(outcome: Outcome) -> dict[str, str] | None:
    for call, result in zip(reversed(outcome.calls), reversed(outcome.results), strict=True):
        if result.error is not None:
            return {"tool": call.name, "code": result.error.code, "message": result.error.message}
    return None
