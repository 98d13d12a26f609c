"""What the user types: lines with history and editing where there is a terminal, several at once by paste or `\\`."""

from __future__ import annotations

import contextlib
import os
import sys

from surehand.cli import render


class Prompt:
    """Reads from standard input; on a terminal by readline, with a history that is kept."""

    def __init__(self, commands: tuple[str, ...]) -> None:
        self._commands = [f"/{name}" for name in (*commands, "exit")]
        self.reading = 0
        """Which line is being typed, counted from 1; 0 while none is."""
        self._reads = 0
        self._prompt, self._more = ("> ", ". ") if sys.stdin.isatty() else ("", "")
        if sys.stdin.isatty() and sys.stdout.isatty():
            with contextlib.suppress(ImportError):
                self._edit_lines()

    def _edit_lines(self) -> None:
        import readline

        from surehand.host import locations

        # A paste of several lines is one text, and Alt-Enter begins another line; both are off by default.
        readline.parse_and_bind("set enable-bracketed-paste on")
        readline.parse_and_bind(r'"\e\C-m": "\C-v\C-j"')
        readline.parse_and_bind("tab: complete")
        readline.set_completer_delims(" \n")
        readline.set_completer(self._completed)
        readline.set_history_length(1000)
        with contextlib.suppress(OSError):
            path = os.path.join(locations.private_dir(locations.home()), "chat_history")
            _keep_history(path)
        if painted := render.paint("> ", "bold", "cyan"):
            self._prompt = _invisible(painted)
            self._more = _invisible(render.paint(". ", "dim"))

    def _completed(self, text: str, state: int) -> str | None:
        found = [name for name in self._commands if text.startswith("/") and name.startswith(text)]
        return found[state] if state < len(found) else None

    def read(self) -> str | None:
        """Return what was typed, several lines as one text; empty after Ctrl-C, None at the end of input."""
        lines: list[str] = []
        while True:
            try:
                line = self._input(self._more if lines else self._prompt)
            except EOFError:
                if sys.stdin.isatty():
                    render.line()
                return "\n".join(lines) if lines else None
            except KeyboardInterrupt:
                render.line()
                if not lines and not self._typed():
                    render.note("/exit or Ctrl-D leaves")
                return ""
            if not line.endswith("\\"):
                return "\n".join([*lines, line])
            lines.append(line[:-1])

    def _input(self, prompt: str) -> str:
        self._reads += 1
        self.reading = self._reads
        try:
            return input(prompt)
        finally:
            self.reading = 0

    def _typed(self) -> str:
        """Return what stood in the line that was given up."""
        if "readline" not in sys.modules:
            return ""
        import readline

        return readline.get_line_buffer()


def _invisible(text: str) -> str:
    """Mark escape sequences as taking no room, so that the line breaks where it should."""
    import re

    return re.sub(r"(\x1b\[[0-9;]*m)", "\x01\\1\x02", text)


def _keep_history(path: str) -> None:
    """Take up what was typed in earlier chats, and keep what is typed in this one."""
    import atexit
    import readline

    if os.path.exists(path):
        readline.read_history_file(path)
    before = readline.get_current_history_length()

    def keep() -> None:
        # Appended, so that two chats at once keep both histories.
        added = readline.get_current_history_length() - before
        with contextlib.suppress(OSError):
            os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600))
            readline.append_history_file(added, path)

    atexit.register(keep)
