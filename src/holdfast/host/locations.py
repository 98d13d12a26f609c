"""Where Holdfast keeps things: never inside the workspace. `HOLDFAST_HOME` moves state, settings and trust alike."""

from __future__ import annotations

import hashlib
import os
import sys


def _own(path: str) -> str:
    """Return a path below the user's home folder, also where HOME is empty."""
    folder = os.environ.get("HOME")
    if not folder:
        import pwd

        folder = pwd.getpwuid(os.getuid()).pw_dir
    return os.path.join(folder, path)


def home() -> str:
    """Return the folder of all state."""
    if chosen := os.environ.get("HOLDFAST_HOME"):
        return os.path.abspath(os.path.expanduser(chosen))
    if sys.platform == "darwin":
        return _own("Library/Application Support/holdfast")
    return os.path.join(os.environ.get("XDG_STATE_HOME") or _own(".local/state"), "holdfast")


def user_settings() -> str:
    """Return the user's settings file (it need not exist)."""
    if os.environ.get("HOLDFAST_HOME") or sys.platform == "darwin":
        return os.path.join(home(), "config.toml")
    base = os.environ.get("XDG_CONFIG_HOME") or _own(".config")
    return os.path.join(base, "holdfast", "config.toml")


def workspace_state(workspace: str) -> str:
    """Return the folder that holds the state of one workspace, keyed by its real path."""
    real = os.path.realpath(workspace)
    digest = hashlib.sha256(os.fsencode(real)).hexdigest()[:16]
    return os.path.join(home(), "workspaces", f"{os.path.basename(real) or 'root'}-{digest}")


def private_dir(path: str) -> str:
    """Make a folder only the user can read, parents included, and return its path."""
    os.makedirs(path, mode=0o700, exist_ok=True)
    return path


def has_settings(workspace: str) -> bool:
    """Say whether anything may set a setting here: a file, or a variable of the environment."""
    files = (user_settings(), os.path.join(workspace, "holdfast.toml"), os.path.join(workspace, ".holdfast"))
    named = any(name.startswith("HOLDFAST_") and name != "HOLDFAST_HOME" for name in os.environ)
    return named or any(os.path.lexists(path) for path in files)
