"""`Policy`: one judgement for every call.

Each effect of a call is judged by itself (hard floor, deny, ask, what is protected by default, mode, allow, otherwise
ask); the strictest verdict over all effects is the call's. Judging never runs the call, and never asks anybody.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from surehand.core.effects import DeletePath, Effect, ReadPath, RunCommand, WritePath
from surehand.core.frozen import replace_values
from surehand.core.secrets import is_secret
from surehand.policy.book import RuleBook, find_obeyed, why_git_obeys
from surehand.policy.floor import path_floor
from surehand.policy.judge import Judgement, has_other_names
from surehand.policy.paths import Roots, compile_pattern, fold_name, has_wildcard, pattern_key
from surehand.policy.rule_files import rules_in_force
from surehand.policy.rules import STRICTNESS, Decision, JudgedEffect, Kind, MatchedRule, Request, Rule, Verdict, grant
from surehand.policy.trust import lies_in, trusted_files

if TYPE_CHECKING:
    from surehand.core.session import Session
    from surehand.core.settings import Mode, Settings

__all__ = ["Both", "Decision", "JudgedEffect", "MatchedRule", "Policy", "Request", "Verdict", "narrower_mode"]

_FREEDOM: tuple[str, ...] = ("plan", "default", "accept-edits", "bypass")
_NEUTRAL: Final = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"})
PATHS_REMEMBERED: Final = 2000
_PATHS: Final = (ReadPath, WritePath)
_ELSEWHERE: Final = ("-C", "--git-dir", "--work-tree")


class Policy:
    """Judges calls by the rules in force. Immutable but for its caches; any number of sessions may share one."""

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
        self._paths: dict[tuple[object, ...], Decision] = {}
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
        """Build the policy of a workspace from the user's, the command line's and the project's (not allow) rules."""
        rules = rules_in_force(settings, workspace, command_line)
        return cls(rules, public_hosts=settings.web.opened_hosts, capable=capable)

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Every rule in force, built-in ones included."""
        return self.book.rules

    @property
    def book(self) -> RuleBook:
        """The rules, indexed for judging; built on first use."""
        if self._book is None:
            self._book = RuleBook(self.own_rules, defaults=self.defaults)
        return self._book

    def roots(self, request: Request) -> Roots:
        """Return the roots of a request, resolved once."""
        key = (request.workspace, request.roots)
        found = self._roots.get(key)
        if found is None:
            found = self._roots[key] = Roots(*key)
        return found

    def judge(self, request: Request) -> Decision:
        """Return the verdict on a call. One without effects and grants is cached by what it depends on."""
        if request.effects or request.grants:
            return self._judge_anew(request)
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
        decision = self._judge_anew(request)
        self._plain[key] = (decision, request.tool_settings)
        return decision

    def _judge_anew(self, request: Request) -> Decision:
        """Judge a request. A verdict on a single path is cached under everything it depends on."""
        effects = request.effects
        if not effects or len(effects) > 1 or request.tool_settings is not None or request.confined:
            return self._judge_effects(request)
        effect = effects[0]
        if not isinstance(effect, _PATHS) or effect.recursive:
            return self._judge_effects(request)
        place, reads = self.roots(request).resolve(effect.path), isinstance(effect, ReadPath)
        if request.leads is not None:
            request.leads[effect.path] = place.real
        if reads and has_other_names(place):  # hard links: where the others are is looked up on the disk each time
            return self._judge_effects(request)
        key = (
            reads,
            effect.path,
            place.given,
            place.real,
            place.inside,
            None if reads else trusted_files(request.workspace),
            None if reads else why_git_obeys(place, find_obeyed(effects)),
            request.tool,
            request.aliases,
            request.module,
            request.read_only,
            request.needs_permission,
            request.always_asks,
            request.level,
            request.workspace,
            request.roots,
            request.cwd,
            request.mode,
            tuple(request.grants),
            request.origins,
            request.source,
            os.environ.get("SUREHAND_HOME"),
        )
        decision = self._paths.get(key)
        if decision is None:
            if len(self._paths) >= PATHS_REMEMBERED:
                self._paths.clear()
            # Do not resolve again: if a symlink changed meanwhile, the verdict on its new target would be cached for
            # the old one.
            decision = self._paths[key] = Judgement(self, request, place).decision()
        return decision

    def _judge_effects(self, request: Request) -> Decision:
        if request.confined and request.effects and (left := leaves(request.effects, request.cwd, self.roots(request))):
            return Decision("deny", left)
        return Judgement(self, request).decision()

    def bind(self, session: Session) -> None:
        """Set which paths a session's searches omit, and which its commands may not change or may also write to."""
        session.keeps_out = self.keeps_out(session.workspace, session.roots)
        session.keeps_as_is = _with_trusted(self.keeps_as_is(session.workspace, session.roots), session.workspace)
        session.opens = lambda: self.opens(session.workspace, session.roots, session.grants)

    def opens(self, workspace: str, roots: Sequence[str], grants: Iterable[str]) -> tuple[str, ...]:
        """Return the directories outside the roots that rules, or grants of the session, let commands write to."""
        if not any(rule.kind == "write" and rule.verdict == "allow" for rule in self.own_rules) and not grants:
            return ()
        given = [rule for text in grants for line in text.splitlines() if (rule := grant(line))]
        return list_opened_folders(self.own_rules, given, Roots(workspace, roots))

    def keeps_out(self, workspace: str, roots: Sequence[str] = ()) -> Callable[[str], bool]:
        """Return the test for paths that searches leave out: secrets and denied ones. Directories end in `/`."""
        denied = self._denied_paths("read", Roots(workspace, roots))
        if denied is None:
            return is_secret
        return lambda path: is_secret(path) or denied(path)

    def keeps_as_is(self, workspace: str, roots: Sequence[str] = ()) -> Callable[[str], bool] | None:
        """Return the test for paths that no command may change (a rule denies writing them); None if there are none."""
        return self._denied_paths("write", Roots(workspace, roots))

    def find_rule_by_full_path(self, workspace: str) -> str:
        """Return the first deny or ask rule that names a path in the workspace in full; empty if there is none.

        In a worktree, which has the same files elsewhere, such a rule would not match.
        """
        roots = Roots(workspace)
        for rule in self.rules:
            if rule.verdict == "allow" or rule.kind not in ("read", "write") or not rule.spec.startswith(("/", "~")):
                continue
            starts = compile_pattern(rule.spec, pattern_key(roots), False).starts
            pairs = [(f"{start}/", f"{name}/") for start in starts for name in roots.workspace_names if start != "/"]
            if any(start.startswith(name) or name.startswith(start) for start, name in pairs):
                return rule.text
        return ""

    def _denied_paths(self, kind: Kind, roots: Roots) -> Callable[[str], bool] | None:
        """Return a test for paths that a deny rule, not built in, covers for this kind; None without such rules."""
        denied = [rule for rule in self.own_rules if (rule.kind, rule.verdict) == (kind, "deny")]
        if not denied:
            return None
        if any(rule.whole for rule in denied):
            return lambda path: True
        patterns = [compile_pattern(rule.spec, pattern_key(roots), True) for rule in denied]
        return lambda path: any(pattern.matches(path.rstrip("/")) for pattern in patterns)

    def narrow(self, rules: Sequence[Rule] = (), *, ceiling: Mode) -> Both:
        """Return the policy of a sub-agent: what both this one and `rules` permit, in no freer mode than `ceiling`."""
        return Both(self, Policy(rules, public_hosts=self.allowed_hosts, capable=self.capable), ceiling)


