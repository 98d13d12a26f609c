"""Commits of secrets that git tracks, in a repository with hooks: the hooks see none of them, the commit has them all.

Hooks run within `git commit`, so that this runs where secrets are covered. What it would take in of them is taken in
before, where they are not, by git without hooks. git then finds size and time as they stand in its index and asks for
no more. A commit that does not come about leaves the index as git would have.
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
    """What was taken into the index for a line of git commands, and how to take it back."""

    def __init__(self, shells: Shells, cwd: str, before: dict[str, TrackedFile]) -> None:
        self._shells = shells
        self._cwd = cwd
        self._before = before
        """Entries of the files that a commit itself takes in: without the commit they stay as they were."""

    @classmethod
    async def make(cls, shells: Shells, commands: Sequence[Sequence[str]], cwd: str) -> Staging | None:
        """Take in what a line would commit of secrets beside hooks; None where it commits none, or needs no help."""
        session = shells.session
        profile = (await shells.launcher()).profile
        secrets = tracked_secrets(session.workspace, profile.masked) if profile.private_view else ()
        staged: dict[str, bool] = find_staged(commands, cwd, secrets) if secrets else {}
        if not staged or prints_nothing(commands, session.workspace, session.roots):
            return None
        if not prints_nothing([("git", "add", "-u")], session.workspace, session.roots):
            return None  # something of the repository's would run all the same
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
        """Take back what is in the index and was not committed, but for what the line itself had added."""
        for path, entry in self._before.items():
            if await self._run("diff", "--cached", "--quiet", "--", path):
                await self._run("update-index", "--cacheinfo", f"{entry.mode:o},{entry.object},{entry.path}")

    async def _run(self, *words: str) -> int:
        launcher = await self._shells.launcher_for([("git", "add", "-u")])
        command = Command(("/usr/bin/env", *_WITHOUT_HOOKS, *words), self._cwd, self._shells.environment("git"))
        ended = await launcher.run(command, _drop, _drop).finish(_TIMEOUT_S)
        return ended.exit_code or ended.signal


def _drop(data: bytes) -> None:
    """Nothing git says here is shown: the line itself says it again."""


def _find_time_to_wait(paths: Iterable[str]) -> float:
    """Return in how many seconds an index that is written then is younger than files that were written just now.

    git looks into a file whose time is not before that of its index, and there would find what covers it.
    """
    newest = max((os.lstat(path).st_mtime for path in paths if os.path.lexists(path)), default=0.0)
    left_s = math.floor(newest) + 1 - time.time()
    return left_s if left_s <= 1 else 0
