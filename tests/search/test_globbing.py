"""Patterns: the same files as git's `:(glob)` pathspecs, and braces beside them."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from tests.git.repositories import ATOMS, git, put, random_tree, repository

from surehand.core.errors import ToolFailure
from surehand.search.globs import compile_glob, expand, split_pattern

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
