"""Running git ourselves, with everything a repository could make it run switched off; and worktrees for agents."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from typing import Final

from surehand.core.errors import ToolFailure
from surehand.core.frozen import frozen

# What a repository's own configuration could start: monitors, hooks, diff drivers, pagers, editors, signing programs.
_SAFE: Final = (
    "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "diff.external=", "-c", "core.pager=cat",
    "-c", "core.editor=true", "-c", "commit.gpgSign=false", "-c", "core.attributesFile=/dev/null", "-c", "gc.auto=0",
)  # fmt: skip
_ENVIRONMENT: Final = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
_TIMEOUT_S: Final = 60.0
_BRANCH: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,100}")


async def git(*words: str, cwd: str, check: bool = True) -> tuple[int, str]:
    """Run git and return (exit code, output); raise ToolFailure when it fails and `check` is set."""
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LANG") if name in os.environ}
    try:
        process = await asyncio.create_subprocess_exec(
            "git",
            *_SAFE,
            *words,
            cwd=cwd,
            env={**inherited, **_ENVIRONMENT},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as problem:
        raise ToolFailure(f"git cannot be run: {problem.strerror}", hint="Install git, or do without it.") from problem
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            output, _ = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    text = output.decode("utf-8", "replace")
    if check and process.returncode:
        raise ToolFailure(f"git {words[0]} failed: {text.strip()}", hint="Mend the repository, then try again.")
    return process.returncode or 0, text


@frozen
class Worktree:
    """A worktree of a repository on a branch of its own."""

    path: str
    branch: str
    repository: str
    base: str
    uncommitted: int
    """Changes in the repository's own folder that the worktree does not have."""


async def add_worktree(folder: str, branch: str, agent_id: str) -> Worktree:
    """Make a worktree of the repository that holds `folder`, on a new branch; the repository's own files stay."""
    code, top = await git("rev-parse", "--show-toplevel", cwd=folder, check=False)
    if code:
        raise ToolFailure(f"{folder} is not in a git repository", hint="Use mode sync, or run `git init` and commit.")
    code, base = await git("rev-parse", "--verify", "HEAD", cwd=folder, check=False)
    if code:
        raise ToolFailure("the repository has no commit yet", hint="Commit once, then use mode worktree.")
    branch = branch or f"agent/{agent_id}"
    if not _BRANCH.fullmatch(branch) or (await git("check-ref-format", "--branch", branch, cwd=folder, check=False))[0]:
        raise ToolFailure(f"{branch!r} cannot be the name of a branch", hint="Use letters, digits, '-', '_' and '/'.")
    if not (await git("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}", cwd=folder, check=False))[0]:
        raise ToolFailure(f"the branch {branch} exists already", hint="Choose another branch_name, or leave it out.")
    place = _new_place(os.path.basename(top.strip()))
    await git("worktree", "add", "-b", branch, place, base.strip(), cwd=folder)
    _, status = await git("status", "--porcelain", cwd=folder, check=False)
    return Worktree(place, branch, top.strip(), base.strip(), len(status.splitlines()))


def _new_place(name: str) -> str:
    return os.path.join(os.path.realpath(tempfile.mkdtemp(prefix="surehand-worktree-")), name or "work")


async def changes(worktree: Worktree) -> tuple[list[str], int]:
    """Return what differs from where the branch began (`M path`, `?? path`), and how many commits were made."""
    _, status = await git("status", "--porcelain", "--untracked-files=all", cwd=worktree.path)
    _, committed = await git(
        "diff", "--no-ext-diff", "--no-textconv", "--name-status", worktree.base, "HEAD", cwd=worktree.path
    )
    _, count = await git("rev-list", "--count", f"{worktree.base}..HEAD", cwd=worktree.path)
    lines = [line.replace("\t", " ") for line in committed.splitlines()] + status.splitlines()
    return [line.strip() for line in lines if line.strip()], int(count.strip() or 0)


async def remove_worktree(worktree: Worktree) -> None:
    """Take a worktree and its branch away."""
    await git("worktree", "remove", "--force", worktree.path, cwd=worktree.repository)
    await git("branch", "-D", worktree.branch, cwd=worktree.repository)
    os.rmdir(os.path.dirname(worktree.path))
