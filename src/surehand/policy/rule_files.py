"""Rule files: rules are read from TOML with their line, reason and examples, and approved ones are added to it.

[permissions]
deny = ["Bash(curl:*)"]

[[permissions.rules]]
allow = "Bash(git commit:*)"
reason = "commits are local"
match = ["git commit -m x"]
not_match = ["git push"]
"""

from __future__ import annotations

import fcntl
import fnmatch
import json
import os
import shlex
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from surehand.core.effects import Effect, RunCommand
from surehand.core.errors import RuleError, StateError
from surehand.core.names import nearest
from surehand.files.paths import is_beneath
from surehand.policy.paths import Roots, compile_pattern, pattern_key
from surehand.policy.rules import VERDICTS, Origin, Rule, RuleSource, Verdict, parse_line, parse_rule, plain_host
from surehand.state import locations
from surehand.state.files import mode_of, write_private

if TYPE_CHECKING:
    from surehand.core.settings import RuleSettings, Settings

_KEYS = frozenset({"allow", "ask", "deny", "reason", "match", "not_match", "after_untrusted"})
LIMIT_BYTES = 1024 * 1024
_ANYWHERE = "/workspace"
"""The workspace in which relative paths of examples are resolved."""


def read_rules(path: str, source: RuleSource, *, check: bool = True) -> list[Rule]:
    """Return the rules of a TOML file, none if it does not exist; raise RuleError for anything else wrong with it."""
    text = read_text(path)
    if text is None:
        return []
    import tomllib  # lazy: 5 ms, and most folders have no such file

    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise RuleError(f"{path} is not valid TOML: {problem}") from None
    permissions = tree.get("permissions", {})
    if not isinstance(permissions, dict):
        raise RuleError(f"{path}: permissions must be a table")
    return list(_rules(cast("dict[str, Any]", permissions), _Lines(path, text, source), check))


