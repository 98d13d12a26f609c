"""A gateway before three MCP servers: one policy, one audit, one list of tools, whoever serves them.

python examples/gateway.py
"""

import asyncio
import sys

from surehand import Surehand
from surehand.core.settings import McpServerSettings

SERVER = """
from mcp.server import MCPServer
server = MCPServer({name!r})
@server.tool()
def {name}_hello(who: str) -> str:
    "Greet somebody."
    return "{name} greets " + who
server.run()
"""


def serve(name: str) -> McpServerSettings:
    return McpServerSettings(command=sys.executable, args=("-c", SERVER.format(name=name)))


async def main() -> None:
    servers = {name: serve(name) for name in ("alpha", "beta", "gamma")}
    async with Surehand(".", mcp_servers=servers, allow=["mcp__alpha", "mcp__beta"]) as app:
        await app.connect_servers(patience_s=60)
        for name in servers:
            result = await app.call(f"mcp__{name}__{name}_hello", {"who": "you"})
            print(name, result.output if result.ok else result.error and result.error.code)


if __name__ == "__main__":
    asyncio.run(main())
