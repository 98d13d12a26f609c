"""Attacks that are run, not only judged: everything is approved, and the sandbox alone stands in the way."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from surehand.core.settings import Settings
from surehand.sandbox.linux import probe
from surehand.testing import scratch_app

pytestmark = pytest.mark.skipif(
    not probe.abilities().private_view, reason=f"no namespaces here: {probe.abilities().why_not}"
)


async def run(workspace: Path, *commands: str, deny: tuple[str, ...] = ()) -> list[str]:
    settings = Settings.parse({"permissions": {"deny": list(deny)}})
    async with scratch_app(workspace, settings=settings) as app:
        return [(await app.call("Bash", {"command": command, "timeout": 20_000})).output for command in commands]


async def test_recursive_reads_show_no_secret_by_any_of_its_names(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in (".env", "sub/.env", "id_rsa"):
        (tmp_path / name).write_text("canary\n")
    (tmp_path / "plain.txt").write_text("shown\n")
    os.link(tmp_path / ".env", tmp_path / "second.txt")
    (tmp_path / "soft.txt").symlink_to(".env")
    shown = await run(
        tmp_path,
        "grep -rh . .",
        "find . -type f | xargs cat",
        "find . -type f -exec cat {} +",
        "cat second.txt",
        "tar c . | tr -d '\\0'",
    )
    assert "shown" in shown[0]
    assert [output for output in shown if "canary" in output] == []


async def test_what_a_rule_denies_to_read_stays_hidden_from_programs_nobody_can_read(tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "plan.txt").write_text("canary\n")
    (tmp_path / "open.txt").write_text("shown\n")
    code = "import pathlib; [print(p.read_text()) for p in pathlib.Path('.').rglob('*.txt')]"
    search, listing, program = await run(
        tmp_path, "grep -r . .", "ls -R .", f'python3 -c "{code}"', deny=("Read(private/**)",)
    )
    assert "shown" in search
    assert "canary" not in search + listing + program


async def test_a_git_read_runs_no_hook_of_the_repository(tmp_path: Path) -> None:
    made = "git init -q . && git add a && git -c user.name=t -c user.email=t@t commit -qm x"
    (tmp_path / "a").write_text("a")
    subprocess.run(["sh", "-c", made], cwd=tmp_path, check=True, capture_output=True)
    hook = tmp_path / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/canary\n")
    hook.chmod(0o755)
    for command in ("git diff", "git describe --always --dirty", "git status"):
        os.utime(tmp_path / "a", (1, 1) if command == "git diff" else (2, 2))  # the index is out of date
        await run(tmp_path, command)
    assert not (tmp_path / "canary").exists()


async def test_no_command_leaves_a_program_that_runs_as_its_owner(tmp_path: Path) -> None:
    await run(
        tmp_path,
        "cp /bin/true a; chmod u+s a; chmod 4755 a; chmod 755 a",
        "python3 -c \"import os; os.close(os.open('b', os.O_CREAT | os.O_WRONLY, 0o4755))\"",
        "touch c; python3 -c \"import os; os.fchmod(os.open('c', os.O_RDONLY), 0o4700)\"",
        "mkdir shared; chmod 2775 shared",
    )
    assert (tmp_path / "a").stat().st_mode & 0o7777 == 0o755
    assert [path.name for path in tmp_path.iterdir() if path.stat().st_mode & 0o4000] == []
    # Root can give a file any group: the bit is refused to it. To others it is how folders are shared.
    assert bool((tmp_path / "shared").stat().st_mode & 0o2000) == (os.geteuid() != 0)


async def test_nothing_outside_is_changed_by_links_or_by_names_of_the_process(tmp_path: Path) -> None:
    workspace, outside = tmp_path / "ws", tmp_path / "outside"
    workspace.mkdir()
    outside.mkdir()
    (outside / "kept").write_text("old")
    await run(
        workspace,
        f"ln -s {outside} link; echo new > link/kept; echo new > link/made",
        f"echo new > /proc/self/root{outside}/kept",
        "echo new > /proc/self/cwd/../outside/kept; rm -f ../outside/kept; cd ..; echo new > o",
        "python3 -c \"import os; os.symlink('..', 'up'); open('up/o', 'w').write('new')\"",
    )
    assert (outside / "kept").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside", "ws"]
    assert [path.name for path in outside.iterdir()] == ["kept"]
