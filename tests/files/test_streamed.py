"""Large files are read through windows: what is found, counted and cut in them is what it would be in the bytes."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from surehand.files import streamed
from surehand.files.diff import splice_diff
from surehand.files.streamed import EncodedText, LargeBytes, part_blocks, snapshot
from surehand.files.text import UTF8, Encoding, apply_splices, detect, find, line_at, newline_style, replacements
from surehand.history.contents import digest_parts

ALPHABET = ("a", "b", "ab", "\n", "\r\n", "\r", "\n\n", "é", "€", "😀", "x" * 9, " ")
WINDOWS = (5, 8, 13)


def read_large(folder: Path, data: bytes) -> LargeBytes:
    path = folder / "large"
    path.write_bytes(data)
    here, file = os.open(folder, os.O_RDONLY), os.open(path, os.O_RDONLY)
    try:
        found = snapshot(here, file)
    finally:
        os.close(file)
        os.close(here)
    assert found is not None
    assert found[1] == digest_parts([data])
    return found[0]


@pytest.mark.parametrize("seed", range(60))
def test_an_edit_through_windows_is_the_edit_of_the_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(streamed, "WINDOW_BYTES", chance.choice(WINDOWS))
    style = chance.choice((ALPHABET, [each for each in ALPHABET if each not in ("\r", "\n", "\n\n")]))
    text = "".join(chance.choices(style, k=chance.randrange(1, 60)))
    data = (b"\xef\xbb\xbf" if chance.random() < 0.2 else b"") + text.encode()
    large, encoding = read_large(tmp_path, data), detect(data) or UTF8
    assert detect(large) == encoding
    assert large.isascii() == data.isascii()
    assert bytes(large) == data
    assert newline_style(large, encoding) == newline_style(data, encoding)
    for _ in range(30):
        start = chance.randrange(len(text))
        old = text[start : start + chance.randrange(1, 12)]
        old = old.replace("\r\n", "\n") if chance.random() < 0.7 else old
        new = "".join(chance.choices(style, k=chance.randrange(4)))
        spans = find(large, old, encoding)
        assert spans == find(data, old, encoding), (text, old)
        splices = replacements(large, spans, old, new, encoding)
        assert splices == replacements(data, spans, old, new, encoding)
        assert b"".join(part_blocks(apply_splices(large, splices))) == b"".join(
            part_blocks(apply_splices(data, splices))
        )
        if splices:
            position = splices[-1].start
            assert line_at(large, position, encoding) == line_at(data, position, encoding)
            assert splice_diff(large, splices, encoding, "a") == splice_diff(data, splices, encoding, "a")


@pytest.mark.parametrize("seed", range(20))
def test_windows_answer_what_bytes_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(streamed, "WINDOW_BYTES", chance.choice(WINDOWS))
    data = bytes(chance.choices(b"ab\r\n", k=chance.randrange(80)))
    large = read_large(tmp_path, data)
    changed = large.replace([(at, at, b"") for at in range(0, len(data), 3)])  # many pieces, the same bytes
    for _ in range(200):
        wanted = bytes(chance.choices(b"ab\r\n", k=chance.randrange(1, 4)))
        start, end = chance.randrange(90), chance.randrange(90)
        for found in (large, changed):
            assert found[start:end] == data[start:end]
            assert found.find(wanted, start, end) == data.find(wanted, start, end)
            assert found.rfind(wanted, start, end) == data.rfind(wanted, start, end)
            assert found.startswith(wanted, start) == data.startswith(wanted, start)
            for line_end in (b"\r\n", b"\n", b"\r"):
                assert found.count(line_end, start, end) == data.count(line_end, start, end)


def test_what_is_not_utf_8_is_not_read_through_windows(tmp_path: Path) -> None:
    path = tmp_path / "latin"
    path.write_bytes("é".encode("latin-1"))
    here, file = os.open(tmp_path, os.O_RDONLY), os.open(path, os.O_RDONLY)
    try:
        assert snapshot(here, file) is None
    finally:
        os.close(file)
        os.close(here)


def test_a_copy_is_what_the_file_was_whatever_becomes_of_it(tmp_path: Path) -> None:
    large = read_large(tmp_path, b"before")
    (tmp_path / "large").write_bytes(b"x")
    assert bytes(large) == b"before"
    assert os.listdir(tmp_path) == ["large"]


@pytest.mark.parametrize("codec", ["utf-8", "utf-16-le", "gbk", "cp932"])
def test_a_text_encoded_in_pieces_is_the_text_encoded(monkeypatch: pytest.MonkeyPatch, codec: str) -> None:
    monkeypatch.setattr(streamed, "WINDOW_BYTES", 3)
    text = "日本\nab\n\n字c"
    found = EncodedText(text, Encoding(codec).encode, "\r\n")
    assert bytes(found) == text.replace("\n", "\r\n").encode(codec)
    assert len(found) == len(bytes(found))
    with pytest.raises(UnicodeEncodeError) as problem:
        EncodedText(f"{text}\udcff😀", Encoding("gbk").encode)
    assert problem.value.start == len(text)
