"""Worktrees for agents, made by Surehand's own git, which the caller runs in the sandbox."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from surehand.commands.session import SHELLS, Shells
from surehand.core.errors import ToolFailure
from surehand.core.frozen import frozen
from surehand.core.text import lazy_pattern
from surehand.git.config import OWN_VARIABLES, OWN_WORDS
from surehand.git.repositories import repositories_around
from surehand.sandbox.command import Command

if TYPE_CHECKING:
    from surehand.core.session import Session
    from surehand.sandbox.protocol import Runner

Git: TypeAlias = Callable[[str, tuple[str, ...]], Awaitable[tuple[int, str]]]
"""Runs git with these words in a folder; returns its exit code and what it printed."""

_BRANCH: Final = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,100}")


async def _must(git: Git, folder: str, *words: str) -> str:
    """Return what git printed; raise ToolFailure when it failed."""
    code, text = await git(folder, words)
    if code:
        raise ToolFailure(f"git {words[0]} failed: {text.strip()}", hint="Fix the repository, then try again.")
    return text


@frozen
class Worktree:
    """A worktree of a repository on a branch of its own."""

    path: str
    branch: str
    repository: str
    base: str
    uncommitted: int
    """Changes in the repository's own folder that the worktree does not have."""


def new_worktree_path() -> str:
    """Make a folder outside every repository for a worktree; return its path."""
    return os.path.realpath(tempfile.mkdtemp(prefix="surehand-worktree-"))


async def add_worktree(git: Git, folder: str, place: str, branch: str, agent_id: str) -> Worktree:
    """Make a worktree of the repository around `folder`, below `place`, on a new branch."""
    code, top = await git(folder, ("rev-parse", "--show-toplevel"))
    if code:
        raise ToolFailure(f"{folder} is not in a git repository", hint="Use mode sync, or run `git init` and commit.")
    code, base = await git(folder, ("rev-parse", "--verify", "HEAD"))
    if code:
        raise ToolFailure("the repository has no commit yet", hint="Commit once, then use mode worktree.")
    branch = branch or f"agent/{agent_id}"
    if not _BRANCH.fullmatch(branch) or (await git(folder, ("check-ref-format", "--branch", branch)))[0]:
        raise ToolFailure(f"{branch!r} cannot be the name of a branch", hint="Use letters, digits, '-', '_' and '/'.")
    if not (await git(folder, ("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}")))[0]:
        raise ToolFailure(f"the branch {branch} exists already", hint="Choose another branch_name, or leave it out.")
    path = os.path.join(place, os.path.basename(top.strip()) or "work")
    await _must(git, folder, "worktree", "add", "-b", branch, path, base.strip())
    _, status = await git(folder, ("status", "--porcelain"))
    return Worktree(path, branch, top.strip(), base.strip(), len(status.splitlines()))


async def add_detached(git: Git, folder: str, path: str, revision: str = "HEAD") -> str:
    """Make a detached worktree of a repository at a revision; return the commit."""
    code, commit = await git(folder, ("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"))
    if code:
        raise ToolFailure(f"{folder} has no revision {revision}", hint="Name an existing commit, branch or tag.")
    await _must(git, folder, "worktree", "add", "--detach", path, commit.strip())
    return commit.strip()


async def remove_detached(git: Git, folder: str, path: str) -> None:
    """Remove a detached worktree; one that git does not know is left to the caller."""
    await git(folder, ("worktree", "remove", "--force", path))


def _is_same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


async def is_clean(git: Git, folder: str) -> bool:
    """Tell whether a folder is the top of a repository with a commit and no uncommitted changes."""
    code, top = await git(folder, ("rev-parse", "--show-toplevel"))
    if code or not _is_same(top.strip(), folder):
        return False
    if (await git(folder, ("rev-parse", "--verify", "--quiet", "HEAD")))[0]:
        return False
    code, status = await git(folder, ("status", "--porcelain", "--untracked-files=normal"))
    return not code and not status.strip()


async def changes(git: Git, worktree: Worktree) -> tuple[list[str], int]:
    """Return the changes since the worktree's base (`M path`, `?? path`), and the number of commits."""
    status = await _must(git, worktree.path, "status", "--porcelain", "--untracked-files=all")
    words = ("diff", "--no-ext-diff", "--no-textconv", "--name-status", worktree.base, "HEAD")
    committed = await _must(git, worktree.path, *words)
    count = await _must(git, worktree.path, "rev-list", "--count", f"{worktree.base}..HEAD")
    lines = [line.replace("\t", " ") for line in committed.splitlines()] + status.splitlines()
    return [line.strip() for line in lines if line.strip()], int(count.strip() or 0)


async def remove_worktree(git: Git, worktree: Worktree) -> None:
    """Remove a worktree and its branch."""
    await _must(git, worktree.repository, "worktree", "remove", "--force", worktree.path)
    await _must(git, worktree.repository, "branch", "-D", worktree.branch)


# Surehand's own calls of git: in the sandbox of the session's commands, with everything disabled that can be.
#
# What a repository can make git run and nothing disables (filters) is asked about before, by the model of git.

_TIMEOUT_S: Final = 60.0
_MOST: Final = 4 << 20
"""Bytes of git's output that are kept."""


class OwnGit:
    """Runs git for a session; `also` are further folders in which it may write.

    It contacts no remote, unless `protocols` names those it may fetch by (`http:https`).
    """

    def __init__(
        self, session: Session, also: tuple[str, ...] = (), *, protocols: str = "none", timeout_s: float = _TIMEOUT_S
    ) -> None:
        self._protocols = protocols
        self._timeout_s = timeout_s
        self._shells: Shells = session.keep(SHELLS)
        places = repositories_around(session.workspace)
        self._writable = (*also, *dict.fromkeys(folder for place in places for folder in place.folders))
        self._launcher: Runner | None = None

    async def run(self, folder: str, words: tuple[str, ...]) -> tuple[int, str]:
        """Run git with these words in a folder; return its exit code and what it printed."""
        program = _program()
        if self._launcher is None:
            self._launcher = await self._shells.git_launcher(self._writable)
        inherited = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        output = bytearray()

        def take(data: bytes) -> None:
            output.extend(data[: _MOST - len(output)])

        fetching = [] if self._protocols == "none" else ["-c", "protocol.allow=always"]
        variables = {**inherited, **OWN_VARIABLES, "GIT_ALLOW_PROTOCOL": self._protocols}
        command = Command((program, *OWN_WORDS, *fetching, *words), folder, variables)
        ended = await self._launcher.run(command, take, take).finish(self._timeout_s)
        return ended.exit_code or ended.signal, output.decode("utf-8", "replace")

    async def close(self) -> None:
        """Close its launcher."""
        if self._launcher is not None:
            await self._launcher.close()


def _program() -> str:
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if os.access(path := os.path.join(folder, "git"), os.X_OK):
            return path
    raise ToolFailure("git cannot be run: it is not installed", hint="Install git, or work without it.")
