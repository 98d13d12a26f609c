"""The body of an answer as it comes in: unpacked, cut at a limit, with word of what went wrong on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import TYPE_CHECKING, Final

from surehand.core.errors import ToolFailure
from surehand.web.inflate import ACCEPTED, Damaged, Unpacker, Unsupported

if TYPE_CHECKING:
    import httpx2

PROGRESS_S: Final = 0.5


class Body:
    """A body as it comes in: unpacked, never more than `limit` bytes, and what went wrong on the way.

    Where there is more than that, `most` is asked, with what is there, how much more is wanted.
    """

    def __init__(self, limit: int, most: Callable[[bytes], int] = lambda body: 0) -> None:
        self.cut = False
        self.complete = False
        self.trouble = ""
        self._limit = limit
        self._most: Callable[[bytes], int] | None = most
        self._raw = 0
        self._size = 0
        self._kept = BytesIO()

    def data(self) -> bytes:
        """Return what was read, without a copy of it."""
        return self._kept.getvalue()

    async def fill(self, response: httpx2.Response, headers: Mapping[str, str], report: Callable[[int], None]) -> None:
        """Read the body up to its limit."""
        import httpx2

        clock = asyncio.get_running_loop().time
        reported = clock()
        try:
            unpacker = Unpacker(headers.get("content-encoding", ""))
            async for chunk in response.aiter_raw():
                self._take(unpacker, chunk)
                if self.cut:
                    return
                if clock() - reported >= PROGRESS_S:
                    reported = clock()
                    report(self._size)
            self.complete = unpacker.finished
            self.trouble = "" if self.complete else "its compression ends too soon"
        except Unsupported as problem:
            raise ToolFailure(
                f"the server packed its answer as {problem}, though only {ACCEPTED} was asked for"
            ) from None
        except (Damaged, httpx2.RemoteProtocolError, httpx2.ReadError) as problem:
            self._broke(problem)

    def _take(self, unpacker: Unpacker, chunk: bytes) -> None:
        self._raw += len(chunk)
        for piece in unpacker.pieces(chunk):
            self._size += self._kept.write(piece)
            if self._is_over():
                break
        if self._is_over():
            self._kept.truncate(self._limit)
            self.cut = True

    def _is_over(self) -> bool:
        """Return whether there is more than is wanted, counting endless input that unpacks to nothing too."""
        if self._most is not None and max(self._size, self._raw) > self._limit:
            self._limit, self._most = max(self._limit, self._most(self.data())), None
        return max(self._size, self._raw) > self._limit

    def _broke(self, problem: Exception) -> None:
        what = "its compression is damaged" if isinstance(problem, Damaged) else "the server closed the connection"
        if not self._size:
            raise ToolFailure(f"no answer could be read: {what} ({problem})") from problem
        self.trouble = what
