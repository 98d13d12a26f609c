"""The model of what a repository's own files make git do, and whether that is harmless: the one place that knows.

The user's own settings (`~/.gitconfig`, the system's, the environment's) are the user's; a repository's may be
anybody's. What is not known to be harmless is named, and whoever wanted to run git asks first.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Final

from surehand.core.secrets import is_secret
from surehand.git.config import entries, read_plain
from surehand.git.repositories import Repository, inner_repositories, repositories_around, too_many
from surehand.git.settings import is_harmless

_CONFIG: Final = 1 << 20
_INCLUDES: Final = 10
CONFIGS: Final = ("config", "config.worktree")
_PARTS: Final = (
    "HEAD", "index", "objects", "refs", "packed-refs", "info", "info/attributes", "info/exclude", "info/grafts",
    "logs", "shallow", "commondir", "config", "config.worktree",
)  # fmt: skip
"""What of a folder of git may not be a link out of it."""


def what_asks(folder: str, roots: Iterable[str] = ()) -> tuple[str, ...]:
    """Return what in the repository around `folder` is not known to be harmless to a command that only looks.

    `roots` are folders that may be read anyway.
    """
    found: dict[str, None] = {}
    for repository in repositories_around(folder):
        found.update(dict.fromkeys(_Look(repository, roots, reads=True).run()))
        for inner in inner_repositories(repository):
            found.update(dict.fromkeys(_Look(inner, (*roots, repository.top, *repository.folders), reads=False).run()))
        if too_many(repository):
            found["more repositories inside than are looked at"] = None
    return tuple(found)


def what_runs(repository: Repository) -> tuple[str, ...]:
    """Return what in one repository is not known to be harmless to any git command of the user's."""
    return tuple(dict.fromkeys(_Look(repository, (), reads=False).run()))


class _Look:
    """One look at one repository."""

    def __init__(self, repository: Repository, roots: Iterable[str], *, reads: bool) -> None:
        self._place = repository
        self._reads = reads
        """Whether git is run on this very repository, so that what switches its hooks off counts for it."""
        self._around = (repository.top, *(os.path.realpath(root) for root in roots))
        self._own = (*self._around, *repository.folders)

    def run(self) -> Iterator[str]:
        """Yield the names of what is not known to be harmless."""
        repository = self._place
        if repository.pointer and not _lies_in(repository.git_dir, self._around) and not repository.is_linked:
            yield f".git, which leads to {repository.git_dir}"
        for folder in repository.folders:
            yield from self._links(folder)
        yield from self._alternates()
        for folder in repository.folders:
            for name in CONFIGS:
                yield from self._settings(os.path.join(folder, name), name)
        if not self._reads:
            yield from self._hook()

    def _is_own(self, path: str) -> bool:
        return _lies_in(path, self._own)

    def _links(self, folder: str) -> Iterator[str]:
        for name in _PARTS:
            path = os.path.join(folder, name)
            if os.path.islink(path) and not self._is_own(os.path.realpath(path)):
                yield f"{name}, which is a link to {os.path.realpath(path)}"

    def _alternates(self) -> Iterator[str]:
        objects = os.path.join(self._place.common, "objects")
        path = f"{objects}/info/alternates"
        data = read_plain(os.fsencode(path), _CONFIG)
        if data is None and os.path.lexists(path):
            yield "objects/info/alternates, which cannot be read"
        for line in (data or b"").split(b"\n"):
            repository = os.path.realpath(os.path.join(objects, os.fsdecode(line.replace(b"\0", b""))))
            if line.startswith(b'"') or (line and not line.startswith(b"#") and not self._is_own(repository)):
                yield f"objects/info/alternates, which leads to {repository}"

    def _hook(self) -> Iterator[str]:
        """Yield the one hook that a look runs, where nothing switches it off."""
        hook = os.path.join(self._place.common, "hooks", "post-index-change")
        if os.access(hook, os.X_OK):
            yield "hooks/post-index-change"

    def _settings(self, path: str, shown: str, depth: int = 0) -> Iterator[str]:
        data = read_plain(os.fsencode(path), _CONFIG)
        if data is None:
            if os.path.lexists(path):
                yield f"{shown}, which cannot be read"
            return
        found, whole = entries(data)
        if not whole:
            yield f"{shown}, which cannot be read"
        for each in found:
            key, value = os.fsdecode(each.key), os.fsdecode(each.value)
            if key == "include.path" or (key.startswith("includeif.") and key.endswith(".path")):
                yield from self._look_into_included(path, key, value, depth)
            elif key == "core.worktree":
                if not self._leads_back(value):
                    yield f"core.worktree, which leads to {value}"
            elif not is_harmless(key, value, inside=self._holds, reads=self._reads):
                yield key

    def _look_into_included(self, path: str, key: str, value: str, depth: int) -> Iterator[str]:
        """Look into a file that is included, whatever its condition says now; only one of the repository's own."""
        named = os.path.realpath(os.path.join(os.path.dirname(path), os.path.expanduser(value)))
        if depth >= _INCLUDES or not self._holds(named):
            yield key
        else:
            yield from self._settings(named, value, depth + 1)

    def _leads_back(self, value: str) -> bool:
        """Tell whether `core.worktree` names the folder from which git came here, as for a submodule."""
        repository = os.path.realpath(os.path.join(self._place.git_dir, value))
        if repository == self._place.top or repository == os.path.dirname(self._place.git_dir):
            return True
        if not self._reads:  # inside another one, whose files may be read
            return self._is_own(repository)
        from surehand.git.repositories import repository_at

        there = repository_at(repository)
        return there is not None and there.git_dir == self._place.git_dir and self._is_own(repository)

    def _holds(self, value: str) -> bool:
        """Tell whether a file that a setting names lies in the repository, and is no secret."""
        path = os.path.realpath(os.path.join(self._place.top, os.path.expanduser(value)))
        return self._is_own(path) and not is_secret(path)


def _lies_in(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)
