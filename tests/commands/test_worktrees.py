"""Surehand's own git, for sub-agents in worktrees: contained, and asked about where a repository names programs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from surehand import Surehand
from surehand.commands import worktrees
from surehand.commands.worktrees import OwnGit
from surehand.core.errors import ToolFailure
from surehand.sandbox import protocol
from surehand.testing import Says, ScriptedModel, scratch_app


def git(*words: str, cwd: Path) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    return subprocess.run(["git", *identity, *words], cwd=cwd, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    folder.mkdir()
    (folder / "a.txt").write_text("a\n")
    (folder / ".gitattributes").write_text("*.txt filter=x diff=x merge=x\n")
    git("init", "-q", "-b", "main", cwd=folder)
    git("add", "-A", cwd=folder)
    git("commit", "-q", "-m", "one", cwd=folder)
    return folder


def plant(repository: Path, canary: Path) -> None:
    """Name a program in every way that a new worktree, a status or a diff would use."""
    program = f"touch {canary}; cat"
    for key in ("filter.x.smudge", "filter.x.clean", "diff.x.textconv", "core.fsmonitor", "diff.external"):
        git("config", key, program, cwd=repository)
    hook = repository / ".git/hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {canary}\n")
    hook.chmod(0o755)


async def worktree_agent(app: Surehand) -> str:
    asks = [("Agent", {"prompt": "child", "mode": "worktree"})]
    model = ScriptedModel(lambda request: asks if request.messages[0].text == "go" else "hi", *["done"] * 3)
    outcome = await app.conversation(model).ask("go")
    return outcome.results[0].output


@pytest.mark.spec("SEC-1")
async def test_what_a_repository_names_is_asked_about_and_not_run_if_refused(repository: Path, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    plant(repository, canary)
    async with scratch_app(repository, approve=False) as app:
        said = await worktree_agent(app)
        approver = app.executor.permissions.approver
    assert "filter.x.smudge" in said
    assert isinstance(approver, Says)
    assert len(approver.asked) == 1
    assert not canary.exists()
    assert git("worktree", "list", cwd=repository).count("\n") == 1


@pytest.mark.skipif(not protocol.available(), reason="nothing contains commands here")
async def test_what_a_repository_names_runs_contained_when_allowed(repository: Path, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    plant(repository, canary)
    async with scratch_app(repository) as app:
        await worktree_agent(app)
    assert not canary.exists()


async def test_a_repository_that_names_nothing_is_not_asked_about(repository: Path, tmp_path: Path) -> None:
    async with scratch_app(repository, approve=False) as app:
        said = await worktree_agent(app)
        approver = app.executor.permissions.approver
    assert isinstance(approver, Says)
    assert approver.asked == []
    assert "no changes; the worktree was removed" in said
    assert git("branch", "--list", "agent/*", cwd=repository) == ""


async def test_a_machine_without_git_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with scratch_app(tmp_path) as app:
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(ToolFailure, match="git cannot be run") as refused:
            await worktrees.add_worktree(OwnGit(app.session).run, str(tmp_path), str(tmp_path), "", "agent_1")
    assert "Install git" in refused.value.hint
