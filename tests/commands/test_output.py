"""What a command prints is held in bounded memory, head and tail shown, all of it on disk when it is long."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from surehand.commands.output import Stream, binary_kind, mark_stderr, truncate_bytes
from surehand.core.text import STDERR_LIMIT, STDOUT_LIMIT


def printed(*parts: bytes, limit: int = 1000, file: Path | None = None) -> Stream:
    stream = Stream(limit, lambda: str(file) if file else None)
    for part in parts:
        stream.feed(part)
    stream.close()
    return stream


def test_short_output_is_shown_whole() -> None:
    shown = printed(b"a\n", "b ü\n".encode()).show()
    assert (shown.text, shown.cut, shown.file) == ("a\nb ü\n", 0, None)


def test_output_of_exactly_the_limit_is_not_cut(tmp_path: Path) -> None:
    shown = printed(b"x" * 1000, file=tmp_path / "all").show()
    assert shown.cut == 0
    assert len(shown.text) == 1000
    assert not (tmp_path / "all").exists()


@pytest.mark.parametrize("size", [1, 7, 64, 799, 800, 801, 5000])
def test_long_output_keeps_four_fifths_of_its_limit_from_the_head_and_one_from_the_tail(
    tmp_path: Path, size: int
) -> None:
    data = bytes(ord("a") + at % 26 for at in range(5000))
    file = tmp_path / "all"
    stream = printed(*(data[at : at + size] for at in range(0, 5000, size)), file=file)
    shown = stream.show()
    head, _, rest = shown.text.partition("\n\n[")
    note, _, tail = rest.partition("]\n\n")
    assert (head, tail) == (data[: len(head)].decode(), data[-200:].decode())
    assert 990 < len(shown.text) <= 1000  # the mark included
    assert note == f"{shown.cut:,} bytes left out here; all of it is in {file}"
    assert shown.cut == 5000 - len(head) - len(tail)
    assert file.read_bytes() == data


def test_the_limits_of_both_streams_make_256_kb_together() -> None:
    assert STDOUT_LIMIT + STDERR_LIMIT == 256 * 1024


def test_memory_stays_bounded_whatever_is_printed() -> None:
    stream = Stream(STDOUT_LIMIT)
    chunk = b"y\n" * 32768
    tracemalloc.start()
    for _ in range(2000):
        stream.feed(chunk)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert stream.total == 2000 * 65536
    assert peak < 2 * STDOUT_LIMIT


def test_many_tiny_pieces_keep_memory_bounded_too() -> None:
    stream = Stream(1000)
    for _ in range(50_000):
        stream.feed(b"z")
    assert stream.show().text.endswith("z" * 200)


@pytest.mark.parametrize(
    "data",
    [
        b"\x7fELF\x02\x01\x01" + bytes(9),
        b"\x89PNG\r\n\x1a\n" + bytes(8),
        b"\xff\xd8\xff\xe0\x00\x10JFIF",
        b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n",
        b"GIF89a\x01\x00\x01\x00\x80\x00\x00",
        b"\x1f\x8b\x08\x00" + bytes(6),
        b"PK\x03\x04\x14\x00\x00\x00",
        b"name" + bytes(96) + b"0000644\0" + bytes(149) + b"ustar\x0000" + bytes(247),
        b"\x00asm\x01\x00\x00\x00",
        b"\xfe\xed\xfa\xce" + bytes(12),
        b"\xcf\xfa\xed\xfe" + bytes(12),
        b"BM\x9a\x00\x00\x00\x00\x00\x00\x00\x36\x00\x00\x00\x28\x00\x00\x00",
        b"RIFF\x24\x00\x00\x00WEBPVP8 " + bytes(16),
        b"a\0b",
        "чтение и запись".encode("koi8-r"),
        b"\xff\xfe\xfa\xfb",
        b"\xc3\x28\xa0\xa1" * 8 + b"\x01\x02abc" * 100,
    ],
)
def test_binary_output_is_replaced_by_a_note(data: bytes) -> None:
    shown = printed(data).show()
    assert shown.text.startswith("[binary output: ")
    assert shown.text.endswith("bytes: not shown]")


@pytest.mark.parametrize(
    "text", ["BMW 320\n", "RIFF is a format\n", "PK is a key\n", "GIF8 or not\n", "日本語\n", "%PDF is how one begins"]
)
def test_text_that_begins_like_a_signature_stays_text(text: str) -> None:
    assert binary_kind(text.encode()) == ""


def test_a_character_at_the_border_of_the_look_is_not_taken_for_binary() -> None:
    data = ("x" * 511 + "é" * 400).encode()
    assert printed(data, limit=5000).show().text == data.decode()


def test_a_character_cut_in_two_is_left_out_at_the_cut() -> None:
    shown = printed(("é" * 3000).encode(), limit=1001).show()
    assert "\ufffd" not in shown.text


NOTE = "[{} in it, NUL or not valid UTF-8, shown as \\xNN]\n"


@pytest.mark.parametrize(
    ("data", "text", "count"),
    [
        (b"one\nbad \xff byte\nthree\n", "one\nbad \\xff byte\nthree\n", "1 binary byte"),
        (b"caf\xe9 au lait", "caf\\xe9 au lait\n", "1 binary byte"),
        (b"cut here \xe2\x82", "cut here \\xe2\\x82\n", "2 binary bytes"),
        (b"x" * 600 + b"\xff" + b"y\n", "x" * 600 + "\\xffy\n", "1 binary byte"),
        (b"x" * 600 + b"\0y\n", "x" * 600 + "\\x00y\n", "1 binary byte"),
        ("日本語 é\n".encode() + b"\xff\n", "日本語 é\n\\xff\n", "1 binary byte"),
    ],
)
def test_a_stray_byte_in_a_text_is_shown_as_such_and_hides_nothing(data: bytes, text: str, count: str) -> None:
    shown = printed(data).show()
    assert shown.text == text + NOTE.format(count)
    assert shown.stray == int(count.partition(" ")[0])


def test_stray_bytes_on_both_sides_of_what_is_left_out_are_counted() -> None:
    shown = printed(b"a\xff" + b"x" * 3000 + b"\xfe\n", limit=1000).show()
    assert shown.text.startswith("a\\xff")
    assert shown.text.endswith("\\xfe\n" + NOTE.format("2 binary bytes"))
    assert shown.stray == 2
    assert len(shown.text.encode()) <= 1000


@pytest.mark.parametrize(("share", "begins", "ends"), [(1.0, True, False), (0.2, False, True)])
def test_what_is_kept_of_long_output_is_the_share_asked_for(share: float, begins: bool, ends: bool) -> None:
    stream = Stream(1000, head_share=share)
    lines = [f"line {number}\n" for number in range(1000)]
    for line in lines:
        stream.feed(line.encode())
    text = stream.show().text
    assert len(text) <= 1000
    assert (lines[60] in text, lines[-60] in text) == (begins, ends)
    if share == 1.0:
        assert text.partition("\n\n[")[0].splitlines() == [line.strip() for line in lines][: text.count("line ")]


def test_marks_never_take_a_text_over_its_limit() -> None:
    assert truncate_bytes("x" * 1000, 1000) == "x" * 1000
    assert len(truncate_bytes(mark_stderr("\n" * 56_000), 57_344).encode()) <= 57_344
    assert "left out here" in truncate_bytes("\u00e9" * 1000, 1000)
    assert len(truncate_bytes("\u00e9" * 1000, 1000).encode()) <= 1000


def test_stderr_lines_are_marked() -> None:
    assert mark_stderr("a\nb\n") == "[stderr] a\n[stderr] b"
    assert mark_stderr("") == ""


def test_new_output_is_told_apart_from_what_was_seen() -> None:
    stream = printed(b"abc", b"def")
    assert stream.since(3) == (b"def", 0)
    assert stream.since(6) == (b"", 0)
    long = printed(b"h" * 800, b"m" * 1000, b"t" * 200)
    assert long.since(790) == (b"h" * 10 + b"t" * 200, 1000)
    assert long.since(1000) == (b"t" * 200, 800)
