"""A secret under another name: a hard link is the same file, and its own name says nothing."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from surehand.core.secrets import is_secret, may_be_secret
from surehand.policy.paths import Roots

_MOST_NAMES = 50_000
_OTHERS_CODE = frozenset({".git", "node_modules", ".venv", "venv", "__pycache__"})


def secret_beside(path: str, roots: Roots) -> str:
    """Return the secret that a file with several names is too, "?" where nobody can say, nothing for other files."""
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return ""
    if not stat.S_ISREG(status.st_mode) or status.st_nlink < 2:
        return ""
    starts = dict.fromkeys((*roots.real, *(os.path.join(roots.home, name) for name in (".ssh", ".aws", ".gnupg"))))
    for count, entry in enumerate(entry for start in starts for entry in _entries(start)):
        if count > _MOST_NAMES:
            return "?"
        if may_be_secret(os.fsencode(entry.name)) and entry.inode() == status.st_ino and is_secret(entry.path):
            return entry.path
    return ""


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    waiting = [folder]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    yield entry
                    if entry.name not in _OTHERS_CODE and entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError:
            continue
