"""The screen of a conversation: the streamed answer, a block for each finished call, and a status of running calls.

The answer goes to stdout, everything else to stderr. The status, with the last lines of a running command's output, is
drawn only if stderr is a terminal, and is erased before anything else is written.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import re
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, cast

from surehand.cli import render
from surehand.core.call import ToolCall, ToolResult
from surehand.core.text import format_count
from surehand.files.sanitize import visible
from surehand.state.stdio import set_echo

if TYPE_CHECKING:
    from surehand.agent.loop import Outcome
    from surehand.app import Surehand
    from surehand.core.events import Event
    from surehand.models import Choice

_TICK_S: Final = 0.5
_CLEAR: Final = "\r\x1b[J"
LIVE_LINES: Final = 8
"""Last lines of a running command's output that are shown while it runs."""


class Screen:
    """Shows one conversation; called with each chunk of the answer."""

    def __init__(self, app: Surehand, choice: Choice) -> None:
        self.choice = choice
        self.at_prompt = False
        """Whether the user is typing: background events are then summarized later."""
        self._session_id = app.session.id
        self._live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._lock = threading.RLock()  # handlers in worker threads emit events too
        self._running: dict[str, tuple[ToolCall, str]] = {}
        self._asked: set[str] = set()
        self._open_questions = 0
        self._held: list[str] = []
        self._markdown = MarkdownStream()
        self._unsaid = ""
        self._news: list[str] = []
        self._drawn = 0
        """Lines of status drawn now; erased before anything else is written."""
        self._mid_line = False
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        atexit.register(self._show_typed)
        app.bus.subscribe(self._event)

    # -- the answer ----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the clock and the status of a new answer; called on the event loop."""
        self._since = monotonic()
        if self._live:
            set_echo(0, False)
            self._tick()

    def __call__(self, text: str) -> None:
        with self._lock:
            shown = self._markdown.feed(visible(text))
            if not shown:
                return
            if self._open_questions:
                self._unsaid += shown
                return
            self._wipe()
            render.put(shown)
            self._mid_line = not shown.endswith("\n")

    def end(self, outcome: Outcome) -> None:
        """End an answer: print a line with its time and cost, and why it stopped early if it did."""
        with self._lock:
            self._stop()
            if outcome.stop == "empty":
                self._write(self._dim("(the model said nothing)"))
            calls = f" · {format_count(len(outcome.calls), 'call')}" if outcome.calls else ""
            took = format_duration(monotonic() - self._since)
            if self._live:
                spent = outcome.spent.usage.total
                tokens = f" · {spent:,} tokens" if spent else ""
                self._write(self._dim(f"{took}{calls}{tokens}{_cost(outcome)}"))
            if not outcome.answered:
                self._write(render.paint(f"stopped: {outcome.stop}", "yellow", stream=sys.stderr))

    def break_off(self) -> None:
        """End a failed or interrupted answer, and start a new line."""
        with self._lock:
            self._stop()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._show_typed()
        self._running.clear()
        self._wipe()
        self._end_line()
        self.flush()

    def flush(self) -> None:
        """Print what was held back while something else used the terminal."""
        with self._lock:
            if self._open_questions:
                return
            held, self._held, unsaid, self._unsaid = self._held, [], self._unsaid, ""
            for text in held:
                render.note(text)
            if unsaid:
                render.put(unsaid)
                self._mid_line = not unsaid.endswith("\n")

    @contextmanager
    def question(self) -> Generator[None]:
        """While a question is open, hold back all other output."""
        with self._lock:
            self._wipe()
            self._end_line()
            self._open_questions += 1
        try:
            yield
        finally:
            self._open_questions -= 1
            if self._timer is None:
                self._show_typed()
            self.flush()

    def _show_typed(self) -> None:
        if self._live:
            set_echo(0, True)

    # -- calls, agents and notes ---------------------------------------------------------------------------------------

    def _event(self, event: Event) -> None:
        with self._lock:
            if event.kind == "subagent_event":
                self._take(event.data["event"], str(event.data["subagent_id"]))
            elif event.session_id == self._session_id:
                self._take(event, "")

    def _take(self, event: Event, agent: str) -> None:
        match event.kind:
            case "call_started":
                self._running[event.call_id] = (event.data["call"], agent)
                self._news = []
                self._draw()
            case "call_progress":
                self._news = [*self._news, *str(event.data["progress"].text).rstrip().split("\n")][-LIVE_LINES:]
                self._draw()
            case "call_finished":
                self._show_finished(event, agent)
            case "permission_asked":
                self._asked.add(event.call_id)
            case "subagent_start" | "subagent_end" | "note":
                self._write(self._dim(_format_agent_event(event)), keep=event.kind == "subagent_end")
            case _:
                pass

    def _show_finished(self, event: Event, agent: str) -> None:
        self._running.pop(event.call_id, None)
        call: ToolCall = event.data["call"]
        result: ToolResult = event.data["result"]
        seen = event.call_id in self._asked
        self._asked.discard(event.call_id)
        indent = f"  {agent} " if agent else ""
        # The offline planner's answer is the result of its call, which need not be shown twice.
        body = self.choice.provider != "offline"
        self._write(render_finished(call, result, render.columns(), indent=indent, diff_seen=seen, body=body))
        self._draw()

    def _write(self, text: str, *, keep: bool = False) -> None:
        """Print a line, or hold it back while something else uses the terminal."""
        if self.at_prompt and not keep:
            return
        if self._open_questions:
            self._held.append(text)
            return
        self._wipe()
        self._end_line()
        render.note(text)

    # -- status --------------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        with self._lock:
            self._draw()
        self._timer = asyncio.get_running_loop().call_later(_TICK_S, self._tick)

    def _draw(self) -> None:
        if not self._live or self._timer is None or self._open_questions or self._mid_line or self.at_prompt:
            return
        self._wipe()
        took = format_duration(monotonic() - self._since)
        calls = [call for call, _ in self._running.values()]
        if not calls:
            what = f"waiting for {self.choice.name}"
        elif len(calls) > 1:
            what = f"{len(calls)} calls: {', '.join(dict.fromkeys(call.name for call in calls))}"
        else:
            what = " ".join(title(calls[0], 60))
        room = render.columns() - 4
        # A wrapped line could not be erased: each is truncated to the terminal's width.
        news = [f"  {render.fit_line(visible(line).expandtabs(), room)}" for line in self._news] if calls else []
        lines = [f"… {render.shorten_line(f'{took} · {what}', room)}", *news]
        sys.stderr.write("\n".join(map(self._dim, lines)))
        sys.stderr.flush()
        self._drawn = len(lines)

    def _wipe(self) -> None:
        if self._drawn:
            up = f"\x1b[{self._drawn - 1}A" if self._drawn > 1 else ""
            sys.stderr.write(f"{up}{_CLEAR}")
            sys.stderr.flush()
            self._drawn = 0

    def _end_line(self) -> None:
        if rest := self._markdown.end():
            render.put(rest)
            self._mid_line = True
        if self._mid_line:
            render.line()
            self._mid_line = False

    def _dim(self, text: str) -> str:
        return render.paint(text, "dim", stream=sys.stderr)


