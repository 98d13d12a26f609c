"""What a rule denies to write, however a command runs: one shot, with memory, in the background, in a dry run."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from surehand.core.settings import Settings
from surehand.sandbox import protocol
from surehand.sandbox.linux import probe
from surehand.testing import scratch_app
from surehand.tools.background import BACKGROUND

DENY = ["Edit(*.cfg)", "Edit(./kept/**)"]
WRITE = "import os, sys; [open(p + s, 'w').write('evil') for p, s in zip(sys.argv[1::2], sys.argv[2::2])]"


def settings(**more: Any) -> Settings:
    return Settings.parse({"permissions": {"deny": DENY}, **more})


def writing(*names: str) -> str:
    """A program that is handed names in halves, so that nobody can know what it will write."""
    halves = " ".join(f"{name[:-2]} {name[-2:]}" for name in names)
    return f'{sys.executable} -c "{WRITE}" {halves}'


@pytest.fixture(params=["namespaces", "landlock", "off"])
def sandbox(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Each kind of sandbox there is, and none."""
    if request.param == "landlock":
        monkeypatch.setattr(probe, "_failed", [])
        probe.note_failure("the test does without")
    if request.param != "off" and not protocol.available():
        pytest.skip(f"no {request.param} here")
    yield {"mode": "off" if request.param == "off" else "required"}
    monkeypatch.undo()
    probe.abilities.cache_clear()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "kept" / "deep").mkdir(parents=True)
    for name in ("old.cfg", "kept/deep/file", "free.txt"):
        (tmp_path / name).write_text("old")
    (tmp_path / "old.cfg").chmod(0o640)
    return tmp_path


@pytest.mark.parametrize("persistent", [False, True])
async def test_no_program_changes_it_with_or_without_a_sandbox(
    workspace: Path, sandbox: dict[str, Any], persistent: bool
) -> None:
    shell = {"Bash": {"custom": {"persistent": persistent}}}
    async with scratch_app(workspace, settings=settings(sandbox=sandbox, tools=shell)) as app:
        await app.call("Bash", {"command": writing("old.cfg")})
        await app.call("Bash", {"command": writing("kept/deep/file")})
        made = await app.call("Bash", {"command": writing("free.txt", "new.cfg", "kept/new")})
        gone = await app.call("Bash", {"command": f"{sys.executable} -c \"import os; os.remove('old' + '.cfg')\""})
    assert not made.ok
    assert not gone.ok
    assert (workspace / "old.cfg").read_text() == "old"
    assert (workspace / "old.cfg").stat().st_mode & 0o777 == 0o640
    assert (workspace / "kept/deep/file").read_text() == "old"
    assert (workspace / "free.txt").read_text() == "evil"
    assert not (workspace / "new.cfg").exists()
    assert not (workspace / "kept/new").exists()


async def test_what_was_put_back_is_not_in_the_history(workspace: Path) -> None:
    async with scratch_app(workspace, settings=settings()) as app:
        result = await app.call("Bash", {"command": writing("free.txt", "new.cfg")})
        assert result.data["put_back"] == [str(workspace / "new.cfg")]
        assert [each["path"] for each in result.data["changes"]] == [str(workspace / "free.txt")]


async def test_a_background_command_is_held_to_it_too(workspace: Path) -> None:
    async with scratch_app(workspace, settings=settings()) as app:
        await app.call("Bash", {"command": writing("new.cfg", "free.txt"), "run_in_background": True})
        task = app.session.keep(BACKGROUND).get("bg_task_1")
        await asyncio.wait_for(asyncio.shield(task.waiting), 60)
        assert task.facts()["put_back"] == [str(workspace / "new.cfg")]
    assert not (workspace / "new.cfg").exists()
    assert (workspace / "free.txt").read_text() == "evil"


@pytest.mark.skipif(not probe.abilities().private_view, reason="a dry run needs namespaces")
async def test_a_dry_run_shows_that_it_would_not_be_changed(workspace: Path) -> None:
    async with scratch_app(workspace, settings=settings()) as app:
        result = await app.dry_run("Bash", {"command": writing("old.cfg")})
    assert "Read-only file system" in result.output
    assert (workspace / "old.cfg").read_text() == "old"


async def test_a_very_wide_rule_holds_where_there_are_more_files_than_mounts(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surehand.files.protected_paths.KEPT_LIMIT", 3)
    names = [f"{number}.cfg" for number in range(10)]
    for name in names:
        (workspace / name).write_text("old")
    async with scratch_app(workspace, settings=settings()) as app:
        for name in names:
            await app.call("Bash", {"command": writing(name)})
    assert [(workspace / name).read_text() for name in names] == ["old"] * 10
