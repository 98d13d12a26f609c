"""Patterns: the same files as git's `:(glob)` pathspecs, and braces beside them."""

from __future__ import annotations

import os
import random
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from tests.git.repositories import ATOMS, git, put, random_tree, repository

from surehand.core.errors import ToolFailure
from surehand.search import globs, walk
from surehand.search.globs import Listing, compile_glob, expand, split_pattern
from surehand.search.walk import Walk

FILES = [
    *("a.py", "a.txt", "ab", "aXb", ".hidden", ".github/x.yml", "docs/a/b/c.md"),
    *("src/a.py", "src/b.ts", "src/deep/c.py", "src/deep/er/d.py", "src/.env.d/y"),
]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.py", "a.py"),
        ("**/*.py", "a.py src/a.py src/deep/c.py src/deep/er/d.py"),
        ("src/*.py", "src/a.py"),
        ("src/**", "src/a.py src/b.ts src/deep/c.py src/deep/er/d.py src/.env.d/y"),
        ("src", "src/a.py src/b.ts src/deep/c.py src/deep/er/d.py src/.env.d/y"),
        ("src/", "src/a.py src/b.ts src/deep/c.py src/deep/er/d.py src/.env.d/y"),
        ("src/deep/.", "src/deep/c.py src/deep/er/d.py"),
        ("./src/*.py", "src/a.py"),
        ("src//deep/./*.py", "src/deep/c.py"),
        ("src/**/*.{py,ts}", "src/a.py src/b.ts src/deep/c.py src/deep/er/d.py"),
        ("{src/deep,docs/*/b}/*", "src/deep/c.py docs/a/b/c.md"),
        ("*/[a-b].?[sy]", "src/a.py src/b.ts"),
        ("[!a]*", ".hidden"),
        (".*/*", ".github/x.yml"),
        ("**/.*", ".hidden"),
        ("a?b", "aXb"),
        ("a**b", "ab aXb"),
        ("*/deep/**/d.py", "src/deep/er/d.py"),
        (".", " ".join(FILES)),
        ("a.{py}", "a.py"),
        ("a.{}", ""),
        ("{a.py", ""),
    ],
)
def test_a_pattern_finds_these_files(pattern: str, expected: str) -> None:
    glob = compile_glob(pattern)
    assert sorted(file for file in FILES if glob.matches(file.encode())) == sorted(expected.split())


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a", ["a"]),
        ("{a,b}{c,d}", ["ac", "ad", "bc", "bd"]),
        ("x{a,{b,c}y}z", ["xaz", "xbyz", "xcyz"]),
        ("{,x}a", ["a", "xa"]),
        (r"\{a,b}", [r"\{a,b}"]),
        ("[{,}]x", ["[{,}]x"]),
        ("{a", ["{a"]),
        ("a}", ["a}"]),
    ],
)
def test_braces_stand_for_each_of_their_parts(pattern: str, expected: list[str]) -> None:
    assert expand(pattern) == expected


def test_braces_that_explode_are_refused_at_once() -> None:
    began = time.process_time()
    with pytest.raises(ToolFailure, match="more than 1000 patterns"):
        expand("{a,b}" * 40)
    with pytest.raises(ToolFailure, match="characters"):
        expand("{" * 100_000)
    assert time.process_time() - began < 60  # what hangs, hangs without end


def test_a_pattern_that_leaves_its_folder_is_refused() -> None:
    for pattern in ("../x", "a/../../x", "/etc/*"):
        with pytest.raises(ToolFailure, match="leaves"):
            compile_glob(pattern)


def test_an_absolute_pattern_brings_its_own_folder() -> None:
    assert split_pattern("/etc/**") == ("/etc", "**")
    assert split_pattern("/etc/hosts") == ("/etc", "hosts")
    assert split_pattern("../a/*.py") == ("../a", "*.py")
    assert split_pattern("src/*.py") == ("", "src/*.py")
    with pytest.raises(ToolFailure, match="after a wildcard"):
        split_pattern("/a/*/../b")


def test_only_folders_that_can_hold_a_match_are_entered() -> None:
    glob = compile_glob("src/*/x.py")
    assert glob.start == b"src"
    assert glob.enters(b"src")
    assert glob.enters(b"src/a")
    assert not glob.enters(b"src/a/b")
    assert compile_glob("src/**/x").enters(b"src/a/b/c")


def test_many_stars_take_no_time() -> None:
    began = time.process_time()
    assert not compile_glob("*a" * 50 + "b").matches(b"a" * 250)
    assert not compile_glob("**/a/" * 30 + "b").matches(b"a/" * 500 + b"c")
    assert time.process_time() - began < 60  # what hangs, hangs without end


def compare_with_git(folder: Path, seed: int, rounds: int) -> None:
    chance = random.Random(seed)
    for number in range(rounds):
        top = repository(folder / str(number))
        random_tree(top, chance, 25)
        git(top, "add", "-A")
        files = [file for file in git(top, "ls-files", "-z").split(b"\0") if file]
        for _ in range(25):
            pattern = "".join(chance.choice(ATOMS) for _ in range(chance.randint(1, 5))).lstrip("/").replace("//", "/")
            if not pattern.strip() or "//" in pattern or "{" in pattern:
                continue
            glob = compile_glob(pattern)
            listed = git(top, "ls-files", "-z", "--", f":(glob){pattern}").split(b"\0")
            found = {file for file in files if glob.matches(file)}
            assert found == set(filter(None, listed)), pattern
            for file in found:
                parts = file.split(b"/")
                assert all(glob.enters(b"/".join(parts[:depth])) for depth in range(1, len(parts))), pattern


