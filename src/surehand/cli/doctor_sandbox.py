"""The sandbox's section of `surehand doctor`: each promise is put to the test in a scratch workspace."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable
from typing import Any, Final

from surehand.cli.doctor import Check, Section
from surehand.core.frozen import frozen


@frozen
class Trial:
    """A promise, a command that would break it, and whether its exit code means that it holds."""

    promise: str
    command: str
    holds: Callable[[int], bool]


def _fails(code: int) -> bool:
    return code != 0


def _succeeds(code: int) -> bool:
    return code == 0


_TRIALS: Final = (
    Trial("the disk can be read", "cat /etc/passwd > /dev/null", _succeeds),
    Trial("the workspace can be written", "echo x > file", _succeeds),
    Trial("a private temp can be written", 'echo x > "$TMPDIR/file"', _succeeds),
    Trial("nothing else can be written", "touch /etc/surehand-doctor 2> /dev/null || touch ~/.surehand-doctor", _fails),
    Trial("secrets cannot be read", "cat .env", _fails),
    Trial("there is no network", "exec 3<> /dev/tcp/192.0.2.1/9", _fails),
    Trial("no new privileges", "grep -q 'NoNewPrivs:.1' /proc/self/status", _succeeds),
    Trial("processes outside cannot be seen", f"test -e /proc/{os.getpid()}/cwd", _fails),
    Trial("mounts cannot be changed", "mount -t tmpfs none /mnt", _fails),
)


_MEMORY: Final = {
    True: "by a look four times a second, /tmp and /dev/shm by their size; no cgroup is used",
    False: "by a look four times a second, files in /dev/shm only while mapped; no cgroup is used",
}


def examine(workspace: str) -> Section:
    """Return the section: what is set, what the system has, and which promises hold."""
    from surehand import config
    from surehand.sandbox import probe

    settings = config.load(workspace, trusted=False).settings
    abilities = probe.abilities()
    facts: dict[str, Any] = {
        "mode": settings.sandbox.mode,
        "namespaces": abilities.namespaces,
        "landlock": abilities.landlock,
        "seccomp": abilities.seccomp,
        "overlay": abilities.overlay,
        "why_not": abilities.why_not,
        "memory": _MEMORY[abilities.namespaces],
    }
    if settings.sandbox.mode == "off" or not probe.available():
        return Section("Sandbox", (_missing(settings.sandbox.mode, abilities.why_not),), facts)
    in_force, codes = asyncio.run(_try(settings))
    facts = {**facts, "in_force": in_force}
    checks = [Check("in force", in_force["active"], ", ".join(in_force.get("by", ())))]
    checks.append(Check("memory is counted", True, _MEMORY["namespaces" in in_force.get("by", ())]))
    checks += [_check(trial, code, settings.sandbox.network) for trial, code in zip(_TRIALS, codes, strict=True)]
    return Section("Sandbox", tuple(checks), facts)


def _missing(mode: str, why_not: str) -> Check:
    if mode == "off":
        return Check("sandbox", True, "switched off in the settings: commands run as you")
    return Check("sandbox", False, f"not available: {why_not}", "Commands ask before they run, or are refused.")


def _check(trial: Trial, code: int, network: bool) -> Check:
    if network and "network" in trial.promise:
        return Check(trial.promise, True, "allowed in the settings")
    holds = trial.holds(code)
    return Check(trial.promise, holds, "holds" if holds else "does not hold here")


async def _try(settings: Any) -> tuple[dict[str, Any], list[int]]:
    from surehand.commands.session import SHELLS, in_force
    from surehand.core.session import Session
    from surehand.sandbox.client import Command, bash

    with tempfile.TemporaryDirectory(prefix="surehand-doctor-") as folder:
        os.mknod(os.path.join(folder, ".env"))
        session = Session(folder, settings=settings, state_dir=None)
        try:
            shells = session.keep(SHELLS)
            launcher = await shells.launcher()
            codes: list[int] = []
            for trial in _TRIALS:
                command = Command((bash(), "-c", trial.command), folder, shells.environment("doctor"))
                run = launcher.run(command, bytearray().extend, bytearray().extend)
                codes.append((await run.finish(10)).exit_code)
            return in_force(launcher), codes
        finally:
            await session.close()
