"""The contents a session has read, so that a later conflict can show what changed since.

Held in memory up to a limit. Those of a named session are written to the history when it closes, for the process that
resumes it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from surehand.core.errors import ToolFailure
from surehand.core.session import Kept

if TYPE_CHECKING:
    from surehand.core.session import Session

ONE_BYTES: Final = 256 * 1024
"""A larger content is not held; its conflict has no diff."""
ALL_BYTES: Final = 32 * 1024 * 1024


class SeenContents:
    """Path → digest and content as last read or written there, least recent first."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._contents: dict[str, tuple[str, bytes]] = {}
        self._size = 0

    def remember(self, path: str, digest: str, content: bytes) -> None:
        """Hold the content that was read or written at a path, instead of the one before."""
        self._forget(path)
        if len(content) > ONE_BYTES:
            return
        self._contents[path] = digest, content
        self._size += len(content)
        while self._size > ALL_BYTES:
            self._forget(next(iter(self._contents)))

    def _forget(self, path: str) -> None:
        if (before := self._contents.pop(path, None)) is not None:
            self._size -= len(before[1])

    def is_held(self, path: str, digest: str, content: bytes) -> bool:
        """Return whether this content is held under this digest, which then need not be computed again."""
        return self._contents.get(path) == (digest, content)

    def get(self, path: str, digest: str) -> bytes | None:
        """Return a content read at a path, in this process or (from the history) in an earlier one."""
        found = self._contents.get(path)
        if found is not None and found[0] == digest:
            return found[1]
        if not digest:
            return None
        from surehand.history.history import HISTORY  # lazy: history, 55 ms

        return self._session.keep(HISTORY).read_seen(digest)

    def close(self) -> None:
        """Write the contents to the history, for processes that resume this session."""
        if self._session.name is None or self._session.state_dir is None or not self._contents:
            return
        from surehand.history.history import History  # lazy: history, 55 ms

        limit = self._session.settings.history.limit_mb * 1024 * 1024
        try:
            history = History(os.path.join(self._session.state_dir, "history"), limit)
            try:
                history.write_seen(dict(self._contents.values()))
            finally:
                history.close()
        except ToolFailure as problem:  # costs no more than the diff of a later conflict
            self._session.emit("note", message=f"what was read is not kept for later: {problem}")


async def _close(contents: SeenContents) -> None:
    contents.close()


SEEN: Final = Kept("seen contents", make=SeenContents, close=_close)
"""`ctx.session.keep(SEEN).remember(path, digest, content)`, called by every tool that shows a file to the session."""
