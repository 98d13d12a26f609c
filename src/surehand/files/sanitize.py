"""Sanitize text to show it: control and invisible characters made visible, secrets masked.

`visible` is for text that a person judges by reading (approvals, logs, descriptions of foreign tools): nothing in it is
hidden. `mask` is for text that is stored (logs, audit, events): it holds no secrets.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, count
from typing import Any, Final, cast

from surehand.core.text import MATCH_CHARACTERS, lazy_pattern

MASK = "[masked]"

_PRINTABLE = lazy_pattern(r"[\n\t\x20-\x7e]*")
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# Letters and marks that show nothing: fillers, variation selectors, blanks other than the plain one.
_HIDDEN = (
    "[\u00a0\u00ad\u034f\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3000"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffc\U000133fc-\U0001343f\U0001bca0-\U0001bca3\U0001d159"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def visible(text: str, *, lines: bool = True) -> str:
    """Return `text` with every control, bidi, zero-width, tag and unusual blank character as an escape.

    Line feeds and tabs are kept if `lines` is true; otherwise they are escaped too, for text on a single line.
    """
    if _PRINTABLE.fullmatch(text) and (lines or ("\n" not in text and "\t" not in text)):
        return text
    return "".join(char if char in "\n\t" and lines else _show_character(char) for char in text)


@lru_cache(maxsize=4096)
def _show_character(char: str) -> str:
    if " " <= char <= "~":
        return char
    if char in "\n\t\r":
        return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}[char]
    if unicodedata.category(char) not in _HIDDEN_CATEGORIES and not re.match(_HIDDEN, char):
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


# Letters of other alphabets that look like one of these, and signs that look like those of a command line.
_ALIKE: tuple[tuple[str, str], ...] = (
    (
        "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0455\u0458\u04bb\u0501\u051b\u051d\u044c\u04cf",
        "aeopcyxisjhdqwbl",
    ),  # Cyrillic
    (
        "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0423\u0425\u0405\u0406\u0408\u050c\u051c",
        "ABEKMHOPCTYXSIJGW",
    ),  # Cyrillic capitals
    ("\u03bf\u03b9\u03bd\u03ba\u03c1\u03c5\u03b1\u03b3\u03b5", "oivkpuaye"),  # Greek
    (
        "\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7",
        "ABEZHIKMNOPTYX",
    ),  # Greek capitals
    ("\u0585\u057d\u0570\u0578\u0581\u0566", "ouhngq"),  # Armenian
    ("\u0261\u0251\u0131\u029f\ua731\u1d04\u1d0f\u1d20\u1d21\u1d22", "gaiLscovwz"),  # Latin of other languages
)
_LIKE_LETTERS = {char: plain for alike, meant in _ALIKE for char, plain in zip(alike, meant, strict=True)}
_LIKE_SIGNS = dict(
    zip(
        "\u037e\u204f\u2215\u2044\u29f8\u2571\u27cb\u3033\u2216\u29f5\u29f9\u2223\u01c0\u2758\ufe31\uffe8\u2217\u204e\u22c6"
        "\u223c\u02dc\u2024\ua4f8\u2025\u01c3\uff04\u0589\u05c3\ua789\u02d0\u2236\ua78a\u02cb\u02c2\u02c3",
        ";;//////\\\\\\|||||***~~...!$:::::=`<>",
        strict=True,
    )
)
_LIKE_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2212\u2043\u02d7\u2796\u1428\ua7f7\u2500\u2501\u30fc\u3161\u4e00"
"""Marked before an option only."""
_LIKE_DOTS = "\u3002\uff61"
"""Full stops of other scripts: in the name of a host they are dots, elsewhere they end sentences."""
_LATIN = "\u00df\u00e6\u00f0\u00f8\u00fe\u0111\u0127\u0142\u014b\u0153\u0259\u0167\u0192"
"""Latin letters that are written in words and not made of an ASCII one and a mark."""
_APART = lazy_pattern(
    r"CJK|HIRAGANA|KATAKANA|HANGUL|BOPOMOFO|THAI|LAO|KHMER|MYANMAR|DEVANAGARI|BENGALI|TAMIL|TELUGU|ARABIC|ETHIOPIC|TIBETAN"
)
"""Scripts that are written beside ASCII without a blank, and whose letters nobody takes for it."""
_POSING_SCRIPTS = lazy_pattern(r"LISU|CHEROKEE|COPTIC|DESERET|CANADIAN|TIFINAGH|OLD ITALIC|GOTHIC|SQUARED|NEGATIVE")
_ALPHABETS = frozenset({"ARMENIAN", "CYRILLIC", "GREEK"})
"""Those in which ordinary words may be made of nothing but letters that look like ASCII: `с`, `хор`, `και`."""
_WORDS = lazy_pattern(r"\S+")
_RUNS = lazy_pattern(r"[^\W_]+|[\W_]")


def mark_lookalikes(text: str, *, prose: bool = False) -> str:
    """Return `text` with each letter that poses as an ASCII one followed by its code: `gіt` is `gі[U+0456]t`.

    A letter among ASCII ones has to be known as one that stands there, such as `é`. A word of another alphabet is left
    alone as long as it could not be read as ASCII; in `prose` also one that could, beside a word that could not.
    """
    if text.isascii():
        return text
    if prose:
        return "".join(map(_mark_prose, text.splitlines(keepends=True)))
    return _WORDS.sub(lambda word: _mark_word(word[0]), text)


def _mark_prose(line: str) -> str:
    if line.isascii():
        return line
    alphabets = [*map(_find_alphabets, _WORDS.findall(line)), frozenset[str]()]
    place = count()

    def mark(word: re.Match[str]) -> str:
        at = next(place)
        return _mark_word(word[0], alphabets[at - 1] | alphabets[at + 1])

    return _WORDS.sub(mark, line)


def _find_alphabets(word: str) -> frozenset[str]:
    """Return the alphabets that a word without ASCII letters is written in."""
    letters = [] if word.isascii() else [char for char in word if char.isalpha()]
    if any(map(str.isascii, letters)):
        return frozenset()
    return frozenset(_script(char) for char in letters if not _looks_like(char)) & _ALPHABETS


@lru_cache(maxsize=4096)
def _script(char: str) -> str:
    return unicodedata.name(char, "").partition(" ")[0]


def _mark_word(word: str, alphabets: frozenset[str] = frozenset()) -> str:
    if word.isascii():
        return word
    return "".join(_mark_run(run[0], word, run.start(), alphabets) for run in _RUNS.finditer(word))


def _mark_run(run: str, word: str, at: int, alphabets: frozenset[str]) -> str:
    """Mark a run of letters and digits, or one sign, of a word; `alphabets` are those of the words around it."""
    if run.isascii():
        return run
    after = word[at + 1 : at + 2]
    if run[0] in _LIKE_DASHES and at == 0 and after.isascii() and after.isalpha():
        return _with_code(run[0]) + _mark_run(run[1:], word, at + 1, alphabets)
    if run in _LIKE_DOTS and after.isascii() and after.isalnum() and word[at - 1 : at].isascii():
        return _with_code(run)
    if run in _LIKE_SIGNS and at and _script(run) in _ALPHABETS and _script(word[at - 1]) == _script(run):
        return run  # the full stop of that alphabet
    mixed = any(char.isascii() and char.isalpha() for char in run)
    foreign = all(char.isdigit() or _script(char) in alphabets for char in run)
    posing = mixed or (not foreign and all(map(_looks_like, run)))
    return "".join(
        _with_code(char) if char in _LIKE_SIGNS or (posing and not _may_stand_in_ascii(char)) else char for char in run
    )


def _with_code(char: str) -> str:
    return f"{char}[U+{ord(char):04X}]"


@lru_cache(maxsize=4096)
def _may_stand_in_ascii(char: str) -> bool:
    """Tell whether a character among ASCII letters is what it seems: a letter with a mark, or of a script apart."""
    if char.isascii() or char in _LATIN or char.lower() in _LATIN:
        return True
    base = unicodedata.normalize("NFD", char)
    if len(base) > 1 and base[0].isascii():
        return True
    return char.isalpha() and not _looks_like(char) and _APART.match(unicodedata.name(char, "")) is not None


@lru_cache(maxsize=4096)
def _looks_like(char: str) -> str:
    """Return the ASCII characters that another one looks like; empty when there are none."""
    if char.isascii():
        return char if char.isdigit() else ""
    plain = unicodedata.normalize("NFKC", char)
    if plain.isascii() and plain.isprintable() and " " not in plain and (len(plain) == 1 or char.isalpha()):
        return plain
    if _POSING_SCRIPTS.match(unicodedata.name(char, "")):
        return "?"
    return _LIKE_LETTERS.get(char, "")


_SECRET_KEY = (
    r"(?i)(?:^|[_\-. ]|(?<=[a-z]))(?:api_?key|access_?key|secret|token|passwo?r?d|passwd|pwd|passphrase|credential|"
    r"authorization|auth|cookie|private_?key|signature|bearer)s?(?:$|[_\-. ]|(?=[A-Z]))"
)
_PLACES: tuple[tuple[str, str], ...] = (
    (r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", MASK),
    (r"(?i)\b(bearer|basic|token)(\s+)[A-Za-z0-9._~+/=-]{8,}", rf"\1\2{MASK}"),
    (r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*", MASK),
    (r"\b(?:sk|pk|rk)[-_](?:[a-z0-9]+[-_])*[A-Za-z0-9_-]{8,}", MASK),
    (r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[abeoprs]-|hf_|npm_|pypi-|dop_v1_|shpat_)[A-Za-z0-9_-]{8,}", MASK),
    (r"\b(?:AKIA|ASIA|AGPA|AIDA|AROA)[A-Z0-9]{12,}\b", MASK),
    (r"\bAIza[A-Za-z0-9_-]{30,}", MASK),
    (r"(?i)\b([a-z][a-z0-9+.-]*://[^\s/:@]*:)[^\s/@]+(@)", rf"\1{MASK}\2"),
    (
        r"(?i)((?:[A-Za-z0-9_-]*(?:api[_-]?key|access[_-]?key|secret|token|password|passwd|passphrase|credential|"
        r"private[_-]?key)[A-Za-z0-9_-]*|\bpwd|\bauth)[\"']?\s*[=:]\s*)([\"']?)(?!\[masked\])[^\s\"',;&|)}\]]{3,}\2",
        rf"\1\2{MASK}\2",
    ),
    (r"(?i)(--?(?:password|passwd|token|api-key|secret|auth)(?:=|\s+))(?!\[masked\])[^\s]+", rf"\1{MASK}"),
    (r"(?i)((?:set-)?cookie\s*:\s*)[^\n]+", rf"\1{MASK}"),
)
# Every text that a pattern above matches contains one of these: a fast test for the many texts without secrets.
_HINTS = ("key", "secret", "token", "pass", "pwd", "auth", "bearer", "basic", "cookie", "credential", "://")
_CAPITAL_HINTS = ("eyJ", "AKIA", "ASIA", "AGPA", "AIDA", "AROA", "AIza")
"""Looked for only in texts with capitals."""
_JOINED_HINTS = (
    "sk-", "sk_", "pk-", "pk_", "rk-", "rk_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "_pat_", "glpat-", "xox", "hf_",
    "npm_", "pypi-", "dop_v1_", "shpat_",
)  # fmt: skip
"""Looked for only in texts with a `-` or a `_`."""


@lru_cache(maxsize=1)
def _secrets() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Return the patterns of secrets, compiled on first use."""
    return tuple((re.compile(pattern), shown) for pattern, shown in _PLACES)


