"""What is to be enforced on a session's commands: plain data, decided here, carried out by the launcher."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from holdfast.core.frozen import field, frozen
from holdfast.core.secrets import SECRET_PATTERNS, is_secret
from holdfast.core.settings import SandboxSettings

PRIVATE: Final = ("/tmp", "/var/tmp", "/run")
"""Folders whose writes go to a private layer, and whose sockets cannot be reached."""

_GIT_FROZEN: Final = ("hooks", "config", "config.worktree", "info")
_OWN_FOLDER: Final = ".holdfast"
_START_FILES: Final = (
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".bash_aliases",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".zlogout",
    ".kshrc",
    ".inputrc",
    ".gitconfig",
    ".config/fish",
    ".config/git",
    ".config/autostart",
    ".ssh",
)
"""What a login or a shell of the user's reads; in a writable home it stays as it is."""
_SKIPPED: Final = frozenset({".git", "node_modules", "__pycache__", ".venv", "venv", ".tox", ".mypy_cache", "target"})
_SCAN_LIMIT: Final = 20_000


@frozen
class Plan:
    """Everything the launcher enforces; paths are real and exist."""

    workspace: str
    roots: tuple[str, ...]
    private_dir: str
    contained: bool
    namespaces: bool
    network: bool
    writable: tuple[str, ...]
    read_only: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()
    """Folders that stay where they are, so that what is read-only in them cannot be moved away with them."""
    forbidden: tuple[str, ...] = ()
    """Paths that did not exist when the plan was made and that no command may make."""
    masked: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    """Sockets of the machine that no private layer puts out of reach."""
    shown: tuple[str, ...] = ()
    """Folders that are read-only also where they lie below a folder with a private layer."""
    limits: dict[str, int] = field(default_factory=dict[str, int])

    def still_absent(self) -> list[str]:
        """Return the forbidden paths nobody has made yet."""
        return [path for path in self.forbidden if not os.path.lexists(path)]

    def _landlock(self) -> list[str]:
        """Return the folders Landlock lets commands write."""
        if not self.contained:
            return []
        return [*self.writable, *(PRIVATE if self.namespaces else ()), "/dev"]

    def to_wire(self) -> dict[str, Any]:
        """Return the plan as the launcher reads it."""
        from holdfast.host.sandbox import seccomp

        return {
            "workspace": self.workspace,
            "roots": list(self.roots),
            "contained": self.contained,
            "limited": self.contained,
            "namespaces": self.namespaces,
            "network": self.network,
            "writable": list(self.writable),
            "shown": [path for path in self.shown if inside(path, PRIVATE) and not inside(path, self.writable)],
            "private": [path for path in PRIVATE if os.path.isdir(path) and not os.path.islink(path)],
            "read_only": list(self.read_only),
            "pinned": list(self.pinned),
            "masked": [*self.masked, *self.sockets],
            "landlock": self._landlock(),
            "seccomp": self.contained and seccomp.supported(),
            "limits": self.limits,
            "scratch": os.path.join(self.private_dir, ".scratch"),
            "capabilities": 0,
        }


def open_plan(workspace: str, roots: Sequence[str], private_dir: str) -> Plan:
    """Return the plan of a session whose sandbox is off: commands run as the user, and still end together."""
    real = _real([workspace, *roots])
    return Plan(real[0], real, private_dir, False, False, True, real, limits=_limits(SandboxSettings()))


def closed_plan(
    workspace: str,
    roots: Sequence[str],
    settings: SandboxSettings,
    private_dir: str,
    *,
    namespaces: bool = True,
    own: Iterable[str] = (),
    readable: Iterable[str] = (),
    keeps_out: Callable[[str], bool] = is_secret,
) -> Plan:
    """Return the plan of a contained session.

    `own` are Holdfast's folders, which stay read-only even inside a writable root. `readable` are allow rules: a
    secret that one of the form `Read(path)` names stays readable. `keeps_out` says of a path whether the rules keep
    it from being read; a folder's ends in `/`.
    """
    real = _real([workspace, *roots])
    writable = _real([*real, *settings.writable, private_dir])
    git_dirs = linked_git_folders(real[0])
    repositories = [*git_dirs, *(folder for root in writable for folder in git_folders(root))]
    kept = [path for root in writable for path in kept_in(root)]
    kept += [os.path.join(folder, name) for folder in repositories for name in _GIT_FROZEN]
    kept += [path for path in _real(own) if inside(path, writable)]
    shown = _real(["~", *own])
    masked = [path for path in secrets_near(real, keeps_out) if not _readable(path, real[0], readable)]
    return Plan(
        workspace=real[0],
        roots=real,
        private_dir=private_dir,
        contained=True,
        namespaces=namespaces,
        network=settings.network,
        writable=(*writable, *git_dirs),
        read_only=tuple(path for path in dict.fromkeys(kept) if os.path.exists(path) and not os.path.islink(path)),
        pinned=tuple(repositories),
        forbidden=tuple(path for path in dict.fromkeys(kept) if not os.path.lexists(path)),
        masked=tuple(masked),
        sockets=tuple(sockets_outside(writable, shown)),
        shown=shown,
        limits=_limits(settings),
    )


def _readable(path: str, workspace: str, rules: Iterable[str]) -> bool:
    """Tell whether an allow rule names this secret: by its path, from the workspace or the root, or by its name."""
    from fnmatch import fnmatchcase

    names = (path, os.path.relpath(path, workspace), os.path.basename(path))
    patterns = (rule[5:-1].removeprefix("./") for rule in rules if rule.startswith("Read(") and rule.endswith(")"))
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)


def _limits(settings: SandboxSettings) -> dict[str, int]:
    return {
        "memory": settings.memory_mb << 20,
        "processes": settings.processes,
        "file_size": settings.file_size_mb << 20,
    }


