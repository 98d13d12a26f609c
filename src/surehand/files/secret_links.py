"""Hard links to secrets: a file whose own name is harmless, and which has a second name that is not.

A file with one name costs nothing. Of one with several it must be known whether it is among the secrets of the
workspace and the home. Those are looked for once; the kernel moves a file's ctime with every name it gets, so that the
answer holds for all files that have not changed since.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from surehand.core.errors import ToolFailure
from surehand.core.read_state import SETTLED_NS
from surehand.core.session import Kept
from surehand.files.protected_paths import Says, look

if TYPE_CHECKING:
    from surehand.core.session import Session

FOLDER_LIMIT: Final = 5_000
"""Files looked at in one folder of secrets."""
UNKNOWN: Final = "?"
"""Stands for the name of a secret where more files lie than were looked through."""


class SecretLinks:
    """Which files with several names are secrets; `roots` and `keeps_out` are asked for with every look."""

    def __init__(self, roots: Callable[[], Sequence[str]], keeps_out: Callable[[], Says]) -> None:
        self._roots = roots
        self._keeps_out = keeps_out
        self._names: dict[tuple[int, int], str] = {}
        self._whole = True
        self._looked_ns = -1

    def secret_name(self, status: os.stat_result, path: str) -> str:
        """Return the other name under which the file at `path` is kept from reading; UNKNOWN where nobody can say."""
        if status.st_nlink < 2 or not stat.S_ISREG(status.st_mode) or self._keeps_out()(path):
            return ""  # a name that is kept from reading itself has been judged by that
        if status.st_ctime_ns + SETTLED_NS >= self._looked_ns:
            self._look()
        return self._names.get((status.st_dev, status.st_ino), "" if self._whole else UNKNOWN)

    def holds_secrets(self, status: os.stat_result, path: str) -> bool:
        """Say whether the file that was opened at `path` is known to be a secret by another name."""
        return self.secret_name(status, path) not in ("", UNKNOWN)

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
        self._looked_ns = time.time_ns()
        found = look([*map(os.path.realpath, self._roots())], self._keeps_out())
        self._names = dict(_links_among(found.hidden))
        self._whole = found.whole


def _links_among(paths: Iterable[str]) -> Iterator[tuple[tuple[int, int], str]]:
    """Yield which files with several names lie at these paths or in these folders, with the name found."""
    for path in paths:
        for name in _files_at(path):
            try:
                status = os.lstat(name)
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
                yield (status.st_dev, status.st_ino), name


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


def _links_of(session: Session) -> SecretLinks:
    return SecretLinks(lambda: session.roots, lambda: session.keeps_out)


SECRET_LINKS: Final = Kept("secret links", make=_links_of)
