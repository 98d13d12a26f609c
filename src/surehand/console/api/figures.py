"""Figures: calls a minute, times, errors, tokens and cost of all workspaces, over an hour, a day or a week."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from surehand import config
from surehand.console.endpoint import ApiError, ApiRequest, Endpoint
from surehand.engine.journal import list_turns
from surehand.engine.recorded_calls import read_recorded_calls
from surehand.models import sum_by_model
from surehand.state import locations

if TYPE_CHECKING:
    from surehand.console.server import Console

BUCKETS: Final = 60
SPANS: Final = {"hour": 3600.0, "day": 86400.0, "week": 7 * 86400.0}
BOUNDS_MS: Final = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000)
"""Upper bounds of the duration histogram's buckets; the last is unbounded."""

Row = dict[str, Any]


async def show_figures(console: Console, request: ApiRequest) -> Any:
    """Return what was done over a span of time, ready to be drawn."""
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
        "slots": _add_slots([slot for told in slots.values() for slot in told.get("slots", ())]),
        "sessions": len(console.feed.sessions),
        "bounds_ms": BOUNDS_MS,
        "tools": by_tool(calls),
        "usage": usage,
        "missed": console.feed.lost,
    }


def _add_slots(slots: list[Row]) -> list[Row]:
    """Return the slots of all sessions by tool, the longest queue first."""
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
    rows = [_tool(name, found) for name, found in of_tool.items()]
    return sorted(rows, key=lambda row: -row["calls"])


def _tool(name: str, calls: list[Row]) -> Row:
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
        "p50_ms": _at(times, 0.5),
        "p95_ms": _at(times, 0.95),
        "times": columns,
    }


def _at(times: list[float], share: float) -> float | None:
    return times[min(len(times) - 1, int(share * len(times)))] if times else None


def _usage(since: float) -> list[Row]:
    """Return tokens and cost by model, from the journals of all sessions."""
    folders = [os.path.join(workspace.state_dir, "sessions") for workspace in locations.known_workspaces()]
    settings = config.load(locations.home()).settings  # the user's own: what is shown is of all workspaces
    return sum_by_model((turn for folder in folders for turn in list_turns(folder, since)), settings)


ENDPOINTS = (
    Endpoint(
        "GET",
        "/api/figures",
        show_figures,
        "Calls, times, errors and tokens over a span of time",
        {"span": "hour, day or week"},
    ),
)
