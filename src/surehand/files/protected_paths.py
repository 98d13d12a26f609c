"""Protected paths: what a sandbox profile hides or makes read-only: secrets, files under a deny rule, sockets."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from surehand.core.frozen import frozen
from surehand.core.secrets import SECRET_PATTERNS, is_secret, may_be_secret
from surehand.git.protected_files import is_set_up

PRIVATE: Final = ("/tmp", "/var/tmp", "/run")
"""Folders whose writes go to a private layer, and whose sockets cannot be reached."""

_DEPENDENCIES: Final = frozenset({"node_modules", ".venv", "venv", ".tox", "target"})
"""Folders of dependencies with very many files: searched last, and only for names of secrets."""
_SKIPPED: Final = frozenset({".git", "__pycache__", ".mypy_cache"})
_SCAN_LIMIT: Final = 20_000
_DEPENDENCY_LIMIT: Final = 200_000
_in_dependencies: Final[dict[str, tuple[int, list[str]]]] = {}
"""Folder of dependencies → when its top last changed, and the secrets found in it."""
_MOST_REPOSITORIES: Final = 200
KEPT_LIMIT: Final = 4_000
"""The most paths mounted read-only; changes of others are reverted when the command has ended."""

Says = Callable[[str], bool]
"""Returns whether a rule covers an absolute path; that of a folder ends in `/`."""


@frozen
class Found:
    """What to hide and what to make read-only, by every name it has in the roots."""

    hidden: tuple[str, ...]
    kept: tuple[str, ...]
    folders: Mapping[str, int]
    """The folders that were searched, and when each last changed."""
    repositories: tuple[str, ...]
    """The folders of git in the roots, nearest first: `.git`, and repositories that are plain folders."""
    pointers: tuple[str, ...] = ()
    """The `.git` files in the roots, which point to such folders."""
    sockets: tuple[str, ...] = ()
    """Sockets in the roots, of any owner."""
    whole: bool = True
    """Whether everything was searched; of a very large tree only the part near the top is."""


def inside(path: str, folders: Iterable[str]) -> bool:
    """Return whether a path is one of the folders or beneath one, by name."""
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def within(folders: Iterable[str]) -> Says:
    """Return a fast test whether a path is one of the folders or beneath one, for very many paths."""
    known = frozenset(folders)
    below = tuple(folder.rstrip("/") + "/" for folder in known)
    return lambda path: path in known or path.startswith(below)


def look(
    roots: Sequence[str],
    keeps_out: Says = is_secret,
    keeps_as_is: Says | None = None,
    beside: Sequence[str] = (),
) -> Found:
    """Return what exists in the home, the system and the roots and is to be hidden or kept.

    `beside` are other folders that commands may write: a cache of packages is full of files that look like secrets
    and are none, so that only what a rule keeps as it is counts there.
    """
    hidden = dict.fromkeys(_known_secrets(roots))
    kept: dict[str, None] = {}
    folders: dict[str, int] = {}
    repositories: list[str] = []
    pointers: list[str] = []
    sockets: list[str] = []
    whole = True
    for root in (*roots, *(beside if keeps_as_is is not None else ())):
        walk = _Walk(root, keeps_out, keeps_as_is)
        walk.run()
        kept.update(dict.fromkeys(walk.kept))
        if root in roots:
            hidden.update(dict.fromkeys(walk.hidden))
            folders.update(walk.folders)
            repositories += walk.repositories
            pointers += walk.pointers
            sockets += walk.sockets
            whole = whole and walk.whole
    most = _MOST_REPOSITORIES
    return Found(
        _outermost(hidden),
        _outermost(kept)[:KEPT_LIMIT],
        folders,
        tuple(repositories[:most]),
        tuple(pointers[:most]),
        tuple(sockets),
        whole,
    )


def git_paths(roots: Sequence[str]) -> list[str]:
    """Return every `.git` in the roots, and the `HEAD` of every repository that is a plain folder."""
    found = look(roots)
    heads = (path if path.endswith("/.git") else os.path.join(path, "HEAD") for path in found.repositories)
    return [*heads, *found.pointers]


def unchanged(folders: Mapping[str, int]) -> bool:
    """Return whether nothing was made, removed or renamed in these folders since they were searched."""
    try:
        return all(os.stat(path).st_mtime_ns == changed for path, changed in folders.items())
    except OSError:
        return False


def _outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the paths that exist and are beneath none of the others."""
    known = {path: None for path in paths if os.path.exists(path)}
    return tuple(path for path in known if not any(above in known for above in _folders_above(path)))


