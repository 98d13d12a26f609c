"""Compressed bodies, unpacked in small bounded pieces: whoever stops reading stops the unpacking."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

ACCEPTED: Final = "gzip, deflate"
"""What is asked of servers: the encodings that can be unpacked piece by piece with the standard library."""

PIECE_BYTES: Final = 64 * 1024
MAX_MEMBERS: Final = 64
_IDENTITY: Final = frozenset({"", "identity"})
_ZLIB: Final = frozenset({"gzip", "x-gzip", "deflate"})


class Damaged(Exception):
    """The compressed body does not unpack."""


class Unsupported(Exception):
    """The body is packed in a way that was not asked for."""


class Unpacker:
    """Turns the chunks of a body into unpacked pieces, none larger than `PIECE_BYTES`."""

    def __init__(self, content_encoding: str) -> None:
        names = [each.strip().lower() for each in content_encoding.split(",")]
        layers = [name for name in names if name not in _IDENTITY]
        if len(layers) > 1 or any(name not in _ZLIB for name in layers):
            raise Unsupported(", ".join(layers))
        self._packed = bool(layers)
        self._stream = zlib.decompressobj(wbits=47)  # 47: tell gzip and zlib apart by their headers
        self._members = 0
        self._begun = False

    @property
    def finished(self) -> bool:
        """Whether what was packed has come to its end."""
        return not self._packed or self._stream.eof or not self._begun

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        """Yield what `chunk` unpacks to; raise Damaged."""
        if not self._packed:
            yield chunk
            return
        while chunk:
            piece = self._unpacked(chunk)
            chunk = self._stream.unconsumed_tail
            if self._stream.eof:
                chunk = self._next_member()
            if piece:
                yield piece

    def _unpacked(self, chunk: bytes) -> bytes:
        try:
            piece = self._stream.decompress(chunk, PIECE_BYTES)
        except zlib.error as problem:
            if self._begun:
                raise Damaged(str(problem)) from None
            self._stream = zlib.decompressobj(wbits=-15)  # some servers send "deflate" without its header
            piece = self._raw(chunk)
        self._begun = True
        return piece

    def _raw(self, chunk: bytes) -> bytes:
        try:
            return self._stream.decompress(chunk, PIECE_BYTES)
        except zlib.error as problem:
            raise Damaged(str(problem)) from None

    def _next_member(self) -> bytes:
        """Begin the next gzip member, if one follows; what else follows is padding."""
        rest = self._stream.unused_data
        self._members += 1
        if not rest.startswith(b"\x1f\x8b"):
            return b""
        if self._members >= MAX_MEMBERS:
            raise Damaged(f"more than {MAX_MEMBERS} gzip members")
        self._stream = zlib.decompressobj(wbits=47)
        return rest
