"""A command as a sandbox runs it: what is started, how it ended, and what the system can enforce on it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from surehand.core.errors import ToolFailure
from surehand.core.frozen import frozen

TERM_S: Final = 5.0
"""How long a command may take to end after SIGTERM."""
KILL_S: Final = 2.0
"""How long the kernel may take to end it after SIGKILL."""
LONG_ARGUMENT: Final = 100_000
"""Bytes above which a script is handed over in a file: the kernel takes no argument over 128 KiB."""
SCRIPT: Final = "/dev/fd/10"
"""Where a command finds its script."""
NO_LAYER: Final = "the system could not lay a copy over the workspace: "
"""How the reason begins for which a dry run never ran."""

Feed = Callable[[bytes], None]


@frozen
class Command:
    """A program to start; it can read `script` (when given) at `SCRIPT`, and `descriptors` follow from there."""

    argv: Sequence[str]
    cwd: str
    environment: Mapping[str, str]
    script: bytes | None = None
    descriptors: Sequence[int] = ()


@frozen
class Ended:
    """How a run came to its end. `stopped` is why we ended it: `timeout`, `cancelled`, or a broken limit in words."""

    exit_code: int
    signal: int = 0
    cpu_s: float = 0.0
    max_rss: int = 0
    wall_s: float = 0.0
    left_behind: int = 0
    """Processes it had left running, which ended with it; at least so many where they cannot be counted."""
    stopped: str = ""
    waiting: str = ""
    """The program that waited for somebody to type when it ended."""
    change_log: Mapping[str, Any] | None = None

    def usage(self) -> dict[str, Any]:
        """Return what the command used, as plain data."""
        return {"cpu_s": round(self.cpu_s, 4), "max_rss": self.max_rss, "wall_s": round(self.wall_s, 4)}


class SandboxFailure(ToolFailure):
    """The sandbox could not do what was asked; the message says why."""


@frozen
class Abilities:
    """What the system can enforce. `why_not`: why commands cannot have a private view.

    `failed`: it seemed to be available, and could not be set up when it was needed.
    """

    landlock: int = 0
    seccomp: bool = False
    private_view: bool = False
    """Commands can have a view of the disk of their own (on Linux by namespaces): secrets hidden, paths read-only."""
    overlay: bool = False
    why_not: str = ""
    failed: bool = False
    other_mechanism: str = ""
    """The name of another mechanism that confines writes and blocks the network."""

    @property
    def enough(self) -> bool:
        """Whether writes can be confined and the network cut, the least a sandbox must do."""
        return self.private_view or (self.landlock > 0 and self.seccomp) or bool(self.other_mechanism)


def start_failure(path: str, number: int) -> str:
    """Say why a command could not start, from the path and the error the kernel named."""
    return f"it could not start: {path + ': ' if path else ''}{os.strerror(number)}"


def bash() -> str:
    """Return the path of bash; raise ToolFailure where there is none."""
    for path in ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"):
        if os.access(path, os.X_OK):
            return path
    import shutil  # needed on few systems, and larger than all of this

    if found := shutil.which("bash"):
        return found
    raise ToolFailure("there is no bash on this machine", code="tool_unavailable", hint="Install bash.")
