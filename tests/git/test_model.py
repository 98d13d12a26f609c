"""What a repository's own files make git do: everything that is not known to be harmless is named, wherever it lies."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from surehand.git.model import what_asks


def repository(folder: Path, text: str = "", name: str = "config") -> Path:
    git = folder / ".git"
    bare(git)
    (git / name).write_text(text)
    return folder


def bare(folder: Path, text: str = "") -> Path:
    for name in ("objects", "refs"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / "config").write_text(text)
    return folder


def git(*words: str, cwd: Path) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *identity, *words], cwd=cwd, check=True, capture_output=True)


@pytest.mark.spec("SEC-1")
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[core]\n\tfsmonitor = touch pwn\n", "core.fsmonitor"),
        ("[CORE]\n\tFSMonitor=./x\n", "core.fsmonitor"),
        ('[diff "x"]\n\ttextconv = touch pwn;cat\n', "diff.x.textconv"),
        ('[diff "x"] textconv = cat\n', "diff.x.textconv"),
        ("[diff.x]\n command = ./x\n", "diff.x.command"),
        ("[diff]\n external = ./x\n", "diff.external"),
        ('[filter "x"]\n clean = ./x\n', "filter.x.clean"),
        ('[filter "a\\"b"]\n process = ./x\n', 'filter.a"b.process'),
        ('[filter "lfs"]\n\tclean = "git-lfs clean -- %f; touch pwn"\n', "filter.lfs.clean"),
        ("[gpg]\n program = ./x\n", "gpg.program"),
        ("[include]\n path = /etc/evil\n", "include.path"),
        ('[includeIf "gitdir:/"]\n path = /etc/evil\n', "includeif.gitdir:/.path"),
        ("[core][include]\n path = /etc/evil\n", "include.path"),
        ("\ufeff[include]\n path = /etc/evil\n", "include.path"),
        ("[diff]\n\rexternal = ./x\n", "diff.external"),
        ('[merge "x"]\n driver = ./x\n', "merge.x.driver"),
        ("[man]\n viewer = konqueror\n", "man.viewer"),
        ("[alias]\n lfs = !touch pwn\n", "alias.lfs"),
        ('[remote "o"]\n promisor = true\n', "remote.o.promisor"),
        ('[remote "o"]\n url = ext::sh -c x\n', "remote.o.url"),
        ('[remote "o"]\n url = helper://x\n', "remote.o.url"),
        ('[submodule "o"]\n update = !x\n', "submodule.o.update"),
        ("[log]\n showSignature = true\n", "log.showsignature"),
        ("[branch]\n sort = signature\n", "branch.sort"),
        ("[blame]\n ignoreRevsFile = /etc/shadow\n", "blame.ignorerevsfile"),
        ("[blame]\n ignoreRevsFile = .env\n", "blame.ignorerevsfile"),
        ("[core]\n excludesFile = ~/other/.gitignore\n", "core.excludesfile"),
        ("[never]\n heardOf = it\n", "never.heardof"),
    ],
)
def test_a_setting_that_is_not_known_to_be_harmless_is_named(tmp_path: Path, text: str, found: str) -> None:
    assert what_asks(str(repository(tmp_path, text) / "deep" / "down")) == (found,)
    other = repository(tmp_path / "other", text, "config.worktree")
    assert what_asks(str(other)) == (found,)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[core]\n\trepositoryformatversion = 0\n\tfsmonitor = false\n\tbare = false # a comment\n; another\n",
        '[remote "origin"]\n\turl = https://example.com/x.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n',
        '[remote "o"]\n\turl = git@example.com:x/y.git\n[branch "a.b"]\n\tremote = o\n\tmerge = refs/heads/a\n',
        '[filter "lfs"]\n\tclean = git-lfs clean -- %f\n\tprocess = git-lfs filter-process\n',
        "[user]\n\tname = External Command\n",
        "[core]\n\thooksPath = .husky/_\n\teditor = vim\n",
        "[blame]\n\tignoreRevsFile = .git-blame-ignore-revs\n",
        "[include]\n\tpath = ../.gitconfig\n",
        "[color]\n\tui = always\n[pull]\n\trebase = true\n",
    ],
)
def test_everyday_settings_ask_nothing(tmp_path: Path, text: str) -> None:
    assert what_asks(str(repository(tmp_path, text))) == ()


def test_an_included_file_of_the_repository_is_read_like_the_settings_themselves(tmp_path: Path) -> None:
    repository(tmp_path, "[include]\n\tpath = ../.gitconfig\n")
    (tmp_path / ".gitconfig").write_text("[pull]\n\trebase = true\n[diff]\n\texternal = ./x\n")
    assert what_asks(str(tmp_path)) == ("diff.external",)


def test_a_worktree_is_judged_by_the_settings_it_shares(tmp_path: Path) -> None:
    main = repository(tmp_path / "main", '[diff "x"]\n textconv = ./x\n')
    own = main / ".git" / "worktrees" / "w"
    own.mkdir(parents=True)
    (own / "HEAD").write_text("ref: refs/heads/w\n")
    (own / "commondir").write_text("../..\n")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / ".git").write_text(f"gitdir: {own}\n")
    (own / "gitdir").write_text(f"{tree}/.git\n")
    assert what_asks(str(tree)) == ("diff.x.textconv",)


def test_a_git_file_that_leads_out_and_is_not_named_back_asks(tmp_path: Path) -> None:
    other = bare(tmp_path / "other")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / ".git").write_text(f"gitdir: {other}\n")
    assert what_asks(str(tree)) == (f".git, which leads to {other}",)
    assert what_asks(str(tree), [str(tmp_path)]) == ()


def test_settings_that_cannot_be_read_ask_and_no_repository_asks_nothing(tmp_path: Path) -> None:
    repository(tmp_path / "a")
    (tmp_path / "a/.git/config").unlink()
    (tmp_path / "a/.git/config").mkdir()
    assert what_asks(str(tmp_path / "a")) == ("config, which cannot be read",)
    assert what_asks(str(repository(tmp_path / "b", "[core\n!!"))) == ("config, which cannot be read",)
    assert what_asks("/proc") == ()


def test_a_plain_folder_that_is_a_repository_is_judged_by_its_own_settings(tmp_path: Path) -> None:
    repository(tmp_path)
    inner = bare(tmp_path / "evil", '[core]\n\tbare = false\n\tworktree = .\n\tfsmonitor = "touch pwn"\n')
    assert what_asks(str(inner)) == ("core.fsmonitor",)
    assert what_asks(str(tmp_path)) == ()
    (inner / "config").write_text("[core]\n\tbare = false\n\tworktree = /etc\n")
    assert what_asks(str(inner)) == ("core.worktree, which leads to /etc",)


def test_a_gitdir_through_a_link_is_followed_as_the_kernel_does(tmp_path: Path) -> None:
    (tmp_path / "deep/dir").mkdir(parents=True)
    bare(tmp_path / "deep/g", '[diff "x"]\n\ttextconv = x\n')
    bare(tmp_path / "sub/g")
    (tmp_path / "sub/l").symlink_to("../deep/dir")
    (tmp_path / "sub/.git").write_text("gitdir: l/../g\n")
    assert "diff.x.textconv" in what_asks(str(tmp_path / "sub"))


def test_what_a_commondir_names_counts(tmp_path: Path) -> None:
    repository(tmp_path)
    bare(tmp_path / ".git/evil", "[diff]\n\texternal = x\n")
    (tmp_path / ".git/commondir").write_text("evil\n")
    assert what_asks(str(tmp_path)) == ("diff.external",)


@pytest.mark.parametrize("name", ["config", "HEAD", "info"])
def test_a_link_out_of_the_folder_of_git_asks(tmp_path: Path, name: str) -> None:
    repository(tmp_path / "r")
    outside = tmp_path / "outside"
    outside.write_text("ref: refs/heads/main\n" if name == "HEAD" else "")
    (tmp_path / "r/.git" / name).unlink(missing_ok=True)
    (tmp_path / "r/.git" / name).symlink_to(outside)
    assert what_asks(str(tmp_path / "r")) == (f"{name}, which is a link to {outside}",)


def test_objects_of_another_repository_ask(tmp_path: Path) -> None:
    repository(tmp_path / "r")
    (tmp_path / "r/.git/objects/info").mkdir()
    (tmp_path / "r/.git/objects/info/alternates").write_text("/elsewhere/objects\n")
    assert what_asks(str(tmp_path / "r")) == ("objects/info/alternates, which leads to /elsewhere/objects",)


def test_settings_of_submodules_count_for_the_repository_around_them(tmp_path: Path) -> None:
    repository(tmp_path)
    inner = bare(tmp_path / ".git/modules/libs/x", "[diff]\n external = ./x\n")
    assert what_asks(str(tmp_path)) == ("diff.external",)
    (inner / "config").write_text("[core]\n\tbare = false\n\thooksPath = x\n")
    assert what_asks(str(tmp_path)) == ("core.hookspath",)  # what switches hooks off does not reach submodules
    (inner / "config").write_text("")
    (tmp_path / ".gitmodules").write_text('[submodule "y"]\n\tpath = vendor/y\n\turl = ./y\n')
    repository(tmp_path / "vendor" / "y", '[filter "x"]\n clean = ./x\n')
    assert what_asks(str(tmp_path)) == ("filter.x.clean",)


@pytest.mark.parametrize("version", ["2", "4"])
def test_gitlinks_without_gitmodules_and_submodules_of_submodules_count(tmp_path: Path, version: str) -> None:
    for name in ("a", "a/b", "a/b/c"):
        folder = tmp_path / name
        folder.mkdir()
        git("init", "-q", cwd=folder)
        git("config", "index.version", version, cwd=folder)
        git("commit", "-q", "--allow-empty", "-m", "x", cwd=folder)
    for name in ("a/b", "a"):
        git("add", "-A", cwd=tmp_path / name)
    assert what_asks(str(tmp_path / "a")) == ()
    git("config", "diff.x.textconv", "touch pwn", cwd=tmp_path / "a/b/c")
    assert what_asks(str(tmp_path / "a")) == ("diff.x.textconv",)


POINTERS = {
    "a blank behind it": (b"else where ", b"gitdir: else where \n\n"),
    "a blank before it": (b" elsewhere", b"gitdir:  elsewhere\n"),
    "a tab behind it": (b"elsewhere\t", b"gitdir: elsewhere\t\r\n"),
    "a line break within": (b"a\nb", b"gitdir: a\nb\n"),
    "text behind a NUL": (b"elsewhere", b"gitdir: elsewhere\0more"),
    "many line breaks": (b"elsewhere", b"gitdir: elsewhere" + b"\n" * 200_000),
    "no text": (b"e\xff", b"gitdir: e\xff\n"),
}


@pytest.mark.parametrize("how", POINTERS)
def test_a_pointer_is_read_as_git_reads_it(how: str, tmp_path: Path) -> None:
    name, text = POINTERS[how]
    git("init", "-q", cwd=tmp_path)
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
    (tmp_path / ".git").rename(folder)
    (tmp_path / ".git").write_bytes(text)
    git("config", "core.fsmonitor", "./x", cwd=tmp_path)  # git itself finds it
    assert "core.fsmonitor" in str(what_asks(str(tmp_path), [str(tmp_path)]))


@pytest.mark.parametrize(("name", "text"), [("c ", "../../c "), ("c", "../../c" + "\n" * 3_000_000)])
def test_what_a_worktree_shares_is_found_as_git_finds_it(name: str, text: str, tmp_path: Path) -> None:
    bare(tmp_path / name, "[core]\n\tfsmonitor = ./x\n")
    repository(tmp_path / "work")
    (tmp_path / "work/.git/commondir").write_text(text)
    assert "core.fsmonitor" in str(what_asks(str(tmp_path / "work"), [str(tmp_path)]))


@pytest.mark.parametrize("line", ["{} ", '"{}"', "{}\x0bx"])
def test_objects_elsewhere_are_named_however_the_line_is_written(line: str, tmp_path: Path) -> None:
    place = repository(tmp_path / "work") / ".git/objects/info"
    place.mkdir()
    (place / "alternates").write_text(line.format(tmp_path / "objects") + "\n")
    asked = what_asks(str(tmp_path / "work"), [str(tmp_path / "work")])
    assert "alternates" in str(asked)
