"""The three-way merge gives what `git merge-file` gives, and is refused where that conflicts."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from surehand.files.merge import merge_lines

WORDS = ["alpha", "beta", "gamma", "", "", "}", "    return x", "end", "x = 1"]


def text(chance: random.Random, lines: int) -> list[str]:
    return [chance.choice(WORDS) if chance.random() < 0.5 else f"line {chance.randrange(60)}" for _ in range(lines)]


def changed(chance: random.Random, lines: list[str]) -> list[str]:
    made = list(lines)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(made) + 1)
        size = chance.randrange(3)
        made[at : at + size] = text(chance, chance.randrange(4))
    return made


def joined(chance: random.Random, lines: list[str]) -> bytes:
    end = "" if chance.random() < 0.1 else "\n"
    return ("\n".join(lines) + (end if lines else "")).encode()


def by_git(folder: Path, base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    """Return the merge as git makes it; None for a conflict."""
    for name, content in (("base", base), ("ours", ours), ("theirs", theirs)):
        (folder / name).write_bytes(content)
    command = ["git", "merge-file", "-p", "--quiet", "ours", "base", "theirs"]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else None


def compare(folder: Path, seed: str, count: int) -> tuple[int, int]:
    chance, clean, refused = random.Random(seed), 0, 0
    for _ in range(count):
        lines = text(chance, chance.randrange(1, 40))
        base = joined(chance, lines)
        ours, theirs = (joined(chance, changed(chance, lines)) for _ in range(2))
        wanted = by_git(folder, base, ours, theirs)
        assert merge_lines(base, ours, theirs) == wanted, (base, ours, theirs)
        clean, refused = clean + (wanted is not None), refused + (wanted is None)
    return clean, refused


@pytest.mark.skipif(shutil.which("git") is None, reason="no git here")
def test_generated_pairs_merge_as_git_merges_them(tmp_path: Path) -> None:
    clean, refused = compare(tmp_path, "ordinary", 250)
    assert clean > 50
    assert refused > 50


@pytest.mark.slow
def test_thousands_of_generated_pairs_merge_as_git_merges_them(tmp_path: Path) -> None:
    for seed in range(20):
        compare(tmp_path, f"slow {seed}", 500)


def test_texts_that_differ_altogether_are_not_merged() -> None:
    base, ours, theirs = (b"".join(b"%s %d\n" % (name, n) for n in range(2000)) for name in (b"a", b"b", b"c"))
    assert merge_lines(base, ours, theirs) is None
    assert merge_lines(base, base + b"x\n", b"y\n" + base) == b"y\n" + base + b"x\n"
