"""Programs named by a repository's own configuration are found, however they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from surehand.host.git_programs import configured_programs


def repository(folder: Path, text: str, name: str = "config") -> Path:
    (folder / ".git").mkdir(parents=True, exist_ok=True)
    (folder / ".git" / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[core]\n\tfsmonitor = touch pwn\n", "fsmonitor"),
        ("[CORE]\n\tFSMonitor=./x\n", "fsmonitor"),
        ('[diff "x"]\n\ttextconv = touch pwn;cat\n', "textconv"),
        ('[diff "x"] textconv = cat\n', "textconv"),
        ('[diff "x"]\n command = ./x\n', "command"),
        ("[diff]\n external = ./x\n", "external"),
        ('[filter "x"]\n clean = ./x\n', "clean"),
        ('[filter "x"]\n process = ./x\n', "process"),
        ("[core]\n hooksPath = hooks\n", "hookspath"),
        ("[gpg]\n program = ./x\n", "program"),
        ("[include]\n path = ../evil\n", "include"),
        ('[includeIf "gitdir:/"]\n path = ../evil\n', "include"),
        ("[core][include]\n path = ../evil\n", "include"),
        ("\ufeff[include]\n path = ../evil\n", "include"),
        ("[diff]\n\rexternal = ./x\n", "external"),
        ('[merge "x"]\n driver = ./x\n', "driver"),
        ('[man]\n viewer = konqueror\n[man "konqueror"]\n path = ./x\n', "help"),
        ('[help]\n format = web\n browser = firefox\n[browser "firefox"]\n path = ./x\n', "help"),
    ],
)
def test_settings_that_run_a_program_are_found(tmp_path: Path, text: str, found: str) -> None:
    assert configured_programs(str(repository(tmp_path, text) / "deep" / "down")) == (found,)
    other = repository(tmp_path / "other", text, "config.worktree")
    assert configured_programs(str(other)) == (found,)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[core]\n\trepositoryformatversion = 0\n\tfsmonitor = true\n\tbare = false\n",
        '[remote "origin"]\n\turl = https://example.com/x.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n',
        '[filter "lfs"]\n\tclean = git-lfs clean -- %f\n\tprocess = git-lfs filter-process\n',
        "[user]\n\tname = External Command\n",
    ],
)
def test_everyday_settings_are_not_taken_for_programs(tmp_path: Path, text: str) -> None:
    assert configured_programs(str(repository(tmp_path, text))) == ()


def test_a_worktree_is_judged_by_the_settings_it_shares(tmp_path: Path) -> None:
    main = repository(tmp_path / "main", '[diff "x"]\n textconv = ./x\n')
    own = main / ".git" / "worktrees" / "w"
    own.mkdir(parents=True)
    (own / "commondir").write_text("../..\n")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / ".git").write_text(f"gitdir: {own}\n")
    assert configured_programs(str(tree)) == ("textconv",)


def test_no_repository_and_unreadable_settings(tmp_path: Path) -> None:
    (tmp_path / ".git" / "config").mkdir(parents=True)
    assert configured_programs(str(tmp_path)) == ("config, which cannot be read",)
    assert configured_programs("/proc") == ()


def test_a_bare_repository_inside_the_workspace_is_judged_by_its_own_settings(tmp_path: Path) -> None:
    repository(tmp_path, "")
    bare = tmp_path / "evil"
    for name in ("objects", "refs"):
        (bare / name).mkdir(parents=True)
    (bare / "HEAD").write_text("ref: refs/heads/main\n")
    (bare / "config").write_text('[core]\n\tbare = false\n\tworktree = .\n\tfsmonitor = "touch pwn"\n')
    assert configured_programs(str(bare)) == ("fsmonitor",)
    assert configured_programs(str(tmp_path)) == ()


def test_settings_of_submodules_count_for_the_repository_around_them(tmp_path: Path) -> None:
    repository(tmp_path, "")
    inner = tmp_path / ".git" / "modules" / "libs" / "x"
    inner.mkdir(parents=True)
    (inner / "HEAD").write_text("ref: refs/heads/main\n")
    (inner / "config").write_text("[diff]\n external = ./x\n")
    assert configured_programs(str(tmp_path)) == ("external",)
    (inner / "config").write_text("[core]\n\tbare = false\n")
    (tmp_path / ".gitmodules").write_text('[submodule "y"]\n\tpath = vendor/y\n\turl = ./y\n')
    repository(tmp_path / "vendor" / "y", '[filter "x"]\n clean = ./x\n')
    assert configured_programs(str(tmp_path)) == ("clean",)
