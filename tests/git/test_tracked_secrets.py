"""A secret that git tracks does not break git in the sandbox, and is not printed by it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from surehand import Surehand
from surehand.core.call import ToolResult
from surehand.core.settings import Settings
from surehand.sandbox.linux import probe
from surehand.testing import scratch_app

pytestmark = pytest.mark.skipif(not probe.abilities().private_view, reason="secrets are covered with namespaces alone")


def git(*words: str, cwd: Path) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    return subprocess.run(["git", *identity, *words], cwd=cwd, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / ".env").write_text("KEY=canary-1\n")
    (tmp_path / "a.txt").write_text("a\n")
    git("init", "-q", "-b", "main", cwd=tmp_path)
    for key in ("name", "email"):
        git("config", f"user.{key}", "t", cwd=tmp_path)
    git("add", "-A", cwd=tmp_path)
    git("commit", "-q", "-m", "one", cwd=tmp_path)
    return tmp_path


async def sh(app: Surehand, command: str) -> ToolResult:
    result = await app.call("Bash", {"command": command})
    assert "canary" not in result.output + str(result.data), command
    return result


async def test_status_is_clean_when_nothing_changed_and_names_the_file_when_it_did(repository: Path) -> None:
    async with scratch_app(repository) as app:
        assert (await sh(app, "git status --short")).data["stdout"] == ""
        (repository / ".env").write_text("KEY=canary-2\n")
        assert (await sh(app, "git status --short")).data["stdout"] == " M .env\n"
        assert (await sh(app, "git status --short | cat")).data["stdout"] == " M .env\n"


async def test_add_and_commit_take_its_true_content_and_print_none(repository: Path) -> None:
    (repository / ".env").write_text("KEY=canary-2\n")
    (repository / "a.txt").write_text("b\n")
    async with scratch_app(repository) as app:
        assert (await sh(app, "git add -A && git status --short")).data["stdout"] == "M  .env\nM  a.txt\n"
        assert (await sh(app, "git commit -q -m two")).ok
        (repository / ".env").write_text("KEY=canary-3\n")
        assert (await sh(app, "git commit -am three")).ok
    assert git("show", "HEAD:.env", cwd=repository) == "KEY=canary-3\n"
    assert git("show", "HEAD~1:.env", cwd=repository) == "KEY=canary-2\n"


@pytest.mark.parametrize("attributes", ["", "* diff\n.env diff=x text\n"])
async def test_diff_leaves_its_hunk_out_and_says_so(repository: Path, attributes: str) -> None:
    (repository / ".gitattributes").write_text(attributes)
    (repository / ".env").write_text("KEY=canary-2\n")
    (repository / "a.txt").write_text("b\n")
    async with scratch_app(repository, approve=False) as app:
        for command in ("git diff", "git diff HEAD", "git diff | head -50", "git diff -U10 HEAD -- ."):
            shown = (await sh(app, command)).data["stdout"]
            assert "Binary files a/.env and b/.env differ" in shown, command
            assert "+b" in shown
        (repository / ".env").unlink()
        assert "Binary files a/.env and /dev/null differ" in (await sh(app, "git diff")).data["stdout"]


async def test_its_content_stays_covered_in_every_other_command(repository: Path) -> None:
    async with scratch_app(repository) as app:
        for command in (
            "git status; python3 -c \"print(open('.e'+'nv').read())\"",
            "git diff --no-index /dev/null .e*",
            "git -c alias.x='!cat .e*' x",
            "git status && sh -c 'cat .e*'",
            "git commit -qm x --allow-empty -v; git add -p < /dev/null",
        ):
            await sh(app, command)


async def test_a_hook_does_not_see_it(repository: Path) -> None:
    hook = repository / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ncat .env > seen; cat .env\n")
    hook.chmod(0o755)
    async with scratch_app(repository) as app:
        await sh(app, "git commit -q --allow-empty -m two")
    assert "canary" not in (repository / "seen").read_text()


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("hook", [False, True])
async def test_git_tells_the_truth_of_it_beside_other_commands_hooks_and_memory(
    repository: Path, hook: bool, persistent: bool
) -> None:
    past = (repository / ".git/index").stat().st_mtime - 100
    os.utime(repository / ".env", (past, past))  # what was written as git looked is looked at again, by its content
    git("update-index", "--refresh", cwd=repository)
    if hook:
        (repository / ".git/hooks").mkdir(exist_ok=True)
        (repository / ".git/hooks/pre-commit").write_text("#!/bin/sh\ncat .env > seen\nexit 0\n")
        (repository / ".git/hooks/pre-commit").chmod(0o755)
    settings = Settings.parse({"tools": {"Bash": {"custom": {"persistent": persistent}}}})
    async with scratch_app(repository, settings=settings) as app:
        assert (await sh(app, "git status --short")).data["stdout"] == ""
        assert (await sh(app, "echo b > a.txt; git status --short")).data["stdout"] == " M a.txt\n"
        committed = await sh(app, "git add a.txt && git commit -am two && echo done")
        assert committed.data["stdout"].endswith("done\n"), committed.output
        assert git("show", "--stat", "--format=", "HEAD", cwd=repository).split()[0] == "a.txt"
        (repository / ".env").write_text("KEY=canary-22\n")
        assert " M .env\n" in (await sh(app, "true; git status --short")).data["stdout"]
    assert git("show", "HEAD:.env", cwd=repository) == "KEY=canary-1\n"


def add_hook(repository: Path, name: str, text: str, folder: str = ".git/hooks") -> None:
    hook = repository / folder / name
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\n{text}\n")
    hook.chmod(0o755)


@pytest.mark.parametrize("folder", [".git/hooks", ".husky"])
@pytest.mark.parametrize(
    "commands", [["git add -A", "git commit -qm two"], ["git add . && git commit -qm two"], ["git commit -qam two"]]
)
async def test_a_changed_one_is_committed_beside_hooks_that_do_not_see_it(
    repository: Path, commands: list[str], folder: str
) -> None:
    add_hook(repository, "pre-commit", "cat .env > seen; cat .env; true", folder)
    git("config", "core.hooksPath", folder, cwd=repository)
    (repository / ".env").write_text("KEY=canary-22\n")
    async with scratch_app(repository) as app:
        for command in commands:
            result = await sh(app, command)
            assert result.ok, result.output
        assert " .env" not in (await sh(app, "git status --short")).data["stdout"]
    assert git("show", "HEAD:.env", cwd=repository) == "KEY=canary-22\n"
    assert "canary" not in (repository / "seen").read_text()


async def test_a_commit_that_a_hook_refuses_leaves_the_index_as_it_was(repository: Path) -> None:
    add_hook(repository, "pre-commit", "exit 1")
    (repository / ".env").write_text("KEY=canary-22\n")
    async with scratch_app(repository) as app:
        assert not (await sh(app, "git commit -qam two")).ok
        assert git("status", "--short", cwd=repository) == " M .env\n"
        assert not (await sh(app, "git add -u && git commit -qm two")).ok
        assert git("status", "--short", cwd=repository) == "M  .env\n"


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("post-index-change", "git reset -q"),
        ("post-index-change", "git rm -q --cached a.txt"),
        ("reference-transaction", "git reset -q"),
    ],
)
async def test_a_hook_of_the_index_does_not_see_it_either(repository: Path, name: str, command: str) -> None:
    add_hook(repository, name, "cat .env >> seen; cat .env; true")
    (repository / ".env").write_text("KEY=canary-22\n")
    (repository / "a.txt").write_text("b\n")
    async with scratch_app(repository) as app:
        await sh(app, command)
    assert "canary" not in (repository / "seen").read_text()


@pytest.mark.parametrize("mode", ["off", "landlock alone"])
async def test_where_nothing_leaves_it_out_a_difference_asks(
    repository: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings.parse({"sandbox": {"mode": "off"}} if mode == "off" else {})
    if mode != "off":
        here = probe.abilities()
        fields = {name: getattr(here, name) for name in type(here).__slots__}
        monkeypatch.setattr(probe, "abilities", lambda: type(here)(**{**fields, "private_view": False}))
    (repository / ".env").write_text("KEY=canary-2\n")
    async with scratch_app(repository, approve=False, settings=settings) as app:
        searches = ("git grep KEY", "git grep --untracked KEY") if mode != "off" else ()  # where off, none asks
        for command in ("git diff", "git status -v", "git status -bvv", *searches):
            assert not (await sh(app, command)).ok, command
        assert (await sh(app, "git status --short")).data["stdout"] == " M .env\n"


@pytest.fixture
def with_submodule(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository whose submodule tracks a secret, which was changed since."""
    source = tmp_path_factory.mktemp("source")
    (source / ".env").write_text("KEY=canary-1\n")
    (source / "b.txt").write_text("a\n")
    git("init", "-q", "-b", "main", cwd=source)
    git("add", "-A", cwd=source)
    git("commit", "-q", "-m", "one", cwd=source)
    git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(source), "sub", cwd=repository)
    git("commit", "-q", "-a", "-m", "two", cwd=repository)
    (repository / "sub/.env").write_text("KEY=canary-2\n")
    (repository / "sub/b.txt").write_text("b\n")
    return repository


