"""What a repository's own files make git do: everything that is not known to be harmless is named, wherever it lies."""

from __future__ import annotations

import hashlib
import os
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from surehand.git.model import find_risks


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
        ("[extensions]\n refStorage = files:///elsewhere\n", "extensions.refstorage"),
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
        ('[gitflow "prefix"]\n feature = $(touch pwn)\n', "gitflow.prefix.feature"),
        ('[gitflow "path"]\n hooks = ./x\n', "gitflow.path.hooks"),
        ('[guitool "x"]\n cmd = ./x\n', "guitool.x.cmd"),
    ],
)
def test_a_setting_that_is_not_known_to_be_harmless_is_named(tmp_path: Path, text: str, found: str) -> None:
    assert find_risks(str(repository(tmp_path, text) / "deep" / "down")) == (found,)
    other = repository(tmp_path / "other", text, "config.worktree")
    assert find_risks(str(other)) == (found,)


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
        '[gitflow "branch"]\n\tmaster = main\n[gitflow "prefix"]\n\tfeature = feature/\n',
        "[oh-my-zsh]\n\thide-status = 1\n",
        "[gui]\n\twmstate = normal\n\tgeometry = 887x427+5+5 171 192\n[bash]\n\tshowDirtyState = false\n",
    ],
)
def test_everyday_settings_ask_nothing(tmp_path: Path, text: str) -> None:
    assert find_risks(str(repository(tmp_path, text))) == ()


def test_an_included_file_of_the_repository_is_read_like_the_settings_themselves(tmp_path: Path) -> None:
    repository(tmp_path, "[include]\n\tpath = ../.gitconfig\n")
    (tmp_path / ".gitconfig").write_text("[pull]\n\trebase = true\n[diff]\n\texternal = ./x\n")
    assert find_risks(str(tmp_path)) == ("diff.external",)


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
    assert find_risks(str(tree)) == ("diff.x.textconv",)


def test_a_git_file_that_leads_out_and_is_not_named_back_asks(tmp_path: Path) -> None:
    other = bare(tmp_path / "other")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / ".git").write_text(f"gitdir: {other}\n")
    assert find_risks(str(tree)) == (f".git, which leads to {other}",)
    assert find_risks(str(tree), [str(tmp_path)]) == ()


def test_settings_that_cannot_be_read_ask_and_no_repository_asks_nothing(tmp_path: Path) -> None:
    repository(tmp_path / "a")
    (tmp_path / "a/.git/config").unlink()
    (tmp_path / "a/.git/config").mkdir()
    assert find_risks(str(tmp_path / "a")) == ("config, which cannot be read",)
    assert find_risks(str(repository(tmp_path / "b", "[core\n!!"))) == ("config, which cannot be read",)
    assert find_risks("/proc") == ()


def test_a_plain_folder_that_is_a_repository_is_judged_by_its_own_settings(tmp_path: Path) -> None:
    repository(tmp_path)
    inner = bare(tmp_path / "evil", '[core]\n\tbare = false\n\tworktree = .\n\tfsmonitor = "touch pwn"\n')
    assert find_risks(str(inner)) == ("core.fsmonitor",)
    assert find_risks(str(tmp_path)) == ()
    (inner / "config").write_text("[core]\n\tbare = false\n\tworktree = /etc\n")
    assert find_risks(str(inner)) == ("core.worktree, which leads to /etc",)


def test_a_gitdir_through_a_link_is_followed_as_the_kernel_does(tmp_path: Path) -> None:
    (tmp_path / "deep/dir").mkdir(parents=True)
    bare(tmp_path / "deep/g", '[diff "x"]\n\ttextconv = x\n')
    bare(tmp_path / "sub/g")
    (tmp_path / "sub/l").symlink_to("../deep/dir")
    (tmp_path / "sub/.git").write_text("gitdir: l/../g\n")
    assert "diff.x.textconv" in find_risks(str(tmp_path / "sub"))


