"""`surehand chat` in tmux: what a person sees on the screen, cell by cell."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


class Window:
    """A window of a tmux server of its own."""

    def __init__(self, socket: Path, command: str, columns: int, rows: int) -> None:
        self._tmux = ("tmux", "-S", str(socket), "-f", os.devnull)
        self("new-session", "-d", "-x", str(columns), "-y", str(rows), command)

    def __call__(self, *words: str) -> str:
        return subprocess.run([*self._tmux, *words], capture_output=True, text=True, check=True).stdout

    def screen(self) -> str:
        return self("capture-pane", "-p")

    def columns(self) -> int:
        """Return how wide the program in the window believes it to be."""
        terminal = os.open(self("display-message", "-p", "#{pane_tty}").strip(), os.O_RDONLY | os.O_NOCTTY)
        try:
            return os.get_terminal_size(terminal).columns
        finally:
            os.close(terminal)

    def sees(self, wanted: Callable[[str], bool]) -> str:
        """Return the screen once it shows what is wanted."""
        deadline = time.monotonic() + 300
        while not wanted(shown := self.screen()):
            assert time.monotonic() < deadline, shown
            time.sleep(0.05)
        return shown


@pytest.fixture
def window(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Window]:
    home = os.environ["SUREHAND_HOME"]
    chat = shlex.join([sys.executable, "-m", "surehand", "chat"])
    command = (
        "trap : INT; unset COLUMNS LINES\n"  # Ctrl-C is for the chat alone, and the window says how wide it is
        f"cd {shlex.quote(str(tmp_path))} && SUREHAND_HOME={shlex.quote(home)} {chat}; echo the end; sleep 60"
    )
    made = Window(tmp_path_factory.mktemp("t") / "s", f"sh -c {shlex.quote(command)}", 80, 24)
    yield made
    made("kill-server")


def test_a_chat_in_tmux_is_typed_pasted_resized_and_left(window: Window) -> None:
    window.sees(lambda shown: shown.rstrip().endswith("\n>"))
    window("send-keys", "2+3*4", "Enter")
    shown = window.sees(lambda shown: "= 14.00" in shown)
    assert "● calculate 2+3*4" in shown
    window("send-keys", "half a thought")
    window.sees(lambda shown: "half a thought" in shown)
    window("send-keys", "C-c")
    window.sees(lambda shown: shown.rstrip().endswith("half a thought\n>"))
    window("set-buffer", f"say {'字' * 30}\n  second line")
    window("paste-buffer", "-p")
    shown = window.sees(lambda shown: "second line" in shown)
    assert f"\n> say {'字' * 30}\n    second line" in shown
    window("resize-window", "-x", "50", "-y", "20")
    window.sees(lambda _: window.columns() == 50)  # tmux takes its time to tell the program
    window("send-keys", "Enter")
    shown = window.sees(lambda shown: shown.count("s · 1 call\n>") == 2)
    assert "● tools.echo" in shown
    assert not [line for line in shown.splitlines() if line.startswith("…")]  # what goes on now leaves nothing behind
    window("send-keys", "Up")
    window.sees(lambda shown: shown.rstrip().endswith("字\n    second line"))
    window("send-keys", "C-c")
    window.sees(lambda shown: shown.rstrip().endswith("\n>"))
    window("send-keys", "C-d")
    window.sees(lambda shown: "the end" in shown)
