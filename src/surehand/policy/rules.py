"""Rules: `allow`, `ask` or `deny`, and what they are about.

    Read(src/**)  Edit(./docs/**)          every read or write effect on such a path, whichever tool has it
    Bash(git status:*)                     every simple command with such words
    WebFetch(domain:example.com)           every connection to that host
    mcp__github  mcp__github__*  fs.*      tools by server, by full name, by glob
    Agent(reviewer)                        sub-agents by profile

A name alone (`Bash`, `Edit`, `time.now`) is every call of that tool, and for `Read` and `Edit` every such effect.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Literal

from surehand.core.errors import RuleError, ToolFailure
from surehand.core.frozen import frozen
from surehand.core.text import lazy_pattern
from surehand.policy.commands import CommandPattern, parse_command
from surehand.policy.paths import translate

Verdict = Literal["allow", "ask", "deny"]
VERDICTS: tuple[Verdict, ...] = ("allow", "ask", "deny")
RuleSource = Literal["built-in", "user", "project", "session", "command line"]
# What else a new kind needs: CONTRIBUTING.md, "a kind of rule".
Kind = Literal["read", "write", "command", "host", "agent", "name"]

# One word for each kind of effect; the names other systems use for the same thing are understood.
_KINDS: dict[str, Kind] = {
    "read": "read",
    "fileread": "read",
    "edit": "write",
    "write": "write",
    "multiedit": "write",
    "notebookedit": "write",
    "fileedit": "write",
    "filewrite": "write",
    "bash": "command",
    "webfetch": "host",
    "agent": "agent",
    "task": "agent",
}
_TOOLS_OF: dict[Kind, tuple[str, ...]] = {
    "read": ("Read", "FileRead"),
    "write": ("Edit", "Write", "MultiEdit", "NotebookEdit", "FileEdit", "FileWrite"),
    "command": ("Bash",),
    "host": ("WebFetch",),
    "agent": ("Agent", "Task"),
}
_SHAPE = lazy_pattern(r"(?P<name>[^()\s][^()]*?)\s*(?:\((?P<spec>.*)\))?", re.DOTALL)


@frozen
class Origin:
    """Where a rule was written."""

    source: RuleSource = "user"
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{self.source}, {place}" if place else self.source


@frozen
class Rule:
    """One rule: a verdict, what it is about, and where it came from."""

    verdict: Verdict
    text: str
    """The rule without its verdict: `Bash(rm:*)`."""
    kind: Kind
    name: str
    spec: str
    origin: Origin = Origin()
    reason: str = ""
    untrusted_only: bool = False
    """Counts only once text from the web, a remote tool or outside has entered the session."""
    command: CommandPattern | None = None

    @property
    def whole(self) -> bool:
        """Whether the rule is about everything of its kind (`Bash`, `Bash(*)`, `Edit(**)`)."""
        return self.spec in ("", "*", "**", ":*", "domain:*")

    def names_tool(self, names: Iterable[str]) -> bool:
        """Return whether the rule is about a tool as a whole, known under `names`."""
        if self.kind != "name":
            return self.whole and any(name in _TOOLS_OF[self.kind] or name == self.name for name in names)
        return self.spec == "" and any(_name_matches(self.name, name) for name in names)

    def names_caller(self, names: Iterable[str]) -> bool:
        """Return whether the name before the brackets is one of `names`: `Grep(secrets/**)` for the tool `Grep`."""
        return any(_name_matches(self.name, name) for name in names)

    def names_host(self, host: str) -> bool:
        """Return whether a `domain:` rule covers `host`, on label boundaries."""
        wanted = self.spec.removeprefix("domain:")
        if wanted == "*":
            return True
        if wanted.startswith("*."):
            return host == wanted[2:] or host.endswith(wanted[1:])
        return host == wanted

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        shown: dict[str, Any] = {"verdict": self.verdict, "rule": self.text, "source": self.origin.source}
        if self.origin.file:
            shown |= {"file": self.origin.file, "line": self.origin.line}
        if self.untrusted_only:
            shown["after_untrusted"] = True
        return shown | ({"reason": self.reason} if self.reason else {})


def _name_matches(pattern: str, name: str) -> bool:
    if pattern == name:
        return True
    if "*" in pattern or "?" in pattern:
        import fnmatch

        return fnmatch.fnmatchcase(name, pattern)
    # `mcp__github` is the whole server, at the `__` boundary: not `mcp__git`, not `mcp__github2`.
    return pattern.startswith("mcp__") and pattern.count("__") == 1 and name.startswith(pattern + "__")


_UNKNOWN = Origin()
_COMMAND_LINE = Origin("command line")


def parse_rule(
    verdict: str, text: str, origin: Origin = _UNKNOWN, *, reason: str = "", untrusted: bool = False
) -> Rule:
    """Parse a rule; raise RuleError that says where and what is wrong."""
    if verdict not in VERDICTS:
        raise RuleError(f"{_at(origin)}{verdict!r} is not a verdict; a rule begins with allow, ask or deny")
    found = _SHAPE.fullmatch(text.strip())
    if found is None:
        raise RuleError(
            f"{_at(origin)}the rule {text!r} does not parse; write Tool or Tool(what), such as Bash(git status:*)"
        )
    name, spec = found["name"], found["spec"]
    kind = _kind(verdict, name)
    problem = _problem(kind, name, spec)
    if problem:
        raise RuleError(f"{_at(origin)}the rule {text!r}: {problem}")
    spec = _plain_spec(kind, (spec or "").strip())
    command = parse_command(spec) if kind == "command" else None
    return Rule(verdict, text.strip(), kind, name, spec, origin, reason, untrusted, command)


def _kind(verdict: str, name: str) -> Kind:
    # `allow write` may be meant for a custom tool `write`; `deny bash(rm:*)` can only be meant for Bash.
    exact = any(name in tools for tools in _TOOLS_OF.values())
    return _KINDS.get(name.lower(), "name") if exact or verdict != "allow" else "name"


def _plain_spec(kind: Kind, spec: str) -> str:
    if kind == "host" and spec:
        return "domain:" + spec.removeprefix("domain:").strip("[] ").rstrip(".").lower()
    return spec


def _problem(kind: Kind, name: str, spec: str | None) -> str:
    if spec is not None and not spec.strip():
        return f"there is nothing between the brackets; write {name} for all of it"
    if any(ord(char) < 32 or ord(char) == 127 for char in (spec or "") + name):
        return "it contains a control character"
    if kind == "host" and spec is not None:
        return _host_problem(spec.removeprefix("domain:").strip(), spec)
    if kind == "name" and name.startswith("mcp__") and spec is not None:
        return "a tool of a server takes no brackets; write mcp__server or mcp__server__tool"
    if kind in ("read", "write", "name") and spec is not None:
        return _path_problem(spec)
    return ""


def _host_problem(host: str, spec: str) -> str:
    if not spec.startswith("domain:"):
        return f"write WebFetch(domain:{host.split('//')[-1].split('/')[0] or 'example.com'})"
    if not re.fullmatch(r"\*|(\*\.)?[^\s/*:?#@\[\]]+|\[?[0-9a-fA-F:.]+\]?", host):
        return f"{host!r} is not a host name; a wildcard can only replace whole leading labels (*.example.com)"
    return ""


def _path_problem(spec: str) -> str:
    if "[" not in spec:
        return ""
    try:
        re.compile(translate(spec))
    except re.error as problem:
        return f"the pattern is wrong: {problem}"
    return ""


def _at(origin: Origin) -> str:
    if origin.file:
        return f"{origin.file}:{origin.line}: " if origin.line else f"{origin.file}: "
    return f"{origin.source}: " if origin.source != "user" else ""


@lru_cache(maxsize=1024)
def grant(text: str) -> Rule | None:
    """Return the allow rule an approver gave for the session; one that does not parse grants nothing."""
    try:
        return parse_rule("allow", text, Origin("session"))
    except RuleError:
        return None


def parse_line(line: str, origin: Origin = _COMMAND_LINE) -> Rule:
    """Return the rule of one line `deny Bash(rm:*)`; without a verdict it is an allow rule."""
    first, _, rest = line.strip().partition(" ")
    if first in VERDICTS and (rest.strip() or line != first):
        return parse_rule(first, rest, origin)
    if " " in line.strip().partition("(")[0].rstrip():
        raise RuleError(f"{origin.source}: a rule begins with allow, ask or deny, which {line!r} does not")
    return parse_rule("allow", line, origin)


# Hosts as the policy sees them: one plain form for rules, and a guard before what is not the public internet.


def plain_host(host: str) -> str:
    """Return the host in the one form rules are compared in; what is no host at all stays as it is."""
    from surehand.web.addresses import normal_host  # lazy: ipaddress and the address tables, 8 ms

    try:
        return normal_host(host)
    except ToolFailure:
        return host.lower()


def host_guard(
    host: str, allowed: Iterable[str], *, by_command: bool, port: int | None = None
) -> tuple[str, Literal["ask", "deny"]]:
    """Return (why the host is guarded, verdict); no reason for a public one. Looks up no name.

    The web tools never reach private addresses. A command is asked about one (`curl localhost:3000` is everyday
    work), but never reaches the address that hands out a machine's credentials.
    """
    from surehand.web.addresses import literal_problem  # lazy: addresses, 11 ms

    shown = f"[{host}]" if ":" in host else host
    problem = literal_problem(f"http://{shown}:{port}/" if port else f"http://{shown}/", allowed)
    if problem is None:
        return "", "ask"
    return problem, "ask" if by_command and "metadata" not in problem else "deny"
