"""Layout of help pages: names and what they mean in two columns, folded to the width of the terminal."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # on the way of `--help`, where `typing` is not needed otherwise
if TYPE_CHECKING:
    from collections.abc import Sequence


def columns() -> int:
    """Return the width of the terminal, without what `shutil` imports for it."""
    chosen = os.environ.get("COLUMNS", "")
    try:
        return (int(chosen) if chosen.isdecimal() else os.get_terminal_size(1).columns) or 80
    except (ValueError, OSError):
        return 80


def two_columns(rows: Sequence[tuple[str, str]], left: int) -> str:
    """Lay out rows, the second column `left` places from the edge; a narrow terminal gets it below the first."""
    room = columns() - left - 1
    if room >= max(len(about) for _, about in rows):
        return "".join(f"  {name:<{left - 2}}{about}\n" for name, about in rows)
    from textwrap import wrap

    if room < 24:
        left, room = 6, max(columns() - 7, 20)
        return "".join(
            f"  {name}\n" + "".join(f"{'':{left}}{each}\n" for each in wrap(about, room)) for name, about in rows
        )
    folded = [(name, wrap(about, room)) for name, about in rows]
    return "".join(
        f"  {name if not at else '':<{left - 2}}{each}\n" for name, lines in folded for at, each in enumerate(lines)
    )
