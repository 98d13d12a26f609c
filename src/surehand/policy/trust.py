"""Trust: a folder's own settings, tools, agents, hooks and MCP servers count only once the user trusts them.

Trust is given to one folder with the content those files have now, and the files of the folder that they name: scripts
of hooks and servers, modules of tools. A change in any of them asks again. It is kept under Surehand's home, never in
the folder.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal, cast

from surehand.core.errors import StateError
from surehand.core.frozen import frozen
from surehand.state import locations
from surehand.state.json_file import write_private_json

TrustState = Literal["trusted", "untrusted", "changed", "nothing"]

OWN_FILES = ("surehand.toml", ".mcp.json")
OWN_FOLDERS = (".surehand",)
FILE_LIMIT = 2000
SIZE_LIMIT = 64 * 1024 * 1024


@frozen
class Trust:
    """How a folder stands: its state, the files that would count, and which of them changed since it was trusted."""

    workspace: str
    state: TrustState
    files: tuple[str, ...]
    changed: tuple[str, ...] = ()
    since: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "workspace": self.workspace,
            "state": self.state,
            "files": list(self.files),
            "changed": list(self.changed),
            "since": self.since,
        }


def is_trusted(workspace: str) -> bool:
    """Return whether the folder's own files count: the user trusted exactly these."""
    return os.path.realpath(workspace) in _load() and state_of(workspace).state == "trusted"


def state_of(workspace: str) -> Trust:
    """Return how a folder stands."""
    root = os.path.realpath(workspace)
    files = fingerprints(root)
    known = _load().get(root)
    if known is None:
        return Trust(root, "untrusted" if files else "nothing", tuple(files))
    before = cast("dict[str, str]", known.get("files", {}))
    changed = sorted(name for name in {*before, *files} if before.get(name) != files.get(name))
    return Trust(root, "changed" if changed else "trusted", tuple(files), tuple(changed), known.get("at"))


def changed_since_trusted(workspace: str) -> tuple[str, ...]:
    """Return the files that changed since the folder was trusted; none for one that is, or never was."""
    return state_of(workspace).changed if os.path.realpath(workspace) in _load() else ()


def add_trust(workspace: str) -> Trust:
    """Trust a folder as it is now."""
    root = os.path.realpath(workspace)
    entry = {"files": fingerprints(root), "at": time.time()}
    _change(lambda known: known.update({root: entry}))
    return state_of(root)


def remove_trust(workspace: str) -> bool:
    """Trust a folder no more; False when it was not trusted."""
    root = os.path.realpath(workspace)
    was = root in _load()
    _change(lambda known: known.pop(root, None))
    return was


def trusted_folders() -> list[str]:
    """Return every folder that is trusted."""
    return sorted(_load())


def fingerprints(root: str) -> dict[str, str]:
    """Return name → digest of every file of a folder that Surehand would act on, links by where they lead."""
    found: dict[str, str] = {}
    for name in OWN_FILES:
        if os.path.lexists(os.path.join(root, name)):
            found[name] = _fingerprint(os.path.join(root, name))
    for folder in OWN_FOLDERS:
        for path in _walk(os.path.join(root, folder)):
            if len(found) >= FILE_LIMIT:
                raise StateError(f"{root}: more than {FILE_LIMIT} files in {folder}; too many to trust")
            found[os.path.relpath(path, root)] = _fingerprint(path)
    if found:
        from surehand.policy.trusted_files import files_that_run  # lazy: trusted_files, 5 ms

        named = files_that_run(root, [os.path.join(root, name) for name in found])
        found |= {os.path.relpath(path, root): _fingerprint(path) for path in named}
    return found


def trusted_files(workspace: str) -> frozenset[str]:
    """Return the files, by their real paths, that a trusted folder was trusted with; none for any other folder."""
    try:
        changed = os.stat(_store()).st_mtime_ns
    except OSError:
        return frozenset()
    root = os.path.realpath(workspace)
    key = (_store(), changed, root)
    if _remembered.get("key") != key:
        files = cast("dict[str, str]", _load().get(root, {}).get("files", {}))
        _remembered.update(key=key, files=frozenset(os.path.realpath(os.path.join(root, name)) for name in files))
    return cast("frozenset[str]", _remembered["files"])


_remembered: dict[str, Any] = {}


def _walk(folder: str) -> Iterator[str]:
    if os.path.islink(folder):
        yield folder
        return
    for here, folders, names in os.walk(folder):
        folders.sort()
        links = [name for name in folders if os.path.islink(os.path.join(here, name))]
        folders[:] = [name for name in folders if name not in links and name != "__pycache__"]
        for name in sorted((*names, *links)):
            yield os.path.join(here, name)


def _fingerprint(path: str) -> str:
    try:
        target = os.readlink(path) if os.path.islink(path) else ""
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as problem:
        return f"unreadable: {problem.errno}"
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_size > SIZE_LIMIT:
        os.close(descriptor)
        return f"not a plain file: {target}"
    import hashlib

    with os.fdopen(descriptor, "rb") as file:
        return f"{target}:{status.st_mode & 0o111:o}:{hashlib.sha256(file.read()).hexdigest()}"


def _store() -> str:
    return os.path.join(locations.home(), "trust.json")


def _load() -> dict[str, dict[str, Any]]:
    try:
        with open(_store(), encoding="utf-8") as file:
            known: Any = json.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as problem:
        raise StateError(f"{_store()} cannot be read: {problem.strerror}; nothing is trusted until it can") from None
    except ValueError as problem:
        raise StateError(f"{_store()} cannot be used: {problem}; nothing is trusted until it is removed") from None
    if not isinstance(known, dict):
        raise StateError(f"{_store()} is not a table of folders; nothing is trusted until it is removed")
    return cast("dict[str, dict[str, Any]]", known)


def _change(edit: Callable[[dict[str, dict[str, Any]]], object]) -> None:
    import fcntl

    locations.private_dir(locations.home())
    path = _store()
    with open(f"{path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = _load()
        edit(known)
        write_private_json(path, known)
