"""The words of the history: what a file was, what it became, and who did it."""

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
"""`intent`: begun, not confirmed. `undone`: taken back (of an undo: brought back again)."""


@frozen
class FileState:
    """What stands at a path: a file's (or a link's target's) content by digest, its mode and size."""

    kind: FileKind
    digest: str = ""
    mode: int = 0
    size: int = 0

    def same_content(self, other: FileState) -> bool:
        """Say whether both have the same content; the mode does not count."""
        return (self.kind, self.digest) == (other.kind, other.digest)


ABSENT: Final = FileState("absent")


@frozen
class FileChange:
    """One path, before and after. `after` is None while nobody knows it yet."""

    path: str
    before: FileState
    after: FileState | None

    def reverse(self) -> FileChange:
        """Return the change that takes this one back."""
        return FileChange(self.path, self.after or ABSENT, self.before)


@frozen
class Compensation:
    """The call that takes back what a call did elsewhere than in files: Undo makes it, through the door."""

    tool: str
    args: Mapping[str, Any]
    description: str = ""
    original_args: Mapping[str, Any] | None = None
    """The arguments of the call it takes back, which Redo makes again; None where they are no plain data."""

    def to_dict(self) -> dict[str, Any]:
        """Return the call as plain data."""
        return {"tool": self.tool, "args": dict(self.args), "description": self.description}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Compensation:
        """Return what plain data stands for."""
        return cls(data["tool"], data["args"], data.get("description", ""), data.get("original_args"))


CALL_MADE: Final = "call"
"""In `Change.parts`, beside the paths (which are absolute): the call that takes the change back was made."""


@frozen
class Change:
    """What one call did to files (or, by its compensation, elsewhere), as one entry of the log."""

    id: str
    tool: str
    files: tuple[FileChange, ...]
    kind: ChangeKind = "change"
    state: ChangeState = "done"
    about: tuple[str, ...] = ()
    """The changes an undo took back; of a redo: the undos it reversed, and the changes of calls it made again."""
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Of an undo: the paths (or `CALL_MADE`) it took back of those changes that it took back only in part."""
    session_id: str = ""
    main_session_id: str = ""
    """The session a person has: that of the sub-agent's parent where a sub-agent made the change."""
    turn: str = ""
    """What belongs together: everything done for one prompt, or one call made outside a conversation."""
    call_id: str = ""
    description: str = ""
    note: str = ""
    """What a person must know of it: that it was interrupted, or what of it is not kept."""
    compensation: Compensation | None = None
    at: float = field(default_factory=time.time)
    temporary: str = ""

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths it changed."""
        return tuple(each.path for each in self.files)

    @property
    def number(self) -> int:
        """Its place in the log; later changes have larger numbers."""
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
    """Stand for a change that nobody can give up half-way."""


@frozen
class Author:
    """Who makes a change, and what it is in one line."""

    tool: str
    call_id: str = ""
    session_id: str = ""
    description: str = ""
    main_session_id: str = ""
    turn: str = ""
    note: str = ""
    check_wanted: Callable[[], None] = _always
    """Raises ToolFailure once the call that makes the change was given up."""

    @classmethod
    def of(cls, ctx: ToolContext, tool: str, description: str) -> Author:
        """Return who makes the change of a call."""
        main = ctx.session.main.id
        return cls(tool, ctx.served.id, ctx.session.id, description, main, ctx.turn, check_wanted=ctx.check_wanted)
