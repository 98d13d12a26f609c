"""Trust: a folder's own settings, tools, agents, hooks and MCP servers count only once the user trusts them.

Trust covers one folder with the present contents of these files and of the code in it that they run: scripts of hooks
and servers, modules of tools, packages. A change of any of them asks again. It is stored in Surehand's home, never in
the folder.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, cast

from surehand.core.errors import StateError
from surehand.core.frozen import frozen
from surehand.policy.packages import Budget, Digest, TrustError, digest_package
from surehand.state import locations
from surehand.state.files import write_private_json

TrustState = Literal["trusted", "untrusted", "changed", "nothing"]

OWN_FILES = ("surehand.toml", ".mcp.json")
OWN_FOLDERS = (".surehand",)
_SETTLED_S: Final = 2.0
"""Age (s) from which a file's times prove its contents: a later change within the same tick would not show in them."""


@frozen
class Trust:
    """How a folder stands: its state, the files that would count, and which of them changed since it was trusted."""

    workspace: str
    state: TrustState
    files: tuple[str, ...]
    changed: tuple[str, ...] = ()
    since: float | None = None
    problem: str = ""
    """Why the folder cannot be trusted as it is: it leads to too much, or through a link to a folder."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "workspace": self.workspace,
            "state": self.state,
            "files": list(self.files),
            "changed": list(self.changed),
            "since": self.since,
            "problem": self.problem,
        }


def is_trusted(workspace: str) -> bool:
    """Return whether the folder's own files count: the user trusted exactly these."""
    return os.path.realpath(workspace) in _load() and state_of(workspace).state == "trusted"


def state_of(workspace: str) -> Trust:
    """Return how a folder stands."""
    root = os.path.realpath(workspace)
    known = _load().get(root)
    try:
        files = fingerprints(root)
    except TrustError as problem:
        return Trust(root, "untrusted" if known is None else "changed", (), problem=str(problem))
    if known is None:
        return Trust(root, "untrusted" if files else "nothing", tuple(files))
    before = cast("dict[str, str]", known.get("files", {}))
    changed = sorted(name for name in {*before, *files} if before.get(name) != files.get(name))
    return Trust(root, "changed" if changed else "trusted", tuple(files), tuple(changed), known.get("at"))


def changed_since_trusted(workspace: str) -> tuple[str, ...]:
    """Return the files that changed since the folder was trusted; none for one that is, or never was."""
    if os.path.realpath(workspace) not in _load():
        return ()
    found = state_of(workspace)
    return found.changed or ((found.problem,) if found.problem else ())


def add_trust(workspace: str) -> Trust:
    """Trust a folder as it is now."""
    root = os.path.realpath(workspace)
    now = time.time()
    files, packages = _digest_all(root, {})
    settled = {name: each.status for name, each in packages.items() if each.newest < now - _SETTLED_S}
    _change(lambda known: known.update({root: {"files": files, "packages": settled, "at": now}}))
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
    """Return name → digest of every file of a folder that Surehand would act on, links by where they lead.

    The name of a package that runs, which counts as a whole, ends in a slash. Raises TrustError where it is too much.
    """
    return _digest_all(root, _load().get(os.path.realpath(root), {}))[0]


def _digest_all(root: str, entry: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, Digest]]:
    """Digest all files and packages; `entry`, what the folder was trusted with, saves reading unchanged packages."""
    budget = Budget(root)
    own = [path for name in OWN_FILES if os.path.lexists(path := os.path.join(root, name))]
    for folder in OWN_FOLDERS:
        for path in _walk(os.path.join(root, folder)):
            budget.spend("files")
            own.append(path)
    if not own:
        return {}, {}
    from surehand.policy.trusted_code import find_code  # lazy: trusted_code, 5 ms

    code = find_code(root, own, budget)
    files = {os.path.relpath(path, root): _fingerprint(path, budget) for path in (*own, *code.files)}
    packages: dict[str, Digest] = {}
    for path in code.packages:
        name = os.path.relpath(path, root) + "/"
        before: tuple[Any, Any] = (entry.get("packages", {}).get(name), entry.get("files", {}).get(name))
        packages[name] = digest_package(path, root, budget, before)
        files[name] = packages[name].contents
    return files, packages


def trusted_files(workspace: str) -> frozenset[str]:
    """Return the real paths of the files and packages a folder was trusted with; none for an untrusted folder.

    Of a package it is the directory: use `lies_in` to look a path up.
    """
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


def lies_in(path: str, trusted: frozenset[str]) -> bool:
    """Return whether a path (a directory's may end in a slash) is one of the trusted files, or is in a package."""
    if "/__pycache__" in path:  # a cache: programs write it whenever they import
        return path in trusted
    here = path.rstrip("/")
    while here not in trusted:
        if here in ("", "/"):
            return False
        here = os.path.dirname(here)
    return True


def _walk(folder: str) -> Iterator[str]:
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for each in (here, *(os.path.join(here, name) for name in folders)):
            if os.path.islink(each):
                raise TrustError(f"{each} is a link to a folder, which cannot be trusted; put the folder itself there")
        for name in sorted(names):
            yield os.path.join(here, name)


def _fingerprint(path: str, budget: Budget) -> str:
    try:
        target = os.readlink(path) if os.path.islink(path) else ""
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as problem:
        return f"unreadable: {problem.errno}"
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        return f"not a plain file: {target}"
    import hashlib  # few processes find a folder with files of its own

    with os.fdopen(descriptor, "rb") as file:
        budget.spend("bytes in them", status.st_size)
        return f"{target}:{status.st_mode & 0o111:o}:{hashlib.file_digest(file, 'sha256').hexdigest()}"


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
    if not isinstance(known, dict) or not all(
        isinstance(each, dict) for each in cast("dict[str, Any]", known).values()
    ):
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
