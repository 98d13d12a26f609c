"""Checking what would be decided about a call, without running it: for `policy check` and `policy replay`.

Arguments are validated as by the executor, the tool states its effects, the policy judges them. Preconditions are not
checked, the network is not used, nobody is asked.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from surehand.core.call import ToolCall
from surehand.core.context import ToolContext
from surehand.core.effects import RemoteCall, RunCommand
from surehand.core.errors import SurehandError, ToolFailure
from surehand.core.frozen import replace_values
from surehand.core.names import split_full_name
from surehand.core.tool import Tool
from surehand.engine.arguments import check_arguments
from surehand.engine.ask import Permissions, apply_own_permission
from surehand.engine.prepared import unknown_tool
from surehand.policy.approval import Nobody
from surehand.policy.policy import Decision, JudgedEffect, Policy, Request

if TYPE_CHECKING:
    from surehand.core.session import Session
    from surehand.core.settings import Mode

MODES: dict[str, Mode] = {
    "default": "default",
    "accept-edits": "accept-edits",
    "acceptEdits": "accept-edits",
    "plan": "plan",
    "bypass": "bypass",
    "bypassPermissions": "bypass",
}
"""Modes by name, including the names other systems use."""


class Tools(Protocol):
    """Finds a tool by name or alias."""

    def get(self, name: str) -> Tool | None:
        """Return a tool by its name."""
        ...

    def __iter__(self) -> Iterator[str]: ...


class Checker:
    """Judges calls by a policy, for a session that runs nothing."""

    def __init__(self, policy: Policy, session: Session, tools: Tools) -> None:
        self.policy = policy
        self.session = session
        self.tools = tools
        self._asking = Permissions(policy, Nobody())

    def check(self, name: str, args: Any, mode: str | None = None) -> dict[str, Any]:
        """Return the verdict on one call as plain data: decision, reason, rules, effects, commands."""
        try:
            decision = self.decide(name, args, mode)
        except ToolFailure as failure:
            if failure.code == "permission_denied":
                return _answer("deny", failure.message)
            return _answer("error", failure.message, hint=failure.hint)
        except SurehandError as problem:
            return _answer("error", str(problem))
        except Exception as problem:  # a tool that cannot state its effects must not end the batch; it is not permitted
            return _answer("error", f"{name} failed to say what it would do: {type(problem).__name__}: {problem}")
        shown = decision.to_dict()
        return {**shown, "commands": _commands(decision.judged)}

    def decide(self, name: str, args: Any, mode: str | None = None) -> Decision:
        """Return the decision on one call; raise ToolFailure if the tool is unknown or the arguments are invalid."""
        chosen = MODES.get(mode) if mode is not None else self.session.mode
        if chosen is None:
            raise ToolFailure(f"there is no mode {mode!r}", code="invalid_args", hint=f"Modes: {', '.join(MODES)}.")
        if not isinstance(args, Mapping):
            raise ToolFailure(f"args must be an object, not {type(args).__name__}", code="invalid_args")
        call = ToolCall(name, cast("Mapping[str, Any]", args))
        tool = self.tools.get(name)
        if tool is None:
            return self.policy.judge(replace_values(self._remote(name), mode=chosen))
        ctx, parsed = self._parse_call(tool, call)
        decision = self.policy.judge(replace_values(self._asking.request(tool, parsed, ctx), mode=chosen))
        if tool.check_permission is None or inspect.iscoroutinefunction(tool.check_permission):
            return decision
        return apply_own_permission(tool, ctx, decision, tool.check_permission(parsed, ctx))[0]

    def _parse_call(self, tool: Tool, call: ToolCall) -> tuple[ToolContext, Any]:
        settings = self.session.settings.tools.get(tool.name)
        ctx = ToolContext(call, self.session, lambda progress: None, settings.custom if settings else {})
        return ctx, check_arguments(tool, call)[0]

    def _remote(self, name: str) -> Request:
        """Return the facts of a call to a tool of an MCP server that is not connected: only its name is known."""
        found = split_full_name(name)
        if found is None:
            raise unknown_tool(name, self.tools)
        session = self.session
        return Request(
            tool=name,
            aliases=(),
            module=found[0],
            read_only=False,
            needs_permission=True,
            level=0,
            effects=[RemoteCall(*found)],
            workspace=session.workspace,
            roots=session.roots,
            cwd=session.cwd,
            mode=session.mode,
        )


def _answer(decision: str, reason: str, hint: str = "") -> dict[str, Any]:
    shown: dict[str, Any] = {"decision": decision, "reason": reason, "rules": [], "effects": [], "commands": []}
    return shown | ({"hint": hint} if hint else {})


def _commands(judged: Sequence[JudgedEffect]) -> list[dict[str, Any]]:
    return [
        {
            "name": each.effect.words[0] if each.effect.words else "",
            "words": list(each.effect.words),
            "read_only": each.effect.read_only,
            "verdict": each.verdict,
        }
        for each in judged
        if isinstance(each.effect, RunCommand)
    ]
