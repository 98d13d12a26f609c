"""Rows of a PNG, one band after another: a large picture can be scaled down without ever being held whole.

Pillow decodes a PNG only as a whole, four bytes a pixel. Here its data is unpacked piece by piece, and each piece goes
through Pillow's own decoder as a small picture of its own, below the row that stood above it (a row may be stored as
its difference from that one). Only what stores a channel in a byte and comes row by row is read so; see `fits`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from PIL.Image import Image

_CHANNELS: Final = {"L": 1, "P": 1, "LA": 2, "RGB": 3, "RGBA": 4}
_SIGNATURE_BYTES: Final = 8


def fits(image: Image) -> bool:
    """Say whether the rows of an opened image can be read in bands."""
    tiles: Any = getattr(image, "tile", None)
    if image.format != "PNG" or not tiles or image.info.get("interlace"):
        return False
    return image.mode in _CHANNELS and tiles[0][3] == image.mode


class PngRows:
    """The rows of an opened PNG; they can be taken once, from top to bottom, each call overlapping the last at will."""

    def __init__(self, image: Image, content: bytes) -> None:
        self._image = image
        self._data = _Unpacked(content)
        self._above = bytes(image.width * _CHANNELS[image.mode])
        self._first, self._end = 0, 0
        self._held: Image | None = None

    def __call__(self, start: int, stop: int) -> Image:
        """Return the rows from `start` to `stop`; raises OSError where the file ends too early."""
        if stop > self._end:
            kept = self._cut(start, self._end) if self._held is not None and start < self._end else None
            added = self._decoded(stop - self._end)
            self._first, self._end = stop - added.height - (kept.height if kept else 0), stop
            self._held = added if kept is None else _stacked(kept, added)
        rows = self._cut(start, stop)
        if self._image.mode == "P" and (palette := self._image.palette) is not None:
            rows.putpalette(palette.palette, palette.rawmode or palette.mode)
        rows.info = self._image.info
        return rows

    def _cut(self, start: int, stop: int) -> Image:
        assert self._held is not None
        return self._held.crop((0, start - self._first, self._image.width, stop - self._first))

    def _decoded(self, count: int) -> Image:
        from PIL.Image import frombytes

        width, mode = self._image.width, "L" if self._image.mode == "P" else self._image.mode
        packed = zlib.compress(b"\0" + self._above + self._data.read(count * (len(self._above) + 1)), 0)
        rows = frombytes(mode, (width, count + 1), packed, "zip", mode, 0).crop((0, 1, width, count + 1))
        self._above = rows.crop((0, count - 1, width, count)).tobytes()
        return rows


def _stacked(upper: Image, lower: Image) -> Image:
    from PIL.Image import new

    both = new(upper.mode, (upper.width, upper.height + lower.height))
    both.paste(upper, (0, 0))
    both.paste(lower, (0, upper.height))
    return both


def orientation_data(content: bytes) -> bytes | None:
    """Return what a camera noted (Exif), wherever in the file it stands."""
    return next((body for name, body in _chunks(content) if name == b"eXIf"), None)


class _Unpacked:
    """The pixel data of a PNG, unpacked as far as it is asked for."""

    def __init__(self, content: bytes) -> None:
        self._packed = (body for name, body in _chunks(content) if name == b"IDAT")
        self._unpacker = zlib.decompressobj()

    def read(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size > 0:
            packed = self._unpacker.unconsumed_tail or next(self._packed, b"")
            if not packed:
                raise OSError("image file is truncated")
            part = self._unpacker.decompress(packed, size)
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def _chunks(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = _SIGNATURE_BYTES
    while at + 12 <= len(content):
        size, name = int.from_bytes(content[at : at + 4]), content[at + 4 : at + 8]
        body = content[at + 8 : at + 8 + size]
        check = content[at + 8 + size : at + 12 + size]
        if name == b"IDAT" and len(check) == 4 and zlib.crc32(body, zlib.crc32(name)) != int.from_bytes(check):
            raise OSError("broken PNG file (bad checksum)")
        yield name, body
        at += 12 + size
