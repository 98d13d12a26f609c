"""Which files people keep: not what git ignores, and not the caches that programs make anew.

An undo takes back what people keep; the rest is in the history too and comes back when it is named.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from typing import Final

from surehand.search.ignore_files import Folder, folder_at
from surehand.search.repository import Repository, find_repository

CACHES: Final = frozenset(
    {
        "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".tox", ".nox", ".cache",
        ".eggs", ".ipynb_checkpoints", "node_modules", ".venv", ".npm", ".parcel-cache", ".turbo", ".next", ".nuxt",
        ".svelte-kit", ".angular", ".gradle", ".sass-cache", ".eslintcache", ".stylelintcache", ".coverage",
        ".DS_Store", "Thumbs.db"
    }
)  # fmt: skip
"""Names that programs use for what they make anew whenever it is gone."""
_CACHE_ENDINGS: Final = (".pyc", ".pyo", ".tsbuildinfo")
_INDEX_LIMIT: Final = 256 * 1024 * 1024


class KeptFiles:
    """Decides which paths people keep. Caches what it read: make a new one for each question."""

    def __init__(self, roots: Sequence[str]) -> None:
        self._roots = [os.fsencode(root).rstrip(b"/") for root in roots]
        self._folders: dict[bytes, Folder | None] = {}
        """The rules in a folder; None for one that is not kept, with all that is in it."""
        self._tracked: dict[bytes, frozenset[bytes]] = {}

    def __call__(self, path: str, *, is_folder: bool = False) -> bool:
        """Say whether people keep the file (or folder) at an absolute path; it need not be there."""
        parent, name = os.path.split(os.fsencode(path))
        folder = self._folder(parent)
        unkept = folder is None or is_cache(name) or folder.ignores(name, is_folder)
        return not unkept or self._is_tracked(os.fsencode(path))

    def _folder(self, path: bytes) -> Folder | None:
        if path not in self._folders:
            self._folders[path] = self._look(path)
        return self._folders[path]

    def _look(self, path: bytes) -> Folder | None:
        parent, name = os.path.split(path)
        if path in self._roots or parent == path or not any(path.startswith(root + b"/") for root in self._roots):
            return folder_at(path, path)
        above = self._folder(parent)
        if above is None or is_cache(name) or above.ignores(name, True):
            return None
        return above.child(name)

    def _is_tracked(self, path: bytes) -> bool:
        """Say whether git tracks a path, or a file below it: then no rule makes it ignored."""
        repository = find_repository(os.path.dirname(path))
        if repository is None:
            return False
        if repository.top not in self._tracked:
            self._tracked[repository.top] = frozenset(_list_tracked(repository))
        return path[len(repository.top) + 1 :] in self._tracked[repository.top]


def is_cache(name: bytes) -> bool:
    """Whether programs use a name for what they make anew whenever it is gone."""
    text = os.fsdecode(name)
    return text in CACHES or text.endswith(_CACHE_ENDINGS)


def _list_tracked(repository: Repository) -> Iterator[bytes]:
    """Yield the names in the index of a repository, with the folders above them; none where it cannot be read."""
    try:
        with open(os.path.join(repository.git_dir, b"index"), "rb") as file:
            data = file.read(_INDEX_LIMIT)
        for name in _index_names(data):
            yield name
            while name := name.rpartition(b"/")[0]:
                yield name
    except (OSError, struct.error, ValueError, IndexError):
        return


def _index_names(data: bytes) -> Iterator[bytes]:
    """Yield the names of an index (versions 2 to 4), as its format describes them."""
    signature, version, count = struct.unpack_from(">4sII", data)
    if signature != b"DIRC" or version not in (2, 3, 4):
        return
    at, name = 12, b""
    for _ in range(count):
        start, (flags,) = at, struct.unpack_from(">H", data, at + 60)
        at += 62 + (2 if version >= 3 and flags & 0x4000 else 0)
        if version == 4:
            dropped, at = _varint(data, at)
            end = data.index(b"\0", at)
            name = name[: len(name) - dropped] + data[at:end]
            at = end + 1
        else:
            end = data.index(b"\0", at)
            name = data[at:end]
            at = start + (end - start + 8) // 8 * 8
        yield name


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = data[at] & 0x7F
    while data[at] & 0x80:
        at += 1
        value = ((value + 1) << 7) | (data[at] & 0x7F)
    return value, at + 1
