"""PDF: text by page, read in a bounded process; broken, encrypted and explosive ones refused."""

from __future__ import annotations

import os
import resource
import time
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from surehand.core.call import ToolCall
from surehand.core.context import ToolContext
from surehand.core.errors import ToolFailure
from surehand.core.session import Session
from surehand.core.settings import Settings
from surehand.files.pdf import ALL, PdfText, page_range, read_pdf
from surehand.tools import read


def drawn(text: str) -> bytes:
    rows = " ".join(f"({row}) Tj T*" for row in text.split("\n"))
    return f"BT /F1 12 Tf 72 720 Td 14 TL {rows} ET".encode()


def document(pages: Sequence[bytes], trailer: bytes = b"") -> bytes:
    """Return a PDF whose pages have these (compressed) content streams."""
    kids = b" ".join(b"%d 0 R" % (4 + 2 * number) for number in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, len(pages)),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, stream in enumerate(pages):
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> "
            b"/Contents %d 0 R >>" % (5 + 2 * number)
        )
        objects.append(
            b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(stream), stream),
        )
    content, places = b"%PDF-1.4\n", list[int]()
    for number, each in enumerate(objects, 1):
        places.append(len(content))
        content += b"%d 0 obj\n%s\nendobj\n" % (number, each)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    size, start = len(objects) + 1, len(content)
    content += b"xref\n0 %d\n0000000000 65535 f \n%s" % (size, table)
    return content + b"trailer << /Size %d /Root 1 0 R %s >>\nstartxref\n%d\n%%%%EOF\n" % (size, trailer, start)


def simple(*texts: str, trailer: bytes = b"") -> bytes:
    return document([zlib.compress(drawn(text)) for text in texts], trailer)


def opened(tmp_path: Path, content: bytes, first: int = 1, last: int = ALL, budget: int = 100_000) -> PdfText:
    (tmp_path / "a.pdf").write_bytes(content)
    fd = os.open(tmp_path / "a.pdf", os.O_RDONLY)
    try:
        return read_pdf(fd, "/a.pdf", first, last, budget)
    finally:
        os.close(fd)


def test_text_comes_by_page(tmp_path: Path) -> None:
    found = opened(tmp_path, simple("Hello there\nsecond line", "Page two"))
    assert found.count == 2
    assert [(page.number, page.text) for page in found.pages] == [(1, "Hello there\nsecond line"), (2, "Page two")]


def test_a_range_chooses_pages(tmp_path: Path) -> None:
    content = simple(*(f"This is page {number}" for number in range(1, 8)))
    assert [page.number for page in opened(tmp_path, content, 3, 5).pages] == [3, 4, 5]
    with pytest.raises(ToolFailure, match="no page 9"):
        opened(tmp_path, content, 9)


@pytest.mark.parametrize(
    ("text", "pages"), [("3", (3, 3)), ("1-5", (1, 5)), (" 2 - 4 ", (2, 4)), ("10-", (10, ALL)), ("-4", (1, 4))]
)
def test_ranges_are_written_as_people_write_them(text: str, pages: tuple[int, int]) -> None:
    assert page_range(text) == pages


@pytest.mark.parametrize("text", ["", "-", "a", "0", "5-2", "1,2", "1-2-3", "9" * 40])
def test_a_bad_range_is_named(text: str) -> None:
    with pytest.raises(ToolFailure) as caught:
        page_range(text)
    assert caught.value.code == "invalid_args"


def test_long_text_is_cut_at_the_budget(tmp_path: Path) -> None:
    found = opened(tmp_path, simple("x" * 60, "y" * 60, "z" * 60), budget=100)
    assert [(len(page.text), page.cut) for page in found.pages] == [(60, False), (40, True)]


def test_an_encrypted_document_is_a_clear_error(tmp_path: Path) -> None:
    lock = b"/Encrypt << /Filter /Standard /V 1 /R 2 /O <%s> /U <%s> /P -44 >> /ID [<00><00>]" % (
        b"ab" * 32,
        b"cd" * 32,
    )
    with pytest.raises(ToolFailure, match="encrypted") as caught:
        opened(tmp_path, simple("secret", trailer=lock))
    assert "password" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("content", [b"%PDF-1.4\n", b"%PDF-1.7\n" + b"garbage " * 100, simple("x")[:200]])
def test_a_broken_document_is_a_clear_error(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ToolFailure, match=r"/a\.pdf is a PDF that cannot be read"):
        opened(tmp_path, content)


def bomb(size: int) -> bytes:
    """Return a stream of blanks of this size; one flushed stretch, repeated, spares compressing it all."""
    packer = zlib.compressobj(9)
    first = packer.compress(b" " * (1 << 24)) + packer.flush(zlib.Z_FULL_FLUSH)
    return first + first[2:] * ((size >> 24) - 1) + b"\x03\x00"


def test_a_stream_that_inflates_to_a_gigabyte_is_refused_in_bounds(tmp_path: Path) -> None:
    content = document([bomb(1 << 30)])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.monotonic()
    with pytest.raises(ToolFailure, match="memory"):
        opened(tmp_path, content)
    assert time.monotonic() - started < 60  # what hangs, hangs without end
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024


def call(tmp_path: Path, **values: object) -> read.ToolResult:
    session = Session(str(tmp_path), settings=Settings())
    ctx = ToolContext(ToolCall("Read"), session, lambda progress: None, {})
    return read.run(read.TOOLS[0].arguments.parse({"file_path": "a.pdf", **values}), ctx)


def test_read_shows_type_size_and_pages_and_says_how_to_go_on(tmp_path: Path) -> None:
    content = simple(*(f"This is page {number}" for number in range(1, 8)))
    (tmp_path / "a.pdf").write_bytes(content)
    result = call(tmp_path)
    assert f"{len(content):,} bytes, 7 pages" in result.output
    assert "--- page 7 of 7\nThis is page 7" in result.output
    assert result.data["pages"] == 7
    assert [page["page"] for page in call(tmp_path, pages="2-3").data["text"]] == [2, 3]
    assert [page["page"] for page in call(tmp_path, offset=4, limit=2).data["text"]] == [5, 6]


def test_read_says_when_pages_hold_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(document([zlib.compress(b"0 0 100 100 re f")]))
    assert "no text" in call(tmp_path).output
