"""The scope at a point of a script: directories it may be in, variables that are known, commands found there."""

from __future__ import annotations

import os.path
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from surehand.core.frozen import frozen
from surehand.shell.word import NUMBER, Word
from surehand.shell.wrappers import Wrapper

# Every directory the shell may be in at a point (a failed `cd` stays where it was); `None` is "could be anywhere".
Directories: TypeAlias = tuple[str | None, ...]


@dataclass(slots=True)
class Scope:
    """The state of one shell process; a subshell works on a copy."""

    directories: Directories
    variables: dict[str, Word | None] = field(default_factory=dict[str, Word | None])

    def copy(self) -> Scope:
        """Return a scope of its own with the same values."""
        return Scope(self.directories, dict(self.variables))

    def forget_differences(self, branch: Scope) -> None:
        """Take back certainty about each variable that a part which may or may not run has changed."""
        for name in self.variables.keys() | branch.variables.keys():
            if self.variables.get(name) != branch.variables.get(name):
                both = is_number(self.variables.get(name)) and is_number(branch.variables.get(name))
                self.variables[name] = NUMBER if both else None

    def join(self, states: Iterable[Scope]) -> None:
        """Take back certainty about all that differs in one of the states this shell may be in as well."""
        for each in states:
            self.forget_differences(each)
            self.directories = union(self.directories, each.directories)


def is_number(value: Word | None) -> bool:
    """Return whether the value of a variable is a number, whichever it is."""
    return value is not None and (value.number or (value.literal and value.text.isdecimal() and value.text.isascii()))


@frozen
class Flow:
    """Where the shell may be after a command succeeded, and after it failed; empty when it does not go on."""

    success: Directories
    failure: Directories

    @property
    def either(self) -> Directories:
        """Where the shell may be afterwards, whether the command succeeded or not."""
        return union(self.success, self.failure)


def staying(directories: Directories) -> Flow:
    """The flow of a command that changes no directory."""
    return Flow(directories, directories)


def union(*many: Directories) -> Directories:
    """Return all directories, each once; too many of them are the same as anywhere."""
    seen = tuple(dict.fromkeys(directory for directories in many for directory in directories))
    return seen if len(seen) <= 8 else (None,)


def change_directory(directories: Directories, target: Word | None, *, physical: bool = False) -> Directories:
    """Return where `cd target` may lead; bash treats `..` by name, so that the path is normalised by name."""
    if target is None or not target.literal or not target.text:
        return (None,)
    found: list[str | None] = []
    for directory in directories:
        if not target.text.startswith("/") and directory is None:
            found.append(None)
        else:
            path = os.path.join(directory or "/", target.text)
            found.append(path if physical else os.path.normpath(path))
    return union(tuple(found))


@frozen
class Context:
    """Where a command stands: its position in the pipeline, how deep, and behind which wrappers."""

    position: int = 0
    depth: int = 0
    nested: bool = False
    wrappers: tuple[str, ...] = ()
    assigns: tuple[tuple[str, Word], ...] = ()
    open_ended: bool = False  # words from elsewhere are appended
    fed: Word | None = None  # what standard input is, when the line says so
    listed: tuple[Word, ...] = ()  # patterns of the paths that standard input names, when the line says so

    def in_substitution(self) -> Context:
        """The context of a command inside a substitution here."""
        return Context(depth=self.depth + 1, nested=True)

    def inside(self) -> Context:
        """The context of a command inside a compound command here."""
        return replace(self, depth=self.depth + 1)

    def of_started(self, *wrappers: str) -> Context:
        """The context of a command that another one here starts."""
        wrapped = (*self.wrappers, *wrappers)
        return replace(self, depth=self.depth + 1, nested=True, position=0, fed=None, listed=(), wrappers=wrapped)


@frozen
class FoundCommand:
    """A simple command as it was found."""

    words: tuple[Word, ...]
    directories: Directories
    context: Context
    wraps: Wrapper | None = None  # set when this is a wrapper whose own command follows
    function: bool = False  # calls a function of this script

    @property
    def name(self) -> str:
        """The last part of the command word."""
        return self.words[0].text.rpartition("/")[2] if self.words else ""


@frozen
class FoundRedirect:
    """A redirection to or from a file; `static` when its target is certain."""

    op: str
    fd: str
    target: Word
    directories: Directories

    @property
    def static(self) -> bool:
        """Whether the target is known before the command runs."""
        return self.target.literal
