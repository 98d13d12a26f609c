"""Make a workspace for every attempt at a task: a git worktree, a copy of a folder, an unpacked archive or a clone.

All tasks of one source start from the same contents, also when a batch is resumed: the snapshot of a source is taken
once and saved, its pieces are stored once. git runs in the sandbox with hooks off, and not at all in repositories whose
settings would make it run programs.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import tarfile
import tempfile
import zipfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from surehand.batch.tasks import Task, WorkspaceSpec
from surehand.commands import worktrees
from surehand.commands.dry_run_copies import Limits, TreeTooLarge, copy_tree
from surehand.commands.worktrees import OwnGit
from surehand.core.errors import ToolFailure
from surehand.core.frozen import frozen, replace_values
from surehand.core.secrets import is_secret
from surehand.files.trees import remove_tree
from surehand.git.model import find_risks
from surehand.git.repositories import repository_at
from surehand.state import locations
from surehand.state.files import write_private
from surehand.wiring import is_folder
from surehand.workspaces.snapshot import Pieces, Snapshot, restore, take_snapshot, with_statuses

if TYPE_CHECKING:
    from surehand.app import Surehand
    from surehand.core.settings import Settings


COPY_LIMITS: Final = Limits(files=500_000, bytes=16 << 30)
_FETCH_S: Final = 1800.0


@frozen
class OwnWorkspace:
    """The workspace of one attempt, with the snapshot it started from."""

    folder: str
    base: Snapshot
    repository: str = ""
    """The repository it is a worktree of."""


class Workspaces:
    """Makes and removes the workspaces of a batch, all in one folder."""

    def __init__(self, folder: str, home: str, settings: Settings, app_class: type[Surehand]) -> None:
        self.folder = os.path.realpath(locations.private_dir(folder))
        self.home = home
        """The directory that relative paths in tasks start from."""
        self.pieces = Pieces(os.path.join(self.folder, "pieces"))
        self._settings = settings
        self._app_class = app_class
        self._tasks = locations.private_dir(os.path.join(self.folder, "tasks"))
        self._sources = locations.private_dir(os.path.join(self.folder, "sources"))
        self._bases: dict[str, asyncio.Task[Snapshot]] = {}
        self._clean: dict[str, bool] = {}
        self._gits: dict[str, OwnGit] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._stack = AsyncExitStack()

    async def close(self, *, remove: bool) -> None:
        """Close the git sessions; with `remove`, delete everything but kept workspaces."""
        await self._stack.aclose()
        if remove and not os.listdir(self._tasks):
            await asyncio.to_thread(remove_tree, self.folder)
        elif remove:  # kept workspaces may be worktrees of our clones, which stay
            await asyncio.to_thread(remove_tree, self.pieces.folder)
            await asyncio.to_thread(remove_tree, self._sources)

    async def clear_leftovers(self) -> None:
        """Delete the workspaces of attempts that a crash interrupted."""
        for folder in self._list_leftovers():
            await self._remove(folder, _repository_of(os.path.join(folder, "work")))

    def _list_leftovers(self) -> list[str]:
        folders = (os.path.join(self._tasks, name) for name in sorted(os.listdir(self._tasks)))
        return [folder for folder in folders if not os.path.exists(os.path.join(folder, "kept"))]

    async def make(self, task: Task, attempt: int) -> OwnWorkspace:
        """Return a new workspace for an attempt at a task; raise ToolFailure if it cannot be made."""
        making = asyncio.ensure_future(self._make_whole(task, attempt))
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            await asyncio.wait({making})  # a copy cannot be interrupted; it is deleted once complete
            if not making.cancelled() and making.exception() is None:
                await self.remove(making.result())
            raise

    async def _make_whole(self, task: Task, attempt: int) -> OwnWorkspace:
        made = await self._make(task, attempt)
        return replace_values(made, base=await asyncio.to_thread(with_statuses, made.base, made.folder))

    async def _make(self, task: Task, attempt: int) -> OwnWorkspace:
        folder = tempfile.mkdtemp(prefix=f"{task.id}.{attempt}-", dir=self._tasks)
        work, source = os.path.join(folder, "work"), task.source
        try:
            if source.archive is not None:
                return await self._from_archive(self._locate(source.archive), work)
            repository = await self._find_repository(source)
            if repository is not None:
                return await self._from_repository(repository, work, source.revision or "HEAD")
            return await self._from_folder(self._locate(source.path or source.git or "."), work)
        except BaseException as problem:
            await self._remove(folder, _repository_of(work))
            if not isinstance(problem, OSError):
                raise
            where = problem.filename or work
            raise ToolFailure(f"the workspace cannot be created: {where}: {problem.strerror}") from problem

    async def snapshot_of(self, task: Task) -> Snapshot:
        """Return the snapshot a remote task starts from; its contents are in `pieces`."""
        source = task.source
        if source.archive is None and await self._find_repository(source) is None:
            folder = self._locate(source.path or source.git or ".")
            return await self._base(folder, lambda: self._snapshot(folder))
        made = await self._make(task, 0)
        await self.remove(made)
        return made.base

    async def remove(self, workspace: OwnWorkspace) -> None:
        """Delete a workspace and the state directory of its sessions."""
        await self._remove(os.path.dirname(workspace.folder), workspace.repository)

    def keep(self, workspace: OwnWorkspace) -> None:
        """Mark a workspace to be kept after the batch."""
        write_private(os.path.join(os.path.dirname(workspace.folder), "kept"), "")

    async def _remove(self, folder: str, repository: str) -> None:
        work = os.path.join(folder, "work")
        if repository:
            async with self._lock(repository):
                await worktrees.remove_detached((await self._git(repository)).run, repository, work)
        await asyncio.to_thread(remove_tree, locations.workspace_state(work))
        await asyncio.to_thread(remove_tree, folder)

    def _locate(self, path: str) -> str:
        return os.path.realpath(os.path.join(self.home, os.path.expanduser(path)))

    # -- git ------------------------------------------------------------------------------------------------------

    async def _find_repository(self, source: WorkspaceSpec) -> str | None:
        """Return the repository to add a worktree to; None if the folder is copied instead."""
        if source.git is not None and "://" in source.git:
            return await self._clone(source.git)
        folder = self._locate(source.path or source.git or ".")
        if not is_folder(folder):
            raise ToolFailure(f"the workspace {folder} is not a folder", hint="Name a folder, an archive or a URL.")
        wanted = source.git is not None or source.revision is not None or source.isolation == "worktree"
        if source.isolation == "copy" and not wanted:
            return None
        if repository_at(folder) is None:
            if wanted:
                raise ToolFailure(f"{folder} is not the top of a git repository")
            return None
        if asks := await asyncio.to_thread(find_risks, folder):
            if wanted:
                raise ToolFailure(
                    f"git is not run on {folder}, where it may run something: {', '.join(asks[:5])}",
                    hint="Remove that from the repository's settings, or give the folder without a revision.",
                )
            return None
        if wanted:
            return folder
        async with self._lock(folder):
            if (
                folder not in self._clean
            ):  # asked once: a diff that is applied during the batch must not change the answer
                self._clean[folder] = await worktrees.is_clean((await self._git(folder)).run, folder)
        return folder if self._clean[folder] else None

    async def _clone(self, address: str) -> str:
        """Return a bare clone of a remote repository, made once; the sandbox allows the network for it, but no keys."""
        clones = locations.private_dir(os.path.join(self.folder, "clones"))
        target = os.path.join(clones, hashlib.sha256(address.encode()).hexdigest()[:16])
        async with self._lock(target):
            if is_folder(target):
                return target
            settings = self._settings.replace_values(sandbox=self._settings.sandbox.replace_values(network=True))
            app = await self._stack.enter_async_context(self._plain_app(clones, settings))
            git = OwnGit(app.session, (clones,), protocols="http:https", timeout_s=_FETCH_S)
            try:
                code, said = await git.run(clones, ("clone", "--bare", "--quiet", "--", address, f"{target}.new"))
            finally:
                await git.close()
            if code:
                remove_tree(f"{target}.new")
                raise ToolFailure(
                    f"{address} cannot be cloned: {said.strip()[-500:]}",
                    hint="Clone a repository that needs a login yourself, and name the folder.",
                )
            os.rename(f"{target}.new", target)
        return target

    async def _from_repository(self, repository: str, work: str, revision: str) -> OwnWorkspace:
        async with self._lock(repository):
            commit = await worktrees.add_detached((await self._git(repository)).run, repository, work, revision)
        base = await self._base(f"{repository}@{commit}", lambda: self._snapshot(work))
        return OwnWorkspace(work, base, repository)

    def _plain_app(self, folder: str, settings: Settings) -> Surehand:
        """Return an application that only runs git in a folder and saves no state."""
        return self._app_class(folder, settings=settings, keep_state=False, plugins=False, interactive=False)

    async def _git(self, repository: str) -> OwnGit:
        if repository not in self._gits:
            app = await self._stack.enter_async_context(self._plain_app(repository, self._settings))
            git = self._gits[repository] = OwnGit(app.session, (self._tasks,), timeout_s=_FETCH_S)
            self._stack.push_async_callback(git.close)
        return self._gits[repository]

    def _lock(self, name: str) -> asyncio.Lock:
        """Return the lock for adding and removing worktrees, which git cannot do concurrently."""
        return self._locks.setdefault(name, asyncio.Lock())

    # -- copies ---------------------------------------------------------------------------------------------------

    async def _from_folder(self, source: str, work: str) -> OwnWorkspace:
        base = await self._base(source, lambda: self._snapshot(source))

        def leaves_out(path: str, is_folder: bool) -> bool:
            return path in base.entries or is_secret(os.path.join(source, path) + ("/" if is_folder else ""))

        def copy() -> None:
            # Ignored files (installed packages, caches) are copied as they are now, all others from the snapshot.
            copy_tree(source, work, COPY_LIMITS, lambda: False, leaves_out)
            restore(base, work, self.pieces)

        try:
            await asyncio.to_thread(copy)
        except TreeTooLarge as problem:
            raise ToolFailure(f"{source} cannot be copied: it holds {problem}") from None
        return OwnWorkspace(work, base)

    async def _from_archive(self, archive: str, work: str) -> OwnWorkspace:
        os.mkdir(work, 0o700)
        status = os.stat(archive)
        await asyncio.to_thread(unpack, archive, work)
        name = f"{archive}@{status.st_ino}.{status.st_mtime_ns}.{status.st_size}"  # a new archive is a new source
        return OwnWorkspace(work, await self._base(name, lambda: self._snapshot(work)))

    async def _snapshot(self, folder: str) -> Snapshot:
        return await asyncio.to_thread(take_snapshot, folder, self.pieces)

    async def _base(self, name: str, take: Callable[[], Awaitable[Snapshot]]) -> Snapshot:
        """Return the snapshot that all tasks of a source start from, taken once and saved."""
        if name not in self._bases:
            self._bases[name] = asyncio.ensure_future(self._load_or_take(name, take))
        return await asyncio.shield(self._bases[name])

    async def _load_or_take(self, name: str, take: Callable[[], Awaitable[Snapshot]]) -> Snapshot:
        path = os.path.join(self._sources, hashlib.sha256(os.fsencode(name)).hexdigest()[:16] + ".json")
        if (known := _load(path)) is not None:
            return known
        snapshot = await take()
        write_private(path, json.dumps(snapshot.to_dict()))
        return snapshot


def _load(path: str) -> Snapshot | None:
    try:
        with open(path, encoding="utf-8") as file:
            return Snapshot.from_dict(json.load(file))
    except FileNotFoundError:
        return None


def _repository_of(work: str) -> str:
    """Return the repository that a folder is a linked worktree of, "" if it is none."""
    repository = repository_at(work)
    common = repository.common if repository is not None and repository.is_linked else ""
    return os.path.dirname(common) if common.endswith("/.git") else common


def unpack(archive: str, folder: str) -> None:
    """Unpack an archive into a folder; raise ToolFailure if it is invalid, too large, or has paths outside."""
    try:
        if zipfile.is_zipfile(archive):
            _unpack_zip(archive, folder)
        else:
            _unpack_tar(archive, folder)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, ValueError) as problem:
        raise ToolFailure(f"{archive} cannot be unpacked: {problem}") from None


def _unpack_tar(archive: str, folder: str) -> None:
    if not hasattr(tarfile, "data_filter"):  # keeps members inside the folder; added in 3.11.4
        raise ToolFailure(f"{archive} cannot be unpacked safely by this Python", hint="Use 3.11.4 or later.")
    count = size = 0
    with tarfile.open(archive) as tar:
        for member in tar:
            count, size = count + 1, size + member.size
            _check_room(archive, count, size)
            tar.extract(member, folder, filter="data")


def _unpack_zip(archive: str, folder: str) -> None:
    with zipfile.ZipFile(archive) as packed:
        members = packed.infolist()
        _check_room(archive, len(members), sum(member.file_size for member in members))
        for member in members:
            if os.path.isabs(member.filename) or ".." in member.filename.split("/"):
                raise ToolFailure(f"{archive} cannot be unpacked: {member.filename!r} leads out of it")
            path = packed.extract(member, folder)
            mode = member.external_attr >> 16 & 0o777
            if mode and os.path.isfile(path):
                os.chmod(path, mode | 0o600)


def _check_room(archive: str, count: int, size: int) -> None:
    if count > COPY_LIMITS.files or size > COPY_LIMITS.bytes:
        raise ToolFailure(f"{archive} cannot be unpacked: it contains too many files, or too much data")
