"""Where a git repository begins and what its configuration says about ignored files; git itself is never run."""

from __future__ import annotations

import os
import re
import stat
from typing import Final

from surehand.core.frozen import frozen
from surehand.core.secrets import is_secret
from surehand.host.git_config import config_home, is_true, read_plain, settings_of

_HEAD: Final = re.compile(rb"ref:\s*refs/|[0-9a-fA-F]{40}")
"""How the file begins that says what is checked out."""


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
    git = os.path.join(folder, b".git")
    try:
        is_folder = stat.S_ISDIR(os.stat(git).st_mode)
    except OSError:
        return None
    if not is_folder:
        pointer = read_plain(git, 4096) or b""
        if not pointer.startswith(b"gitdir:"):
            return None
        git = os.path.normpath(os.path.join(folder, pointer[7:].strip()))
    shared = _shared(git)
    parts = (os.path.join(shared, part) for part in (b"objects", b"refs"))
    return git if _has_head(git) and all(os.access(part, os.X_OK) for part in parts) else None


def _has_head(git_dir: bytes) -> bool:
    head = os.path.join(git_dir, b"HEAD")
    try:
        return os.readlink(head).startswith(b"refs/")
    except OSError:  # it is no link, as is usual
        return _HEAD.match(read_plain(head, 4096) or b"") is not None


def _shared(git_dir: bytes) -> bytes:
    """Return the git folder that a worktree has in common with its repository; for any other one itself."""
    common = (read_plain(os.path.join(git_dir, b"commondir"), 4096) or b"").strip()
    return os.path.normpath(os.path.join(git_dir, common)) if common else git_dir


def user_excludes_file(settings: dict[bytes, bytes] | None = None) -> bytes | None:
    """Return the user's ignore file for places outside a repository, or for the `settings` of one."""
    settings = settings_of(None) if settings is None else settings
    chosen = settings.get(b"core.excludesfile")
    if chosen is not None:
        path = os.path.expanduser(chosen)
        return None if not path or is_secret(os.fsdecode(path)) else path
    return os.path.join(config_home(), b"git", b"ignore")


def _repository(top: bytes, git_dir: bytes) -> Repository:
    shared = _shared(git_dir)
    settings = settings_of(git_dir, shared)
    excludes_file = user_excludes_file(settings)
    return Repository(
        top=top,
        git_dir=git_dir,
        exclude=os.path.join(shared, b"info", b"exclude"),
        excludes_file=os.path.normpath(os.path.join(top, excludes_file)) if excludes_file else None,
        ignore_case=is_true(settings.get(b"core.ignorecase", b"")),
    )
