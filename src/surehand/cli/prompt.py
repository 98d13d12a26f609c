"""The prompt of a chat: lines with editing, history and completion on a terminal; plain lines otherwise.

On a terminal it is prompt_toolkit's (extra `chat`): several lines by paste, Alt-Enter or `\\` at the end of a line, and
output that comes meanwhile appears above it. Without that package, and in a pipe, lines are read as they come.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from surehand.cli import render
from surehand.state import locations

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document
    from prompt_toolkit.key_binding import KeyBindings


class Prompt(Protocol):
    """Reads what the user types."""

    async def read(self) -> str | None:
        """Return what was typed, several lines as one text; empty after Ctrl-C, None at the end of input."""
        ...


def open_prompt(commands: Sequence[str], workspace: str) -> Prompt:
    """Return the prompt for the terminal there is."""
    if sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        # No queries of the cursor's position: each takes a round trip, and some terminals never answer.
        os.environ.setdefault("PROMPT_TOOLKIT_NO_CPR", "1")
        with contextlib.suppress(ImportError):
            return EditedPrompt(commands, workspace)
        render.note("for editing, history and completion: pip install 'surehand[chat]'")
    return PlainPrompt()


class PlainPrompt:
    """Reads lines as they come."""

    async def read(self) -> str | None:
        """Return the next line, with those that `\\` at its end joins to it."""
        lines: list[str] = []
        while True:
            if sys.stdin.isatty():
                render.put(". " if lines else "> ")
            line = await _read_line()
            if line is None:
                return "\n".join(lines) if lines else None
            if not line.endswith("\\"):
                return "\n".join([*lines, line])
            lines.append(line[:-1])


async def _read_line() -> str | None:
    """Return a line of standard input, None at its end; read in a daemon thread, which exit does not wait for."""
    loop, line = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

    def deliver(text: str) -> None:
        if not line.done():
            line.set_result(text)

    def wait() -> None:
        text = sys.stdin.readline()
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(deliver, text)

    threading.Thread(target=wait, daemon=True).start()
    text = await line
    return text.removesuffix("\n") if text else None


class EditedPrompt:
    """Reads with prompt_toolkit: editing, history, completion, several lines."""

    def __init__(self, commands: Sequence[str], workspace: str) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.formatted_text import ANSI

        self._first = ANSI(render.paint("> ", "bold", "cyan"))
        self._session: PromptSession[str] = PromptSession(
            multiline=True,
            key_bindings=_bind_keys(),
            completer=_completer([f"/{name}" for name in (*commands, "exit")], workspace),
            complete_while_typing=False,
            prompt_continuation="  ",
            history=_open_history(),
        )

    async def read(self) -> str | None:
        """Return what was typed; output written meanwhile appears above the prompt."""
        from prompt_toolkit.patch_stdout import patch_stdout

        try:
            with patch_stdout(raw=True):
                return await self._session.prompt_async(self._first, handle_sigint=False)
        except EOFError:
            return None
        except KeyboardInterrupt:
            if not self._session.default_buffer.text:
                render.note("/exit or Ctrl-D leaves")
            return ""


def _bind_keys() -> KeyBindings:
    """Enter sends; Alt-Enter, and Enter after a `\\`, begin another line."""
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    def send(event: Any) -> None:
        buffer = event.current_buffer
        if buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    def begin_line(event: Any) -> None:
        event.current_buffer.insert_text("\n")

    keys.add("enter")(send)
    keys.add("escape", "enter")(begin_line)
    return keys


def _completer(commands: Sequence[str], workspace: str) -> Completer:
    """Complete commands after `/` at the beginning, and paths of the workspace everywhere else."""
    from prompt_toolkit.completion import Completer, Completion
    from prompt_toolkit.completion.filesystem import PathCompleter
    from prompt_toolkit.document import Document

    class ChatCompleter(Completer):
        paths = PathCompleter(get_paths=lambda: [workspace], expanduser=True)

        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
            typed = document.text_before_cursor
            if typed.startswith("/") and " " not in typed:
                return [Completion(name, -len(typed)) for name in commands if name.startswith(typed)]
            word = typed.rpartition(" ")[2].rpartition("\n")[2].removeprefix("@")
            return self.paths.get_completions(Document(word), complete_event) if word else []

    return ChatCompleter()


def _open_history() -> Any:
    """Return the input history of earlier chats, kept in a private file."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    try:
        path = os.path.join(locations.private_dir(locations.home()), "chat_history")
        os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600))
    except OSError:
        return InMemoryHistory()
    return FileHistory(path)
