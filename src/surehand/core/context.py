"""`ToolContext`: all a tool may know about the call it serves."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from surehand.core.events import Progress

if TYPE_CHECKING:
    from surehand.core.call import ToolCall
    from surehand.core.effects import Effect
    from surehand.core.session import Session


T = TypeVar("T")


class ToolContext:
    """What a handler gets beside its arguments: the call, the session, a way to report progress."""

    __slots__ = ("_made", "_permits", "_report", "call", "options", "session", "turn")

    def __init__(
        self,
        call: ToolCall,
        session: Session,
        report: Callable[[Progress], None],
        options: Mapping[str, Any],
        permits: Callable[[Effect], bool] | None = None,
    ) -> None:
        self.call = call
        self.session = session
        self.turn = session.turn or call.id
        """The turn the call began in: that of the conversation, or the call itself where there is none."""
        self.options = options
        """The tool's own settings (`[tools.NAME.custom]`)."""
        self._report = report
        self._permits = permits
        self._made: dict[str, Any] | None = None

    @property
    def cwd(self) -> str:
        """The session's directory; relative paths are meant from here."""
        return self.session.cwd

    def resolve(self, path: str) -> str:
        """Return `path` as an absolute one, from the session's directory; links and `..` stay for the policy."""
        return os.path.join(self.session.cwd, os.path.expanduser(path))

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Return what `make` gives, made once for this call: effects, check and run share what they worked out."""
        if self._made is None:
            self._made = {}
        if name not in self._made:
            self._made[name] = make()
        return self._made[name]

    def permits(self, effect: Effect) -> bool:
        """Say whether a further effect, found out while running (a redirect), would be allowed without a question."""
        return self._permits is not None and self._permits(effect)

    def progress(self, text: str = "", *, done: float | None = None, total: float | None = None, **data: Any) -> None:
        """Report progress; it reaches everyone who listens to the call."""
        self._report(Progress(text, done, total, data))
