"""The rule book: an index of the rules in force, and the lookup of those that match a request, effect or path."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from surehand.core.effects import Effect, WritePath
from surehand.core.frozen import replace_values
from surehand.policy.paths import (
    PathPattern,
    ResolvedPath,
    Roots,
    compile_pattern,
    fold_name,
    has_wildcard,
    pattern_key,
)
from surehand.policy.rule_files import read_rules
from surehand.policy.rules import Kind, Origin, Request, Rule, Verdict, grant
from surehand.policy.trust import trusted_files

if TYPE_CHECKING:
    from surehand.git.protected_files import ObeyedFiles

_MANY = 20
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
        """Return the rules that may match a path with these folded components.

        They are those whose last component is among them, and those whose last component has a wildcard.
        """
        if kind == "write":
            self._add_defaults()
        found = self._paths.get((kind, verdict))
        if not found:
            return []
        return [rule for name in (*names, "") if name in found for rule in found[name]]

    def about_tools(self, verdict: Verdict) -> Sequence[Rule]:
        """Return the rules that may be about a tool as a whole."""
        return self._naming.get(verdict, ())


def last_name(spec: str) -> str:
    """Return a folded component that every match of a pattern contains; empty if wildcards leave it open."""
    last = spec.rstrip("/").rpartition("/")[2]
    return "" if last in (".", "..", "~") or _OPEN.search(last) else fold_name(last)


@lru_cache(maxsize=1)
def default_rules() -> tuple[Rule, ...]:
    """Return the built-in rules. Their examples are checked by the tests, not at every start."""
    rules = read_rules(DEFAULT_RULES, "built-in", check=False)
    return tuple(
        replace_values(rule, origin=Origin("built-in", "default_rules.toml", rule.origin.line)) for rule in rules
    )


class Matching:
    """Finds the rules in force that match one request: those of the book, and the session's grants.

    `place` is the request's only path, if the caller has resolved it already.
    """

    def __init__(self, book: RuleBook, roots: Roots, request: Request, place: ResolvedPath | None = None) -> None:
        self._place = place
        self.request = request
        self.book = book
        self.roots = roots
        given = [grant(line) for text in request.grants for line in text.splitlines()]
        self._grants = [rule for rule in given if rule is not None]
        self._untrusted = any(origin != "workspace" for origin in request.origins)
        many = len(request.effects or ()) > _MANY
        self._folders: dict[str, str] | None = {} if many else None

    def resolve(self, path: str) -> ResolvedPath:
        """Resolve a path. For requests with many paths each directory is resolved once."""
        place = self._place or self.roots.resolve(path, self._folders)
        if self.request.leads is not None:
            self.request.leads[path] = place.real
        return place

    @cached_property
    def trusted_files(self) -> frozenset[str]:
        """The code that the trusted workspace runs: files and packages."""
        return trusted_files(self.request.workspace)

    @cached_property
    def obeyed(self) -> ObeyedFiles:
        """Which paths that the request writes git would obey."""
        return find_obeyed(self.request.effects or ())

    def naming(self, verdict: Verdict) -> tuple[Rule, ...]:
        """Return the rules about the tool as a whole."""
        names = self.request.names
        found = [rule for rule in self.book.about_tools(verdict) if rule.names_tool(names) and self.counts(rule)]
        if verdict == "allow":
            found += [rule for rule in self._grants if rule.names_tool(names)]
        elif verdict == "deny" and self.request.tool.startswith("mcp__"):
            # A server's name may itself contain `__`, so a deny rule on a server matches by prefix.
            found += [rule for rule in self.book.of("name", "deny") if self.request.tool.startswith(rule.name + "__")]
        return tuple(dict.fromkeys(found))

    def counts(self, rule: Rule) -> bool:
        """Return whether a rule is active: `after_untrusted` rules count once untrusted text has entered."""
        return self._untrusted or not rule.untrusted_only

    def matching(self, kind: Kind, verdict: Verdict, about: Callable[[Rule], bool]) -> tuple[Rule, ...]:
        """Return the rules of one kind and verdict for which `about` holds."""
        found = [rule for rule in self.book.of(kind, verdict) if self.counts(rule) and about(rule)]
        if verdict == "allow":
            found += [rule for rule in self._grants if rule.kind == kind and about(rule)]
        if kind in ("read", "write"):
            found += [rule for rule in self._of_this_tool(verdict) if about(rule)]
        return tuple(found)

    def _of_this_tool(self, verdict: Verdict) -> list[Rule]:
        """Return the path rules of this tool alone, such as `Grep(secrets/**)`."""
        rules = self.book.of("name", verdict)
        return [rule for rule in rules if rule.spec and self.counts(rule) and rule.names_caller(self.request.names)]

    # -- paths ---------------------------------------------------------------------------------------------------

    def forbidding(self, kind: Kind, verdict: Verdict, place: ResolvedPath, deep: bool) -> tuple[Rule, ...]:
        """Return the deny or ask rules that match a path; with `deep` also those that match anything below it."""
        # A recursive change reaches names that are not in this path, so the index by name would miss rules.
        rules = self.book.of(kind, verdict) if deep else self.book.about_path(kind, verdict, place.components)
        known = [rule for rule in rules if self.counts(rule)] + self._of_this_tool(verdict)
        return tuple(rule for rule in known if self.forbids(rule, place, deep))

    def forbids(self, rule: Rule, place: ResolvedPath, deep: bool) -> bool:
        """Return whether a deny or ask rule matches a path, by any of its names."""
        if rule.whole:
            return True
        pattern = self.pattern(rule.spec, generous=True)
        return any(pattern.matches(name) or (deep and pattern.touches_below(name)) for name in place.names)

    def allowing(self, kind: Kind, place: ResolvedPath) -> tuple[Rule, ...]:
        """Return the rules that allow a path. Both the given name and the resolved one must be covered."""
        rules = self.matching(kind, "allow", lambda rule: any(self._allows(rule, name, place) for name in place.names))
        covered = all(any(self._allows(rule, name, place) for rule in rules) for name in place.names)
        return rules if covered else ()

    def _allows(self, rule: Rule, name: str, place: ResolvedPath) -> bool:
        return place.inside if rule.whole else self.pattern(rule.spec, generous=False).matches(name)

    def spelled_out(self, rule: Rule, place: ResolvedPath) -> bool:
        """Return whether a rule of the user spells out the name of this file; only such a rule lifts a protection."""
        if rule.whole or rule.origin.source == "project":
            return False
        pattern = self.pattern(rule.spec, generous=False)
        return any(pattern.names(part) for name in place.names for part in name.split("/")[-1:])

    def points_at(self, rule: Rule, name: str) -> bool:
        """Return whether a rule of the user is exactly this path, spelled from the workspace, the home or the root."""
        spec = rule.spec
        anchored = spec.startswith(("./", "/", "~/")) and not spec.endswith("/") and not has_wildcard(spec)
        if rule.whole or not anchored or rule.origin.source == "project":
            return False
        same_name = posixpath.basename(spec) == posixpath.basename(name)
        return same_name and self.pattern(spec, generous=False).matches(name)

    def pattern(self, spec: str, generous: bool) -> PathPattern:
        """Return the compiled pattern of a path rule."""
        return compile_pattern(spec, pattern_key(self.roots), generous)


def find_obeyed(effects: Sequence[Effect]) -> ObeyedFiles:
    """Collect the paths that a call writes, to find those that git would obey."""
    from surehand.git.protected_files import ObeyedFiles  # lazy: git's files, 12 ms, for writes alone

    return ObeyedFiles([each.path for each in effects if isinstance(each, WritePath)] if len(effects) > 1 else ())


def why_git_obeys(place: ResolvedPath, obeyed: ObeyedFiles) -> str:
    """Return why git would obey a file written here, alone or with the call's other paths; empty if it would not."""
    for name in place.names:
        if why := obeyed.why(name, real=place.inside and name == place.real):
            return why
    return ""
