"""Who has the first say on an effect: the hard floor, rules, what is protected by default, the mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surehand.core.effects import Effect
from surehand.core.frozen import frozen
from surehand.policy.policy import JudgedEffect
from surehand.policy.rules import Rule, Verdict

if TYPE_CHECKING:
    from surehand.core.settings import Mode


@frozen
class Guard:
    """A protection that holds by default: what it says, and why."""

    verdict: Verdict
    reason: str
    rules: tuple[Rule, ...] = ()


def weigh(
    mode: Mode,
    effect: Effect,
    *,
    changes: bool,
    floor: str = "",
    deny: tuple[Rule, ...] = (),
    ask: tuple[Rule, ...] = (),
    guard: Guard | None = None,
    allow: tuple[Rule, ...] = (),
    covered: Rule | None = None,
    default: tuple[Verdict, str] = ("ask", "no rule allows it"),
    firm: bool = False,
) -> JudgedEffect:
    """Return the verdict of the first that has a say; `firm` guards ask even in mode bypass."""
    every = tuple(dict.fromkeys((*deny, *ask, *(guard.rules if guard else ()), *allow)))
    if floor:
        return JudgedEffect(effect, "deny", f"hard floor: {floor}", every)
    if deny:
        return JudgedEffect(effect, "deny", by(deny[0]), every)
    if guard is not None and guard.verdict == "deny":
        return JudgedEffect(effect, "deny", guard.reason, every)
    if mode == "plan" and changes:
        return JudgedEffect(effect, "deny", "mode plan changes nothing", every)
    if ask:
        return JudgedEffect(effect, "ask", by(ask[0]), every)
    if guard is not None and (firm or mode != "bypass"):
        return JudgedEffect(effect, "ask", guard.reason, every)
    if mode == "bypass":
        return JudgedEffect(effect, "allow", "mode bypass", every)
    if allow:
        return JudgedEffect(effect, "allow", by(allow[0]), every)
    if covered is not None:
        return JudgedEffect(effect, "allow", by(covered), (*every, covered))
    return JudgedEffect(effect, *default, every)


def by(rule: Rule) -> str:
    """Say that a rule decided, where it stands and why it is there."""
    verb = {"allow": "allows", "ask": "asks about", "deny": "denies"}[rule.verdict]
    why = f": {rule.reason}" if rule.reason else ""
    return f"rule {rule.text} ({rule.origin}) {verb} it{why}"
