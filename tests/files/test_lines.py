"""Pages of lines: right for any content, however it is cut into blocks."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest

from surehand.files import lines
from surehand.files.lines import BLOCK, LINE_BYTES, FileBytes, HeldBytes, LineIndex, LineIndexes


def whole_lines(content: bytes) -> list[bytes]:
    *ended, last = content.split(b"\n")
    return [row + b"\n" for row in ended] + ([last] if last else [])


def random_content(rng: random.Random) -> bytes:
    size = rng.choice([0, 1, 5, 1000, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 20 * BLOCK])
    longest = rng.choice([1, 3, 60, 400, 3000])
    parts: list[bytes] = []
    while size > 0:
        part = b"x" * min(rng.randrange(longest + 1), size)
        part += b"\n" if len(part) < size else b""
        parts.append(part or b"\n")
        size -= len(parts[-1])
    return b"".join(parts) + rng.choice([b"", b"end"])


def test_any_page_of_any_content_holds_the_right_lines() -> None:
    rng = random.Random(3)
    for _ in range(40):
        content = random_content(rng)
        expected = whole_lines(content)
        index, source = LineIndex(), HeldBytes(content)
        for _ in range(8):
            offset, limit = rng.randrange(len(expected) + 3), rng.choice([1, 2, 100, 5000])
            start = index.start_of(offset, source)
            page = lines.page(lines.chunks(source, len(content) if start is None else start), limit, 10**9)
            assert page.lines == expected[offset : offset + limit]
            assert page.more == (offset + limit < len(expected))


def test_the_index_of_a_file_and_of_its_bytes_agree(tmp_path: Path) -> None:
    content = b"".join(b"%d\n" % number for number in range(300_000))
    (tmp_path / "a").write_bytes(content)
    fd = os.open(tmp_path / "a", os.O_RDONLY)
    file, held = FileBytes(fd, len(content)), HeldBytes(content)
    warm = LineIndex()
    for line in (299_999, 5, 150_000, 1, 0, 299_998, 300_000):
        expected = content.index(b"\n%d\n" % line) + 1 if 0 < line < 300_000 else 0 if line == 0 else len(content)
        assert warm.start_of(line, file) == LineIndex().start_of(line, held) == expected
    assert warm.start_of(300_001, file) is None
    assert warm.all_feeds(file) == 300_000
    os.close(fd)


def test_holes_are_passed_over_without_reading_them(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.write(b"a\nb\n")
        file.seek(20 << 30)
        file.write(b"\nc\nd")
    fd = os.open(path, os.O_RDONLY)
    source, index = FileBytes(fd, path.stat().st_size), LineIndex()
    start = index.start_of(3, source)
    assert start == (20 << 30) + 1
    assert lines.page(lines.chunks(source, start), 5, 1000).lines == [b"c\n", b"d"]
    assert index.all_feeds(source) == 4
    os.close(fd)


def test_numbers_look_as_cat_n_writes_them(tmp_path: Path) -> None:
    rows = [b"x%d\n" % number for number in range(12_344)] + [b"last"]
    (tmp_path / "a").write_bytes(b"".join(rows))
    expected = subprocess.run(["cat", "-n", tmp_path / "a"], capture_output=True, check=True).stdout
    assert lines.number_lines(rows, 1) == expected
    assert lines.number_lines(rows[998:1003], 999) == b"\n".join(expected.split(b"\n")[998:1003])
    assert lines.number_lines([b"a\n", b"b\n"], 999_999) == b"999999\ta\n1000000\tb"


@pytest.mark.parametrize("length", [LINE_BYTES - 1, LINE_BYTES, LINE_BYTES + 1, 5 * BLOCK, 40 * BLOCK])
def test_of_a_long_line_only_the_beginning_is_kept(length: int) -> None:
    content = b"first\n" + b"y" * length + b"\nlast\n"
    page = lines.page(lines.chunks(HeldBytes(content), 0), 10, 10**6)
    assert page.lines == [b"first\n", b"y" * min(length, LINE_BYTES) + b"\n", b"last\n"]
    assert page.left_out.get(1, 0) == max(0, length - LINE_BYTES)


def test_a_page_keeps_to_its_budget_and_always_holds_a_line() -> None:
    content = b"z" * 700 + b"\n" + b"".join(b"%d\n" % number for number in range(5000))
    page = lines.page(lines.chunks(HeldBytes(content), 0), 10_000, 500)
    assert page.lines == [b"z" * 700 + b"\n"]
    assert page.more
    assert page.cut_by_budget
    page = lines.page(lines.chunks(HeldBytes(content), 0), 10_000, 5_000)
    assert len(lines.number_lines(page.lines, 1)) <= 5_000


def test_a_line_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "SCAN_LIMIT", 40 * BLOCK)
    content = b"a\n" + b"y" * (100 * BLOCK)
    page = lines.page(lines.chunks(HeldBytes(content), 0), 10, 10**6)
    assert len(page.lines) == 2
    assert page.endless
    assert page.more


def test_an_index_is_kept_for_a_file_as_long_as_its_status_stays(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("1\n")
    kept = LineIndexes()
    first = kept.of(path.stat())
    assert kept.of(path.stat()) is first
    path.write_text("1\n2\n")
    assert kept.of(path.stat()) is not first
    for number in range(100):
        other = tmp_path / str(number)
        other.touch()
        kept.of(other.stat())
    assert len(kept) == lines.KEPT_INDEXES


def test_other_encodings_are_read_through_any_cut() -> None:
    text = "äö😀\n" * 9000
    for codec in ("utf-16-le", "utf-32-be"):
        parts = lines.decoded_chunks(lines.chunks(HeldBytes(text.encode(codec)), 0), codec)
        assert b"".join(lines.skip_lines(parts, 4000)).decode() == "äö😀\n" * 5000
