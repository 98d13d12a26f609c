"""The client the official conformance suite watches: Holdfast, with the suite's server as one of its MCP servers.

npx @modelcontextprotocol/conformance client --command "python tests/mcp/conformance_client.py" --scenario tools_call
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from holdfast import Holdfast, Settings
from holdfast.core.settings import McpServerSettings
from holdfast.testing import Says

ARGUMENTS: dict[str, dict[str, Any]] = {"add_numbers": {"a": 5, "b": 3}}


def fill_in(message: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Accept a form with the defaults it comes with."""
    fields: Mapping[str, Any] = schema.get("properties", {})
    content = {name: field["default"] for name, field in fields.items() if "default" in field}
    return {"action": "accept", "content": content}


async def main(url: str) -> int:
    with tempfile.TemporaryDirectory() as workspace:
        os.environ["HOLDFAST_HOME"] = os.path.join(workspace, "home")
        servers = {"suite": McpServerSettings(url=url)}
        async with Holdfast(workspace, settings=Settings(), approver=Says("once"), mcp_servers=servers) as app:
            app.servers.elicit = fill_in
            await app.servers.ready("suite")
            failed = 0
            for name in app.servers.tools_of("suite"):
                result = await app.call(name, ARGUMENTS.get(name.rpartition("__")[2], {}))
                print(name, result.ok, result.output, file=sys.stderr)
                failed += not result.ok
            return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[-1])))
