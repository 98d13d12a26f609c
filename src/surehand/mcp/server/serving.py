"""Serving Surehand over MCP: its tools, under the same policy, audit and limits as everywhere else.

    serving = Serving(open_app)          # `open_app(approver, workspace)` opens the application of a client
    await serve_stdio(serving.server)    # or `http_app(serving, door)`

    servers = create_mcp_servers(app)    # the modules of custom tools, as servers in this process
    servers["calculator"].instance       # a server of the `mcp` SDK, for anything that takes one

Built on the SDK's low-level server, which speaks both eras of the protocol.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, Self, TypeAlias, cast

import anyio
import mcp_types as types
from mcp.server.auth.provider import principal_components
from mcp.server.caching import CACHEABLE_METHODS, CacheHint
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.runner import serve_loop
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp.shared.subscriptions import PromptsListChanged, ResourceUpdated, ToolsListChanged

from surehand.core.call import ToolResult, new_id
from surehand.core.errors import SurehandError, ToolFailure
from surehand.core.events import Progress
from surehand.core.frozen import replace_values
from surehand.core.names import full_name, provider_safe
from surehand.core.schema import Schema
from surehand.core.tool import ToolInfo
from surehand.mcp import convert
from surehand.mcp.lines import PIECE_BYTES, Lines
from surehand.mcp.server.calls import GATHER_S, ClientCall, Gather, Listing, Log, is_gateway
from surehand.mcp.server.clients import App, Client, Clients, Open, Waiting
from surehand.mcp.server.resources import Extras
from surehand.registry.registry import Registry
from surehand.state.stdio import is_stream, own_stdio

Handler = Callable[[Any, Any], Awaitable[dict[str, Any]]]
"""Answers a request, given its context and its parameters."""
CANCEL_S: Final = 5.0
"""How long a cancelled request waits for its call to end."""
WAITING_LIMIT: Final = 100
"""Calls of one client that may wait for its answers to questions."""


class _Server(Server[Any]):
    """An SDK server that declares `tools.listChanged` in every handshake."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> Any:
        options = notification_options or NotificationOptions(tools_changed=True)
        return super().create_initialization_options(options, experimental_capabilities, extensions)


