"""Sniff the type of a file from its first bytes, never from its name: text, an image, a PDF, a program and others.

    found = sniff(head)              # head: the first HEAD_BYTES of a file or of a command's output
    found.kind                       # "text", "image", "pdf" or "binary"
    found.format                     # "PNG image", "ELF program"; "" if unknown

A signature counts only if the bytes around it fit, so that a text which happens to begin with `BM`, `MZ` or `GIF89a`
is still a text.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from typing import Final, Literal

from surehand.core.frozen import frozen
from surehand.files.text import HEAD_BYTES, Encoding, detect

__all__ = ["HEAD_BYTES", "Found", "Kind", "has_control", "looks_like_text", "signature", "sniff", "wide_encoding"]

Kind = Literal["text", "image", "pdf", "binary"]


@frozen
class Found:
    """The type of some bytes, for programs (`kind`, `mime`) and for people (`format`)."""

    kind: Kind
    format: str = ""
    mime: str = "application/octet-stream"


TEXT: Final = Found("text", "text", "text/plain")
UNKNOWN: Final = Found("binary", "binary data")
PDF: Final = Found("pdf", "PDF document", "application/pdf")


def _binary(name: str, mime: str = "application/octet-stream") -> Found:
    return Found("binary", name, mime)


def _image(name: str, mime: str) -> Found:
    return Found("image", f"{name} image", mime)


ZIP: Final = _binary("ZIP archive", "application/zip")
GZIP: Final = _binary("GZIP archive", "application/gzip")
TAR: Final = _binary("TAR archive", "application/x-tar")
ELF: Final = _binary("ELF program", "application/x-elf")
MACH_O_32: Final = _binary("Mach-O program (32 bit)", "application/x-mach-binary")
MACH_O_64: Final = _binary("Mach-O program (64 bit)", "application/x-mach-binary")
MACH_O_FAT: Final = _binary("Mach-O program (universal)", "application/x-mach-binary")
WASM: Final = _binary("WebAssembly module", "application/wasm")
JAVA: Final = _binary("Java class", "application/java-vm")
HEIC: Final = _image("HEIC", "image/heic")
AVIF: Final = _image("AVIF", "image/avif")
VIDEO: Final = _binary("MP4 video", "video/mp4")

# Signatures at the first byte. Those of only letters and digits could begin a text, so they count only if a control
# character is near.
_SIGNATURES: Final[tuple[tuple[bytes, Found], ...]] = (
    (b"\x7fELF", ELF),
    (b"\x89PNG\r\n\x1a\n", _image("PNG", "image/png")),
    (b"\xff\xd8\xff", _image("JPEG", "image/jpeg")),
    (b"\x1f\x8b", GZIP),
    (b"PK\x03\x04", ZIP),
    (b"PK\x05\x06", ZIP),
    (b"PK\x07\x08", ZIP),
    (b"\x00asm", WASM),
    (b"\xfe\xed\xfa\xce", MACH_O_32),
    (b"\xce\xfa\xed\xfe", MACH_O_32),
    (b"\xfe\xed\xfa\xcf", MACH_O_64),
    (b"\xcf\xfa\xed\xfe", MACH_O_64),
    (b"II*\x00", _image("TIFF", "image/tiff")),
    (b"MM\x00*", _image("TIFF", "image/tiff")),
    (b"II+\x00", _image("TIFF", "image/tiff")),
    (b"MM\x00+", _image("TIFF", "image/tiff")),
    (b"\x00\x00\x01\x00", _binary("Windows icon", "image/vnd.microsoft.icon")),
    (b"\xff\x0a", _binary("JPEG XL image", "image/jxl")),
    (b"\x00\x00\x00\x0cJXL ", _binary("JPEG XL image", "image/jxl")),
    (b"\x00\x00\x00\x0cjP  ", _binary("JPEG 2000 image", "image/jp2")),
    (b"\xfd7zXZ\x00", _binary("XZ archive", "application/x-xz")),
    (b"7z\xbc\xaf\x27\x1c", _binary("7z archive", "application/x-7z-compressed")),
    (b"\x28\xb5\x2f\xfd", _binary("Zstandard archive", "application/zstd")),
    (b"\x04\x22\x4d\x18", _binary("LZ4 archive")),
    (b"Rar!\x1a\x07", _binary("RAR archive", "application/vnd.rar")),
    (b"SQLite format 3\x00", _binary("SQLite database", "application/vnd.sqlite3")),
    (
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
        _binary("Microsoft Office document (old format)", "application/x-ole-storage"),
    ),
    (b"\x1a\x45\xdf\xa3", _binary("Matroska or WebM video", "video/x-matroska")),
    (b"\x00\x01\x00\x00\x00", _binary("TrueType font", "font/ttf")),
    (b"wOFF\x00\x01\x00\x00", _binary("WOFF font", "font/woff")),
    (b"\x89HDF\r\n\x1a\n", _binary("HDF5 data", "application/x-hdf5")),
    (b"\x93NUMPY", _binary("NumPy array")),
    (b"BC\xc0\xde", _binary("LLVM bitcode")),
    (b"\xd4\xc3\xb2\xa1", _binary("network capture", "application/vnd.tcpdump.pcap")),
    (b"\xed\xab\xee\xdb", _binary("RPM package", "application/x-rpm")),
    (b"\x80\x02}", _binary("Python pickle")),
    (b"GIF87a", _image("GIF", "image/gif")),
    (b"GIF89a", _image("GIF", "image/gif")),
    (b"BZh", _binary("BZIP2 archive", "application/x-bzip2")),
    (b"MZ", _binary("Windows program", "application/vnd.microsoft.portable-executable")),
    (b"8BPS", _binary("Photoshop image", "image/vnd.adobe.photoshop")),
    (b"ID3", _binary("MP3 audio", "audio/mpeg")),
    (b"OggS", _binary("Ogg audio or video", "audio/ogg")),
    (b"fLaC", _binary("FLAC audio", "audio/flac")),
    (b"wOF2", _binary("WOFF2 font", "font/woff2")),
    (b"OTTO", _binary("OpenType font", "font/otf")),
    (b"PACK", _binary("Git pack")),
    (b"DIRC", _binary("Git index")),
    (b"PAR1", _binary("Parquet data", "application/vnd.apache.parquet")),
)

_BY_FIRST_BYTE: Final = {
    magic[:1]: tuple(each for each in _SIGNATURES if each[0][0] == magic[0]) for magic, _ in _SIGNATURES
}
_RIFF: Final = {
    b"WEBP": _image("WebP", "image/webp"),
    b"WAVE": _binary("WAV audio", "audio/wav"),
    b"AVI ": _binary("AVI video", "video/x-msvideo"),
}
_HEIC_BRANDS: Final = frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"})
_OFFICE: Final = ((b"word/", "Word document"), (b"xl/", "Excel workbook"), (b"ppt/", "PowerPoint presentation"))
# Control characters that occur in no text: all but BEL, BS, TAB, LF, VT, FF, CR and ESC.
_CONTROL: Final = bytes(set(range(32)) - {7, 8, 9, 10, 11, 12, 13, 27})


def sniff(head: bytes) -> Found:
    """Return the type of a file that begins with `head`."""
    return signature(head) or (TEXT if looks_like_text(head) else UNKNOWN)


def signature(head: bytes) -> Found | None:
    """Return the type whose signature `head` begins with, or None."""
    for magic, found in _BY_FIRST_BYTE.get(head[:1], ()):
        if head.startswith(magic) and (not magic.isalnum() or has_control(head[:64])):
            return _office(head) or found if found is ZIP else found
    for look in _LOOKS_BY_FIRST_BYTE.get(head[:1], ()):
        if found := look(head):
            return found
    return _pdf(head) or _tar(head)


def has_control(head: bytes) -> bool:
    """Whether there is a byte that occurs in no text (NUL and most control characters)."""
    return len(head.translate(None, _CONTROL)) != len(head)


def looks_like_text(head: bytes) -> bool:
    """Whether bytes without a known signature can be text in any encoding.

    Text contains NUL bytes only in UTF-16 and UTF-32, and few control characters. Bytes that are not valid UTF-8 may be
    text in another encoding.
    """
    if b"\0" in head or head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return wide_encoding(head) is not None
    return (len(head) - len(head.translate(None, _CONTROL))) * 10 <= len(head)


def wide_encoding(head: bytes) -> Encoding | None:
    """Return the UTF-16 or UTF-32 encoding that a file begins in; None for binary data and all other encodings."""
    if b"\0" not in head and not head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return None
    whole = len(head) - len(head) % 4
    # The head may end between two surrogates; it is then valid without its last unit.
    parts = (head[:whole], head[: whole - 2], head)
    found = next((each for part in parts if (each := detect(part)) and each.unit > 1), None)
    if found is None:
        return None
    # Almost any two bytes are a character in UTF-16: without a BOM, blanks or line ends must show that it is text.
    return found if found.bom or any(blank in found.decode(head, "ignore") for blank in " \n\r") else None


def _office(head: bytes) -> Found | None:
    names = head[30:2048]
    if b"[Content_Types].xml" not in names and b"_rels/" not in names:
        return None
    kind = next((name for mark, name in _OFFICE if mark in head), "Office document")
    return _binary(f"{kind} (ZIP archive)", "application/vnd.openxmlformats-officedocument")


def _pdf(head: bytes) -> Found | None:
    # Readers accept some bytes before the header: a BOM, blank lines, lines added by a mail gateway.
    at = head.find(b"%PDF-", 0, 1024)
    return PDF if at == 0 or (at > 0 and not head[:at].strip(b"\xef\xbb\xbf\r\n\t \0")) else None


def _riff(head: bytes) -> Found | None:
    if head[:4] != b"RIFF" or len(head) < 12 or not has_control(head[4:64]):
        return None
    return _RIFF.get(head[8:12], _binary("RIFF data"))


def _bmp(head: bytes) -> Found | None:
    header = int.from_bytes(head[14:18], "little")
    fits = head[:2] == b"BM" and head[6:10] == b"\0\0\0\0" and header in (12, 40, 52, 56, 64, 108, 124)
    return _image("BMP", "image/bmp") if fits else None


def _tar(head: bytes) -> Found | None:
    return TAR if head[257:262] == b"ustar" and b"\0" in head[:512] else None


def _boxes(head: bytes) -> Found | None:
    if head[4:8] != b"ftyp" or head[:1] != b"\0":
        return None
    length = min(max(int.from_bytes(head[:4], "big"), 16), 256)
    brands = [head[8:12], *(head[at : at + 4] for at in range(16, length, 4))]
    if b"avif" in brands or b"avis" in brands:
        return AVIF
    return HEIC if any(brand in _HEIC_BRANDS for brand in brands) else VIDEO


def _cafe_babe(head: bytes) -> Found | None:
    if head[:4] != b"\xca\xfe\xba\xbe":
        return None
    # Java classes and universal binaries begin with the same four bytes. A class version of 45 or more follows in the
    # one, a small number of architectures in the other.
    return JAVA if int.from_bytes(head[4:8], "big") >= 40 else MACH_O_FAT


_LOOKS_BY_FIRST_BYTE: Final[dict[bytes, tuple[Callable[[bytes], Found | None], ...]]] = {
    b"R": (_riff,),
    b"B": (_bmp,),
    b"\0": (_boxes,),
    b"\xca": (_cafe_babe,),
}
