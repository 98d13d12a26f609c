"""What bytes are, by their beginning."""

from __future__ import annotations

import random
import tarfile
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from surehand.files.sniff import signature, sniff, wide_encoding


def packed(kind: str) -> bytes:
    buffer = BytesIO()
    if kind == "tar":
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            archive.addfile(tarfile.TarInfo("a.txt"))
    else:
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("[Content_Types].xml" if kind == "docx" else "a.txt", "x")
            archive.writestr("word/document.xml", "x")
    return buffer.getvalue()


FORMATS = {
    "ELF": (b"\x7fELF\x02\x01\x01\x00", "binary"),
    "PNG": (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "image"),
    "JPEG": (b"\xff\xd8\xff\xe0\x00\x10JFIF\x00", "image"),
    "PDF": (b"%PDF-1.7\n%\xe2\xe3", "pdf"),
    "GIF": (b"GIF89a\x01\x00\x01\x00\x80\x00\x00", "image"),
    "GZIP": (b"\x1f\x8b\x08\x00\x00\x00", "binary"),
    "ZIP": (packed("zip"), "binary"),
    "TAR": (packed("tar"), "binary"),
    "WebAssembly": (b"\x00asm\x01\x00\x00\x00", "binary"),
    "Mach-O program (32": (b"\xce\xfa\xed\xfe\x07\x00\x00\x00", "binary"),
    "Mach-O program (64": (b"\xcf\xfa\xed\xfe\x07\x00\x00\x01", "binary"),
    "BMP": (b"BM\x46\x00\x00\x00\x00\x00\x00\x00\x36\x00\x00\x00\x28\x00\x00\x00", "image"),
    "WebP": (b"RIFF\x24\x00\x00\x00WEBPVP8 ", "image"),
    "TIFF": (b"II*\x00\x08\x00\x00\x00", "image"),
    "HEIC": (b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic", "image"),
    "AVIF": (b"\x00\x00\x00\x1cftypavif\x00\x00\x00\x00mif1avif", "image"),
    "MP4": (b"\x00\x00\x00\x18ftypisom\x00\x00\x02\x00isomiso2", "binary"),
    "WAV": (b"RIFF\x24\x00\x00\x00WAVEfmt ", "binary"),
    "Java": (b"\xca\xfe\xba\xbe\x00\x00\x00\x41", "binary"),
    "universal": (b"\xca\xfe\xba\xbe\x00\x00\x00\x02", "binary"),
    "SQLite": (b"SQLite format 3\x00\x10\x00", "binary"),
    "Word document": (packed("docx"), "binary"),
    "Windows program": (b"MZ\x90\x00\x03\x00\x00\x00", "binary"),
    "BZIP2": (b"BZh91AY&SY\x00\x01", "binary"),
    "XZ": (b"\xfd7zXZ\x00\x00\x04", "binary"),
}


@pytest.mark.parametrize("name", FORMATS)
def test_each_format_is_known_by_its_first_bytes(name: str) -> None:
    content, kind = FORMATS[name]
    found = sniff(content)
    assert name in found.format
    assert found.kind == kind
    assert sniff(content + bytes(9000)).format == found.format


@pytest.mark.parametrize(
    "text",
    [
        b"", b"BM is short for bitmap\n", b"MZ\n", b"GIF89a is a header\n", b"PK is a name\n", b"RIFF text WEBP text\n",
        b"PACK my box\n", b"ID3 tags are old\n", b"hello\n", b"\x1b[31mred\x1b[0m\n", b"form\x0cfeed\n",
        b"BZh is no archive\n",
        "日本語\n".encode(), "grün\n".encode("latin-1"), "中文内容\n".encode("gbk"), b"%!PS-Adobe-3.0\n",
        b"OTTO von B.\n",
        b"a" * 8000, b"\xef\xbb\xbfwith a mark\n", b"x %PDF-1.4 in a text\n",
    ],
)  # fmt: skip
def test_text_stays_text(text: bytes) -> None:
    assert sniff(text).kind == "text"
    assert signature(text) is None


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("text", ["Plain words here.\r\nAnd more.\r\n", "日本語 のテキスト\n", "emoji 😀 here\n"])
def test_wide_unicode_is_text_wherever_the_head_ends(codec: str, text: str) -> None:
    content = (text * 1200).encode(codec)
    for size in (8000, 7998, 7996, len(text.encode(codec))):
        found = wide_encoding(content[:size])
        assert found is not None, size
        assert found.codec.startswith(codec[:6].rstrip("-"))
        assert sniff(content[:size]).kind == "text"


def test_random_data_is_binary() -> None:
    rng = random.Random(7)
    assert all(sniff(rng.randbytes(4000)).kind == "binary" for _ in range(300))
    assert sniff(b"some words\0and a NUL\n").kind == "binary"
    assert sniff(b"\x01\x02\x03 few words").kind == "binary"


def test_the_files_of_this_project_are_text() -> None:
    root = Path(__file__).parents[2]
    files = [*root.glob("src/**/*.py"), *root.glob("*.toml"), *root.glob("docs/**/*.md")]
    assert len(files) > 20
    assert [str(path) for path in files if sniff(path.read_bytes()[:8000]).kind != "text"] == []