def mask(text: str) -> str:
    """Return `text` without what looks like a key, a token or a password."""
    if not _hints_at_secret(text):
        return text
    for pattern, replacement in _secrets():
        text = pattern.sub(replacement, text)
    return text


def _hints_at_secret(text: str) -> bool:
    lower = text.lower()
    for hint in _HINTS:  # plain loops: several texts of every call come by here
        if hint in lower:
            return True
    if lower != text:
        for hint in _CAPITAL_HINTS:
            if hint in text:
                return True
    if "_" in text or "-" in text:
        for hint in _JOINED_HINTS:
            if hint in text:
                return True
    return False


_CUT_MARGIN: Final = 8192
_SHORT: Final = 1000
"""Characters of a text that is searched together with others."""
# Tuples, since a union is built anew by every call; the plain types first, since the abstract ones are slow to ask.
_NUMBERS: Final = (bool, int, float)
_MAPPINGS: Final = (dict, Mapping)
_SEQUENCES: Final = (list, tuple, Sequence)


def mask_data(value: Any, *, limit: int | None = None) -> Any:
    """Return plain data with secrets masked, by their key or their pattern; texts are truncated at `limit`."""
    if isinstance(value, str):
        # Truncated before the search, with a margin: a secret that begins before the limit is still found.
        masked = mask(value if limit is None or len(value) <= limit else value[: limit + _CUT_MARGIN])
        return masked if limit is None or len(masked) <= limit else f"{masked[:limit]}... ({len(value)} characters)"
    if value is None or isinstance(value, _NUMBERS):
        return value
    if isinstance(value, _MAPPINGS):
        return _mask_mapping(cast("Mapping[Any, Any]", value), limit)
    if isinstance(value, _SEQUENCES) and not isinstance(value, bytes | bytearray):
        return [mask_data(inner, limit=limit) for inner in cast("Sequence[Any]", value)]
    return mask_data(str(value), limit=limit)