def _folders_above(path: str) -> Iterable[str]:
    while path != "/":
        path = os.path.dirname(path)
        yield path


def _known_secrets(roots: Sequence[str]) -> Iterable[str]:
    """Yield the secrets of the home and the system that are in no root."""
    own = homes()
    for pattern in SECRET_PATTERNS:
        if "*" in pattern or pattern.startswith("!"):
            continue
        name = pattern.rstrip("/")
        for path in [name] if name.startswith("/") else [os.path.join(home, name) for home in own]:
            if os.path.lexists(path) and not inside(path, roots):
                yield os.path.realpath(path)


def homes() -> list[str]:
    """Return the user's home folders: that of `HOME`, and that of the user database."""
    import pwd

    found = [os.path.realpath(os.path.expanduser("~"))]
    try:
        found.append(os.path.realpath(pwd.getpwuid(os.getuid()).pw_dir))
    except KeyError:
        pass  # a user without a name, as in a container
    return list(dict.fromkeys(home for home in found if home != "/"))


class _Walk:
    """One breadth-first search of a root; a very large tree is searched near its top only."""

    def __init__(self, root: str, keeps_out: Says, keeps_as_is: Says | None) -> None:
        self.hidden: list[str] = []
        self.kept: list[str] = []
        self.folders: dict[str, int] = {}
        self.repositories: list[str] = []
        self.pointers: list[str] = []
        self.sockets: list[str] = []
        self.whole = True
        self._root = root
        # A root inside a folder of secrets (a worktree in Surehand's own state) is no secret itself.
        self._out = keeps_out if keeps_out is not is_secret and not is_secret(root + "/") else None
        self._as_is = keeps_as_is
        self._below_kept: list[str] = []
        self._others: list[os.DirEntry[str]] = []
        self._dependencies: list[str] = []

    def run(self) -> None:
        """Fill the two lists."""
        whole = self._as_is is not None and self._as_is(self._root + "/")
        if whole:
            self.kept.append(self._root)
        waiting = [(self._root, whole)]
        seen = 0
        for folder, frozen_already in waiting:  # grows while it is walked
            if seen >= _SCAN_LIMIT:
                self.whole = False
                break
            try:
                self.folders[folder] = os.stat(folder).st_mtime_ns
                entries = list(os.scandir(folder))
            except OSError:
                continue
            seen += len(entries)
            if {"HEAD", "objects", "refs"} <= {entry.name for entry in entries}:  # a repository that is a plain folder
                self.repositories.append(folder)
            for entry in entries:
                if (below := self._take(entry, frozen_already)) is not None:
                    waiting.append((entry.path, below))
        self._look_through_dependencies()
        self.hidden += _same_files(self.hidden, self._others)
        if not whole:
            self.kept += _same_files([*self.kept, *self._below_kept], self._others)

    def _look_through_dependencies(self) -> None:
        """Find secrets in folders of dependencies; one is searched again if its top has changed."""
        for top in self._dependencies:
            changed = self.folders[top] = changed_at(top)
            known = _in_dependencies.get(top)
            if known is None or known[0] != changed:
                if len(_in_dependencies) >= _MOST_REPOSITORIES:
                    _in_dependencies.clear()
                known = _in_dependencies[top] = (changed, self._secrets_below(top))
            self.hidden += known[1]

    def _secrets_below(self, top: str) -> list[str]:
        found: list[str] = []
        waiting, seen = [top], 0
        for folder in waiting:  # grows while it is walked
            if seen >= _DEPENDENCY_LIMIT:
                break
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        seen += 1
                        inner = entry.is_dir(follow_symlinks=False)
                        if may_be_secret(os.fsencode(entry.name)) and self._is_secret(entry.path + "/" * inner):
                            found.append(os.path.realpath(entry.path))
                        elif inner and entry.name not in _SKIPPED:
                            waiting.append(entry.path)
            except OSError:
                continue
        return found

    def _is_secret(self, path: str) -> bool:
        return is_secret(path[len(self._root) :])

    def _take(self, entry: os.DirEntry[str], frozen_already: bool) -> bool | None:
        """Sort one entry; for a folder to search, return whether it is in one that is read-only as a whole."""
        folder = entry.is_dir(follow_symlinks=False)
        ending = "/" if folder else ""
        # Folders of secrets are not searched: the last name decides.
        secret = may_be_secret(os.fsencode(entry.name)) and self._is_secret(entry.path + ending)
        if secret or (self._out and self._out(entry.path + ending)):
            self.hidden.append(os.path.realpath(entry.path))
            return None
        keep = frozen_already or (self._as_is is not None and self._as_is(entry.path + ending))
        if keep and not frozen_already:
            self.kept.append(os.path.realpath(entry.path))
        if not folder:
            if entry.name == ".git":
                self.pointers.append(entry.path)
            if not entry.is_file(follow_symlinks=False) and not entry.is_symlink() and _is_socket(entry.path):
                self.sockets.append(entry.path)
            if not keep:
                self._others.append(entry)
            elif frozen_already:
                self._below_kept.append(entry.path)
            return None
        if entry.name == ".git" and is_set_up(entry.path):
            self.repositories.append(entry.path)
        if entry.name in _DEPENDENCIES:
            self._dependencies.append(entry.path)
            return None
        return keep if entry.name not in _SKIPPED else None


