"""`RuleBook`: rules sorted by what they are about, so that an effect meets only the rules of its kind."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import lru_cache

from holdfast.policy.rules import Kind, Origin, Rule, Verdict

DEFAULT_RULES = os.path.join(os.path.dirname(__file__), "default_rules.toml")


class RuleBook:
    """The rules in force, by kind and verdict. Built-in rules are read on first need."""

    __slots__ = ("_sorted", "rules")

    def __init__(self, rules: Sequence[Rule], *, defaults: bool = True) -> None:
        self.rules: tuple[Rule, ...] = (*rules, *(default_rules() if defaults else ()))
        self._sorted: dict[tuple[Kind, Verdict], list[Rule]] = {}
        for rule in self.rules:
            self._sorted.setdefault((rule.kind, rule.verdict), []).append(rule)

    def of(self, kind: Kind, verdict: Verdict) -> Sequence[Rule]:
        """Return the rules about one kind of effect with one verdict, in the order they were given."""
        return self._sorted.get((kind, verdict), ())

    def named(self, verdict: Verdict) -> Iterable[Rule]:
        """Return the rules that may be about a tool as a whole."""
        kinds: tuple[Kind, ...] = ("name", "command", "read", "write", "host", "agent")
        return (rule for kind in kinds for rule in self.of(kind, verdict))


@lru_cache(maxsize=1)
def default_rules() -> tuple[Rule, ...]:
    """Return the built-in rules. Their examples are checked by the tests, not at every start."""
    from holdfast.policy.files import read_rules

    rules = read_rules(DEFAULT_RULES, "built-in", check=False)
    return tuple(_without_path(rule) for rule in rules)


def _without_path(rule: Rule) -> Rule:
    from dataclasses import replace

    return replace(rule, origin=Origin("built-in", "default_rules.toml", rule.origin.line))