def _cost(outcome: Outcome) -> str:
    spent = outcome.spent
    if not spent.cost:
        return ""
    return f" · about ${spent.cost:.4f}" if spent.estimated else f" · cost {spent.cost:.4f}"


def _format_agent_event(event: Event) -> str:
    """Format an event of a sub-agent, or a note, as one line."""
    data = event.data
    if event.kind == "note":
        return visible(str(data.get("message", "")))
    agent = f"{data['subagent_id']} ({visible(str(data.get('description') or data.get('profile') or ''))})"
    if event.kind == "subagent_start":
        return f"{agent} begins: {render.shorten_line(visible(str(data['prompt'])), 60)}"
    return f"{agent} is {data['state']}: {format_count(data['tool_calls'], 'call')}, {data['tokens']:,} tokens"


# Rendering a call and its result as a block of a few lines.

DIFF_LINES: Final = 24
OUTPUT_LINES: Final = 6
_IN_THE_DIFF: Final = ("content", "old_string", "new_string", "edits", "new_source")


def title(call: ToolCall, columns: int) -> tuple[str, str]:
    """Return a call's name, and its subject and other arguments shortened to fit the line."""
    args = call.shown_args
    words = [visible(str(args.pop(call.subject)), lines=False)] if call.subject else []
    rest = {name: value for name, value in args.items() if name not in _IN_THE_DIFF}
    words += [f"{visible(str(name), lines=False)}={_short(value)}" for name, value in rest.items()]
    name = visible(call.name, lines=False)
    return name, render.shorten_line(" ".join(words), max(10, columns - render.width(name) - 1))


def _short(value: Any) -> str:
    return render.shorten_line(visible(value if isinstance(value, str) else repr(value), lines=False), 40)


def render_finished(
    call: ToolCall, result: ToolResult, columns: int, *, indent: str = "", diff_seen: bool = False, body: bool = True
) -> str:
    """Return the block of a finished call. With `diff_seen`, a diff just shown for approval is left out."""
    mark = _paint("●", "green") if result.ok else _paint("●", "red")
    took = _paint(f" {format_duration(float(result.meta.get('duration_ms') or 0) / 1000)}", "dim")
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
    return [_paint(render.fit_line(line.expandtabs().rstrip(), columns), "dim") for line in shown]