def changed_at(folder: str) -> int:
    """Return when an entry of a folder was last made, removed or renamed; 0 if the folder does not exist."""
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return 0


def _same_files(known: Sequence[str], others: Iterable[os.DirEntry[str]]) -> list[str]:
    """Return the entries that are hard links to a known file; without a search if none has a second name."""
    marks = {(status.st_dev, status.st_ino) for path in known if (status := _status(path)) and status.st_nlink > 1}
    if not marks:
        return []
    pairs = ((entry.path, _status(entry.path)) for entry in others)
    return [path for path, status in pairs if status and (status.st_dev, status.st_ino) in marks]


def find_other_names(paths: Iterable[str], roots: Sequence[str]) -> list[str]:
    """Return the other names in the roots of the files at these paths, or directly in folders at them."""
    known = {each for path in paths for each in (path, *(_entries(path) if os.path.isdir(path) else ()))}
    several = {(status.st_dev, status.st_ino) for each in known if (status := _status(each)) and status.st_nlink > 1}
    if not several:
        return []
    numbers = {number for _, number in several}
    found: list[str] = []
    waiting, seen = list(roots), 0
    for folder in waiting:  # grows while it is walked
        if seen >= _DEPENDENCY_LIMIT:
            break
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    seen += 1
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif entry.inode() in numbers and entry.path not in known and (status := _status(entry.path)):
                        found += [entry.path] if (status.st_dev, status.st_ino) in several else []
        except OSError:
            continue
    return found


def _entries(folder: str) -> list[str]:
    try:
        return [os.path.join(folder, name) for name in os.listdir(folder) if not name.endswith(".sample")]
    except OSError:
        return []


def _status(path: str) -> os.stat_result | None:
    """Return the real path of a regular file, None for anything else."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False


def mark(path: str) -> tuple[int, int] | None:
    """Return device and inode of the file a path leads to; None if it does not exist."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def secrets_at_top(roots: Iterable[str]) -> set[str]:
    """Return the secrets directly in the roots, a search cheap enough for every command."""
    found: set[str] = set()
    for root in roots:
        try:
            with os.scandir(root) as entries:
                found.update(
                    entry.path for entry in entries if is_secret(f"/{entry.name}{'/' if entry.is_dir() else ''}")
                )
        except OSError:
            continue
    return found


def sockets_outside(closed: Sequence[str], shown: Sequence[str], among: Iterable[str] = ()) -> list[str]:
    """Return the sockets that processes of the machine are bound to and commands would see: a database's, docker's.

    A read-only mount does not keep anybody from connecting. `among` are sockets that lie in the workspace: one bound
    to by a relative path is known by its name. Those of the session's own servers are in a network of their own, and
    so are not in the machine's list.
    """
    bound = _bound_paths()
    paths = {path for path in bound if path.startswith("/")}
    unseen = [path for path in paths if inside(path, (*PRIVATE, *closed)) and not inside(path, shown)]
    found = {path for path in paths.difference(unseen) if os.path.exists(path)}
    names = {os.path.basename(path) for path in bound}
    return sorted(found | {path for path in among if os.path.basename(path) in names})


def _bound_paths() -> set[str]:
    """Return what sockets of this network are bound to, as their programs spelt it; abstract names apart."""
    try:
        with open("/proc/net/unix", encoding="utf-8", errors="surrogateescape") as table:
            fields = [line.rstrip("\n").split(None, 7) for line in table]
    except OSError:
        return set()
    return {each[7] for each in fields[1:] if len(each) == 8 and not each[7].startswith("@")}
