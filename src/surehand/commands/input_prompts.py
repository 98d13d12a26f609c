"""Input prompts of commands, recognised: nobody can answer, so the command is stopped and the result says why."""

from __future__ import annotations

import re
from typing import Final

from surehand.core.text import lazy_pattern

_ASKED: Final = lazy_pattern(
    r"a (?:terminal|tty) is required|no tty present|must be run from a terminal|not a (?:tty|terminal)"
    r"|could not read (?:Username|Password)|terminal prompts disabled|Host key verification failed"
    r"|EOFError: EOF when reading a line|Inappropriate ioctl for device|cannot open '?/dev/tty|/dev/tty: No such device"
    r"|No such device or address: '/dev/tty'|non[- ]TTY device|[Ii]nput is not from a terminal|failed tty get"
    r"|[Pp]ass ?(?:word|phrase)[^\n]{0,60}:(?:\s*$| Password change)|\[[Yy]/[Nn]\]|\([Yy](?:es)?/[Nn](?:o)?\)"
    r"|Are you sure you want to continue connecting|Aborted by user|Need to install the following packages"
    r"|input: device|stdin is not a t",
    re.MULTILINE,
)

HINT: Final = (
    "Commands get no input: standard input is empty and there is no terminal. Use a flag that answers (-y, --yes, "
    "--no-input, --batch), pipe the answer in, or ask the user to run it."
)

_PROMPT: Final = lazy_pattern(r"\S[?:>] \Z|#\? \n?\Z")
_READERS: Final = frozenset({"read", "select"})


def describe_wait(name: str) -> str:
    """Return the message for a program that waits for input."""
    return f"{name} waits for input, and nobody can type"


def wanted_input(stdout: str, stderr: str, last: str = "") -> bool:
    """Tell whether a failed command waited for somebody to type.

    What it printed shows it, or `last`, the name of the command whose exit code counts: `read` fails for no other
    reason.
    """
    if last in _READERS or asked_last(stdout) or asked_last(stderr):
        return True
    return _ASKED.search(stderr[-4000:] + stdout[-4000:]) is not None


def asked_last(text: str) -> bool:
    """Tell whether a text ends in a question nobody answered: a prompt on a last line that is not ended."""
    return _PROMPT.search(text[-400:]) is not None
