"""One turn of a model, tried again where its server is overloaded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from surehand.core.model import Model, ModelError, ModelRequest, TextDelta, Turn

RETRY_WAITS_S: Final = (1.0, 4.0, 15.0)
"""Waits before trying an overloaded model again, where its server does not ask for longer ones."""
LONGEST_WAIT_S: Final = 60.0
"""What is waited at most; a server that wants more is left to the user's patience."""


async def speak(
    model: Model, request: ModelRequest, on_text: Callable[[str], None], on_wait: Callable[[str], None]
) -> Turn:
    """Return a model's turn; its text goes to `on_text` as it comes, what is waited for to `on_wait`."""
    for wait_s in (*RETRY_WAITS_S, None):
        spoken = False
        try:
            async for event in model.stream(request):
                if not isinstance(event, TextDelta):
                    return event
                spoken = True
                on_text(event.text)
            raise ModelError(f"{model.name} ended its stream without a turn", "Try again.", retryable=True)
        except ModelError as problem:
            # Once a piece of the answer was shown, another try would show it twice.
            if not problem.retryable or spoken or wait_s is None or problem.after_s > LONGEST_WAIT_S:
                raise
            wait_s = max(wait_s, problem.after_s)
            on_wait(f"{problem.message}; trying again in {wait_s:g} s")
            await asyncio.sleep(wait_s)
    raise AssertionError("unreachable")
