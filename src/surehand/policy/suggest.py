"""The narrowest sensible rules that would answer a question for good: `Bash(git commit:*)`, never plain `Bash`."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from surehand.core.effects import Connect, DeletePath, Effect, ReadPath, RemoteCall, RunCommand, Unreadable, WritePath

if TYPE_CHECKING:
    from surehand.policy.paths import Roots
    from surehand.policy.policy import JudgedEffect, Request


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Programs whose next word says what they do.
_DEEDS = _words(
    "git hg svn npm pnpm yarn bun pip pip3 uv poetry pdm conda cargo rustup go dotnet mvn gradle bundle gem composer "
    "docker podman kubectl helm terraform gh glab aws gcloud az heroku systemctl launchctl brew apt apt-get dnf yum "
    "make just task rake mix flutter dart swift deno nx turbo bazel vagrant ansible pre-commit ruff nox tox"
)
_DEEPER = {
    ("npm", "run"),
    ("pnpm", "run"),
    ("yarn", "run"),
    ("bun", "run"),
    ("docker", "compose"),
    ("uv", "pip"),
    ("uv", "run"),
    ("go", "tool"),
    ("git", "stash"),
    ("git", "remote"),
    ("git", "worktree"),
    ("gh", "pr"),
    ("gh", "issue"),
    ("gh", "repo"),
    ("aws", "s3"),
    ("poetry", "run"),
    ("cargo", "run"),
    ("bundle", "exec"),
}
# Programs that can do anything, depending on what follows: a rule on their name alone would be a rule on everything.
_ANYTHING = _words(
    "bash sh zsh dash fish ksh csh tcsh python python2 python3 node deno ruby perl php lua R Rscript osascript pwsh "
    "awk gawk sed find xargs env sudo doas su ssh eval exec source . nohup timeout nice setsid time watch parallel "
    "rm mv cp dd chmod chown curl wget nc ncat socat rsync scp tee ln kill pkill killall npx bunx uvx pipx "
    "psql mysql sqlite3 make crontab at script git-shell busybox strace gdb vim vi ed emacs less man"
)
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@/+-]*")


def suggestion(request: Request, judged: Sequence[JudgedEffect], roots: Roots) -> str | None:
    """Return the rules, one a line, or None when no rule would spare the question."""
    asked = [each for each in judged if each.verdict == "ask"]
    if any(_asks_anyway(each) for each in asked):
        return None  # a rule would promise what it does not keep
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
    return roots.place(effect.path).inside


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
    return [f"{name}({_literal(each)})" for each in roots.place(path).names]


def _literal(path: str) -> str:
    return re.sub(r"([*?\[\\{])", r"\\\1", path)


def command_rule(words: Sequence[str]) -> str | None:
    """Return the rule for one command: what it does, with free arguments, or these very words when that is too much."""
    if not words or any(char in word for word in words for char in "\n\r\0"):
        return None
    name = posixpath.basename(words[0])
    if name in _ANYTHING or "/" in words[0] or not _PLAIN.fullmatch(words[0]):
        return f"Bash({_exact(words)})"
    count = 2 if name in _DEEDS else 1
    deed = list(words[:count])
    if tuple(deed) in _DEEPER and len(words) > 2:
        deed = list(words[:3])
    if len(deed) < count or not all(_PLAIN.fullmatch(word) for word in deed):
        return f"Bash({_exact(words)})"
    return f"Bash({' '.join(deed)}:*)"


def _exact(words: Sequence[str]) -> str:
    text = shlex.join(words)
    # A word that ends the rule in `*` or `:*` would read as a wildcard.
    return text if not text.endswith("*") else text + " ''"
