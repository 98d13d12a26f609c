"""What a session has read: the content of each file as it was last seen, by hash.

A file counts as changed when its content changed, not its time: formatters, commits and `touch` raise no alarm.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Seen:
    """One file as the session last saw it; `size` and `mtime_ns` only spare a second look at the bytes."""

    digest: str
    size: int
    mtime_ns: int
    whole: bool = True
    """False when only a part was shown; the digest is of the whole file all the same."""


class ReadState:
    """Real path → what was seen there."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[str, Seen] = {}

    def get(self, path: str) -> Seen | None:
        return self._seen.get(path)

    def put(self, path: str, seen: Seen) -> None:
        self._seen[path] = seen

    def forget(self, path: str) -> None:
        self._seen.pop(path, None)

    def items(self) -> list[tuple[str, Seen]]:
        return list(self._seen.items())