def _diff(text: str, change_id: str, columns: int, seen: bool) -> list[str]:
    lines = [line for line in visible(text).split("\n")[2:] if line]
    added, taken = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    sums = f"+{added} -{taken}" + (f"  (change {change_id})" if change_id else "")
    shown = [] if seen else [render.fit_line(line.expandtabs().rstrip(), columns) for line in lines[:DIFF_LINES]]
    if not seen and len(lines) > DIFF_LINES:
        more = f"… {format_count(len(lines) - DIFF_LINES, 'more line')}"
        shown.append(f"{more}: surehand diff {change_id}" if change_id else more)
    coloured = render.diff("\n".join(shown), stream=sys.stderr).split("\n") if shown else []
    return [*coloured, _paint(sums, "dim")]


def format_duration(seconds: float) -> str:
    """Format a duration: `35 ms`, `4.2 s`, `3 min 5 s`, `2 h 3 min`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _paint(text: str, *styles: str) -> str:
    return render.paint(text, *styles, stream=sys.stderr)


# Streamed Markdown is shown at once, with only its marks turned into colours. Line breaks stay as the model wrote them,
# so that text copied from the screen is the model's. The end of a chunk that may be half of a mark is held back until
# the next chunk.

_LINE_MARK: Final = re.compile(
    r"(?P<indent> *)(?:(?P<fence>```+|~~~+)|(?P<head>#{1,6} )|(?P<item>[-*+] )|(?P<quote>> ?))"
)
_UNDECIDED: Final = re.compile(r" *(`{0,2}|~{0,2}|#{0,6}|[-*+]?)\Z")
_INLINE: Final = re.compile(r"\*\*|`")
_BOLD, _CODE, _DIM, _RESET = "\x1b[1m", "\x1b[36m", "\x1b[2m", "\x1b[0m"


class MarkdownStream:
    """Colours streamed Markdown; without colours, text passes unchanged."""

    def __init__(self) -> None:
        self._plain = not render.paint("x", "bold").startswith("\x1b")
        self._held = ""
        self._at_start = True
        self._fence = ""
        self._whole_line = ""
        self._bold = self._code = False

    def feed(self, piece: str) -> str:
        """Add a chunk; return the text that can be shown now."""
        if self._plain:
            return piece
        self._held += piece
        shown: list[str] = []
        while self._held and (part := self._take()):
            shown.append(part)
        return "".join(shown)

    def end(self) -> str:
        """Return the text held back, and reset the styles."""
        rest, self._held = self._held, ""
        styled = bool(self._fence or self._whole_line or self._bold or self._code)
        self._at_start, self._fence, self._whole_line, self._bold, self._code = True, "", "", False, False
        return rest + (_RESET if styled else "")

    def _take(self) -> str:
        """Consume one token: a mark at the start of a line, or text up to the next mark."""
        if self._at_start:
            if "\n" not in self._held and _UNDECIDED.fullmatch(self._held):
                return ""
            self._at_start = False
            if taken := self._take_line_mark():
                return taken
        line, newline, rest = self._held.partition("\n")
        if self._fence or self._whole_line:
            self._held = rest
            return line + (self._end_line() if newline else "")
        mark = _INLINE.search(line)
        if mark is None:
            if not newline and line.endswith("*"):
                line, self._held = line[:-1], "*"
                return line
            self._held = rest
            return line + (self._end_line() if newline else "")
        self._held = self._held[mark.end() :]
        return line[: mark.start()] + self._toggle(mark[0])

    def _take_line_mark(self) -> str:
        mark = _LINE_MARK.match(self._held)
        if mark is None:
            return ""
        if self._fence:
            if not (mark["fence"] or "").startswith(self._fence):
                return ""
            self._fence = ""
            self._held = self._held[mark.end() :]
            self._whole_line = _DIM
            return _RESET + _DIM + mark[0]
        self._held = self._held[mark.end() :]
        if mark["fence"]:
            self._fence = mark["fence"][:3]
            return _DIM + mark[0]
        if mark["head"]:
            self._whole_line = _BOLD
            return mark["indent"] + _BOLD + mark["head"]
        if mark["item"]:
            return f"{mark['indent']}• "
        self._whole_line = _DIM
        return f"{mark['indent']}{_DIM}│ "

    def _toggle(self, mark: str) -> str:
        if mark == "`":
            self._code = not self._code
        elif self._code:
            return mark
        else:
            self._bold = not self._bold
        return _RESET + (_BOLD if self._bold else "") + (_CODE if self._code else "")

    def _end_line(self) -> str:
        """End a line, and with it all styles and unclosed marks, except a block of code."""
        styled = bool(self._whole_line or self._bold or self._code or self._fence)
        self._at_start, self._whole_line, self._bold, self._code = True, "", False, False
        return (_RESET if styled else "") + "\n" + (_CODE if self._fence else "")
