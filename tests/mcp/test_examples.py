"""The example module, served as a library and as an MCP server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from mcp.client.stdio import stdio_client

from mcp import Client, StdioServerParameters

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "custom_module"


def test_the_module_works_as_a_library() -> None:
    ran = subprocess.run([sys.executable, "as_library.py"], cwd=EXAMPLES, capture_output=True, text=True, check=True)
    lines = ran.stdout.splitlines()
    assert "mcp__notes__read_note" in lines[0]
    assert lines[1:3] == ["kept 'milk'", "two litres"]
    assert "needs permission" in lines[3]


async def test_the_module_works_as_a_server() -> None:
    parameters = StdioServerParameters(command=sys.executable, args=["as_mcp_server.py"], cwd=EXAMPLES)
    async with Client(stdio_client(parameters), cache=None) as client:
        assert [each.name for each in (await client.list_tools()).tools] == ["add_note", "read_note", "drop_note"]
        missing = await client.call_tool("read_note", {"title": "milk"})
        assert missing.is_error
        assert "there is no note 'milk'" in missing.content[0].text


def test_the_server_ends_quietly_when_its_client_closes_with_calls_under_way() -> None:
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "pipe", "version": "1"}}
    sent = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/call",
            "params": {"name": "read_note", "arguments": {"title": "a"}},
        },
    ]
    text = "".join(json.dumps(each) + "\n" for each in sent)
    command = [sys.executable, "as_mcp_server.py"]
    ran = subprocess.run(command, cwd=EXAMPLES, input=text, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert json.loads(ran.stdout.splitlines()[0])["id"] == 1
