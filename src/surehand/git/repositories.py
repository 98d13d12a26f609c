"""Where the parts of a repository really are, found as the kernel and git find them: links followed, nothing guessed.

A repository is a folder with `.git` in it, a folder whose `.git` is a file that leads elsewhere (a worktree, a
submodule), or a plain folder that is one itself (a bare repository, which any archive or clone may hold). Its settings,
hooks and objects may lie in another folder again (`commondir`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from typing import Final

from surehand.core.frozen import frozen
from surehand.core.text import lazy_pattern
from surehand.git.config import entries, read_plain
from surehand.git.index import gitlinks

_SMALL: Final = 1 << 16
_HEAD: Final = lazy_pattern(rb"ref:\s*refs/|[0-9a-fA-F]{40}")
"""How the file begins that says what is checked out."""
_MOST: Final = 200
"""Repositories inside one that are looked at."""
_NOT_ENTERED: Final = frozenset({"objects", "refs", "logs", "hooks", "info"})


@frozen
class Repository:
    """One repository: all paths are real."""

    top: str
    """The folder git was asked about: with `.git` in it, or itself the repository."""
    git_dir: str
    common: str
    """Where settings, hooks and objects are: the same folder, but for worktrees."""
    pointer: str = ""
    """The `.git` file or link that led here, if one did."""

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders whose files count."""
        return (self.git_dir,) if self.git_dir == self.common else (self.git_dir, self.common)

    @property
    def is_worktree_of_common(self) -> bool:
        """Whether its git folder lies in the `worktrees` folder of the repository it shares."""
        return self.git_dir.startswith(self.common.rstrip("/") + "/worktrees/")

    @property
    def is_linked(self) -> bool:
        """Whether a pointer that led elsewhere is named back from there, as git does for worktrees and submodules.

        A command, or an archive, can write the one file, but not the answer in a folder it has no part in.
        """
        back = text_of(os.path.join(self.git_dir, "gitdir"))
        if back and os.path.realpath(os.path.join(self.git_dir, back)) == os.path.realpath(self.pointer):
            return self.is_worktree_of_common
        named = worktree_of(self.git_dir)
        return bool(named) and os.path.realpath(os.path.join(self.git_dir, named)) == os.path.realpath(self.top)


def text_of(path: str) -> str:
    """Return the path that a file names, as git reads it: blanks belong to it, line breaks behind it do not.

    These may be many, and what follows a NUL is not seen; a path beyond the limit leads nowhere.
    """
    data = read_plain(os.fsencode(path), _SMALL, beginning=True) or b""
    return os.fsdecode(data.rstrip(b"\r\n").partition(b"\0")[0])


def worktree_of(git_dir: str) -> str:
    """Return the value of `core.worktree`, as it is written."""
    data = read_plain(os.fsencode(os.path.join(git_dir, "config")), 1 << 20) or b""
    return next((os.fsdecode(each.value) for each in reversed(entries(data)[0]) if each.key == b"core.worktree"), "")


def common_of(git_dir: str) -> str:
    """Return the folder of git that a worktree shares with its repository; for any other one itself."""
    named = text_of(f"{git_dir}/commondir")
    return os.path.realpath(os.path.join(git_dir, named)) if named else git_dir


def follow_pointer(pointer: str) -> str | None:
    """Return the folder of git that a `.git` stands for; None when it leads nowhere."""
    if os.path.isdir(pointer):
        return os.path.realpath(pointer)
    line = text_of(pointer)
    if not line.startswith("gitdir: "):
        return None
    return os.path.realpath(os.path.join(os.path.realpath(os.path.dirname(pointer)), line[8:]))


def repository_at(folder: str) -> Repository | None:
    """Return the repository that begins at this very folder, judged generously: more may pass than git would take."""
    return next(repositories_at(os.path.realpath(folder)), None)