@pytest.mark.parametrize("seed", range(2))
def test_random_patterns_find_what_git_finds(tmp_path: Path, seed: int) -> None:
    compare_with_git(tmp_path, seed, 4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 110))
def test_many_random_patterns_find_what_git_finds(tmp_path: Path, seed: int) -> None:
    compare_with_git(tmp_path, seed, 60)


def test_names_are_bytes_to_a_pattern(tmp_path: Path) -> None:
    put(tmp_path, "é")
    assert compile_glob("??").matches("é".encode())
    assert compile_glob("*").matches(b"\xff\xfe\n")


def listing(top: Path, memory: walk.FolderMemory, monkeypatch: pytest.MonkeyPatch) -> tuple[object, list[str]]:
    """Return the hits and notes of a listing that remembers every folder, those that have just changed included."""
    monkeypatch.setattr(globs, "_LISTED", memory)
    monkeypatch.setattr(walk, "_REMEMBERED_FROM", 0)
    monkeypatch.setattr(walk, "SETTLED_NS", 0)
    monkeypatch.setattr(walk, "_has_exact_times", lambda device: True)
    found = Listing(Walk(os.fsencode(top), stop=os.fsencode(top), excludes=True), compile_glob("**/*"))
    return found.hits(1000), found.walk.tally.notes("listed")


def wait_for_tick(top: Path) -> None:
    """Return once the clock of the file system has moved on: what changes now has another time than before."""
    probe = top / "tick"
    probe.write_bytes(b"")
    before = probe.stat().st_ctime_ns
    while probe.stat().st_ctime_ns == before:
        probe.write_bytes(b"")


def change_something(top: Path, chance: random.Random) -> None:
    """Make one random change to a tree: most find a moment in which they are possible."""
    folders = [top, *(path for path in sorted(top.rglob("*")) if path.is_dir() and not path.is_symlink())]
    files = [path for path in sorted(top.rglob("*")) if path not in folders]
    target = chance.choice(folders) / chance.choice(["a.py", "b.txt", "c", "d.log", ".env", "e"])
    with suppress(OSError):
        match chance.randrange(8):
            case 0:
                chance.choice(files or folders).unlink()
            case 1:
                chance.choice(files or folders).rename(target)
            case 2 if len(folders) > 3:
                shutil.rmtree(chance.choice(folders[1:]))
            case 3:
                chance.choice(folders).rename(target.with_name(f"moved{chance.randrange(9)}"))
            case 4:
                rules = chance.choice(["*.log\n", "a.py\n", "/c\n", "!d.log\n", "moved*/\n", "*\n"])
                target.with_name(".gitignore").write_text(rules)
            case 5:
                git(target.parent, "init", "--quiet")
            case 6:
                target.symlink_to(chance.choice(folders))
            case _:
                target.write_text("x" * chance.randrange(9))
                target.with_name(f"f{chance.randrange(9)}").mkdir()


@pytest.mark.parametrize("seed", range(4))
def test_a_remembered_folder_is_listed_as_if_it_were_read_anew(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, top, memory = random.Random(seed), tmp_path / "top", walk.FolderMemory()
    top.mkdir()
    random_tree(top, chance, 40)
    for _ in range(60):
        wait_for_tick(tmp_path)
        change_something(top, chance)
        assert listing(top, memory, monkeypatch) == listing(top, walk.FolderMemory(), monkeypatch)


def test_unchanged_folders_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = walk.FolderMemory()
    for name in ("a/1", "b/2", "c/3"):
        put(tmp_path / "top", name)
    wait_for_tick(tmp_path)
    before = listing(tmp_path / "top", memory, monkeypatch)
    read, scandir = list[str](), os.scandir
    monkeypatch.setattr(os, "scandir", lambda fd: (read.append(os.readlink(f"/proc/self/fd/{fd}")), scandir(fd))[1])
    assert listing(tmp_path / "top", memory, monkeypatch) == before
    assert read == []
    (tmp_path / "top/b/2").unlink()
    assert listing(tmp_path / "top", memory, monkeypatch) != before
    assert [os.path.basename(each) for each in read] == ["b"]


def test_what_has_just_changed_and_what_lies_on_a_strange_file_system_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "a")
    status, settled = tmp_path.stat(), tmp_path.stat().st_ctime_ns + 10**10
    contents = next(iter(Walk(os.fsencode(tmp_path))._root())).contents  # pyright: ignore[reportPrivateUsage]

    def is_remembered(now: int, *, exact: bool) -> bool:
        memory = walk.FolderMemory()
        monkeypatch.setattr(walk, "_has_exact_times", lambda device: exact)
        memory.add(contents, status, now)
        return memory.get(os.fsencode(tmp_path), status) is not None

    assert is_remembered(settled, exact=True)
    assert not is_remembered(status.st_ctime_ns + 1, exact=True)
    assert not is_remembered(settled, exact=False)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_only_file_systems_known_to_keep_exact_times_are_trusted() -> None:
    assert not walk._has_exact_times(os.stat("/proc").st_dev)  # pyright: ignore[reportPrivateUsage]
    assert not walk._has_exact_times(1 << 40)  # pyright: ignore[reportPrivateUsage]
