"""All MCP servers of an application: connected when first wanted, their tools registered beside the others.

servers = Servers(configured, registry, session)
await servers.ready("time")            # or `connect_all()`; calls connect by themselves
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from surehand.core.errors import RegistrationError, ToolFailure
from surehand.core.names import full_name, name_problems, split_full_name
from surehand.core.session import Session
from surehand.core.settings import McpServerSettings
from surehand.core.tool import Tool
from surehand.mcp import convert
from surehand.mcp.client.approved import Approved
from surehand.mcp.client.config import Configured, name_problem
from surehand.mcp.client.connection import PAUSES_S, Connection, Elicit, State
from surehand.mcp.client.remote import remote_tool, unknown_server
from surehand.registry.lifecycle import IllegalTransition
from surehand.registry.registry import Registry

AT_ONCE: Final = 50
"""Tools of a server that are registered before other work gets its turn."""


class Servers:
    """The servers by name, each with its connection and its tools in the registry."""

    def __init__(
        self,
        configured: Mapping[str, Configured],
        registry: Registry,
        session: Session,
        *,
        pauses_s: Sequence[float] = PAUSES_S,
    ) -> None:
        self._registry = registry
        self._session = session
        self.elicit: Elicit | None = None
        """Answers the forms servers ask to be filled in; without it, servers are told that nobody does."""
        self.introduced_as = "surehand"
        """The name servers are told; one of them may treat a program that passes its tools on differently."""
        self._pauses_s = pauses_s
        self._approved = Approved(session.state_dir)
        self._connections: dict[str, Connection] = {}
        self._tools: dict[str, dict[str, Mapping[str, Any]]] = {}
        self._refused: dict[str, tuple[str, ...]] = {}
        """Full names of tools that servers list and that cannot be registered, with what is wrong with each."""
        for server in configured.values():
            if server.settings.enabled:
                self._add(server)

    def add(self, name: str, settings: McpServerSettings) -> None:
        """Add a server from code; raise ToolFailure for a name that is taken or cannot be one."""
        problem = name_problem(name) or (f"there is already a server {name}" if name in self._connections else "")
        if problem:
            raise ToolFailure(problem, code="invalid_args")
        self._add(Configured(name, settings, "code"))

    def _add(self, server: Configured) -> None:
        self._connections[server.name] = Connection(
            server,
            session=self._session,
            found=lambda tools: self._found(server.name, tools),
            moved=self._moved,
            elicit=lambda: self.elicit,
            introduced_as=lambda: self.introduced_as,
            pauses_s=self._pauses_s,
        )

    def names(self) -> list[str]:
        """Return the names of all servers."""
        return list(self._connections)

    def configured(self) -> dict[str, Configured]:
        """Return how each server is set up, by name."""
        return {name: connection.server for name, connection in self._connections.items()}

    def get(self, name: str) -> Connection:
        """Return the connection to a server; raise ToolFailure for a name nobody configured."""
        connection = self._connections.get(name)
        if connection is None:
            raise unknown_server(name, self.names())
        return connection

    def tools_of(self, name: str) -> list[str]:
        """Return the full names of a server's tools, as far as they are known."""
        return [full_name(name, each) for each in self._tools.get(name, {})]

    async def ready(self, name: str) -> Connection:
        """Return the connection to a server once it can be called; raise ToolFailure when it cannot."""
        connection = self.get(name)
        await connection.ready()
        return connection

    async def connect_all(
        self, names: Sequence[str] | None = None, *, patience_s: float | None = None
    ) -> dict[str, str]:
        """Connect to all servers, or to those named, at once and return why those that failed did.

        After `patience_s` those that are silent are left to go on by themselves: they hold up nobody else's tools.
        """
        tasks = {name: asyncio.ensure_future(self.ready(name)) for name in (self.names() if names is None else names)}
        if tasks:
            await asyncio.wait(tasks.values(), timeout=patience_s)
        problems: dict[str, str] = {}
        for name, task in tasks.items():
            if not task.done():
                task.cancel()  # only the waiting: the connection is a task of its own
                problems[name] = f"no answer within {patience_s:g} s; its tools come when it answers"
            elif (problem := task.exception()) is not None:
                problems[name] = str(problem)
        return problems

    async def seek(self, name: str) -> None:
        """Connect to the server that a tool's name speaks of; raise ToolFailure when there is no such server."""
        found = split_full_name(name)
        if found is None:
            server, colon, tool = name.partition(":")
            found = (server, tool) if colon and tool and not name_problem(server) else None
        if found is None or (found[0] in self._registry.modules() and full_name(*found) not in self._refused):
            return
        if found[0] not in self._connections:
            raise unknown_server(found[0], self.names(), convert.nearest(name, list(self._registry)))
        await self.ready(found[0])
        if faults := self._refused.get(full_name(*found)):
            raise ToolFailure(
                f"{full_name(*found)} cannot be used: {'; '.join(faults)}",
                code="tool_unavailable",
                hint=f"Ask whoever provides the MCP server {found[0]} to mend it.",
            )

    async def close(self) -> None:
        """End every connection."""
        await asyncio.gather(*(connection.close() for connection in self._connections.values()))

    # -- tools come and go -------------------------------------------------------------------------------------------

    async def _found(self, server: str, listed: Sequence[Mapping[str, Any]]) -> None:
        """Register what a server lists now, in place of what it listed before."""
        connection, before = self._connections[server], self._tools.get(server, {})
        now: dict[str, Mapping[str, Any]] = {}
        left_out: list[str] = []
        for number, told in enumerate(listed):
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)  # checking thousands of schemas takes a while; other calls go on between them
            name = str(told.get("name", ""))
            problems = name_problems(name) or ([f"{name!r} is listed twice"] if name in now else [])
            if problems:
                left_out += problems
            elif told == before.get(name) or self._register(remote_tool(told, connection, self._approved), left_out):
                now[name] = told
        for name in before.keys() - now.keys():
            with suppress(RegistrationError):
                self._registry.unregister(full_name(server, name), cascade=True)
        self._tools[server] = now
        if left_out:
            shown = "; ".join(left_out[:5]) + (f" and {len(left_out) - 5} more" if len(left_out) > 5 else "")
            self._session.emit("note", message=f"tools of the MCP server {server} were left out: {shown}")

    def _register(self, tool: Tool, left_out: list[str]) -> bool:
        try:
            self._registry.replace(tool, deferrable=True)
        except RegistrationError as problem:
            left_out.extend(problem.problems)
            self._refused[tool.name] = problem.problems
            return False
        self._refused.pop(tool.name, None)
        return True

    def _moved(self, connection: Connection, state: State) -> None:
        """Take the tools of a lost server out, and bring them back with it; tell who listens."""
        self._session.emit("server_state", server=connection.name, state=state, problem=connection.problem)
        lifecycle = self._registry.lifecycle
        for name in self.tools_of(connection.name):
            here = lifecycle.state(name)
            with suppress(IllegalTransition):
                if state == "lost" and here in ("registered", "ready", "error"):
                    lifecycle.move(name, "disabled", connection.unavailable().message)
                elif state == "ready" and here == "disabled":
                    lifecycle.move(name, "ready", f"the MCP server {connection.name} is back")
