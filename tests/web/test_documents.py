"""Text comes out right whatever it was written in, and whatever the server says of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surehand.web.documents import decode

SAMPLES = {
    "chinese": (
        "中国经济在第三季度继续保持增长，专家表示未来值得关注。",
        ["gb2312", "gbk", "gb18030"],
    ),
    "taiwanese": ("臺灣經濟在第三季持續成長，專家表示未來幾個月的發展仍然值得關注。", ["big5"]),
    "japanese": (
        "日本の経済は第三四半期も成長を続けており、注目している。",
        ["shift_jis", "euc-jp", "iso-2022-jp"],
    ),
    "korean": ("한국 경제는 3분기에도 성장을 이어갔으며 전문가들은 주목하고 있다.", ["euc-kr"]),
    "russian": ("Экономика страны продолжила рост в третьем квартале.", ["windows-1251", "koi8-r", "iso-8859-5"]),
    "greek": ("Η οικονομία συνέχισε να αναπτύσσεται το τρίτο τρίμηνο.", ["windows-1253", "iso-8859-7"]),
    "polish": ("Gospodarka w trzecim kwartale nadal rosła, żeby sprostać wyzwaniom.", ["windows-1250", "iso-8859-2"]),
    "french": ("À bientôt, l’économie a continué de croître, où êtes-vous ?", ["windows-1252"]),
    "thai": ("เศรษฐกิจของประเทศยังคงเติบโตในไตรมาสที่สาม", ["tis-620"]),
}
CASES = [(text, name) for text, names in SAMPLES.values() for name in names]


@pytest.mark.parametrize(("text", "name"), CASES)
def test_the_header_tells_the_encoding(text: str, name: str) -> None:
    assert decode(text.encode(name), f'text/html; charset="{name.upper()}"') == text


@pytest.mark.parametrize(("text", "name"), CASES)
def test_the_page_tells_the_encoding_in_its_own_ways(text: str, name: str) -> None:
    for declaration in (
        f"<html><head><meta charset={name}>",
        f"<meta http-equiv='Content-Type' content='text/html; charset={name}'>",
        f"<?xml version='1.0' encoding='{name}'?>",
    ):
        assert decode((declaration + text).encode(name), "text/html") == declaration + text


@pytest.mark.parametrize(("text", "name"), [case for case in CASES if case[1] not in ("iso-8859-5",)])
def test_without_any_word_the_encoding_is_found_out(text: str, name: str) -> None:
    page = f"<html lang=fr><title>x</title><p>{text}</p>" if name == "windows-1252" else f"<html><p>{text}</p>"
    assert decode((page * 3).encode(name), "text/html") == page * 3


def test_utf8_is_read_as_such_though_the_server_says_latin_1_or_nothing() -> None:
    for header in (
        "text/html; charset=ISO-8859-1",
        "text/html",
        "text/html; charset=nonsense",
        "text/html; charset=base64",
    ):
        assert decode("naïve 中文 😀".encode(), header) == "naïve 中文 😀"


def test_a_wrong_declaration_yields_to_what_the_bytes_are() -> None:
    text = SAMPLES["chinese"][0] + SAMPLES["japanese"][0]
    assert decode(text.encode(), "text/html; charset=shift_jis") == text


def test_a_byte_order_mark_beats_everything_and_is_not_shown() -> None:
    assert decode(b"\xef\xbb\xbf\xc3\xa4", "text/plain; charset=windows-1251") == "ä"
    assert decode("äöü".encode("utf-16"), "") == "äöü"
    assert decode(b"\xfe\xff" + "äöü".encode("utf-16-be"), "text/html; charset=utf-8") == "äöü"


def test_latin_1_means_what_browsers_take_it_for() -> None:
    assert decode(b"\x93quoted\x94 \x80 5", "text/html; charset=iso-8859-1") == "“quoted” € 5"


def test_a_character_cut_off_at_the_end_is_dropped() -> None:
    assert decode("abcäö".encode()[:-1], "text/html; charset=utf-8", cut=True) == "abcä"
    assert decode("日本語".encode("cp932")[:-1], "text/html; charset=shift_jis", cut=True) == "日本"


@given(st.binary(max_size=200), st.text(max_size=40), st.booleans())
def test_no_bytes_and_no_header_make_it_fail(body: bytes, header: str, cut: bool) -> None:
    decode(body, header, cut=cut)
