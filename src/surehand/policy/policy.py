"""`Policy`: one judgement for every call.

Each effect of a call is judged by itself (hard floor, deny, ask, what is protected by default, mode, allow, otherwise
ask); the strictest verdict over all effects is the call's. Nothing here runs, reads a file's content or asks anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from surehand.core.effects import Effect, describe
from surehand.core.frozen import changed, frozen
from surehand.policy.paths import Roots, compile_pattern, pattern_key
from surehand.policy.rules import Kind, Rule, Verdict

if TYPE_CHECKING:
    from surehand.core.session import Session
    from surehand.core.settings import Mode, Settings, ToolPermissionSettings

__all__ = ["Both", "Decision", "JudgedEffect", "MatchedRule", "Policy", "Request", "Verdict", "narrower_mode"]

STRICTNESS: dict[Verdict, int] = {"allow": 0, "ask": 1, "deny": 2}
_FREEDOM: tuple[str, ...] = ("plan", "default", "accept-edits", "bypass")


@frozen
class Request:
    """One call, as facts: which tool, what it touches, and where it stands."""

    tool: str
    aliases: tuple[str, ...]
    module: str
    read_only: bool
    needs_permission: bool
    level: int
    effects: Sequence[Effect] | None
    """None when nobody thought about it; never the same as an empty list."""
    workspace: str
    roots: tuple[str, ...]
    cwd: str
    mode: Mode
    grants: Sequence[str] = ()
    """Allow rules an approver gave for this session."""
    origins: frozenset[str] = frozenset()
    source: str = "user"
    tool_settings: ToolPermissionSettings | None = None
    confined: bool = False
    """Whether nothing outside the roots may be changed, whatever rules allow."""
    always_asks: bool = False
    """Whether the tool says of itself that it asks although it only reads."""

    @property
    def names(self) -> tuple[str, ...]:
        """Every name a rule may use for this tool."""
        if not self.module:
            return (self.tool, *self.aliases)
        full = self.tool if self.tool.startswith("mcp__") else f"mcp__{self.module}__{self.tool}"
        return (self.tool, *self.aliases, full, f"mcp__{self.module}")


@frozen
class MatchedRule:
    """A rule that matched some effect; `decided` when it is the reason for the verdict."""

    rule: Rule
    decided: bool

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return self.rule.to_dict() | {"decided": self.decided}


@frozen
class JudgedEffect:
    """The verdict on one effect; `effect` is None for the tool as a whole."""

    effect: Effect | None
    verdict: Verdict
    reason: str
    rules: tuple[Rule, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        shown = describe(self.effect) if self.effect is not None else {"kind": "tool"}
        shown.pop("implies", None)  # judged one by one, beside their command
        return shown | {"verdict": self.verdict, "why": self.reason}


@frozen
class Decision:
    """The verdict on a call, why, and every rule that had a say."""

    verdict: Verdict
    reason: str
    rules: tuple[MatchedRule, ...] = ()
    judged: tuple[JudgedEffect, ...] = ()
    suggestion: str | None = None
    """The narrowest sensible allow rules that would answer the question for good, one a line; None: there are none."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "decision": self.verdict,
            "reason": self.reason,
            "rules": [rule.to_dict() for rule in self.rules],
            "effects": [each.to_dict() for each in self.judged if each.effect is not None],
            "suggestion": self.suggestion,
        }


@frozen
class Warned:
    """Something about the rules a person should know: where, and what."""

    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.text}" if self.where else self.text


