"""Programs a repository's own configuration makes git run, also in commands that only look.

`git status`, `diff`, `log -p` and `blame` run what `.git/config` names: file system monitors, hooks, text conversions,
external diffs, filters. The user's own configuration is the user's; a repository's may be anybody's.
"""

from __future__ import annotations

import os
import re

_LIMIT = 1 << 20
_MAX_SUBMODULES = 64
_RUNS = re.compile(
    rb"(?im)(?:^|\])[ \t\r]*(fsmonitor|hookspath|textconv|external|command|clean|smudge|process|program|driver|cmd)"
    rb"[ \t]*(?:=[ \t]*(.*))?$"
)
_SECTION = rb"(?im)(?:^(?:\xef\xbb\xbf)?|\])\s*\[\s*"  # one may follow another in a line
_INCLUDES = re.compile(_SECTION + rb"include(?:if)?\b")
_SHOWS_HELP = re.compile(_SECTION + rb"(?:man|browser|help)\b")  # with what `git log --help` is shown
_HARMLESS = re.compile(rb"(?i)(true|false|yes|no|on|off|0|1|git-lfs .*)?\s*")


def configured_programs(folder: str) -> tuple[str, ...]:
    """Return the settings of the repository around `folder` that run a program; read generously, git is never run."""
    git = _git_folder(folder)
    if git is None:
        return ()
    common = (_read(os.path.join(git, "commondir")) or b"").strip()
    shared = os.path.normpath(os.path.join(git, os.fsdecode(common))) if common else git
    places = [*dict.fromkeys((git, shared)), *submodules(shared)]
    found = [name for place in places[: _MAX_SUBMODULES + 2] for name in _in_folder(place)]
    found += ["more submodules than are looked at"] if len(places) > _MAX_SUBMODULES + 2 else []
    return tuple(dict.fromkeys(found))


def submodules(git: str) -> list[str]:
    """Return the git folders of submodules, whose settings count when the repository around them is looked at."""
    found: list[str] = []
    for folder, inner, files in os.walk(os.path.join(git, "modules")):
        if "HEAD" in files:
            found.append(folder)
        inner[:] = [name for name in inner if name not in ("objects", "refs", "logs", "hooks", "info")]
        if len(found) > _MAX_SUBMODULES:
            break
    top = os.path.dirname(git)
    links = re.findall(rb"(?m)^\s*path\s*=\s*(.+?)\s*$", _read(os.path.join(top, ".gitmodules")) or b"")
    inside = [os.path.join(top, os.fsdecode(link.strip(b'"')), ".git") for link in links]
    return found + [path for path in inside if os.path.isdir(path)]


def _in_folder(git: str) -> list[str]:
    found: list[str] = []
    for name in ("config", "config.worktree"):
        path = os.path.join(git, name)
        text = _read(path)
        if text is None:
            found += [f"{name}, which cannot be read"] if os.path.lexists(path) else []
            continue
        found += ["include"] if _INCLUDES.search(text) else []
        found += ["help"] if _SHOWS_HELP.search(text) else []
        found += [
            match[1].decode().lower()
            for match in _RUNS.finditer(text)
            if not _HARMLESS.fullmatch((match[2] or b"").strip().strip(b'"'))
        ]
    return found


def _git_folder(folder: str) -> str | None:
    """Return the git folder of the repository `folder` lies in, a worktree's by its pointer."""
    while True:
        git = os.path.join(folder, ".git")
        if os.path.isdir(git):
            return git
        if os.path.isfile(git):
            pointer = _read(git) or b""
            return os.path.normpath(os.path.join(folder, os.fsdecode(pointer.removeprefix(b"gitdir:").strip())))
        if _is_bare(folder):
            return folder
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above


def _is_bare(folder: str) -> bool:
    """Tell whether git takes the folder itself for a repository: one that any archive or clone may hold."""
    if not os.path.isfile(os.path.join(folder, "HEAD")):
        return False
    return all(os.path.isdir(os.path.join(folder, name)) for name in ("objects", "refs"))


def _read(path: str) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        data = os.read(descriptor, _LIMIT)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return data if len(data) < _LIMIT else None
