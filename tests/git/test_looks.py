"""Looks at repositories that name programs or files, through the public door: asked about, and nothing runs unasked."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.users import USERS, somebody

from surehand import Surehand
from surehand.core.call import ToolResult
from surehand.core.settings import Mode
from surehand.sandbox import protocol
from surehand.testing import scratch_app


def git(*words: str, cwd: Path) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *identity, *words], cwd=cwd, check=True, capture_output=True)


def repository(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    git("init", "-q", "-b", "main", cwd=folder)
    (folder / "a.txt").write_text("a\n")
    (folder / ".gitattributes").write_text("*.txt diff=x filter=x\n")
    git("add", "-A", cwd=folder)
    git("commit", "-q", "-m", "one", cwd=folder)
    (folder / "a.txt").write_text("b\n")
    return folder


async def sh(app: Surehand, command: str) -> ToolResult:
    return await app.call("Bash", {"command": command})


def is_asked(result: ToolResult) -> bool:
    return result.error is not None and result.error.code == "permission_denied"


@pytest.mark.parametrize("mode", ["default", "plan"])
async def test_a_look_at_a_repository_inside_that_names_a_program_asks(tmp_path: Path, mode: Mode) -> None:
    outer, canary = repository(tmp_path / "ws"), tmp_path / "canary"
    inner = repository(outer / "sub" / "inner")
    git("add", "-A", cwd=outer)  # a gitlink without .gitmodules
    git("commit", "-q", "-m", "two", cwd=outer)
    for key in ("diff.x.textconv", "filter.x.clean", "core.fsmonitor"):
        git("config", key, f"touch {canary}; cat", cwd=inner)
    async with scratch_app(outer, approve=False) as app:
        app.session.mode = mode
        for command in (
            "git status",
            "git diff --submodule=diff",
            "git -C sub/inner diff",
            "cd sub/inner && git log -p",
            "find sub -maxdepth 1 -exec git -C {} diff \\;",
            "for d in sub/*; do git -C $d diff; done",
        ):
            assert is_asked(await sh(app, command)), command
        assert (await sh(app, "ls sub")).ok
    assert not canary.exists()


async def test_files_written_one_by_one_make_no_folder_in_which_a_look_runs_code(tmp_path: Path) -> None:
    config = f"[core]\n\tbare = false\n\tworktree = .\n\tfsmonitor = touch {tmp_path}/canary\n"
    files = {"HEAD": "ref: refs/heads/main\n", "objects/x": "x", "refs/x": "x", "config": config}
    workspace = tmp_path / "ws"
    workspace.mkdir()
    async with scratch_app(workspace, approve=False) as app:
        app.session.mode = "accept-edits"
        for name, text in files.items():
            written = await app.call("Write", {"file_path": str(workspace / "sub" / name), "content": text})
            assert written.ok or is_asked(written)
        assert not (workspace / "sub/config").exists() or not (workspace / "sub/refs").exists()
        for name, text in files.items():
            (workspace / "sub" / name).parent.mkdir(exist_ok=True)
            (workspace / "sub" / name).write_text(text)
        for command in ("git -C sub status", "cd sub && git diff", "git -C sub log -p"):
            assert is_asked(await sh(app, command)), command
    assert not (tmp_path / "canary").exists()


async def test_the_users_own_settings_are_trusted(tmp_path: Path) -> None:
    Path("~/.gitconfig").expanduser().write_text(
        '[core]\n\tpager = delta\n[interactive]\n\tdiffFilter = delta --color-only\n[filter "lfs"]\n'
        "\tclean = git-lfs clean -- %f\n\tsmudge = git-lfs smudge -- %f\n\tprocess = git-lfs filter-process\n"
        "[alias]\n\tst = status\n[credential]\n\thelper = store\n[user]\n\tname = me\n"
    )
    workspace = repository(tmp_path / "ws")
    async with scratch_app(workspace, approve=False) as app:
        for command in ("git status --short", "git diff", "git log -p", "git show", "git branch"):
            assert (await sh(app, command)).ok, command
        assert (await sh(app, "git config user.name")).data["stdout"] == "me\n"


_PLANTS = """
import asyncio, json, os, sys
from surehand.testing import scratch_app

SCRIPT = '''
git init -q made && git -C made config core.pager "touch x"
git init -q moved && git -C moved config core.pager "touch x" && mv moved/.git plain
git init -q shut && git -C shut config core.pager "touch x" && chmod 000 shut
mkdir -p .git/evil && cp -r .git/objects .git/refs .git/evil/ && echo evil > .git/commondir
printf '[core]\\\\n\\\\tfsmonitor = x\\\\n' > .git/evil/config
'''

async def main(workspace):
    open(workspace + "/script.sh", "w").write(SCRIPT)
    async with scratch_app(workspace) as app:
        result = await app.call("Bash", {"command": "sh script.sh"})
        await app.call("Bash", {"command": "chmod 755 shut"})
    async with scratch_app(workspace, approve=False) as app:
        looked = await app.call("Bash", {"command": "git status --short"})
    print(json.dumps({"put_back": result.data.get("put_back"), "ok": looked.ok, "said": looked.output}))

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.skipif(not protocol.available(), reason="nothing contains commands here")
@pytest.mark.parametrize("kind", USERS)
def test_nothing_that_runs_is_left_whoever_the_user_is(kind: str) -> None:
    with somebody(kind) as user:
        workspace = repository(user.folder / "ws")
        user.give()
        started = user.start(_PLANTS, str(workspace), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        out, err = started.communicate(timeout=300)
        assert started.returncode == 0, err
        said = json.loads(out)
        assert not (workspace / ".git/commondir").exists(), said
        for made in ("made/.git", "plain", "shut/.git"):
            assert "pager" not in (workspace / made / "config").read_text(), made
        assert said["ok"], said
        assert any("core.pager" in each for each in said["put_back"])
