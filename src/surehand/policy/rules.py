"""Rules: `allow`, `ask` or `deny`, what they are about, and the records of a judgement (`Request`, `Decision`).

    Read(src/**)  Edit(./docs/**)          every read or write effect on such a path, whichever tool has it
    Bash(git status:*)                     every simple command with such words
    WebFetch(domain:example.com)           every connection to that host
    mcp__github  mcp__github__*  fs.*      tools by server, by full name, by glob
    Agent(reviewer)                        sub-agents by profile

A name alone (`Bash`, `Edit`, `time.now`) is every call of that tool, and for `Read` and `Edit` every such effect.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from surehand.core.effects import Effect, describe
from surehand.core.errors import RuleError, ToolFailure
from surehand.core.frozen import frozen
from surehand.core.text import lazy_pattern
from surehand.policy.paths import translate

if TYPE_CHECKING:
    from surehand.core.settings import Mode, ToolPermissionSettings

Verdict = Literal["allow", "ask", "deny"]
VERDICTS: tuple[Verdict, ...] = ("allow", "ask", "deny")
RuleSource = Literal["built-in", "user", "project", "session", "command line"]
# A new kind of rule also needs `judge.py`, `example_matches` in `rule_files.py` and docs/policy.md. In addition:
# - if it matches a new effect: `core/effects.py`, `_DECIDING_EFFECTS` in `judge.py`, `effect_line` and `_rules_for`
#   (the suggested rule) in `approval.py`, `cli/policy.py`, `console/static/pages/policy.js`, and
#   `surehand/__init__.py` if tools may declare the effect;
# - if it matches paths: `book.py`, `_problem` below, `find_rule_by_full_path` in `policy.py`;
# - if it limits what searches and started programs may reach: `Policy.bind` in `policy.py`;
# - if it depends on a new field of `Request`: the keys of both caches of verdicts in `policy.py`.
Kind = Literal["read", "write", "command", "host", "agent", "name"]

# Tool names (lower case) that stand for a kind of rule, with those of other agents.
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
    """Whether the rule is active only after text from the web, a remote tool or outside has entered the session."""
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


# Hosts: their normal form for comparison with rules, and the guard for those outside the public internet.


def plain_host(host: str) -> str:
    """Normalize a host for comparison with rules; anything that is not a host is returned unchanged."""
    from surehand.web.addresses import normal_host  # lazy: ipaddress and the address tables, 8 ms

    try:
        return normal_host(host)
    except ToolFailure:
        return host.lower()


def host_guard(
    host: str, allowed: Iterable[str], *, by_command: bool, port: int | None = None
) -> tuple[str, Literal["ask", "deny"]]:
    """Return (why the host is guarded, verdict); the reason is empty for a public host. No name is resolved.

    Private addresses are denied to the web tools. A command asks for one (`curl localhost:3000` is everyday work), but
    is denied the metadata address of a cloud, which hands out the machine's credentials.
    """
    from surehand.web.addresses import literal_problem  # lazy: addresses, 11 ms

    shown = f"[{host}]" if ":" in host else host
    problem = literal_problem(f"http://{shown}:{port}/" if port else f"http://{shown}/", allowed)
    if problem is None:
        return "", "ask"
    return problem, "ask" if by_command and "metadata" not in problem else "deny"


# Command patterns: what `Bash(...)` matches, on the decoded words of one simple command.
#
# `Bash(git status:*)` and `Bash(git status *)` match commands that begin with these words, `Bash(git status)` exactly
# these words.
#
# Deny and ask rules ignore what does not change the meaning: the directory of the program (`/usr/bin/rm`), options
# between their words (`git -C x push`), the order and clustering of options (`rm -fr` for `rm -rf`), further words at
# the end. Allow rules do not.

PROGRAM_FOLDERS = frozenset({"/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin"})
# Programs whose arguments may be code in a language that can run commands.
_INTERPRETERS = (
    r"(python|pypy|ipython|perl|ruby|node|deno|bun|php|lua|tclsh|expect|osascript|pwsh|[gmn]?awk|g?sed|Rscript|R|julia|"
    r"g?vim?|nvim|ex|ed|emacs|tmux|screen|g?make|gdb|lldb|sqlite|psql|mysql|m4|socat|nix-shell|docker|podman|kubectl|ssh)"
    r"[0-9.]*"
)
_PARTS = lazy_pattern(r"[;&|\n(){}!`'\"=]+")  # what may stand before a command inside a text
_LONG_NAMES = {"r": "--recursive", "R": "--recursive", "f": "--force", "v": "--verbose", "i": "--interactive"}


@frozen
class CommandPattern:
    """The words of a command rule; `open_end` allows more words after them."""

    words: tuple[str, ...]
    open_end: bool

    def allows(self, words: tuple[str, ...]) -> bool:
        """Return whether an allow rule covers the command: word by word, from the first one on."""
        if not words or len(words) < len(self.words) or (len(words) > len(self.words) and not self.open_end):
            return False
        first = words[0]
        folder, name = posixpath.split(first)
        plain = name if folder in PROGRAM_FOLDERS else first
        pairs = zip(self.words, (plain, *words[1:]), strict=False)
        return all(_same(wanted, word) for wanted, word in pairs)

    def forbids(self, words: tuple[str, ...]) -> bool:
        """Return whether a deny or ask rule matches the command, however it is spelled."""
        if not self.words:
            return True
        if not words or not _same_program(self.words[0], words[0]):
            return False
        options, plain = _split(self.words[1:])
        if not all(_has_option(option, words[1:]) for option in options):
            return False
        return self._in_order(plain, words[1:])

    def hidden_in(self, words: tuple[str, ...]) -> bool:
        """Return whether the arguments contain such a command, which the program may run.

        It may begin any argument or a part of one (split at `;`, `|`, quotes and the like). For an interpreter it is
        enough that an argument names the program: code is not parsed.
        """
        if not self.words:
            return False
        texts = [word for word in words if _PARTS.search(word) or " " in word]
        if any(self.forbids(tuple(part.split())) for text in texts for part in _PARTS.split(text)):
            return True
        if re.fullmatch(_INTERPRETERS, posixpath.basename(words[0])):
            named = re.compile(rf"(?<![\w.-]){re.escape(posixpath.basename(self.words[0]))}(?![\w.-])")
            return any(named.search(word) for word in words[1:])
        return any(self.forbids(words[start:]) for start in range(1, min(len(words), 64)))

    def _in_order(self, wanted: list[str], words: tuple[str, ...]) -> bool:
        """Return whether the `wanted` words occur in order, with only options and one value after each between them."""
        position = 0
        previous_is_option = False
        for target in wanted:
            while True:
                if position >= len(words):
                    return False
                word = words[position]
                position += 1
                if target == "*" or _same(target, word):
                    previous_is_option = False
                    break
                skippable = word.startswith("-") or previous_is_option
                previous_is_option = word.startswith("-") and "=" not in word
                if not skippable:
                    return False
        return True


def parse_command(text: str) -> CommandPattern:
    """Return the pattern of a `Bash(...)` specifier; an empty one or `*` matches every command."""
    text = text.strip()
    if text in ("", "*", ":*"):
        return CommandPattern((), open_end=True)
    if text.endswith(":*"):
        return CommandPattern(_words(text[:-2]), open_end=True)
    words = _words(text)
    if words[-1] == "*":
        return CommandPattern(words[:-1], open_end=True)
    # `Bash(npm run test*)`: the last word is a prefix, and any words may follow it.
    return CommandPattern(words, open_end=words[-1].endswith("*"))


def _words(text: str) -> tuple[str, ...]:
    import shlex

    try:
        return tuple(shlex.split(text, posix=True))
    except ValueError:
        return tuple(text.split())


def _same(wanted: str, word: str) -> bool:
    if wanted == word or "*" not in wanted:
        return wanted == word
    import fnmatch

    return fnmatch.fnmatchcase(word, wanted)


def _same_program(wanted: str, word: str) -> bool:
    """Compare program names for a deny or ask rule, ignoring directory, case and `.exe`."""
    if _same(wanted, word):
        return True
    name = posixpath.basename(word).lower().removesuffix(".exe")
    bare = posixpath.basename(wanted) if wanted.startswith("/") else wanted
    return _same(bare.lower(), name)


def _split(words: tuple[str, ...]) -> tuple[list[str], list[str]]:
    options = [word for word in words if word.startswith("-") and word != "-"]
    return options, [word for word in words if not (word.startswith("-") and word != "-")]


def _has_option(option: str, words: tuple[str, ...]) -> bool:
    given = [word for word in words if word.startswith("-")]
    if any(_same(option, word) for word in given):
        return True
    if option.startswith("--"):
        # Programs take unambiguous abbreviations (`--forc`), and values after `=`.
        names = [word.partition("=")[0] for word in given]
        return any(len(name) >= 4 and option.startswith(name) for name in names if name.startswith("--"))
    # `-R` counts as `-r`: rm, cp, chmod and the like are recursive with one or both of them.
    letters = "".join(word[1:] for word in given if not word.startswith("--")).replace("R", "rR").replace("r", "rR")
    return all(letter in letters or _long_name(letter, given) for letter in option[1:])


def _long_name(letter: str, given: list[str]) -> bool:
    name = _LONG_NAMES.get(letter)
    return name is not None and any(len(word) >= 5 and name.startswith(word) for word in given)


# The decision on a request: the facts of one call, the verdict on each of its effects, the verdict on the whole.

STRICTNESS: dict[Verdict, int] = {"allow": 0, "ask": 1, "deny": 2}


@frozen
class Request:
    """The facts of one call: its tool, its effects, and its context."""

    tool: str
    aliases: tuple[str, ...]
    module: str
    read_only: bool
    needs_permission: bool
    level: int
    effects: Sequence[Effect] | None
    """None if the tool states none; an empty list means that it has none."""
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
    """Whether the tool declares that it asks although it only reads."""
    leads: dict[str, str] | None = None
    """Filled while judging: path → the resolved path that was judged, which the tool must then open."""

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
        shown.pop("implies", None)  # each has its own JudgedEffect
        return shown | {"verdict": self.verdict, "why": self.reason}


@frozen
class Decision:
    """The verdict on a call, its reason, and every rule that matched."""

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
