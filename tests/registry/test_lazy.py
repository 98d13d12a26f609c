"""Tools that are loaded when they are first called, and what happens when that fails."""

from __future__ import annotations

import pytest

from surehand import Tool, ToolCall, tool
from surehand.core.tool import ToolInfo
from surehand.testing import scratch_app


@tool(read_only=True)
async def fine() -> str:
    "Works."
    return "fine"


@pytest.mark.parametrize("problem", [ImportError("no module named x"), NameError("name 'y' is not defined")])
@pytest.mark.parametrize("source", ["user", "model"])
async def test_a_tool_that_cannot_be_loaded_leaves_the_others_alone(problem: Exception, source: str) -> None:
    def load() -> Tool:
        raise problem

    async with scratch_app(tools=[fine], builtin=False) as app:
        app.registry.register_lazy(ToolInfo(name="broken", description="B.", input_schema={"type": "object"}), load)
        calls = [ToolCall(name, {}, source=source) for name in ("broken", "fine")]  # pyright: ignore[reportArgumentType]
        broken, works = await app.run_calls(calls)
    assert works.output == "fine"
    assert broken.error is not None
    assert broken.error.code == "tool_unavailable"
    assert str(problem) in broken.error.message
