"""What a walk over a script finds."""

from __future__ import annotations

from dataclasses import replace

from surehand.core.frozen import frozen
from surehand.shell.scope import Places
from surehand.shell.word import Word
from surehand.shell.wrappers import Wrapper


@frozen
class Place:
    """Where a command stands: its position in the pipeline, how deep, and behind which wrappers."""

    position: int = 0
    depth: int = 0
    nested: bool = False
    wrappers: tuple[str, ...] = ()
    assigns: tuple[tuple[str, Word], ...] = ()
    open_ended: bool = False  # words from elsewhere are appended
    fed: Word | None = None  # what standard input is, when the line says so
    listed: tuple[Word, ...] = ()  # patterns of the paths that standard input names, when the line says so

    def substituted(self) -> Place:
        """The place of a command inside a substitution here."""
        return Place(depth=self.depth + 1, nested=True)

    def inside(self) -> Place:
        """The place of a command inside a compound command here."""
        return replace(self, depth=self.depth + 1)

    def started(self, *wrappers: str) -> Place:
        """The place of a command that another one here starts."""
        wrapped = (*self.wrappers, *wrappers)
        return replace(self, depth=self.depth + 1, nested=True, position=0, fed=None, listed=(), wrappers=wrapped)


@frozen
class Found:
    """A simple command as it was found."""

    words: tuple[Word, ...]
    places: Places
    place: Place
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
    places: Places

    @property
    def static(self) -> bool:
        """Whether the target is known before the command runs."""
        return self.target.literal
