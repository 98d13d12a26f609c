"""`RuleBook`: rules sorted by what they are about, so that an effect meets only the rules of its kind."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import lru_cache

from surehand.core.frozen import changed
from surehand.policy.paths import folded
from surehand.policy.rules import Kind, Origin, Rule, Verdict

_OPEN = re.compile(r"[*?\[\]{}\\]")
DEFAULT_RULES = os.path.join(os.path.dirname(__file__), "default_rules.toml")


class RuleBook:
    """The rules in force, by kind and verdict.

    The built-in rules are all about writing; they are read on the first write, or when all rules are wanted.
    """

    __slots__ = ("_naming", "_paths", "_sorted", "_wants_defaults", "_with_defaults", "own")

    def __init__(self, rules: Sequence[Rule], *, defaults: bool = True) -> None:
        self.own = tuple(rules)
        self._with_defaults = defaults
        self._wants_defaults = defaults
        self._sorted: dict[tuple[Kind, Verdict], list[Rule]] = {}
        self._naming: dict[Verdict, list[Rule]] = {}
        self._paths: dict[tuple[Kind, Verdict], dict[str, list[Rule]]] = {}
        self._sort(self.own)

    def _sort(self, rules: Sequence[Rule]) -> None:
        for rule in rules:
            self._sorted.setdefault((rule.kind, rule.verdict), []).append(rule)
            if rule.kind in ("read", "write"):
                self._paths.setdefault((rule.kind, rule.verdict), {}).setdefault(last_name(rule.spec), []).append(rule)
            if rule.kind == "name" or rule.whole:
                self._naming.setdefault(rule.verdict, []).append(rule)

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Every rule, built-in ones last."""
        return (*self.own, *(default_rules() if self._with_defaults else ()))

    def of(self, kind: Kind, verdict: Verdict) -> Sequence[Rule]:
        """Return the rules about one kind of effect with one verdict, in the order they were given."""
        if kind == "write":
            self._add_defaults()
        return self._sorted.get((kind, verdict), ())

    def _add_defaults(self) -> None:
        if self._wants_defaults:
            self._sort(default_rules())
            self._wants_defaults = False

    def about_path(self, kind: Kind, verdict: Verdict, names: frozenset[str]) -> list[Rule]:
        """Return the path rules that may match a path with these components (folded); wildcards always may."""
        if kind == "write":
            self._add_defaults()
        found = self._paths.get((kind, verdict))
        if not found:
            return []
        return [rule for name in (*names, "") if name in found for rule in found[name]]

    def named(self, verdict: Verdict) -> Sequence[Rule]:
        """Return the rules that may be about a tool as a whole."""
        return self._naming.get(verdict, ())


def last_name(spec: str) -> str:
    """Return the component every match of a pattern must have (folded), or nothing when wildcards leave it open."""
    last = spec.rstrip("/").rpartition("/")[2]
    return "" if last in (".", "..", "~") or _OPEN.search(last) else folded(last)


@lru_cache(maxsize=1)
def default_rules() -> tuple[Rule, ...]:
    """Return the built-in rules. Their examples are checked by the tests, not at every start."""
    from surehand.policy.files import read_rules

    rules = read_rules(DEFAULT_RULES, "built-in", check=False)
    return tuple(changed(rule, origin=Origin("built-in", "default_rules.toml", rule.origin.line)) for rule in rules)
