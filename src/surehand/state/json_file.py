"""Small private files, JSON or text: the one way they are written.

A reader finds the old content or the new one, whole, and nobody else can read either.
"""

from __future__ import annotations

import json
import os
from typing import Any, Final

PRIVATE: Final = 0o600
_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write_private(path: str, data: str | bytes, *, mode: int = PRIVATE, flush: bool = True) -> None:
    """Replace a file in one step; when this fails, the old one stays and nothing is left beside it.

    `flush` waits until the disk has the bytes: leave it out only for what may be lost in a power cut.
    """
    fresh = f"{path}.{os.urandom(4).hex()}.new"
    content = data.encode("utf-8") if isinstance(data, str) else data
    try:
        with open(os.open(fresh, _FLAGS, PRIVATE), "wb") as file:
            file.write(content)
            file.flush()
            if mode != PRIVATE:
                os.fchmod(file.fileno(), mode)
            if flush:
                os.fsync(file.fileno())
        os.replace(fresh, path)
    except BaseException:
        if os.path.lexists(fresh):
            os.unlink(fresh)
        raise


def write_private_json(path: str, value: Any, *, flush: bool = True) -> None:
    """Replace a JSON file in one step, for this user alone."""
    write_private(path, json.dumps(value, indent=1, sort_keys=True) + "\n", flush=flush)


def mode_of(path: str) -> int:
    """Return the mode of a file to be replaced, such as settings a person may share; private where there is none."""
    try:
        return os.stat(path).st_mode & 0o777
    except FileNotFoundError:
        return PRIVATE
