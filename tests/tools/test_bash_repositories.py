"""Repositories and commands: nothing that runs as the user comes to lie in one, whoever made it and however deep."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from surehand.app import Surehand
from surehand.core.call import ToolResult
from surehand.sandbox import denials
from surehand.sandbox.linux import probe
from surehand.sandbox.profile import SandboxProfile
from surehand.testing import scratch_app

pytestmark = pytest.mark.skipif(not probe.abilities().private_view, reason="needs namespaces")

PLANT = r"""
place=$1/.$(echo git)/hooks
mkdir -p "$place" && printf '#!/bin/sh\ntouch ran\n' > "$place/pre-commit" && chmod +x "$place/pre-commit"
"""


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Surehand]:
    (tmp_path / "plant.sh").write_text(PLANT)
    async with scratch_app(tmp_path) as app:
        yield app


async def sh(app: Surehand, command: str) -> ToolResult:
    return await app.call("Bash", {"command": command})


def make_repository(folder: Path) -> None:
    subprocess.run(["git", "init", "-q", folder], check=True)


async def test_a_hook_in_a_repository_a_command_makes_is_taken_away(app: Surehand, tmp_path: Path) -> None:
    result = await sh(app, "git init -q . && sh plant.sh .")
    assert result.error is not None
    assert result.data["put_back"] == [f"{tmp_path}/.git/hooks/pre-commit"]
    assert not (tmp_path / ".git/hooks/pre-commit").exists()
    assert (tmp_path / ".git/HEAD").exists()


async def test_a_hook_that_comes_before_its_repository_or_by_a_rename_is_taken_away_too(
    app: Surehand, tmp_path: Path
) -> None:
    assert not (await sh(app, "sh plant.sh .")).ok
    await sh(app, "mkdir -p deep/x && sh plant.sh deep/x && mv deep/x/.g?t deep/x/moved && git init -q deep/x")
    await sh(app, "mv deep/x/moved/hooks/pre-commit deep/x/.g?t/hooks/pre-commit")
    assert not list(tmp_path.glob("**/.git/hooks/pre-commit"))


async def test_later_commands_cannot_make_a_hook_in_it_either_and_still_set_it_up(
    app: Surehand, tmp_path: Path
) -> None:
    assert (await sh(app, "mkdir -p a/b/c && git init -q a/b/c")).ok
    planted = await sh(app, "sh plant.sh a/b/c")
    assert "Read-only file system" in planted.data["stderr"]
    assert "keeps .git/hooks" in planted.output
    assert not (tmp_path / "a/b/c/.git/hooks/pre-commit").exists()
    set_up = "cd a/b/c && git config user.name n && git config user.email e && git commit -q --allow-empty -m m"
    assert (await sh(app, f"{set_up} && git log --oneline")).ok


async def test_settings_that_name_programs_are_taken_away_from_it(app: Surehand, tmp_path: Path) -> None:
    await sh(app, "git init -q .")
    result = await sh(app, "git config core.fsmonitor ./spy.sh")
    assert result.data["put_back"] == [f"{tmp_path}/.git/config (core.fsmonitor)"]
    assert "fsmonitor" not in (tmp_path / ".git/config").read_text()
    assert "bare = false" in (tmp_path / ".git/config").read_text()
    assert (await sh(app, "git status --short")).ok


async def test_repositories_deep_in_the_workspace_and_submodules_are_kept(tmp_path: Path) -> None:
    (tmp_path / "plant.sh").write_text(PLANT)
    make_repository(tmp_path)
    make_repository(tmp_path / "a/b/c")
    make_repository(tmp_path / "s")
    (tmp_path / ".git/modules").mkdir()
    (tmp_path / "s/.git").rename(tmp_path / ".git/modules/s")
    async with scratch_app(tmp_path) as app:
        await sh(
            app, "sh plant.sh a/b/c; d=.g; echo x > ${d}it/modules/s/hooks/pre-push; echo x >> ${d}it/modules/s/config"
        )
    assert not list(tmp_path.glob("**/hooks/pre-commit"))
    assert not list(tmp_path.glob("**/hooks/pre-push"))
    assert "x\n" not in (tmp_path / ".git/modules/s/config").read_text()


async def test_no_dry_run_brings_a_hook_in(app: Surehand, tmp_path: Path) -> None:
    shown = await app.dry_run("Bash", {"command": "git init -q . && sh plant.sh ."})
    assert "pre-commit" in shown.data["diff"]
    assert not (tmp_path / ".git").exists()


def test_git_in_a_folder_below_its_repository_is_told_where_that_is() -> None:
    profile = SandboxProfile("/r/sub", ("/r/sub",), "/tmp/x", True, True, False, ("/r/sub", "/tmp/x"))
    said = "fatal: Unable to create '/r/.git/index.lock': Read-only file system"
    assert denials.explain(said, profile, 128).startswith("The repository /r lies around the workspace")
    inside = "error: could not lock config file /r/sub/.git/config: Read-only file system"
    assert "keeps .git/hooks" in denials.explain(inside, profile, 255)


async def test_git_config_in_a_repository_that_was_there_is_explained(tmp_path: Path) -> None:
    make_repository(tmp_path)
    async with scratch_app(tmp_path) as app:
        result = await sh(app, "git config user.name n")
    assert result.error is not None
    assert "git -c user.name=" in result.error.hint
