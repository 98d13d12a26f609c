"""`FileWrite`: writing one file, from the checks to the replace.

    with FileWrite(ctx, args.file_path, edits=edits) as write:  # opens and locks
        write.check(EDIT_CHECKS)
        return write.commit("Edit")  # asks "still wanted?" just before the replace

The same checks run twice: before anyone is asked (`check_before_question`), and again under the folder's lock just
before the write. The first run finds the file by its name; the second works in the folder the first one found, by
its descriptor. A change is written down before it is made, and confirmed after.
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
from surehand.core.frozen import frozen
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
    from surehand.tools.edit_checks import Check

_HELD_WHILE_ASKED_BYTES: Final = 256 * 1024
"""The largest file whose content stays in memory while somebody is asked about its change, however long."""
_HELD_LARGER_S: Final = 1.0
"""How long that of a larger one does: for the answer of a program, not of a person."""
_PLACES_WHILE_ASKED: Final = 1000
"""The most places found in a larger file that are remembered meanwhile."""


@frozen
class Replace:
    """One edit: `old` becomes `new`, once or everywhere."""

    old: str
    new: str
    all: bool = False


@dataclass(slots=True)
class CheckedFile:
    """A file as the checks last found it: used again only while its status proves that nothing changed."""

    seen: Seen
    data: Bytes | None
    """None if not held in memory; the rest still applies to the same bytes, read again."""
    digest: str
    edits: Sequence[Replace] = ()
    encoding: Encoding = UTF8
    splices: Sequence[Splice] = ()
    path: str = ""
    diff: str = ""
    """The diff of the edits under the name `path`, if a preview needed it."""
    line: int = 0
    new_digest: Beside[str] | None = None
    """The digest of what the edits make of a large file."""

    def let_go(self) -> None:
        """Hold the content no longer."""
        self.data = None


CHECKED_FILES: Final[Kept[dict[str, CheckedFile]]] = Kept("checked_files", make=lambda session: {})
"""Real path → the file as checked before the question, for the write after it."""
ENCODINGS: Final[Kept[dict[str, tuple[Seen, Encoding]]]] = Kept("encodings", make=lambda session: {})
"""Real path → the encoding of the last edit: a guess must not change between two edits of a file read once."""


class FileWrite:
    """One write of a file: what is wanted, what is known of the file so far, and the steps from check to commit."""

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
        self.folder = -1
        self.fd = -1
        self.made: list[str] = []
        self.status: os.stat_result | None = None
        """None while there is no such file."""
        self.special: ToolFailure | None = None
        """Why it is no file at all (a device, a FIFO); said where the layers come to its type."""
        self.data: Bytes = b""
        """What the file holds; of a large one, read through windows."""
        self.digest = ""
        self.on_disk: bytes | None = None
        """What the file holds, where `data` is the text of an editor that has not saved it; else None."""
        self.encoding = UTF8
        self.splices: list[Splice] = []
        self.parts: list[Part] = []
        self.new_digest: Beside[str] | None = None
        """That of the parts, where somebody began to work it out before the write."""
        self.base: bytes | None = None
        """What the session has read, where others changed the file since and their change is to be merged."""
        self.diff = ""
        """What the edits change, where it was worked out already."""
        self.line = 0
        """The number of the line the first change begins in, where it was counted already."""
        self.others_diff = ""
        """What others changed since the file was read, where that was merged."""
        self.summary = ""
        """What the change is, where the changed lines alone would not tell."""
        self.previewing = False  # True: only those who are asked see a refusal, and its caller reads nothing by it
        self._report: write_result.ChangeReport | None = None
        self._locked = False
        self._checked: tuple[os.stat_result, CheckedFile | None] | None = None

    def __enter__(self) -> Self:
        """Lock the file's folder, making it where it is missing and the write makes a file."""
        try:
            self._lock_folder()
        except BaseException as problem:
            self.__exit__(type(problem), problem, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: object) -> None:
        """Let go of everything; folders that were made for a file that was not written go again."""
        self._unlock()
        if problem is not None:
            remove_empty_folders(self.made)
        self._let_go()

    def _lock_folder(self) -> None:
        """Lock the file's folder; make it anew where it is gone once its lock is taken."""
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
        """Run the layers in order; raise ToolFailure at the first that refuses."""
        for check in checks:
            if (problem := check.find(self)) is not None:
                raise problem.to_failure(self.path, check.layer)

    def look(self, checks: tuple[Check, ...]) -> Self:
        """Run the layers without the lock, and keep what they found for the run that follows."""
        try:
            self.check(checks)
            self.keep()
        finally:
            self.close()
        return self

    def check_before_question(self, checks: tuple[Check, ...]) -> None:
        """Run the layers that may be told before anyone is asked: of a path outside the roots the arguments alone.

        Where nobody is asked, those of a small file's edit run once, under the lock, a moment later.
        """
        looked = looked_at(self.ctx)
        if looked or (self.ctx.unasked and not self.makes_folders and self._was_small):
            return
        if self.outside:
            self.look(tuple(each for each in checks if each.layer < 2))
        elif isinstance(self.look(checks).data, bytes):
            looked.append(self)

    def preview(self, checks: tuple[Check, ...]) -> Preview:
        """Say exactly what would change; nothing is written."""
        self.previewing = True
        looked = looked_at(self.ctx)
        write = looked[-1] if looked else self.look(checks)
        shown = write_result.describe_preview(write)
        if len(write.data) > _HELD_WHILE_ASKED_BYTES:
            looked.clear()  # nor is the write held, whose content is the file's
        kept, loop = write._find_checked(), self.ctx.loop
        larger = kept is not None and isinstance(kept.data, bytes) and len(kept.data) > _HELD_WHILE_ASKED_BYTES
        if kept is None or (larger and (not kept.edits or len(kept.splices) > _PLACES_WHILE_ASKED)):
            self.forget()
            return shown
        if kept.edits:
            kept.path, kept.diff, kept.line = self.path, shown.diff, write.line
        if larger and loop is not None:
            loop.call_soon_threadsafe(loop.call_later, _HELD_LARGER_S, kept.let_go)
        elif larger:
            kept.let_go()
        return shown

    def commit(self, tool: str) -> ToolResult:
        """Make the change that was checked, and return its result."""
        history, session = self.ctx.session.keep(HISTORY), self.ctx.session
        if self.on_disk is not None and self.is_unchanged:  # what the editor has is what is to be written
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
        self._let_go()
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
        """Say what the write changes; worked out once."""
        if self._report is None:
            self._report = write_result.describe_change(self)
        return self._report

    def _let_go(self) -> None:
        """Close what is open. With its last descriptor a replaced file goes, which takes as long as a flush: later."""
        self.forget()
        if self.fd >= 0 and self.ctx.afterwards is not None:
            self.ctx.afterwards.append(partial(os.close, self.fd))
            self.fd = -1
        self.close()

    @property
    def is_unchanged(self) -> bool:
        """Whether the new content is the old one."""
        return self.content is not None and len(self.data) == self.new_size and holds_parts(self.data, self.parts)

    @property
    def new_size(self) -> int:
        """The size of the new content in bytes."""
        return sum(len(part) for part in self.parts)

    @property
    def state_before(self) -> FileState:
        """The file as it is in the history before the change."""
        if self.status is None:
            return ABSENT
        return FileState("file", self.digest, stat.S_IMODE(self.status.st_mode), len(self.data))

    @property
    def named(self) -> str:
        """The encoding a caller named when the file was read."""
        seen = self.ctx.session.read_state.get(self.real)
        return seen.encoding if seen is not None else ""

    @property
    def merges(self) -> bool:
        """Whether the session merges its edits with what others changed in other lines."""
        session = self.ctx.session
        return {"off": False, "agents": session.parent is not None, "on": True}[session.settings.files.merge]

    @property
    def _was_small(self) -> bool:
        """Whether the session has read the file, and it was a small one: nobody waits long for its lock."""
        seen = self.ctx.session.read_state.get(self.real)
        return seen is not None and seen.size <= _HELD_WHILE_ASKED_BYTES

    @property
    def makes_folders(self) -> bool:
        """Whether folders that are missing above the file are made before the checks run under the lock."""
        return self.creating or self.content is not None

    @property
    def creating(self) -> bool:
        """Whether the edit is a new file."""
        return self.content is None and bool(self.edits) and self.edits[0].old == ""

    def decode(self) -> str:
        """Return the content as text."""
        return self.encoding.decode(bytes(self.data), "replace")

    @property
    def exists(self) -> bool:
        """Whether the file is there."""
        return self.status is not None

    def close(self) -> None:
        """Close the file and its folder."""
        for fd in (self.fd, self.folder):
            if fd >= 0:
                os.close(fd)
        self.fd = self.folder = -1

    def enter_folder(self, *, make: bool = False) -> bool:
        """Open the file's folder beneath the roots; False when there is none (and none is to be made)."""
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
        """Open the file and take its status, unless it is open; a missing one leaves `status` None."""
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
            self.status = os.stat(self.real)  # a root itself; what is wrong with it is its type
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
            self._refuse_secret_link(self.status)
        try:
            refuse_special(self.fd, self.path, self.status)
        except ToolFailure as problem:
            self.special = problem

    def _refuse_secret_link(self, status: os.stat_result) -> None:
        try:
            self.ctx.session.keep(SECRET_LINKS).refuse(status, self.real)
        except ToolFailure as problem:
            details = {**problem.details, "layer": 2, "number": 2}
            raise ToolFailure(problem.message, code="permission_denied", hint=problem.hint, details=details) from None

    @property
    def outside(self) -> bool:
        """Whether it lies in none of the session's roots: nothing about it is revealed before somebody permitted it."""
        roots = self.ctx.session.roots
        return root_of(self.real, roots) is None and root_of(self.real, [*map(os.path.realpath, roots)]) is None

    @property
    def is_folder(self) -> bool:
        """Whether the path is a folder."""
        return self.status is not None and stat.S_ISDIR(self.status.st_mode)

    def read(self) -> None:
        """Read the whole file, unless that is done, or a run of the checks before this one has read the same bytes."""
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
        status = os.fstat(self.fd)  # one taken before the bytes were read says nothing of them
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
        """Return a large file's bytes and their digest without holding them; None where they must be held."""
        guessed = detect(os.pread(self.fd, HEAD_BYTES, 0))
        if guessed is None or guessed.unit > 1 or guessed.has_escapes or self.named not in ("", "utf-8"):
            return None
        return snapshot(self.folder, self.fd)

    def make_seen(self) -> Seen:
        """Return what is known of the file as it was read."""
        assert self.status is not None
        seen = Seen.of(self.digest, self.status, exact=exact_times(self.fd), encoding=self.named)
        return seen if self.on_disk is None else seen.without_proof()

    def guess(self) -> Encoding | None:
        """Return the encoding of the file: the last edit's while nobody has read the file since, else what fits."""
        kept, seen = self.ctx.session.keep(ENCODINGS).get(self.real), self.ctx.session.read_state.get(self.real)
        if self.named and self.data and not self.data.isascii():
            return UTF8 if self.named == "utf-8" else Encoding(self.named)
        if kept is None or kept[0] is not seen or not self.data:
            return detect(self.data)
        certain = kept[1].codec == "utf-8"  # no guess to keep then, only a detection to save
        same = self.status is not None and kept[0].untouched(self.status)
        return kept[1] if same or not certain else detect(self.data)

    def reuse_checks(self) -> bool:
        """Take over what an earlier run of the checks found in the same bytes; False if there was none."""
        kept = self._find_checked()
        if kept is None or kept.edits != self.edits:
            return False
        self.encoding, self.splices, self.new_digest = kept.encoding, list(kept.splices), kept.new_digest
        self.diff, self.line = kept.diff if kept.path == self.path else "", kept.line
        return True

    def keep(self) -> None:
        """Keep what was found for the run that follows, if the file's status can prove that it is still so."""
        if self.status is not None and (seen := self.make_seen()).ctime_ns:
            kept = self._copies if isinstance(self.data, LargeBytes) else self.ctx.session.keep(CHECKED_FILES)
            kept.clear()  # one at a time: it may be large
            self._checked = None
            found = CheckedFile(seen, self.data, self.digest, self.edits, self.encoding, self.splices)
            if self.edits and isinstance(self.data, bytes) and len(self.data) > _HELD_WHILE_ASKED_BYTES:
                found.new_digest = self._start_digest()  # ready by the time that the answer is there
            kept[self.real] = found

    def forget(self) -> None:
        """Forget what an earlier run of the checks kept of the file."""
        if (kept := self.ctx.session.keep(CHECKED_FILES).pop(self.real, None)) is not None:
            kept.let_go()
        self._copies.clear()
        self._checked = None

    @property
    def _copies(self) -> dict[str, CheckedFile]:
        """A large file as the checks of this call copied it; the copy goes with the call."""
        return self.ctx.once("copied", dict[str, CheckedFile])

    def _find_checked(self) -> CheckedFile | None:
        if self.status is None or self.ctx.session.main.buffers is not None:
            return None  # the status of a file says nothing of a buffer
        if self._checked is None or self._checked[0] is not self.status:
            kept = self._copies.get(self.real) or self.ctx.session.keep(CHECKED_FILES).get(self.real)
            self._checked = self.status, kept if kept is not None and kept.seen.untouched(self.status) else None
        return self._checked[1]


