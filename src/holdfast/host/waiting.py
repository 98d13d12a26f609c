"""Recognising a command that wanted somebody to type: nobody is there, so it is told and ends instead of waiting."""

from __future__ import annotations

import re
from typing import Final

_ASKED: Final = re.compile(
    r"a (?:terminal|tty) is required|no tty present|must be run from a terminal|not a (?:tty|terminal)"
    r"|could not read (?:Username|Password)|terminal prompts disabled|Host key verification failed"
    r"|EOFError: EOF when reading a line|Inappropriate ioctl for device|cannot open /dev/tty|/dev/tty: No such device"
    r"|[Pp]ass(?:word|phrase)[^\n]{0,60}:\s*$|\[[Yy]/[Nn]\]|\([Yy](?:es)?/[Nn](?:o)?\)"
    r"|Are you sure you want to continue connecting|Aborted by user|Need to install the following packages"
    r"|input: device|stdin is not a t",
    re.MULTILINE,
)

HINT: Final = (
    "Commands get no input: standard input is empty and there is no terminal. Use a flag that answers (-y, --yes, "
    "--no-input, --batch), pipe the answer in, or ask the user to run it."
)


def wanted_input(text: str) -> bool:
    """Tell whether what a failed command printed last shows that it waited for somebody to type."""
    return _ASKED.search(text[-4000:]) is not None
