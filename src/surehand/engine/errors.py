"""Errors of the engine in words: what was wrong with a call, and what to do next."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from surehand.core.call import ToolCall, ToolError, ToolResult
from surehand.core.context import NOTHING_CHANGED
from surehand.core.errors import ToolFailure
from surehand.core.installation import explain_missing_module
from surehand.core.names import find_near, provider_safe
from surehand.engine.prepared import Prepared, View
from surehand.engine.running import aftermath

SWITCHED_OFF: Final = "Set `enabled = true` for it in the settings, or use another tool."
CLOSED: Final = "the session was closed while the call was under way"


def missing(name: str, view: View, *, by_model: bool = False) -> ToolFailure:
    """Say that there is no such tool in this session: hidden from it, or not there at all."""
    if view.hides(name):
        message = f"{name} is not among the tools of this session"
        return ToolFailure(message, code="tool_unavailable", hint="Use one of the tools you were given.")
    return unknown_tool(name, view.names(), by_model=by_model)


def unknown_tool(name: str, names: Iterable[str], *, by_model: bool = False) -> ToolFailure:
    """Say that there is no tool of this name, and which names are near; to a model, as it has to write them."""
    near = find_near(name, names)
    near = [provider_safe(each) for each in near] if by_model else near
    hint = (
        f"Did you mean {', '.join(near)}?" if near else "`surehand tools list` lists all; a model can use ToolSearch."
    )
    message = f"there is no tool named {name!r}"
    return ToolFailure(message, code="tool_not_found", hint=hint, details={"name": name, "nearest": near})


def failed_result(failure: ToolFailure) -> ToolResult:
    """Return the result an expected failure becomes."""
    return ToolResult.failed(ToolError.of(failure), data=failure.data, output=failure.output)


def closed_result(call: ToolCall) -> ToolResult:
    """Return the result of a call that comes after the end of its session; it is recorded nowhere."""
    message = f"{call.name} was not run: the session is closed"
    error = ToolError("tool_unavailable", message, "Open a new one; a named session continues where this one ended.")
    return ToolResult.failed(error).with_meta(tool=call.name, call_id=call.id)


def given_up(prepared: Prepared | None, why: str) -> ToolResult:
    """Return the result of a call whose caller was cancelled, with the outcome of a change that had begun."""
    if prepared is not None and prepared.outcome is not None:
        return prepared.outcome
    hint = NOTHING_CHANGED if prepared is None else aftermath(prepared)
    return ToolResult.failed(ToolError("cancelled", why, hint))


def timed_out(prepared: Prepared | None) -> ToolResult:
    """Return the result of a call that ran into its deadline, and what became of its handler."""
    assert prepared is not None
    tool, seconds = prepared.tool, prepared.timeout_s
    left = f" {aftermath(prepared)}"
    if "Its thread" in left:
        left += ' Mark the tool `where="process"` to have it killed.'
    message = f"{tool.name} did not finish within {seconds:g} s and was stopped."
    hint = "Ask for less at once, or raise `timeout` for it in the settings." + left
    return ToolResult.failed(ToolError("timeout", message, hint, {"timeout_s": seconds}))


def crash_failure(name: str, problem: Exception) -> ToolFailure:
    """Return the failure a bug in a tool becomes; an extra that is not installed is no bug."""
    if isinstance(problem, ModuleNotFoundError) and (missing_part := explain_missing_module(problem)):
        what, hint = missing_part
        return ToolFailure(f"{name} cannot run: {what}", code="tool_unavailable", hint=hint)
    return ToolFailure(
        f"{name} raised {type(problem).__name__}: {problem}",
        hint="This is a fault in the tool, not in the arguments; the log has its traceback.",
        details={"exception": type(problem).__name__},
    )
