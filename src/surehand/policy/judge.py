"""The judge: judges a request, first the tool as a whole, then each of its effects; the strictest verdict wins.

`Case.verdict` is the order of precedence for one effect: hard floor, rules, default protections, mode.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from surehand.core.effects import (
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
from surehand.core.frozen import frozen
from surehand.core.secrets import is_secret
from surehand.core.text import lazy_pattern
from surehand.files.paths import is_beneath
from surehand.policy.approval import suggestion
from surehand.policy.book import Matching, why_git_obeys
from surehand.policy.floor import command_floor, kept_output, own_state, path_floor, picks_by_pattern, removes_by_choice
from surehand.policy.paths import PathPattern, ResolvedPath, fold_name
from surehand.policy.projects import project_problem, record_of, repository_problem
from surehand.policy.rules import (
    STRICTNESS,
    Decision,
    JudgedEffect,
    Kind,
    MatchedRule,
    Origin,
    Request,
    Rule,
    Verdict,
    host_guard,
    plain_host,
)
from surehand.policy.trust import lies_in

if TYPE_CHECKING:
    from surehand.core.settings import Mode
    from surehand.policy.policy import Policy

# Effects that alone decide a call. A call with only reads, or none, is also judged by the tool's own flags.
_DECIDING_EFFECTS = (WritePath, DeletePath, Connect, RemoteCall, Unreadable, RunCommand, StartAgent)
_PATH_PARTS = lazy_pattern(r"[^\s'\"`;|&<>(){}=,@:]+")  # what may be a path inside a text
_HOST_PARTS = lazy_pattern(r"[\w.-]+")  # what may be a host inside a text
# System files that describe the machine and hold nothing private: they may be read unasked.
_PUBLIC = lazy_pattern(
    r"/proc/(?:cpuinfo|meminfo|version|loadavg|uptime|filesystems|swaps|partitions|stat|vmstat|diskstats|devices|modules|"
    r"interrupts|cmdline|(?:self/)?net/(?:arp|dev|route|snmp|sockstat)|(?:self/)?(?:mounts|cgroup)"
    r"|self/(?:status|limits|mountinfo)|sys/(?:kernel|fs|vm|net)(?:/[a-z][\w-]*)+)"
    r"|/etc/(?:os-release|lsb-release|hostname|\w+[-_](?:release|version)|issue(?:\.net)?|timezone|localtime|shells|services|"
    r"protocols|mime\.types|nsswitch\.conf|ld\.so\.conf)"
    r"|(?:/usr(?:/local)?)?/s?bin|/usr/include(?:/[\w./+-]+)?"  # programs; headers
    r"|/usr/lib/os-release|/usr/share/(?:zoneinfo|dict)(?:/[\w./+-]+)?"
    r"|/sys/fs/cgroup/(?:memory\.max|memory\.current|cpu\.max|pids\.max|cgroup\.controllers)"
    r"|/sys/devices/system/cpu/(?:online|present|possible)|/sys/class/(?:net|block|thermal|power_supply|hwmon)"
    r"|/sys/devices/(?!.*/\.\.?/)[\w./:+-]+/(?:net/\w+/(?:address|mtu|operstate|speed|carrier)|temp|capacity)"
)
_OWN_PROCESS = lazy_pattern(r"/proc/\d+/(mounts|cgroup|status|limits|mountinfo|net/(?:arp|dev|route|snmp|sockstat))")
_NEUTRAL = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"})
_LEVEL_OF: Final = {"undo": 1, "dry_run": 2}

PathEffect = ReadPath | WritePath | DeletePath


class Judgement:
    """Judges one request; made anew for each."""

    def __init__(self, policy: Policy, request: Request, place: ResolvedPath | None = None) -> None:
        self.policy = policy
        self.request = request
        self.rules = Matching(policy.book, policy.roots(request), request, place)
        self.cover: Rule | None = None
        """The allow rule for the tool as a whole, if any; for its paths it counts inside the roots only."""

    # -- the whole call ------------------------------------------------------------------------------------------

    def decision(self) -> Decision:
        """Return the verdict on the whole call."""
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
        return suggestion(self.request, judged, self.rules.roots)

    def _tool(self) -> Iterable[JudgedEffect]:
        """Judge the tool as a whole: by rules on its name, and by its own flags if it states no effects."""
        request = self.request
        deny, ask, allow = (self.rules.naming(verdict) for verdict in ("deny", "ask", "allow"))
        if deny:
            return [JudgedEffect(None, "deny", by(deny[0]), deny)]
        if ask:
            return [JudgedEffect(None, "ask", by(ask[0]), ask)]
        if allow:
            self.cover = allow[0]
        effects = request.effects or ()
        if any(isinstance(each, _DECIDING_EFFECTS) for each in effects):
            return [JudgedEffect(None, "allow", by(allow[0]), allow)] if allow else []
        verdict, reason = self._judge_unseen(allow)
        return [JudgedEffect(None, verdict, reason, allow)]

    def _judge_unseen(self, allow: tuple[Rule, ...]) -> tuple[Verdict, str]:
        request = self.request
        if request.read_only and not request.always_asks:
            return "allow", "it is read-only"
        if request.mode == "plan" and not request.read_only:
            return "deny", f"{request.tool} is not read-only, and mode plan runs only read-only tools"
        if request.mode == "bypass":
            return "allow", "mode bypass"
        if allow:
            return "allow", by(allow[0])
        if request.effects is not None and not request.needs_permission:
            return "allow", "it needs no permission"
        return "ask", f"{request.tool} asks before it runs"

    # -- one effect ----------------------------------------------------------------------------------------------

    def _effect(self, effect: Effect, command: RunCommand | None, cover: Rule | None = None) -> list[JudgedEffect]:
        """Judge an effect. `command` is the command that implies it, `cover` an allow rule that matched the command."""
        match effect:
            case ReadPath() | WritePath() | DeletePath():
                return [judge_path(self.rules, effect, command, cover or self.cover)]
            case RunCommand():
                return self._command(effect)
            case Connect():
                return [self._connect(effect, command, cover)]
            case RemoteCall(server, tool):
                return [self._remote(effect, (f"mcp__{server}__{tool}", f"mcp__{server}"))]
            case StartAgent(profile):
                return [self._agent(effect, profile)]
            case Unreadable(reason):
                return [Case(effect, guard=Guard("ask", reason), firm=True).verdict(self.request.mode)]

    def _command(self, effect: RunCommand) -> list[JudgedEffect]:
        own, allowed = judge_command(self.rules, effect, self.cover)
        return [own, *(each for implied in effect.implies for each in self._effect(implied, effect, allowed))]

    def _connect(self, effect: Connect, command: RunCommand | None, cover: Rule | None) -> JudgedEffect:
        host = plain_host(effect.host)
        guarded = command is not None
        reason, verdict = host_guard(host, self.policy.allowed_hosts, by_command=guarded, port=effect.port)
        return Case(
            effect,
            rules=self._rules_for("host", lambda rule: bool(rule.spec) and rule.names_host(host), cover or self.cover),
            guard=Guard(verdict, reason) if reason else None,
            changes=False,
            default=("ask", f"it connects to {host}"),
        ).verdict(self.request.mode)

    def _rules_for(self, kind: Kind, about: Callable[[Rule], bool], cover: Rule | None = None) -> RulesFor:
        deny, ask, allow = (self.rules.matching(kind, verdict, about) for verdict in ("deny", "ask", "allow"))
        return RulesFor(deny, ask, allow, cover)

    def _remote(self, effect: RemoteCall, names: tuple[str, ...]) -> JudgedEffect:
        rules = self._rules_for("name", lambda rule: rule.names_tool(names), self.cover)
        return Case(
            effect,
            rules=rules,
            # A server's word that its tool is read-only proves nothing: mode plan needs an allow rule of the user too.
            changes=not (self.request.read_only and (rules.allow or rules.cover)),
            default=("ask", f"what {effect.tool} of server {effect.server} does cannot be seen from here"),
        ).verdict(self.request.mode)

    def _agent(self, effect: StartAgent, profile: str) -> JudgedEffect:
        return Case(
            effect,
            rules=self._rules_for("agent", lambda rule: rule.whole or fnmatch.fnmatchcase(profile, rule.spec)),
            changes=False,
            default=("allow", "each call of the sub-agent is judged by itself"),
        ).verdict(self.request.mode)


# -- commands --------------------------------------------------------------------------------------------------------


def judge_command(rules: Matching, effect: RunCommand, covered: Rule | None) -> tuple[JudgedEffect, Rule | None]:
    """Judge a command by its words; return the judgement and the allow rule that matched it, if one did."""
    words = effect.words
    allow = rules.matching("command", "allow", lambda rule: rule.command is not None and rule.command.allows(words))
    shown = " ".join(words[:2])
    default: tuple[Verdict, str] = ("ask", effect.reason or f"{shown} is not known to change nothing")
    case = Case(
        effect,
        rules=RulesFor(_forbidding(rules, "deny", words), _forbidding(rules, "ask", words), allow, covered),
        floor=command_floor(effect, rules.request.cwd, rules.roots),
        guard=_guard(rules, effect, allow),
        firm=not effect.read_only,
        changes=not effect.read_only,
        default=("allow", f"{shown} is read-only") if effect.read_only else default,
    )
    return case.verdict(rules.request.mode), allow[0] if allow else None


def _forbidding(rules: Matching, verdict: Verdict, words: tuple[str, ...]) -> tuple[Rule, ...]:
    return rules.matching("command", verdict, lambda rule: rule.command is not None and rule.command.forbids(words))


def _guard(rules: Matching, effect: RunCommand, allow: tuple[Rule, ...]) -> Guard | None:
    if effect.read_only:
        reason = "" if allow else repository_problem(effect, rules.request) or project_problem(effect, rules.request)
        return Guard("ask", reason) if reason else None
    words = (*effect.words, effect.fed) if effect.fed else effect.words
    return next((guard for check in _CHECKS for guard in check(rules, words)), None)


def _denied_command(rules: Matching, words: tuple[str, ...]) -> Iterator[Guard]:
    """Yield a guard that asks if the arguments of a program that may run others contain a denied command."""
    for rule in rules.book.of("command", "deny"):
        if rule.command is not None and rules.counts(rule) and rule.command.hidden_in(words):
            yield Guard("ask", f"{words[0]} may run what rule {rule.text} ({rule.origin}) denies", (rule,))


def _denied_host(rules: Matching, words: tuple[str, ...]) -> Iterator[Guard]:
    """Yield a guard that asks if an argument of a program contains a host that a rule denies."""
    denied = [rule for rule in rules.book.of("host", "deny") if not rule.whole and rules.counts(rule)]
    if not denied:
        return
    for part in dict.fromkeys(part for word in words for part in _HOST_PARTS.findall(word)[:64]):
        for rule in denied:
            if rule.names_host(part.lower().strip(".-")):
                yield _handed_guard(words, part, rule)


def _denied_path(rules: Matching, words: tuple[str, ...]) -> Iterator[Guard]:
    """Yield a guard that asks if an argument of an unknown program contains a path that a rule denies."""
    denied = [rule for rule in rules.book.own if rule.verdict == "deny" and rule.kind in ("read", "write")]
    if not denied:
        return
    from surehand.shell.report import known_words  # lazy: the shell's tables, about 30 ms, for few rules

    if known_words(words[0]):
        return
    given = words if "=" in words[0] else words[1:]  # `NAME=value`: the value may be a path
    for part in dict.fromkeys(part for word in given for part in _PATH_PARTS.findall(word)[:64]):
        place = rules.roots.resolve(os.path.join(rules.request.cwd, part))
        for rule in denied:
            if rules.counts(rule) and rules.forbids(rule, place, deep=False):
                yield _handed_guard(words, part, rule)


def _handed_guard(words: tuple[str, ...], part: str, rule: Rule) -> Guard:
    return Guard("ask", f"{words[0]} is given {part}, which rule {rule.text} ({rule.origin}) denies", (rule,))


_CHECKS = (_denied_command, _denied_host, _denied_path)


# -- paths -----------------------------------------------------------------------------------------------------------


def judge_path(rules: Matching, effect: PathEffect, command: RunCommand | None, cover: Rule | None) -> JudgedEffect:
    """Judge a read, write or removal.

    `command` is the command that implies it. `cover` is an allow rule for the tool or the command as a whole, which
    counts for paths inside the roots only.
    """
    request = rules.request
    place = rules.resolve(effect.path)
    reads = isinstance(effect, ReadPath)
    if reason := _of_no_matter(effect, place, request):
        return JudgedEffect(effect, "allow", reason)
    kind: Kind = "read" if reads else "write"
    deep = effect.recursive and not reads
    deny = rules.forbidding(kind, "deny", place, deep)
    ask = rules.forbidding(kind, "ask", place, deep)
    allow = rules.allowing(kind, place)
    deletes = isinstance(effect, DeletePath)
    chosen = (
        command is not None
        and deep
        and (
            removes_by_choice(command, request.effects or (), deletes=deletes) or picks_by_pattern(command, effect.path)
        )
    )
    inside: tuple[Verdict, str] = ("allow", "inside the workspace")
    if not reads and request.mode != "accept-edits":
        inside = ("ask", f"it changes {place.given}")
    guard = _protection(
        rules, effect, place, lists=_lists(command), deny=_built_in(deny), ask=_built_in(ask), allow=allow
    )
    denied = (*denied_by_settings(request, place, rules.pattern), *_own(deny))
    return Case(
        effect,
        rules=RulesFor(denied, _own(ask), allow, cover if place.inside else None),
        floor=path_floor(effect, place, rules.roots, picked=chosen),
        guard=guard,
        changes=not reads,
        default=inside,
    ).verdict(request.mode)


def _of_no_matter(effect: PathEffect, place: ResolvedPath, request: Request) -> str:
    """Return why a path is allowed unjudged: a device like /dev/null, or reading saved output. Empty otherwise."""
    reads = isinstance(effect, ReadPath)
    neutral = place.given == "/dev/null" or (place.given in _NEUTRAL and not reads)
    if neutral and not isinstance(effect, DeletePath):
        return f"{place.given} is no file"
    if reads and not place.inside and is_beneath(place.real, kept_output(request.workspace)):
        return "it is the kept output of a command of this workspace"
    return ""


def _protection(
    rules: Matching,
    effect: PathEffect,
    place: ResolvedPath,
    *,
    lists: bool,
    deny: tuple[Rule, ...],
    ask: tuple[Rule, ...],
    allow: tuple[Rule, ...],
) -> Guard | None:
    """Return the default protection of this path, None if it has none.

    An allow rule of the user that spells out the file's name lifts a protection that asks, and makes most of those that
    deny ask instead. One that is the exact path of a secret lifts its protection.

    `lists`: the command prints only names and sizes, so a secret inside the roots may be listed.
    `deny` and `ask` are the built-in rules that match.
    """
    if "\0" in place.given:
        return Guard("deny", "no path holds a NUL character")
    reads = isinstance(effect, ReadPath)
    meant = any(rules.spelled_out(rule, place) for rule in allow)
    exact = all(any(rules.points_at(rule, name) for rule in allow) for name in place.names)
    unread = lists and reads and place.inside
    if any(is_secret(fold_name(name)) for name in place.names) and not (unread and os.path.isfile(place.real)):
        if exact:
            return None
        if isinstance(effect, DeletePath):  # deleting reveals nothing of the content
            return None if meant else Guard("ask", f"{place.given} holds secrets")
        rule = f"{'Read' if reads else 'Edit'}({rules.roots.spell(place.given)})"
        reason = f"{place.given} holds secrets, going by its name; where it holds none, a user's rule {rule} allows it"
        return Guard("ask" if meant else "deny", reason)
    if reads and not unread and (other := _secret_by_another_name(rules, place)):
        meant_otherwise = other == "?"
        reason = "has another name, which may be that of a secret" if meant_otherwise else f"is {other} by another name"
        return Guard("ask" if meant or meant_otherwise else "deny", f"{place.given} {reason}")
    if reads and any(own_state(name, rules.roots) for name in place.names):
        return Guard("deny", "Surehand's own state is out of reach")
    if reads and ".git" in place.components and not unread:
        return Guard("ask" if meant else "deny", "git's own files are read through git")
    if deny:
        return Guard("ask" if meant else "deny", by(deny[0]), deny)
    if ask and not meant:
        return Guard("ask", by(ask[0]), ask)
    if not reads and not meant and (ran := _trusted_with(rules, effect, place)):
        return Guard("ask", f"{ran} is part of what this folder was trusted with: it runs as the user")
    if isinstance(effect, WritePath) and not meant and (why := why_git_obeys(place, rules.obeyed)):
        return Guard("ask", why)
    if place.inside or allow or (reads and public_file(place)):
        return None
    return Guard("ask", f"{place.real} is outside the workspace")


def has_other_names(place: ResolvedPath) -> bool:
    """Return whether a file has other hard links."""
    try:
        return os.lstat(place.real).st_nlink > 1
    except (OSError, ValueError):
        return False


def _secret_by_another_name(rules: Matching, place: ResolvedPath) -> str:
    try:
        status = os.lstat(place.real)
    except (OSError, ValueError):
        return ""
    return rules.roots.secret_links.secret_name(status, place.real) if status.st_nlink > 1 else ""


def public_file(place: ResolvedPath) -> bool:
    """Return whether the resolved path is a system file that anybody may read."""
    real = (
        _OWN_PROCESS.sub(r"/proc/self/\1", place.real)
        if place.given.startswith(("/proc/self/", "/proc/mounts", "/proc/net/"))
        else place.real
    )
    return _PUBLIC.fullmatch(real) is not None


def _trusted_with(rules: Matching, effect: PathEffect, place: ResolvedPath) -> str:
    """Return the path of trusted code that the effect would change; empty if there is none."""
    files = rules.trusted_files
    if lies_in(place.real, files):
        return place.given
    return next((path for path in sorted(files) if is_beneath(path, place.real)), "") if effect.recursive else ""


def _lists(command: RunCommand | None) -> bool:
    """Return whether a command prints only names and sizes of files, not their contents."""
    if command is None or not command.read_only:
        return False
    name, *words = command.words
    record = record_of(name).names_only or {}
    more = record.get("") or (record.get(words[0]) if words else None)
    return more is not None and not any(re.match(more, word) for word in words)


def _own(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    return tuple(rule for rule in rules if rule.origin.source != "built-in")


def _built_in(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    return tuple(rule for rule in rules if rule.origin.source == "built-in")


# -- settings of one tool --------------------------------------------------------------------------------------------


def missing_capability(request: Request, capable: Callable[[int], Sequence[str]] | None) -> str:
    """Return which required capability a tool lacks, and which tools have it; empty if it lacks none."""
    settings = request.tool_settings
    if settings is None:
        return ""
    level = max([settings.security_level, *(_LEVEL_OF[each] for each in settings.required_capabilities)])
    if request.level >= level:
        return ""
    wanted = ", ".join(settings.required_capabilities) or f"level {level}"
    others = [name for name in (capable(level) if capable else ()) if name not in request.names]
    would_do = f"; these would do: {', '.join(others)}" if others else ""
    return f"the settings require {wanted} of {request.tool}, which has level {request.level}{would_do}"


def denied_by_settings(
    request: Request, place: ResolvedPath, compiled: Callable[[str, bool], PathPattern]
) -> tuple[Rule, ...]:
    """Return the path settings of this tool that forbid a path, expressed as deny rules."""
    settings = request.tool_settings
    if settings is None or not (settings.allowed_paths or settings.forbidden_paths):
        return ()
    for text in settings.forbidden_paths:
        pattern = compiled(text, True)
        if any(pattern.matches(name) for name in place.names):
            return (_as_rule(request.tool, "forbidden_paths", text),)
    allowed = [compiled(text, False) for text in settings.allowed_paths]
    if allowed and not all(any(pattern.matches(name) for pattern in allowed) for name in place.names):
        return (_as_rule(request.tool, "allowed_paths", ", ".join(settings.allowed_paths)),)
    return ()


def _as_rule(tool: str, key: str, text: str) -> Rule:
    where = f"tools.{tool}.permissions.{key}"
    return Rule("deny", f"{where} = {text}", "name", tool, text, Origin("user", where), reason=f"{key} of {tool}")


# -- the order of precedence -----------------------------------------------------------------------------------------


@frozen
class Guard:
    """A default protection: its verdict, its reason, and the rules behind it."""

    verdict: Verdict
    reason: str
    rules: tuple[Rule, ...] = ()


@frozen
class RulesFor:
    """The rules that match one effect, by verdict; `cover` is one that allows the tool or the command as a whole."""

    deny: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    allow: tuple[Rule, ...] = ()
    cover: Rule | None = None


@frozen
class Case:
    """One effect, and everything its verdict depends on except the mode."""

    effect: Effect
    rules: RulesFor = RulesFor()
    guard: Guard | None = None
    floor: str = ""
    default: tuple[Verdict, str] = ("ask", "no rule allows it")
    changes: bool = True
    firm: bool = False
    """Whether the guard asks even in mode bypass."""

    def verdict(self, mode: Mode) -> JudgedEffect:
        """Return the verdict by the first condition that applies, in order of precedence."""
        rules, guard = self.rules, self.guard
        every = tuple(dict.fromkeys((*rules.deny, *rules.ask, *(guard.rules if guard else ()), *rules.allow)))
        if self.floor:
            return JudgedEffect(self.effect, "deny", f"hard floor: {self.floor}", every)
        if rules.deny:
            return JudgedEffect(self.effect, "deny", by(rules.deny[0]), every)
        if guard is not None and guard.verdict == "deny":
            return JudgedEffect(self.effect, "deny", guard.reason, every)
        if mode == "plan" and self.changes:
            return JudgedEffect(self.effect, "deny", "mode plan changes nothing", every)
        if rules.ask:
            return JudgedEffect(self.effect, "ask", by(rules.ask[0]), every)
        if guard is not None and (self.firm or mode != "bypass"):
            return JudgedEffect(self.effect, "ask", guard.reason, every)
        if mode == "bypass":
            return JudgedEffect(self.effect, "allow", "mode bypass", every)
        if rules.allow:
            return JudgedEffect(self.effect, "allow", by(rules.allow[0]), every)
        if rules.cover is not None:
            return JudgedEffect(self.effect, "allow", by(rules.cover), (*every, rules.cover))
        return JudgedEffect(self.effect, *self.default, every)


def by(rule: Rule) -> str:
    """Return the reason that names the deciding rule, its source, and why it is there."""
    verb = {"allow": "allows", "ask": "asks about", "deny": "denies"}[rule.verdict]
    why = f": {rule.reason}" if rule.reason else ""
    return f"rule {rule.text} ({rule.origin}) {verb} it{why}"
