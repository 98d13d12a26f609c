"""The example module, served as a library and as an MCP server."""

from __future__ import annotations

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
