"""Real repositories to compare with: git's own answers, and trees and patterns made at random."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

# fmt: off
NAMES = [
    "a", "b", "ab", "foo", "bar", "foo.c", "a.log", ".x", "é", "A", "Foo", "x{a,b}", "a]", "-", "a\\b", "#h", "!n",
    "[x]", "a*b", "b d", "x ", "t\t",
]
ATOMS = [
    "a", "b", "foo", "bar", "*", "?", "**", "[a-c]", "[!a]", "[^b]", "[]a]", "[[:alpha:]]", "[[:upper:]x]", "[a\\]]",
    "\\*", "\\a", ".c", ".log", "é", "{a,b}", "[", "\\", "/", "**/", "/**", "[b-]", "[-a]", "[a-", "A", "[A-Z]",
    "[[:foo:]]", "x", "a*b", "*.log", "foo*", "**foo", "a**/b", "[a-c-e]", "[z-a]", "[\\a-\\c]", "!", "#", "\\!", "\\#",
    " ", "\\ ", "\t", "\\A",
]
# fmt: on


def git(folder: Path, *arguments: str, stdin: bytes = b"") -> bytes:
    """Run git without anybody's configuration but what the test sets, and return what it prints."""
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "GIT_CONFIG_NOSYSTEM": "1"}
    environment |= {name: value for name, value in os.environ.items() if name.startswith("GIT_CONFIG_")}
    run = subprocess.run(
        ["git", *arguments], cwd=folder, input=stdin, capture_output=True, env=environment, check=False
    )
    assert run.returncode in (0, 1), run.stderr
    return run.stdout


def repository(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q")
    return folder


def put(folder: Path, name: str, content: bytes | str = "") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def random_pattern(chance: random.Random) -> str:
    pattern = "".join(chance.choice(ATOMS) for _ in range(chance.randint(1, 4)))
    before = chance.choice(["", "", "", "/", "!"])
    return before + pattern + chance.choice(["", "", "", "/", "  "])


def random_tree(folder: Path, chance: random.Random, size: int) -> list[str]:
    """Make files and folders; return the folders, the top (an empty name) first."""
    folders = [""]
    for _ in range(size):
        name = os.path.join(chance.choice(folders), chance.choice(NAMES))
        if (folder / name).exists():
            continue
        if chance.random() < 0.45:
            (folder / name).mkdir()
            folders.append(name)
        else:
            (folder / name).touch()
    return folders
