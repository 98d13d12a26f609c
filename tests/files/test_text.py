"""Encodings, line ends and splices: bytes outside a match never change."""

from __future__ import annotations

import random

import pytest

from surehand.files.text import (
    HEAD_BYTES,
    Encoding,
    Splice,
    apply_splices,
    detect,
    find,
    line_at,
    newline_style,
    possible,
    replacements,
)


def edit(data: bytes, old: str, new: str, *, every: bool = False) -> bytes:
    for encoding in possible(data):
        try:
            spans = find(data, old, encoding)
        except UnicodeEncodeError:
            continue
        if spans:
            assert every or len(spans) == 1
            return b"".join(apply_splices(data, replacements(data, spans, old, new, encoding)))
    raise AssertionError("not found")


CHINESE = "第一行：编辑文件时不能损坏其它字节\n第二行：这是一个用来测试编码识别的文本\n第三行：结束\n"
JAPANESE = "一行目：ファイルを編集する\n二行目：表示と能力をテストする\n三行目：おわり\n"
FRENCH = "Voilà une première ligne écrite à la main\nune deuxième où l'été est déjà là\nfin\n"
RUSSIAN = "Первая строка файла\nвторая строка для проверки кодировки\nконец\n"
POLISH = "Zażółć gęślą jaźń\ndruga linia: źdźbło trawy śmiało rośnie\nkoniec\n"
TURKISH = "Bu bir deneme dosyasıdır, ığüşöç.\nİkinci satır: Şoför!\nÜçüncü abc satır?\nSon satır\n"
THAI = "นี่คือไฟล์ทดสอบ\nบรรทัดที่สอง โปรแกรมและข้อมูล\nจบ\n"
VIETNAMESE = "Đây là tệp kiểm tra\ndòng thứ hai: chương trình và dữ liệu\nhết\n"


@pytest.mark.parametrize(
    ("text", "codec"),
    [
        (CHINESE, "gbk"),
        (CHINESE, "gb18030"),
        (JAPANESE, "shift_jis"),
        (JAPANESE, "euc_jp"),
        (FRENCH, "latin-1"),
        (FRENCH, "cp1252"),
        (RUSSIAN, "cp1251"),
        (RUSSIAN, "koi8_r"),
        (RUSSIAN, "cp866"),
        (RUSSIAN, "iso8859_5"),
        (POLISH, "cp1250"),
        (POLISH, "iso8859_2"),
        (TURKISH, "cp1254"),
        (THAI, "cp874"),
        (VIETNAMESE, "utf-16-le"),
        (VIETNAMESE, "utf-32-be"),
        (CHINESE, "utf-8"),
        (CHINESE, "utf-8-sig"),
        (CHINESE, "utf-16"),
        (CHINESE, "utf-16-le"),
        (CHINESE, "utf-16-be"),
        (FRENCH, "utf-32"),
        (FRENCH, "utf-32-le"),
        (FRENCH, "utf-32-be"),
    ],
)
def test_text_of_every_encoding_reads_back_and_is_edited_in_it(text: str, codec: str) -> None:
    data = text.encode(codec)
    encoding = detect(data)
    assert encoding is not None
    assert encoding.decode(data) == text
    line = text.split("\n")[1]
    assert edit(data, line, line[:3]) == text.replace(line, line[:3]).encode(codec)
    crlf = text.replace("\n", "\r\n").encode(codec)
    assert edit(crlf, f"{line}\n", f"{line}\n{line}\n") == text.replace(line, f"{line}\n{line}").replace(
        "\n", "\r\n"
    ).encode(codec)


