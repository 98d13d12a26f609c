"""`EditorBuffers`: files as the editor has them open, text that is not saved included.

An editor speaks of text, with one kind of line end and no encoding; files are bytes. What is in the buffer as it is on
disk stays the bytes that are there, line by line; only lines that differ are encoded anew, as the file is.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, Final, TypeVar

from acp import RequestError
from surehand.files.merge import Change, TooDifferentError, compare
from surehand.files.text import UTF8, detect, newline_style

if TYPE_CHECKING:
    from acp import Client

T = TypeVar("T")
TIMEOUT_S: Final = 10.0
"""How long an editor may take; one that does not answer is worked without."""
SIZE_LIMIT_BYTES: Final = 16 * 1024 * 1024
"""A larger file is read and written on disk alone."""
_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")


class EditorBuffers:
    """The buffers of one session's editor; used by tools in worker threads."""

    def __init__(self, client: Client, session_id: str, *, writes: bool) -> None:
        self._client = client
        self._session_id = session_id
        self._writes = writes
        self._loop = asyncio.get_running_loop()

    def read(self, path: str, on_disk: bytes) -> bytes | None:
        """Return what the editor would save of a file; None where that is what is on disk, or it does not say."""
        if len(on_disk) > SIZE_LIMIT_BYTES:
            return None
        held = self._wait_for(self._client.read_text_file(session_id=self._session_id, path=path))
        return None if held is None else unsaved_bytes(on_disk, held.content)

    def show(self, path: str, text: str) -> None:
        """Put a file's new text into its buffer, which the editor saves; its old text would be saved over it later."""
        if self._writes and len(text) <= SIZE_LIMIT_BYTES:
            self._wait_for(self._client.write_text_file(session_id=self._session_id, path=path, content=text))

    def _wait_for(self, request: Coroutine[Any, Any, T]) -> T | None:
        waiting = asyncio.run_coroutine_threadsafe(request, self._loop)
        try:
            return waiting.result(TIMEOUT_S)
        except (RequestError, OSError, TimeoutError, CancelledError):
            waiting.cancel()  # a file it does not have, a client that has left or hangs
            return None


def unsaved_bytes(on_disk: bytes, text: str) -> bytes | None:
    """Return the bytes of a buffer's text as its file has them; None where both hold the same text."""
    encoding = detect(on_disk)
    if encoding is None:
        return None
    old, new = _LINE.findall(encoding.decode(on_disk, "surrogateescape")), _LINE.findall(text)
    plain_old, plain_new = [*map(_plain, old)], [*map(_plain, new)]
    if plain_old == plain_new:
        return None
    end = newline_style(on_disk, encoding)
    changed = [line if (bare := _bare(line)) == line else bare + end for line in new]
    try:
        changes = compare(plain_old, plain_new)
    except TooDifferentError:
        changes = [Change(0, len(old), 0, len(new))]
    lines: list[str] = []
    position = 0
    for each in changes:
        lines += [*old[position : each.start], *changed[each.new_start : each.new_end]]
        position = each.end
    whole = "".join((*lines, *old[position:]))
    try:
        return encoding.bom + whole.encode(encoding.codec, "surrogateescape")
    except UnicodeEncodeError:  # a letter the file's encoding has not: editors save such a text as UTF-8
        return whole.encode(UTF8.codec, "surrogateescape")


def _bare(line: str) -> str:
    return line.rstrip("\r\n")


def _plain(line: str) -> bytes:
    """Return a line as both sides spell it: with a line feed, where it has any end."""
    bare = _bare(line)
    return (bare if bare == line else f"{bare}\n").encode("utf-8", "surrogatepass")
