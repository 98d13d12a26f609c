"""The Linux sandbox as the protocol has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from surehand.sandbox.linux import probe

if TYPE_CHECKING:
    from surehand.sandbox.command import Abilities
    from surehand.sandbox.linux.client import Launcher
    from surehand.sandbox.plan import Plan


class LinuxSandbox:
    """Namespaces, Landlock, seccomp and limits, enforced by a launcher."""

    kind = "linux"

    def abilities(self) -> Abilities:
        """Return what the kernel offers."""
        return probe.abilities()

    def note_failure(self, why: str) -> None:
        """Remember that namespaces could not be made here after all."""
        probe.note_failure(why)

    async def start(self, plan: Plan) -> Launcher:
        """Start a launcher that enforces `plan`; raise SandboxFailure when this system cannot."""
        from surehand.sandbox.linux.client import Launcher  # lazy: client, 35 ms; seldom used

        return await Launcher.start(plan)


LINUX: Final = LinuxSandbox()
