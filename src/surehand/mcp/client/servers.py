"""All MCP servers of an application: connected when first needed, their tools registered beside the others.

servers = Servers(configured, registry, session)
await servers.ready("time")            # or `connect_all()`; calls connect by themselves
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, cast

from surehand.core.call import Text, ToolError, ToolResult, truncate_middle
from surehand.core.context import ToolContext
from surehand.core.effects import Effect, RemoteCall, Unreadable
from surehand.core.errors import ErrorCode, RegistrationError, ToolFailure
from surehand.core.names import full_name, name_problems, split_full_name
from surehand.core.schema import Fault, ForeignArguments, InvalidArguments
from surehand.core.session import Session
from surehand.core.settings import McpServerSettings
from surehand.core.shapes import result_from_mcp
from surehand.core.tool import Health, Preview, Tool
from surehand.files.sanitize import visible
from surehand.mcp import convert
from surehand.mcp.client.config import Configured, name_problem
from surehand.mcp.client.connection import PAUSES_S, Connection, Elicit, Show, State
from surehand.mcp.convert import object_schema
from surehand.registry.lifecycle import IllegalTransition
from surehand.registry.registry import Registry
from surehand.state import locations
from surehand.state.files import write_private_json

AT_ONCE: Final = 50
"""Tools registered before other tasks get a turn."""
DESCRIPTION_LIMIT: Final = 20_000
ERROR_CHARS: Final = 2_000
"""Characters of a server's text in an error message; the output has all of it."""
_NAME: Final = re.compile(r"[\w \-./:@+#\u2600-\u27bf\U0001f300-\U0001faff]+")
"""Characters allowed in names of tools: rules name tools, where `*` means all of them."""
_REFUSALS: Final[tuple[ErrorCode, ...]] = ("permission_denied", "precondition_failed", "invalid_args")
"""Error codes accepted from a server: a call that fails with one is not retried."""
_DEFINITION_KEYS: Final = ("description", "title", "inputSchema", "outputSchema", "annotations")
FILE: Final = "mcp_approved.json"