class Serving:
    """Request handlers for all clients of one server."""

    def __init__(
        self,
        open_app: Open,
        *,
        name: str = "surehand",
        version: str = "",
        instructions: str | None = None,
        extras: Extras | None = None,
        follow_roots: bool = True,
        gather: Gather | None = None,
        listing: Listing | None = None,
        shared: bool = False,
        page_size: int = convert.PAGE,
    ) -> None:
        self.clients = Clients(open_app, shared=shared)
        self.extras = extras or Extras()
        self._follow_roots = follow_roots
        self._gather = gather
        self._listing = listing or Listing()
        self._page_size = page_size
        self._changes = InMemorySubscriptionBus()
        self._background: set[asyncio.Task[None]] = set()
        self.server: Server[Any] = _Server(
            name,
            version=version,
            instructions=instructions,
            # Results may not be cached, and are for this client only.
            cache_hints=cast("Any", dict.fromkeys(CACHEABLE_METHODS, CacheHint())),
            on_subscriptions_listen=ListenHandler(self._changes),
        )
        add = self.add
        add("tools/list", types.PaginatedRequestParams, self._list_tools)
        add("tools/call", types.CallToolRequestParams, self._call_tool)
        add("logging/setLevel", types.SetLevelRequestParams, self._set_level)
        roots_changed = "notifications/roots/list_changed"
        self.server.add_notification_handler(roots_changed, types.NotificationParams, self._update_roots)
        self.server.middleware.clear()  # the engine traces calls already
        self.extras.install(self)

    def add(self, method: str, params_type: Any, handler: Handler) -> None:
        """Register the handler of a request method."""

        async def handle(ctx: Any, params: Any) -> dict[str, Any]:
            return _mark_complete(ctx, await handler(ctx, params))

        self.server.add_request_handler(method, params_type, handle)

    async def close(self) -> None:
        """Close the session of every client."""
        await self.clients.close()

    async def prompts_changed(self) -> None:
        """Notify clients that the list of prompts has changed."""
        await self._changes.publish(PromptsListChanged())

    # -- clients -------------------------------------------------------------------------------------------------

    async def client(self, ctx: Any) -> Client:
        """Return the client that a request comes from; its application is opened with its first request."""

        async def roots() -> Sequence[str]:
            return await self._roots(ctx)

        key = client_key(ctx)
        known = self.clients.find(key)
        if known is not None:
            known.serve(key, ctx.session)
            return known
        try:
            client = await self.clients.get(key, client_name(ctx), roots)
        except SurehandError as problem:
            raise MCPError(types.INTERNAL_ERROR, f"the workspace cannot be opened: {problem}") from problem
        client.serve(key, ctx.session)
        client.tools_changed = lambda: self._notify_tools_changed(client)
        client.file_changed = lambda path: self._notify_file_changed(client, path)
        if self._gather is not None and not is_gateway(ctx):
            client.gathering = asyncio.get_running_loop().create_task(self._gather(client.app))
        return client

    async def _client_with_servers(self, ctx: Any) -> Client:
        """Return the client that a request comes from, after waiting for the tools of other servers (`--servers`)."""
        client = await self.client(ctx)
        if client.gathering is not None and not client.gathering.done():
            await asyncio.wait({client.gathering}, timeout=GATHER_S)
        return client

    async def _roots(self, ctx: Any) -> list[str]:
        capabilities = ctx.session.client_capabilities
        legacy = not convert.is_modern(ctx.protocol_version)
        if not (self._follow_roots and legacy and capabilities is not None and capabilities.roots is not None):
            return []
        try:
            with anyio.fail_after(5):
                listed = await ctx.session.send_request(
                    types.ListRootsRequest(), types.ListRootsResult, metadata=relate_to_request(ctx)
                )
        except (MCPError, TimeoutError, ValueError):
            return []  # without an answer, the configured workspace is used
        return [path for root in listed.roots if (path := convert.root_path(str(root.uri)))]

    async def _update_roots(self, ctx: Any, params: Any) -> None:
        del params
        client = self.clients.find(client_key(ctx))
        if client is not None:
            session = client.app.session
            session.roots = tuple(dict.fromkeys((session.workspace, *await self._roots(ctx))))

    def _notify_tools_changed(self, client: Client) -> None:
        """Notify a client that its list of tools has changed, once for changes that come together."""

        async def notify() -> None:
            await asyncio.sleep(0.05)
            client.notifying = False
            await self._changes.publish(ToolsListChanged())
            for session in list(client.sessions.values()):
                if not convert.is_modern(session.protocol_version):
                    await session.send_tool_list_changed()

        if not client.notifying:
            client.notifying = True
            self._run_in_background(notify())

    def _notify_file_changed(self, client: Client, path: str) -> None:
        """Notify subscribers that a file of the workspace has changed."""
        uri = convert.file_uri(client.app.session.workspace, path)

        async def notify() -> None:
            await self._changes.publish(ResourceUpdated(uri))
            if (session := client.subscribed.get(uri)) is not None:
                await session.send_resource_updated(uri)

        self._run_in_background(notify())

    def _run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._forget_task)

    def _forget_task(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled():
            task.exception()  # marked as retrieved, or asyncio logs it: the client has disconnected

    async def _set_level(self, ctx: Any, params: Any) -> dict[str, Any]:
        (await self.client(ctx)).level = params.level
        return {}

    # -- tools ---------------------------------------------------------------------------------------------------

    async def _list_tools(self, ctx: Any, params: Any) -> dict[str, Any]:
        client = await self._client_with_servers(ctx)
        selection = client.app.selection
        infos, cursor = self.take_page(self._listing.infos(selection), params)
        listed = [
            replace_values(info, output_schema=_promised_schema(info.name, info.output_schema, ctx, client))
            for info in infos
        ]
        names = selection.plain_names().shown
        return {**cursor, "tools": [self._listing.shape(info, names[info.name]) for info in listed]}

    def take_page(self, entries: Sequence[Any], params: Any) -> tuple[Sequence[Any], dict[str, Any]]:
        """Return the page of a list that a request asks for, and the `nextCursor` of the answer if there is more."""
        try:
            entries, next_cursor = convert.page(entries, getattr(params, "cursor", None), self._page_size)
        except ToolFailure as failure:
            raise MCPError(types.INVALID_PARAMS, failure.message) from failure
        return entries, {"nextCursor": next_cursor} if next_cursor else {}

    async def _call_tool(self, ctx: Any, params: Any) -> dict[str, Any]:
        client = await self._client_with_servers(ctx)
        selection = client.app.selection
        name = selection.real_name(params.name)
        tool = selection.get(name)
        if tool is None and not selection.hides(name):
            near = convert.nearest(params.name, selection.names())
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name[:100]}{near}")
        call_id = new_id("mcp")

        async def work() -> dict[str, Any]:
            result = await client.app.call(name, params.arguments or {}, source="mcp", id=call_id)
            if tool is None:
                return convert.result_shape(result, None)
            promised = _promised_schema(tool.name, promise := tool.promise, ctx, client)
            return convert.result_shape(result, promised, () if promised is promise else TEXT_KEYS.get(tool.name, ()))

        return await self.answer(ctx, params, client, call_id, work, name, params.arguments or {})

    async def answer(
        self,
        ctx: Any,
        params: Any,
        client: Client,
        call_id: str,
        work: Callable[[], Coroutine[Any, Any, dict[str, Any]]],
        name: str,
        args: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Answer a request whose work may ask the client something.

        One with a `requestState` brings the answers to such questions, and resumes its call; any other starts one.
        """
        if getattr(params, "request_state", None) is not None:
            call = resume_call(client, params, name, args)
        else:
            call = ClientCall(name, args, capabilities(ctx), close_stream=ctx.close_sse_stream)
            call.request_id = ctx.request_id
            client.running[call_id] = call
            call.start(work())
            assert call.task is not None
            call.task.add_done_callback(lambda _: client.running.pop(call_id, None))
        return await relay_questions(client, call, ctx)


async def serve_stdio(server: Server[Any]) -> None:
    """Serve one client, on standard input and output, until it closes."""
    if not all(is_stream(descriptor) for descriptor in (0, 1)):
        from mcp.server.stdio import stdio_server

        async with stdio_server() as (read_stream, write_stream):  # the loop cannot wait for a regular file
            await server.run(read_stream, write_stream, server.create_initialization_options())
        return
    lines = Lines(*await own_stdio(PIECE_BYTES))
    try:
        await serve_lines(server, lines)
    finally:
        await lines.finish()


async def serve_lines(server: Server[Any], lines: Lines) -> None:
    """Serve one client over lines until it closes.

    A client that begins with a handshake is served without the SDK's decision between the eras, which relays every
    message through two tasks: a sixth of a call's instructions.
    """
    opening, options = await lines.peek_request(), server.create_initialization_options()
    if opening is None or opening.method != "initialize":
        await server.run(cast("Any", lines), cast("Any", lines), options)
        return
    async with server.lifespan(server) as state:
        await serve_loop(
            server, cast("Any", _HandshakeOnly(lines)), cast("Any", lines), lifespan_state=state, init_options=options
        )


class _HandshakeOnly:
    """The messages of a client that began with a handshake; requests of the newer era are refused."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        while True:
            item = await self._lines.__anext__()
            message = item.message if isinstance(item, SessionMessage) else None
            if not isinstance(message, types.JSONRPCRequest) or not _is_of_newer_era(message):
                return item
            said = "this connection began with a handshake; requests of 2026-07-28 are not accepted on it"
            error = types.ErrorData(code=types.INVALID_REQUEST, message=said)
            await self._lines.send(SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=message.id, error=error)))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self._lines.aclose()