def test_what_a_commondir_names_counts(tmp_path: Path) -> None:
    repository(tmp_path)
    bare(tmp_path / ".git/evil", "[diff]\n\texternal = x\n")
    (tmp_path / ".git/commondir").write_text("evil\n")
    assert find_risks(str(tmp_path)) == ("diff.external",)


@pytest.mark.parametrize("name", ["config", "HEAD", "info"])
def test_a_link_out_of_the_folder_of_git_asks(tmp_path: Path, name: str) -> None:
    repository(tmp_path / "r")
    outside = tmp_path / "outside"
    outside.write_text("ref: refs/heads/main\n" if name == "HEAD" else "")
    (tmp_path / "r/.git" / name).unlink(missing_ok=True)
    (tmp_path / "r/.git" / name).symlink_to(outside)
    assert find_risks(str(tmp_path / "r")) == (f"{name}, which is a link to {outside}",)


def test_objects_of_another_repository_ask(tmp_path: Path) -> None:
    repository(tmp_path / "r")
    (tmp_path / "r/.git/objects/info").mkdir()
    (tmp_path / "r/.git/objects/info/alternates").write_text("/elsewhere/objects\n")
    assert find_risks(str(tmp_path / "r")) == ("objects/info/alternates, which leads to /elsewhere/objects",)


def test_settings_of_submodules_count_for_the_repository_around_them(tmp_path: Path) -> None:
    repository(tmp_path)
    inner = bare(tmp_path / ".git/modules/libs/x", "[diff]\n external = ./x\n")
    assert find_risks(str(tmp_path)) == ("diff.external",)
    (inner / "config").write_text("[core]\n\tbare = false\n\thooksPath = x\n")
    assert find_risks(str(tmp_path)) == ("core.hookspath",)  # what switches hooks off does not reach submodules
    (inner / "config").write_text("")
    (tmp_path / ".gitmodules").write_text('[submodule "y"]\n\tpath = vendor/y\n\turl = ./y\n')
    repository(tmp_path / "vendor" / "y", '[filter "x"]\n clean = ./x\n')
    assert find_risks(str(tmp_path)) == ("filter.x.clean",)


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
    assert find_risks(str(tmp_path / "a")) == ()
    git("config", "diff.x.textconv", "touch pwn", cwd=tmp_path / "a/b/c")
    assert find_risks(str(tmp_path / "a")) == ("diff.x.textconv",)


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
    assert "core.fsmonitor" in str(find_risks(str(tmp_path), [str(tmp_path)]))


@pytest.mark.parametrize(("name", "text"), [("c ", "../../c "), ("c", "../../c" + "\n" * 3_000_000)])
def test_what_a_worktree_shares_is_found_as_git_finds_it(name: str, text: str, tmp_path: Path) -> None:
    bare(tmp_path / name, "[core]\n\tfsmonitor = ./x\n")
    repository(tmp_path / "work")
    (tmp_path / "work/.git/commondir").write_text(text)
    assert "core.fsmonitor" in str(find_risks(str(tmp_path / "work"), [str(tmp_path)]))


@pytest.mark.parametrize("line", ["{} ", '"{}"', "{}\x0bx"])
def test_objects_elsewhere_are_named_however_the_line_is_written(line: str, tmp_path: Path) -> None:
    place = repository(tmp_path / "work") / ".git/objects/info"
    place.mkdir()
    (place / "alternates").write_text(line.format(tmp_path / "objects") + "\n")
    asked = find_risks(str(tmp_path / "work"), [str(tmp_path / "work")])
    assert "alternates" in str(asked)


# -- ways around the settings themselves: each of these makes git run a program, or read a file outside ----------------

RUNS = '[diff "x"]\n\ttextconv = "touch pwn; cat"\n'


def _hide_behind_nul(folder: Path) -> None:
    (folder / ".git/config").write_bytes(b'[diff "x.textconv\0"]\n\tbinary = "touch pwn; cat"\n')


def _include_through_link(folder: Path) -> None:
    for name, text in {"a/x": RUNS, "b/x": "", "b/more": "[include]\n\tpath = x\n"}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    (folder / "a/more").symlink_to("../b/more")
    (folder / ".git/config").write_text("[include]\n\tpath = ../a/more\n")


