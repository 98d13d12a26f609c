"""Markdown on a terminal, as it streams: every piece is shown at once, and only its marks become colours.

Lines stay as the model wrote them, so that what is copied from the screen is what was said. A piece that ends within
what may become a mark is held back until the next one decides.
"""

from __future__ import annotations

import re
from typing import Final

from surehand.cli import render

_LINE_MARK: Final = re.compile(
    r"(?P<indent> *)(?:(?P<fence>```+|~~~+)|(?P<head>#{1,6} )|(?P<item>[-*+] )|(?P<quote>> ?))"
)
_UNDECIDED: Final = re.compile(r" *(`{0,2}|~{0,2}|#{0,6}|[-*+]?)\Z")
_INLINE: Final = re.compile(r"\*\*|`")
_BOLD, _CODE, _DIM, _RESET = "\x1b[1m", "\x1b[36m", "\x1b[2m", "\x1b[0m"


class MarkdownStream:
    """Turns pieces of Markdown into text with colours; without colours, everything passes as it is."""

    def __init__(self) -> None:
        self._plain = not render.paint("x", "bold").startswith("\x1b")
        self._held = ""
        self._at_start = True
        self._fence = ""
        self._whole_line = ""
        self._bold = self._code = False

    def feed(self, piece: str) -> str:
        """Add a piece; return the text that can be shown now."""
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
        """End a line: styles of a line, and marks that were never closed, end with it; a block of code goes on."""
        styled = bool(self._whole_line or self._bold or self._code or self._fence)
        self._at_start, self._whole_line, self._bold, self._code = True, "", False, False
        return (_RESET if styled else "") + "\n" + (_CODE if self._fence else "")
