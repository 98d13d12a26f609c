"""What is to be enforced on a session's commands: plain data, decided here, carried out by the launcher."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.core.secrets import SECRET_PATTERNS, is_secret
from holdfast.core.settings import SandboxSettings

PRIVATE: Final = ("/tmp", "/var/tmp", "/run")
"""Folders whose writes go to a private layer, and whose sockets cannot be reached."""

_GIT_FROZEN: Final = ("hooks", "config", "config.worktree", "info")
_OWN_FOLDER: Final = ".holdfast"
_SKIPPED: Final = frozenset({".git", "node_modules", "__pycache__", ".venv", "venv", ".tox", ".mypy_cache", "target"})
_SCAN_LIMIT: Final = 20_000


@dataclass(frozen=True, slots=True)
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
    masked: tuple[str, ...] = ()
    limits: dict[str, int] = field(default_factory=dict[str, int])

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
            "private": [path for path in PRIVATE if os.path.isdir(path) and not os.path.islink(path)],
            "read_only": list(self.read_only),
            "masked": list(self.masked),
            "landlock": [*self.writable, *PRIVATE, "/dev"] if self.namespaces else [*self.writable, "/dev"],
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
) -> Plan:
    """Return the plan of a contained session.

    `own` are Holdfast's folders, which stay read-only even inside a writable root. `readable` are secrets a rule
    allows commands to read.
    """
    real = _real([workspace, *roots])
    writable = _real([*real, *settings.writable, private_dir])
    allowed = {os.path.realpath(path) for path in readable}
    frozen = [path for root in writable for path in frozen_in(root)]
    frozen += [path for path in _real(own) if _inside(path, writable)]
    masked = [path for path in secrets_near(real) if path not in allowed]
    git_dirs = linked_git_folders(real[0])
    return Plan(
        workspace=real[0],
        roots=real,
        private_dir=private_dir,
        contained=True,
        namespaces=namespaces,
        network=settings.network,
        writable=(*writable, *git_dirs),
        read_only=tuple(
            dict.fromkeys([*frozen, *(path for each in git_dirs for path in _existing(each, _GIT_FROZEN))])
        ),
        masked=tuple(masked),
        limits=_limits(settings),
    )


def _limits(settings: SandboxSettings) -> dict[str, int]:
    return {
        "memory": settings.memory_mb << 20,
        "processes": settings.processes,
        "file_size": settings.file_size_mb << 20,
    }


def _real(paths: Iterable[str]) -> tuple[str, ...]:
    real = (os.path.realpath(os.path.expanduser(path)) for path in paths)
    return tuple(dict.fromkeys(path for path in real if os.path.exists(path)))


def _inside(path: str, folders: Sequence[str]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def _existing(folder: str, names: Iterable[str]) -> list[str]:
    return [path for name in names if os.path.lexists(path := os.path.join(folder, name)) and not os.path.islink(path)]


def frozen_in(root: str) -> list[str]:
    """Return what stays read-only in a writable root: what git, shells and Holdfast would execute."""
    found = _existing(root, [_OWN_FOLDER])
    for folder in git_folders(root):
        found += _existing(folder, _GIT_FROZEN)
    return found


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


def secrets_near(roots: Sequence[str]) -> list[str]:
    """Return the files and folders with secrets that exist in the home, the system and the roots."""
    home = os.path.realpath(os.path.expanduser("~"))
    found: dict[str, None] = {}
    for pattern in SECRET_PATTERNS:
        if "*" in pattern or pattern.startswith("!"):
            continue
        path = pattern.rstrip("/")
        path = path if path.startswith("/") else os.path.join(home, path)
        if os.path.lexists(path) and not _inside(path, roots):
            found[os.path.realpath(path)] = None
    for root in roots:
        found.update(dict.fromkeys(secrets_below(root)))
    names = list(found)
    return [path for path in names if os.path.exists(path) and not _inside(os.path.dirname(path), names)]


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


def secrets_below(root: str) -> list[str]:
    """Return the secrets in a root; a very large tree is looked at only near its top."""
    found: list[str] = []
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
            if is_secret(entry.path[len(root) :] + ("/" if folder else "")):
                found.append(os.path.realpath(entry.path))
            elif folder and entry.name not in _SKIPPED:
                waiting.append(entry.path)
    return found
