"""For people who write tools: run one through the real engine in a test, on a scratch workspace.

    async def test_word_count():
        result = await run_tool(word_count, {"text": "a b c"})
        assert result.data == 3

In pytest, `pytest_plugins = ["holdfast.testing"]` gives the fixture `holdfast_app`: an application over `tmp_path`
that keeps no state anywhere else and allows what the test allows.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from holdfast.app import Holdfast
from holdfast.core.call import ToolResult
from holdfast.core.settings import Settings
from holdfast.core.tool import Tool
from holdfast.engine.faults import Faults, Playback
from holdfast.policy.approval import Answer, Question

__all__ = ["Faults", "Playback", "Says", "holdfast_app", "holdfast_faults", "run_tool", "scratch_app"]


class Says:
    """An approver that gives a fixed answer and remembers what it was asked."""

    def __init__(self, kind: str = "once", reason: str = "", args: Mapping[str, Any] | None = None) -> None:
        self.answer = Answer(kind, reason, args)  # pyright: ignore[reportArgumentType]
        self.asked: list[Question] = []

    async def ask(self, question: Question) -> Answer:
        self.asked.append(question)
        return self.answer


@asynccontextmanager
async def scratch_app(
    workspace: str | os.PathLike[str] | None = None, *, tools: Sequence[Tool] = (), approve: bool = True, **options: Any
) -> AsyncGenerator[Holdfast]:
    """Open an application on a workspace of its own, with default settings and no state of the user's."""
    with tempfile.TemporaryDirectory(prefix="holdfast-test-") as scratch:
        place = workspace if workspace is not None else scratch
        options.setdefault("approver", Says("once") if approve else Says("no", "the test says no"))
        options.setdefault("settings", Settings())
        options.setdefault("keep_state", False)
        async with Holdfast(place, tools=tools, **options) as app:
            yield app


async def run_tool(tool: Tool, args: Mapping[str, Any] | None = None, **options: Any) -> ToolResult:
    """Run one tool once through the engine, everything approved, and return its result."""
    async with scratch_app(tools=[tool], builtin=False, **options) as app:
        return await app.call(tool.name, args)


try:
    import pytest
except ImportError:  # used outside a test run
    pass
else:

    @pytest.fixture
    async def holdfast_app(tmp_path: Any) -> AsyncGenerator[Holdfast]:  # pyright: ignore[reportUntypedFunctionDecorator]
        """An application over `tmp_path` in which every question is answered with yes."""
        async with scratch_app(tmp_path) as app:
            yield app

    @pytest.fixture
    def holdfast_faults(holdfast_app: Holdfast) -> Faults:  # pyright: ignore[reportUntypedFunctionDecorator]
        """Faults for the tools of `holdfast_app`: `holdfast_faults.inject("WebFetch", "timeout")`."""
        faults = Faults()
        holdfast_app.extend(faults)
        return faults
