"""Files that git includes, reads or runs by its settings: writing one asks, also where edits are accepted."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from pathlib import Path

import pytest

from surehand import Surehand
from surehand.core.call import ToolResult
from surehand.core.session import SETTLED_NS
from surehand.testing import scratch_app


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, timeout=60)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    git(tmp_path, "init", "-q", "-b", "main", str(folder))
    return folder


def is_asked(result: ToolResult) -> bool:
    return result.error is not None and result.error.code == "permission_denied"


async def write(app: Surehand, path: Path, text: str = "x\n") -> ToolResult:
    app.session.mode = "accept-edits"
    return await app.call("Write", {"file_path": str(path), "content": text})


@pytest.mark.parametrize(
    ("setting", "value", "file"),
    [
        ("include.path", "../team.gitconfig", "team.gitconfig"),
        ("includeIf.onbranch:main.path", "../team.gitconfig", "team.gitconfig"),
        ("includeIf.hasconfig:remote.*.url:https://x/**.path", "../a/b", "a/b"),
        ("core.hooksPath", "team", "team/pre-commit"),
        ("core.hooksPath", "tools/hooks", "tools/hooks/deeper/lib.sh"),
        ("filter.x.clean", "scripts/clean.sh %f", "scripts/clean.sh"),
        ("filter.x.process", "python3 clean.py --all", "clean.py"),
        ("diff.x.textconv", "./conv", "conv"),
        ("core.fsmonitor", ".tools/monitor", ".tools/monitor"),
        ("core.pager", "sh pager.sh", "pager.sh"),
        ("alias.st", "!sh scripts/st.sh", "scripts/st.sh"),
        ("core.attributesFile", "attributes", "attributes"),
        ("core.excludesFile", "excluded", "excluded"),
        ("blame.ignoreRevsFile", ".git-blame-ignore-revs", ".git-blame-ignore-revs"),
        ("commit.template", "template.txt", "template.txt"),
        ("mailmap.file", "people", "people"),
    ],
)
@pytest.mark.parametrize("there", [False, True], ids=["absent", "there"])
async def test_a_file_that_a_setting_names_asks(
    workspace: Path, setting: str, value: str, file: str, there: bool
) -> None:
    git(workspace, "config", setting, value)
    path = workspace / file
    if there:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("old\n")
    async with scratch_app(workspace, approve=False) as app:
        await app.call("Read", {"file_path": str(path)})
        result = await write(app, path)
        assert is_asked(result), result.output
        assert setting.split(".")[0].lower() in result.output.lower()
        edited = await app.call("Edit", {"file_path": str(path), "old_string": "old", "new_string": "new"})
        assert not edited.ok
        assert (await write(app, workspace / "other.txt")).ok
        (workspace / "link").symlink_to(path.parent)
        assert is_asked(await write(app, workspace / "link" / path.name))
    assert not there or path.read_text() == "old\n"


async def test_what_an_included_file_names_asks_too(workspace: Path) -> None:
    git(workspace, "config", "include.path", "../team.gitconfig")
    (workspace / "team.gitconfig").write_text('[core]\n\thooksPath = .hooks\n[filter "x"]\n\tclean = ./run.sh\n')
    async with scratch_app(workspace, approve=False) as app:
        for name in (".hooks/pre-push", "run.sh"):
            assert is_asked(await write(app, workspace / name)), name


async def test_hooks_that_the_users_own_settings_look_for_in_the_repository_ask(workspace: Path) -> None:
    Path("~/.gitconfig").expanduser().write_text("[core]\n\thooksPath = .myhooks\n")
    async with scratch_app(workspace, approve=False) as app:
        assert is_asked(await write(app, workspace / ".myhooks/pre-commit"))
        assert (await write(app, workspace / "a.txt")).ok


async def test_a_setting_made_in_the_meantime_counts(workspace: Path) -> None:
    async with scratch_app(workspace, approve=False) as app:
        assert (await write(app, workspace / "hooks2/pre-commit")).ok
        git(workspace, "config", "core.hooksPath", "hooks2")
        assert is_asked(await write(app, workspace / "hooks2/pre-commit"))


async def wait_for_proof(folder: Path) -> None:
    """Wait until the times of git's files prove that they have not changed, so that what they say is remembered."""
    while time.time_ns() - max(path.lstat().st_ctime_ns for path in folder.rglob("*")) <= SETTLED_NS:
        await asyncio.sleep(0.01)


