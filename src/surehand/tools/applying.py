"""Making a checked change: under the folder's lock, checked again, written down, replaced in one step, confirmed."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager
from copy import copy
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, TypeVar

from surehand.core.call import ToolResult, Undo
from surehand.core.errors import ToolFailure
from surehand.core.frozen import frozen
from surehand.core.read_state import Seen, digest_of
from surehand.core.session import Kept
from surehand.core.tool import Preview
from surehand.files.atomic import create_file, replace_file, temporary_name
from surehand.files.diff import creation_diff, narrow_diff, snippet, splice_diff, text_diff
from surehand.files.locks import locked_now
from surehand.files.openat2 import exact_times
from surehand.files.opening import read_up_to
from surehand.files.paths import ATTEMPTS, os_failure
from surehand.files.text import Splice, line_at, spliced
from surehand.history.contents import digest_parts
from surehand.history.disk import HELD_BYTES
from surehand.history.history import HISTORY, History, Pending
from surehand.history.steps import large_diff
from surehand.history.words import ABSENT, Author, FileChange, FileState
from surehand.tools.attempt import ENCODINGS, Attempt
from surehand.tools.edit_checks import Check, run_checks

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from surehand.core.session import Session

_BESIDE_BYTES: Final = 900_000
"""From this size on the digest of the new bytes and what is told of them are worked out while they are written."""
T = TypeVar("T")
_SNIPPET_BYTES: Final = 8 * 1024
_RESULT_DIFF_LINES: Final = 200


def checked(attempt: Attempt, checks: tuple[Check, ...]) -> Attempt:
    """Run the layers on an attempt and let go of its descriptors; raises ToolFailure at the first refusal."""
    try:
        run_checks(attempt, checks)
        attempt.keep()
    finally:
        attempt.close()
    return attempt


def checked_before_asking(attempt: Attempt, checks: tuple[Check, ...]) -> None:
    """Run the layers that may be told before anyone is asked: of a path outside the roots the arguments alone."""
    checked(attempt, checks if not attempt.outside else tuple(each for each in checks if each.layer < 2))


def previewed(attempt: Attempt, checks: tuple[Check, ...]) -> Preview:
    """Say exactly what would change; nothing is written."""
    checked(attempt, checks)
    same = attempt.exists and _unchanged(attempt)
    diff = "" if same else _diff(attempt, None)
    attempt.forget()
    data: dict[str, Any] = {"path": attempt.real, "created": not attempt.exists, "changed": not same}
    if same:
        return Preview(f"{attempt.path} already has exactly this content; nothing would be written", diff, data)
    return Preview(f"would {'change' if attempt.exists else 'create'} {attempt.path}", diff, data)


def written(attempt: Attempt, checks: tuple[Check, ...], tool: str) -> ToolResult:
    """Make the change and return what came of it."""
    history = attempt.ctx.session.keep(HISTORY)
    try:
        with _lock_folder(attempt):
            run_checks(attempt, checks)  # says also what is missing
            if attempt.on_disk is not None and _unchanged(attempt):  # what the editor has is what is to be written
                attempt.data, attempt.digest, attempt.on_disk = attempt.on_disk, digest_of(attempt.on_disk), None
            if attempt.exists and _unchanged(attempt):
                return _nothing_to_do(attempt)
            digest = _beside(attempt, lambda: digest_parts(attempt.parts))
            told = _beside(attempt, lambda: _told(attempt))
            if attempt.on_disk is not None:
                _save_for_editor(attempt, history, attempt.on_disk)
            change_id, status = _replaced(attempt, history, tool, digest)
            status = _show_to_editor(attempt, status)
            seen = Seen.of(digest(), status, exact=exact_times(attempt.folder), encoding=attempt.named)
    except BaseException:
        _remove_made(attempt)
        raise
    finally:
        attempt.forget()
        _let_go(attempt)
    return _result(attempt, tool, change_id, seen, told())


@contextmanager
def _lock_folder(attempt: Attempt) -> Generator[None]:
    """Hold the lock of the file's folder, making the folder where it is missing.

    A call that is given up, or undone, takes the folders back that it had made, perhaps just those this one waits in: a
    folder that is gone once its lock is had is made again.
    """
    make = attempt.creating or attempt.content is not None
    for _ in range(ATTEMPTS):
        if not attempt.enter_folder(make=make):
            yield
            return
        with locked_now([attempt.folder]):
            if os.fstat(attempt.folder).st_nlink:
                yield
                return
        attempt.leave_folder()
    raise os_failure(FileNotFoundError(errno.ENOENT, "its folder is removed again and again"), attempt.path, "write to")


def _save_for_editor(attempt: Attempt, history: History, on_disk: bytes) -> None:
    """Save what an editor has not: a change of its own, so that taking back ours leaves the user's text there."""
    saving = copy(attempt)
    saving.data, saving.digest, saving.made = on_disk, digest_of(on_disk), []
    saving.parts = [attempt.data]
    saving.splices, saving.content = [], None
    _, attempt.status = _replaced(saving, history, "Editor", lambda: attempt.digest)
    os.close(attempt.fd)
    attempt.fd = _open_again(attempt)


