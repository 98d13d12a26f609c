"""Requests for tests of the policy: one call as facts, with everything not said left at its plainest."""

from __future__ import annotations

from typing import Any

from surehand.core.effects import Effect
from surehand.policy.policy import Decision, Policy, Request
from surehand.policy.rules import parse_line


def request(workspace: object, *effects: Effect, tool: str = "Tool", **facts: Any) -> Request:
    """Return the request of a call with `effects` in `workspace`."""
    values: dict[str, Any] = {
        "aliases": (),
        "module": "",
        "read_only": False,
        "needs_permission": True,
        "level": 0,
        "effects": list(effects),
        "roots": (str(workspace),),
        "cwd": str(workspace),
        "mode": "default",
    }
    return Request(tool=tool, workspace=str(workspace), **{**values, **facts})


def policy(*rules: str) -> Policy:
    """Return a policy with these rules beside the built-in ones."""
    return Policy([parse_line(rule) for rule in rules])


def judge(rules: tuple[str, ...] | list[str], workspace: object, *effects: Effect, **facts: Any) -> Decision:
    """Return the decision on a call with `effects` under `rules`."""
    return policy(*rules).judge(request(workspace, *effects, **facts))


def verdict(rules: tuple[str, ...] | list[str], workspace: object, *effects: Effect, **facts: Any) -> str:
    """Return only the verdict."""
    return judge(rules, workspace, *effects, **facts).verdict
