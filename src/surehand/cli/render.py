"""Render the output of all commands: results as JSON for programs or text for people, errors on stderr."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

from surehand.files.sanitize import visible

LAST_COLUMN = 20
"""Minimum width of a table's last column before the others shrink."""
NARROWEST = 8
_COLOURS = {"red": 31, "green": 32, "yellow": 33, "blue": 34, "magenta": 35, "cyan": 36, "bold": 1, "dim": 2}


_json_failures = False
_printed = False


def begin(options: Namespace | SimpleNamespace) -> None:
    """Start a command: from now on, errors are JSON on stdout if its result would be."""
    global _json_failures, _printed  # per process, like stdout itself
    _json_failures, _printed = as_json(options), False


def as_json(options: Namespace | SimpleNamespace) -> bool:
    """True for `--json`, or if stdout is no terminal and `--text` was not given."""
    return bool(options.json) or not (sys.stdout.isatty() or getattr(options, "text", False))


def facts(options: Namespace, data: Any, text: str | Callable[[], str]) -> None:
    """Print a result: JSON for programs, text for people."""
    if as_json(options):
        json_line(data, indent=2 if sys.stdout.isatty() else None)
    else:
        line(text if isinstance(text, str) else text())


def json_line(data: Any, *, indent: int | None = None) -> None:
    """Print data as JSON; escape non-ASCII only if the stream cannot encode it."""
    text = json.dumps(data, ensure_ascii=False, indent=indent, default=str)
    utf = (sys.stdout.encoding or "ascii").lower().startswith("utf")
    # A lone surrogate stands for a byte that is not UTF-8: only an escape can express it.
    if not text.isascii() and not (utf and _encodes(text)):
        text = json.dumps(data, indent=indent, default=str)
    line(text)


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def line(text: str = "") -> None:
    """Print a text and a line end; characters that stdout cannot encode are escaped."""
    put(text if text.endswith("\n") else text + "\n")


def put(text: str) -> None:
    """Write text to stdout without a line end; characters that it cannot encode are escaped."""
    global _printed
    _printed = True
    try:
        sys.stdout.write(text)
    except UnicodeEncodeError:
        encoding = sys.stdout.encoding or "ascii"
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()


def note(text: str) -> None:
    """Print a remark for people on stderr."""
    sys.stderr.write(text.encode("utf-8", "backslashreplace").decode() + "\n")


def confirm(question: str) -> bool:
    """Ask a person at the terminal for a yes; the end of the input (Ctrl-D) is a no."""
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def warnings(found: Iterable[str]) -> None:
    """Print the warnings of opening the application."""
    for each in found:
        note(paint("warning: ", "yellow", stream=sys.stderr) + each)


def error(message: str, hint: str = "", *, code: str = "execution_error") -> None:
    """Print an error and a hint on stderr; for programs, also as the JSON result on stdout."""
    if _json_failures and not _printed:
        json_line({"ok": False, "error": {"code": code, "message": message, "hint": hint, "details": {}}})
    note(paint("error: ", "red", stream=sys.stderr) + visible(message))
    if hint:
        note(visible(hint))


def paint(text: str, *styles: str, stream: Any = None) -> str:
    """Colour a text if the stream shows colours."""
    stream = stream or sys.stdout
    if os.environ.get("NO_COLOR") or not stream.isatty() or os.environ.get("TERM") == "dumb":
        return text
    codes = ";".join(str(_COLOURS[style]) for style in styles)
    return f"\x1b[{codes}m{text}\x1b[0m"


def diff(text: str, stream: Any = None) -> str:
    """Colour a unified diff, with control characters sanitized."""
    return "\n".join(_diff_line(each, stream) for each in visible(text).split("\n"))


def _diff_line(text: str, stream: Any) -> str:
    if text.startswith(("+++", "---")):
        return paint(text, "bold", stream=stream)
    styles = {"+": "green", "-": "red", "@": "cyan"}
    return paint(text, styles[text[0]], stream=stream) if text[:1] in styles else text