def _show_to_editor(attempt: Attempt, status: os.stat_result) -> os.stat_result:
    """Put the new text into the editor's buffer; where it saves other bytes than ours, ours are put back."""
    buffers = attempt.ctx.session.main.buffers
    if buffers is None:
        return status
    whole = b"".join(attempt.parts)
    try:
        text = attempt.encoding.decode(whole)
        text.encode()
    except UnicodeError:
        return status  # bytes that are no text: the editor finds the file changed on disk
    buffers.show(attempt.real, text)
    fd = _open_again(attempt)
    try:
        if read_up_to(fd, len(whole) + 1) == whole:
            return os.fstat(fd)
        return replace_file(attempt.folder, attempt.name, temporary_name(os.urandom(6).hex()), [whole], fd)
    finally:
        os.close(fd)


def _open_again(attempt: Attempt) -> int:
    return os.open(attempt.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=attempt.folder)


def _let_go(attempt: Attempt) -> None:
    """Close what is open. With its last descriptor a replaced file goes, and a large one takes its time."""
    if attempt.status is None or attempt.status.st_size < _BESIDE_BYTES:
        attempt.close()
        return
    held, attempt.fd = [attempt.fd] if attempt.fd >= 0 else [], -1
    attempt.close()

    def close() -> None:
        while held:
            os.close(held.pop())

    try:
        attempt.ctx.session.keep(ASIDE).submit(close)
    except (OSError, RuntimeError):  # no thread left; what stays in its queue finds nothing held
        close()


def _unchanged(attempt: Attempt) -> bool:
    if attempt.content is None or len(attempt.data) != sum(len(part) for part in attempt.parts):
        return False
    return b"".join(attempt.parts) == attempt.data


def _nothing_to_do(attempt: Attempt) -> ToolResult:
    data = {"path": attempt.real, "created": False, "changed": False, "diff": ""}
    return ToolResult(data=data, output=f"{attempt.path} already has exactly this content; nothing was written.")


def _replaced(attempt: Attempt, history: History, tool: str, digest: Callable[[], str]) -> tuple[str, os.stat_result]:
    """Write the change down, replace the file, confirm it."""
    size, before = _new_size(attempt), _state_before(attempt)
    known: FileState | None = None  # a new file's mode shows afterwards, the digest of a large one is not there yet
    if attempt.status is not None and size < _BESIDE_BYTES:
        known = FileState("file", digest(), stat.S_IMODE(attempt.status.st_mode), size)
    folders = [FileChange(path, ABSENT, FileState("directory", "", _mode(path))) for path in attempt.made]
    who = Author.of(attempt.ctx, tool, f"{'Change' if attempt.exists else 'Create'} {attempt.path}")
    pending = history.begin(
        who,
        [FileChange(attempt.real, before, known), *folders],
        before=attempt.data if attempt.exists else None,
        after=attempt.parts,
        splices=attempt.splices,
    )
    status = _put_or_abandoned(attempt, history, pending)
    if known is not None:
        history.commit(pending)
        return pending.id, status
    after = FileState("file", digest(), stat.S_IMODE(status.st_mode), status.st_size)
    history.complete(pending, [FileChange(attempt.real, before, after), *folders], attempt.parts, attempt.splices)
    return pending.id, status