def _mask_mapping(values: Mapping[Any, Any], limit: int | None) -> dict[str, Any]:
    """Mask the values of a mapping; its short texts are searched together, as the search costs more than they do."""
    most = _SHORT if limit is None else min(limit, _SHORT)
    short = [inner for inner in values.values() if isinstance(inner, str) and len(inner) <= most]
    clean = not _hints_at_secret("\n".join(short))
    masked: dict[str, Any] = {}
    for key, inner in values.items():
        name = key if isinstance(key, str) else str(key)
        if isinstance(inner, str):
            if inner and _is_secret_key(name):
                inner = MASK
            elif not clean or len(inner) > most:
                inner = mask_data(inner, limit=limit)
        elif inner is not None and not isinstance(inner, _NUMBERS):
            inner = mask_data(inner, limit=limit)
        masked[name] = inner
    return masked


@lru_cache(maxsize=1024)
def _is_secret_key(key: str) -> bool:
    return re.search(_SECRET_KEY, key) is not None


# Display of file names and lines as text that is safe to show and stays on its line.

_ODD: Final = r"\x7f-\x9f\"\u2028\u2029\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff"
_PLAIN_NAME: Final = lazy_pattern(rf"[^\x00-\x1f{_ODD}]+")
_PLAIN_NAMES: Final = lazy_pattern(rf"[^\x00-\x09\x0b-\x1f{_ODD}]+")
_ESCAPES: Final = {0x07: "\\a", 0x08: "\\b", 0x09: "\\t", 0x0A: "\\n", 0x0B: "\\v", 0x0C: "\\f", 0x0D: "\\r"}


