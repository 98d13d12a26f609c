"""What is certain at a point of a script: the directories it may be in and the variables whose values are known."""

from __future__ import annotations

import os.path
from dataclasses import dataclass, field
from typing import TypeAlias

from surehand.core.frozen import frozen
from surehand.shell.word import Word

# Every directory the shell may be in at a point (a failed `cd` stays where it was); `None` is "could be anywhere".
Places: TypeAlias = tuple[str | None, ...]


@dataclass(slots=True)
class Scope:
    """The state of one shell process; a subshell works on a copy."""

    places: Places
    variables: dict[str, Word | None] = field(default_factory=dict[str, Word | None])

    def copy(self) -> Scope:
        """Return a scope of its own with the same values."""
        return Scope(self.places, dict(self.variables))

    def forget_differences(self, branch: Scope) -> None:
        """Take back certainty about each variable that a part which may or may not run has changed."""
        for name in self.variables.keys() | branch.variables.keys():
            if self.variables.get(name) != branch.variables.get(name):
                self.variables[name] = None


@frozen
class Flow:
    """Where the shell may be after a command succeeded, and after it failed; empty when it does not go on."""

    success: Places
    failure: Places

    @property
    def either(self) -> Places:
        """Where the shell may be afterwards, whether the command succeeded or not."""
        return union(self.success, self.failure)


def staying(places: Places) -> Flow:
    """The flow of a command that changes no directory."""
    return Flow(places, places)


def union(*many: Places) -> Places:
    """Return all places, each once; too many of them are the same as anywhere."""
    seen = tuple(dict.fromkeys(place for places in many for place in places))
    return seen if len(seen) <= 8 else (None,)


def moved(places: Places, target: Word | None, *, physical: bool = False) -> Places:
    """Return where `cd target` may lead; bash treats `..` by name, so that the path is normalised by name."""
    if target is None or not target.literal or not target.text:
        return (None,)
    found: list[str | None] = []
    for place in places:
        if not target.text.startswith("/") and place is None:
            found.append(None)
        else:
            path = os.path.join(place or "/", target.text)
            found.append(path if physical else os.path.normpath(path))
    return union(tuple(found))