def repositories_at(folder: str) -> Iterator[Repository]:
    """Yield what git may take for the repository at a folder (a real path): where its `.git` leads, and itself.

    That one counts beside a `.git` too, which git passes over if it lacks something.
    """
    pointer = os.path.join(folder, ".git")
    try:
        mode = os.lstat(pointer).st_mode
    except (OSError, ValueError):
        pass
    else:
        plain = stat.S_ISDIR(mode)  # and so a real path itself
        if (git_dir := pointer if plain else follow_pointer(pointer)) is not None:
            yield Repository(folder, git_dir, common_of(git_dir), "" if plain else pointer)
    if seems_bare(folder):
        yield Repository(folder, folder, common_of(folder))


def seems_bare(folder: str) -> bool:
    """Tell whether a folder itself looks like a folder of git."""
    if not os.path.lexists(os.path.join(folder, "HEAD")):
        return False
    names = ("objects", "refs")
    return os.path.lexists(os.path.join(folder, "commondir")) or all(
        os.path.isdir(os.path.join(folder, name)) for name in names
    )


def is_repository(repository: Repository) -> bool:
    """Tell, by git's own test, whether git stops looking further up here."""
    common = repository.common
    return has_head(repository.git_dir) and all(os.access(f"{common}/{part}", os.X_OK) for part in ("objects", "refs"))


def has_head(git_dir: str) -> bool:
    """Tell whether a folder has the file that says what is checked out."""
    head = os.path.join(git_dir, "HEAD")
    try:
        return os.readlink(head).startswith("refs/")
    except OSError:  # it is no link, as is usual
        return _HEAD.match(read_plain(os.fsencode(head), _SMALL) or b"") is not None


def repositories_around(folder: str) -> Iterator[Repository]:
    """Yield every repository git may take for the one `folder` lies in, nearest first, up to one that it surely takes.

    What only looks like one counts too: whether git takes it can change before git is run.
    """
    folder = os.path.realpath(folder)
    while True:
        for repository in repositories_at(folder):
            yield repository
            if is_repository(repository):
                return
        above = os.path.dirname(folder)
        if above == folder:
            return
        folder = above


def inner_repositories(repository: Repository) -> Iterator[Repository]:
    """Yield the repositories that git enters from this one, those inside them too.

    These are the folders its index holds as commits of other repositories (with or without `.gitmodules`), those that
    `.gitmodules` names, and whatever lies in `modules`.
    """
    seen = {repository.git_dir}
    waiting = [repository]
    for outer in waiting:
        for inner in _find_nested(outer):
            if inner.git_dir not in seen and len(seen) < _MOST:
                seen.add(inner.git_dir)
                waiting.append(inner)
                yield inner


def too_many(repository: Repository) -> bool:
    """Tell whether a repository has more inside it than are looked at."""
    return sum(1 for _ in inner_repositories(repository)) >= _MOST - 1


def _find_nested(repository: Repository) -> Iterator[Repository]:
    top = _work_top(repository)
    names = dict.fromkeys((*gitlinks(repository.git_dir), *_named_in(os.path.join(top, ".gitmodules"))))
    for name in names:
        if "\0" not in name:
            yield from repositories_at(os.path.realpath(os.path.join(top, name)))
    for folder in module_folders(repository.common):
        yield Repository(folder, folder, common_of(folder))


def _work_top(repository: Repository) -> str:
    named = worktree_of(repository.git_dir)
    return os.path.realpath(os.path.join(repository.git_dir, named)) if named else repository.top


def _named_in(gitmodules: str) -> Iterable[str]:
    data = read_plain(os.fsencode(gitmodules), 1 << 20) or b""
    return [os.fsdecode(each.value) for each in entries(data)[0] if each.key.endswith(b".path")]


def module_folders(common: str) -> list[str]:
    """Return the folders of git of submodules, those of submodules inside them too."""
    found: list[str] = []
    for folder, inner, files in os.walk(os.path.join(common, "modules")):
        if "HEAD" in files or "config" in files or "commondir" in files:
            found.append(os.path.realpath(folder))
        inner[:] = [name for name in inner if name not in _NOT_ENTERED]
        if len(found) > _MOST:
            break
    return found