@pytest.mark.parametrize("attributes", ["", "* diff\n.env diff=x text\n"])
async def test_a_diff_into_a_submodule_leaves_its_hunk_out_and_says_so(with_submodule: Path, attributes: str) -> None:
    (with_submodule / "sub/.gitattributes").write_text(attributes)
    async with scratch_app(with_submodule, approve=False) as app:
        for command, left_out in (
            ("git diff --submodule=diff", "Binary files a/sub/.env and b/sub/.env differ"),
            ("git -C sub diff", "Binary files a/.env and b/.env differ"),
        ):
            shown = (await sh(app, command)).data["stdout"]
            assert left_out in shown, command
            assert "+b" in shown
            assert "diff failed" not in shown
        assert (await sh(app, "git -C sub status --short -uno")).data["stdout"] == " M .env\n M b.txt\n"
    git("commit", "-q", "-a", "-m", "three", cwd=with_submodule / "sub")
    async with scratch_app(with_submodule, approve=False) as app:
        shown = (await sh(app, "git diff --submodule=diff")).data["stdout"]
        assert "Binary files a/sub/.env and b/sub/.env differ" in shown


async def test_a_secret_of_a_submodule_stays_covered_in_every_other_command(with_submodule: Path) -> None:
    async with scratch_app(with_submodule) as app:
        for command in (
            "git diff --submodule=diff; cat sub/.e*",
            "git -C sub diff --text",
            "git -C sub diff --no-index /dev/null .env",
            "git -C sub -c diff.external=cat diff",
            "git diff --submodule=diff --text",
            "git -C sub grep KEY",
        ):
            await sh(app, command)
