"""The cases of the corpus: read, filled in, and their fixtures built in a workspace."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CORPORA = ("attacks.jsonl", "attacks-2.jsonl")


@dataclass(frozen=True, slots=True)
class Case:
    """One case; what it expects is in `expect` and `also_ok`."""

    id: str
    tool: str
    input: dict[str, Any]
    expect: str
    also_ok: tuple[str, ...]
    mode: str
    category: str
    rules: tuple[str, ...]
    fixture: tuple[tuple[Any, ...], ...]
    corpus: int

    @property
    def passes(self) -> set[str]:
        return {self.expect, *self.also_ok}

    def filled(self, workspace: Path) -> dict[str, Any]:
        """Return the input with the workspace filled in."""
        return _filled(self.input, workspace)

    def build(self, workspace: Path, environment: Callable[[str, str], None], made: Path | None = None) -> None:
        """Make the fixture in an empty workspace; `made` keeps those with a repository, which many cases share."""
        kept = made / zlib.crc32(repr(self.fixture).encode()).to_bytes(4).hex() if made is not None else None
        if kept is not None and kept.exists():
            shutil.copytree(kept, workspace, symlinks=True, dirs_exist_ok=True)
            return
        for op, *values in self.fixture:
            _OPS[op](workspace, *_filled(values, workspace)) if op != "env" else environment(*values)
        if kept is not None and ("git", "") in self.fixture:
            shutil.copytree(workspace, kept, symlinks=True)


def load() -> list[Case]:
    """Return every case of the corpora."""
    texts = [Path(__file__).with_name(name).read_text() for name in CORPORA]
    rows = [(at, json.loads(line)) for at, text in enumerate(texts, 1) for line in text.splitlines()]
    return [
        Case(
            row["id"],
            row["tool"],
            row["input"],
            row["expect"],
            tuple(row["also_ok"]),
            row["mode"],
            row["category"],
            tuple(row.get("rules", ())),
            tuple(tuple(op) for op in row.get("fixture", ())),
            corpus,
        )
        for corpus, row in rows
    ]


def _filled(value: Any, workspace: Path) -> Any:
    if isinstance(value, str):
        return value.replace("{wsname}", workspace.name).replace("{ws}", str(workspace))
    if isinstance(value, dict):
        return {key: _filled(inner, workspace) for key, inner in value.items()}
    return [_filled(inner, workspace) for inner in value] if isinstance(value, list) else value


def _file(workspace: Path, name: str, text: str, mode: int = 0o644) -> None:
    path = workspace / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def _exe(workspace: Path, name: str, text: str) -> None:
    _file(workspace, name, f"#!/bin/sh\n{text}\n", 0o755)


def _git(workspace: Path, *words: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", *words],
        cwd=workspace,
        check=True,
        capture_output=True,
    )


def _repository(workspace: Path, name: str) -> None:
    folder = workspace / name
    folder.mkdir(parents=True, exist_ok=True)
    _git(folder, "init", "-q", "-b", "main")
    _git(folder, "add", "-A")
    _git(folder, "commit", "-q", "--allow-empty", "-m", "start")


def _png_bomb(workspace: Path, name: str, width: int, height: int) -> None:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    packer = zlib.compressobj(9)
    rows = b"".join(packer.compress(b"\0" * (width + 1)) for _ in range(height)) + packer.flush()
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    (workspace / name).write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    )


def _sparse(workspace: Path, name: str, size: int) -> None:
    with (workspace / name).open("wb") as file:
        file.truncate(size)


def _big_line(workspace: Path, name: str, size: int) -> None:
    with (workspace / name).open("wb") as file:
        for _ in range(size // (1 << 20)):
            file.write(b"x" * (1 << 20))


def _zlib_bomb(workspace: Path, name: str, size: int) -> None:
    packer = zlib.compressobj(9)
    zeros = b"\0" * (1 << 20)
    (workspace / name).write_bytes(b"".join(packer.compress(zeros) for _ in range(size >> 20)) + packer.flush())


_OPS: dict[str, Callable[..., None]] = {
    "file": _file,
    "exe": _exe,
    "dir": lambda ws, name: (ws / name).mkdir(parents=True, exist_ok=True),
    "symlink": lambda ws, name, target: (ws / name).symlink_to(target),
    "hardlink": lambda ws, name, target: (ws / name).hardlink_to(ws / target),
    "fifo": lambda ws, name: os.mkfifo(ws / name),
    "git": _repository,
    "gitconfig": lambda ws, key, value: _git(ws, "config", key, value),
    "pngbomb": _png_bomb,
    "zlibbomb": _zlib_bomb,
    "sparse": _sparse,
    "bigline": _big_line,
}
SLOW = frozenset({"git", "gitconfig", "pngbomb", "zlibbomb", "bigline", "sparse"})
