"""The console's apps: one application for each that a page acts in, opened on first use.

What a person does in the page is a call like any other: judged, recorded, undoable. That they clicked is its approval,
for the tools that the page names and for nothing else.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, Self

from surehand.app import Surehand
from surehand.console.endpoint import ApiError
from surehand.core.call import ToolResult
from surehand.policy.approvals import Answer, Question
from surehand.state.workspaces import known_workspaces


class Apps:
    """The applications of the console, by workspace."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._open: dict[str, Surehand] = {}
        self._opening = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self._stack.aclose()

    async def app(self, workspace: str) -> Surehand:
        """Return the application of a workspace; raise ApiError for a folder that is none."""
        root = await asyncio.to_thread(os.path.realpath, workspace)
        async with self._opening:
            if (app := self._open.get(root)) is not None:
                return app
            if not any(each.path == root for each in await asyncio.to_thread(known_workspaces)):
                raise ApiError(404, f"nothing is known of a workspace {workspace}")
            app = Surehand(root, approver=_agree, interactive=True)
            self._open[root] = await self._stack.enter_async_context(app)
            return app

    def reload_settings(self) -> None:
        """Take up in every application what was saved in the settings."""
        for app in self._open.values():
            app.reload_settings()

    async def call(self, workspace: str, tool: str, args: Mapping[str, Any], *, dry_run: bool = False) -> ToolResult:
        """Make a call that the person at the page asked for, or show what it would do."""
        app = await self.app(workspace)
        return await app.dry_run(tool, args) if dry_run else await app.call(tool, args)


async def _agree(question: Question) -> Answer:
    """Answer for the person: the click in the page, after its preview, was the yes to this very call.

    A call that it makes in turn (undo by a call, where something else than files was changed) is asked about by itself,
    in the page.
    """
    if question.call.parent is not None:
        await asyncio.Event().wait()
    return Answer("once")
