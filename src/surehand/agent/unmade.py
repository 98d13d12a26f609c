"""Results of calls that no tool has answered: providers refuse a call without a result, so each gets one."""

from __future__ import annotations

from typing import Final

from surehand.core.call import ToolCall, ToolError, ToolResult

_LOOK: Final = "Look at the state of things before doing it again."


def no_tools(call: ToolCall) -> ToolResult:
    """Answer a call in a conversation without tools."""
    problem = ToolError("tool_unavailable", f"{call.name} was called, but this conversation has no tools")
    return _failed(call, problem)


def stopped(call: ToolCall) -> ToolResult:
    """Answer a call that ended with its conversation: by Ctrl-C, or by a limit of time."""
    message = f"{call.name} was stopped before it ended; a part of it may have been done"
    return _failed(call, ToolError("cancelled", message, _LOOK, {"interrupted": True}))


def interrupted(call: ToolCall) -> ToolResult:
    """Answer a call that had begun when its process died."""
    message = f"{call.name} had begun when the session was interrupted; whether it took effect is not known"
    return _failed(call, ToolError("execution_error", message, _LOOK, {"interrupted": True}))


def _failed(call: ToolCall, problem: ToolError) -> ToolResult:
    return ToolResult.failed(problem).with_meta(tool=call.name, call_id=call.id)
