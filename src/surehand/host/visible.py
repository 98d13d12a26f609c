"""Text made safe to show: control and invisible characters made visible, secrets masked.

`visible` is for whatever a person judges by reading (approvals, logs, descriptions of foreign tools): what they see is
what is there. `mask` is for whatever is kept (logs, audit, events): what must not be there is not.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, cast

MASK = "[masked]"

_PRINTABLE = re.compile(r"[\n\t\x20-\x7e]*")
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# Letters and marks that show nothing: fillers, variation selectors, blanks other than the plain one.
_HIDDEN = (
    "[\u00a0\u00ad\u034f\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3000"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffc\U000133fc-\U0001343f\U0001bca0-\U0001bca3\U0001d159"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def visible(text: str, *, lines: bool = True) -> str:
    """Return `text` with every control, bidi, zero-width, tag and blank look-alike character written out.

    New lines and tabs stay when `lines` is true; otherwise they are written out too, for text that belongs on one line.
    """
    if _PRINTABLE.fullmatch(text) and (lines or ("\n" not in text and "\t" not in text)):
        return text
    return "".join(char if char in "\n\t" and lines else _shown(char) for char in text)


@lru_cache(maxsize=4096)
def _shown(char: str) -> str:
    if " " <= char <= "~":
        return char
    if char in "\n\t\r":
        return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}[char]
    if unicodedata.category(char) not in _HIDDEN_CATEGORIES and not re.match(_HIDDEN, char):
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


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
# One of these is in every text that holds a secret; most texts hold none, and finding that out must cost little.
_HINTS = (
    "key", "secret", "token", "pass", "pwd", "auth", "bearer", "basic", "cookie", "credential", "://", "eyj", "sk-",
    "sk_", "pk-", "pk_", "rk-", "rk_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "_pat_", "glpat-", "xox", "hf_", "npm_",
    "pypi-", "dop_v1_", "shpat_", "akia", "asia", "agpa", "aida", "aroa", "aiza",
)  # fmt: skip


@lru_cache(maxsize=1)
def _secrets() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Return what is searched for, compiled on first need."""
    return tuple((re.compile(pattern), shown) for pattern, shown in _PLACES)


def mask(text: str) -> str:
    """Return `text` without what looks like a key, a token or a password."""
    lower = text.lower()
    if not any(hint in lower for hint in _HINTS):
        return text
    for pattern, replacement in _secrets():
        text = pattern.sub(replacement, text)
    return text


_CUT_MARGIN: Final = 8192


def mask_data(value: Any, *, limit: int | None = None) -> Any:
    """Return plain data with secrets masked, by their key or by their look; long texts are cut at `limit`."""
    if isinstance(value, str):
        # Cut before it is looked at, with a margin: a secret that begins before the cut is still seen whole.
        masked = mask(value if limit is None else value[: limit + _CUT_MARGIN])
        return masked if limit is None or len(masked) <= limit else f"{masked[:limit]}... ({len(value)} characters)"
    if isinstance(value, Mapping):
        return {
            str(key): MASK if _holds_secret(str(key), inner) else mask_data(inner, limit=limit)
            for key, inner in cast("Mapping[Any, Any]", value).items()
        }
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [mask_data(inner, limit=limit) for inner in cast("Sequence[Any]", value)]
    if value is None or isinstance(value, bool | int | float):
        return value
    return mask_data(str(value), limit=limit)


def _holds_secret(key: str, value: Any) -> bool:
    return isinstance(value, str) and value != "" and _is_secret_key(key)


@lru_cache(maxsize=1024)
def _is_secret_key(key: str) -> bool:
    return re.search(_SECRET_KEY, key) is not None
