"""For people who write tools: run one through the real engine in a test, on a scratch workspace.

    async def test_word_count():
        result = await run_tool(word_count, {"text": "a b c"})
        assert result.data == 3

In pytest, `pytest_plugins = ["surehand.testing"]` gives the fixture `surehand_app`: an application over `tmp_path`
that keeps no state anywhere else and allows what the test allows.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from surehand.app import Surehand
from surehand.core.call import ToolResult
from surehand.core.settings import Settings
from surehand.core.tool import Tool
from surehand.engine.faults import Faults, Playback
from surehand.policy.approvals import Answer, Question

__all__ = ["Faults", "Playback", "Says", "run_tool", "scratch_app", "surehand_app", "surehand_faults"]


class Says:
    """An approver that gives a fixed answer and remembers what it was asked."""

    def __init__(self, kind: str = "once", reason: str = "", args: Mapping[str, Any] | None = None) -> None:
        self.answer = Answer(kind, reason, args)  # pyright: ignore[reportArgumentType]
        self.asked: list[Question] = []

    async def ask(self, question: Question) -> Answer:
        """Keep the question, and give the answer."""
        self.asked.append(question)
        return self.answer


@asynccontextmanager
async def scratch_app(
    workspace: str | os.PathLike[str] | None = None, *, tools: Sequence[Tool] = (), approve: bool = True, **options: Any
) -> AsyncGenerator[Surehand]:
    """Open an application on a workspace of its own, with default settings and no state of the user's."""
    with tempfile.TemporaryDirectory(prefix="surehand-test-") as scratch:
        place = workspace if workspace is not None else scratch
        options.setdefault("approver", Says("once") if approve else Says("no", "the test says no"))
        options.setdefault("settings", Settings())
        options.setdefault("keep_state", False)
        async with Surehand(place, tools=tools, **options) as app:
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
    async def surehand_app(tmp_path: Any) -> AsyncGenerator[Surehand]:  # pyright: ignore[reportUntypedFunctionDecorator]
        """An application over `tmp_path` in which every question is answered with yes."""
        async with scratch_app(tmp_path) as app:
            yield app

    @pytest.fixture
    def surehand_faults(surehand_app: Surehand) -> Faults:  # pyright: ignore[reportUntypedFunctionDecorator]
        """Faults for the tools of `surehand_app`: `surehand_faults.inject("WebFetch", "timeout")`."""
        faults = Faults()
        surehand_app.extend(faults)
        return faults