def _new_size(attempt: Attempt) -> int:
    return sum(len(part) for part in attempt.parts)


def _mode(path: str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def _put_or_abandoned(attempt: Attempt, history: History, pending: Pending) -> os.stat_result:
    """Replace the file; where that fails, strike the change from the history and say why."""
    try:
        if attempt.status is not None:
            history.adopt(pending, attempt.folder, attempt.name, attempt.data, attempt.status.st_nlink)
        return _put(attempt, pending)
    except BaseException as problem:
        others = isinstance(problem, FileExistsError)  # what stands there is somebody else's
        if history.abandon(pending, attempt.folder, may_have_happened=not others):
            raise _written_all_the_same(attempt, pending, problem) from problem
        if others:
            raise _appeared(attempt) from None
        if isinstance(problem, OSError):
            raise os_failure(problem, attempt.path, "write to") from None
        raise


def _written_all_the_same(attempt: Attempt, pending: Pending, problem: BaseException) -> ToolFailure:
    return ToolFailure(
        f"{attempt.path} is written, but an error followed: {problem}",
        hint=f"Read it before going on. Undo with change_id {pending.id!r} takes it back.",
        details={"path": attempt.real, "change_id": pending.id},
    )


def _state_before(attempt: Attempt) -> FileState:
    if attempt.status is None:
        return ABSENT
    return FileState("file", attempt.digest, stat.S_IMODE(attempt.status.st_mode), len(attempt.data))


def _put(attempt: Attempt, pending: Pending) -> os.stat_result:
    wanted = attempt.ctx.check_wanted
    if attempt.exists:
        return replace_file(
            attempt.folder, attempt.name, pending.temporary, attempt.parts, attempt.fd, check_wanted=wanted
        )
    return create_file(attempt.folder, attempt.name, pending.temporary, attempt.parts, None, check_wanted=wanted)


def _beside(attempt: Attempt, work: Callable[[], T]) -> Callable[[], T]:
    """Return what gives the outcome of `work`; with a large content it is worked out while that is written."""
    if _new_size(attempt) >= _BESIDE_BYTES:
        try:
            return attempt.ctx.session.keep(ASIDE).submit(work).result
        except (OSError, RuntimeError):  # no thread or no descriptor left: then at once
            pass
    outcome = work()
    return lambda: outcome


def _make_aside(session: Session) -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(1, "surehand-aside")


async def _close_aside(aside: ThreadPoolExecutor) -> None:
    aside.shutdown(wait=False)


ASIDE: Final = Kept("aside", make=_make_aside, close=_close_aside)
"""A thread of the session's own, for what an edit need not wait for: starting one for each makes it wait for that."""


def _appeared(attempt: Attempt) -> ToolFailure:
    return ToolFailure(
        f"Cannot create {attempt.path}: somebody else created it at the same moment.",
        code="precondition_failed",
        hint="Read it, then decide.",
        details={"layer": 4, "number": 3, "path": attempt.path},
    )


def _remove_made(attempt: Attempt) -> None:
    """Take back folders made for a file that was not written after all."""
    for path in reversed(attempt.made):
        try:
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return
        try:
            with locked_now([folder]):  # whoever is about to write there has it
                os.rmdir(path)
        except (OSError, ToolFailure):
            return
        finally:
            os.close(folder)


@frozen
class _Told:
    """What is told of a change: its diff for programs, a sentence with the changed lines for a model."""

    diff: str
    said: str


def _told(attempt: Attempt) -> _Told:
    line = _first_line(attempt)
    return _Told(_diff(attempt, _RESULT_DIFF_LINES, line), _said(attempt, not attempt.exists, line))


def _result(attempt: Attempt, tool: str, change_id: str, seen: Seen, told: _Told) -> ToolResult:
    session, created = attempt.ctx.session, not attempt.exists
    session.saw(attempt.real, seen)
    session.keep(ENCODINGS)[attempt.real] = (seen, attempt.encoding)
    session.emit(
        "file_changed",
        tool=tool,
        call_id=attempt.ctx.call.id,
        path=attempt.real,
        change_id=change_id,
        action="created" if created else "changed",
    )
    data: dict[str, Any] = {
        "path": attempt.real,
        "created": created,
        "changed": True,
        "change_id": change_id,
        "size": seen.size,
        "encoding": attempt.encoding.label,
        "diff": told.diff,
    }
    if attempt.content is None:
        data["replacements"] = len(attempt.splices)
    if attempt.others_diff:
        data |= {"merged": True, "others_diff": attempt.others_diff}
    undo = Undo(change_id, f"{'remove' if created else 'restore'} {attempt.path}")
    return ToolResult(data=data, output=told.said, undo=undo)


def _said(attempt: Attempt, created: bool, line: int) -> str:
    if created:
        return f"Created {attempt.path} ({_new_size(attempt)} bytes)."
    links = attempt.status.st_nlink if attempt.status else 1
    note = f" Its other {links - 1} hard link(s) keep the old content." if links > 1 else ""
    if attempt.others_diff:
        note += " Others had changed other lines since you read it, and both changes are in the file now. Theirs:\n"
        note += attempt.others_diff
    if attempt.content is not None:
        return f"Replaced the content of {attempt.path}.{note}"
    if attempt.summary:
        return f"Edited {attempt.path}. {attempt.summary}{note}"
    count = len(attempt.splices)
    many = f" in {count} places" if count > 1 else ""
    if not attempt.parts:
        return f"Edited {attempt.path}{many}.{note} It is empty now."
    return f"Edited {attempt.path}{many}.{note} The changed lines now read:\n{_changed_lines(attempt, line)}"


def _changed_lines(attempt: Attempt, line: int) -> str:
    """Return the lines round the first change as they are now, from a window of the file alone."""
    first, data, feed = attempt.splices[0], attempt.data, attempt.encoding.encode("\n")
    start, end = max(0, first.start - _SNIPPET_BYTES), first.end + _SNIPPET_BYTES
    if start and attempt.encoding.unit == 1:  # with a whole line
        start = data.find(feed, start, first.start) + 1 or start
    near = list(takewhile(lambda each: each.start < end, attempt.splices))
    moved = [Splice(each.start - start, each.end - start, each.new) for each in near]
    window = b"".join(spliced(data[start : max(end, near[-1].end)], moved))
    place = first.start - start
    return snippet(window, place, place + len(first.new), attempt.encoding, first_line=line)


def _first_line(attempt: Attempt) -> int:
    """Return the number of the line the first change begins in."""
    return line_at(attempt.data, attempt.splices[0].start, attempt.encoding) if attempt.splices else 1


def _diff(attempt: Attempt, limit_lines: int | None, line: int | None = None) -> str:
    if attempt.content is None and attempt.exists:
        return splice_diff(attempt.data, attempt.splices, attempt.encoding, attempt.path, first_line=line)
    if max(len(attempt.data), _new_size(attempt)) > HELD_BYTES:
        return _large_diff(attempt)
    after = attempt.encoding.decode(b"".join(attempt.parts), "replace")
    if not attempt.exists:
        return creation_diff(after, attempt.path)
    before = attempt.encoding.decode(attempt.data, "replace")
    return text_diff(before, after, attempt.path, limit_lines=limit_lines)


def _large_diff(attempt: Attempt) -> str:
    """Return the diff of a large content where it differs in one narrow place; otherwise how large the two are."""
    narrow = None
    if attempt.exists:
        narrow = narrow_diff(attempt.data, b"".join(attempt.parts), attempt.encoding, attempt.path)
    after = FileState("file", size=_new_size(attempt), digest="new")
    return large_diff(attempt.path, _state_before(attempt), after) if narrow is None else narrow
