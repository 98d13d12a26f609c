"""Hard links to secrets: a file whose own name is harmless, and which has a second name that is not.

A file with one name costs nothing. Of one with several it must be known whether it is among the secrets of the
workspace and the home. Those are looked for once; the kernel moves a file's ctime with every name it gets, so that the
answer holds for all files that have not changed since.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from surehand.core.errors import ToolFailure
from surehand.core.read_state import SETTLED_NS
from surehand.core.session import Kept

if TYPE_CHECKING:
    from surehand.core.session import Session

FOLDER_LIMIT: Final = 5_000
"""Files looked at in one folder of secrets."""


class SecretLinks:
    """Which files with several names are secrets of a session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._marks: set[tuple[int, int]] = set()
        self._looked_ns = -1

    def holds_secrets(self, status: os.stat_result, path: str) -> bool:
        """Say whether the file that was opened at `path` has another name under which it is kept from reading."""
        if status.st_nlink < 2 or not stat.S_ISREG(status.st_mode) or self._session.keeps_out(path):
            return False  # a name that is kept from reading itself has been judged by that
        if status.st_ctime_ns + SETTLED_NS >= self._looked_ns:
            self._look()
        return (status.st_dev, status.st_ino) in self._marks

    def refuse(self, status: os.stat_result, path: str) -> None:
        """Raise ToolFailure for a hard link to a secret."""
        if not self.holds_secrets(status, path):
            return
        raise ToolFailure(
            f"{path} was not opened: it is a hard link to a file that holds secrets",
            code="permission_denied",
            hint="Leave it, or ask the user.",
            details={"path": path, "reason": "secret_link"},
        )

    def _look(self) -> None:
        from surehand.files.protected_paths import look

        self._looked_ns = time.time_ns()
        found = look([*map(os.path.realpath, self._session.roots)], self._session.keeps_out).hidden
        self._marks = set(_marks_of(found))


def _marks_of(paths: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Yield which files with several names lie at these paths or in these folders."""
    for path in paths:
        for name in _files_at(path):
            try:
                status = os.lstat(name)
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
                yield status.st_dev, status.st_ino


def _files_at(path: str) -> Iterator[str]:
    if not os.path.isdir(path):
        yield path
        return
    seen = 0
    for folder, _, names in os.walk(path):
        for name in names:
            yield os.path.join(folder, name)
        seen += len(names)
        if seen > FOLDER_LIMIT:
            return


SECRET_LINKS: Final = Kept("secret links", make=SecretLinks)
