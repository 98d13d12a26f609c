"""Text helpers: a count with its noun, patterns compiled on first use, and how much text a model is shown."""

from __future__ import annotations

import re
from typing import Any, AnyStr, Final, cast

# Limits of output, by what is shown. A result as a whole is bounded by the setting `engine.output_limit`; how many
# lines, files or entries one answer lists is an argument of its tool, and stands there.

LINE_CHARACTERS: Final = 2_000
"""A line of a file, of a diff, or of a search that shows whole lines."""
MATCH_CHARACTERS: Final = 500
"""A line with a match; of a longer one, what stands around the match."""
STDOUT_LIMIT: Final = 200 * 1024
STDERR_LIMIT: Final = 56 * 1024
"""Bytes of a command's two streams; together the 256 KiB of a result."""
HEAD_SHARE: Final = 0.8
"""How much of a truncated output is its beginning, unless the command says more at its end."""
NOTEBOOK_OUTPUT_CHARACTERS: Final = 10_000
"""One output of a notebook's cell."""
PDF_CHARACTERS: Final = 100_000
"""The pages of a PDF that one Read returns."""
DIFF_LINES: Final = 200
"""A diff in the result of a change or an undo."""
REFUSAL_DIFF_LINES: Final = 120
"""A diff in a refusal: what somebody else changed since the file was read."""
DRY_RUN_DIFF_LINES: Final = 400
"""The diff of one file in a dry run, which a person decides by."""
SNIPPET_LINES: Final = 24
"""The changed lines that a result quotes."""


def format_count(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: `1 file`, `1,200 files`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def lazy_pattern(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return what `re.compile` returns, compiled when its first attribute is asked for."""
    return cast("re.Pattern[AnyStr]", _LazyPattern(pattern, flags))


class _LazyPattern:
    def __init__(self, pattern: Any, flags: int) -> None:
        self._given = pattern, flags

    def __getattr__(self, name: str) -> Any:  # only for what is not there yet, so once for each name
        value = getattr(re.compile(*self._given), name)
        setattr(self, name, value)
        return value
