"""Tracked commits: commit secrets that git tracks, in a repository with hooks, without showing them to the hooks.

`git commit` runs the hooks, so it runs in a sandbox in which secrets are covered. The secrets it would commit are
staged before, by git without hooks in a sandbox in which they are not covered. git then finds them unchanged by size
and time. If the commit does not happen, the index is restored.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Iterable, Sequence

from surehand.commands.session import Shells
from surehand.git.repositories import TrackedFile, read_tracked, repositories_around
from surehand.git.tracked_secrets import find_staged, prints_nothing, tracked_secrets
from surehand.sandbox.command import Command

_TIMEOUT_S = 60.0
_WITHOUT_HOOKS = ("git", "-c", "core.hooksPath=/dev/null")


class Staging:
    """Secrets staged for a line of git commands, and how to restore the index."""

    def __init__(self, shells: Shells, cwd: str, before: dict[str, TrackedFile]) -> None:
        self._shells = shells
        self._cwd = cwd
        self._before = before
        """Index entries of files that only the commit itself would stage (`commit -a`)."""

    @classmethod
    async def make(cls, shells: Shells, commands: Sequence[Sequence[str]], cwd: str) -> Staging | None:
        """Stage the secrets that a line of git commands would commit; None if there are none, or no hook sees them."""
        session = shells.session
        profile = (await shells.launcher()).profile
        secrets = tracked_secrets(session.workspace, profile.masked) if profile.private_view else ()
        staged: dict[str, bool] = find_staged(commands, cwd, secrets) if secrets else {}
        if not staged or prints_nothing(commands, session.workspace, session.roots):
            return None
        if not prints_nothing([("git", "add", "-u")], session.workspace, session.roots):
            return None  # something of the repository, such as a filter, would run all the same
        if (left_s := _find_time_to_wait(staged)) > 0:
            await asyncio.sleep(left_s)
        entries = {
            os.path.join(repository.top, each.path): each
            for repository in repositories_around(session.workspace)
            for each in read_tracked(repository.git_dir)
        }
        before = {path: entries[path] for path, added in staged.items() if not added and path in entries}
        staging = cls(shells, cwd, before)
        await staging._run("add", "-u", "--", *staged)
        return staging

    async def restore_index(self) -> None:
        """Restore index entries that were not committed, except those that the line itself has added."""
        for path, entry in self._before.items():
            if await self._run("diff", "--cached", "--quiet", "--", path):
                await self._run("update-index", "--cacheinfo", f"{entry.mode:o},{entry.object},{entry.path}")

    async def _run(self, *words: str) -> int:
        launcher = await self._shells.launcher_for([("git", "add", "-u")])
        command = Command(("/usr/bin/env", *_WITHOUT_HOOKS, *words), self._cwd, self._shells.environment("git"))
        ended = await launcher.run(command, _drop, _drop).finish(_TIMEOUT_S)
        return ended.exit_code or ended.signal


def _drop(data: bytes) -> None:
    """Discard git's output: the line itself prints it again."""


def _find_time_to_wait(paths: Iterable[str]) -> float:
    """Return how many seconds to wait so that the index becomes newer than the files.

    git reads a file that is not older than its index, and would read its cover.
    """
    newest = max((os.lstat(path).st_mtime for path in paths if os.path.lexists(path)), default=0.0)
    left_s = math.floor(newest) + 1 - time.time()
    return left_s if left_s <= 1 else 0