def _is_of_newer_era(request: types.JSONRPCRequest) -> bool:
    meta: Any = (request.params or {}).get("_meta")
    return request.method != "initialize" and isinstance(meta, Mapping) and types.PROTOCOL_VERSION_META_KEY in meta


TEXT_READERS: Final = frozenset({"claude-code"})
"""Clients that show their model the structured content of a result in place of its text."""
TEXT_KEYS: Final[Mapping[str, Sequence[str]]] = {"Read": ("content", "cells", "text"), "fs.read_file": ("content",)}
"""Built-in tools whose text is sent once, as content; the values are the keys of their data that would repeat it."""


def _promised_schema(name: str, schema: Schema | None, ctx: Any, client: Client) -> Schema | None:
    """Return the output schema a client is promised; None for a built-in tool whose text the model should read."""
    client_params = getattr(ctx.session, "client_params", None)
    hides_text = client_params is not None and client_params.client_info.name in TEXT_READERS
    if schema is None or not (hides_text or name in TEXT_KEYS):
        return schema
    is_built_in = name in client.app.selection.source.deferrable and not name.startswith("mcp__")
    return None if is_built_in else schema


async def relay_questions(client: Client, call: ClientCall, ctx: Any) -> dict[str, Any]:
    """Send a call's reports and questions to its client; return the result, or "input required" in the newer era."""
    assert call.task is not None
    modern = convert.is_modern(ctx.protocol_version)
    count = 0
    try:
        while not call.done or call.reports:
            await call.attention()
            while call.reports:
                count += 1
                await _send(call.reports.popleft(), count, client, ctx)
            if call.questions and not call.done:
                if modern:
                    return _require_input(client, call)
                await _ask(call, ctx)
    except asyncio.CancelledError:
        call.task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait({call.task}, timeout=CANCEL_S)
        raise
    if call.task.cancelled():
        raise MCPError(types.INTERNAL_ERROR, "the call was cancelled: the server is closing")
    answer: dict[str, Any] = call.task.result()
    if modern and call.lacking and answer.get("isError"):
        raise convert.lacks_capability(call.lacking)
    return answer