class Servers:
    """The connections to all servers by name, and their tools in the registry."""

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
        """Answers servers' forms (elicitation); without it, that capability is not declared."""
        self.login: Show | None = None
        """Shows a person where to log in to a server; without it, only saved logins are used."""
        self.introduced_as = "surehand"
        """The client name sent to servers; a gateway states its own."""
        self._pauses_s = pauses_s
        self._approved = Approved(session.state_dir)
        self._connections: dict[str, Connection] = {}
        self._tools: dict[str, dict[str, Mapping[str, Any]]] = {}
        self._refused: dict[str, tuple[str, ...]] = {}
        """Full names of listed tools that cannot be registered, with the problems of each."""
        for server in configured.values():
            if server.settings.enabled:
                self._add(server)

    def add(self, name: str, settings: McpServerSettings) -> None:
        """Add a server from code; raise ToolFailure for a name that is taken or invalid."""
        problem = name_problem(name) or (f"there is already a server {name}" if name in self._connections else "")
        if problem:
            raise ToolFailure(problem, code="invalid_args")
        self._add(Configured(name, settings, "code"))

    def _add(self, server: Configured) -> None:
        self._connections[server.name] = Connection(
            server,
            session=self._session,
            found=lambda tools: self._register_tools(server.name, tools),
            moved=self._follow_state,
            elicit=lambda: self.elicit,
            login=lambda: self.login,
            introduced_as=lambda: self.introduced_as,
            pauses_s=self._pauses_s,
        )

    def names(self) -> list[str]:
        """Return the names of all servers."""
        return list(self._connections)

    def list_configured(self) -> dict[str, Configured]:
        """Return the configuration of each server, by name."""
        return {name: connection.server for name, connection in self._connections.items()}

    def get(self, name: str) -> Connection:
        """Return the connection to a server; raise ToolFailure for an unknown name."""
        connection = self._connections.get(name)
        if connection is None:
            raise unknown_server(name, self.names())
        return connection

    def tools_of(self, name: str) -> list[str]:
        """Return the full names of a server's registered tools."""
        return [full_name(name, each) for each in self._tools.get(name, {})]

    def changed_definitions(self, name: str) -> dict[str, str]:
        """Return the tools whose definition differs from the approved one: full names, each with the diff."""
        changes = {
            full_name(name, own): self._approved.change(full_name(name, own), current)
            for own, current in self._definitions(name).items()
        }
        return {tool: changed for tool, changed in changes.items() if changed}

    def approve_definition(self, tool: str, change: str) -> bool:
        """Approve a tool's new definition, if its diff to the approved one is exactly `change`."""
        found = split_full_name(tool)
        if found is None or not change or self.changed_definitions(found[0]).get(tool) != change:
            return False
        self._approved.approve(tool, self._definitions(found[0])[found[1]])
        return True

    def _definitions(self, server: str) -> dict[str, str]:
        listed = self._tools.get(server, {})
        return {own: definition(entry, self.get(server).server.fingerprint) for own, entry in listed.items()}

    async def ready(self, name: str) -> Connection:
        """Connect to a server and return the connection; raise ToolFailure if that fails."""
        connection = self.get(name)
        await connection.ready()
        return connection

    async def connect_all(
        self, names: Sequence[str] | None = None, *, patience_s: float | None = None
    ) -> dict[str, str]:
        """Connect to all servers, or to those named, concurrently; return the problems by name.

        After `patience_s` the rest goes on connecting in the background, and is a problem here.
        """
        tasks = {name: asyncio.ensure_future(self.ready(name)) for name in (self.names() if names is None else names)}
        if tasks:
            await asyncio.wait(tasks.values(), timeout=patience_s)
        problems: dict[str, str] = {}
        for name, task in tasks.items():
            if not task.done():
                task.cancel()  # only the wait: the connection is made by another task
                problems[name] = f"no answer within {patience_s:g} s; its tools come when it answers"
            elif (problem := task.exception()) is not None:
                problems[name] = str(problem)
        return problems

    async def seek(self, name: str) -> None:
        """Connect to the server in a tool's name; raise ToolFailure if there is no such server, or no usable tool."""
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
                hint=f"Ask whoever provides the MCP server {found[0]} to fix it.",
            )

    async def close(self) -> None:
        """End every connection."""
        await asyncio.gather(*(connection.close() for connection in self._connections.values()))

    # -- registering tools -------------------------------------------------------------------------------------------

    async def _register_tools(self, server: str, listed: Sequence[Mapping[str, Any]]) -> None:
        """Register the tools that a server lists now, and unregister those it no longer lists."""
        connection, before = self._connections[server], self._tools.get(server, {})
        now: dict[str, Mapping[str, Any]] = {}
        left_out: list[str] = []
        for number, entry in enumerate(listed):
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)  # checking thousands of schemas takes a while
            name = str(entry.get("name", ""))
            problems = name_problems(name) or ([f"{name!r} is listed twice"] if name in now else [])
            if not problems and _NAME.fullmatch(name) is None:
                problems = [f"{visible(name, lines=False)!r} cannot stand in a rule"]
            if problems:
                left_out += problems
            elif entry == before.get(name) or self._register(remote_tool(entry, connection, self._approved), left_out):
                now[name] = entry
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

    def _follow_state(self, connection: Connection, state: State) -> None:
        """Emit a server's new state; disable its tools when it is lost and enable them when it is ready again."""
        self._session.emit("server_state", server=connection.name, state=state, problem=connection.problem)
        lifecycle = self._registry.lifecycle
        for name in self.tools_of(connection.name):
            tool_state = lifecycle.state(name)
            with suppress(IllegalTransition):
                if state == "lost" and tool_state in ("registered", "ready", "error"):
                    lifecycle.move(name, "disabled", connection.unavailable().message)
                elif state == "ready" and tool_state == "disabled":
                    lifecycle.move(name, "ready", f"the MCP server {connection.name} is back")


