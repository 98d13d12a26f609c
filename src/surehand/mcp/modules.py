"""Modules of custom tools as MCP servers in this process: one server a module, with its name, version and tools.

    servers = create_mcp_servers(app)
    servers["calculator"].instance      # a server of the `mcp` SDK, for anything that takes one

A tool is called through the application's door, so that arguments are checked, permission is asked and the call is
recorded. A failure comes back as a content list with `isError`, never as an exception.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from surehand.core.call import ToolResult
from surehand.core.names import full_name, provider_safe
from surehand.core.tool import ToolInfo
from surehand.mcp import convert
from surehand.mcp.server.clients import App
from surehand.registry.registry import Registry

if TYPE_CHECKING:
    from mcp.server.lowlevel.server import Server


class AppWithRegistry(App, Protocol):
    """An application whose modules are served."""

    @property
    def registry(self) -> Registry:
        """All tools of the application."""
        ...


@dataclass(frozen=True, slots=True)
class ModuleServer:
    """One module as a server in this process."""

    name: str
    version: str
    tools: tuple[str, ...]
    """The names its tools have for a client, in full form: `mcp__{server}__{tool}`."""
    instance: Server[Any]

    def sdk_config(self) -> dict[str, Any]:
        """Return the server as an entry of `mcp_servers` of the Claude Agent SDK."""
        return {"type": "sdk", "name": self.name, "instance": self.instance}


MakeCall: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[ToolResult]]
"""Makes a call of a tool by its name, through the application's door."""


def create_mcp_servers(app: AppWithRegistry, *modules: str, call: MakeCall | None = None) -> dict[str, ModuleServer]:
    """Return a server for each of the application's modules, or for the modules named, by name."""
    names = modules or tuple(app.registry.modules())
    return {name: create_tools_server(app, name, partial(_members, app, name), call=call) for name in names}


def _members(app: AppWithRegistry, module: str) -> list[ToolInfo]:
    return [info for info in app.selection.infos() if info.module == module]


def create_tools_server(
    app: AppWithRegistry, module: str, list_members: Callable[[], list[ToolInfo]], *, call: MakeCall | None = None
) -> ModuleServer:
    """Return a server in this process for any tools of the application; `call` makes the calls, if not the app."""
    import mcp_types as types
    from mcp.server.caching import CacheHint
    from mcp.server.lowlevel.server import Server
    from mcp.shared.exceptions import MCPError

    members = list_members()
    if not members:
        raise ValueError(f"there is no module {module!r} with tools")
    version = max((info.version for info in members), key=_numbers)
    server: Server[Any] = Server(module, version=version, cache_hints={"tools/list": CacheHint()})

    async def make_call(name: str, args: Mapping[str, Any]) -> ToolResult:
        return await app.call(name, args, source="mcp")

    run = call or make_call

    async def list_tools(ctx: Any, params: Any) -> dict[str, Any]:
        del params
        return _answer(ctx, {"tools": [convert.tool_shape(info) for info in list_members()]})

    async def call_tool(ctx: Any, params: Any) -> dict[str, Any]:
        own = {provider_safe(info.name): info for info in list_members()}
        info = own.get(params.name)
        if info is None:
            raise MCPError(
                types.INVALID_PARAMS, f"Unknown tool: {params.name[:100]}{convert.nearest(params.name, list(own))}"
            )
        result = await run(info.name, params.arguments or {})
        return _answer(ctx, convert.result_shape(result, info.output_schema))

    server.add_request_handler("tools/list", types.PaginatedRequestParams, list_tools)
    server.add_request_handler("tools/call", types.CallToolRequestParams, call_tool)
    tools = tuple(full_name(module, provider_safe(info.name)) for info in members)
    return ModuleServer(module, version, tools, server)


def _answer(ctx: Any, answer: dict[str, Any]) -> dict[str, Any]:
    return {"resultType": "complete", **answer} if convert.is_modern(ctx.protocol_version) else answer


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in version.split("."))
