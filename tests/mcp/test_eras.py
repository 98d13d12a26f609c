"""Which era of the protocol a server is taken to be of, however busy the machine is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from tests.mcp.test_client import opened

from surehand.core.settings import McpServerSettings

SERVER = """
import json, sys

VERSION = "io.modelcontextprotocol/protocolVersion"
TOOL = {"name": "era", "description": "Tell the era.", "inputSchema": {"type": "object"}}
LATE = sys.argv[1] in ("late", "refusing")
REFUSAL = {"code": -32022, "message": "another version", "data": {"supported": ["2026-07-28"], "requested": "?"}}
waiting = None

def send(number, result):
    print(json.dumps({"jsonrpc": "2.0", "id": number, "result": result}), flush=True)

DISCOVERED = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "private",
              "resultType": "complete", "serverInfo": {"name": "busy", "version": "1"}}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "busy", "version": "1"}}
for line in sys.stdin:
    message = json.loads(line)
    number, method = message.get("id"), message["method"]
    modern = VERSION in message.get("params", {}).get("_meta", {})
    if method == "server/discover":
        if LATE and waiting is None:
            waiting = number            # busy: it answers when the client has already given the probe up
        elif LATE:
            send(number, DISCOVERED)
    elif method == "initialize":
        if sys.argv[1] == "refusing":
            print(json.dumps({"jsonrpc": "2.0", "id": waiting, "error": REFUSAL}), flush=True)
        elif LATE:
            send(waiting, DISCOVERED)
        send(number, HELLO)             # it would speak the older protocol too
    elif method == "tools/list":
        send(number, {"tools": [TOOL], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"})
    elif method == "tools/call":
        said = "newer" if modern else "older"
        send(number, {"content": [{"type": "text", "text": said}], "resultType": "complete"})
"""


@pytest.mark.parametrize(("kind", "era"), [("late", "newer"), ("refusing", "newer"), ("silent", "older")])
async def test_a_server_that_answers_the_probe_late_is_of_the_newer_era_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, era: str
) -> None:
    monkeypatch.setattr("mcp.client.session.DISCOVER_TIMEOUT_SECONDS", 0.5)  # the SDK's ten seconds
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    busy: Any = McpServerSettings(command=sys.executable, args=("-S", str(script), kind))
    async with opened(tmp_path, busy=busy) as app:
        result = await app.call("mcp__busy__era")
        assert result.output == era, result.error