def read_text(path: str) -> str | None:
    """Return the text of a policy file; None if it does not exist.

    Raises RuleError for a symlink, a file that is not regular or over LIMIT_BYTES, and text that is not UTF-8.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as problem:
        if os.path.islink(path):
            raise RuleError(f"{path} is a link; rules are read only from a plain file") from None
        raise RuleError(f"{path} cannot be read: {problem.strerror}") from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_size > LIMIT_BYTES:
        os.close(descriptor)
        raise RuleError(f"{path} is not a plain file of at most {LIMIT_BYTES} bytes")
    with os.fdopen(descriptor, "rb") as file:
        try:
            return file.read().decode("utf-8-sig")  # some editors begin a file with a byte order mark
        except UnicodeDecodeError as problem:
            raise RuleError(f"{path} is not UTF-8 text (byte {problem.start})") from None


class _Lines:
    """Finds the line number of a rule by its quoted text; the same text asked for again gives its next line."""

    def __init__(self, path: str, text: str, source: RuleSource) -> None:
        self.path = path
        self.source: RuleSource = source
        self._lines = text.splitlines()
        self._taken: set[tuple[int, str]] = set()

    def origin(self, rule: str) -> Origin:
        quoted = (f'"{_escape_toml(rule)}"', f"'{rule}'")
        for number, line in enumerate(self._lines, 1):
            if any(each in line for each in quoted) and (number, rule) not in self._taken:
                self._taken.add((number, rule))
                return Origin(self.source, self.path, number)
        return Origin(self.source, self.path)


def _escape_toml(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _rules(permissions: Mapping[str, Any], lines: _Lines, check: bool) -> Iterator[Rule]:
    for verdict in ("deny", "ask", "allow"):
        for text in _texts(permissions.get(verdict, []), f"permissions.{verdict}", lines.path):
            yield parse_rule(verdict, text, lines.origin(text))
    rows = permissions.get("rules", [])
    if not isinstance(rows, list):
        raise RuleError(f"{lines.path}: permissions.rules must be a list of tables")
    for row in cast("list[Any]", rows):
        yield from _row(row, lines, check)


def _texts(value: Any, key: str, path: str) -> list[str]:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list) or not all(isinstance(each, str) for each in cast("list[Any]", value)):
        raise RuleError(f"{path}: {key} must be a list of rules")
    return cast("list[str]", value)


def _row(row: Any, lines: _Lines, check: bool) -> Iterator[Rule]:
    if not isinstance(row, dict):
        raise RuleError(f"{lines.path}: each of permissions.rules is a table")
    table = cast("dict[str, Any]", row)
    verdicts = [each for each in VERDICTS if each in table]
    first = _texts(table[verdicts[0]], "a rule", lines.path) if verdicts else [""]
    origin = lines.origin(first[0]) if first else Origin(lines.source, lines.path)
    where = f"{origin.file}:{origin.line}" if origin.line else origin.file
    if len(verdicts) != 1:
        raise RuleError(f"{where}: a rule has exactly one of allow, ask, deny; this one has {verdicts or 'none'}")
    if unknown := table.keys() - _KEYS:
        raise RuleError(f"{where}: a rule has no {sorted(unknown)[0]!r}; it has {', '.join(sorted(_KEYS))}")
    reason, untrusted = str(table.get("reason", "")), bool(table.get("after_untrusted"))
    rules = [parse_rule(verdicts[0], first[0], origin, reason=reason, untrusted=untrusted)]
    for text in first[1:]:
        rules.append(parse_rule(verdicts[0], text, lines.origin(text), reason=reason, untrusted=untrusted))
    if check:
        check_examples(rules, _texts(table.get("match", []), "match", lines.path), wanted=True)
        check_examples(rules, _texts(table.get("not_match", []), "not_match", lines.path), wanted=False)
    yield from rules


def check_examples(rules: Sequence[Rule], examples: Sequence[str], *, wanted: bool) -> None:
    """Raise RuleError if no rule of a table matches an example that is `wanted`, or one matches another example."""
    for example in examples:
        hit = next((rule for rule in rules if example_matches(rule, example)), None)
        if (hit is not None) is wanted:
            continue
        rule = hit or rules[0]
        where = f"{rule.origin.file}:{rule.origin.line}" if rule.origin.line else rule.origin.file or "the rule"
        does, key = ("does not match", "match") if wanted else ("matches", "not_match")
        raise RuleError(f"{where}: {rule.text} {does} its own example {example!r} ({key})")


def example_matches(rule: Rule, example: str) -> bool:
    """Return whether the rule matches `example`; relative paths are resolved in the workspace."""
    match rule.kind:
        case "command":
            return _command_matches(rule, example)
        case "read" | "write":
            return _path_matches(rule, example)
        case "host":
            host = example.split("//")[-1].split("/")[0]
            return rule.whole or rule.names_host(plain_host(host.rsplit(":", 1)[0] if host.count(":") == 1 else host))
        case "agent":
            return rule.whole or fnmatch.fnmatchcase(example, rule.spec)
        case "name":
            return _path_matches(rule, example) if rule.spec else rule.names_tool((example,))


def _command_matches(rule: Rule, example: str) -> bool:
    """Return whether the rule matches one of the simple commands of a line, as in a call."""
    commands = _simple_commands(example)
    pattern = rule.command
    if pattern is None:
        return False
    about = pattern.allows if rule.verdict == "allow" else pattern.forbids
    return any(about(words) for words in commands)


def _simple_commands(line: str) -> list[tuple[str, ...]]:
    from surehand.shell import understand  # lazy: the shell's parser and tables, 60 ms

    def inner(effects: tuple[Effect, ...]) -> list[tuple[str, ...]]:
        found: list[tuple[str, ...]] = []
        for effect in effects:
            if isinstance(effect, RunCommand):
                found += [effect.words, *inner(effect.implies)]
        return found

    return inner(tuple(understand(line, _ANYWHERE).effects)) or [tuple(shlex.split(line))]


def _path_matches(rule: Rule, example: str) -> bool:
    roots = Roots(_ANYWHERE)
    path = os.path.normpath(os.path.join(_ANYWHERE, os.path.expanduser(example)))
    return rule.whole or compile_pattern(rule.spec, pattern_key(roots), rule.verdict != "allow").matches(path)


# Sources of the rules in force: the user's settings, the project's file, the command line.
#
# The user's rules come from the loaded settings; their file is read again only for the line of each. A project's file
# may only narrow: its allow rules never count, its deny and ask rules always do, whether the project is trusted or not.

PROJECT_FILE = "surehand.toml"

Key = tuple[Verdict, str]


def rules_in_force(settings: Settings, workspace: str, command_line: Sequence[str]) -> list[Rule]:
    """Return every rule that is not built in; raise RuleError, with file and line, for an invalid one."""
    project = read_rules(os.path.join(workspace, PROJECT_FILE), "project")
    try:
        wanted = _from_settings(settings)
    except RuleError:
        _user_rules(workspace)  # raises the same error with file and line, if the rule is in a file
        raise
    user = _user_rules(workspace) if wanted else {}
    theirs = {(rule.verdict, rule.text): rule for rule in project}
    rules = [parse_line(line) for line in command_line]
    for key, rule in wanted.items():
        if key in user:
            rules.append(user[key])
        elif key not in theirs:
            rules.append(rule)
    return [*rules, *(rule for rule in project if rule.verdict != "allow")]


def _user_rules(workspace: str) -> dict[Key, Rule]:
    path = locations.user_settings()
    real = os.path.realpath(path)
    if os.path.islink(path) and is_beneath(real, os.path.realpath(workspace)):
        raise RuleError(f"{path} is a link into the workspace; an agent working there could change its own rules")
    return {(rule.verdict, rule.text): rule for rule in read_rules(real, "user")}


def _from_settings(settings: Settings) -> dict[Key, Rule]:
    permissions = settings.permissions
    found: dict[Key, Rule] = {}
    for verdict in VERDICTS:
        for text in getattr(permissions, verdict):
            rule = parse_rule(verdict, text, Origin("user"))
            found[verdict, rule.text] = rule
    for row in permissions.rules:
        found |= {(rule.verdict, rule.text): rule for rule in _rules_of_row(row)}
    return found


def _rules_of_row(row: RuleSettings) -> list[Rule]:
    said = [(verdict, value) for verdict in VERDICTS if (value := getattr(row, verdict))]
    if len(said) != 1:
        raise RuleError(f"a rule has exactly one of allow, ask, deny; this one has {[each[0] for each in said]}")
    verdict, value = said[0]
    texts = [value] if isinstance(value, str) else list(value)
    rules = [
        parse_rule(verdict, text, Origin("user"), reason=row.reason, untrusted=row.after_untrusted) for text in texts
    ]
    check_examples(rules, row.match, wanted=True)
    check_examples(rules, row.not_match, wanted=False)
    return rules


# The answer "always": rules are added to the user's settings file atomically; the rest of the file stays as it is.


def remember(rules: str, path: str | None = None) -> None:
    """Add allow rules, one a line, to the user's settings file (never to a project's).

    Raises StateError if the file cannot be written, or does not parse; then it is left as it was.
    """
    parsed = [parse_rule("allow", line) for line in rules.splitlines() if line.strip()]
    path = os.path.realpath(path or locations.user_settings())
    try:
        locations.private_dir(os.path.dirname(path))
        with open(f"{path}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            _append_rules(path, [rule.text for rule in parsed])
    except OSError as problem:  # a full disk, a file system that is read-only
        raise StateError(f"{path} cannot be written, so nothing was added to it: {problem.strerror}") from None


def _append_rules(path: str, rules: Sequence[str]) -> None:
    before = _read_settings(path)
    known = _allowed_rules(before, path)
    added = [rule for rule in rules if rule not in known]
    if added:
        newline = "\r\n" if "\r\n" in before else "\n"
        gap = "" if before.endswith("\n") or not before else newline
        after = before + gap + "".join(map(_rule_table, added)).replace("\n", newline)
        _allowed_rules(after, path)  # raises if the new text does not parse; nothing is written then
        write_private(path, after, mode=mode_of(path))


def _rule_table(rule: str) -> str:
    day = time.strftime("%Y-%m-%d")
    return f'\n[[permissions.rules]]\nallow = {json.dumps(rule)}\nreason = "approved on {day}"\n'


def _read_settings(path: str) -> str:
    try:
        with open(path, encoding="utf-8", newline="") as file:  # newline="" keeps its line endings
            return file.read()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as problem:
        raise StateError(f"{path} cannot be read, so nothing was added to it: {problem}") from None


def _allowed_rules(text: str, path: str) -> set[str]:
    import tomllib

    try:
        permissions = tomllib.loads(text.removeprefix("\ufeff")).get("permissions", {})
        rows = permissions.get("rules", [])
        return {*permissions.get("allow", []), *(row["allow"] for row in rows if isinstance(row.get("allow"), str))}
    except (tomllib.TOMLDecodeError, AttributeError, TypeError) as problem:
        raise RuleError(f"{path} is not valid, so nothing was added to it: {problem}") from None


# Rules that look like mistakes.


def find_mistakes(rules: Sequence[Rule], known_tools: Sequence[str]) -> list[str]:
    """Return a text on each rule that looks like a mistake: it matches no tool, or a stricter rule overrides it."""
    own = [rule for rule in rules if rule.origin.source != "built-in"]
    found = [_idle(rule, known_tools) for rule in own]
    found += [_undone(rule, own) for rule in own]
    return [each for each in found if each is not None]


def find_misnamed(rules: Sequence[Rule], known_tools: Sequence[str]) -> list[str]:
    """Return a text on each rule whose tool name looks misspelled.

    A name unlike that of any known tool is not reported: such a tool may be registered later.
    """
    near = [rule for rule in rules if nearest(rule.name, known_tools, cutoff=0.75)]
    found = [_idle(rule, known_tools) for rule in near]
    return [each for each in found if each is not None]


def _idle(rule: Rule, known_tools: Sequence[str]) -> str | None:
    if rule.kind != "name" or rule.name.startswith("mcp__") or rule.names_caller(known_tools):
        return None
    near = nearest(rule.name, known_tools)
    hint = f"; did you mean {near}?" if near else ""
    return f"{rule.origin}: {rule.verdict} {rule.text} matches nothing: there is no tool {rule.name!r}{hint}"


def _undone(rule: Rule, rules: Sequence[Rule]) -> str | None:
    """Return that a stricter rule about the same thing overrides this one; None if none does."""
    order = ("allow", "ask", "deny")
    for other in rules:
        stricter = order.index(other.verdict) > order.index(rule.verdict)
        same = other.kind == rule.kind and (other.spec == rule.spec or other.whole)
        if stricter and same and (rule.kind != "name" or other.name == rule.name):
            said = (
                f"{rule.verdict} {rule.text} has no effect: {other.verdict} {other.text} ({other.origin}) comes first"
            )
            return f"{rule.origin}: {said}"
    return None
