"""How a call and what came of it look on a terminal: one block of a few lines."""

from __future__ import annotations

import sys
from typing import Any, Final, cast

from surehand.cli import render
from surehand.core.call import ToolCall, ToolResult
from surehand.core.counts import format_count
from surehand.files.sanitize import visible

DIFF_LINES: Final = 24
OUTPUT_LINES: Final = 6
_SUBJECTS: Final = (
    *("command", "file_path", "notebook_path", "pattern", "path", "url", "query", "prompt", "title", "expression"),
    *("text", "id", "name"),
)
"""The argument that says most of a call; the others follow it by name."""


_IN_THE_DIFF: Final = ("content", "old_string", "new_string", "edits", "new_source")


def title(call: ToolCall, columns: int) -> tuple[str, str]:
    """Return a call's name, and what it is about, on one line that fits."""
    args = call.shown_args
    subject = next((name for name in _SUBJECTS if isinstance(args.get(name), str)), None)
    words = [visible(str(args.pop(subject)), lines=False)] if subject else []
    rest = {name: value for name, value in args.items() if name not in _IN_THE_DIFF}
    words += [f"{visible(str(name), lines=False)}={_short(value)}" for name, value in rest.items()]
    name = visible(call.name, lines=False)
    return name, render.shorten_line(" ".join(words), max(10, columns - render.width(name) - 1))


def _short(value: Any) -> str:
    return render.shorten_line(visible(value if isinstance(value, str) else repr(value), lines=False), 40)


def render_finished(
    call: ToolCall, result: ToolResult, columns: int, *, indent: str = "", diff_seen: bool = False, body: bool = True
) -> str:
    """Return the block of a call that has ended. A diff the user has just approved is not shown again."""
    mark = _paint("●", "green") if result.ok else _paint("●", "red")
    took = _paint(f" {took_words(float(result.meta.get('duration_ms') or 0) / 1000)}", "dim")
    name, about = title(call, columns - len(indent) - 12)
    head = f"{indent}{mark} {_paint(name, 'bold')} {about}{took}"
    lines = _body(result, columns - len(indent) - 2, diff_seen) if body else []
    return "\n".join([head, *(f"{indent}  {line}" for line in lines)])


def _body(result: ToolResult, columns: int, diff_seen: bool) -> list[str]:
    given: Any = result.data
    data = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    lines = [visible(line) for line in result.output.strip("\n").split("\n") if line.strip()]
    if result.error is not None:
        said = visible(result.error.message).split("\n")[:4]
        shown = _tail(lines[:-1], columns) if "exit_code" in data else []
        return [*shown, *(_paint(render.shorten_line(line, columns), "red") for line in said)]
    if isinstance(data.get("diff"), str) and data["diff"]:
        return _diff(data["diff"], str(data.get("change_id") or ""), columns, diff_seen)
    if "exit_code" in data:
        return _tail(lines, columns)
    if len(lines) == 1:
        return [_paint(render.shorten_line(lines[0], columns), "dim")]
    return [_paint(f"{len(lines):,} lines", "dim")] if lines else []


def _tail(lines: list[str], columns: int) -> list[str]:
    left_out = len(lines) - OUTPUT_LINES
    shown = [f"… {format_count(left_out, 'line')} above", *lines[-OUTPUT_LINES:]] if left_out > 0 else lines
    return [_paint(render.shorten_line(line.expandtabs(), columns), "dim") for line in shown]


def _diff(text: str, change_id: str, columns: int, seen: bool) -> list[str]:
    lines = [line for line in visible(text).split("\n")[2:] if line]
    added, taken = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    sums = f"+{added} -{taken}" + (f"  (change {change_id})" if change_id else "")
    shown = [] if seen else [render.shorten_line(line.expandtabs(), columns) for line in lines[:DIFF_LINES]]
    if not seen and len(lines) > DIFF_LINES:
        more = f"… {format_count(len(lines) - DIFF_LINES, 'more line')}"
        shown.append(f"{more}: surehand diff {change_id}" if change_id else more)
    coloured = render.diff("\n".join(shown), stream=sys.stderr).split("\n") if shown else []
    return [*coloured, _paint(sums, "dim")]


def took_words(seconds: float) -> str:
    """Return a time span in words: `35 ms`, `4.2 s`, `3 min 5 s`, `2 h 3 min`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _paint(text: str, *styles: str) -> str:
    return render.paint(text, *styles, stream=sys.stderr)
