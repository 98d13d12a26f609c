"""Input waits: which processes wait for somebody to type, by what they are blocked in and what their input is."""

from __future__ import annotations

import os

from surehand.sandbox.linux.system import MACHINE

_READS = {"x86_64": {0, 19}, "aarch64": {63, 65}}.get(MACHINE, set[int]())
_WAITS = {"x86_64": {7, 23, 232, 270, 271, 281}, "aarch64": {22, 72, 73}}.get(MACHINE, set[int]())
_MOST = 64


def who_waits(pids: list[int]) -> dict[int, tuple[str, int]]:
    """Return those that wait for input: process id → its name and the processor time it has used.

    A process waits when it is blocked on a terminal it is in the foreground of, or on an input that is its own output
    (an editor whose input has ended asks there). One that waits for another process is none of these.
    """
    found: dict[int, tuple[str, int]] = {}
    for pid in pids[:_MOST]:
        try:
            if (asked := _asks(pid)) is not None:
                found[pid] = asked
        except (OSError, ValueError, IndexError):
            continue  # it has ended, or is not ours to look at
    return found


def _asks(pid: int) -> tuple[str, int] | None:
    with open(f"/proc/{pid}/stat", "rb") as stat:
        name, _, rest = stat.read().partition(b"(")[2].rpartition(b")")
    fields = rest.split()
    group, foreground = fields[2], fields[5]
    if fields[0] != b"S":
        return None
    link = os.readlink(f"/proc/{pid}/fd/0")
    terminal = foreground == group
    if not terminal and not (link.startswith("pipe:") and link in _outputs(pid)):
        return None
    with open(f"/proc/{pid}/syscall", "rb") as syscall:
        number, first, *_ = syscall.read().split()
    call = int(number)
    if call in _READS and terminal:
        link = os.readlink(f"/proc/{pid}/fd/{int(first, 16)}")
    elif call not in _WAITS:
        return None
    if terminal and not link.startswith(("/dev/pts/", "/dev/tty")):
        return None
    return name.decode("utf-8", "replace"), int(fields[11]) + int(fields[12])


def _outputs(pid: int) -> list[str]:
    return [os.readlink(f"/proc/{pid}/fd/{number}") for number in (1, 2)]
