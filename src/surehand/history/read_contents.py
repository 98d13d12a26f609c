"""The contents a session has seen, so that a later conflict can show what changed since.

Held in memory, bounded. A session with a name goes on in later processes: when it closes, they are written to the
history beside its changes.
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
    """Digest → content, the latest seen last."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._contents: dict[str, bytes] = {}
        self._size = 0

    def remember(self, digest: str, content: bytes) -> None:
        """Hold a content that was shown or written."""
        if len(content) > ONE_BYTES or digest in self._contents:
            return
        self._contents[digest] = content
        self._size += len(content)
        while self._size > ALL_BYTES:
            self._size -= len(self._contents.pop(next(iter(self._contents))))

    def is_held(self, digest: str, content: bytes) -> bool:
        """Say whether this very content is held under a digest: then it need not be worked out again."""
        return self._contents.get(digest) == content

    def get(self, digest: str) -> bytes | None:
        """Return a content seen in this process or, where a history is kept, in an earlier one."""
        found = self._contents.get(digest)
        if found is not None or not digest:
            return found
        from surehand.history.history import HISTORY  # lazy: history, 55 ms

        return self._session.keep(HISTORY).read_seen(digest)

    def close(self) -> None:
        """Write the contents down for the processes that continue this session."""
        if self._session.name is None or self._session.state_dir is None or not self._contents:
            return
        from surehand.history.history import History  # lazy: history, 55 ms

        limit = self._session.settings.history.limit_mb * 1024 * 1024
        try:
            history = History(os.path.join(self._session.state_dir, "history"), limit)
            try:
                history.write_seen(self._contents)
            finally:
                history.close()
        except ToolFailure as problem:  # only how a later conflict is shown depends on it
            self._session.emit("note", message=f"what was read is not kept for later: {problem}")


async def _close(contents: SeenContents) -> None:
    contents.close()


SEEN: Final = Kept("seen contents", make=SeenContents, close=_close)
"""`ctx.session.keep(SEEN).remember(digest, content)`: whoever shows a file to the session calls this."""
