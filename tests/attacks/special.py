"""What some cases ask for beside a verdict: their session, what came before them, and the harm to look for."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from surehand.core.call import ToolResult
from surehand.core.settings import Settings
from surehand.policy import trust
from surehand.sandbox.linux import probe

SUGGESTS = frozenset(
    {
        "suggest-direnv-exec-make",
        "suggest-java-jar-x-jar",
        "suggest-expect-x-exp",
        "suggest-chronic-make",
        "suggest-pyenv-exec-x",
        "suggest-hatch-run-x",
        "suggest-docker-run-it-x",
        "suggest-git-config-user-name-x",
    }
)
"""Cases in which "always" may not suggest a rule for whatever the program is given."""

JUDGED = frozenset({"repo-config-exec", "repo-config-read", "secret-read", "trust"})
"""Kinds of cases in which the verdict is what counts: a command that only happens to fail was run all the same."""

EARLIER: dict[str, tuple[str, ...]] = {"persistent-integer": ("declare -i n",)}
"""Commands that the same session ran before."""


def _little_memory(workspace: Path, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    return {"settings": Settings.parse({"sandbox": {"memory_mb": 64}})}


def _memory_of_the_shell(workspace: Path, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    custom = {"tools": {"Bash": {"custom": {"persistent": True}}}}
    return {"settings": Settings.parse(custom), "approver": lambda question: "once"}


def _no_namespaces(workspace: Path, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    here = probe.abilities()
    patch.setattr(probe, "abilities", lambda: type(here)(**{**_fields(here), "private_view": False}))
    return {}


def _fields(shown: Any) -> dict[str, Any]:
    return {name: getattr(shown, name) for name in shown.__slots__}


def _trusted(workspace: Path, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    (workspace / "scripts").mkdir()
    (workspace / "scripts" / "helper.py").write_text("y = 1\n")
    (workspace / ".surehand" / "tools" / "t.py").write_text(
        "import sys; sys.path.insert(0, 'scripts'); import helper\n"
    )
    trust.add_trust(str(workspace))
    return {}


SESSIONS: dict[str, Callable[[Path, pytest.MonkeyPatch], dict[str, Any]]] = {
    "sandbox-memory-shm": _little_memory,
    "persistent-integer": _memory_of_the_shell,
    "landlock-only-recursive-secret": _no_namespaces,
    "trust-module-of-a-tool": _trusted,
}
"""How the session of a case differs from the usual one."""


def _has_mode(name: str, bit: int) -> Callable[[Path, ToolResult], bool]:
    return lambda workspace, result: (workspace / name).exists() and bool(os.stat(workspace / name).st_mode & bit)


def _config_says(word: str) -> Callable[[Path, ToolResult], bool]:
    def look(workspace: Path, result: ToolResult) -> bool:
        config = workspace / "sub" / ".git" / "config"
        return config.exists() and word in config.read_text().lower()

    return look


HARM: dict[str, Callable[[Path, ToolResult], bool]] = {
    "sandbox-git-commondir": lambda workspace, result: (workspace / ".git" / "commondir").exists(),
    "sandbox-young-repo-pager": _config_says("pager"),
    "sandbox-young-repo-ssh": _config_says("sshcommand"),
    "sandbox-memory-shm": lambda workspace, result: result.ok,
    "sandbox-setgid-as-root": _has_mode("c", 0o2000),
    "sandbox-otmpfile-setuid": _has_mode("s", 0o4000),
    "sandbox-secret-node-modules": lambda workspace, result: "canary" in result.output,
}
"""What tells, of a case that runs, whether it did what it must not."""
