"""`Attempt`: one try to write a file, as far as the checks have brought it.

The same checks run twice: before anyone is asked, and again under the folder's lock just before the write. The first
run finds the file by its name; the second works in the folder the first one found, through its descriptor.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from surehand.core.errors import ToolFailure
from surehand.core.frozen import frozen
from surehand.core.read_state import Seen, digest_of
from surehand.core.session import Kept
from surehand.files.openat2 import exact_times
from surehand.files.paths import (
    OutsideRoots,
    is_beneath,
    open_folder,
    os_failure,
    readable_roots,
    real_path,
    refuse_special,
    root_of,
    special_failure,
    workspace_failure,
)
from surehand.files.secret_links import SECRET_LINKS
from surehand.files.text import UTF8, Encoding, Splice, detect

if TYPE_CHECKING:
    from surehand.core.context import ToolContext

SIZE_LIMIT_BYTES: Final = 1024 * 1024 * 1024


@frozen
class Replace:
    """One wish: `old` becomes `new`, once or everywhere."""

    old: str
    new: str
    all: bool = False


@dataclass(slots=True)
class Examined:
    """A file as the checks last read it: read again only if its status does not prove that nothing changed."""

    seen: Seen
    data: bytes
    digest: str
    wishes: Sequence[Replace] = ()
    encoding: Encoding = UTF8
    splices: Sequence[Splice] = ()


EXAMINED: Final[Kept[dict[str, Examined]]] = Kept("examined", make=lambda session: {})
ENCODINGS: Final[Kept[dict[str, tuple[Seen, Encoding]]]] = Kept("encodings", make=lambda session: {})
"""Real path → the encoding of the last edit: a guess must not change between two edits of a file read once."""


class Attempt:
    """What is wanted of a file, and what is known of it so far."""

    def __init__(
        self, ctx: ToolContext, file_path: str, *, wishes: Sequence[Replace] = (), content: str | None = None
    ) -> None:
        self.ctx = ctx
        self.wishes = wishes
        self.content = content
        """The whole new content (Write), or None for edits."""
        self.path = ctx.resolve(file_path)
        self.roots, self.real = ctx.once(f"where {file_path}", lambda: _where(ctx, self.path))
        self.folder_path, self.name = os.path.split(self.real)
        self.folder = -1
        self.fd = -1
        self.made: list[str] = []
        self.status: os.stat_result | None = None
        """None while there is no such file."""
        self.special: ToolFailure | None = None
        """Why it is no file at all (a device, a FIFO); said where the layers come to its type."""
        self.data = b""
        self.digest = ""
        self.on_disk: bytes | None = None
        """What the file holds, where `data` is the text of an editor that has not saved it; else None."""
        self.encoding = UTF8
        self.splices: list[Splice] = []
        self.parts: list[bytes | memoryview] = []
        self.base: bytes | None = None
        """What the session has read, where others changed the file since and their change is to be merged."""
        self.others_diff = ""
        """What others changed since the file was read, where that was merged."""
        self.summary = ""
        """What the change is, where the changed lines alone would not tell."""

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
    def creating(self) -> bool:
        """Whether the wish is a new file."""
        return self.content is None and bool(self.wishes) and self.wishes[0].old == ""

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

    def leave_folder(self) -> None:
        """Close the folder, to enter it anew."""
        os.close(self.folder)
        self.folder = -1

    def open(self) -> None:
        """Open the file and take its status; a missing one leaves `status` None."""
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
            refuse_special(self.fd, self.path)
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
        """Whether it lies in none of the session's roots: nothing of it is told before somebody permitted it."""
        roots = (*self.ctx.session.roots, *map(os.path.realpath, self.ctx.session.roots))
        return root_of(self.real, roots) is None

    @property
    def is_folder(self) -> bool:
        """Whether the path is a folder."""
        return self.status is not None and stat.S_ISDIR(self.status.st_mode)

    def read(self) -> None:
        """Read the whole file, unless a run of the checks before this one has read the same bytes."""
        assert self.status is not None
        kept = self._examined()
        if kept is not None:
            self.data, self.digest = kept.data, kept.digest
            return
        try:
            self.data = _all_bytes(self.fd, self.status.st_size)
        except OSError as problem:
            raise os_failure(problem, self.path, "read") from None
        seen = self.ctx.session.read_state.get(self.real)
        known = seen is not None and seen.digest and seen.untouched(self.status)
        buffers = self.ctx.session.main.buffers
        unsaved = buffers.read(self.real, self.data) if buffers is not None else None
        if unsaved is not None:
            self.on_disk, self.data, self.digest = self.data, unsaved, digest_of(unsaved)
            return
        self.on_disk = None
        self.digest = seen.digest if seen is not None and known else digest_of(self.data)

    def seen(self) -> Seen:
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
        certain = kept[1].codec == "utf-8"  # then there is no guess to hold on to, only a look to be spared
        same = self.status is not None and kept[0].untouched(self.status)
        return kept[1] if same or not certain else detect(self.data)

    def found(self) -> bool:
        """Take over what an earlier run of the checks found in the same bytes; False when there was none."""
        kept = self._examined()
        if kept is None or kept.wishes != self.wishes:
            return False
        self.encoding, self.splices = kept.encoding, list(kept.splices)
        return True

    def keep(self) -> None:
        """Keep what was found for the run that follows, if the file's status can prove that it is still so."""
        if self.status is not None and (seen := self.seen()).ctime_ns:
            kept = self.ctx.session.keep(EXAMINED)
            kept.clear()  # one at a time: it may be large
            kept[self.real] = Examined(seen, self.data, self.digest, self.wishes, self.encoding, self.splices)

    def forget(self) -> None:
        """Forget what an earlier run of the checks kept of the file."""
        self.ctx.session.keep(EXAMINED).pop(self.real, None)

    def _examined(self) -> Examined | None:
        if self.ctx.session.main.buffers is not None:
            return None  # the status of a file says nothing of a buffer
        kept = self.ctx.session.keep(EXAMINED).get(self.real)
        return kept if kept is not None and self.status is not None and kept.seen.untouched(self.status) else None


def _where(ctx: ToolContext, path: str) -> tuple[tuple[str, ...], str]:
    """Return the roots to open a path beneath, and where it leads.

    Found out once for a call: a link turned round between the judgement and the write does not move the write.
    """
    return readable_roots(ctx, path), real_path(path)


def _all_bytes(fd: int, size: int) -> bytes:
    """Read to the end of a file that has (or had) `size` bytes; asking for one more spares a second call."""
    data = os.read(fd, size + 1)
    if len(data) == size:
        return data
    parts = [data]
    while part := os.read(fd, 1024 * 1024):
        parts.append(part)
    return b"".join(parts)
