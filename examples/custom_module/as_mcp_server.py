"""The module as an MCP server on stdio, for any client:

claude mcp add notes -- python examples/custom_module/as_mcp_server.py
"""

from __future__ import annotations

import asyncio
from typing import Any

from notes import TOOLS

from surehand import Surehand
from surehand.mcp.server.serving import Serving, serve_stdio


def open_app(approver: Any, workspace: str | None) -> Surehand:
    """Open the module for one client; what needs permission is asked of its user."""
    return Surehand(workspace or ".", approver=approver, builtin=False, modules={"notes": TOOLS}, keep_state=False)


async def main() -> None:
    serving = Serving(open_app, name="notes", version="1.2.0")
    try:
        await serve_stdio(serving.server)
    finally:
        await serving.close()


if __name__ == "__main__":
    asyncio.run(main())
