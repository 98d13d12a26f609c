"""Where a git repository begins and what its configuration says about ignored files; git itself is never run."""

from __future__ import annotations

import os

from surehand.core.frozen import frozen
from surehand.core.secrets import is_secret
from surehand.git.config import config_home, is_true, settings_of
from surehand.git.repositories import common_of, is_repository, repository_at


@frozen
class Repository:
    """The parts of a repository that say what is ignored."""

    top: bytes
    git_dir: bytes
    exclude: bytes
    """`.git/info/exclude`; it need not exist."""
    excludes_file: bytes | None
    """The user's own ignore file, `core.excludesFile` or git's default; it need not exist."""
    ignore_case: bool


def find_repository(folder: bytes) -> Repository | None:
    """Return the repository `folder` (absolute) lies in, or None.

    Where git finds none, the nearest folder with a `.git` folder in it counts, as in ripgrep: an unfinished
    repository still shows which rules are meant.
    """
    unfinished: bytes | None = None
    while True:
        git_dir = git_dir_of(folder)
        if git_dir is not None:
            return _repository(folder, git_dir)
        if unfinished is None and os.path.isdir(os.path.join(folder, b".git")):
            unfinished = folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return _repository(unfinished, os.path.join(unfinished, b".git")) if unfinished is not None else None
        folder = parent


def git_dir_of(folder: bytes) -> bytes | None:
    """Return the git folder when `folder` is the top of a repository or a worktree, by git's own test.

    A `.git` that points nowhere, as in a copied worktree, begins no repository: what lies around it counts.
    """
    place = repository_at(os.fsdecode(folder)) if os.path.lexists(os.path.join(folder, b".git")) else None
    if place is None or not is_repository(place) or place.git_dir == place.top:
        return None
    # By the name it was asked about where that is the folder itself: rules are told by the paths people use.
    return os.path.join(folder, b".git") if not place.pointer else os.fsencode(place.git_dir)


def _find_common_dir(git_dir: bytes) -> bytes:
    """Return the git folder that a worktree has in common with its repository; for any other one itself."""
    if not os.path.lexists(os.path.join(git_dir, b"commondir")):
        return git_dir
    return os.fsencode(common_of(os.fsdecode(git_dir)))


def user_excludes_file(settings: dict[bytes, bytes] | None = None) -> bytes | None:
    """Return the user's ignore file for places outside a repository, or for the `settings` of one."""
    settings = settings_of(None) if settings is None else settings
    chosen = settings.get(b"core.excludesfile")
    if chosen is not None:
        path = os.path.expanduser(chosen)
        return None if not path or is_secret(os.fsdecode(path)) else path
    return os.path.join(config_home(), b"git", b"ignore")


def _repository(top: bytes, git_dir: bytes) -> Repository:
    shared = _find_common_dir(git_dir)
    settings = settings_of(git_dir, shared)
    excludes_file = user_excludes_file(settings)
    return Repository(
        top=top,
        git_dir=git_dir,
        exclude=os.path.join(shared, b"info", b"exclude"),
        excludes_file=os.path.normpath(os.path.join(top, excludes_file)) if excludes_file else None,
        ignore_case=is_true(settings.get(b"core.ignorecase", b"")),
    )
