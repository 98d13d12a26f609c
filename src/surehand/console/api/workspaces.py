"""Workspaces: the folders that a page can be about, and how one is named in a request."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

from surehand.console.endpoint import ApiError, Endpoint, Given
from surehand.state.locations import Workspace, known_workspaces

if TYPE_CHECKING:
    from surehand.console.server import Console


async def list_workspaces(console: Console, given: Given) -> Any:
    """Return the workspaces of this user, the last used first, and which of them a session runs in."""
    del given
    running = {each["workspace"] for each in console.feed.sessions.values()}
    found = await asyncio.to_thread(known_workspaces)
    return {"workspaces": [{"path": each.path, "running": each.path in running} for each in found]}


async def named_workspace(given: Given) -> Workspace:
    """Return the workspace that a request names, or the last used one; raise ApiError where there is none."""
    found = await asyncio.to_thread(known_workspaces)
    wanted = given.text("workspace", "")
    if not wanted and found:
        return found[0]
    root = await asyncio.to_thread(os.path.realpath, wanted) if wanted else ""
    if (one := next((each for each in found if each.path == root), None)) is None:
        raise ApiError(404, f"there is no workspace {wanted}".strip(), "Work in a folder with Surehand once.")
    return one


ENDPOINTS = (Endpoint("GET", "/api/workspaces", list_workspaces, "Folders somebody worked in, the last used first"),)
