"""How one call is judged: the tool as a whole, then each of its effects, then the strictest of all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

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
from surehand.policy.hosts import host_guard, plain_host
from surehand.policy.judged_commands import judge_command
from surehand.policy.judged_paths import judge_path
from surehand.policy.matching import Matching
from surehand.policy.policy import STRICTNESS, Decision, JudgedEffect, MatchedRule
from surehand.policy.rules import Rule, Verdict
from surehand.policy.tool_settings import missing_capability
from surehand.policy.weighing import Guard, by, weigh

if TYPE_CHECKING:
    from surehand.policy.policy import Policy, Request

# Effects that speak for the call; a call with reads alone, or none, is judged by what the tool says of itself as well.
_SPEAKING = (WritePath, DeletePath, Connect, RemoteCall, Unreadable, RunCommand, StartAgent)


class Judgement:
    """The judgement of one request; made, asked for its `decision`, and dropped."""

    def __init__(self, policy: Policy, request: Request) -> None:
        self.policy = policy
        self.request = request
        self.rules = Matching(policy, request)
        self.cover: Rule | None = None
        """The allow rule for the tool as a whole, if there is one: it covers effects inside the roots."""

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
        from surehand.policy.suggest import suggestion

        return suggestion(self.request, judged, self.rules.roots)

    def _tool(self) -> Iterable[JudgedEffect]:
        """Judge the tool as a whole: rules by its name, and what it says of itself when it states no effects."""
        request = self.request
        deny, ask, allow = (self.rules.naming(verdict) for verdict in ("deny", "ask", "allow"))
        if deny:
            return [JudgedEffect(None, "deny", by(deny[0]), deny)]
        if ask:
            return [JudgedEffect(None, "ask", by(ask[0]), ask)]
        if allow:
            self.cover = allow[0]
        effects = request.effects or ()
        if any(isinstance(each, _SPEAKING) for each in effects):
            return [JudgedEffect(None, "allow", by(allow[0]), allow)] if allow else []
        verdict, reason = self._unseen(allow)
        return [JudgedEffect(None, verdict, reason, allow)]

    def _unseen(self, allow: tuple[Rule, ...]) -> tuple[Verdict, str]:
        request = self.request
        if request.read_only and not request.always_asks:
            return "allow", "it is read-only"
        if request.mode == "plan" and not request.read_only:
            return "deny", f"{request.tool} is not read-only, and mode plan runs read-only tools alone"
        if request.mode == "bypass":
            return "allow", "mode bypass"
        if allow:
            return "allow", by(allow[0])
        if request.effects is not None and not request.needs_permission:
            return "allow", "it needs no permission"
        return "ask", f"{request.tool} asks before it runs"

    # -- one effect ----------------------------------------------------------------------------------------------

    def _effect(self, effect: Effect, command: RunCommand | None, cover: Rule | None = None) -> list[JudgedEffect]:
        """Judge an effect; `command` is the command whose words imply it, `cover` an allow rule that matched that."""
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
                return [weigh(self.request.mode, effect, changes=True, guard=Guard("ask", reason), firm=True)]

    def _command(self, effect: RunCommand) -> list[JudgedEffect]:
        own, allowed = judge_command(self.rules, effect, self.cover)
        return [own, *(each for implied in effect.implies for each in self._effect(implied, effect, allowed))]

    def _connect(self, effect: Connect, command: RunCommand | None, cover: Rule | None) -> JudgedEffect:
        host = plain_host(effect.host)
        guarded = command is not None
        reason, verdict = host_guard(host, self.policy.allowed_hosts, by_command=guarded, port=effect.port)
        return weigh(
            self.request.mode,
            effect,
            deny=self.rules.matching("host", "deny", lambda rule: bool(rule.spec) and rule.names_host(host)),
            ask=self.rules.matching("host", "ask", lambda rule: bool(rule.spec) and rule.names_host(host)),
            guard=Guard(verdict, reason) if reason else None,
            changes=False,
            allow=self.rules.matching("host", "allow", lambda rule: bool(rule.spec) and rule.names_host(host)),
            covered=cover or self.cover,
            default=("ask", f"it connects to {host}"),
        )

    def _remote(self, effect: RemoteCall, names: tuple[str, ...]) -> JudgedEffect:
        def about(rule: Rule) -> bool:
            return rule.names_tool(names)

        allow = self.rules.matching("name", "allow", about)
        return weigh(
            self.request.mode,
            effect,
            deny=self.rules.matching("name", "deny", about),
            ask=self.rules.matching("name", "ask", about),
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

        return weigh(
            self.request.mode,
            effect,
            deny=self.rules.matching("agent", "deny", about),
            ask=self.rules.matching("agent", "ask", about),
            changes=False,
            allow=self.rules.matching("agent", "allow", about),
            default=("allow", "each call of the sub-agent is judged by itself"),
        )