def _include_from_prefix(folder: Path) -> None:
    (folder / "more").write_text(RUNS)
    (folder / ".git/config").write_text(f"[include]\n\tpath = %(prefix)/..{folder}/more\n")


def _pass_over_dot_git(folder: Path) -> None:
    (folder / ".git").rename(folder / "git")
    for path in (folder / "git").iterdir():
        path.rename(folder / path.name)
    (folder / ".git").mkdir()
    (folder / "config").write_text(f"[core]\n\trepositoryFormatVersion = 0\n\tbare = false\n\tworktree = .\n{RUNS}")


@pytest.mark.parametrize(
    ("arrange", "found"),
    [
        (_hide_behind_nul, "config, which cannot be read"),
        (_include_through_link, "diff.x.textconv"),
        (_include_from_prefix, "include.path"),
        (_pass_over_dot_git, "diff.x.textconv"),
    ],
)
def test_a_program_is_named_however_git_comes_to_it(
    arrange: Callable[[Path], None], found: str, tmp_path: Path
) -> None:
    git("init", "-q", cwd=tmp_path)
    (tmp_path / ".gitattributes").write_text("*.txt diff=x\n")
    (tmp_path / "a.txt").write_text("a\n")
    git("add", "a.txt", cwd=tmp_path)
    (tmp_path / "a.txt").write_text("b\n")
    arrange(tmp_path)
    git("diff", cwd=tmp_path)
    assert (tmp_path / "pwn").exists(), "git itself would run it"
    assert found in find_risks(str(tmp_path), [str(tmp_path)])


def track(folder: Path, path: str, mode: int, *, checksum: bytes | None = None) -> None:
    """Write an index with one entry, which git would not write itself."""
    entry = struct.pack(">10I", *(1, 0, 1, 0, 0, 0, mode, 0, 0, 1)) + b"\1" * 20 + struct.pack(">H", len(path))
    entry += path.encode()
    data = b"DIRC" + struct.pack(">II", 2, 1) + entry + b"\0" * (8 - len(entry) % 8)
    (folder / ".git/index").write_bytes(data + (checksum or hashlib.sha1(data).digest()))


@pytest.mark.parametrize("path", ["../secret", "a/../../secret", "{}/secret"])
def test_an_index_that_tracks_a_file_outside_asks(path: str, tmp_path: Path) -> None:
    folder, path = repository(tmp_path / "r"), path.format(tmp_path)
    track(folder, path, 0o100644)
    assert find_risks(str(folder)) == (f"index, which tracks {path}",)


@pytest.mark.parametrize("name", ["link", "a/link", "a/b/c"])
def test_an_index_that_tracks_a_file_behind_a_link_to_elsewhere_asks(name: str, tmp_path: Path) -> None:
    folder, outside = repository(tmp_path / "r"), tmp_path / "outside"
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).symlink_to(outside)
    track(folder, f"{name}/deep/secret", 0o100644)
    assert find_risks(str(folder)) == (f"index, which tracks files in {name}, a link to {outside}",)
    assert find_risks(str(folder), [str(outside)]) == ()


@pytest.mark.parametrize("name", ["../../outside/pack-1.idx", "/etc/x.idx", "pack-1.idx", ""])
@pytest.mark.parametrize("says", ["its end", "an end before it", "no end"])
def test_an_index_over_packs_that_names_other_files_asks(name: str, says: str, tmp_path: Path) -> None:
    def write(*names: str) -> None:
        rest = {"its end": sum(map(len, names)) + len(names), "an end before it": 1, "no end": 0}[says]
        table = b"PNAM" + (36).to_bytes(8) + bytes(4) + (36 + rest).to_bytes(8)
        head = b"MIDX\1\1\1\0" + len(names).to_bytes(4) + table
        path.write_bytes(head + b"".join(each.encode() + b"\0" for each in names))

    path = repository(tmp_path) / ".git/objects/pack/multi-pack-index"
    path.parent.mkdir()
    pack = f"pack-{'1' * 40}.idx"
    write(pack, pack)
    assert find_risks(str(tmp_path)) == ()
    write(pack, name)
    assert find_risks(str(tmp_path)) == ("pack/multi-pack-index, which names other files than packs",)
    path.write_bytes(b"MIDX")
    assert find_risks(str(tmp_path)) == ("pack/multi-pack-index, which names other files than packs",)