class _RemoteTool:
    """The functions of a server's tool: one object, since closures for thousands of tools take more memory."""

    __slots__ = ("approved", "connection", "definition", "entry", "name", "output_schema", "own_name")

    def __init__(self, entry: Mapping[str, Any], connection: Connection, approved: Approved) -> None:
        self.entry = entry
        self.connection = connection
        self.approved = approved
        self.own_name = str(entry["name"])
        self.name = full_name(connection.name, self.own_name)
        self.output_schema = ForeignArguments(entry["outputSchema"]) if entry.get("outputSchema") else None
        self.definition: str | None = None

    def describe(self) -> str:
        """Return its description, sanitized."""
        name, server = self.own_name, self.connection.name
        return visible(str(self.entry.get("description") or f"{name}, a tool of the MCP server {server}."))

    def _define(self) -> str:
        if self.definition is None:
            self.definition = definition(self.entry, self.connection.server.fingerprint)
        return self.definition

    def effects(self, args: Any, ctx: ToolContext) -> Sequence[Effect]:
        """Return a remote call; one that is asked about if its definition has changed since approval."""
        del args, ctx
        call = RemoteCall(self.connection.name, self.own_name)
        if not self.approved.change(self.name, self._define()):
            return [call]
        return [call, Unreadable("it describes itself differently since it was approved")]

    def preview(self, args: Any, ctx: ToolContext) -> Preview:
        """Return its description, and the diff to the approved definition."""
        del args, ctx
        changed = self.approved.change(self.name, self._define())
        server, where = self.connection.name, visible(self.connection.server.where, lines=False)
        warning = _warn_of_hidden(str(self.entry.get("description") or ""))
        text = f"{warning}{self.own_name} of the MCP server {server} ({where}) says of itself:\n{self.describe()}"
        return Preview(text, diff=f"{warning}{visible(changed)}" if changed else "")

    async def run(self, args: Any, ctx: ToolContext) -> ToolResult:
        """Call it, and validate its result against its output schema."""
        server, connection = self.connection.name, self.connection
        self.approved.approve(self.name, self._define())
        try:
            shape = await connection.call(self.own_name, cast("Mapping[str, Any]", args), ctx.progress)
        finally:
            reverted = await connection.revert_leftovers()
        if reverted is not None:
            return _fail(parse_result(shape, server), reverted)
        if self.output_schema is not None and not shape.get("isError"):
            data = shape.get("structuredContent")
            await asyncio.to_thread(_check_output, data, self.output_schema, self.own_name, server)
        return parse_result(shape, server)

    async def check_health(self) -> Health:
        """Return whether its server is connected."""
        return Health(self.connection.state == "ready", self.connection.problem or self.connection.state)


def remote_tool(entry: Mapping[str, Any], connection: Connection, approved: Approved) -> Tool:
    """Make a tool from a server's entry in `tools/list`."""
    server, remote = connection.name, _RemoteTool(entry, connection, approved)
    hints: Mapping[str, Any] = entry.get("annotations") or {}
    return Tool(
        name=remote.name,
        description=remote.describe()[:DESCRIPTION_LIMIT],
        args=object_schema(entry.get("inputSchema") or {}),
        output_schema=entry.get("outputSchema"),
        run=remote.run,
        concurrency_safe=hints.get("readOnlyHint") is True,
        destructive=hints.get("destructiveHint", True) is not False and hints.get("readOnlyHint") is not True,
        idempotent=False,  # hints are not trusted, and an idempotent call would be retried
        requires_permission=True,
        aliases=(f"{server}:{remote.own_name}",),
        module=server,
        origin=f"mcp:{server}",
        timeout_s=connection.server.settings.timeout,
        effects=remote.effects,
        preview=remote.preview,
        health_check=remote.check_health,
    )


def _fail(result: ToolResult, error: ToolError) -> ToolResult:
    """Return a result as a failure with an error of its own; the output keeps both."""
    return replace(result, ok=False, error=error, output=f"{result.output}\n[{error.text}]".lstrip(), content=())


def _check_output(data: Any, schema: ForeignArguments, tool: str, server: str) -> None:
    """Raise ToolFailure for data that does not match the output schema."""
    try:
        if data is None:
            raise InvalidArguments([Fault("", "it has no structured content")])
        schema.check(data)
    except InvalidArguments as problem:
        message = f"the MCP server {server} answered {tool} wrongly: it has an output schema, and {problem}"
        raise ToolFailure(message, hint="Ask whoever provides this server to fix it.") from None


def _warn_of_hidden(text: str) -> str:
    """Return a warning for a text with invisible characters; empty for any other."""
    return "" if visible(text) == text else "WARNING: the description contains hidden characters, written out below.\n"


