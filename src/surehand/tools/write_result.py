"""The result of a write: its diff, a sentence with the changed lines, its preview, and updating an editor's buffer."""

from __future__ import annotations

import os
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

from surehand.core.call import ToolResult, Undo
from surehand.core.errors import ToolFailure
from surehand.core.frozen import frozen
from surehand.core.session import Seen
from surehand.core.text import DIFF_LINES
from surehand.core.tool import Preview
from surehand.files.atomic import replace_file, temporary_name
from surehand.files.diff import creation_diff, narrow_diff, snippet, splice_diff, splice_snippet, text_diff
from surehand.files.opening import read_up_to
from surehand.files.streamed import Streamed, join_parts
from surehand.files.text import Splice, line_at, splice_bytes
from surehand.history.disk import HELD_BYTES
from surehand.history.steps import large_diff
from surehand.history.words import ABSENT, FileChange, FileState
from surehand.tools import object_schema

if TYPE_CHECKING:
    from surehand.core.context import ToolContext
    from surehand.tools.file_write import FileWrite

_SNIPPET_BYTES: Final = 8 * 1024
CHANGE_SCHEMA: Final = object_schema(
    {"path": "string", "changed": "boolean", "diff": "string"},
    created="boolean",
    change_id="string|null",
    size="integer",
    encoding="string|null",
    replacements="integer",
)
"""The output schema of tools that change one file."""


@frozen
class ChangeReport:
    """The description of a change: its diff for programs, a sentence with the changed lines for a model."""

    diff: str
    said: str


def describe_change(write: FileWrite) -> ChangeReport:
    """Return the report of a write."""
    line = _first_line(write)
    return ChangeReport(_diff(write, DIFF_LINES, line), _describe(write, not write.exists, line))


def describe_preview(write: FileWrite) -> Preview:
    """Return the preview of a write."""
    same = write.exists and write.is_unchanged
    diff = "" if same else _diff(write, None, _first_line(write))
    data: dict[str, Any] = {"path": write.real, "created": not write.exists, "changed": not same}
    if same:
        return Preview(f"{write.path} already has exactly this content; nothing would be written", diff, data)
    return Preview(f"would {'change' if write.exists else 'create'} {write.path}", diff, data)


def make_unchanged_result(write: FileWrite) -> ToolResult:
    """Return the result of a write whose content was there already."""
    data = {"path": write.real, "created": False, "changed": False, "diff": ""}
    return ToolResult(data=data, output=f"{write.path} already has exactly this content; nothing was written.")


def make_result(write: FileWrite, change_id: str, size: int, told: ChangeReport) -> ToolResult:
    """Return the result of a write that was made."""
    created = not write.exists
    data: dict[str, Any] = {
        "path": write.real,
        "created": created,
        "changed": True,
        "change_id": change_id,
        "size": size,
        "encoding": write.encoding.label,
        "diff": told.diff,
    }
    if write.content is None:
        data["replacements"] = len(write.splices)
    if write.others_diff:
        data |= {"merged": True, "others_diff": write.others_diff}
    undo = Undo(change_id, f"{'remove' if created else 'restore'} {write.path}")
    return ToolResult(data=data, output=told.said, undo=undo)


def _describe(write: FileWrite, created: bool, line: int) -> str:
    if created:
        return f"Created {write.path} ({write.new_size} bytes)."
    links = write.status.st_nlink if write.status else 1
    note = f" Its other {links - 1} hard link(s) keep the old content." if links > 1 else ""
    if write.others_diff:
        note += " Others had changed other lines since you read it, and both changes are in the file now. Theirs:\n"
        note += write.others_diff
    if write.content is not None:
        return f"Replaced the content of {write.path}.{note}"
    if write.summary:
        return f"Edited {write.path}. {write.summary}{note}"
    count = len(write.splices)
    many = f" in {count} places" if count > 1 else ""
    if not write.parts:
        return f"Edited {write.path}{many}.{note} It is empty now."
    return f"Edited {write.path}{many}.{note} The changed lines now read:\n{_changed_lines(write, line)}"


