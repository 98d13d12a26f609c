"""A command in a sandbox: what is started, its run, how it ended, and what the system can enforce on it."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from surehand.core.errors import ToolFailure
from surehand.core.frozen import frozen

if TYPE_CHECKING:
    import asyncio

TERM_S: Final = 5.0
"""How long a command may take to end after SIGTERM."""
KILL_S: Final = 2.0
"""How long the kernel may take to end it after SIGKILL."""
LONG_ARGUMENT: Final = 100_000
"""Bytes above which a script is handed over in a file: the kernel takes no argument over 128 KiB."""
SCRIPT: Final = "/dev/fd/10"
"""Where a command finds its script."""
NO_LAYER: Final = "the system could not lay a copy over the workspace: "
"""How `Ended.stopped` begins for a dry run that never ran."""

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
    """How a run ended. `stopped` is why we ended it: `timeout`, `cancelled`, or a sentence on an exceeded limit."""

    exit_code: int
    signal: int = 0
    cpu_s: float = 0.0
    max_rss: int = 0
    wall_s: float = 0.0
    left_behind: int = 0
    """Processes it left running, which were killed; a lower bound where they cannot be counted."""
    stopped: str = ""
    waiting: str = ""
    """The program that waited for input when it ended."""
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
    def records_changes(self) -> bool:
        """Whether what commands change is recorded, so that it can be undone (on Linux by seccomp)."""
        return self.seccomp

    @property
    def enough(self) -> bool:
        """Whether writes can be confined and the network blocked, the minimum for a sandbox."""
        return self.private_view or (self.landlock > 0 and self.seccomp) or bool(self.other_mechanism)


def start_failure(path: str, number: int) -> str:
    """Format why a command could not start, from the path and the errno of the failed call."""
    return f"it could not start: {path + ': ' if path else ''}{os.strerror(number)}"


def bash() -> str:
    """Return the path of bash; raise ToolFailure where there is none."""
    for path in ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"):
        if os.access(path, os.X_OK):
            return path
    import shutil  # lazy: shutil, 3 ms; few systems have bash elsewhere

    if found := shutil.which("bash"):
        return found
    raise ToolFailure("there is no bash on this machine", code="tool_unavailable", hint="Install bash.")


# One run of a command, in any sandbox: reading its output, waiting for its end, ending it.

TERM, KILL = 15, 9
_PIPE: Final = 1 << 20
_F_SETPIPE_SZ: Final = 1031
_MUCH: Final = 1 << 18
"""Bytes after which a stream counts as a flood: it gets a larger pipe, which is read at intervals."""
_PAUSE_S: Final = 0.001
_FIRST_READ_S: Final = 0.004
"""When a pipe is first polled; most commands have ended by then, and their output is read at once."""


class CommandRun:
    """A running command. A sandbox implements `signal`, and calls `set_ended` when the command has ended."""

    def __init__(self) -> None:
        import asyncio  # lazy: asyncio, 30 ms; who lists tools runs no command

        self.stopped = ""
        self.waiting = ""
        """The program that waits for input, while one does."""
        self.told_waiting: Callable[[str], None] | None = None
        """Called with its name when one begins to wait."""
        self._loop = asyncio.get_running_loop()
        self._feeds: dict[int, Feed] = {}
        self._taken: dict[int, int] = {}
        self._began = time.monotonic()
        self._ended: asyncio.Future[Ended] = self._loop.create_future()
        self._timers: list[asyncio.TimerHandle] = []

    def signal(self, number: int) -> None:
        """Signal the command and all its processes."""
        raise NotImplementedError

    def kill(self) -> None:
        """Kill it by the strongest means there are."""
        self.signal(KILL)

    def close_handed_over(self) -> None:
        """Close our copies of the descriptors handed over to the command."""

    @property
    def ended(self) -> Ended | None:
        """How it ended, once it has."""
        return self._ended.result() if self._ended.done() else None

    @property
    def wall_s(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self._began

    async def finish(self, timeout_s: float | None = None) -> Ended:
        """Wait until it has ended; on timeout or cancellation, end it."""
        import asyncio  # lazy: asyncio, 30 ms

        if timeout_s is not None:
            self._timers.append(self._loop.call_later(timeout_s, self.stop, "timeout"))
        try:
            return await asyncio.shield(self._ended)
        except asyncio.CancelledError:
            if self._ended.done():
                raise
            self.stop("cancelled")
            try:
                await asyncio.shield(self._ended)
            except asyncio.CancelledError:
                self.signal(KILL)  # cancelled again: no grace period
                raise
            raise

    def stop(self, why: str, grace_s: float = TERM_S) -> None:
        """Start ending it: SIGTERM, after `grace_s` SIGKILL, then `kill`."""
        if self.stopped or self._ended.done():
            return
        self.stopped = why
        # TERM first: git leaves index.lock behind on KILL.
        self.signal(TERM)
        self._timers.append(self._loop.call_later(grace_s, self.signal, KILL))
        self._timers.append(self._loop.call_later(grace_s + KILL_S / 2, self.kill))

    def fail(self, why: str) -> None:
        """Set it ended without an exit code, with `why` as the reason."""
        if not self._ended.done():
            self.set_ended(Ended(exit_code=-1, wall_s=self.wall_s, stopped=self.stopped or why))

    def set_ended(self, ended: Ended) -> None:
        """Read the rest of its output, close all descriptors, and resolve `finish`."""
        for timer in self._timers:
            timer.cancel()
        self.close_handed_over()
        self.drain()
        for reader in list(self._feeds):
            self._close_reader(reader)
        if not self._ended.done():
            self._ended.set_result(ended)

    def open_pipe(self, feed: Feed) -> int:
        """Open a pipe; return its writing end. What is written there goes to the feed."""
        reader, writer = os.pipe()
        self._feeds[reader], self._taken[reader] = feed, 0
        os.set_blocking(reader, False)
        self._timers.append(self._loop.call_later(_FIRST_READ_S, self._resume, reader))
        return writer

    def drain(self) -> None:
        """Read everything that has been printed so far."""
        for reader in list(self._feeds):
            while reader in self._feeds and self._read(reader):
                pass

    def _read(self, reader: int) -> bool:
        """Read once from a pipe; False if there is nothing to read."""
        try:
            data = os.read(reader, _PIPE)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._close_reader(reader)
            return False
        self._feeds[reader](data)
        if self._taken[reader] < _MUCH:
            self._taken[reader] += len(data)
            if self._taken[reader] >= _MUCH:
                _widen(reader)
        elif len(data) < _MUCH:
            self._pause(reader)
        return True

    def _pause(self, reader: int) -> None:
        """Stop polling for a moment: reading a flood page by page costs more than producing it."""
        self._loop.remove_reader(reader)
        self._loop.call_later(_PAUSE_S, self._resume, reader)

    def _resume(self, reader: int) -> None:
        if reader in self._feeds:
            self._loop.add_reader(reader, self._read, reader)

    def _close_reader(self, reader: int) -> None:
        if self._feeds.pop(reader, None) is not None:
            self._loop.remove_reader(reader)
            os.close(reader)


def _widen(reader: int) -> None:
    """Enlarge the buffer of a pipe, so that the same bytes take fewer reads."""
    try:
        fcntl.fcntl(reader, _F_SETPIPE_SZ, _PIPE)
    except OSError:
        pass  # the user's pipes have reached their limit, or the system has no such call
