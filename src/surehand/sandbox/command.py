"""A command as a sandbox runs it: what is started, its run, how it ended, and what the system can enforce on it."""

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


# One run of a command, as every sandbox has it: its output as it comes, its end, and how to bring that about.

TERM, KILL = 15, 9
_PIPE: Final = 1 << 20
_F_SETPIPE_SZ: Final = 1031
_MUCH: Final = 1 << 18
"""Bytes after which a stream counts as a flood: it gets a larger pipe, and is looked at when that has filled."""
_PAUSE_S: Final = 0.001
_FIRST_LOOK_S: Final = 0.004
"""How long what a command prints first waits in its pipe."""


class CommandRun:
    """One command under way; a sandbox says how it is signalled, and calls `set_ended` when it has ended."""

    def __init__(self) -> None:
        import asyncio  # lazy: asyncio, 30 ms; who lists tools runs no command

        self.stopped = ""
        self.waiting = ""
        """The program that waits for somebody to type, while one does."""
        self.told_waiting: Callable[[str], None] | None = None
        """Called with its name when one begins to."""
        self._loop = asyncio.get_running_loop()
        self._feeds: dict[int, Feed] = {}
        self._taken: dict[int, int] = {}
        self._began = time.monotonic()
        self._ended: asyncio.Future[Ended] = self._loop.create_future()
        self._timers: list[asyncio.TimerHandle] = []

    def signal(self, number: int) -> None:
        """Send the command and all it started a signal."""
        raise NotImplementedError

    def kill(self) -> None:
        """End it by the strongest means there are."""
        self.signal(KILL)

    def let_go(self) -> None:
        """Close our copies of what was handed over to the command."""

    @property
    def ended(self) -> Ended | None:
        """How it ended, once it has."""
        return self._ended.result() if self._ended.done() else None

    @property
    def wall_s(self) -> float:
        """How long it has been under way."""
        return time.monotonic() - self._began

    async def finish(self, timeout_s: float | None = None) -> Ended:
        """Wait for the end; at the time-out, or when cancelled, bring it about."""
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
                self.signal(KILL)  # whoever waits wants no grace at all
                raise
            raise

    def stop(self, why: str, grace_s: float = TERM_S) -> None:
        """Begin to end it: SIGTERM, then SIGKILL, then whatever is stronger."""
        if self.stopped or self._ended.done():
            return
        self.stopped = why
        # TERM first: git leaves index.lock behind on KILL.
        self.signal(TERM)
        self._timers.append(self._loop.call_later(grace_s, self.signal, KILL))
        self._timers.append(self._loop.call_later(grace_s + KILL_S / 2, self.kill))

    def fail(self, why: str) -> None:
        """End it without an exit code, because of `why`."""
        if not self._ended.done():
            self.set_ended(Ended(exit_code=-1, wall_s=self.wall_s, stopped=self.stopped or why))

    def set_ended(self, ended: Ended) -> None:
        """Take the rest of its output, close what is open, and tell who waits how it ended."""
        for timer in self._timers:
            timer.cancel()
        self.let_go()
        self.drain()
        for reader in list(self._feeds):
            self._forget(reader)
        if not self._ended.done():
            self._ended.set_result(ended)

    def open_pipe(self, feed: Feed) -> int:
        """Return the end of a new pipe that the command prints to; what comes goes to the feed."""
        reader, writer = os.pipe()
        self._feeds[reader], self._taken[reader] = feed, 0
        os.set_blocking(reader, False)
        # Most commands have ended by then, and what they printed is taken at once: three turns of the loop less.
        self._timers.append(self._loop.call_later(_FIRST_LOOK_S, self._resume, reader))
        return writer

    def drain(self) -> None:
        """Take everything that has been printed so far."""
        for reader in list(self._feeds):
            while reader in self._feeds and self._read(reader):
                pass

    def _read(self, reader: int) -> bool:
        """Take what is there to read; False when there is nothing."""
        try:
            data = os.read(reader, _PIPE)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._forget(reader)
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
        """Look away for a moment: taking a flood page by page costs more than what it is made of."""
        self._loop.remove_reader(reader)
        self._loop.call_later(_PAUSE_S, self._resume, reader)

    def _resume(self, reader: int) -> None:
        if reader in self._feeds:
            self._loop.add_reader(reader, self._read, reader)

    def _forget(self, reader: int) -> None:
        if self._feeds.pop(reader, None) is not None:
            self._loop.remove_reader(reader)
            os.close(reader)


def _widen(reader: int) -> None:
    """Give a pipe that fills up more room: fewer turns for the same bytes."""
    try:
        fcntl.fcntl(reader, _F_SETPIPE_SZ, _PIPE)
    except OSError:
        pass  # the user's pipes have all the room they may have, or the system knows no such thing