class Both(Policy):
    """The intersection of two policies: the stricter of their verdicts.

    `ceiling` is the parent's mode; a request in a freer mode is judged in this one.
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
        """Return a test for paths that either policy leaves out of searches."""
        above, own = self.parent.keeps_out(workspace, roots), self.child.keeps_out(workspace, roots)
        return above if above is own else lambda path: above(path) or own(path)

    def keeps_as_is(self, workspace: str, roots: Sequence[str] = ()) -> Callable[[str], bool] | None:
        """Return a test for paths that either policy protects from commands; None if neither does."""
        above, own = self.parent.keeps_as_is(workspace, roots), self.child.keeps_as_is(workspace, roots)
        if above is None or own is None:
            return above or own
        return lambda path: above(path) or own(path)

    def opens(self, workspace: str, roots: Sequence[str], grants: Iterable[str]) -> tuple[str, ...]:
        """Return the directories that both policies open."""
        own = self.child.opens(workspace, roots, grants)
        return tuple(each for each in self.parent.opens(workspace, roots, grants) if each in own)

    def judge(self, request: Request) -> Decision:
        """Return the stricter of two verdicts."""
        if _FREEDOM.index(request.mode) > _FREEDOM.index(self.ceiling):
            request = replace_values(request, mode=self.ceiling)
        above = self.parent.judge(request)
        if above.verdict == "deny":
            return above
        own = self.child.judge(request)
        return own if STRICTNESS[own.verdict] >= STRICTNESS[above.verdict] else above


def _with_trusted(denied: Callable[[str], bool] | None, workspace: str) -> Callable[[str], bool] | None:
    """Extend the test for protected paths by the code that a trusted folder runs."""
    files = trusted_files(workspace)
    if not files:
        return denied
    return lambda path: lies_in(path, files) or (denied is not None and denied(path))


def narrower_mode(first: Mode, second: Mode) -> Mode:
    """Return the mode that permits less."""
    return first if _FREEDOM.index(first) <= _FREEDOM.index(second) else second


def bypass_problem(*, sandboxed: bool, confirmed: bool) -> str:
    """Return why mode `bypass` may not be used here; empty if it may."""
    if not sandboxed:
        return "mode bypass never asks, and is refused outside a sandbox; use accept-edits, or a container"
    return (
        ""
        if confirmed
        else "mode bypass runs everything without asking; it must be confirmed by the person at the keyboard"
    )


# -- confined sessions -----------------------------------------------------------------------------------------------

# An agent in a worktree of its own is confined: it may change nothing outside that directory, whatever rules allow.
# That includes the repository's main worktree, which git reaches by `-C`, `--git-dir` and `--work-tree`.


def leaves(effects: Iterable[Effect], cwd: str, roots: Roots) -> str:
    """Return why a confined session may not make a call: what it may change outside the roots. Empty if nothing."""
    every = list(_with_implied(effects))
    for effect in every:
        if isinstance(effect, WritePath | DeletePath) and _outside(effect.path, roots):
            return f"{effect.path} is outside the folder this agent is confined to"
    runs = [effect for effect in every if isinstance(effect, RunCommand) and effect.words]
    if all(run.read_only for run in runs):
        return ""
    for place in (place for run in runs for place in _folders_of(run)):
        path = posixpath.join(cwd, os.path.expanduser(place))
        if _outside(path, roots):
            return f"{path} is outside the folder this agent is confined to, and the command may not be read-only"
    return ""


def _with_implied(effects: Iterable[Effect]) -> Iterator[Effect]:
    for effect in effects:
        yield effect
        if isinstance(effect, RunCommand):
            yield from _with_implied(effect.implies)


def _outside(path: str, roots: Roots) -> bool:
    return path not in _NEUTRAL and not roots.resolve(path).inside


def _folders_of(run: RunCommand) -> Iterator[str]:
    """Yield the folders a command goes to: `cd X`, `git -C X`, `git --git-dir=X`."""
    program, words = posixpath.basename(run.words[0]), run.words[1:]
    if program in ("cd", "pushd"):
        yield from (word for word in words if not word.startswith("-"))
    elif program == "git":
        for word, following in zip(words, (*words[1:], ""), strict=True):
            name, equals, value = word.partition("=")
            if name in _ELSEWHERE:
                yield value if equals else following


# -- folders that rules open -----------------------------------------------------------------------------------------

# An allow rule such as `Edit(~/.cache/uv/**)` also lets sandboxed commands write to that directory. It must be an
# existing directory outside the session's roots, named as a whole and from `/` or `~/`. Never opened are system
# directories, the home directory, those with secrets or Surehand's own state, and those in which a deny or ask rule
# forbids something: of programs that a command starts, only the sandbox knows what they write.


def list_opened_folders(rules: Iterable[Rule], grants: Iterable[Rule], roots: Roots) -> tuple[str, ...]:
    """Return the folders that these rules and an approver's grants open to commands for writing."""
    known = tuple(rules)
    denied = [rule for rule in known if rule.kind == "write" and rule.verdict != "allow"]
    if any(rule.whole for rule in denied):
        return ()
    patterns = [compile_pattern(rule.spec, pattern_key(roots), True) for rule in denied]
    allowed = (rule for rule in (*known, *grants) if rule.kind == "write" and rule.verdict == "allow")
    folders = dict.fromkeys(folder for rule in allowed if (folder := _folder(rule, roots)))
    return tuple(each for each in folders if not any(pattern.touches_below(each) for pattern in patterns))


def _folder(rule: Rule, roots: Roots) -> str:
    """Return the folder a rule opens; empty if it opens none."""
    name = rule.spec.removesuffix("/**")
    if name == rule.spec or not name.startswith(("/", "~/")) or has_wildcard(name) or rule.untrusted_only:
        return ""
    if rule.origin.source == "project":
        return ""
    place = roots.resolve(os.path.expanduser(name))
    if place.inside or not os.path.isdir(place.real) or any(is_secret(fold_name(each)) for each in place.names):
        return ""
    return "" if path_floor(DeletePath(place.real, recursive=True), place, roots) else place.real
