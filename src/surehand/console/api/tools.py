"""Tools: each with its schema, flags, state and figures, switched on and off, and called through the door."""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import TYPE_CHECKING, Any

from surehand.config import set_value
from surehand.console.api.figures import SPANS, by_tool
from surehand.console.endpoint import WORKSPACE, ApiError, ApiRequest, Endpoint, named_workspace
from surehand.engine.audit import records
from surehand.state.locations import Workspace

if TYPE_CHECKING:
    from surehand.console.server import Console

Row = dict[str, Any]


async def list_tools(console: Console, request: ApiRequest) -> Any:
    """Return the tools of a workspace, each with statistics of its calls of the last week."""
    workspace = await named_workspace(request)
    app = await console.apps.app(workspace.path)
    done = await asyncio.to_thread(_read_recent_calls, workspace)
    figures = {each["tool"]: each for each in by_tool(done)}
    rows: list[Row] = []
    for info in app.registry.infos():
        shape = info.to_dict()
        own = app.settings.tools.get(info.name)
        state = "switched off" if own is not None and not own.enabled else app.registry.lifecycle.state(info.name)
        rows.append({**shape, "state": state, "figures": figures.get(info.name)})
    return {"workspace": workspace.path, "tools": rows}


def _read_recent_calls(workspace: Workspace) -> list[Row]:
    since = time.time() - SPANS["week"]
    found = records(os.path.join(workspace.state_dir, "audit"))
    return [each for each in found if each.get("kind") == "call" and each.get("at", 0.0) >= since]


async def check_health(console: Console, request: ApiRequest) -> Any:
    """Run a tool's health check."""
    workspace = await named_workspace(request)
    app = await console.apps.app(workspace.path)
    (report,) = await app.health.check_all([request.text("tool")])
    return report.to_dict()


async def switch_tool(console: Console, request: ApiRequest) -> Any:
    """Switch a tool on or off in the user's settings; sessions that run take it up with their next call."""
    workspace = await named_workspace(request)
    app = await console.apps.app(workspace.path)
    name, wanted = request.text("tool"), request.flag("enabled")
    if name not in app.registry:
        raise ApiError(404, f"there is no tool {name!r} in {workspace.path}")
    file, _ = await asyncio.to_thread(set_value, f"tools.{name}.enabled", json.dumps(wanted))
    taken = await console.spread_settings()
    own = app.settings.tools.get(name)
    if (own is None or own.enabled) != wanted:
        raise ApiError(
            409,
            f"{file} has it now, but other settings of this workspace say otherwise",
            f"`surehand config show` names the source of tools.{name}.enabled.",
        )
    return {"tool": name, "enabled": wanted, "file": file, "sessions": taken}


async def call_tool(console: Console, request: ApiRequest) -> Any:
    """Call a tool through the door, or show what the call would do."""
    workspace = await named_workspace(request)
    args = request.mapping("args")
    if args is None:
        raise ApiError(400, "args is missing")
    result = await console.apps.call(workspace.path, request.text("tool"), args, dry_run=request.flag("dry_run"))
    return result.to_dict()


ENDPOINTS = (
    Endpoint("GET", "/api/tools", list_tools, "The tools of a workspace, each with its figures", WORKSPACE),
    Endpoint("POST", "/api/tools/health", check_health, "How a tool is", {**WORKSPACE, "tool": "its name"}),
    Endpoint(
        "POST",
        "/api/tools/switch",
        switch_tool,
        "Switch a tool on or off in the user's settings; running sessions take it up",
        {**WORKSPACE, "tool": "its name", "enabled": "whether it may be called"},
    ),
    Endpoint(
        "POST",
        "/api/tools/call",
        call_tool,
        "Call a tool through the door",
        {**WORKSPACE, "tool": "its name", "args": "its arguments", "dry_run": "only show what it would do"},
    ),
)
