"""Probe what this system can enforce without starting a process; the launcher finds out the rest by trying."""

from __future__ import annotations

import os
from functools import lru_cache

from surehand.sandbox.command import Abilities
from surehand.sandbox.linux import landlock, seccomp

_failed: list[str] = []


def note_failure(reason: str) -> None:
    """Note that namespaces could not be made here after all; `abilities` says so from then on."""
    _failed[:] = [reason]
    abilities.cache_clear()


def forget_failures() -> None:
    """Forget noted failures."""
    _failed.clear()
    abilities.cache_clear()


@lru_cache(maxsize=1)
def abilities() -> Abilities:
    """Return what can be enforced here."""
    why_not = _failed[0] if _failed else _forbidden()
    return Abilities(
        landlock=landlock.version(),
        seccomp=seccomp.supported() and _has_seccomp(),
        private_view=not why_not,
        overlay=not why_not and "overlay" in _text("/proc/filesystems"),
        why_not=why_not,
        failed=bool(_failed),
    )


def _forbidden() -> str:
    """Return the setting that forbids user namespaces, or an empty text."""
    if not os.path.exists("/proc/self/ns/user"):
        return "the kernel has no user namespaces"
    if _text("/proc/sys/user/max_user_namespaces").strip() == "0":
        return "user.max_user_namespaces is 0"
    if os.geteuid() == 0:
        return ""
    if _text("/proc/sys/kernel/unprivileged_userns_clone").strip() == "0":
        return "kernel.unprivileged_userns_clone is 0"
    if _text("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").strip() == "1":
        return "kernel.apparmor_restrict_unprivileged_userns is 1"
    return ""


def _has_seccomp() -> bool:
    return "Seccomp:" in _text("/proc/self/status")


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""