def client_key(ctx: Any) -> str:
    """Return the key of a client: its connection, or in the newer era over HTTP the name and user it states."""
    if ctx.request is None:
        return "stdio"
    if not convert.is_modern(ctx.protocol_version):
        return f"session {ctx.request.headers.get('mcp-session-id', '')}"
    stated = ctx.session.client_params
    name = f"client {stated.client_info.name} {stated.client_info.version}" if stated else "client"
    return f"{name}{_principal(ctx)}"


def client_name(ctx: Any) -> str:
    """Return the name a client states, and its user if it has a personal token."""
    stated = ctx.session.client_params
    return f"{stated.client_info.name if stated else ''}{_principal(ctx)}"


def _principal(ctx: Any) -> str:
    """Return whose access token a request has; empty for the server's own token, or none."""
    user = ctx.request.scope.get("user") if ctx.request is not None else None
    return f" of {json.dumps(principal_components(user.access_token))}" if user is not None else ""


def capabilities(ctx: Any) -> Mapping[str, Any]:
    """Return the client's capabilities as plain data."""
    declared = ctx.session.client_capabilities
    return declared.model_dump(by_alias=True, exclude_none=True) if declared is not None else {}


def relate_to_request(ctx: Any) -> ServerMessageMetadata:
    """Return the metadata that sends a message on the stream of a request."""
    return ServerMessageMetadata(related_request_id=ctx.request_id)


async def _send(report: Progress | Log, count: int, client: Client, ctx: Any) -> None:
    if isinstance(report, Progress):
        done = float(count) if report.done is None else report.done
        await ctx.session.report_progress(done, report.total, report.text or None)
    elif convert.is_modern(ctx.protocol_version) or client.wants(
        report.level
    ):  # the newer era states a level in each request
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MCPDeprecationWarning)
            await ctx.session.send_log_message(report.level, report.data, report.logger, ctx.request_id)


_REQUESTS: Final[Mapping[str, tuple[Any, Any]]] = {
    "elicitation/create": (types.ElicitRequest, types.ElicitResult),
    "sampling/createMessage": (types.CreateMessageRequest, types.CreateMessageResult),
    "roots/list": (types.ListRootsRequest, types.ListRootsResult),
}