def shown_name(path: bytes | str) -> str:
    """Return a path as it is shown: itself, or in double quotes with escapes as git prints odd names."""
    text = os.fsdecode(path)
    if _PLAIN_NAME.fullmatch(text):
        return text
    return '"' + "".join(map(_escape_letter, text)) + '"'


def shown_names(paths: Sequence[bytes]) -> list[str]:
    """Return many paths as they are shown; fast if none has to be quoted."""
    text = os.fsdecode(b"\n".join(paths))
    names = text.split("\n")
    plain = len(names) == len(paths) and _PLAIN_NAMES.fullmatch(text)
    return names if plain else [shown_name(path) for path in paths]


def _escape_letter(letter: str) -> str:
    if letter in '"\\':
        return "\\" + letter
    if _PLAIN_NAME.fullmatch(letter):
        return letter
    code = ord(letter)
    return _ESCAPES.get(code) or "".join(f"\\{byte:03o}" for byte in letter.encode("utf-8", "surrogateescape"))


def marked_line(text: bytes, places: tuple[tuple[int, int], ...], limit: int = MATCH_CHARACTERS) -> str:
    """Return a line with `>> <<` around each match; truncated to the limit around the first match."""
    if not text.isascii() and any(low == high for low, high in places):
        places = _between_letters(text, places)
    if len(text) <= limit:
        return _text(_mark_matches(text, places))
    pieces: list[tuple[str, bool]] = []
    at = 0
    for begin, end in places:
        pieces += [(_text(text[at:begin]), False), (_text(text[begin:end]), True)]
        at = end
    pieces.append((_text(text[at:]), False))
    low, high = _window(pieces, limit)
    shown = "".join(_slice_pieces(pieces, low, high))
    total = sum(len(piece) for piece, _ in pieces)
    before = f"[{low} characters] ..." if low else ""
    after = f"... [{total - high} characters]" if high < total else ""
    return before + shown + after


def _between_letters(text: bytes, places: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Return places without empty ones inside a multi-byte character: a mark there would split it."""
    letters = text.decode("utf-8", "surrogateescape")
    borders = {0, *accumulate(len(letter.encode("utf-8", "surrogateescape")) for letter in letters)}
    return tuple((low, high) for low, high in places if low < high or low in borders)


def _mark_matches(text: bytes, places: tuple[tuple[int, int], ...]) -> bytes:
    if not places:
        return text
    parts: list[bytes] = []
    at = 0
    for begin, end in places:
        parts += (text[at:begin], b">>", text[begin:end], b"<<")
        at = end
    return b"".join((*parts, text[at:]))


def _window(pieces: list[tuple[str, bool]], limit: int) -> tuple[int, int]:
    """Return the range of the joined pieces to show: all, or `limit` characters around the first match."""
    total = sum(len(piece) for piece, _ in pieces)
    if total <= limit:
        return 0, total
    begin = len(pieces[0][0])
    matched = min(len(pieces[1][0]), limit) if len(pieces) > 1 else 0
    low = max(0, min(begin - (limit - matched) // 2, total - limit))
    return (low, low + limit) if len(pieces) > 1 else (0, limit)


def _slice_pieces(pieces: list[tuple[str, bool]], low: int, high: int) -> list[str]:
    """Return the pieces between two positions; a match truncated at an edge keeps its marks."""
    parts: list[str] = []
    at = 0
    for piece, matched in pieces:
        part = piece[max(0, low - at) : max(0, high - at)]
        if matched and (part or (not piece and low <= at <= high)):
            part = f">>{part}<<"
        parts.append(part)
        at += len(piece)
    return parts


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").replace("\0", "\\0")
