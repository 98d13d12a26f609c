"""The client the official conformance suite watches: Surehand, with the suite's server as one of its MCP servers.

    python tests/mcp/conformance_client.py URL

`make conformance` runs it. It calls what the suite asks for, or every tool the suite's server lists, through the same
door as every other call.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import httpx2

from surehand import Settings, Surehand
from surehand.core.names import full_name
from surehand.core.settings import McpServerSettings
from surehand.testing import Says

SERVER = "suite"
SCHEMA_HOLDER = "json_schema_2020_12_tool"
"""The tool whose schema the suite wants back, as it came out of our registry."""
SAMPLES: Mapping[str, Any] = {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}


def fill_in(message: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Accept a form with the defaults it comes with."""
    fields: Mapping[str, Any] = schema.get("properties", {})
    content = {name: field["default"] for name, field in fields.items() if "default" in field}
    return {"action": "accept", "content": content}


def wanted(app: Surehand) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the calls to make: those the suite names, otherwise one of every tool."""
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    if asked := context.get("toolCalls"):
        for call in asked:
            yield full_name(SERVER, call["name"]), call["arguments"]
        return
    for name in app.servers.tools_of(SERVER):
        if not name.endswith(SCHEMA_HOLDER):
            yield name, arguments(app, name)


def arguments(app: Surehand, name: str) -> dict[str, Any]:
    """Return arguments that a tool's schema takes."""
    schema = schema_of(app, name)
    if "schema" in schema.get("required", ()):
        return {"schema": schema_of(app, full_name(SERVER, SCHEMA_HOLDER))}
    kinds = {field: schema["properties"][field].get("type", "string") for field in schema.get("required", ())}
    return {field: SAMPLES[kind] for field, kind in kinds.items()}


def schema_of(app: Surehand, name: str) -> Mapping[str, Any]:
    info = app.registry.info(name)
    return info.input_schema if info is not None else {}


async def log_in(url: str) -> None:
    """Do what a browser does: the suite's server sends it straight back to us."""
    async with httpx2.AsyncClient(follow_redirects=True, timeout=300) as browser:  # all scenarios run at once
        await browser.get(url)


def registration() -> dict[str, str]:
    """Return how the suite says this client is registered."""
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    given = {key: context[key] for key in ("client_id", "client_secret") if key in context}
    return given | {"client_metadata_url": "https://conformance-test.local/client-metadata.json"}


async def main(url: str) -> int:
    with tempfile.TemporaryDirectory() as workspace:
        os.environ["SUREHAND_HOME"] = os.path.join(workspace, "home")
        servers = {SERVER: McpServerSettings(url=url, **registration())}
        async with Surehand(workspace, settings=Settings(), approver=Says("once"), mcp_servers=servers) as app:
            app.servers.elicit, app.servers.login = fill_in, log_in
            await app.servers.ready(SERVER)
            results = [(name, await app.call(name, args)) for name, args in wanted(app)]
    for name, result in results:
        print(name, result.ok, result.output, file=sys.stderr)
    return 0 if all(result.ok for _, result in results) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[-1])))
