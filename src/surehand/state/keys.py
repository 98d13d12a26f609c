"""Keys of model providers and logins: from the environment, the system's keyring, or a private file.

A key is never part of settings, logs, events or the environments of child processes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from typing import Any, Final, cast

from surehand.core.errors import StateError
from surehand.state import locations
from surehand.state.files import write_private_json

_SERVICE: Final = "surehand"


def get(provider: str, variables: Iterable[str]) -> tuple[str, str] | None:
    """Return a key and its source (one of `variables`, or where it is stored), or None."""
    for variable in variables:
        if key := os.environ.get(variable, "").strip():
            return key, variable
    return _find(provider)


def put(provider: str, key: str) -> str:
    """Store a key in the keyring if there is one, else in the private file, and return which."""
    key = key.strip()
    if not key or any(character.isspace() or not character.isprintable() for character in key):
        raise StateError("a key is one word of printable characters; nothing was stored")
    return save_secret(provider, key)


def remove(provider: str) -> list[str]:
    """Delete a key wherever it is stored, and return where it was; environment variables are not changed."""
    removed: list[str] = []
    if (ring := _keyring()) is not None and ring.get_password(_SERVICE, provider):
        ring.delete_password(_SERVICE, provider)
        removed.append("keyring")
    with _locked_file():
        stored = _read_file()
        if stored.pop(provider, None):
            _write_file(stored)
            removed.append(path())
    return removed


def load_secret(name: str) -> str | None:
    """Return a stored secret other than a provider's key (a login), or None."""
    found = _find(name)
    return found[0] if found is not None else None


def save_secret(name: str, text: str) -> str:
    """Store a secret like a key, and return where."""
    if (ring := _keyring()) is not None:
        ring.set_password(_SERVICE, name, text)
        return "keyring"
    with _locked_file():
        _write_file({**_read_file(), name: text})
    return path()


def remove_secret(name: str) -> bool:
    """Delete a secret; return whether there was one."""
    return bool(remove(name))


def _find(name: str) -> tuple[str, str] | None:
    if (ring := _keyring()) is not None and (key := ring.get_password(_SERVICE, name)):
        return key, "keyring"
    if key := _read_file().get(name):
        return key, "private file"
    return None


def path() -> str:
    """Return the path of the private file."""
    return os.path.join(locations.home(), "keys.json")


def _read_file() -> dict[str, str]:
    try:
        descriptor = os.open(path(), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as problem:
        raise StateError(f"{path()} cannot be read: {problem.strerror}") from None
    with os.fdopen(descriptor, encoding="utf-8") as file:
        if os.fstat(file.fileno()).st_mode & 0o077:
            raise StateError(f"{path()} can be read by others; run: chmod 600 {path()}")
        try:
            stored = json.load(file)
        except ValueError:
            raise StateError(f"{path()} is damaged; remove it and set your keys again") from None
    return cast("dict[str, str]", stored) if isinstance(stored, dict) else {}


@contextmanager
def _locked_file() -> Generator[None]:
    """Lock the file, so that no other process writes it between our reading and writing."""
    descriptor = os.open(locations.private_dir(os.path.dirname(path())), os.O_RDONLY | os.O_CLOEXEC)
    try:
        flock(descriptor, LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write_file(stored: dict[str, str]) -> None:
    locations.private_dir(os.path.dirname(path()))
    write_private_json(path(), stored)


def _keyring() -> Any:
    """Return the keyring module if it is installed and has a real backend."""
    try:
        import keyring  # pyright: ignore[reportMissingImports, reportUnknownVariableType]
        from keyring.backends import fail, null  # pyright: ignore
    except ImportError:
        return None
    backend: Any = keyring.get_keyring()  # pyright: ignore
    return None if isinstance(backend, fail.Keyring | null.Keyring) else keyring  # pyright: ignore
