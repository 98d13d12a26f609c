"""Instructions of a project: `AGENTS.md` and `CLAUDE.md` of the workspace and the folders above it, for the model.

Whoever fills a folder writes them, so until the folder is trusted they are given as what they are: text of a stranger,
between marks. A file is taken only if it is the user's own (or the system's), plain text, and no link that leads out of
its folder: a link to a secret would hand that to the model.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import Final

from surehand.core.frozen import frozen
from surehand.core.secrets import is_secret

NAMES: Final = ("AGENTS.md", "CLAUDE.md")
FILE_BYTES: Final = 32_000
"""Of each file, the beginning that is given."""
ALL_BYTES: Final = 64_000
"""Of all together; the nearest to the workspace go first."""
MOST_PARENTS: Final = 20


@frozen
class Instructions:
    """One file of instructions."""

    path: str
    text: str
    size: int
    """How many bytes it has; more than its text where that was truncated."""

    @property
    def truncated(self) -> bool:
        """Whether only its beginning is given."""
        return self.size > len(self.text.encode())


def find_instructions(workspace: str) -> tuple[list[Instructions], list[str]]:
    """Return the files that count in a workspace, the outermost first, and why others were left out."""
    found: list[Instructions] = []
    problems: list[str] = []
    room = ALL_BYTES
    for folder in _folders(workspace):
        here: list[Instructions] = []
        for name in NAMES:
            path = os.path.join(folder, name)
            if not os.path.lexists(path):
                continue
            try:
                one = _read(path, min(FILE_BYTES, room))
            except (OSError, ValueError) as problem:
                problems.append(f"{path}: {getattr(problem, 'strerror', None) or problem}")
                continue
            if one.text.strip() and not any(one.text == other.text for other in (*here, *found)):
                here.append(one)
                room -= len(one.text.encode())
        found += reversed(here)
    return list(reversed(found)), problems


def _folders(workspace: str) -> Iterator[str]:
    """Yield the workspace and the folders above it, up to the user's home or the first that is not theirs."""
    folder = os.path.realpath(workspace)
    home = os.path.realpath(os.path.expanduser("~"))
    yield folder
    for _ in range(MOST_PARENTS):
        parent = os.path.dirname(folder)
        if parent == folder or folder == home or os.stat(parent).st_uid != os.getuid():
            return
        yield parent
        folder = parent


def _read(path: str, limit: int) -> Instructions:
    real = os.path.realpath(path)
    if os.path.dirname(real) != os.path.dirname(path) or is_secret(real):
        raise ValueError("it is a link that leads elsewhere")
    if limit <= 0:
        raise ValueError(f"the others fill the {ALL_BYTES:,} bytes there are for instructions")
    descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is no plain file")
        if status.st_uid not in (os.getuid(), 0):
            raise ValueError("it belongs to another user")
        data = file.read(limit)
    if b"\0" in data:
        raise ValueError("it is no text")
    return Instructions(path, data.decode("utf-8", "ignore" if status.st_size > limit else "replace"), status.st_size)
