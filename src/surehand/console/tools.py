"""Tools of a workspace, and statistics of all workspaces: calls, durations, errors, tokens and cost."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from surehand import config
from surehand.config import set_value
from surehand.console.access import WORKSPACE, ApiError, ApiRequest, Endpoint, find_workspace
from surehand.engine.audit import records
from surehand.engine.channel import read_recorded_calls
from surehand.engine.journal import list_turns
from surehand.models import sum_by_model
from surehand.state import locations
from surehand.state.locations import Workspace

if TYPE_CHECKING:
    from surehand.console.server import Console

Row = dict[str, Any]


async def list_tools(console: Console, request: ApiRequest) -> Any:
    """Return the tools of a workspace, each with statistics of its calls of the last week."""
    workspace = await find_workspace(request)
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
    workspace = await find_workspace(request)
    app = await console.apps.app(workspace.path)
    (report,) = await app.health.check_all([request.text("tool")])
    return report.to_dict()


async def switch_tool(console: Console, request: ApiRequest) -> Any:
    """Switch a tool on or off in the user's settings and reload them in running sessions."""
    workspace = await find_workspace(request)
    app = await console.apps.app(workspace.path)
    name, wanted = request.text("tool"), request.flag("enabled")
    if name not in app.registry:
        raise ApiError(404, f"there is no tool {name!r} in {workspace.path}")
    file, _ = await asyncio.to_thread(set_value, f"tools.{name}.enabled", json.dumps(wanted))
    reloaded = await console.reload_all_settings()
    own = app.settings.tools.get(name)
    if (own is None or own.enabled) != wanted:
        raise ApiError(
            409,
            f"{file} has it now, but other settings of this workspace say otherwise",
            f"`surehand config show` names the source of tools.{name}.enabled.",
        )
    return {"tool": name, "enabled": wanted, "file": file, "sessions": reloaded}


async def call_tool(console: Console, request: ApiRequest) -> Any:
    """Make a call, or a dry run of it."""
    workspace = await find_workspace(request)
    args = request.mapping("args")
    if args is None:
        raise ApiError(400, "args is missing")
    result = await console.apps.call(workspace.path, request.text("tool"), args, dry_run=request.flag("dry_run"))
    return result.to_dict()


BUCKETS: Final = 60
SPANS: Final = {"hour": 3600.0, "day": 86400.0, "week": 7 * 86400.0}
BOUNDS_MS: Final = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000)
"""Upper bounds of the duration histogram's buckets; the last is unbounded."""


async def show_figures(console: Console, request: ApiRequest) -> Any:
    """Return the statistics of a time span, in the form that the charts need."""
    span = request.text("span", "hour")
    if span not in SPANS:
        raise ApiError(400, f"there is no span {span!r}", f"Spans: {', '.join(SPANS)}.")
    until = time.time()
    since = until - SPANS[span]
    calls, usage = await asyncio.to_thread(_read, since)
    width = SPANS[span] / BUCKETS
    counts, errors = [0] * BUCKETS, [0] * BUCKETS
    for call in calls:
        at = min(BUCKETS - 1, max(0, int((call["at"] - since) / width)))
        counts[at] += 1
        errors[at] += not call.get("ok")
    slots = await console.ask_every_session({"want": "slots"}, 2.0)
    running = [each for each in console.feed.calls.values() if each.get("state") == "running"]
    return {
        "since": since,
        "until": until,
        "width_s": width,
        "calls": counts,
        "errors": errors,
        "total": len(calls),
        "running": len(running),
        "slots": _add_slots([slot for each in slots.values() for slot in each.get("slots", ())]),
        "sessions": len(console.feed.sessions),
        "bounds_ms": BOUNDS_MS,
        "tools": by_tool(calls),
        "usage": usage,
        "missed": console.feed.lost,
    }


def _add_slots(slots: list[Row]) -> list[Row]:
    """Sum the slots of all sessions by tool, the longest queue first."""
    found: dict[str, Row] = {}
    for slot in slots:
        row = found.setdefault(str(slot["tool"]), {"tool": slot["tool"], "running": 0, "waiting": 0, "limit": 0})
        for key in ("running", "waiting", "limit"):
            row[key] += int(slot[key])
    return sorted(found.values(), key=lambda row: (-row["waiting"], -row["running"]))


def _read(since: float) -> tuple[list[Row], list[Row]]:
    unreadable: list[str] = []
    return list(read_recorded_calls(since, unreadable.append)), _usage(since)


def by_tool(calls: list[Row]) -> list[Row]:
    """Return the statistics of calls by tool, the most called first."""
    of_tool: dict[str, list[Row]] = {}
    for call in calls:
        of_tool.setdefault(str(call["tool"]), []).append(call)
    rows = [_summarize_tool(name, found) for name, found in of_tool.items()]
    return sorted(rows, key=lambda row: -row["calls"])


def _summarize_tool(name: str, calls: list[Row]) -> Row:
    times = sorted(float(each["ms"]) for each in calls if isinstance(each.get("ms"), int | float))
    columns = [0] * (len(BOUNDS_MS) + 1)
    for each in times:
        columns[next((at for at, bound in enumerate(BOUNDS_MS) if each <= bound), len(BOUNDS_MS))] += 1
    errors: list[Row] = [each.get("error") or {} for each in calls if not each.get("ok")]
    codes = Counter(str(each.get("code", "failed")) for each in errors)
    return {
        "tool": name,
        "calls": len(calls),
        "errors": dict(codes.most_common()),
        "p50_ms": _quantile(times, 0.5),
        "p95_ms": _quantile(times, 0.95),
        "times": columns,
    }


def _quantile(times: list[float], share: float) -> float | None:
    return times[min(len(times) - 1, int(share * len(times)))] if times else None


def _usage(since: float) -> list[Row]:
    """Return tokens and cost by model, from the journals of all sessions."""
    folders = [os.path.join(workspace.state_dir, "sessions") for workspace in locations.known_workspaces()]
    settings = config.load(locations.home()).settings  # the user's own settings: the figures are of all workspaces
    return sum_by_model((turn for folder in folders for turn in list_turns(folder, since)), settings)


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
    Endpoint(
        "GET",
        "/api/figures",
        show_figures,
        "Calls, times, errors and tokens over a span of time",
        {"span": "hour, day or week"},
    ),
)
