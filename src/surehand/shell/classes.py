"""The six classes of commands, and the class of a whole line: that of its least safe part."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from surehand.shell.programs import program_of

Class: TypeAlias = Literal["search", "read", "list", "silent", "write", "general"]

# From the safest to the least safe.
ORDER: tuple[Class, ...] = ("search", "read", "list", "silent", "write", "general")

ENDS_SHARE = 0.8
"""How much of what is shown of long output comes from its beginning, where the class of a command says nothing else."""


def head_share(kind: Class, commands: Iterable[str]) -> float:
    """Return how much of what is shown of a command's long output comes from its beginning, the rest from its end.

    The first hits of a search and the first lines of a list are the ones wanted; a build tells at its end what failed.
    """
    if kind in ("search", "list"):
        return 1.0
    builds = kind == "general" and any(program_of(name).builds for name in commands)
    return 1 - ENDS_SHARE if builds else ENDS_SHARE


MEANINGS: dict[Class, str] = {
    "search": "searches",
    "read": "reads",
    "list": "lists",
    "silent": "changes files and prints nothing",
    "write": "writes files",
    "general": "runs a program",
}
"""What commands of a class do, for people; from the safest to the least safe."""


def class_of(name: str, read_only: bool, writes: bool) -> Class | None:
    """Return the class of one command, `None` for a neutral one.

    A search or read that its options turn into something else is no longer one: it writes, or nobody knows.
    """
    kind = program_of(name).kind
    if kind == "neutral":
        return None
    if read_only or kind not in ("search", "read", "list"):
        return kind
    return "write" if writes else "general"


def least_safe(kinds: list[Class]) -> Class:
    """Return the class of a line out of those of its parts; a line of neutral commands alone is general."""
    return max(kinds, key=ORDER.index) if kinds else "general"