async def test_a_setting_counts_that_is_made_after_others_were_remembered(workspace: Path) -> None:
    await wait_for_proof(workspace / ".git")
    async with scratch_app(workspace, approve=False) as app:
        assert (await write(app, workspace / "hooks2/pre-commit")).ok
        assert (await write(app, workspace / "hooks2/pre-commit", "y\n")).ok
        git(workspace, "config", "core.hooksPath", "hooks2")
        assert is_asked(await write(app, workspace / "hooks2/pre-commit"))
        git(workspace, "config", "--unset", "core.hooksPath")
        assert (await write(app, workspace / "hooks2/pre-commit")).ok


async def test_a_link_that_a_setting_names_counts_by_where_it_leads_now(workspace: Path) -> None:
    git(workspace, "config", "core.hooksPath", "hooks")
    for name in ("a", "b"):
        (workspace / name).mkdir()
    (workspace / "hooks").symlink_to("a")
    await wait_for_proof(workspace)
    async with scratch_app(workspace, approve=False) as app:
        assert is_asked(await write(app, workspace / "a/pre-commit"))
        assert (await write(app, workspace / "b/pre-commit")).ok
        (workspace / "hooks").unlink()
        (workspace / "hooks").symlink_to("b")
        assert is_asked(await write(app, workspace / "b/pre-commit", "y\n"))


async def test_what_the_users_settings_include_counts_as_it_is_now(workspace: Path) -> None:
    home = Path("~").expanduser()
    (home / ".gitconfig").write_text("[include]\n\tpath = more\n")
    await wait_for_proof(workspace / ".git")
    await wait_for_proof(home)
    async with scratch_app(workspace, approve=False) as app:
        assert (await write(app, workspace / "mine/pre-commit")).ok
        (home / "more").write_text("[core]\n\thooksPath = mine\n")
        assert is_asked(await write(app, workspace / "mine/pre-commit", "y\n"))


@pytest.mark.parametrize("way", ["pointer", "link", "commondir"])
async def test_a_worktree_that_is_turned_to_other_settings_obeys_those(workspace: Path, way: str) -> None:
    git(workspace, "config", "user.email", "a@example.com")
    git(workspace, "config", "user.name", "A")
    git(workspace, "commit", "-q", "--allow-empty", "-m", "begin")
    git(workspace, "worktree", "add", "-q", "tree")
    own, other, tree = workspace / ".git/worktrees/tree", workspace.parent / "other", workspace / "tree"
    git(workspace.parent, "init", "-q", str(other))
    git(other, "config", "core.hooksPath", "h")
    (workspace.parent / "way").symlink_to(own)
    if way == "link":
        (tree / ".git").write_text(f"gitdir: {workspace.parent}/way\n")
    await wait_for_proof(workspace)
    async with scratch_app(tree, approve=False) as app:
        assert (await write(app, tree / "h/pre-commit")).ok
        if way == "pointer":
            (tree / ".git").write_text(f"gitdir: {other}/.git\n")
        elif way == "commondir":
            (own / "commondir").write_text(f"{other}/.git\n")
        else:
            (workspace.parent / "way").unlink()
            (workspace.parent / "way").symlink_to(other / ".git")
        assert is_asked(await write(app, tree / "h/pre-commit", "y\n"))


async def test_a_repository_counts_that_lies_above_one_which_is_none_any_more(workspace: Path) -> None:
    git(workspace, "config", "core.hooksPath", "sub/h")
    git(workspace, "init", "-q", "sub")
    await wait_for_proof(workspace)
    async with scratch_app(workspace, approve=False) as app:
        assert (await write(app, workspace / "sub/h/pre-commit")).ok
        (workspace / "sub/.git/HEAD").unlink()
        assert is_asked(await write(app, workspace / "sub/h/pre-commit", "y\n"))


