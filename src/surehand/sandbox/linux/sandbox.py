"""The Linux sandbox, as an implementation of the protocol."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Final

from surehand.sandbox.command import SandboxFailure
from surehand.sandbox.linux import probe

if TYPE_CHECKING:
    from surehand.sandbox.command import Abilities
    from surehand.sandbox.linux.client import Launcher, LauncherProcess
    from surehand.sandbox.profile import SandboxProfile


class LinuxSandbox:
    """Namespaces, Landlock, seccomp and limits, enforced by a launcher."""

    kind = "linux"

    def __init__(self) -> None:
        self._ahead: LauncherProcess | None = None
        self._starting = threading.Lock()
        os.register_at_fork(after_in_child=self._reset_after_fork)

    def abilities(self) -> Abilities:
        """Return what this kernel can enforce."""
        return probe.abilities()

    def note_failure(self, why: str) -> None:
        """Note that namespaces could not be made here after all."""
        probe.note_failure(why)

    async def start(self, profile: SandboxProfile) -> Launcher:
        """Start a launcher that enforces `profile`; raise SandboxFailure when this system cannot."""
        return await self._get_process(take=True).enforce(profile)

    def start_ahead(self) -> None:
        """Start the next launcher's process, which waits for its profile; in any thread."""
        try:
            self._get_process(take=False)
        except SandboxFailure:
            pass  # `start` tries again and reports it

    def _get_process(self, *, take: bool) -> LauncherProcess:
        from surehand.sandbox.linux.client import LauncherProcess  # lazy: client, 35 ms; seldom used

        with self._starting:
            ahead, self._ahead = self._ahead, None
            # A process killed while it waited does not mean that launchers cannot start.
            process = LauncherProcess() if ahead is None or ahead.has_ended() else ahead
            self._ahead = None if take else process
        return process

    def _reset_after_fork(self) -> None:
        """Leave the process to the parent, and replace the lock, which a thread missing here may hold."""
        if self._ahead is not None:
            self._ahead.control.close()
        self._ahead, self._starting = None, threading.Lock()

    def end_ahead(self) -> None:
        """End a process that was started ahead and not used."""
        with self._starting:
            ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.end()


LINUX: Final = LinuxSandbox()
