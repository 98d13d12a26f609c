"""Audit: the record of every call in a workspace, filtered, and the check that it was not tampered with."""

from __future__ import annotations

import asyncio
import json
import os
from collections import deque
from typing import TYPE_CHECKING, Any

from surehand.console.endpoint import WORKSPACE, ApiRequest, Endpoint, named_workspace
from surehand.engine.audit import records, verify

if TYPE_CHECKING:
    from surehand.console.server import Console


async def list_records(console: Console, request: ApiRequest) -> Any:
    """Return records of a workspace, newest first."""
    del console
    workspace = await named_workspace(request)
    limit, before = request.number("limit", 200, 5000), request.number("before", 0, 2**53)
    tool, text = request.text("tool", ""), request.text("text", "").lower().split()
    refused = request.flag("refused")

    def read() -> tuple[list[dict[str, Any]], int]:
        latest: deque[dict[str, Any]] = deque(maxlen=limit)
        count = 0
        for record in records(os.path.join(workspace.state_dir, "audit")):
            if (before and int(record.get("n", 0)) >= before) or (refused and not record.get("refused")):
                continue
            if (tool and record.get("tool") != tool) or not _has_words(record, text):
                continue
            count += 1
            latest.append(record)
        return list(reversed(latest)), count

    found, count = await asyncio.to_thread(read)
    return {"workspace": workspace.path, "records": found, "total": count}


def _has_words(record: dict[str, Any], words: list[str]) -> bool:
    if not words:
        return True
    text = json.dumps(record, ensure_ascii=False).lower()
    return all(word in text for word in words)


async def verify_chain(console: Console, request: ApiRequest) -> Any:
    """Return whether the chain is whole, and every fault where it is not."""
    del console
    workspace = await named_workspace(request)
    found = await asyncio.to_thread(verify, os.path.join(workspace.state_dir, "audit"))
    return {"workspace": workspace.path, **found.to_dict()}


ENDPOINTS = (
    Endpoint(
        "GET",
        "/api/audit",
        list_records,
        "What was recorded in a workspace, newest first",
        {
            **WORKSPACE,
            "limit": "how many at most",
            "before": "only records before this number, for paging",
            "tool": "only of this tool",
            "refused": "only refused calls",
            "text": "only with all these words",
        },
    ),
    Endpoint("GET", "/api/audit/verify", verify_chain, "Whether the chain of a workspace's audit is whole"),
)
