"""Suggest the narrowest rules that would answer a question for good: `Bash(git commit:*)`, never plain `Bash`."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from surehand.core.effects import Connect, DeletePath, Effect, ReadPath, RemoteCall, RunCommand, Unreadable, WritePath
from surehand.core.text import lazy_pattern
from surehand.policy.rules import PROGRAM_FOLDERS

if TYPE_CHECKING:
    from surehand.policy.paths import Roots
    from surehand.policy.policy import JudgedEffect, Request


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# What a program does with the word after its name, where further words only say to what: a rule may leave those free.
# Whatever runs other programs, installs code of anybody's choice or changes settings is not here: `git config`,
# `git rebase -x`, `npm install`, `docker run`, `docker build`, `poetry run`, `mvn` and `gradle` (whose further words
# may be goals of any plug-in, or a script). A program that is not here gets its very words; so do those whose words
# may name code (`pylint --init-hook`, `mypy --python-executable`, `uv lock --python`, `apt list -o`, `brew info x.rb`),
# and those that print what a program was started with (`docker inspect`, `docker compose config`).
_DEEDS: dict[str, frozenset[str]] = {
    "git": _words(
        "add commit push pull fetch checkout switch merge stash tag branch reset restore rm mv cherry-pick revert "
        "clean status log diff show blame"
    ),
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), _words("test build start lint outdated")),
    "cargo": _words("build check test clippy fmt doc clean bench tree update"),
    "go": _words("build vet fmt mod clean"),
    "dotnet": _words("build test restore clean format"),
    "docker": _words("ps images logs pull stop start restart"),
    "kubectl": _words("logs top"),
    "gh": _words("pr issue release label"),
    "terraform": _words("fmt validate"),
    "ruff": _words("check format"),
    "poetry": _words("lock check show"),
    "make": frozenset(),
}
# Deeds whose own next word says what they do, and that leave the rest free.
_DEEPER = {
    *((manager, "run") for manager in ("npm", "pnpm", "yarn", "bun")),
    ("docker", "compose"),
    ("git", "stash"),
    ("git", "worktree"),
    *(("gh", what) for what in ("pr", "issue", "release", "label")),
    *(("kubectl", deed) for deed in ("get", "describe")),  # of secrets, among others
    ("go", "mod"),
}
_COMPOSED = _words("down ps logs stop start restart pull")
# Programs without deeds that do one thing to the files they are given, each of which is judged besides.
_PLAIN_PROGRAMS = _words(
    "mkdir touch rmdir mktemp black isort shellcheck rustfmt gofmt clang-format shfmt tsc jest vitest pytest"
)
MOST_RULES = 100
"""The most a suggestion may hold: each is looked at in every later judgement."""
_PLAIN = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9_.:@/+-]*")


def suggestion(request: Request, judged: Sequence[JudgedEffect], roots: Roots) -> str | None:
    """Return the rules, one a line, or None when no rule would spare the question."""
    asked = [each for each in judged if each.verdict == "ask"]
    if len(asked) > MOST_RULES or any(_asks_anyway(each) for each in asked):
        return None  # nobody reads them all, or a rule would promise what it does not keep
    covering = [each.effect for each in asked if isinstance(each.effect, RunCommand)]
    implied = {id(each) for command in covering for each in command.implies}
    texts = [
        text
        for each in asked
        if id(each.effect) not in implied or not _inside(roots, each.effect)
        for text in _rules_for(request, each.effect, roots)
    ]
    return "\n".join(dict.fromkeys(texts)) or None


def _asks_anyway(judged: JudgedEffect) -> bool:
    """Whether an allow rule would not spare the question; built-in ones give way to a rule that names the file."""
    asking = (rule for rule in judged.rules if rule.verdict == "ask" and rule.origin.source != "built-in")
    return isinstance(judged.effect, Unreadable) or any(asking)


def _inside(roots: Roots, effect: Effect | None) -> bool:
    if not isinstance(effect, ReadPath | WritePath | DeletePath):
        return True
    return roots.resolve(effect.path).inside


def _rules_for(request: Request, effect: Effect | None, roots: Roots) -> list[str]:
    match effect:
        case RunCommand(words):
            rule = command_rule(words)
            return [rule] if rule else []
        case ReadPath(path):
            return _path_rules("Read", roots, path)
        case WritePath(path) | DeletePath(path):
            return _path_rules("Edit", roots, path)
        case Connect(host):
            return [f"WebFetch(domain:{host})"]
        case RemoteCall(server, tool):
            return [f"mcp__{server}__{tool}"]
        case _:
            return [request.tool]


def _path_rules(name: str, roots: Roots, path: str) -> list[str]:
    """Return a rule for the very path, absolute: remembered for good, it must not hold in every other workspace."""
    return [f"{name}({_literal(each)})" for each in roots.resolve(path).names]


def _literal(path: str) -> str:
    return re.sub(r"([*?\[\\{])", r"\\\1", path)


def command_rule(words: Sequence[str]) -> str | None:
    """Return the rule for one command: what it does, with free arguments, or these very words when that is too much."""
    if not words or any(char in word for word in words for char in "\n\r\0"):
        return None
    folder, name = posixpath.split(words[0])
    words = (name if folder in PROGRAM_FOLDERS else words[0], *words[1:])
    name, deed = words[0], words[1] if len(words) > 1 else ""
    count = 0
    if name in _PLAIN_PROGRAMS:
        count = 1
    elif (name, deed) in _DEEPER:
        count = 3 if len(words) > 2 and (deed != "compose" or words[2] in _COMPOSED) else 0
    elif deed in _DEEDS.get(name, ()):
        count = 2
    free = count and all(_PLAIN.fullmatch(word) for word in words[:count])
    return f"Bash({' '.join(words[:count])}:*)" if free else f"Bash({_exact(words)})"


def _exact(words: Sequence[str]) -> str:
    text = shlex.join(words)
    # A word that ends the rule in `*` or `:*` would read as a wildcard.
    return text if not text.endswith("*") else text + " ''"
