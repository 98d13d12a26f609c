"""What a command printed, as text: whether it is text at all, and what stands for the bytes that are none."""

from __future__ import annotations

from typing import Final

_ASCII_MAGIC: Final = (b"\x7fELF", b"%PDF", b"GIF8", b"BM", b"RIFF", b"PK")
"""Beginnings of binary formats that have no byte over 127, so that the quick look at all bytes misses them."""
_CONTROLS: Final = bytes([*range(7), *range(14, 27), *range(28, 32), 127])
"""Control characters that no terminal program prints."""
_MOST_STRAY: Final = 0.3
"""The share of bytes that may be no text in what is still one: a name in Latin-1, a cut character, a stray byte."""


def binary_kind(head: bytes, *, whole: bool = True) -> str:
    """Return what kind of binary data begins so, or an empty text for text, some stray bytes in it included."""
    if head.isascii() and not head.count(0) and not head.startswith(_ASCII_MAGIC):
        return ""
    from surehand.files.sniff import signature  # lazy: sniff, 9 ms

    if (found := signature(head)) is not None:
        return f"binary output: {found.format}"
    if b"\0" in head:
        return r"binary output: it has NUL bytes (`| tr '\0' '\n'` shows what they part)"
    stray = _stray(head if whole else head[: whole_characters(head)])
    odd = len(head) - len(head.translate(None, _CONTROLS))
    if stray and stray + odd > len(head) * _MOST_STRAY:
        return "binary output: it is not valid UTF-8 (`| cat -v` shows it, or `iconv` from its encoding)"
    return ""


def decode_output(data: bytes, *, begins: bool = True, ends: bool = True) -> tuple[str, int]:
    r"""Return bytes as text, and how many of them stand in it as `\xNN` because they are no text.

    Where what was printed does not begin or end here, a character cut in two goes instead.
    """
    if not begins:
        data = data[next((at for at in range(min(3, len(data))) if data[at] & 0xC0 != 0x80), min(3, len(data))) :]
    if not ends:
        data = data[: whole_characters(data)]
    try:
        text, stray = data.decode(), 0
    except UnicodeDecodeError:
        text, stray = data.decode("utf-8", "backslashreplace"), _stray(data)
    if nuls := text.count("\0"):
        text = text.replace("\0", r"\x00")
    return text, stray + nuls


def stray_note(count: int) -> str:
    """Say how many bytes are no text; nothing when all are."""
    if not count:
        return ""
    counted = "1 binary byte" if count == 1 else f"{count:,} binary bytes"
    return rf"[{counted} in it, NUL or not valid UTF-8, shown as \xNN]"


def whole_characters(data: bytes) -> int:
    """Return how many bytes at the beginning end with a whole character; the rest may still come."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        need = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return len(data) - back if need > back else len(data)
    return len(data)


def _stray(data: bytes) -> int:
    return len(data) - len(data.decode("utf-8", "ignore").encode())
