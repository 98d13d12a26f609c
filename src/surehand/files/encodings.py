"""Guess encodings: which one a text that is not Unicode is in, judged by its bytes."""

from __future__ import annotations

import codecs
import re
from functools import lru_cache
from typing import Final

# The encodings that charset-normalizer chooses from.
LEGACY: Final = (
    "gb18030", "big5", "cp932", "euc_jp", "cp949", "cp1252", "cp1251", "koi8_r", "cp866", "iso8859_5", "cp1250",
    "iso8859_2", "cp1253", "cp1254", "cp1255", "cp1256", "cp874", "iso8859_15", "latin_1",
)  # fmt: skip
PAIRS: Final = ("gb18030", "big5", "cp932", "euc_jp", "cp949")
"""The encodings of Chinese, Japanese and Korean, in which most characters take two bytes."""
_STRAYS_ONE_IN: Final = 10
_ODD: Final = {"cp949": "[\u4e00-\u9fff]", "cp932": "[\uff61-\uff9f]", "cp874": "[\u0e50-\u0e5b]"}
_SELDOM: Final = ("iso8859_5", "cp866", "cp874")
"""Rare encodings that are guessed too often: their letters have the same bytes as Chinese, Japanese and Korean text,
where bytes come in pairs, and as Latin accents, which stand beside ASCII letters. They are plausible only if a run of
non-ASCII bytes has an odd length and few runs touch ASCII letters."""
_HIGH_RUN: Final = rb"[\x80-\xff]+"
_BESIDE_LETTERS: Final = rb"[A-Za-z][\x80-\xff]+|[\x80-\xff]+[A-Za-z]"


_NAMED: Final = (
    r"utf-8|gb18030|gbk|gb2312|big5|big5hkscs|cp950|cp932|shift_jis|euc_jp|euc_kr|cp949|cp125\d|iso8859-\d+|"
    r"koi8-[rut]|cp437|cp8\d\d|mac-[a-z0-9]+|tis-620"
)
"""Encodings a caller may name: those in which LF is one byte and characters do not depend on what precedes them."""
_FEW: Final = 16
"""A guess from fewer non-ASCII characters than this is weak."""
_KANA: Final = "[\u3040-\u30ff]"


_DECLARED: Final = (
    rb"\A(?:.*\n)?.*?coding[:=][ \t]*([-\w]+)|"  # as Emacs, Vim and Python read it: in the first two lines
    rb"(?i:\A<\?xml[^>]*?encoding=[\"']|<meta\b[^>]*?charset=[\"']?|^\"?Content-Type:.*?charset=|\A@charset \"|"
    rb"^scriptencoding[ ]+)([-\w]+)"
)
_DECLARED_BYTES: Final = 4096
_SINGLE_BYTE: Final = r"cp125\d|koi8|iso8859-(?!1$)|mac|cp437|cp8|tis"
"""Codecs whose declaration is believed. For others the bytes say more: people declare GB2312 for GBK, and ISO-8859-1
for anything."""


ESCAPES: Final = b"\x1b$"
"""The start of an ISO-2022 escape sequence that switches to two-byte characters."""


def find_escaped_codec(data: bytes) -> str | None:
    """Return the codec of a text that switches alphabets by escape sequences (mail, old files); None for any other.

    The meaning of a byte in it depends on the escape sequences before it in the line.
    """
    return "iso2022_jp" if ESCAPES in data and data.isascii() and _reads(data, "iso2022_jp") else None


def named_codec(name: str) -> str | None:
    """Return Python's name of the codec a caller names; None if it is unknown or not in `_NAMED`."""
    try:
        codec = codecs.lookup(name.strip()).name
    except (LookupError, ValueError):
        return None
    return codec if re.fullmatch(_NAMED, codec) else None


def declared_codec(data: bytes) -> str | None:
    """Return the single-byte codec that a text declares at its beginning (`charset=`), if it is valid in that."""
    found = re.search(_DECLARED, data[:_DECLARED_BYTES], re.MULTILINE)
    codec = named_codec((found[1] or found[2]).decode()) if found else None
    return codec if codec and re.match(_SINGLE_BYTE, codec) and _reads(data, codec) else None


def is_weak_guess(data: bytes, codec: str) -> bool:
    """Whether a text has too few non-ASCII characters to be sure of the guessed encoding.

    Text with single accents among ASCII letters is surely western, and text with kana surely Japanese.
    """
    high = data.translate(None, bytes(range(128)))
    if not high or len(high) >= 2 * _FEW or western(data) or declared_codec(data):
        return False
    text = data.decode(codec, "replace")
    if codec in ("cp932", "euc_jp") and re.search(_KANA, text):
        return False
    return sum(character > "\x7f" for character in text) < _FEW


def western(sample: bytes) -> bool:
    """Whether most non-ASCII bytes stand alone among ASCII, as accented Latin letters do."""
    runs = re.findall(_HIGH_RUN, sample)
    return sum(len(run) == 1 for run in runs) * 10 >= sum(map(len, runs)) * 7


@lru_cache(maxsize=16)
def guesses(sample: bytes) -> tuple[str, ...]:
    """Return the encodings a text may be in, most likely first; empty for western text."""
    if western(sample):
        return ()  # statistics of so few letters would mislead
    from charset_normalizer import from_bytes

    matches = from_bytes(sample, cp_isolation=list(LEGACY), threshold=0.4)
    ranked = sorted(matches, key=lambda match: (match.percent_chaos, -match.percent_coherence))
    return tuple(sorted((match.encoding for match in ranked), key=lambda codec: _implausible(sample, codec)))


def _implausible(sample: bytes, codec: str) -> bool:
    """Whether a text decoded by `codec` looks wrong: Korean made of Chinese characters, Thai of digits, and so on."""
    if codec in _SELDOM:
        runs, beside = re.findall(_HIGH_RUN, sample), len(re.findall(_BESIDE_LETTERS, sample))
        if beside * 4 > len(runs) or all(len(run) % 2 == 0 for run in runs):
            return True
    odd = _ODD.get(codec)
    if odd is None:
        return False
    text = sample.decode(codec, "replace")
    return len(re.findall(odd, text)) * 4 > sum(character > "\x7f" for character in text)


def guess_beside_strays(sample: bytes) -> str | None:
    """Return the codec of PAIRS that decodes all but a few lines of a text; None if there is none."""
    lines = sample.split(b"\n")[:-1] or [sample]  # the last line may end inside a character
    most = sum(not line.isascii() for line in lines) // _STRAYS_ONE_IN
    for codec in PAIRS:
        clean = _readable(lines, codec, most)
        if clean is not None and guesses(b"\n".join(clean))[:1] == (codec,):
            return codec
    return None


def _readable(lines: list[bytes], codec: str, most: int) -> list[bytes] | None:
    """Return the lines that `codec` can decode; None if it fails on more than `most` lines."""
    clean: list[bytes] = []
    for number, line in enumerate(lines):
        if _reads(line, codec):
            clean.append(line)
        elif number - len(clean) >= most:
            return None
    return clean


def _reads(line: bytes, codec: str) -> bool:
    try:
        line.decode(codec)
    except UnicodeDecodeError:
        return False
    return True
