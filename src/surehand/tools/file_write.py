"""`FileWrite`: writing one file, from the checks to the replace.

    with FileWrite(ctx, args.file_path, edits=edits) as write:  # opens and locks
        write.check(EDIT_CHECKS)
        return write.commit("Edit")  # asks "still wanted?" just before the replace

The same checks run twice: before anyone is asked (`check_before_question`), and again under the folder's lock just
before the write, unless the status of a small file proves that they would come to the same. The first run finds the
file by its name; the second works in the folder the first one found, by its descriptor. The history records a change
before it is made, and confirms it after.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Self

from surehand.core.errors import ToolFailure
from surehand.core.session import Kept, Seen, digest_of
from surehand.files.atomic import (
    Beside,
    create_file,
    discard,
    remove_empty_folders,
    replace_file,
    unlock,
    wait_for_lock,
)
from surehand.files.opening import SECRET_LINKS, read_to_end
from surehand.files.paths import (
    ATTEMPTS,
    OutsideRoots,
    exact_times,
    is_beneath,
    open_folder,
    os_failure,
    plain_name,
    readable_roots,
    real_path,
    refuse_special,
    root_of,
    special_failure,
    workspace_failure,
)
from surehand.files.streamed import LARGE_BYTES, Bytes, LargeBytes, Part, holds_parts, snapshot
from surehand.files.text import HEAD_BYTES, UTF8, Encoding, Splice, detect
from surehand.history.contents import digest_parts
from surehand.history.history import HISTORY, History, Pending
from surehand.history.words import ABSENT, Author, FileChange, FileState
from surehand.tools import write_result

if TYPE_CHECKING:
    from surehand.core.call import ToolResult
    from surehand.core.context import ToolContext
    from surehand.core.tool import Preview
    from surehand.tools.edit_checks import Check, Replace

_HELD_WHILE_ASKED_BYTES: Final = 256 * 1024
"""The largest file whose content stays in memory while a question waits, however long that takes."""
_HELD_LARGER_S: Final = 1.0
"""How long that of a larger one does: long enough for a program to answer, not for a person."""
_SPLICES_WHILE_ASKED: Final = 1000
"""The most splices of a larger file that are kept meanwhile."""


@dataclass(slots=True)
class CheckedFile:
    """What the checks found in a larger file; valid while the file's status proves it unchanged."""

    seen: Seen
    data: Bytes | None
    """None once released; the rest still applies to the same bytes, read again."""
    digest: str
    edits: Sequence[Replace] = ()
    encoding: Encoding = UTF8
    splices: Sequence[Splice] = ()
    path: str = ""
    diff: str = ""
    """The diff of the edits under the name `path`, if a preview made it."""
    line: int = 0
    new_digest: Beside[str] | None = None
    """The digest of the new content, computed in a thread."""

    def let_go(self) -> None:
        """Release the content."""
        self.data = None


CHECKED_FILES: Final[Kept[dict[str, CheckedFile]]] = Kept("checked_files", make=lambda session: {})
"""Real path → what the checks before the question found, for the write after it."""
ENCODINGS: Final[Kept[dict[str, tuple[Seen, Encoding]]]] = Kept("encodings", make=lambda session: {})
"""Real path → the encoding of the last edit. A guess must not change between two edits of a file read once."""