def _changed_lines(write: FileWrite, line: int) -> str:
    """Return the new lines around the first change, made from a window of the file."""
    first, data, feed = write.splices[0], write.data, write.encoding.feed
    if len(write.splices) == 1 and (shown := splice_snippet(data, first, write.encoding, line)):
        return shown
    start, end = max(0, first.start - _SNIPPET_BYTES), first.end + _SNIPPET_BYTES
    if start and write.encoding.unit == 1:  # begin with a whole line
        start = data.find(feed, start, first.start) + 1 or start
    near = list(takewhile(lambda each: each.start < end, write.splices))
    moved = [Splice(each.start - start, each.end - start, each.new) for each in near]
    window = b"".join(splice_bytes(data[start : max(end, near[-1].end)], moved))
    place = first.start - start
    return snippet(window, place, place + len(first.new), write.encoding, first_line=line)


def _first_line(write: FileWrite) -> int:
    """Return the number of the first changed line."""
    if not write.line:
        write.line = line_at(write.data, write.splices[0].start, write.encoding) if write.splices else 1
    return write.line


def _diff(write: FileWrite, limit_lines: int | None, line: int | None = None) -> str:
    if write.content is None and write.exists:
        return write.diff or splice_diff(write.data, write.splices, write.encoding, write.path, first_line=line)
    if max(len(write.data), write.new_size) > HELD_BYTES:
        return _large_diff(write)
    after = write.encoding.decode(join_parts(write.parts), "replace")
    if not write.exists:
        return creation_diff(after, write.path)
    before = write.encoding.decode(bytes(write.data), "replace")
    return text_diff(before, after, write.path, limit_lines=limit_lines)


def _large_diff(write: FileWrite) -> str:
    """Return the diff of large contents if they differ in one narrow place; otherwise their sizes."""
    narrow = None
    if write.exists and isinstance(write.data, bytes) and not any(isinstance(each, Streamed) for each in write.parts):
        narrow = narrow_diff(write.data, join_parts(write.parts), write.encoding, write.path)
    after = FileState("file", size=write.new_size, digest="new")
    return large_diff(write.path, write.state_before, after) if narrow is None else narrow


def make_written_failure(write: FileWrite, change_id: str, problem: BaseException) -> ToolFailure:
    """Return the failure of a write that succeeded before an error followed."""
    return ToolFailure(
        f"{write.path} is written, but an error followed: {problem}",
        hint=f"Read it before going on. Undo with change_id {change_id!r} takes it back.",
        details={"path": write.real, "change_id": change_id},
    )


def make_appeared_failure(write: FileWrite) -> ToolFailure:
    """Return the failure of a new file whose name was taken meanwhile."""
    return ToolFailure(
        f"Cannot create {write.path}: somebody else created it at the same moment.",
        code="precondition_failed",
        hint="Read it, then decide.",
        details={"layer": 4, "number": 3, "path": write.path},
    )


def show_to_editor(write: FileWrite, status: os.stat_result) -> os.stat_result:
    """Put the new text into the editor's buffer; if the editor saves other bytes, write ours again."""
    buffers = write.ctx.session.main.buffers
    if buffers is None:
        return status
    whole = join_parts(write.parts)
    try:
        text = write.encoding.decode(whole)
        text.encode()
    except UnicodeError:
        return status  # not text: the editor notices the change on the disk
    buffers.show(write.real, text)
    fd = open_again(write)
    try:
        if read_up_to(fd, len(whole) + 1) == whole:
            return os.fstat(fd)
        return replace_file(write.folder, write.name, temporary_name(os.urandom(6).hex()), [whole], fd)
    finally:
        os.close(fd)


def report_step(ctx: ToolContext, tool: str, change_id: str, step: FileChange) -> None:
    """Report one file of a change of many: update the session's read state, and emit `file_changed`.

    A caller that had read the old content knows the new one.
    """
    after, state = step.after or ABSENT, ctx.session.read_state
    seen = state.get(step.path)
    if after.kind != "file":
        state.forget(step.path)
    elif seen is not None and seen.digest == step.before.digest:
        try:
            ctx.session.saw(step.path, Seen.of(after.digest, os.stat(step.path)))
        except OSError:  # somebody has removed it meanwhile
            state.forget(step.path)
    action = "deleted" if after.kind == "absent" else "created" if step.before.kind == "absent" else "changed"
    ctx.session.emit(
        "file_changed", tool=tool, call_id=ctx.served.id, path=step.path, change_id=change_id, action=action
    )


def open_again(write: FileWrite) -> int:
    """Open the file by its name again: an editor may have replaced it."""
    return os.open(write.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=write.folder)
