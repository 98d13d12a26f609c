"""A last look at what a request carries: no value of a secret environment variable leaves in it."""

from __future__ import annotations

import os
from typing import Final
from urllib.parse import unquote, unquote_plus

from surehand.commands.environment import is_secret_name
from surehand.core.errors import ToolFailure

SHORTEST: Final = 8
"""Shorter values stand in ordinary text by chance."""


def refuse_secrets(text: str) -> None:
    """Raise ToolFailure when `text`, on its way out, holds the value of a secret variable."""
    shown = (text, unquote(text), unquote_plus(text))
    for name, value in os.environ.items():
        if len(value) >= SHORTEST and is_secret_name(name) and any(value in each for each in shown):
            raise ToolFailure(
                f"the request would carry the value of the environment variable {name}",
                code="permission_denied",
                hint="Leave the secret out; nothing secret is sent by this tool.",
            )
