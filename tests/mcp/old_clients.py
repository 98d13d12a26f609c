"""Clients of other projects that want an older SDK, against `surehand serve`: run by `make test-integrations`.

    .venv-oldmcp/bin/python tests/mcp/old_clients.py SUREHAND_PYTHON CHECK

Nothing of Surehand is imported here: the environment has langchain-mcp-adapters and fastmcp with the SDK they take
(`mcp<2`), and the server runs in ours. Prints `ok` when the check holds.
"""

# pyright: basic, reportMissingImports=false

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

WORDS = ["-m", "surehand", "serve", "--allow", "Edit", "--cwd"]


def text(blocks: Any) -> str:
    """Return what a tool of LangChain answered as text."""
    return blocks if isinstance(blocks, str) else "\n".join(each.get("text", "") for each in blocks)


@contextmanager
def http_server(python: str, workspace: str) -> Iterator[str]:
    words = [python, *WORDS, workspace, "--http", "0", "--no-token"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            found = re.search(r"http://\S+", process.stderr.readline())
            assert found is not None
            yield found[0]
        finally:
            process.terminate()


async def edits_in_langchain(connection: dict[str, Any], workspace: str) -> None:
    """Use the adapters as their documentation does: `get_tools()`, which opens a session for every call."""
    from langchain_mcp_adapters.client import MultiServerMCPClient

    file = Path(workspace, "a.txt")
    file.write_text("one\n")
    tools = {tool.name: tool for tool in await MultiServerMCPClient({"surehand": connection}).get_tools()}
    assert {"Read", "Edit", "Bash", "Grep"} <= tools.keys()
    assert "Agent" not in tools
    assert "one" in text(await tools["Read"].ainvoke({"file_path": "a.txt"}))
    said = text(await tools["Edit"].ainvoke({"file_path": "a.txt", "old_string": "one", "new_string": "1"}))
    assert file.read_text() == "1\n", said
    found, listed = await asyncio.gather(
        tools["Grep"].ainvoke({"pattern": "1"}), tools["Glob"].ainvoke({"pattern": "*.txt"})
    )
    assert "a.txt" in text(found)
    assert "a.txt" in text(listed)
    call = {"type": "tool_call", "id": "1", "name": "Glob", "args": {"pattern": "*.txt"}}
    message = await tools["Glob"].ainvoke(call)
    assert message.artifact["structured_content"]["files"][0]["path"] == "a.txt"


async def langchain_stdio(python: str, workspace: str) -> None:
    connection = {"transport": "stdio", "command": python, "args": [*WORDS, workspace], "env": dict(os.environ)}
    await edits_in_langchain(connection, workspace)


async def langchain_http(python: str, workspace: str) -> None:
    with http_server(python, workspace) as url:
        await edits_in_langchain({"transport": "streamable_http", "url": url}, workspace)


async def fastmcp_client(python: str, workspace: str) -> None:
    from fastmcp import Client
    from fastmcp.client.transports import StdioTransport

    file = Path(workspace, "a.txt")
    file.write_text("one\ntwo\n")
    transport = StdioTransport(python, [*WORDS, workspace], env=dict(os.environ))
    async with Client(transport) as client:
        names = {tool.name for tool in await client.list_tools()}
        assert {"Read", "Edit", "Bash", "Grep", "Undo"} <= names
        read = await client.call_tool("Read", {"file_path": "a.txt"})
        assert "one" in read.content[0].text
        edit = await client.call_tool("Edit", {"file_path": "a.txt", "old_string": "one", "new_string": "1"})
        assert edit.structured_content["path"] == str(file)
        assert edit.data.changed is True  # fastmcp makes an object of what the output schema promises
        assert file.read_text() == "1\ntwo\n"
        found = await client.call_tool("Grep", {"pattern": "two"})
        assert found.structured_content["lines"][0]["line"] == 2
        refused = await client.call_tool("Bash", {"command": "touch x"}, raise_on_error=False)
        assert refused.is_error
        await client.call_tool("Undo", {})
        assert file.read_text() == "one\ntwo\n"


CHECKS = {check.__name__: check for check in (langchain_stdio, langchain_http, fastmcp_client)}


def main(python: str, check: str) -> None:
    with tempfile.TemporaryDirectory() as workspace:
        asyncio.run(CHECKS[check](python, os.path.realpath(workspace)))
    print("ok")


if __name__ == "__main__":
    main(*sys.argv[1:])
