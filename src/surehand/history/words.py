"""The words of the history: the states of files, changes, and their authors."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from surehand.core.frozen import field, frozen

if TYPE_CHECKING:
    from surehand.core.context import ToolContext

FileKind = Literal["absent", "file", "symlink", "directory"]
ChangeKind = Literal["change", "undo", "redo"]
ChangeState = Literal["intent", "done", "undone"]
"""`intent`: begun, not confirmed. `undone`: taken back (an undo: redone)."""


@frozen
class FileState:
    """The state of a path: the digest of a file's content (or of a link's target), its mode and size."""

    kind: FileKind
    digest: str = ""
    mode: int = 0
    size: int = 0

    def same_content(self, other: FileState) -> bool:
        """Return whether both have the same content, whatever their modes."""
        return (self.kind, self.digest) == (other.kind, other.digest)


ABSENT: Final = FileState("absent")


@frozen
class FileChange:
    """The state of one path before and after a change. `after` is None while it is unknown."""

    path: str
    before: FileState
    after: FileState | None

    def reverse(self) -> FileChange:
        """Return the change that undoes this one."""
        return FileChange(self.path, self.after or ABSENT, self.before)


@frozen
class Compensation:
    """The call that undoes what a call did elsewhere than in files; Undo makes it like any other call."""

    tool: str
    args: Mapping[str, Any]
    description: str = ""
    original_args: Mapping[str, Any] | None = None
    """The arguments of the call it undoes, for Redo; None if they are not plain data."""

    def to_dict(self) -> dict[str, Any]:
        """Return the call as plain data."""
        return {"tool": self.tool, "args": dict(self.args), "description": self.description}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Compensation:
        """Build a Compensation from the output of `to_dict`."""
        return cls(data["tool"], data["args"], data.get("description", ""), data.get("original_args"))


CALL_MADE: Final = "call"
"""Stands among the absolute paths of `Change.parts`: the change's compensation was called."""


@frozen
class Change:
    """An entry of the log: what one call did to files, or elsewhere and how that is undone."""

    id: str
    tool: str
    files: tuple[FileChange, ...]
    kind: ChangeKind = "change"
    state: ChangeState = "done"
    about: tuple[str, ...] = ()
    """Of an undo: the changes it undid. Of a redo: the undos it reversed, and the changes of calls it repeated."""
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Of an undo: by change that it undid in part, the restored paths (or `CALL_MADE`)."""
    session_id: str = ""
    main_session_id: str = ""
    """The user's session: of a sub-agent's change that of its parent."""
    turn: str = ""
    """Groups what was done for one prompt; outside a conversation, the call itself."""
    call_id: str = ""
    description: str = ""
    note: str = ""
    """What a person must know: that it was interrupted, or what of it cannot be undone."""
    compensation: Compensation | None = None
    at: float = field(default_factory=time.time)
    temporary: str = ""

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths it changed."""
        return tuple(each.path for each in self.files)

    @property
    def number(self) -> int:
        """Its number in the log; later changes have larger ones."""
        return int(self.id)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "id": self.id,
            "at": self.at,
            "tool": self.tool,
            "kind": self.kind,
            "state": self.state,
            "about": list(self.about),
            "session_id": self.session_id,
            "main_session_id": self.main_session_id,
            "turn": self.turn,
            "call_id": self.call_id,
            "description": self.description,
            "note": self.note,
            "compensation": self.compensation.to_dict() if self.compensation else None,
            "files": [_file(each) for each in self.files],
        }


def _file(change: FileChange) -> dict[str, Any]:
    after = change.after or ABSENT
    action = "created" if change.before.kind == "absent" else "deleted" if after.kind == "absent" else "changed"
    return {
        "path": change.path,
        "action": action,
        "kind": after.kind if action != "deleted" else change.before.kind,
        "before": change.before.digest,
        "after": after.digest,
        "mode": [change.before.mode, after.mode],
        "size": [change.before.size, after.size],
    }


def _always() -> None:
    """Do nothing: the change cannot be cancelled half-way."""


@frozen
class Author:
    """Who makes a change, and a one-line description of it."""

    tool: str
    call_id: str = ""
    session_id: str = ""
    description: str = ""
    main_session_id: str = ""
    turn: str = ""
    note: str = ""
    check_wanted: Callable[[], None] = _always
    """Raises ToolFailure once the call that makes the change was cancelled."""

    @classmethod
    def of(cls, ctx: ToolContext, tool: str, description: str) -> Author:
        """Return the author of a change made by the call of `ctx`."""
        main = ctx.session.main.id
        return cls(tool, ctx.served.id, ctx.session.id, description, main, ctx.turn, check_wanted=ctx.check_wanted)
