"""Raw arguments through the door: repaired with a receipt where only one thing can be meant, refused otherwise."""

from __future__ import annotations

from typing import Literal

import pytest

from surehand import tool
from surehand.testing import scratch_app


@tool(read_only=True)
async def permit(action: Literal["allow", "install", "activate", "done"] = "allow", count: int = 1) -> str:
    "Say what was asked for."
    return f"{action} {count}"


@pytest.mark.spec("CORE-10")
@pytest.mark.parametrize("word", ["disallow", "uninstall", "deactivate", "undone"])
async def test_a_word_that_means_the_contrary_is_refused_with_the_choices(word: str) -> None:
    async with scratch_app(tools=[permit]) as app:
        result = await app.call("permit", {"action": word})
    assert result.error is not None
    assert result.error.code == "invalid_args"
    assert all(choice in result.output for choice in ("allow", "install", "activate", "done"))


@pytest.mark.spec("CORE-10")
async def test_true_for_a_number_is_refused() -> None:
    async with scratch_app(tools=[permit]) as app:
        result = await app.call("permit", {"count": True})
        mended = await app.call("permit", {"count": "3", "action": "Allow"})
    assert result.error is not None
    assert result.error.code == "invalid_args"
    assert (mended.output, len(mended.meta["repaired"])) == ("allow 3", 2)