class FileWrite:
    """One write of a file: the change, what is known of the file so far, and the steps from check to commit."""

    def __init__(
        self, ctx: ToolContext, file_path: str, *, edits: Sequence[Replace] = (), content: str | None = None
    ) -> None:
        self.ctx = ctx
        self.edits = edits
        self.content = content
        """The whole new content (Write), or None for edits."""
        self.path = plain_name(ctx.resolve(file_path))
        self.roots, self.real = locate(ctx, self.path)
        self.folder_path, self.name = os.path.split(self.real)
        self.folder = self.fd = -1
        self.made: list[str] = []
        self._locked = False
        self._begin()

    def _begin(self) -> None:
        """Reset what is known of the file."""
        self.status: os.stat_result | None = None
        """None if there is no such file."""
        self.special: ToolFailure | None = None
        """Why it is not a regular file (a device, a FIFO); raised by the layer that checks its type."""
        self.data: Bytes = b""
        """The file's content; that of a large one is read through windows."""
        self.digest = ""
        self.on_disk: bytes | None = None
        """The content on disk, if `data` is the unsaved text of an editor's buffer."""
        self.encoding = UTF8
        self.splices: list[Splice] = []
        self.parts: list[Part] = []
        self.new_digest: Beside[str] | None = None
        """The digest of `parts`, if its computation began before the write."""
        self.base: bytes | None = None
        """The content the session has read, if the edit is merged with a later change of others."""
        self.diff = ""
        """The diff of the edits, once made."""
        self.line = 0
        """The number of the first changed line, once counted."""
        self.others_diff = ""
        """The change of others that the edit was merged with."""
        self.summary = ""
        """A sentence on the change, where the changed lines alone do not tell."""
        self.previewing = False  # True: only the approver sees a refusal, so the session has not read what it quotes
        self._report: write_result.ChangeReport | None = None
        self._looked = False
        """Whether the checks have passed before, and what is known of the file is from then."""
        self._passed: tuple[Seen, Seen | None] | None = None
        """Of a small file: its state and the session's read state at that time."""

    def __enter__(self) -> Self:
        """Lock the file's folder, made if it is missing and the write creates a file."""
        try:
            self._lock_folder()
        except BaseException as problem:
            self.__exit__(type(problem), problem, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: object) -> None:
        """Unlock and close; after a failure remove the folders that were made for the file."""
        self._unlock()
        if problem is not None:
            remove_empty_folders(self.made)
        self._let_go()

    def _lock_folder(self) -> None:
        """Lock the file's folder; start over if it was removed while waiting for its lock."""
        for _ in range(ATTEMPTS):
            if not self.enter_folder(make=self.makes_folders):
                return
            wait_for_lock(self.folder)
            self._locked = True
            if os.fstat(self.folder).st_nlink:
                return
            self._unlock()
            os.close(self.folder)
            self.folder = -1
        problem = FileNotFoundError(errno.ENOENT, "its folder is removed again and again")
        raise os_failure(problem, self.path, "write to")

    def _unlock(self) -> None:
        if self._locked:
            unlock(self.folder)
            self._locked = False

    def check(self, checks: tuple[Check, ...]) -> None:
        """Run the layers in order; raise ToolFailure at the first that refuses. Skipped if proven to pass again."""
        if self._looked and self._is_as_it_passed():
            return
        for check in checks:
            if (problem := check.find(self)) is not None:
                raise problem.to_failure(self.path, check.layer)

    def _is_as_it_passed(self) -> bool:
        """Open the file again; True if its status and the session's read state prove that every layer passes again.

        Otherwise what is known of the file is forgotten.
        """
        seen, read = self._passed or (None, None)
        self.status = None
        self.open()
        status, special = self.status, self.special
        same = seen is not None and status is not None and special is None and seen.untouched(status)
        if same and self.ctx.session.read_state.get(self.real) is read:
            return True
        self._begin()
        self.status, self.special = status, special
        return False

    def look(self, checks: tuple[Check, ...]) -> Self:
        """Run the layers without the lock, and keep what they find for the run that follows."""
        try:
            self.check(checks)
            self.keep()
        finally:
            self.close()
        return self

    def check_before_question(self, checks: tuple[Check, ...]) -> None:
        """Run the layers whose refusal may be shown before an approval; outside the roots only that of the arguments.

        If nobody is asked, the layers of a small file's edit run once, under the lock, in `run`.
        """
        looked, seen = looked_at(self.ctx), self.ctx.session.read_state.get(self.real)
        was_small = seen is not None and seen.size <= _HELD_WHILE_ASKED_BYTES
        if looked or (self.ctx.unasked and not self.makes_folders and was_small):
            return
        if self.outside:
            self.look(tuple(each for each in checks if each.layer < 2))
        elif isinstance(self.look(checks).data, bytes):
            looked.append(self)

    def preview(self, checks: tuple[Check, ...]) -> Preview:
        """Return exactly what would change; nothing is written."""
        self.previewing = True
        looked = looked_at(self.ctx)
        write = looked[-1] if looked else self.look(checks)
        shown = write_result.describe_preview(write)
        if write._passed is not None:
            write.diff = shown.diff if self.edits else ""
            return shown
        looked.clear()  # the write holds the whole content
        kept, loop = write._find_checked(), self.ctx.loop
        held = kept is not None and isinstance(kept.data, bytes)
        if kept is None or (held and (not kept.edits or len(kept.splices) > _SPLICES_WHILE_ASKED)):
            self.forget()
            return shown
        if kept.edits:
            kept.path, kept.diff, kept.line = self.path, shown.diff, write.line
        if held and loop is not None:
            loop.call_soon_threadsafe(loop.call_later, _HELD_LARGER_S, kept.let_go)
        elif held:
            kept.let_go()
        return shown

    def commit(self, tool: str) -> ToolResult:
        """Make the change that was checked, and return its result."""
        history, session = self.ctx.session.keep(HISTORY), self.ctx.session
        if self.on_disk is not None and self.is_unchanged:  # the unsaved buffer already has the wanted content
            self.data, self.digest, self.on_disk = self.on_disk, digest_of(self.on_disk), None
        if self.exists and self.is_unchanged:
            return write_result.make_unchanged_result(self)
        digest = self.new_digest or self._start_digest()
        if self.on_disk is not None:
            self.describe()
            _save_for_editor(self, history, self.on_disk)
        change_id, status = _replace(self, history, tool, digest, self.describe)  # while the disk is at work
        status = write_result.show_to_editor(self, status)
        seen = Seen.of(digest(), status, exact=exact_times(self.folder), encoding=self.named)
        self.made = []  # they hold the file now
        self._unlock()  # listeners of the event may write there
        session.saw(self.real, seen)
        session.keep(ENCODINGS)[self.real] = (seen, self.encoding)
        action = "changed" if self.exists else "created"
        session.emit(
            "file_changed", tool=tool, call_id=self.ctx.served.id, path=self.real, change_id=change_id, action=action
        )
        return write_result.make_result(self, change_id, seen.size, self.describe())

    def _start_digest(self) -> Beside[str]:
        parts = self.parts
        return Beside(self.ctx.session, self.new_size, lambda: digest_parts(parts))

    def describe(self) -> write_result.ChangeReport:
        """Return the report of the change, made once."""
        if self._report is None:
            self._report = write_result.describe_change(self)
        return self._report

    def _let_go(self) -> None:
        """Close the descriptors; that of a replaced file after the result is sent: freeing its blocks takes a flush."""
        self.forget()
        if self.fd >= 0 and self.ctx.afterwards is not None:
            self.ctx.afterwards.append(partial(os.close, self.fd))
            self.fd = -1
        self.close()

    @property
    def is_unchanged(self) -> bool:
        """Whether the new content equals the old one."""
        return self.content is not None and len(self.data) == self.new_size and holds_parts(self.data, self.parts)

    @property
    def new_size(self) -> int:
        """The size of the new content in bytes."""
        return sum(len(part) for part in self.parts)

    @property
    def state_before(self) -> FileState:
        """The file's state before the change, for the history."""
        if self.status is None:
            return ABSENT
        return FileState("file", self.digest, stat.S_IMODE(self.status.st_mode), len(self.data))

    @property
    def named(self) -> str:
        """The encoding a caller named when it read the file, or an empty text."""
        seen = self.ctx.session.read_state.get(self.real)
        return seen.encoding if seen is not None else ""

    @property
    def merges(self) -> bool:
        """Whether the session merges its edits with what others changed in other lines."""
        session = self.ctx.session
        return {"off": False, "agents": session.parent is not None, "on": True}[session.settings.files.merge]

    @property
    def makes_folders(self) -> bool:
        """Whether missing folders above the file are made before the checks run under the lock."""
        return self.creating or self.content is not None

    @property
    def creating(self) -> bool:
        """Whether the edit creates a file."""
        return self.content is None and bool(self.edits) and self.edits[0].old == ""

    @property
    def exists(self) -> bool:
        """Whether the file exists."""
        return self.status is not None

    def close(self) -> None:
        """Close the file and its folder."""
        for fd in (self.fd, self.folder):
            if fd >= 0:
                os.close(fd)
        self.fd = self.folder = -1

    def enter_folder(self, *, make: bool = False) -> bool:
        """Open the file's folder beneath the roots; False if it does not exist and is not to be made."""
        if self.folder >= 0:
            return True
        try:
            self.folder, made = open_folder(self.folder_path, self.roots, make=make)
            self.made = list(dict.fromkeys((*self.made, *made)))
        except FileNotFoundError:
            workspace = self.ctx.session.workspace
            if is_beneath(self.real, workspace) and not os.path.isdir(workspace):
                raise workspace_failure(workspace) from None
            if make:
                raise os_failure(
                    FileNotFoundError(errno.ENOENT, "a folder above it is gone"), self.path, "create"
                ) from None
            return False
        except NotADirectoryError as problem:
            if make:
                raise os_failure(problem, self.path, "create") from None
            return False
        except OutsideRoots:
            raise OutsideRoots(self.path, self.real) from None
        except OSError as problem:
            raise os_failure(problem, self.path, "open") from None
        return True

    def open(self) -> None:
        """Open the file and take its status, unless it is open; `status` stays None if it does not exist."""
        if self.fd >= 0:
            return
        if not self.name:
            self.status = os.stat(self.real)  # the root of the file system, which stands in no folder
            return
        try:
            if not self.enter_folder():
                return
        except OutsideRoots:
            if self.real not in map(os.path.realpath, self.roots):
                raise
            self.status = os.stat(self.real)  # a root itself: a later layer refuses it as a directory
            return
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        try:
            self.fd = os.open(self.name, flags, dir_fd=self.folder)
        except FileNotFoundError:
            return
        except OSError as problem:
            if problem.errno != errno.ENXIO:
                raise os_failure(problem, self.path, "open") from None
            self.special = special_failure(self.path, "a socket")
            self.status = os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
            return
        self.status = os.fstat(self.fd)
        if self.status.st_nlink > 1:
            try:
                self.ctx.session.keep(SECRET_LINKS).refuse(self.status, self.real)
            except ToolFailure as problem:
                problem.details |= {"layer": 2, "number": 2}
                raise
        try:
            refuse_special(self.fd, self.path, self.status)
        except ToolFailure as problem:
            self.special = problem

    @property
    def outside(self) -> bool:
        """Whether the file is outside the session's roots; nothing is revealed of it before an approval."""
        roots = self.ctx.session.roots
        return root_of(self.real, roots) is None and root_of(self.real, [*map(os.path.realpath, roots)]) is None

    @property
    def is_folder(self) -> bool:
        """Whether the path is a folder."""
        return self.status is not None and stat.S_ISDIR(self.status.st_mode)

    def read(self) -> None:
        """Read the whole file, unless it is read, or an earlier run of the checks has read the same bytes."""
        assert self.status is not None
        if self.digest:
            return
        kept = self._find_checked()
        if kept is not None and kept.data is not None:
            self.data, self.digest = kept.data, kept.digest
            return
        buffers = self.ctx.session.main.buffers
        if self.status.st_size > LARGE_BYTES and buffers is None and (large := self._read_large()) is not None:
            self.data, self.digest = large
            return
        try:
            self.data = data = read_to_end(self.fd, self.status.st_size)
        except OSError as problem:
            raise os_failure(problem, self.path, "read") from None
        status = os.fstat(self.fd)  # taken after the read: an earlier one proves nothing about these bytes
        if kept is not None and not kept.seen.untouched(status):
            self.forget()
        seen = self.ctx.session.read_state.get(self.real)
        unsaved = buffers.read(self.real, data) if buffers is not None else None
        if unsaved is not None:
            self.on_disk, self.data, self.digest = data, unsaved, digest_of(unsaved)
            return
        self.on_disk = None
        self.digest = seen.digest if seen and seen.digest and seen.untouched(status) else digest_of(data)

    def _read_large(self) -> tuple[LargeBytes, str] | None:
        """Return a large file's bytes and digest without holding them; None if its encoding needs them in memory."""
        guessed = detect(os.pread(self.fd, HEAD_BYTES, 0))
        if guessed is None or guessed.unit > 1 or guessed.has_escapes or self.named not in ("", "utf-8"):
            return None
        return snapshot(self.folder, self.fd)

    def make_seen(self) -> Seen:
        """Return the file's state as read, for the session's read state."""
        assert self.status is not None
        seen = Seen.of(self.digest, self.status, exact=exact_times(self.fd), encoding=self.named)
        return seen if self.on_disk is None else seen.without_proof()

    def guess(self) -> Encoding | None:
        """Return the file's encoding: that of the last edit if the file was not read since, else the detected one."""
        kept, seen = self.ctx.session.keep(ENCODINGS).get(self.real), self.ctx.session.read_state.get(self.real)
        if self.named and self.data and not self.data.isascii():
            return UTF8 if self.named == "utf-8" else Encoding(self.named)
        if kept is None or kept[0] is not seen or not self.data:
            return detect(self.data)
        certain = kept[1].codec == "utf-8"  # then it is no guess: kept only to save the detection
        same = self.status is not None and kept[0].untouched(self.status)
        return kept[1] if same or not certain else detect(self.data)

    def reuse_checks(self) -> bool:
        """Take over what an earlier run of the checks found in the same bytes; False if there is nothing."""
        kept = self._find_checked()
        if kept is None or kept.edits != self.edits:
            return False
        self.encoding, self.splices, self.new_digest = kept.encoding, list(kept.splices), kept.new_digest
        self.diff, self.line = kept.diff if kept.path == self.path else "", kept.line
        return True

    def keep(self) -> None:
        """Keep what was found for the run that follows, if the file's status can prove it unchanged then."""
        self._looked = True
        if self.status is None or not (seen := self.make_seen()).ctime_ns:
            return
        if isinstance(self.data, bytes) and len(self.data) <= _HELD_WHILE_ASKED_BYTES:
            self._passed = seen, self.ctx.session.read_state.get(self.real)
            return
        kept = self._copies if isinstance(self.data, LargeBytes) else self.ctx.session.keep(CHECKED_FILES)
        kept.clear()  # one at a time: it may be large
        found = CheckedFile(seen, self.data, self.digest, self.edits, self.encoding, self.splices)
        if self.edits and isinstance(self.data, bytes):
            found.new_digest = self._start_digest()  # ready by the time that the answer is there
        kept[self.real] = found

    def forget(self) -> None:
        """Forget what an earlier run of the checks kept of the file."""
        if (kept := self.ctx.session.keep(CHECKED_FILES).pop(self.real, None)) is not None:
            kept.let_go()
        self._copies.clear()

    @property
    def _copies(self) -> dict[str, CheckedFile]:
        """The copy of a large file that the checks of this call made; deleted with the call."""
        return self.ctx.once("copied", dict[str, CheckedFile])

    def _find_checked(self) -> CheckedFile | None:
        if self.status is None or self.ctx.session.main.buffers is not None:
            return None  # a file's status proves nothing about an editor's buffer
        kept = self._copies.get(self.real) or self.ctx.session.keep(CHECKED_FILES).get(self.real)
        return kept if kept is not None and kept.seen.untouched(self.status) else None


