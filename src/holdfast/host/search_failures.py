"""Why a search came to nothing: a pattern that cannot be read, one that costs too much, a deadline."""

from __future__ import annotations

import re
from typing import Final

from holdfast.core.errors import ToolFailure

_HINTS: Final = (
    ("multiline", "Set multiline to true to match across lines."),
    ("size limit", "Use smaller numbers of repeats, or [0-9A-Za-z_] for \\w."),
    ("", "Put a backslash before a special character that is meant literally."),
)
"""What helps, by a word of the complaint."""


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
    reason = next((line for line in complaint.splitlines() if line.startswith("error: ")), "").removeprefix("error: ")
    reason = reason or complaint.removeprefix("rg: ").splitlines()[0]
    position = _position(pattern, complaint)
    shown = "" if position is None else f" at position {position}: {pattern[:position]}>>{pattern[position:]}"
    return ToolFailure(
        f"the pattern is not a valid regular expression: {reason}{shown}",
        code="invalid_args",
        hint=next(hint for sign, hint in _HINTS if sign in complaint),
        details={"pattern": pattern} | ({"position": position} if position is not None else {}),
    )


def _position(pattern: str, complaint: str) -> int | None:
    """Return where the fault is; Python's reader points at the bracket itself, `rg` sees it in brackets of its own."""
    try:
        re.compile(pattern)
    except re.error as problem:
        if problem.pos is not None:
            return problem.pos
    except (RecursionError, OverflowError):
        pass
    caret = next((line for line in complaint.splitlines() if line.startswith("    ") and not line.strip("^ ")), "")
    return max(0, caret.index("^") - len("    (?:")) if "^" in caret else None
