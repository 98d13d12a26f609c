"""Rules in TOML files: read with their line, reason and examples, and written back one at a time.

[permissions]
deny = ["Bash(curl:*)"]

[[permissions.rules]]
allow = "Bash(git commit:*)"
reason = "commits are local"
match = ["git commit -m x"]
not_match = ["git push"]
"""

from __future__ import annotations

import fnmatch
import os
import shlex
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from surehand.core.effects import Effect, RunCommand
from surehand.core.errors import RuleError
from surehand.policy.hosts import plain_host
from surehand.policy.paths import Roots, compile_pattern, pattern_key
from surehand.policy.rules import VERDICTS, Origin, Rule, RuleSource, parse_rule

_KEYS = frozenset({"allow", "ask", "deny", "reason", "match", "not_match", "after_untrusted"})
LIMIT_BYTES = 1024 * 1024
_ANYWHERE = "/workspace"
"""Where relative paths of examples are meant from."""


def read_rules(path: str, source: RuleSource, *, check: bool = True) -> list[Rule]:
    """Return the rules a TOML file holds; none when it does not exist. Anything else wrong with it is a RuleError."""
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
    """Return the text of a policy file, None when there is none; refuse links, odd files and other people's."""
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
            return file.read().decode("utf-8")
        except UnicodeDecodeError as problem:
            raise RuleError(f"{path} is not UTF-8 text (byte {problem.start})") from None


class _Lines:
    """Finds the line a rule stands on: its text, as often as it has been asked for, from the top."""

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
    """Raise RuleError when the rules of one table do not treat one of its examples as it says."""
    for example in examples:
        hit = next((rule for rule in rules if example_matches(rule, example)), None)
        if (hit is not None) is wanted:
            continue
        rule = hit or rules[0]
        where = f"{rule.origin.file}:{rule.origin.line}" if rule.origin.line else rule.origin.file or "the rule"
        does, key = ("does not match", "match") if wanted else ("matches", "not_match")
        raise RuleError(f"{where}: {rule.text} {does} its own example {example!r} ({key})")


def example_matches(rule: Rule, example: str) -> bool:
    """Return whether the rule is about `example`. Relative paths are meant from the workspace."""
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
    """A command line matches when one of its simple commands does, as in a call."""
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
