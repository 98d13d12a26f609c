"""Explain a verdict in words: what was judged, every rule that had a say with its place, and what decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from surehand.core.names import nearest
from surehand.files.sanitize import visible
from surehand.policy.policy import Warned
from surehand.policy.rules import Rule


def format_verdict(answer: Mapping[str, Any]) -> str:
    """Return the answer of a check as a person reads it."""
    lines = [f"{answer['decision']}: {answer['reason']}"]
    if answer["commands"]:
        lines.append("commands")
        lines += [f"  {each['verdict']:<5}  {' '.join(each['words'])}" for each in answer["commands"]]
    effects = [each for each in answer["effects"] if each["kind"] != "run"]
    if effects:
        lines.append("effects")
        lines += [f"  {each['verdict']:<5}  {each['kind']} {_what(each)}  ({each['why']})" for each in effects]
    if answer["rules"]:
        lines.append("rules that matched")
        lines += [
            f"  {_mark(each)} {each['verdict']:<5}  {each['rule']}  ({_origin(each)})" for each in answer["rules"]
        ]
    if answer.get("suggestion"):
        lines.append("an allow rule that would save the question")
        lines += [f"  {rule}" for rule in answer["suggestion"].splitlines()]
    if answer.get("hint"):
        lines.append(answer["hint"])
    return "\n".join(visible(line, lines=False) for line in lines)


def _what(effect: Mapping[str, Any]) -> str:
    if effect["kind"] == "remote":
        return f"{effect['tool']} of {effect['server']}"
    keys = ("path", "url", "host", "reason", "profile")
    return str(next((effect[key] for key in keys if effect.get(key)), ""))


def _mark(rule: Mapping[str, Any]) -> str:
    return ">" if rule["decided"] else " "


def _origin(rule: Mapping[str, Any]) -> str:
    if rule.get("file"):
        return f"{rule['source']}, {rule['file']}:{rule['line']}" if rule.get("line") else rule["file"]
    return str(rule["source"])


def warnings(rules: Sequence[Rule], known_tools: Sequence[str]) -> list[Warned]:
    """Return what looks like a mistake in the rules: one that can match nothing, or that another one undoes."""
    own = [rule for rule in rules if rule.origin.source != "built-in"]
    found = [_idle(rule, known_tools) for rule in own]
    found += [_undone(rule, own) for rule in own]
    return [each for each in found if each is not None]


def find_misnamed(rules: Sequence[Rule], known_tools: Sequence[str]) -> list[Warned]:
    """Return the rules that name no tool but nearly do; one that is near to none may be meant for a tool to come."""
    near = [rule for rule in rules if nearest(rule.name, known_tools, cutoff=0.75)]
    found = [_idle(rule, known_tools) for rule in near]
    return [each for each in found if each is not None]


def _idle(rule: Rule, known_tools: Sequence[str]) -> Warned | None:
    if rule.kind != "name" or rule.name.startswith("mcp__") or rule.names_caller(known_tools):
        return None
    near = nearest(rule.name, known_tools)
    hint = f"; did you mean {near}?" if near else ""
    return Warned(_where(rule), f"{rule.verdict} {rule.text} matches nothing: there is no tool {rule.name!r}{hint}")


def _undone(rule: Rule, rules: Sequence[Rule]) -> Warned | None:
    """An allow (or ask) rule that a stricter one about the same thing makes idle."""
    order = ("allow", "ask", "deny")
    for other in rules:
        stricter = order.index(other.verdict) > order.index(rule.verdict)
        same = other.kind == rule.kind and (other.spec == rule.spec or other.whole)
        if stricter and same and (rule.kind != "name" or other.name == rule.name):
            return Warned(
                _where(rule),
                f"{rule.verdict} {rule.text} has no effect: {other.verdict} {other.text} ({other.origin}) comes first",
            )
    return None


def _where(rule: Rule) -> str:
    return str(rule.origin)