def parse_result(shape: Mapping[str, Any], server: str) -> ToolResult:
    """Parse the result of `tools/call`.

    Claims of the server about origin and undo are dropped. The code with which another Surehand refuses a call is kept;
    the error names the server, so that a model does not take its text for ours.
    """
    meta: dict[str, Any] = dict(shape.get("_meta") or {})
    claimed = meta.pop("surehand", None)
    data = shape.get("structuredContent")
    blocks = list(map(convert.read_block, shape.get("content") or ()))
    if not blocks and data is not None:
        blocks = [{"type": "text", "text": json.dumps(data, ensure_ascii=False)}]
    result = result_from_mcp({**shape, "content": blocks, "_meta": meta})
    error, content = result.error, result.content
    if error is not None:
        code = _refusal_code(claimed) or error.code
        message = truncate_middle(error.message, ERROR_CHARS)
        error = replace(error, code=code, message=message, details={**error.details, "server": server})
    if len(content) == 1 and isinstance(content[0], Text):
        content = ()  # the output is the same text
    return replace(result, content=content, error=error, meta={**result.meta, "origin": f"mcp:{server}"})


def _refusal_code(claimed: Any) -> ErrorCode | None:
    """Return the error code in the result of another Surehand, if it is one of a refusal."""
    error: Any = cast("dict[str, Any]", claimed).get("error") if isinstance(claimed, dict) else None
    code = cast("dict[str, Any]", error).get("code") if isinstance(error, dict) else None
    return next((each for each in _REFUSALS if each == code), None)


def unknown_server(name: str, names: Sequence[str], near: str = "") -> ToolFailure:
    """Return the failure for an unknown server; `near` suggests tools."""
    known = ", ".join(names) or "none; `surehand mcp add` adds one"
    return ToolFailure(
        f"MCP server not found: {name}{near}",
        code="tool_not_found",
        hint=f"Configured servers: {known}.",
        details={"server": name, "servers": list(names)},
    )


def definition(tool: Mapping[str, Any], fingerprint: str) -> str:
    """Return a tool's definition and its server's fingerprint, as text to compare."""
    entry = {key: tool[key] for key in _DEFINITION_KEYS if tool.get(key) is not None}
    return json.dumps(
        {**entry, "server": fingerprint}, sort_keys=True, ensure_ascii=False
    )  # not indented, which takes 15 times as long


class Approved:
    """The approved definitions of tools, by full name; saved in a folder, if there is one."""

    def __init__(self, folder: str | None) -> None:
        self._path = os.path.join(folder, FILE) if folder is not None else None
        self._known: dict[str, str] | None = None

    def change(self, name: str, now: str) -> str:
        """Return the diff to the approved definition; empty if there is none, or nothing was approved yet."""
        before = self._load().get(name)
        if before is None or before == now:
            return ""
        from difflib import unified_diff

        lines = unified_diff(_lay_out(before), _lay_out(now), "as approved", "as it is now", lineterm="", n=1)
        return "\n".join(lines)

    def approve(self, name: str, now: str) -> None:
        """Save a tool's definition as approved: a call of it was permitted."""
        known = self._load()
        if known.get(name) == now:
            return
        known[name] = now
        if self._path is not None:
            self._save(self._path, known)

    def _load(self) -> dict[str, str]:
        if self._known is None:
            self._known = _read(self._path) if self._path is not None else {}
        return self._known

    def _save(self, path: str, known: Mapping[str, str]) -> None:
        locations.private_dir(os.path.dirname(path))
        merged = {**_read(path), **known}  # another process may have added some
        write_private_json(path, merged)


def _lay_out(text: str) -> list[str]:
    """Return a definition as indented lines for a person; as it is if it is no JSON."""
    try:
        return json.dumps(json.loads(text), indent=1, ensure_ascii=False).splitlines()
    except (ValueError, TypeError):
        return str(text).splitlines()


def _read(path: str) -> dict[str, str]:
    try:
        with open(path, encoding="utf-8") as file:
            known: Any = json.load(file)
    except (OSError, ValueError):
        return {}
    return cast("dict[str, str]", known) if isinstance(known, dict) else {}
