"""Text: the limits of output, counts with their noun, and regular expressions compiled on first use."""

from __future__ import annotations

import re
from typing import Any, AnyStr, Final, cast

# Limits of output. The setting `engine.output_limit` bounds a result as a whole; how many lines, files or entries a
# result lists is an argument of its tool.

LINE_CHARACTERS: Final = 2_000
"""A line of a file, of a diff, or of a search that shows whole lines."""
MATCH_CHARACTERS: Final = 500
"""A matching line; a longer one is reduced to the text around the match."""
STDOUT_LIMIT: Final = 200 * 1024
STDERR_LIMIT: Final = 56 * 1024
"""Bytes of a command's two streams; together they bound a result of Bash at 256 KiB."""
HEAD_SHARE: Final = 0.8
"""Share of a truncated output that is its beginning, unless the command reports at its end."""
NOTEBOOK_OUTPUT_CHARACTERS: Final = 10_000
"""One output of a notebook cell."""
PDF_CHARACTERS: Final = 100_000
"""The pages of a PDF that one Read returns."""
DIFF_LINES: Final = 200
"""A diff in the result of a change or an undo."""
REFUSAL_DIFF_LINES: Final = 120
"""The diff in a refusal, of what changed since the file was read."""
DRY_RUN_DIFF_LINES: Final = 400
"""The diff of one file in a dry run, which a person decides by."""
SNIPPET_LINES: Final = 24
"""The changed lines that a result quotes."""


def format_count(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: `1 file`, `1,200 files`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def lazy_pattern(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a pattern that is compiled when it is first used."""
    return cast("re.Pattern[AnyStr]", _LazyPattern(pattern, flags))


class _LazyPattern:
    def __init__(self, pattern: Any, flags: int) -> None:
        self._given = pattern, flags

    def __getattr__(self, name: str) -> Any:  # called only for missing attributes, so once for each name
        value = getattr(re.compile(*self._given), name)
        setattr(self, name, value)
        return value
