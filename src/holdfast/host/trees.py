"""Folders removed whole, whatever is in them."""

from __future__ import annotations

import os


def remove_tree(path: str) -> None:
    """Remove a file or a folder and all in it, also what its owner may not enter; never fails."""
    if os.path.islink(path) or not os.path.isdir(path):
        _unlink(path)
        return
    for folder, _, _ in os.walk(path):
        try:
            os.chmod(folder, 0o700)
        except OSError:
            continue
    import shutil

    shutil.rmtree(path, ignore_errors=True)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
