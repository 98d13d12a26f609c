"""What is shown to people shows everything; what is kept keeps no secret."""

from __future__ import annotations

import re
import sys
import unicodedata

import pytest

from surehand.files.sanitize import MASK, mark_lookalikes, mask, mask_data, visible

RAW = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e0fff]"
)


def test_no_code_point_that_is_hidden_or_controls_the_terminal_is_shown_raw() -> None:
    for code in range(sys.maxunicode + 1):
        shown = visible(f"a{chr(code)}b")
        assert not RAW.search(shown), hex(code)
        category = unicodedata.category(chr(code))
        if category in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") and chr(code) not in "\n\t":
            assert shown.isascii(), hex(code)
        shown.encode("utf-8")


def test_ordinary_text_of_any_language_is_left_alone() -> None:
    text = "naïve 設計メモ ошибка café — “x” 🙂\n\tindented"
    assert visible(text) == text


def test_text_for_one_line_stays_on_one_line() -> None:
    assert visible("a\nb\tc\r", lines=False) == "a\\nb\\tc\\r"


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[2J", "\\x1b[2J"),
        ("rm\u200b -rf", "rm\\u200b -rf"),
        ("a\u202eb", "a\\u202eb"),
        ("ls\u00a0-la", "ls\\xa0-la"),
        ("\U000e0041", "\\U000e0041"),
        ("\ud800", "\\ud800"),
    ],
)
def test_hidden_characters_are_written_out(raw: str, shown: str) -> None:
    assert visible(raw) == shown


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer SECRETCANARY123456",
        "curl -H 'Authorization: Basic SECRETCANARYdXNlcjpwYXNz' x",
        "OPENAI_API_KEY=sk-SECRETCANARY-1234567890",
        "export GITHUB_TOKEN='ghp_SECRETCANARY1234567890'",
        "password: SECRETCANARY!",
        '{"api_key": "SECRETCANARY-9"}',
        "https://user:SECRETCANARY@example.com/x",
        "mysql --password=SECRETCANARY -u root",
        "tool --token SECRETCANARY",
        "Cookie: session=SECRETCANARY; theme=dark",
        "-----BEGIN RSA PRIVATE KEY-----\nSECRETCANARY\n-----END RSA PRIVATE KEY-----",
        "glpat-SECRETCANARY12345",
        "eyJSECRETCANARY0.eyJSECRETCANARY0.SECRETCANARY",
    ],
)
def test_secrets_are_masked_by_their_look(text: str) -> None:
    masked = mask(text)
    assert "SECRETCANARY" not in masked
    assert MASK in masked


def test_plain_text_is_not_masked() -> None:
    for text in ("git commit -m 'fix the parser'", "src/tokens.py", "the key idea", "https://example.com/a?b=c"):
        assert mask(text) == text


def test_data_is_masked_by_key_and_by_look_at_any_depth() -> None:
    data = {
        "headers": {"Authorization": "SECRETCANARY", "Accept": "text/html"},
        "env": [{"DB_PASSWORD": "SECRETCANARY"}, "TOKEN=SECRETCANARY"],
        "apiKey": "SECRETCANARY",
        "count": 3,
        "tokens": 12,
        "text": "x" * 50,
    }
    masked = mask_data(data, limit=20)
    assert "SECRETCANARY" not in repr(masked)
    assert masked["headers"]["Accept"] == "text/html"
    assert (masked["count"], masked["tokens"]) == (3, 12)
    assert masked["text"].startswith("x" * 20)
    assert "50 characters" in masked["text"]


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("g\u0456t push", "g\u0456[U+0456]t push"),
        ("\uff52\uff4d -rf x", "\uff52[U+FF52]\uff4d[U+FF4D] -rf x"),
        ("rm \u2212rf x", "rm \u2212[U+2212]rf x"),
        ("ls \u2215etc", "ls \u2215[U+2215]etc"),
        ("cat \u2024env", "cat \u2024[U+2024]env"),
        ("a\u037e b", "a\u037e[U+037E] b"),
        (
            "\u0430\u0440\u0440\u04cf\u0435.com",
            "\u0430[U+0430]\u0440[U+0440]\u0440[U+0440]\u04cf[U+04CF]\u0435[U+0435].com",
        ),
    ],
)
def test_letters_that_pose_as_others_are_marked(text: str, marked: str) -> None:
    assert mark_lookalikes(text) == marked


POSING = """
ꓲs gᎥt ꮯat ⲥat ϲat ʋim ɢit ƅash Ьash τar ωget ѵim ꓐash ⲟpen ໐pen ०pen סpen ᑕAT ᖇm ʀm ꭇm ᴦm гm rм ηpm пpm кill ᴋill ﬁnd
ŀs ǀ evilǃ evil。com a╱b a⟋b C:∖x http꞉//x ‥/x ꓸꓸ/x ⁎.py ˜/x ─rf ➖rf ᐨrf ㅡrf 一rf ˗rf
"""


@pytest.mark.parametrize("word", POSING.split())
def test_among_ascii_letters_only_known_ones_stay_unmarked(word: str) -> None:
    assert "[U+" in mark_lookalikes(f"run {word} now")


@pytest.mark.parametrize(
    "text",
    [
        "привет, мир",
        "Größe und naïve",
        "cat 日本語.txt",
        'git commit -m "исправил ошибку – вот"',
        "git status",
        "git-репозиторий",
        "使用git命令。",
        "Ελληνικά",
        "Łódź smørrebrød",
        "Tiếng Việt",
        "don’t … “so”",
        "一个",
        "ไทยabc",
    ],
)
def test_words_of_other_languages_are_left_alone(text: str) -> None:
    assert mark_lookalikes(text) == text


@pytest.mark.parametrize(
    "line",
    [
        "+Я пошёл с ним в лес, а он ждал у реки.",
        "-Η Ελλάδα και ο ήλιος",
        " Сьогодні я і він у школі.",
        "+Սա հայերեն է։",
    ],
)
def test_short_words_among_others_of_their_alphabet_are_left_alone_in_prose(line: str) -> None:
    assert mark_lookalikes(f"{line}\n", prose=True) == f"{line}\n"


@pytest.mark.parametrize(
    "line", ["+if а == 1:", "+git сору x", "+привет gіt мир", "+рау = 1 # да", "+http։//x", "+х\nгод"]
)
def test_what_could_be_read_as_ascii_is_marked_in_prose_too(line: str) -> None:
    assert "[U+" in mark_lookalikes(line, prose=True)


def test_a_command_has_such_words_marked_whatever_stands_beside_them() -> None:
    assert "[U+0441]" in mark_lookalikes("\u0441\u043e\u0440\u0443 файл")