def looked_at(ctx: ToolContext) -> list[FileWrite]:
    """Return the writes of this call that have passed the checks: one or none."""
    return ctx.once("looked at", list[FileWrite])


def locate(ctx: ToolContext, path: str) -> tuple[tuple[str, ...], str]:
    """Return the roots to open a path beneath, and its real path as judged; a link changed since is ignored."""
    judged = ctx.leads.get(path, "")
    return ctx.once(f"where {path}\0{judged}", lambda: (readable_roots(ctx, path), judged or real_path(path)))


def _save_for_editor(write: FileWrite, history: History, on_disk: bytes) -> None:
    """Save an editor's unsaved text as a change of its own, so that undoing ours keeps it."""
    saving = copy(write)
    saving.data, saving.digest, saving.made = on_disk, digest_of(on_disk), []
    saving.parts = [write.data]
    saving.splices, saving.content = [], None
    _, write.status = _replace(saving, history, "Editor", Beside(write.ctx.session, 0, lambda: write.digest))
    os.close(write.fd)
    write.fd = write_result.open_again(write)


def _replace(
    write: FileWrite,
    history: History,
    tool: str,
    digest: Beside[str],
    meanwhile: Callable[[], object] = lambda: None,
) -> tuple[str, os.stat_result]:
    """Record the change, replace the file, confirm; `meanwhile` runs while the disk is busy."""
    size, before = write.new_size, write.state_before
    known: FileState | None = None  # unknown: a new file's mode before it is made, a large one's digest while computed
    if write.status is not None and digest.is_done:
        known = FileState("file", digest(), stat.S_IMODE(write.status.st_mode), size)
    made = {path: stat.S_IMODE(os.stat(path).st_mode) for path in write.made}
    folders = [FileChange(path, ABSENT, FileState("directory", "", mode)) for path, mode in made.items()]
    who = Author.of(write.ctx, tool, f"{'Change' if write.exists else 'Create'} {write.path}")
    pending = history.begin(
        who,
        [FileChange(write.real, before, known), *folders],
        before=write.data if write.exists else None,
        after=write.parts,
        splices=write.splices,
    )
    status = _put_or_abandon(write, history, pending, meanwhile)
    if known is not None:
        history.commit(pending)
        return pending.id, status
    after = FileState("file", digest(), stat.S_IMODE(status.st_mode), status.st_size)
    history.complete(pending, [FileChange(write.real, before, after), *folders], write.parts, write.splices)
    return pending.id, status


def _put_or_abandon(
    write: FileWrite, history: History, pending: Pending, meanwhile: Callable[[], object]
) -> os.stat_result:
    """Replace the file; if that fails, remove the change from the history and raise ToolFailure."""
    folder, temporary = write.folder, pending.temporary
    prepare = partial(write.ctx.discard_with, partial(discard, folder, temporary))
    put = partial(replace_file, like=write.fd) if write.exists else partial(create_file, mode=None)
    try:
        if write.status is not None:
            history.adopt(pending, folder, write.name, write.data, write.status.st_nlink)
        prepare()  # and again once the file is there: a cancellation in between found nothing to discard
        return put(
            folder,
            write.name,
            temporary,
            write.parts,
            check_wanted=write.ctx.check_wanted,
            meanwhile=lambda: (prepare(), meanwhile()),
        )
    except BaseException as problem:
        others = isinstance(problem, FileExistsError)  # the file there is somebody else's
        if history.abandon(pending, folder, may_have_happened=not others):
            raise write_result.make_written_failure(write, pending.id, problem) from problem
        if others:
            raise write_result.make_appeared_failure(write) from None
        if isinstance(problem, OSError):
            raise os_failure(problem, write.path, "write to") from None
        raise