@pytest.mark.parametrize(
    "data", [b"\x7fELF\x02\x01\x01\0\0\0\0\0", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", bytes(range(32)) * 50, b"a\0b" * 9]
)
def test_binary_is_not_text(data: bytes) -> None:
    assert detect(data) is None
    assert list(possible(data)) == []


def test_a_nul_far_behind_does_not_make_a_text_binary() -> None:
    data = b"line\n" * 2000 + b"\0\nend\n"
    assert edit(data, "end", "END") == data.replace(b"end", b"END")


def test_random_bytes_without_nul_never_crash_detection() -> None:
    chance = random.Random(7)
    for size in (1, 2, 3, 5, 100, 5000):
        detect(bytes(chance.randrange(1, 256) for _ in range(size)))


def test_a_trail_byte_that_looks_like_a_letter_is_no_match() -> None:
    # In GBK the second byte of a character may be an ASCII letter: 乗 is 81 5C, 丂 is 81 40, 亖 is 81 60...
    text = "乗乗乗 测试文本的编码 \\ 结束\n这是第二行文本内容\n"
    data = text.encode("gbk")
    assert data.count(b"\\") == 4
    assert edit(data, "\\", "/") == text.replace("\\", "/").encode("gbk")


def test_a_match_of_utf_16_begins_on_a_character() -> None:
    # U+6100 U+0061: the bytes 00 61 00 61 hold the letter at odd positions too.
    text = "\ufeff愀a愀愀b\n"
    data = text.encode("utf-16-le")
    assert edit(data, "a", "X") == text.replace("a", "X").encode("utf-16-le")
    assert edit(data, "b\n", "c\nd\n") == text.replace("b\n", "c\nd\n").encode("utf-16-le")


@pytest.mark.parametrize(("text", "codec"), [(CHINESE, "gbk"), (JAPANESE, "euc_jp"), (JAPANESE, "shift_jis")])
@pytest.mark.parametrize("stray", [b"\xff", b"\xe9", b"\x80\xff\n"])
def test_a_stray_byte_does_not_hide_the_encoding_of_the_other_lines(text: str, codec: str, stray: bytes) -> None:
    lines = text.encode(codec).splitlines(keepends=True) * 5
    data = b"".join([*lines[:7], stray, b"\n", *lines[7:], "加\n".encode(codec)])
    encoding = detect(data)
    assert encoding is not None
    assert encoding.decode(data, "replace").startswith(text)
    assert edit(data, "加", "減") == data[: -len("加\n".encode(codec))] + "減\n".encode(codec)


def test_stray_bytes_elsewhere_stay_as_they_are() -> None:
    data = "naïve café\n".encode() + b"\xe9\xff broken\n" + "über\n".encode()
    assert edit(data, "über", "unter") == data.replace("über".encode(), b"unter")
    assert edit(data, "broken", "mended") == data.replace(b"broken", b"mended")


@pytest.mark.parametrize(
    ("data", "old", "new", "wanted"),
    [
        (b"a\r\nb\r\nc", "a\nb", "a\nx\nb", b"a\r\nx\r\nb\r\nc"),
        (b"a\r\nb\r\nc", "b", "b\nx", b"a\r\nb\r\nx\r\nc"),
        (b"a\r\nb\r\nc", "c", "c\nd", b"a\r\nb\r\nc\r\nd"),
        (b"a\rb\rc", "a\nb", "a\nx\nb", b"a\rx\rb\rc"),
        (b"a\nb\r\nc\n", "a\nb\nc\n", "a\nB\nc\n", b"a\nB\r\nc\n"),
        (b"a\nb\r\nc\n", "a\nb\nc\n", "a\nnew\nb\nc\n", b"a\nnew\r\nb\r\nc\n"),
        (b"a\nb\r\nc\n", "a\nb\nc\n", "a\nc\n", b"a\nc\n"),
        (b"a\r\nb\nc\r\n", "a\nb\nc\n", "a\nb\nc\nd\n", b"a\r\nb\nc\r\nd\r\n"),
        (b"a\r\nb\r\n", "a\r\nb\r\n", "a\nb\n", b"a\nb\n"),
        (b"a\nb\n", "a\nb", "a\r\nb", b"a\r\nb\n"),
        (b"a\r\nb\r\n", "a\r\nb", "a\r\nx\nb", b"a\r\nx\nb\r\n"),
        (b"x\ny\r\n", "x\ny\r\n", "x\ny\n", b"x\ny\n"),
        (b"\xef\xbb\xbfa\nb", "a", "b", b"\xef\xbb\xbfb\nb"),
        (b"\xef\xbb\xbfa\nb", "\ufeffa", "a", b"a\nb"),
        (b"a", "a", "a\n", b"a\n"),
        (b"a\n", "a\n", "a", b"a"),
    ],
)
def test_line_ends_are_kept(data: bytes, old: str, new: str, wanted: bytes) -> None:
    assert edit(data, old, new) == wanted


@pytest.mark.parametrize("codec", ["utf-8", "utf-16-le", "utf-16-be", "gbk", "shift_jis"])
def test_blocks_that_read_the_same_count_as_two_whatever_their_line_ends(codec: str) -> None:
    encoding = Encoding(codec, unit=2 if codec.startswith("utf-16") else 1)
    data = encoding.encode("a\r\nb\n---\na\nb\n")
    assert len(find(data, "a\nb", encoding)) == 2
    assert len(find(data, "a\r\nb", encoding)) == 1
    assert edit(b"a\r\nb\n---\na\nb\n", "a\nb", "X", every=True) == b"X\n---\nX\n"


@pytest.mark.parametrize("codec", ["utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "gbk", "shift_jis"])
@pytest.mark.parametrize(
    ("text", "old", "new", "wanted"),
    [
        ("a\r\nb\r\nc\r\n", "\nb", "\nx\nb", "a\r\nx\r\nb\r\nc\r\n"),
        ("a\r\nb\r\nc\r\n", "\nb", "", "a\r\nc\r\n"),
        ("a\r\nb\r\nc\n", "\nb", "", "a\r\nc\n"),
        ("a\nb\r\nc\r\n", "\nc\n", "\n", "a\nb\r\n"),
        ("a\r\n\r\nb\n", "\n\nb", "\nb", "a\r\nb\n"),
        ("a\r\r\nb\n", "\nb", "", "a\r\n"),
    ],
)
def test_a_match_never_takes_half_of_a_crlf(codec: str, text: str, old: str, new: str, wanted: str) -> None:
    unit = int(codec[4:6]) // 8 if codec[4:6] in ("16", "32") else 1
    encoding = Encoding(codec, unit=unit)
    data = encoding.encode(text)
    spans = find(data, old, encoding)
    assert len(spans) == 1
    assert b"".join(apply_splices(data, replacements(data, spans, old, new, encoding))) == encoding.encode(wanted)


@pytest.mark.parametrize(
    ("data", "old", "new", "wanted"),
    [
        (b"a\r\nb\r\nc", "\nb\r\n", "\nB\r\n", b"a\r\nB\r\nc"),
        (b"a\r\nb\r\nc", "\nb\r\n", "", b"ac"),
        (b"a\r\nb\r\nc", "b\r", "B\r", b"a\r\nB\r\nc"),
        (b"a\rb\r\nc", "a\r", "A\r", b"A\rb\r\nc"),
    ],
)
def test_a_text_that_spells_out_cr_leaves_no_cr_alone(data: bytes, old: str, new: str, wanted: bytes) -> None:
    assert edit(data, old, new) == wanted


def test_every_occurrence_is_replaced_without_overlap() -> None:
    assert edit(b"aaaaa", "aa", "b", every=True) == b"bba"


def test_what_an_encoding_cannot_hold_is_refused() -> None:
    data = FRENCH.encode("latin-1")
    encoding = detect(data)
    assert encoding is not None
    [span] = find(data, "fin", encoding)
    with pytest.raises(UnicodeEncodeError):
        replacements(data, [span], "fin", "终", encoding)


def test_styles_are_told_by_majority_and_by_neighbourhood() -> None:
    utf8 = Encoding("utf-8")
    assert newline_style(b"a\r\nb\r\nc\n", utf8) == "\r\n"
    assert newline_style(b"a\r\nb\nc\n", utf8) == "\n"
    assert newline_style(b"a\rb\r", utf8) == "\r"
    assert newline_style(b"", utf8) == "\n"
    assert edit(b"a\nb\r\nc", "c", "c\nd") == b"a\nb\r\nc\r\nd"
    assert edit(b"a\nb\r\nc", "a", "a\nd") == b"a\nd\nb\r\nc"


def test_lines_are_numbered_from_one() -> None:
    assert line_at(b"a\nb\nc", 4, Encoding("utf-8")) == 3
    assert line_at("a\nb".encode("utf-16-le"), 4, Encoding("utf-16-le", unit=2)) == 2
    assert line_at(b"a\rb\rc", 4, Encoding("utf-8")) == 3
    first = b"x" * (HEAD_BYTES - 1) + b"\r\n"
    assert line_at(first + b"b\r\nc", len(first) + 3, Encoding("utf-8")) == 3


def test_splices_leave_every_other_byte() -> None:
    chance = random.Random(3)
    for _ in range(200):
        data = bytes(chance.randrange(256) for _ in range(chance.randrange(60)))
        cuts = sorted(chance.randrange(len(data) + 1) for _ in range(4))
        splices = [Splice(cuts[0], cuts[1], b"<1>"), Splice(cuts[2], cuts[3], b"")]
        joined = b"".join(apply_splices(data, splices))
        assert joined == data[: cuts[0]] + b"<1>" + data[cuts[1] : cuts[2]] + data[cuts[3] :]


def test_bytes_that_are_no_text_may_be_spelled_as_escapes() -> None:
    data = "naïve ".encode() + b"\xe9\xff end\n"
    old, new = ("\udce9\udcff end", "\udce9 END")
    assert edit(data, old, new) == "naïve ".encode() + b"\xe9 END\n"
    with pytest.raises(AssertionError, match="not found"):  # in a file that is valid text they stand for nothing
        edit("é\n".encode(), "\udcc3\udca9", "x")


def test_very_many_places_are_replaced_in_bounded_time() -> None:
    data = b"a " * 300_000
    assert edit(data, "a", "bc", every=True) == b"bc " * 300_000


@pytest.mark.parametrize(
    ("codec", "words"),
    [
        ("gbk", ("中文", "测试", "好")),
        ("big5", ("檔案編輯", "列印結果", "刪除使用者")),
        ("shift_jis", ("日本語", "テスト", "はい")),
        ("euc_jp", ("日本語", "テスト", "はい")),
        ("euc_kr", ("한국어", "테스트", "네")),
        ("latin-1", ("für Müller", "größe", "José García")),
        ("cp1252", ("it’s “quoted” – yes", "a…b", "€5")),
        ("cp1251", ("тест", "файл", "имя")),
    ],
)
def test_a_few_words_in_comments_are_enough_to_tell_the_encoding(codec: str, words: tuple[str, str, str]) -> None:
    first, second, third = words
    text = f"#include <stdio.h>\n/* {first} */\nint main(void) {{\n  // {second}\n  return 0; /* {third} */\n}}\n"
    encoding = detect(text.encode(codec))
    assert encoding is not None
    assert encoding.decode(text.encode(codec)) == text


def test_big5_whose_second_bytes_are_letters_is_no_western_text() -> None:
    data = "\n".join(f"alpha 這是一個測試檔案內容 {number}" for number in range(30)).encode("big5")
    found = detect(data)
    assert found is not None
    assert found.decode(data).startswith("alpha 這是一個測試檔案內容 0")


@pytest.mark.parametrize("codec", ["utf-8", "utf-16-le"])
def test_a_blank_line_is_not_found_in_a_single_crlf(codec: str) -> None:
    encoding = Encoding(codec, unit=2 if codec == "utf-16-le" else 1)
    data = encoding.encode("a\r\nb\r\n\r\na\r\n\r\nb\r\n")
    [span] = find(data, "a\n\nb", encoding)
    assert encoding.decode(data[span.start : span.end]) == "a\r\n\r\nb"
    assert len(find(data, "\n\n", encoding)) == 2
    assert find(data, "b\n\n\na", encoding) == []


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_stray_byte_may_be_spelled_beside_any_line_end(end: str) -> None:
    data = f"naïve café{end}".encode() + b"\xe9\xff" + f" end{end}more\r\n\n".encode()
    assert edit(data, "café\n\udce9\udcff end\nmore", "x") == "naïve x\r\n\n".encode()