def looked_at(ctx: ToolContext) -> list[FileWrite]:
    """Return the write of a call that its check has looked at, if it did."""
    return ctx.once("looked at", list[FileWrite])


def locate(ctx: ToolContext, path: str) -> tuple[tuple[str, ...], str]:
    """Return the roots to open a path beneath, and where it led when it was judged: a link turned since counts not."""
    judged = ctx.leads.get(path, "")
    return ctx.once(f"where {path}\0{judged}", lambda: (readable_roots(ctx, path), judged or real_path(path)))


def _save_for_editor(write: FileWrite, history: History, on_disk: bytes) -> None:
    """Save what an editor has not: a change of its own, so that taking back ours leaves the user's text there."""
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
    """Write the change down, replace the file, confirm it; `meanwhile` runs while the disk is busy."""
    size, before = write.new_size, write.state_before
    known: FileState | None = None  # a new file's mode shows afterwards, the digest of a large one is not there yet
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
    """Replace the file; where that fails, strike the change from the history and say why."""
    try:
        if write.status is not None:
            history.adopt(pending, write.folder, write.name, write.data, write.status.st_nlink)
        return _put(write, pending, meanwhile)
    except BaseException as problem:
        others = isinstance(problem, FileExistsError)  # what is there is somebody else's
        if history.abandon(pending, write.folder, may_have_happened=not others):
            raise write_result.make_written_failure(write, pending.id, problem) from problem
        if others:
            raise write_result.make_appeared_failure(write) from None
        if isinstance(problem, OSError):
            raise os_failure(problem, write.path, "write to") from None
        raise


def _put(write: FileWrite, pending: Pending, meanwhile: Callable[[], object]) -> os.stat_result:
    folder, name, temporary = write.folder, write.name, pending.temporary
    prepare = partial(write.ctx.discard_with, partial(discard, folder, temporary))
    prepare()  # and again with the file there, as who gave the call up in between has found none
    put = partial(replace_file, like=write.fd) if write.exists else partial(create_file, mode=None)
    put = partial(put, folder, name, temporary, write.parts, check_wanted=write.ctx.check_wanted)
    return put(meanwhile=lambda: (prepare(), meanwhile()))