def test_an_index_over_packs_as_git_writes_it_asks_nothing(tmp_path: Path) -> None:
    git("init", "-q", cwd=tmp_path)
    for _ in range(2):
        git("commit", "-q", "--allow-empty", "-m", "x", cwd=tmp_path)
        git("repack", "-dq", cwd=tmp_path)
    git("multi-pack-index", "write", cwd=tmp_path)
    assert find_risks(str(tmp_path)) == ()


@pytest.mark.parametrize("how", ["in two files", "with a wrong checksum", "that ends early"])
def test_other_repositories_are_seen_in_every_index_that_git_reads(how: str, tmp_path: Path) -> None:
    for name in ("inner", "."):
        (tmp_path / name).mkdir(exist_ok=True)
        git("init", "-q", cwd=tmp_path / name)
        git("commit", "-q", "--allow-empty", "-m", "x", cwd=tmp_path / name)
    git("add", "-A", cwd=tmp_path)
    git("config", "filter.x.clean", "touch pwn", cwd=tmp_path / "inner")
    index = tmp_path / ".git/index"
    if how == "in two files":
        git("update-index", "--split-index", cwd=tmp_path)
        assert b"inner" not in index.read_bytes()
        assert find_risks(str(tmp_path)) == ("filter.x.clean",)
    else:
        index.write_bytes(index.read_bytes()[:-20] + (b"\1" * 20 if how == "with a wrong checksum" else b""))
        assert find_risks(str(tmp_path)) == ("index, which cannot be read",)


@pytest.mark.parametrize(
    "name",
    [
        "BISECT_LOG", "info/sparse-checkout", "rebase-merge/git-rebase-todo", "worktrees/x/locked", "refs/heads/token",
        "logs/HEAD", "objects/pack", "objects/ab",
    ],
)  # fmt: skip
def test_what_git_prints_of_its_own_folder_is_no_link_out_of_it(name: str, tmp_path: Path) -> None:
    folder, outside = repository(tmp_path / "r"), tmp_path / "outside"
    link = folder / ".git" / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(outside)
    assert find_risks(str(folder)) == (f"{name}, which is a link to {outside}",)
    link.unlink()
    link.symlink_to(folder / "inside")
    assert find_risks(str(folder)) == ()
    link.unlink()
    link.symlink_to(folder / ".env")
    assert find_risks(str(folder)) == (f"{name}, which is a link to {folder}/.env",)


def test_a_folder_of_git_that_shares_another_projects_asks(tmp_path: Path) -> None:
    other = bare(tmp_path / "other")
    folder = repository(tmp_path / "r", "[core]\n\tworktree = ..\n")
    (folder / ".git/commondir").write_text(f"{other}\n")
    assert find_risks(str(folder), [str(folder)]) == (f"commondir, which leads to {other}",)


def test_objects_of_another_repository_ask_also_behind_others(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r")
    for objects, further in ((folder / ".git/objects", folder / "o"), (folder / "o", tmp_path / "other/objects")):
        (objects / "info").mkdir(parents=True)
        (objects / "info/alternates").write_text(f"{further}\n")
    assert find_risks(str(folder)) == (f"objects/info/alternates, which leads to {tmp_path}/other/objects",)


@pytest.mark.parametrize("value", ["%(prefix)/../x", ":(optional)x", "a\tb", "a\rb"])
def test_a_path_that_not_every_git_reads_alike_asks(value: str, tmp_path: Path) -> None:
    repository(tmp_path, f"[mailmap]\n\tfile = {value}\n")
    assert find_risks(str(tmp_path)) == ("mailmap.file",)