async def _ask(call: ClientCall, ctx: Any) -> None:
    """Send the first question to a client of the older era as a request, and set its answer."""
    asked = call.questions.pop(0)
    request, result = _REQUESTS[asked.method]
    message = request.model_validate({"method": asked.method, "params": dict(asked.params)}, by_name=False)
    sending = asyncio.ensure_future(ctx.session.send_request(message, result, metadata=relate_to_request(ctx)))
    ended = call.task or sending
    try:
        # The call may end first: the time for an answer is limited.
        await asyncio.wait({sending, ended, asked.answer}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not sending.done():
            sending.cancel()
    if asked.answer.done():
        return
    problem = None if sending.cancelled() else sending.exception()
    if problem is not None:
        asked.answer.set_exception(ToolFailure(f"the client could not be asked: {problem}"))
    elif not sending.cancelled():
        asked.answer.set_result(convert.plain(sending.result()))


def _require_input(client: Client, call: ClientCall) -> dict[str, Any]:
    """Return "input required" to a client of the newer era; the call waits until it calls again with the answers."""
    asked = {each.key or f"question{number}": each for number, each in enumerate(call.questions, 1)}
    call.questions.clear()
    if len(client.waiting) >= WAITING_LIMIT:  # a client that never comes back must not fill the memory
        oldest = client.waiting.pop(next(iter(client.waiting)))
        if oldest.call.task is not None:
            oldest.call.task.cancel()
    state = secrets.token_urlsafe(24)
    client.waiting[state] = Waiting(call, asked)
    assert call.task is not None
    call.task.add_done_callback(lambda _: client.waiting.pop(state, None))
    requests = {key: {"method": each.method, "params": dict(each.params)} for key, each in asked.items()}
    return convert.input_required(requests, state)


def resume_call(client: Client, params: Any, name: str, args: Mapping[str, Any]) -> ClientCall:
    """Return the waiting call of a `requestState`, with the client's answers set."""
    waiting = client.waiting.get(params.request_state)
    if waiting is None:
        raise MCPError(types.INVALID_PARAMS, "this request state is unknown or no longer valid; make the call again")
    call = waiting.call
    if (name, args) != (call.name, call.args):
        raise MCPError(types.INVALID_PARAMS, "this request state belongs to another call")
    del client.waiting[params.request_state]
    answers = cast("dict[str, Any]", params.input_responses or {})
    for key, asked in waiting.asked.items():
        said = convert.plain(answers.get(key))
        if asked.answer.done():
            continue
        if convert.answers(asked.method, said):
            asked.answer.set_result(said)
        else:
            call.questions.append(asked)  # asked again
    return call


def _mark_complete(ctx: Any, answer: dict[str, Any]) -> dict[str, Any]:
    return {"resultType": "complete", **answer} if convert.is_modern(ctx.protocol_version) else answer


# Modules of custom tools as servers in this process: one server for each module, with its name, version and tools.
#
# Calls go through the executor, so that arguments are checked, permission is asked and the call is recorded. A failure
# is a result with `isError`, never an exception.


class AppWithRegistry(App, Protocol):
    """An application whose modules are served, with its registry."""

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
    """Full names of its tools for a client: `mcp__{server}__{tool}`."""
    instance: Server[Any]

    def sdk_config(self) -> dict[str, Any]:
        """Return the server as an entry of `mcp_servers` of the Claude Agent SDK."""
        return {"type": "sdk", "name": self.name, "instance": self.instance}


MakeCall: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[ToolResult]]
"""Calls a tool of the application by name."""


def create_mcp_servers(app: AppWithRegistry, *modules: str, call: MakeCall | None = None) -> dict[str, ModuleServer]:
    """Return a server for each module of the application, or for the modules named; by name."""
    names = modules or tuple(app.registry.modules())
    return {name: create_tools_server(app, name, partial(_members, app, name), call=call) for name in names}


def _members(app: AppWithRegistry, module: str) -> list[ToolInfo]:
    return [info for info in app.selection.infos() if info.module == module]


def create_tools_server(
    app: AppWithRegistry, module: str, list_members: Callable[[], list[ToolInfo]], *, call: MakeCall | None = None
) -> ModuleServer:
    """Return a server in this process for some tools of the application; `call` is used instead of `app.call`."""
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
        return _mark_complete(ctx, {"tools": [convert.tool_shape(info) for info in list_members()]})

    async def call_tool(ctx: Any, params: Any) -> dict[str, Any]:
        own = {provider_safe(info.name): info for info in list_members()}
        info = own.get(params.name)
        if info is None:
            raise MCPError(
                types.INVALID_PARAMS, f"Unknown tool: {params.name[:100]}{convert.nearest(params.name, list(own))}"
            )
        result = await run(info.name, params.arguments or {})
        return _mark_complete(ctx, convert.result_shape(result, info.output_schema))

    server.add_request_handler("tools/list", types.PaginatedRequestParams, list_tools)
    server.add_request_handler("tools/call", types.CallToolRequestParams, call_tool)
    tools = tuple(full_name(module, provider_safe(info.name)) for info in members)
    return ModuleServer(module, version, tools, server)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in version.split("."))