def _real(paths: Iterable[str]) -> tuple[str, ...]:
    real = (os.path.realpath(os.path.expanduser(path)) for path in paths)
    return tuple(dict.fromkeys(path for path in real if os.path.exists(path)))


def inside(path: str, folders: Iterable[str]) -> bool:
    """Tell whether a path is one of the folders or lies in one; both are taken by their names."""
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def kept_in(root: str) -> list[str]:
    """Return what stays as it is in a writable root, there or not: what shells and Holdfast itself would execute."""
    kept = [os.path.join(root, _OWN_FOLDER)]
    home = os.path.realpath(os.path.expanduser("~"))
    if inside(home, [root]):
        kept += [os.path.join(home, name) for name in _START_FILES]
    return kept


def trespasses(paths: Iterable[str]) -> list[str]:
    """Take away what a command made where none may be, and return what that was."""
    from holdfast.host.trees import remove_tree

    made = [path for path in paths if os.path.lexists(path)]
    for path in made:
        remove_tree(path)
    return made


def git_folders(root: str) -> list[str]:
    """Return the `.git` folders at the top of a root and one level below."""
    places = [root]
    try:
        with os.scandir(root) as entries:
            places += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)][:200]
    except OSError:
        pass
    return [path for place in places if os.path.isdir(path := os.path.join(place, ".git")) and not os.path.islink(path)]


def linked_git_folders(workspace: str) -> tuple[str, ...]:
    """Return the folders of git a worktree commits to.

    A worktree's `.git` is a file that names its folder. It counts only when that folder names the worktree back: a
    command may write the file here, but not the answer there.
    """
    marker = os.path.join(workspace, ".git")
    try:
        with open(marker, encoding="utf-8", errors="surrogateescape") as file:
            folder = os.path.realpath(os.path.join(workspace, file.read(4096).removeprefix("gitdir:").strip()))
        with open(os.path.join(folder, "gitdir"), encoding="utf-8", errors="surrogateescape") as file:
            back = os.path.realpath(file.read(4096).strip())
        with open(os.path.join(folder, "commondir"), encoding="utf-8", errors="surrogateescape") as file:
            common = os.path.realpath(os.path.join(folder, file.read(4096).strip()))
    except (OSError, ValueError):
        return ()
    if back != os.path.realpath(marker) or not folder.startswith(common + "/worktrees/"):
        return ()
    return (common,)


def secrets_near(roots: Sequence[str], keeps_out: Callable[[str], bool] = is_secret) -> list[str]:
    """Return the files and folders with secrets that exist in the home, the system and the roots."""
    home = os.path.realpath(os.path.expanduser("~"))
    found: dict[str, None] = {}
    for pattern in SECRET_PATTERNS:
        if "*" in pattern or pattern.startswith("!"):
            continue
        path = pattern.rstrip("/")
        path = path if path.startswith("/") else os.path.join(home, path)
        if os.path.lexists(path) and not inside(path, roots):
            found[os.path.realpath(path)] = None
    for root in roots:
        found.update(dict.fromkeys(secrets_below(root, keeps_out)))
    names = list(found)
    return [path for path in names if os.path.exists(path) and not inside(os.path.dirname(path), names)]


def sockets_outside(roots: Sequence[str], shown: Sequence[str]) -> list[str]:
    """Return the sockets processes of the machine listen on outside the roots: docker's in a home, a database's.

    A read-only mount does not keep anybody from connecting.
    """
    try:
        with open("/proc/net/unix", encoding="utf-8", errors="surrogateescape") as table:
            paths = {line.split(None, 7)[7].rstrip("\n") for line in table if line.count(" /") == 1}
    except (OSError, IndexError):
        return []
    layered = [path for path in paths if inside(path, PRIVATE) and not inside(path, shown)]
    return sorted(path for path in paths.difference(layered) if os.path.exists(path) and not inside(path, roots))


def secrets_at_top(roots: Iterable[str]) -> set[str]:
    """Return the secrets right in the roots: cheap enough to look for before every command."""
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


def secrets_below(root: str, keeps_out: Callable[[str], bool] = is_secret) -> list[str]:
    """Return the secrets in a root, by every name they have there; a very large tree is looked at near its top only."""
    found: list[str] = []
    others: list[os.DirEntry[str]] = []
    # A root that lies in a folder of secrets (a worktree in Holdfast's own state) is no secret itself.
    by_rule = keeps_out if keeps_out is not is_secret and not is_secret(root + "/") else None
    waiting = [root]
    seen = 0
    while waiting and seen < _SCAN_LIMIT:
        try:
            entries = list(os.scandir(waiting.pop(0)))
        except OSError:
            continue
        seen += len(entries)
        for entry in entries:
            folder = entry.is_dir(follow_symlinks=False)
            ending = "/" if folder else ""
            if is_secret(entry.path[len(root) :] + ending) or (by_rule and by_rule(entry.path + ending)):
                found.append(os.path.realpath(entry.path))
            elif not folder:
                others.append(entry)
            elif entry.name not in _SKIPPED:
                waiting.append(entry.path)
    return found + _same_files(found, others)


def _same_files(secrets: Sequence[str], others: Iterable[os.DirEntry[str]]) -> list[str]:
    """Return the entries that are hard links to a secret; nothing is looked at when no secret has a second name."""
    known = {(status.st_dev, status.st_ino) for path in secrets if (status := _status(path)) and status.st_nlink > 1}
    if not known:
        return []
    pairs = ((entry.path, _status(entry.path)) for entry in others)
    return [path for path, status in pairs if status and (status.st_dev, status.st_ino) in known]


def _status(path: str) -> os.stat_result | None:
    """Return what a plain file's name leads to, None for anything else."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None
