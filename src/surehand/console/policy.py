"""Policy: the rules in force, an explained verdict as the user types, and the effect of further rules."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from surehand.app import Surehand
from surehand.console.access import WORKSPACE, ApiError, ApiRequest, Endpoint, find_workspace
from surehand.engine.audit import records
from surehand.engine.checking import Checker
from surehand.policy.policy import Policy
from surehand.policy.rule_files import find_mistakes, remember
from surehand.policy.rules import parse_rule
from surehand.state.locations import Workspace

if TYPE_CHECKING:
    from surehand.console.server import Console

DAYS: Final = 7
COMPARED: Final = 2000
"""Maximum number of recorded calls, the latest, that edited rules are tried on."""

Row = dict[str, Any]


def _checker(workspace: str, rules: list[str]) -> Checker:
    app = Surehand(workspace, keep_state=False)
    policy = Policy.from_settings(app.settings, app.session.workspace, command_line=rules)
    return Checker(policy, app.session, app.registry)


async def list_rules(console: Console, request: ApiRequest) -> Any:
    """Return all rules in force in a workspace, with source file and line."""
    del console
    workspace = await find_workspace(request)

    def read() -> Row:
        checker = _checker(workspace.path, [])
        found = find_mistakes(checker.policy.rules, [*checker.tools, "MultiEdit"])
        rules = [rule.to_dict() for rule in checker.policy.rules]
        return {"mode": checker.session.mode, "rules": rules, "warnings": found}

    return {"workspace": workspace.path, **await asyncio.to_thread(read)}


async def check_call(console: Console, request: ApiRequest) -> Any:
    """Return the verdict on a command, a path, a URL or any call, with its reasons."""
    del console
    workspace = await find_workspace(request)
    tool, args = _call(request)
    rules = _rules(request)
    answer = await asyncio.to_thread(lambda: _checker(workspace.path, rules).check(tool, args))
    return {"workspace": workspace.path, "tool": tool, "args": args, **answer}


def _call(request: ApiRequest) -> tuple[str, Row]:
    """Return the call that the input stands for: fetch a URL, `read PATH`, `write PATH`, or run a command."""
    if request.body.get("tool"):
        return request.text("tool"), request.mapping("args") or {}
    typed = request.text("typed").strip()
    if typed.startswith(("http://", "https://")):
        return "WebFetch", {"url": typed}
    what, _, path = typed.partition(" ")
    if what in ("read", "write") and path:
        return ("Read", {"file_path": path}) if what == "read" else ("Write", {"file_path": path, "content": ""})
    return "Bash", {"command": typed}


def _rules(request: ApiRequest) -> list[str]:
    lines = [line.strip() for line in request.text("rules", "").splitlines() if line.strip()]
    for line in lines:
        _parse(line)
    return lines


def _parse(line: str) -> tuple[str, str]:
    verdict, _, rule = line.partition(" ")
    if verdict not in ("allow", "ask", "deny") or not rule:
        raise ApiError(400, f"{line!r} is not a rule", "Write it as `allow Bash(git status:*)`; ask and deny work too.")
    parse_rule(verdict, rule)
    return verdict, rule


async def compare_rules(console: Console, request: ApiRequest) -> Any:
    """Return the recorded calls of the last days whose verdict would change with further rules."""
    del console
    workspace = await find_workspace(request)
    rules = _rules(request)

    def compare() -> Row:
        before, after = _checker(workspace.path, []), _checker(workspace.path, rules)
        rows: list[Row] = []
        calls = _read_recorded(workspace)[-COMPARED:]
        for call in calls:
            was = before.check(call["tool"], call["args"])["decision"]
            now = after.check(call["tool"], call["args"])["decision"]
            if was != now:
                rows.append({"tool": call["tool"], "args": call["args"], "before": was, "now": now, "at": call["at"]})
        return {"calls": len(calls), "differences": len(rows), "rows": rows[:200]}

    return {"workspace": workspace.path, "days": DAYS, **await asyncio.to_thread(compare)}


def _read_recorded(workspace: Workspace) -> list[Row]:
    since = time.time() - DAYS * 86400
    found = records(os.path.join(workspace.state_dir, "audit"))
    return [
        {"tool": str(each.get("tool")), "args": each.get("args") or {}, "at": each["at"], "asked": each.get("approval")}
        for each in found
        if each.get("kind") == "call" and each.get("at", 0.0) >= since
    ]


async def suggest_rules(console: Console, request: ApiRequest) -> Any:
    """Return the rules that would have avoided the most questions of the last days."""
    del console
    workspace = await find_workspace(request)

    def count() -> list[Row]:
        spared: Counter[str] = Counter()
        for call in _read_recorded(workspace):
            asked: Row = call["asked"] or {}
            if asked.get("answer") in ("once", "session"):  # no rule is suggested for refused calls
                spared.update(str(rule) for rule in asked.get("rules") or ())
        return [{"rule": rule, "questions": number} for rule, number in spared.most_common(20)]

    return {"workspace": workspace.path, "days": DAYS, "suggestions": await asyncio.to_thread(count)}


async def save_rule(console: Console, request: ApiRequest) -> Any:
    """Save an allow rule in the user's settings and reload them in running sessions."""
    verdict, rule = _parse(request.text("rule"))
    if verdict != "allow":
        raise ApiError(
            400, "only allow rules are saved from here", "Write ask and deny rules into the settings file yourself."
        )
    await asyncio.to_thread(remember, rule)
    return {"saved": rule, "sessions": await console.reload_all_settings()}


_TRIED: Final = {"rules": "further rules, one a line: `deny Bash(rm:*)`"}
ENDPOINTS = (
    Endpoint("GET", "/api/policy/rules", list_rules, "Every rule in force, with its source and line", WORKSPACE),
    Endpoint(
        "POST",
        "/api/policy/check",
        check_call,
        "What would be decided about something, and why; nothing is run",
        {
            **WORKSPACE,
            **_TRIED,
            "typed": "a command, an address, `read PATH` or `write PATH`; or:",
            "tool": "the tool of a call",
            "args": "its arguments",
        },
    ),
    Endpoint(
        "POST",
        "/api/policy/compare",
        compare_rules,
        "Which recorded calls of the last days would be decided otherwise",
        {**WORKSPACE, **_TRIED},
    ),
    Endpoint(
        "GET", "/api/policy/suggestions", suggest_rules, "Rules that would have spared the most questions", WORKSPACE
    ),
    Endpoint(
        "POST",
        "/api/policy/rules",
        save_rule,
        "Save an allow rule in the user's settings; running sessions take it up",
        {"rule": "as `allow Bash(make test)`"},
    ),
)
