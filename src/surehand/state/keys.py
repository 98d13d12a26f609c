"""Keys of model providers, and logins: from the environment, the system's keyring, or a file only the user can read.

A key is never part of settings, logs, events or child processes' environments.
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
    """Return (key, where it came from: one of `variables`, or where it is kept), or None when there is none."""
    for variable in variables:
        if key := os.environ.get(variable, "").strip():
            return key, variable
    return _find(provider)


def put(provider: str, key: str) -> str:
    """Keep a key and return where: the keyring where there is one, otherwise the private file."""
    key = key.strip()
    if not key or any(character.isspace() or not character.isprintable() for character in key):
        raise StateError("a key is one word of printable characters; nothing was stored")
    return save_secret(provider, key)


def remove(provider: str) -> list[str]:
    """Forget a key everywhere it is kept, and return where it was; variables are the user's to unset."""
    gone: list[str] = []
    if (ring := _keyring()) is not None and ring.get_password(_SERVICE, provider):
        ring.delete_password(_SERVICE, provider)
        gone.append("keyring")
    with _alone():
        kept = _file()
        if kept.pop(provider, None):
            _write(kept)
            gone.append(path())
    return gone


def load_secret(name: str) -> str | None:
    """Return a secret that is no provider's key (a login), or None."""
    found = _find(name)
    return found[0] if found is not None else None


def save_secret(name: str, text: str) -> str:
    """Keep a secret as keys are kept, and return where."""
    if (ring := _keyring()) is not None:
        ring.set_password(_SERVICE, name, text)
        return "keyring"
    with _alone():
        _write({**_file(), name: text})
    return path()


def remove_secret(name: str) -> bool:
    """Forget a secret; say whether there was one."""
    return bool(remove(name))


def _find(name: str) -> tuple[str, str] | None:
    if (ring := _keyring()) is not None and (key := ring.get_password(_SERVICE, name)):
        return key, "keyring"
    if key := _file().get(name):
        return key, "private file"
    return None


def path() -> str:
    """Return where keys are kept when there is no keyring."""
    return os.path.join(locations.home(), "keys.json")


def _file() -> dict[str, str]:
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
            kept = json.load(file)
        except ValueError:
            raise StateError(f"{path()} is damaged; remove it and set your keys again") from None
    return cast("dict[str, str]", kept) if isinstance(kept, dict) else {}


@contextmanager
def _alone() -> Generator[None]:
    """Keep other processes from writing the file between our reading and writing it."""
    descriptor = os.open(locations.private_dir(os.path.dirname(path())), os.O_RDONLY | os.O_CLOEXEC)
    try:
        flock(descriptor, LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write(kept: dict[str, str]) -> None:
    locations.private_dir(os.path.dirname(path()))
    write_private_json(path(), kept)


def _keyring() -> Any:
    """Return the keyring module when it is installed and has a real back end."""
    try:
        import keyring  # pyright: ignore[reportMissingImports, reportUnknownVariableType]
        from keyring.backends import fail, null  # pyright: ignore
    except ImportError:
        return None
    backend: Any = keyring.get_keyring()  # pyright: ignore
    return None if isinstance(backend, fail.Keyring | null.Keyring) else keyring  # pyright: ignore
