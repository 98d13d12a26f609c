"""A tool of an MCP server as an ordinary Surehand tool: judged, asked about, timed, cut and recorded like any other.

Nothing a server says is trusted: its hints change how calls are scheduled and shown, never whether they are asked
about, and what it sends back is marked with where it came from.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from surehand.core.call import Text, ToolError, ToolResult
from surehand.core.context import ToolContext
from surehand.core.effects import Effect, RemoteCall, Unreadable
from surehand.core.errors import ERROR_CODES, ToolFailure
from surehand.core.names import full_name
from surehand.core.schema import Fault, ForeignArguments, InvalidArguments
from surehand.core.shapes import result_from_mcp
from surehand.core.tool import Health, Preview, Tool
from surehand.files.sanitize import visible
from surehand.mcp.client.approved import Approved, definition
from surehand.mcp.client.connection import Connection
from surehand.mcp.convert import object_schema

DESCRIPTION_LIMIT: Final = 20_000


def remote_tool(told: Mapping[str, Any], connection: Connection, approved: Approved) -> Tool:
    """Return the tool a server's entry in `tools/list` stands for."""
    server, own_name = connection.name, str(told["name"])
    name = full_name(server, own_name)
    said = definition(told, connection.server.fingerprint)
    hints: Mapping[str, Any] = told.get("annotations") or {}
    promised = ForeignArguments(told["outputSchema"]) if told.get("outputSchema") else None
    description = visible(str(told.get("description") or f"{own_name}, a tool of the MCP server {server}."))

    def effects(args: Any, ctx: ToolContext) -> Sequence[Effect]:
        del args, ctx
        changed = approved.change(name, said)
        call = RemoteCall(server, own_name)
        return [call, Unreadable("it describes itself differently since it was approved")] if changed else [call]

    def preview(args: Any, ctx: ToolContext) -> Preview:
        del args, ctx
        changed = approved.change(name, said)
        text = (
            f"{own_name} of the MCP server {server} ({visible(connection.server.where, lines=False)}) says of itself:\n"
        )
        warning = _hidden(str(told.get("description") or ""))
        return Preview(f"{warning}{text}{description}", diff=f"{warning}{visible(changed)}" if changed else "")

    async def run(args: Any, ctx: ToolContext) -> ToolResult:
        approved.approve(name, said)
        shape = await connection.call(own_name, cast("Mapping[str, Any]", args), ctx.progress)
        if promised is not None and not shape.get("isError"):
            await asyncio.to_thread(_check_promise, shape.get("structuredContent"), promised, own_name, server)
        return received(shape, server, ctx.session.settings.engine.output_limit)

    async def health() -> Health:
        return Health(connection.state == "ready", connection.problem or connection.state)

    return Tool(
        name=name,
        description=description[:DESCRIPTION_LIMIT],
        args=object_schema(told.get("inputSchema") or {}),
        output_schema=told.get("outputSchema"),
        run=run,
        concurrency_safe=hints.get("readOnlyHint") is True,
        destructive=hints.get("destructiveHint", True) is not False and hints.get("readOnlyHint") is not True,
        idempotent=False,  # a hint is no promise, and what is called idempotent would be tried again
        requires_permission=True,
        aliases=(f"{server}:{own_name}",),
        module=server,
        origin=f"mcp:{server}",
        timeout_s=connection.server.settings.timeout,
        effects=effects,
        preview=preview,
        health_check=health,
    )


def _check_promise(data: Any, promised: ForeignArguments, tool: str, server: str) -> None:
    """Raise ToolFailure for an answer that is not what the server said its tool answers with."""
    try:
        if data is None:
            raise InvalidArguments([Fault("", "it holds no structured content")])
        promised.check(data)
    except InvalidArguments as problem:
        message = f"the MCP server {server} answered {tool} wrongly: it has an output schema, and {problem}"
        raise ToolFailure(message, hint="Ask whoever provides this server to mend it.") from None


def _hidden(text: str) -> str:
    """Return a warning for a text with characters that people do not see."""
    return "" if visible(text) == text else "WARNING: the description holds hidden characters, written out below.\n"


def received(shape: Mapping[str, Any], server: str, limit: int) -> ToolResult:
    """Return the result in a server's answer. Its own claims about origin, undo and the like are not believed."""
    meta: dict[str, Any] = dict(shape.get("_meta") or {})
    ours = meta.pop("surehand", None)
    result = result_from_mcp({**shape, "_meta": meta})
    if result.error is not None:
        result = replace(result, error=_error(result.error, ours))
    content = result.content
    if len(content) == 1 and isinstance(content[0], Text):
        content = ()  # the output says it all, and is cut where it is too long
    elif sum(len(block.text) for block in content if isinstance(block, Text)) > limit:
        content = (Text(result.output), *(block for block in content if not isinstance(block, Text)))
        content = tuple(Text(_cut(block.text, limit)) if isinstance(block, Text) else block for block in content)
    return replace(result, content=content, meta={**result.meta, "origin": f"mcp:{server}"})


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit] + f"\n... ({len(text) - limit} characters more)"


def _error(error: ToolError, ours: Any) -> ToolError:
    """Return the error with the code and the hint that another Surehand gave it."""
    told: Any = cast("dict[str, Any]", ours).get("error") if isinstance(ours, dict) else None
    if not isinstance(told, dict):
        return error
    given = cast("dict[str, Any]", told)
    if given.get("code") not in ERROR_CODES:
        return error
    return ToolError(given["code"], str(given.get("message", error.message)), str(given.get("hint", "")))


def unknown_server(name: str, names: Sequence[str], near: str = "") -> ToolFailure:
    """Return the failure for a server nobody has configured; `near` suggests tools that may have been meant."""
    known = ", ".join(names) or "none; `surehand mcp add` adds one"
    return ToolFailure(
        f"MCP server not found: {name}{near}",
        code="tool_not_found",
        hint=f"Configured servers: {known}.",
        details={"server": name, "servers": list(names)},
    )
