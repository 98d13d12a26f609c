"""Why a search came to nothing: a pattern that cannot be read, one that costs too much, a deadline."""

from __future__ import annotations

import re
from typing import Final

from surehand.core.errors import ToolFailure

_HINTS: Final = (
    ("multiline", "Set multiline to true to match across lines."),
    ("size limit", "Use smaller numbers of repeats, or [0-9A-Za-z_] for \\w."),
    ('"\\0"', "Only binary files have a NUL, and these are not searched; use Bash for them."),
    ("", "Put a backslash before a special character that is meant literally."),
)
"""What helps, by a word of the complaint."""
_OPENING: Final = "(?:"
"""What `rg` puts before a pattern: the places it names count from there."""
_CARETS: Final = re.compile(r"^(?: {4}| *(\d+): )(?=.*\n( *\^[ ^]*)$)", re.MULTILINE)
"""The line of a pattern with a fault, with its number when there are several, and the signs below it."""
_OFFSET: Final = re.compile(r"PCRE2: error compiling pattern at offset (\d+): (.*)")
_ODD_BRACKET: Final = ("unclosed group", "unopened group", "missing closing parenthesis", "unmatched closing parenth")
_BRACKETS: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]|[()]", re.DOTALL)
_ENDS_IN_ESCAPE: Final = re.compile(r"(?<!\\)(?:\\\\)*\\\Z")


def too_slow(seconds: float) -> ToolFailure:
    """Return the error for a search that was ended at its deadline."""
    return ToolFailure(
        f"the search took longer than {seconds:.0f} s and was stopped",
        code="timeout",
        hint="Search a folder below, narrow the files with `glob` or `type`, or use a simpler pattern.",
    )


def too_costly(pattern: str) -> ToolFailure:
    """Return the error for a pattern with lookaround or backreferences that tries too many ways to match."""
    return ToolFailure(
        "the pattern tries too many ways to match and was stopped",
        hint="Avoid repeats inside repeats; without lookaround and backreferences every pattern is fast.",
        details={"pattern": pattern},
    )


def bad_pattern(pattern: str, complaint: str) -> ToolFailure:
    """Return the error for a pattern `rg` cannot read, with the place where the fault is."""
    reason, position = _fault(pattern, complaint)
    shown = "" if position is None else f" at position {position}: {pattern[:position]}>>{pattern[position:]}"
    return ToolFailure(
        f"the pattern is not a valid regular expression: {reason}{shown}",
        code="invalid_args",
        hint=next(hint for sign, hint in _HINTS if sign in complaint),
        details={"pattern": pattern} | ({"position": position} if position is not None else {}),
    )


def _fault(pattern: str, complaint: str) -> tuple[str, int | None]:
    """Return what is wrong and where. A bracket too few or too many `rg` looks for among those it adds itself."""
    if _ENDS_IN_ESCAPE.search(pattern):
        return "a backslash at its end escapes nothing", len(pattern) - 1
    if said := _OFFSET.search(complaint):
        before = (_OPENING + pattern).encode("utf-8", "replace")[: int(said[1])].decode("utf-8", "ignore")
        reason, position = said[2], len(before) - len(_OPENING)
    else:
        said = re.search(r"^error: (.*)$", complaint, re.MULTILINE)
        reason = said[1] if said else complaint.removeprefix("rg: ").splitlines()[0]
        position = _marked(complaint, pattern)
    if reason.startswith(_ODD_BRACKET):
        odd = _odd_bracket(pattern)
        position = position if odd is None else odd
    return reason, None if position is None else min(max(0, position), len(pattern))


def _marked(complaint: str, pattern: str) -> int | None:
    """Return the place `rg` puts its signs below; of several (a name given twice) the last."""
    line = _CARETS.search(complaint)
    if line is None:
        return None
    above = (_OPENING + pattern).split("\n")[: int(line[1]) - 1] if line[1] else []
    signs = line[2].rstrip(" ")
    column = len(signs.rstrip("^")) - len(line[0])
    return sum(len(each) + 1 for each in above) + column - len(_OPENING)


def _odd_bracket(pattern: str) -> int | None:
    """Return the place of a round bracket without its partner."""
    opened: list[int] = []
    for token in _BRACKETS.finditer(pattern):
        if token[0] == "(":
            opened.append(token.start())
        elif token[0] == ")":
            if not opened:
                return token.start()
            opened.pop()
    return opened[-1] if opened else None
