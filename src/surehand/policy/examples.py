"""Examples of a rule, judged by the rule itself: a command line, a path, a host or a tool name, after its kind."""

from __future__ import annotations

import os
import shlex

from surehand.policy.hosts import plain_host
from surehand.policy.paths import Roots, compile_pattern, pattern_key
from surehand.policy.rules import Rule

_ANYWHERE = "/workspace"


def example_matches(rule: Rule, example: str) -> bool:
    """Return whether the rule is about `example`. Relative paths are meant from the workspace."""
    match rule.kind:
        case "command":
            return _command(rule, example)
        case "read" | "write":
            return _path(rule, example)
        case "host":
            host = example.split("//")[-1].split("/")[0]
            return rule.whole or rule.names_host(plain_host(host.rsplit(":", 1)[0] if host.count(":") == 1 else host))
        case "agent":
            import fnmatch

            return rule.whole or fnmatch.fnmatchcase(example, rule.spec)
        case "name":
            return _path(rule, example) if rule.spec else rule.names_tool((example,))


def _command(rule: Rule, example: str) -> bool:
    """A command line matches when one of its simple commands does, as in a call."""
    commands = _simple_commands(example)
    pattern = rule.command
    if pattern is None:
        return False
    about = pattern.allows if rule.verdict == "allow" else pattern.forbids
    return any(about(words) for words in commands)


def _simple_commands(line: str) -> list[tuple[str, ...]]:
    from surehand.core.effects import Effect, RunCommand
    from surehand.shell import understand

    def inner(effects: tuple[Effect, ...]) -> list[tuple[str, ...]]:
        found: list[tuple[str, ...]] = []
        for effect in effects:
            if isinstance(effect, RunCommand):
                found += [effect.words, *inner(effect.implies)]
        return found

    return inner(tuple(understand(line, _ANYWHERE).effects)) or [tuple(shlex.split(line))]


def _path(rule: Rule, example: str) -> bool:
    roots = Roots(_ANYWHERE)
    path = os.path.normpath(os.path.join(_ANYWHERE, os.path.expanduser(example)))
    return rule.whole or compile_pattern(rule.spec, pattern_key(roots), rule.verdict != "allow").matches(path)