async def test_a_repository_further_down_counts(workspace: Path) -> None:
    git(workspace, "init", "-q", "sub")
    git(workspace / "sub", "config", "core.hooksPath", "h")
    async with scratch_app(workspace, approve=False) as app:
        assert is_asked(await write(app, workspace / "sub/h/pre-commit"))
        assert (await write(app, workspace / "h/pre-commit")).ok


ORDERS = [
    ("HEAD", "objects/x", "refs/x"),
    ("refs/x", "objects/pack/x", "config", "HEAD"),
    ("objects/x", "refs/heads/main", "hooks/post-checkout", "HEAD"),
    ("HEAD", "commondir"),
    ("commondir", "config", "HEAD"),
]


@pytest.mark.parametrize("order", ORDERS, ids=" ".join)
async def test_the_file_that_makes_a_folder_a_repository_asks(workspace: Path, order: tuple[str, ...]) -> None:
    async with scratch_app(workspace, approve=False) as app:
        *first, last = order
        for name in first:
            assert (await write(app, workspace / "b" / name)).ok, name
        assert is_asked(await write(app, workspace / "b" / last))
    assert not (workspace / "b" / last).exists()


@pytest.mark.parametrize("name", ["config", "hooks/post-index-change", "config.worktree", "info/attributes"])
async def test_what_a_repository_without_git_folder_obeys_asks(workspace: Path, name: str) -> None:
    git(workspace, "init", "-q", "--bare", "b")
    (workspace / "l").symlink_to("b")
    async with scratch_app(workspace, approve=False) as app:
        for folder in ("b", "l"):
            await app.call("Read", {"file_path": str(workspace / folder / name)})
            assert is_asked(await write(app, workspace / folder / name)), folder


async def test_a_patch_that_makes_a_repository_at_once_asks(workspace: Path) -> None:
    parts = [
        f"diff --git a/b/{name} b/b/{name}\nnew file mode 100644\n--- /dev/null\n+++ b/b/{name}\n"
        f"@@ -0,0 +1 @@\n+{text}\n"
        for name, text in (("HEAD", "ref: refs/heads/main"), ("objects/x", "x"), ("refs/x", "x"), ("config", "x"))
    ]
    async with scratch_app(workspace, approve=False) as app:
        app.session.mode = "accept-edits"
        assert is_asked(await app.apply_patch("".join(parts)))
        assert (await app.apply_patch(parts[0])).ok
    assert not (workspace / "b/config").exists()


async def test_a_notebook_that_git_runs_asks(workspace: Path) -> None:
    git(workspace, "config", "diff.ipynb.textconv", "python3 tools/show.ipynb")
    notebook = workspace / "tools/show.ipynb"
    notebook.parent.mkdir()
    cell: dict[str, object] = {
        "cell_type": "code",
        "id": "a",
        "metadata": {},
        "source": "1",
        "outputs": [],
        "execution_count": None,
    }
    notebook.write_text(json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    before = notebook.read_text()
    async with scratch_app(workspace, approve=False) as app:
        app.session.mode = "accept-edits"
        await app.call("Read", {"file_path": str(notebook)})
        args = {"notebook_path": str(notebook), "cell_id": "a", "new_source": "2"}
        assert is_asked(await app.call("NotebookEdit", args))
    assert notebook.read_text() == before


async def test_everyday_files_are_written_unasked(workspace: Path) -> None:
    git(workspace, "config", "user.name", "n")
    git(workspace, "config", "core.hooksPath", ".githooks")
    git(workspace, "config", "alias.l", "log --oneline")
    git(workspace, "config", "core.pager", "less -R")
    async with scratch_app(workspace, approve=False) as app:
        for name in ("HEAD", "config", "src/config", "docs/refs/a.md", "objects/a.py", "app/hooks/use.ts", "log", "a"):
            assert (await write(app, workspace / name)).ok, name
