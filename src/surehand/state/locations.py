"""Locations of state, settings and trust: never inside the workspace. `SUREHAND_HOME` moves all of them.

Only absolute paths are accepted: a relative one would depend on the current directory, whose author could then supply
rules and trust of their own.
"""

from __future__ import annotations

import hashlib
import os
import sys
from functools import lru_cache
from typing import Final

from surehand.core.errors import SettingsError
from surehand.core.frozen import frozen
from surehand.state.files import write_private


def _own(path: str) -> str:
    """Return a path below the user's home folder, which is looked up if HOME is not set."""
    folder = os.environ.get("HOME", "")
    if not os.path.isabs(folder):
        import pwd

        try:
            folder = pwd.getpwuid(os.getuid()).pw_dir
        except KeyError:
            raise SettingsError(
                "there is no home folder for settings and state: HOME is not set, and this user has none; "
                "name a folder with SUREHAND_HOME"
            ) from None
    return os.path.join(folder, path)


def _xdg(variable: str, otherwise: str) -> str:
    """Return a base folder by the XDG specification, which says to ignore relative paths."""
    chosen = os.environ.get(variable, "")
    return chosen if os.path.isabs(chosen) else _own(otherwise)


def home() -> str:
    """Return the folder of all state; raise SettingsError for a relative SUREHAND_HOME."""
    if chosen := os.environ.get("SUREHAND_HOME"):
        return _absolute(chosen) if chosen.startswith("/") else _absolute(os.path.expanduser(chosen))
    if sys.platform == "darwin":
        return _own("Library/Application Support/surehand")
    return os.path.join(_xdg("XDG_STATE_HOME", ".local/state"), "surehand")


@lru_cache(16)
def _absolute(chosen: str) -> str:
    if not os.path.isabs(chosen):
        raise SettingsError(
            f"SUREHAND_HOME must be an absolute path, not {chosen!r}: a relative one would be "
            "another folder, with other rules, wherever you work"
        )
    return os.path.normpath(chosen)


def user_settings() -> str:
    """Return the path of the user's settings file, which may not exist."""
    if os.environ.get("SUREHAND_HOME") or sys.platform == "darwin":
        return os.path.join(home(), "config.toml")
    return os.path.join(_xdg("XDG_CONFIG_HOME", ".config"), "surehand", "config.toml")


def workspace_state(workspace: str) -> str:
    """Return the state folder of a workspace, named by a digest of its real path."""
    real = os.path.realpath(workspace)
    digest = hashlib.sha256(os.fsencode(real)).hexdigest()[:16]
    return os.path.join(home(), "workspaces", f"{os.path.basename(real) or 'root'}-{digest}")


def server_cache(workspace: str) -> str:
    """Create and return the cache folder of the MCP servers that a workspace configures."""
    real = os.path.realpath(workspace)
    digest = hashlib.sha256(os.fsencode(real)).hexdigest()[:16]
    folder = os.path.join(_xdg("XDG_CACHE_HOME", ".cache"), "surehand", "servers", digest)
    return os.path.realpath(private_dir(folder))


def batch_folder(results: str) -> str:
    """Return the folder for the workspaces of a batch's tasks; the batch writes to `results`.

    It is outside the other state, which is hidden from commands.
    """
    digest = hashlib.sha256(os.fsencode(os.path.realpath(results))).hexdigest()[:16]
    return os.path.join(_xdg("XDG_CACHE_HOME", ".cache"), "surehand", "batches", digest)


def nodes_folder() -> str:
    """Return the folder for the workspaces of cluster nodes on this machine."""
    return os.path.join(_xdg("XDG_CACHE_HOME", ".cache"), "surehand", "nodes")


def private_dir(path: str) -> str:
    """Create a folder that only the user can read, with its parents, and return its path."""
    os.makedirs(path, mode=0o700, exist_ok=True)
    return path


def has_settings(workspace: str) -> bool:
    """Whether any settings may exist for a workspace: a file, or an environment variable."""
    files = (user_settings(), os.path.join(workspace, "surehand.toml"), os.path.join(workspace, ".surehand"))
    named = any(name.startswith("SUREHAND_") and name != "SUREHAND_HOME" for name in os.environ)
    return named or any(os.path.lexists(path) for path in files)


# Which workspaces have state: each state folder records the path of its workspace.

_FILE: Final = "workspace"


@frozen
class Workspace:
    """A workspace and its state folder."""

    path: str
    state_dir: str


def note_workspace(state_dir: str, workspace: str) -> None:
    """Record the path of the workspace in its state folder, whose name contains only a digest of it."""
    path = os.path.join(state_dir, _FILE)
    if os.path.exists(path):
        return
    private_dir(state_dir)
    write_private(path, os.fsencode(workspace), flush=False)


def known_workspaces() -> list[Workspace]:
    """Return all workspaces that have state, the last used first."""
    folder = os.path.join(home(), "workspaces")
    found: list[tuple[float, Workspace]] = []
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        state_dir = os.path.join(folder, name)
        try:
            with open(os.path.join(state_dir, _FILE), "rb") as file:
                path = os.fsdecode(file.read())
            used = os.stat(state_dir).st_mtime
        except OSError:
            continue
        if workspace_state(path) == state_dir:  # otherwise the state folder was moved
            found.append((used, Workspace(path, state_dir)))
    return [each for _, each in sorted(found, key=lambda pair: pair[0], reverse=True)]
