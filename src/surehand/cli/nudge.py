"""Signals that a prompt would sleep through.

While readline waits for a key, Python looks for a signal only if the very wait was interrupted by it. One that comes a
moment earlier would count only after the next line. The loop beside learns of every signal at once, and sends it again.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from surehand.cli.aside import Aside
    from surehand.cli.prompt import Prompt

_AGAIN_S: Final = 0.05


def nudge(aside: Aside, prompt: Prompt) -> None:
    """Have signals reach a prompt for sure; called in the main thread."""
    hearing, telling = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(telling, warn_on_full_buffer=False)
    main = threading.main_thread().ident or 0

    def heard() -> None:
        for number in os.read(hearing, 100):
            aside.loop.call_later(_AGAIN_S, again, number, prompt.reading)

    def again(number: int, reading: int) -> None:
        if reading and prompt.reading == reading:
            signal.pthread_kill(main, number)

    aside.call(lambda: aside.loop.add_reader(hearing, heard))