class Policy:
    """Rules in force, and the judgement over them. Immutable; any number of sessions may share one."""

    def __init__(
        self,
        rules: Sequence[Rule] = (),
        *,
        defaults: bool = True,
        public_hosts: Iterable[str] = (),
        capable: Callable[[int], Sequence[str]] | None = None,
    ) -> None:
        self.own_rules = tuple(rules)
        self.defaults = defaults
        self.allowed_hosts = frozenset(host.lower() for host in public_hosts)
        self.capable = capable
        self._book: RuleBook | None = None
        self._plain: dict[tuple[object, ...], tuple[Decision, object]] = {}
        self._roots: dict[tuple[str, tuple[str, ...]], Roots] = {}

    @classmethod
    def from_settings(
        cls,
        settings: Settings,
        workspace: str,
        *,
        command_line: Sequence[str] = (),
        capable: Callable[[int], Sequence[str]] | None = None,
    ) -> Policy:
        """Return the policy of a workspace: the user's settings, the project's narrowing rules, the command line's."""
        from surehand.policy.sources import rules_in_force

        rules = rules_in_force(settings, workspace, command_line)
        return cls(rules, public_hosts=settings.web.opened_hosts, capable=capable)

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Every rule in force, built-in ones included."""
        return self.book.rules

    @property
    def book(self) -> RuleBook:
        """The rules, laid out for judging; made on first use."""
        if self._book is None:
            from surehand.policy.book import RuleBook

            self._book = RuleBook(self.own_rules, defaults=self.defaults)
        return self._book

    def roots(self, request: Request) -> Roots:
        """Return the folders of a request, resolved once."""
        key = (request.workspace, request.roots)
        found = self._roots.get(key)
        if found is None:
            found = self._roots[key] = Roots(*key)
        return found

    def judge(self, request: Request) -> Decision:
        """Return the verdict on a call."""
        if request.effects or request.grants:
            return self._judged(request)
        key = (
            request.tool,
            request.module,
            request.mode,
            request.read_only,
            request.needs_permission,
            request.always_asks,
            request.effects is None,
            bool(request.origins),
        )
        known = self._plain.get(key)
        if known is not None and known[1] is request.tool_settings:
            return known[0]
        decision = self._judged(request)
        self._plain[key] = (decision, request.tool_settings)
        return decision

    def _judged(self, request: Request) -> Decision:
        if request.confined and request.effects:
            from surehand.policy.confinement import leaves

            if left := leaves(request.effects, request.cwd, self.roots(request)):
                return Decision("deny", left)
        from surehand.policy.judgement import Judgement

        return Judgement(self, request).decision()

    def bind(self, session: Session) -> None:
        """Give a session what this policy keeps from its searches and from the programs its commands start."""
        session.keeps_out = self.keeps_out(session.workspace, session.roots)
        session.keeps_as_is = _with_trusted(self.keeps_as_is(session.workspace, session.roots), session.workspace)
        session.opens = lambda: self.opens(session.workspace, session.roots, session.grants)

    def opens(self, workspace: str, roots: Sequence[str], grants: Iterable[str]) -> tuple[str, ...]:
        """Return the folders outside the roots that rules, or grants of the session, let commands write in."""
        if not any(rule.kind == "write" and rule.verdict == "allow" for rule in self.own_rules) and not grants:
            return ()
        from surehand.policy.opened import opened
        from surehand.policy.rules import grant

        given = [rule for text in grants for line in text.splitlines() if (rule := grant(line))]
        return opened(self.own_rules, given, Roots(workspace, roots))

    def keeps_out(self, workspace: str, roots: Sequence[str] = ()) -> Callable[[str], bool]:
        """Return what searches leave out: secrets, and what a rule denies to read. A folder's path ends in `/`."""
        from surehand.core.secrets import is_secret

        denied = self._denied("read", Roots(workspace, roots))
        if denied is None:
            return is_secret
        return lambda path: is_secret(path) or denied(path)

    def keeps_as_is(self, workspace: str, roots: Sequence[str] = ()) -> Callable[[str], bool] | None:
        """Return what no command may change whichever program it starts: what a rule denies to write; None: nothing."""
        return self._denied("write", Roots(workspace, roots))

    def _denied(self, kind: Kind, roots: Roots) -> Callable[[str], bool] | None:
        """Return what tells whether a rule of the user's denies this kind of effect on a path; None without such."""
        denied = [rule for rule in self.own_rules if (rule.kind, rule.verdict) == (kind, "deny")]
        if not denied:
            return None
        if any(rule.whole for rule in denied):
            return lambda path: True
        patterns = [compile_pattern(rule.spec, pattern_key(roots), True) for rule in denied]
        return lambda path: any(pattern.matches(path.rstrip("/")) for pattern in patterns)

    def narrowed(self, rules: Sequence[Rule] = (), *, ceiling: Mode) -> Both:
        """Return the policy of a sub-agent: what both this one and `rules` permit, in no freer mode than `ceiling`."""
        return Both(self, Policy(rules, public_hosts=self.allowed_hosts, capable=self.capable), ceiling)


class Both(Policy):
    """The intersection of two policies: the stricter verdict of the two, whatever either says.

    `ceiling` is the parent's mode; a request in a freer one is judged as if it were in this.
    """

    def __init__(self, parent: Policy, child: Policy, ceiling: Mode) -> None:
        super().__init__(child.own_rules, public_hosts=child.allowed_hosts, capable=child.capable)
        self.parent = parent
        self.child = child
        self.ceiling: Mode = ceiling

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules of both."""
        return tuple(dict.fromkeys((*self.parent.rules, *self.child.rules)))

    def keeps_out(self, workspace: str, roots: Sequence[str] = ()) -> Callable[[str], bool]:
        """Return what says whether either keeps a path out of searches."""
        above, own = self.parent.keeps_out(workspace, roots), self.child.keeps_out(workspace, roots)
        return above if above is own else lambda path: above(path) or own(path)

    def keeps_as_is(self, workspace: str, roots: Sequence[str] = ()) -> Callable[[str], bool] | None:
        """Return what says whether either keeps a path from being changed; None where neither does."""
        above, own = self.parent.keeps_as_is(workspace, roots), self.child.keeps_as_is(workspace, roots)
        if above is None or own is None:
            return above or own
        return lambda path: above(path) or own(path)

    def opens(self, workspace: str, roots: Sequence[str], grants: Iterable[str]) -> tuple[str, ...]:
        """Return the folders that both open."""
        own = self.child.opens(workspace, roots, grants)
        return tuple(each for each in self.parent.opens(workspace, roots, grants) if each in own)

    def judge(self, request: Request) -> Decision:
        """Return the stricter of two verdicts."""
        if _FREEDOM.index(request.mode) > _FREEDOM.index(self.ceiling):
            request = changed(request, mode=self.ceiling)
        above = self.parent.judge(request)
        if above.verdict == "deny":
            return above
        own = self.child.judge(request)
        return own if STRICTNESS[own.verdict] >= STRICTNESS[above.verdict] else above


def _with_trusted(denied: Callable[[str], bool] | None, workspace: str) -> Callable[[str], bool] | None:
    """Add what a trusted folder runs to what no command may change."""
    from surehand.policy.trust import trusted_files

    files = trusted_files(workspace)
    if not files:
        return denied
    return lambda path: path in files or (denied is not None and denied(path))


def narrower_mode(first: Mode, second: Mode) -> Mode:
    """Return the mode that permits less."""
    return first if _FREEDOM.index(first) <= _FREEDOM.index(second) else second


def bypass_problem(*, sandboxed: bool, confirmed: bool) -> str:
    """Return why mode `bypass` may not be used here, or nothing."""
    if not sandboxed:
        return "mode bypass runs everything unasked and is refused outside a sandbox; use accept-edits, or a container"
    return (
        "" if confirmed else "mode bypass runs everything unasked; it must be confirmed by the person at the keyboard"
    )


if TYPE_CHECKING:
    from surehand.policy.book import RuleBook
