"""The body of an answer as it comes in: unpacked, cut at a limit, with word of what went wrong on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from holdfast.core.errors import ToolFailure
from holdfast.host.inflate import ACCEPTED, Damaged, Unpacker, Unsupported

if TYPE_CHECKING:
    import httpx2

PROGRESS_S: Final = 0.5


class Body:
    """A body as it comes in: unpacked, never more than `limit` bytes, and what went wrong on the way."""

    def __init__(self, limit: int) -> None:
        self.data = bytearray()
        self.cut = False
        self.complete = False
        self.trouble = ""
        self._limit = limit
        self._raw = 0

    async def fill(self, response: httpx2.Response, headers: Mapping[str, str], report: Callable[[int], None]) -> None:
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
                    report(len(self.data))
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
            self.data += piece
            if len(self.data) > self._limit:
                break
        if len(self.data) > self._limit or self._raw > self._limit:  # endless input that unpacks to nothing
            del self.data[self._limit :]
            self.cut = True

    def _broke(self, problem: Exception) -> None:
        what = "its compression is damaged" if isinstance(problem, Damaged) else "the server closed the connection"
        if not self.data:
            raise ToolFailure(f"no answer could be read: {what} ({problem})") from problem
        self.trouble = what
