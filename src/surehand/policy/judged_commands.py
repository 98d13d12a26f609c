"""How a command is judged: rules on its words, and questions about what a program nobody knows is handed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from surehand.core.effects import RunCommand
from surehand.policy.floor import command_floor
from surehand.policy.matching import Matching
from surehand.policy.policy import JudgedEffect
from surehand.policy.projects import project_problem
from surehand.policy.repositories import repository_problem
from surehand.policy.rules import Rule, Verdict
from surehand.policy.weighing import Guard, weigh

_PATH_PARTS = re.compile(r"[^\s'\"`;|&<>(){}=,@:]+")  # what may be a path inside a text
_HOST_PARTS = re.compile(r"[\w.-]+")  # what may be a host inside a text


def judge_command(rules: Matching, effect: RunCommand, covered: Rule | None) -> tuple[JudgedEffect, Rule | None]:
    """Judge a command by its words; return the judgement and the allow rule that matched it, if one did."""
    words = effect.words
    allow = rules.matching("command", "allow", lambda rule: rule.command is not None and rule.command.allows(words))
    shown = " ".join(words[:2])
    default: tuple[Verdict, str] = ("ask", effect.reason or f"{shown} is not known to change nothing")
    judged = weigh(
        rules.request.mode,
        effect,
        floor=command_floor(effect, rules.request.cwd, rules.roots),
        deny=_forbidding(rules, "deny", words),
        ask=_forbidding(rules, "ask", words),
        guard=_guard(rules, effect, allow),
        firm=not effect.read_only,
        changes=not effect.read_only,
        allow=allow,
        covered=covered,
        default=("allow", f"{shown} is read-only") if effect.read_only else default,
    )
    return judged, allow[0] if allow else None


def _forbidding(rules: Matching, verdict: Verdict, words: tuple[str, ...]) -> tuple[Rule, ...]:
    return rules.matching("command", verdict, lambda rule: rule.command is not None and rule.command.forbids(words))


def _guard(rules: Matching, effect: RunCommand, allow: tuple[Rule, ...]) -> Guard | None:
    if effect.read_only:
        reason = "" if allow else repository_problem(effect, rules.request) or project_problem(effect, rules.request)
        return Guard("ask", reason) if reason else None
    words = (*effect.words, effect.fed) if effect.fed else effect.words
    return next((guard for check in _CHECKS for guard in check(rules, words)), None)


def _denied_command(rules: Matching, words: tuple[str, ...]) -> Iterator[Guard]:
    """Yield a question for a program that is no known reader and is handed the words of a denied command."""
    for rule in rules.book.of("command", "deny"):
        if rule.command is not None and rules.counts(rule) and rule.command.hidden_in(words):
            yield Guard("ask", f"{words[0]} may run what rule {rule.text} ({rule.origin}) denies", (rule,))


def _denied_host(rules: Matching, words: tuple[str, ...]) -> Iterator[Guard]:
    """Yield a question for a program that is handed a host which a rule denies, wherever in its words."""
    denied = [rule for rule in rules.book.of("host", "deny") if not rule.whole and rules.counts(rule)]
    if not denied:
        return
    for part in dict.fromkeys(part for word in words for part in _HOST_PARTS.findall(word)[:64]):
        for rule in denied:
            if rule.names_host(part.lower().strip(".-")):
                yield _given(words, part, rule)


def _denied_path(rules: Matching, words: tuple[str, ...]) -> Iterator[Guard]:
    """Yield a question for a program nobody knows that is handed a path which a rule denies."""
    denied = [rule for rule in rules.book.own if rule.verdict == "deny" and rule.kind in ("read", "write")]
    if not denied:
        return
    from surehand.shell.effects import known_words

    if known_words(words[0]):
        return
    given = words if "=" in words[0] else words[1:]  # a variable's value is text as well
    for part in dict.fromkeys(part for word in given for part in _PATH_PARTS.findall(word)[:64]):
        place = rules.roots.place(os.path.join(rules.request.cwd, part))
        for rule in denied:
            if rules.counts(rule) and rules.forbids(rule, place, deep=False):
                yield _given(words, part, rule)


def _given(words: tuple[str, ...], part: str, rule: Rule) -> Guard:
    return Guard("ask", f"{words[0]} is given {part}, which rule {rule.text} ({rule.origin}) denies", (rule,))


_CHECKS = (_denied_command, _denied_host, _denied_path)
