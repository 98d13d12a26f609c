"""What a session has read: the content of each file as it was last seen, by hash.

A file counts as changed when its content changed, not its time: formatters, commits and `touch` raise no alarm.
The rule, in this order:

1. `seen.untouched(status)`: same file, same size, same times, and those times were old enough when it was read that
   a later write must have moved them. Nothing was written; the bytes need no second look. `ctime` cannot be set by
   a program, so content changed under a faked `mtime` is found.
2. Otherwise the digest of the content now, against `seen.digest`.
3. A large file of which only a part was read has no digest (`""`): reading 2,000 lines out of gigabytes must cost
   what those lines cost. Once its status has moved it counts as changed; the refusal counts as a read, so the next
   try works.
"""

from __future__ import annotations

import hashlib
import os
import time
from typing import Any, Final

from surehand.core.frozen import frozen, replace_values

SETTLED_NS: Final = 50_000_000
"""File times tick in steps of up to ten milliseconds: a status younger than this proves nothing."""


def digest_of(content: bytes) -> str:
    """Return the name of a content: what read state and history compare."""
    return hashlib.sha256(content).hexdigest()


@frozen
class Seen:
    """One file as the session last saw it; size, times and inode only save reading the bytes again."""

    digest: str
    size: int
    mtime_ns: int
    whole: bool = True
    """False when only a part was shown; the digest, where there is one, is of the whole file all the same."""
    inode: int = 0
    ctime_ns: int = 0
    """0 when the status was too young to prove anything (see `untouched`)."""
    encoding: str = ""
    """The encoding a caller named for it; empty where it is detected from the bytes."""

    @classmethod
    def of(
        cls, digest: str, status: os.stat_result, *, whole: bool = True, exact: bool = False, encoding: str = ""
    ) -> Seen:
        """Return what is known of content read while the file had this status.

        `exact` says that the file system gives a new time to every change after a look at the status.
        """
        settled = exact or time.time_ns() - status.st_ctime_ns > SETTLED_NS
        ctime_ns = status.st_ctime_ns if settled else 0
        return cls(digest, status.st_size, status.st_mtime_ns, whole, status.st_ino, ctime_ns, encoding)

    def without_proof(self) -> Seen:
        """Return it as seen elsewhere than on disk: no status of the file proves that it is still so."""
        return replace_values(self, ctime_ns=0)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data; `Seen(**data)` is the way back."""
        return {
            "digest": self.digest,
            "size": self.size,
            "mtime_ns": self.mtime_ns,
            "whole": self.whole,
            "inode": self.inode,
            "ctime_ns": self.ctime_ns,
        } | ({"encoding": self.encoding} if self.encoding else {})

    def untouched(self, status: os.stat_result) -> bool:
        """Say whether the status alone proves that nothing was written since; False means: look at the bytes."""
        now = (status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns)
        return now == (self.size, self.mtime_ns, self.inode, self.ctime_ns)


class ReadState:
    """Real path → what was seen there."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[str, Seen] = {}

    def get(self, path: str) -> Seen | None:
        """Return what was read at a path; None for a path that was not read."""
        return self._seen.get(path)

    def put(self, path: str, seen: Seen) -> None:
        """Remember what was read at a path."""
        self._seen[path] = seen

    def forget(self, path: str) -> None:
        """Forget what was read at a path."""
        self._seen.pop(path, None)

    def items(self) -> list[tuple[str, Seen]]:
        """Return every path that was read, with what was seen."""
        return list(self._seen.items())
