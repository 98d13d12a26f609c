"""Pieces: whole contents of files, each stored once under its digest in a folder.

A snapshot names pieces; whoever has the pieces can make the workspace again. A piece that is read is held against its
name, so that a damaged store is noticed and never spread.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from typing import Final

from surehand.core.errors import StateError
from surehand.core.read_state import digest_of
from surehand.files.cloning import copy_data

_BLOCK: Final = 1 << 20
_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class Pieces:
    """A store of contents in one folder; any number of processes may add to it."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        os.makedirs(folder, mode=0o700, exist_ok=True)

    def path(self, digest: str) -> str:
        """Return where a piece lies, or would."""
        return os.path.join(self.folder, digest[:2], digest)

    def has(self, digest: str) -> bool:
        """Whether a piece is here."""
        return os.path.exists(self.path(digest))

    def find_missing(self, digests: Iterable[str]) -> list[str]:
        """Return those of the digests that are not here, each once."""
        return [digest for digest in dict.fromkeys(digests) if not self.has(digest)]

    def add(self, data: bytes) -> str:
        """Keep a content and return its digest."""
        digest = digest_of(data)
        if not self.has(digest):
            fresh, descriptor = self._begin()
            with open(descriptor, "wb") as file:
                file.write(data)
            self._finish(fresh, digest)
        return digest

    def add_open(self, source: int) -> tuple[str, int]:
        """Keep what an open file holds; return its digest and size. What is named is what was copied, whole."""
        digest, size = _digest_open(source)
        if self.has(digest):
            return digest, size
        os.lseek(source, 0, os.SEEK_SET)
        fresh, descriptor = self._begin()
        try:
            copy_data(source, descriptor)
            os.lseek(descriptor, 0, os.SEEK_SET)
            digest, size = _digest_open(descriptor)
        except BaseException:
            os.unlink(fresh)
            raise
        finally:
            os.close(descriptor)
        if self.has(digest):
            os.unlink(fresh)
        else:
            self._finish(fresh, digest)
        return digest, size

    def read(self, digest: str) -> bytes:
        """Return a piece; raise StateError for one that is missing or damaged."""
        try:
            with open(os.open(self.path(digest), _READ), "rb") as file:
                data = file.read()
        except OSError as problem:
            raise StateError(f"a piece of the workspace is missing: {digest} ({problem.strerror})") from None
        if digest_of(data) != digest:
            raise StateError(f"a piece of the workspace is damaged: {self.path(digest)}")
        return data

    def write_file(self, digest: str, folder: int, name: str, mode: int) -> None:
        """Write a piece as a new file of an open folder; its bytes are shared where the file system can."""
        source = os.open(self.path(digest), _READ)
        try:
            target = os.open(name, _NEW, 0o600, dir_fd=folder)
            try:
                copy_data(source, target)
                os.fchmod(target, mode)
            finally:
                os.close(target)
        finally:
            os.close(source)

    def _begin(self) -> tuple[str, int]:
        fresh = os.path.join(self.folder, f"{os.getpid()}.{os.urandom(6).hex()}.new")
        return fresh, os.open(fresh, _NEW, 0o600)

    def _finish(self, fresh: str, digest: str) -> None:
        path = self.path(digest)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        os.replace(fresh, path)


def _digest_open(descriptor: int) -> tuple[str, int]:
    found, size = hashlib.sha256(), 0
    while block := os.read(descriptor, _BLOCK):
        found.update(block)
        size += len(block)
    return found.hexdigest(), size
