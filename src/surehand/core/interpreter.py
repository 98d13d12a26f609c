"""The interpreter: this Python, started again as a child with an environment of its own."""

from __future__ import annotations

import os
from typing import Final

_LIBRARIES: Final = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


def find_library_paths() -> dict[str, str]:
    """Return the variables without which a Python built with a shared library may not start where it is installed."""
    return {name: os.environ[name] for name in _LIBRARIES if os.environ.get(name)}
