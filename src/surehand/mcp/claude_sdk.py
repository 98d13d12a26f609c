"""The old name of `surehand.integrations.claude_sdk`, for programs that import it from here."""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    """Return what the adapter has under this name."""
    return getattr(importlib.import_module("surehand.integrations.claude_sdk"), name)
