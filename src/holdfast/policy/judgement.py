"""How one call is judged: the tool as a whole, then each of its effects, then the strictest of all."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from holdfast.core.effects import (
    Connect,
    DeletePath,
    Effect,
    ReadPath,
    RemoteCall,
    RunCommand,
    StartAgent,
    Unreadable,
    WritePath,
)
from holdfast.core.frozen import frozen
from holdfast.core.secrets import is_secret
from holdfast.policy.floor import command_floor, kept_output, own_state, path_floor, removes_by_choice
from holdfast.policy.hosts import host_guard, plain_host
from holdfast.policy.paths import PathPattern, Place, below, compile_pattern, folded, pattern_key
from holdfast.policy.policy import STRICTNESS, Decision, JudgedEffect, MatchedRule
from holdfast.policy.repositories import repository_problem
from holdfast.policy.rules import Kind, Rule, Verdict, grant
from holdfast.policy.tool_settings import denied_by_settings, missing_capability

if TYPE_CHECKING:
    from holdfast.policy.policy import Policy, Request

PathEffect = ReadPath | WritePath | DeletePath

_PATH_PARTS = re.compile(r"[^\s'\"`;|&<>(){}=,]+")  # what may be a path inside a text
_LISTERS = frozenset({"ls", "dir", "vdir", "stat", "du", "readlink", "realpath"})
_NEUTRAL = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"})
# Effects that speak for the call; a call with reads alone, or none, is judged by what the tool says of itself as well.
_SPEAKING = (WritePath, DeletePath, Connect, RemoteCall, Unreadable, RunCommand, StartAgent)


@frozen
class Guard:
    """A protection that holds by default: what it says, and why."""

    verdict: Verdict
    reason: str
    rules: tuple[Rule, ...] = ()


class Judgement:
    """The judgement of one request; made, asked for its `decision`, and dropped."""

    def __init__(self, policy: Policy, request: Request) -> None:
        self.policy = policy
        self.request = request
        self.book = policy.book
        self.names = request.names
        given = [grant(line) for text in request.grants for line in text.splitlines()]
        self.grants = [rule for rule in given if rule is not None]
        self.untrusted = any(origin != "workspace" for origin in request.origins)
        self.cover: Rule | None = None
        """The allow rule for the tool as a whole, if there is one: it covers effects inside the roots."""

    # -- the whole call ------------------------------------------------------------------------------------------

    def decision(self) -> Decision:
        missing = missing_capability(self.request, self.policy.capable)
        if missing:
            return Decision("deny", missing)
        judged = [*self._tool()]
        for effect in self.request.effects or ():
            judged += self._effect(effect, None)
        return self._strictest(judged)

    def _strictest(self, judged: Sequence[JudgedEffect]) -> Decision:
        if not judged:
            return Decision("allow", "it touches nothing")
        worst = max(judged, key=lambda each: STRICTNESS[each.verdict])
        deciding = {
            each.rules[0]
            for each in judged
            if each.verdict == worst.verdict and each.rules and each.rules[0].verdict == worst.verdict
        }
        every = dict.fromkeys(rule for each in judged for rule in each.rules)
        return Decision(
            worst.verdict,
            worst.reason,
            tuple(MatchedRule(rule, rule in deciding) for rule in every),
            tuple(judged),
            self._suggestion(judged) if worst.verdict == "ask" else None,
        )

    def _suggestion(self, judged: Sequence[JudgedEffect]) -> str | None:
        from holdfast.policy.suggest import suggestion

        return suggestion(self.request, judged, self.policy.roots(self.request))

    def _tool(self) -> Iterable[JudgedEffect]:
        """Judge the tool as a whole: rules by its name, and what it says of itself when it states no effects."""
        request = self.request
        deny, ask, allow = (self._naming(verdict) for verdict in ("deny", "ask", "allow"))
        if deny:
            return [JudgedEffect(None, "deny", _by(deny[0]), deny)]
        if ask:
            return [JudgedEffect(None, "ask", _by(ask[0]), ask)]
        if allow:
            self.cover = allow[0]
        effects = request.effects or ()
        if any(isinstance(each, _SPEAKING) for each in effects):
            return [JudgedEffect(None, "allow", _by(allow[0]), allow)] if allow else []
        verdict, reason = self._unseen(allow)
        return [JudgedEffect(None, verdict, reason, allow)]

    def _unseen(self, allow: tuple[Rule, ...]) -> tuple[Verdict, str]:
        request = self.request
        if request.read_only:
            return "allow", "it is read-only"
        if request.mode == "plan":
            return "deny", f"{request.tool} is not read-only, and mode plan runs read-only tools alone"
        if request.mode == "bypass":
            return "allow", "mode bypass"
        if allow:
            return "allow", _by(allow[0])
        if request.effects is not None and not request.needs_permission:
            return "allow", "it needs no permission"
        return "ask", f"{request.tool} asks before it runs"

    def _naming(self, verdict: Verdict) -> tuple[Rule, ...]:
        found = [rule for rule in self.book.named(verdict) if rule.names_tool(self.names) and self._counts(rule)]
        if verdict == "allow":
            found += [rule for rule in self.grants if rule.names_tool(self.names)]
        elif verdict == "deny" and self.request.tool.startswith("mcp__"):
            # A rule on a server whose name holds `__` must not be missed: forbidding goes by the start of the name.
            found += [rule for rule in self.book.of("name", "deny") if self.request.tool.startswith(rule.name + "__")]
        return tuple(dict.fromkeys(found))

    def _counts(self, rule: Rule) -> bool:
        return self.untrusted or not rule.untrusted_only

    # -- one effect ----------------------------------------------------------------------------------------------

    def _effect(self, effect: Effect, command: RunCommand | None, cover: Rule | None = None) -> list[JudgedEffect]:
        """Judge an effect; `command` is the command whose words imply it, `cover` an allow rule that matched that."""
        match effect:
            case ReadPath() | WritePath() | DeletePath():
                return [self._path(effect, command, cover)]
            case RunCommand():
                return self._command(effect)
            case Connect():
                return [self._connect(effect, command, cover)]
            case RemoteCall(server, tool):
                return [self._remote(effect, (f"mcp__{server}__{tool}", f"mcp__{server}"))]
            case StartAgent(profile):
                return [self._agent(effect, profile)]
            case Unreadable(reason):
                return [self._weigh(effect, changes=True, guard=Guard("ask", reason), firm=True)]

    def _command(self, effect: RunCommand) -> list[JudgedEffect]:
        words = effect.words
        allow = self._matching("command", "allow", lambda rule: rule.command is not None and rule.command.allows(words))
        shown = " ".join(words[:2])
        default: tuple[Verdict, str] = ("ask", effect.reason or f"{shown} is not known to change nothing")
        own = self._weigh(
            effect,
            floor=command_floor(effect, self.request.cwd, self.policy.roots(self.request)),
            deny=self._matching(
                "command", "deny", lambda rule: rule.command is not None and rule.command.forbids(words)
            ),
            ask=self._matching("command", "ask", lambda rule: rule.command is not None and rule.command.forbids(words)),
            guard=self._command_guard(effect, allow),
            firm=not effect.read_only,
            changes=not effect.read_only,
            allow=allow,
            covered=self.cover,
            default=("allow", f"{shown} is read-only") if effect.read_only else default,
        )
        cover = allow[0] if allow else None
        return [own, *(each for implied in effect.implies for each in self._effect(implied, effect, cover))]

    def _command_guard(self, effect: RunCommand, allow: tuple[Rule, ...]) -> Guard | None:
        if not effect.read_only:
            return self._wrapped((*effect.words, effect.fed) if effect.fed else effect.words)
        reason = "" if allow else repository_problem(effect.words, self.request)
        return Guard("ask", reason) if reason else None

    def _wrapped(self, words: tuple[str, ...]) -> Guard | None:
        """Return a question for a program that is no known reader and is handed the words of a denied command."""
        for rule in self.book.of("command", "deny"):
            if rule.command is not None and self._counts(rule) and rule.command.hidden_in(words):
                return Guard("ask", f"{words[0]} may run what rule {rule.text} ({rule.origin}) denies", (rule,))
        return self._handed(words)

    def _handed(self, words: tuple[str, ...]) -> Guard | None:
        """Return a question for a program nobody knows that is handed a path which a rule denies."""
        rules = [rule for rule in self.policy.own_rules if rule.verdict == "deny" and rule.kind in ("read", "write")]
        if not rules:
            return None
        from holdfast.host.shell.effects import known_words

        if known_words(words[0]):
            return None
        roots = self.policy.roots(self.request)
        given = words if "=" in words[0] else words[1:]  # a variable's value is text as well
        for part in dict.fromkeys(part for word in given for part in _PATH_PARTS.findall(word)[:64]):
            place = roots.place(os.path.join(self.request.cwd, part))
            found = next(
                (rule for rule in rules if self._counts(rule) and self._forbids(rule, place, deep=False)), None
            )
            if found is not None:
                reason = f"{words[0]} is given {part}, which rule {found.text} ({found.origin}) denies"
                return Guard("ask", reason, (found,))
        return None

    def _path(self, effect: PathEffect, command: RunCommand | None, cover: Rule | None) -> JudgedEffect:
        roots = self.policy.roots(self.request)
        place = roots.place(effect.path)
        reads = isinstance(effect, ReadPath)
        neutral = place.given == "/dev/null" or (place.given in _NEUTRAL and not reads)
        if neutral and not isinstance(effect, DeletePath):
            return JudgedEffect(effect, "allow", f"{place.given} is no file")
        if reads and not place.inside and below(place.real, kept_output(self.request.workspace)):
            return JudgedEffect(effect, "allow", "it is the kept output of a command of this workspace")
        kind: Kind = "read" if reads else "write"
        deep = effect.recursive and not reads
        deny = self._forbidding(kind, "deny", place, deep)
        ask = self._forbidding(kind, "ask", place, deep)
        allow = self._allowing(kind, place)
        chosen = command is not None and deep and removes_by_choice(command, self.request.effects or ())
        inside: tuple[Verdict, str] = ("allow", "inside the workspace")
        if not reads and self.request.mode != "accept-edits":
            inside = ("ask", f"it changes {place.given}")
        return self._weigh(
            effect,
            floor=path_floor(effect, place, roots, picked=chosen),
            deny=(*denied_by_settings(self.request, place, self._pattern), *_own(deny)),
            ask=_own(ask),
            guard=self._path_guard(place, reads, _built_in(deny), _built_in(ask), allow, _lists(command)),
            changes=not reads,
            allow=allow,
            covered=(cover or self.cover) if place.inside else None,
            default=inside,
        )

    def _path_guard(
        self,
        place: Place,
        reads: bool,
        deny: tuple[Rule, ...],
        ask: tuple[Rule, ...],
        allow: tuple[Rule, ...],
        lists: bool,
    ) -> Guard | None:
        """Return what protects this path by default. A rule of the user's that spells the name out lifts a question.

        `lists` says that names and sizes are all that is read: a secret file may be seen to be there, like any other.
        """
        if "\0" in place.given:
            return Guard("deny", "no path holds a NUL character")
        meant = any(self._spelled_out(rule, place) for rule in allow)
        unread = lists and reads and place.inside
        if any(is_secret(folded(name)) for name in place.names) and not (unread and os.path.isfile(place.real)):
            if not reads:
                return None if meant else Guard("ask", f"{place.given} holds secrets")
            return Guard("ask" if meant else "deny", f"{place.given} holds secrets")
        if reads and any(own_state(name, self.policy.roots(self.request)) for name in place.names):
            return Guard("deny", "Holdfast's own state is out of reach")
        if reads and ".git" in place.components and not unread:
            return Guard("ask" if meant else "deny", "git's own files are read through git")
        if deny:
            return Guard("ask" if meant else "deny", _by(deny[0]), deny)
        if ask and not meant:
            return Guard("ask", _by(ask[0]), ask)
        if not place.inside and not allow:
            where = place.real if place.given != place.real else place.given
            return Guard("ask", f"{where} is outside the workspace")
        return None

    def _connect(self, effect: Connect, command: RunCommand | None, cover: Rule | None) -> JudgedEffect:
        host = plain_host(effect.host)
        guarded = command is not None
        reason, verdict = host_guard(host, self.policy.allowed_hosts, by_command=guarded, port=effect.port)
        return self._weigh(
            effect,
            deny=self._matching("host", "deny", lambda rule: bool(rule.spec) and rule.names_host(host)),
            ask=self._matching("host", "ask", lambda rule: bool(rule.spec) and rule.names_host(host)),
            guard=Guard(verdict, reason) if reason else None,
            changes=False,
            allow=self._matching("host", "allow", lambda rule: bool(rule.spec) and rule.names_host(host)),
            covered=cover or self.cover,
            default=("ask", f"it connects to {host}"),
        )

    def _remote(self, effect: RemoteCall, names: tuple[str, ...]) -> JudgedEffect:
        def about(rule: Rule) -> bool:
            return rule.names_tool(names)

        allow = self._matching("name", "allow", about)
        return self._weigh(
            effect,
            deny=self._matching("name", "deny", about),
            ask=self._matching("name", "ask", about),
            # What a server says of its own tools is no proof: only a rule of the user's lets it run in mode plan.
            changes=not (self.request.read_only and (allow or self.cover)),
            allow=allow,
            covered=self.cover,
            default=("ask", f"what {effect.tool} of server {effect.server} does cannot be seen from here"),
        )

    def _agent(self, effect: StartAgent, profile: str) -> JudgedEffect:
        import fnmatch

        def about(rule: Rule) -> bool:
            return rule.whole or fnmatch.fnmatchcase(profile, rule.spec)

        return self._weigh(
            effect,
            deny=self._matching("agent", "deny", about),
            ask=self._matching("agent", "ask", about),
            changes=False,
            allow=self._matching("agent", "allow", about),
            default=("allow", "each call of the sub-agent is judged by itself"),
        )

    def _weigh(
        self,
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
        mode = self.request.mode
        every = tuple(dict.fromkeys((*deny, *ask, *(guard.rules if guard else ()), *allow)))
        if floor:
            return JudgedEffect(effect, "deny", f"hard floor: {floor}", every)
        if deny:
            return JudgedEffect(effect, "deny", _by(deny[0]), every)
        if guard is not None and guard.verdict == "deny":
            return JudgedEffect(effect, "deny", guard.reason, every)
        if mode == "plan" and changes:
            return JudgedEffect(effect, "deny", "mode plan changes nothing", every)
        if ask:
            return JudgedEffect(effect, "ask", _by(ask[0]), every)
        if guard is not None and (firm or mode != "bypass"):
            return JudgedEffect(effect, "ask", guard.reason, every)
        if mode == "bypass":
            return JudgedEffect(effect, "allow", "mode bypass", every)
        if allow:
            return JudgedEffect(effect, "allow", _by(allow[0]), every)
        if covered is not None:
            return JudgedEffect(effect, "allow", _by(covered), (*every, covered))
        return JudgedEffect(effect, *default, every)

    # -- matching ------------------------------------------------------------------------------------------------

    def _matching(self, kind: Kind, verdict: Verdict, about: Callable[[Rule], bool]) -> tuple[Rule, ...]:
        found = [rule for rule in self.book.of(kind, verdict) if self._counts(rule) and about(rule)]
        if verdict == "allow":
            found += [rule for rule in self.grants if rule.kind == kind and about(rule)]
        if kind in ("read", "write"):
            found += [rule for rule in self._of_this_tool(verdict) if about(rule)]
        return tuple(found)

    def _of_this_tool(self, verdict: Verdict) -> list[Rule]:
        """Return the rules such as `Grep(secrets/**)`, which bind the paths of that tool alone."""
        rules = self.book.of("name", verdict)
        return [rule for rule in rules if rule.spec and self._counts(rule) and rule.names_caller(self.names)]

    def _forbidding(self, kind: Kind, verdict: Verdict, place: Place, deep: bool) -> tuple[Rule, ...]:
        # What a recursive change takes along is not in the path's own name: every rule is asked.
        rules = self.book.of(kind, verdict) if deep else self.book.about_path(kind, verdict, place.components)
        known = [rule for rule in rules if self._counts(rule)] + self._of_this_tool(verdict)
        return tuple(rule for rule in known if self._forbids(rule, place, deep))

    def _pattern(self, spec: str, generous: bool) -> PathPattern:
        return compile_pattern(spec, pattern_key(self.policy.roots(self.request)), generous)

    def _forbids(self, rule: Rule, place: Place, deep: bool) -> bool:
        if rule.whole:
            return True
        pattern = self._pattern(rule.spec, generous=True)
        return any(pattern.matches(name) or (deep and pattern.touches_below(name)) for name in place.names)

    def _allowing(self, kind: Kind, place: Place) -> tuple[Rule, ...]:
        """Return the rules that allow a place: each of its names must be covered, the one given and where it leads."""
        rules = self._matching(kind, "allow", lambda rule: any(self._allows(rule, name, place) for name in place.names))
        covered = all(any(self._allows(rule, name, place) for rule in rules) for name in place.names)
        return rules if covered else ()

    def _allows(self, rule: Rule, name: str, place: Place) -> bool:
        return place.inside if rule.whole else self._pattern(rule.spec, generous=False).matches(name)

    def _spelled_out(self, rule: Rule, place: Place) -> bool:
        if rule.whole or rule.origin.source == "project":
            return False
        pattern = self._pattern(rule.spec, generous=False)
        return any(pattern.names(part) for name in place.names for part in name.split("/")[-1:])


def _lists(command: RunCommand | None) -> bool:
    """Tell whether a command shows names and sizes of files alone, and never what is in them."""
    if command is None or not command.read_only or posixpath.basename(command.words[0]) not in _LISTERS:
        return False
    return not any(word.startswith(("-X", "--exclude-from")) for word in command.words)  # `du -X` reads a file


def _own(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    return tuple(rule for rule in rules if rule.origin.source != "built-in")


def _built_in(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    return tuple(rule for rule in rules if rule.origin.source == "built-in")


def _by(rule: Rule) -> str:
    verb = {"allow": "allows", "ask": "asks about", "deny": "denies"}[rule.verdict]
    why = f": {rule.reason}" if rule.reason else ""
    return f"rule {rule.text} ({rule.origin}) {verb} it{why}"