def question(text: str, stream: Any = None) -> str:
    """Colour a question about a call: what it is about, its command, and the diff at its end."""
    stream = stream or sys.stderr
    if text.startswith("--- "):
        return diff(text, stream)
    head, mark, changes = text.partition("\n--- ")
    first, *rest = head.split("\n")
    lines = [paint(first, "yellow", "bold", stream=stream)]
    lines += [paint(each, "bold", stream=stream) if each.startswith("  $ ") else each for each in rest]
    return "\n".join(lines) + ("\n" + diff(f"--- {changes}", stream) if mark else "")


def table(rows: Iterable[Sequence[str]], heads: Sequence[str] = (), *, fold: bool = False) -> str:
    """Lay out rows in columns; wide characters count as two, the last column is not padded.

    With `fold`, text of the last column that does not fit the terminal continues on the next line of that column.
    """
    cells = [list(row) for row in rows]
    every = ([list(heads)] if heads else []) + cells
    if not every:
        return ""
    widths = [max(width(row[column]) for row in every) for column in range(len(every[0]))]
    if sys.stdout.isatty():
        widths = _narrow_columns(widths, keep_last=fold)
        for row in every:
            row[:] = [_fit_cell(cell, room) for cell, room in zip(row[:-1], widths[:-1], strict=True)] + [
                row[-1] if fold else _fit_cell(row[-1], widths[-1])
            ]
    if fold:
        left = sum(widths[:-1]) + 2 * len(widths[:-1])
        for row in cells:
            row[-1] = wrap_indented(row[-1], left)
    lines = [_row(row, widths) for row in every]
    if heads:
        lines[0] = paint(lines[0], "bold")
    return "\n".join(lines)


def _narrow_columns(widths: list[int], *, keep_last: bool) -> list[int]:
    """Return column widths that fit the terminal: shrink the last first, then the widest."""
    widths = list(widths)
    room = columns() - 2 * (len(widths) - 1)
    if not keep_last:
        widths[-1] = max(min(widths[-1], room - sum(widths[:-1])), min(widths[-1], LAST_COLUMN))
    taken = [*widths[:-1], LAST_COLUMN if keep_last else widths[-1]]
    while sum(taken) > room and max(taken) > NARROWEST:
        widest = taken.index(max(taken))
        taken[widest] = max(NARROWEST, taken[widest] - (sum(taken) - room))
    return [*taken[:-1], widths[-1] if keep_last else taken[-1]]


def _fit_cell(cell: str, room: int) -> str:
    return cell if width(cell) <= room or "\x1b" in cell or "\n" in cell else shorten_line(cell, room)


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    *first, last = cells
    padded = [_pad_cell(cell, columns) for cell, columns in zip(first, widths[:-1], strict=True)]
    return "  ".join([*padded, last]).rstrip()


def wrap_indented(text: str, left: int) -> str:
    """Wrap a text to the terminal with a hanging indent of `left` columns.

    Words are not broken. If the indent leaves hardly any room, the text is left for the terminal to wrap.
    """
    room = columns() - left - 1
    if room < 16 or width(text) <= room or not sys.stdout.isatty():
        return text
    from textwrap import wrap

    lines = wrap(text, room, break_long_words=False, break_on_hyphens=False)
    return ("\n" + " " * left).join(lines)


def width(text: str) -> int:
    """Return how many terminal columns a text takes."""
    if text.isascii():
        return len(text)
    from wcwidth import wcswidth

    return max(wcswidth(text), 0)


def _pad_cell(text: str, columns: int) -> str:
    return text + " " * (columns - width(text))


def columns() -> int:
    """Return the width of the terminal."""
    import shutil

    return shutil.get_terminal_size().columns


def shorten_line(text: str, limit: int) -> str:
    """Return the first line of a text, truncated to a width."""
    return fit_line(text.strip().split("\n", 1)[0], limit)


def fit_line(line: str, limit: int) -> str:
    """Return a line with its indentation, truncated to a width."""
    if width(line) <= limit:
        return line
    while line and width(line) > limit - 1:
        line = line[:-1]
    return line + "…"
