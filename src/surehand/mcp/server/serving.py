"""Serving Surehand over MCP: its tools, with the same policy, audit and limits as everywhere else.

    serving = Serving(open_app)          # `open_app(approver, workspace)` opens an application for a client
    await serve_stdio(serving.server)    # or `http_app(serving, door)`

    servers = create_mcp_servers(app)    # its modules of custom tools, as servers in this process
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
"""How long a cancelled call may take to end before its client is let go."""
WAITING_LIMIT: Final = 100
"""Calls of one client that may stand still until it answers."""


class _Server(Server[Any]):
    """Says in every handshake that its list of tools may change."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> Any:
        options = notification_options or NotificationOptions(tools_changed=True)
        return super().create_initialization_options(options, experimental_capabilities, extensions)


class Serving:
    """The server's side of every conversation with a client."""

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
            # Fresh every time, and for this client only.
            cache_hints=cast("Any", dict.fromkeys(CACHEABLE_METHODS, CacheHint())),
            on_subscriptions_listen=ListenHandler(self._changes),
        )
        add = self.add
        add("tools/list", types.PaginatedRequestParams, self._list_tools)
        add("tools/call", types.CallToolRequestParams, self._call_tool)
        add("logging/setLevel", types.SetLevelRequestParams, self._set_level)
        changed = "notifications/roots/list_changed"
        self.server.add_notification_handler(changed, types.NotificationParams, self._roots_changed)
        self.server.middleware.clear()  # calls are traced by the engine, once
        self.extras.install(self)

    def add(self, method: str, params_type: Any, handler: Handler) -> None:
        """Have a handler answer a method of the protocol."""

        async def complete(ctx: Any, params: Any) -> dict[str, Any]:
            return _complete_answer(ctx, await handler(ctx, params))

        self.server.add_request_handler(method, params_type, complete)

    async def close(self) -> None:
        """End every client's session."""
        await self.clients.close()

    async def prompts_changed(self) -> None:
        """Tell clients that there are other prompts now."""
        await self._changes.publish(PromptsListChanged())

    # -- clients -------------------------------------------------------------------------------------------------

    async def client(self, ctx: Any) -> Client:
        """Return the client that a request came from."""

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

    async def _complete(self, ctx: Any) -> Client:
        """Return the client that a request came from, once the tools of other servers are there too."""
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
            return []  # a client that does not answer gets the usual workspace
        return [path for root in listed.roots if (path := convert.root_path(str(root.uri)))]

    async def _roots_changed(self, ctx: Any, params: Any) -> None:
        del params
        client = self.clients.find(client_key(ctx))
        if client is not None:
            session = client.app.session
            session.roots = tuple(dict.fromkeys((session.workspace, *await self._roots(ctx))))

    def _notify_tools_changed(self, client: Client) -> None:
        """Tell a client, once for many changes, that its list of tools is another."""

        async def tell() -> None:
            await asyncio.sleep(0.05)
            client.notifying = False
            await self._changes.publish(ToolsListChanged())
            for session in list(client.sessions.values()):
                if not convert.is_modern(session.protocol_version):
                    await session.send_tool_list_changed()

        if not client.notifying:
            client.notifying = True
            self._in_background(tell())

    def _notify_file_changed(self, client: Client, path: str) -> None:
        """Tell those who want to hear of it that a file of the workspace has changed."""
        uri = convert.file_uri(client.app.session.workspace, path)

        async def tell() -> None:
            await self._changes.publish(ResourceUpdated(uri))
            if (session := client.subscribed.get(uri)) is not None:
                await session.send_resource_updated(uri)

        self._in_background(tell())

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._send_notice)

    def _send_notice(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled():
            task.exception()  # a client that has left need not be told

    async def _set_level(self, ctx: Any, params: Any) -> dict[str, Any]:
        (await self.client(ctx)).level = params.level
        return {}

    # -- tools ---------------------------------------------------------------------------------------------------

    async def _list_tools(self, ctx: Any, params: Any) -> dict[str, Any]:
        client = await self._complete(ctx)
        selection = client.app.selection
        infos, more = self.take_page(self._listing.infos(selection), params)
        listed = [
            replace_values(info, output_schema=_promised_schema(info.name, info.output_schema, ctx, client))
            for info in infos
        ]
        names = selection.plain_names().shown
        return {**more, "tools": [self._listing.shape(info, names[info.name]) for info in listed]}

    def take_page(self, entries: Sequence[Any], params: Any) -> tuple[Sequence[Any], dict[str, Any]]:
        """Return one page of a list and what its answer says of the next."""
        try:
            entries, following = convert.page(entries, getattr(params, "cursor", None), self._page_size)
        except ToolFailure as failure:
            raise MCPError(types.INVALID_PARAMS, failure.message) from failure
        return entries, {"nextCursor": following} if following else {}

    async def _call_tool(self, ctx: Any, params: Any) -> dict[str, Any]:
        client = await self._complete(ctx)
        selection = client.app.selection
        name = selection.real_name(params.name)
        tool = selection.get(name)
        if tool is None and not selection.hides(name):
            near = convert.nearest(params.name, selection.names())
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name[:100]}{near}")
        identity = new_id("mcp")

        async def work() -> dict[str, Any]:
            result = await client.app.call(name, params.arguments or {}, source="mcp", id=identity)
            if tool is None:
                return convert.result_shape(result, None)
            promised = _promised_schema(tool.name, promise := tool.promise, ctx, client)
            return convert.result_shape(result, promised, () if promised is promise else TEXT_KEYS.get(tool.name, ()))

        return await self.answer(ctx, params, client, identity, work, name, params.arguments or {})

    async def answer(
        self,
        ctx: Any,
        params: Any,
        client: Client,
        identity: str,
        work: Callable[[], Coroutine[Any, Any, dict[str, Any]]],
        name: str,
        args: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Answer a request whose work may ask the client something: start the work, or go on with the answers."""
        if getattr(params, "request_state", None) is not None:
            call = resume_call(client, params, name, args)
        else:
            call = ClientCall(name, args, capabilities(ctx), close_stream=ctx.close_sse_stream)
            call.request_id = ctx.request_id
            client.running[identity] = call
            call.start(work())
            assert call.task is not None
            call.task.add_done_callback(lambda _: client.running.pop(identity, None))
        return await relay_questions(client, call, ctx)


async def serve_stdio(server: Server[Any]) -> None:
    """Serve one client, on standard input and output, until it closes."""
    if not all(is_stream(descriptor) for descriptor in (0, 1)):
        from mcp.server.stdio import stdio_server

        async with stdio_server() as (reading, writing):  # a plain file cannot be waited for
            await server.run(reading, writing, server.create_initialization_options())
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
"""Clients that show their model the structure of an answer in place of its text."""
TEXT_KEYS: Final[Mapping[str, Sequence[str]]] = {"Read": ("content", "cells", "text"), "fs.read_file": ("content",)}
"""Built-in tools that answer with text: it is sent once, as content. The values are the data keys that repeat it."""


def _promised_schema(name: str, schema: Schema | None, ctx: Any, client: Client) -> Schema | None:
    """Return what a client is promised of a tool; of a built-in one nothing, where its text is to be read."""
    known = getattr(ctx.session, "client_params", None)
    reads_text = known is not None and known.client_info.name in TEXT_READERS
    if schema is None or not (reads_text or name in TEXT_KEYS):
        return schema
    own = name in client.app.selection.source.deferrable and not name.startswith("mcp__")
    return None if own else schema


async def relay_questions(client: Client, call: ClientCall, ctx: Any) -> dict[str, Any]:
    """Send what a call reports and asks to the client, until there is a result or the client must call again."""
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
                    return _asked_back(client, call)
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
    """Return what a client is known by."""
    if ctx.request is None:
        return "stdio"
    if not convert.is_modern(ctx.protocol_version):
        return f"session {ctx.request.headers.get('mcp-session-id', '')}"
    known = ctx.session.client_params
    name = f"client {known.client_info.name} {known.client_info.version}" if known else "client"
    return f"{name}{_principal(ctx)}"


def client_name(ctx: Any) -> str:
    """Return the name a client gives itself, and its user if it has a personal token."""
    known = ctx.session.client_params
    return f"{known.client_info.name if known else ''}{_principal(ctx)}"


def _principal(ctx: Any) -> str:
    """Return whose access token a request brought; empty where it was the server's own, or none."""
    user = ctx.request.scope.get("user") if ctx.request is not None else None
    return f" of {json.dumps(principal_components(user.access_token))}" if user is not None else ""


def capabilities(ctx: Any) -> Mapping[str, Any]:
    """Return what the client offers, in the protocol's words."""
    declared = ctx.session.client_capabilities
    return declared.model_dump(by_alias=True, exclude_none=True) if declared is not None else {}


def relate_to_request(ctx: Any) -> ServerMessageMetadata:
    """Return what ties a message to the request it belongs to."""
    return ServerMessageMetadata(related_request_id=ctx.request_id)


async def _send(report: Progress | Log, count: int, client: Client, ctx: Any) -> None:
    if isinstance(report, Progress):
        done = float(count) if report.done is None else report.done
        await ctx.session.report_progress(done, report.total, report.text or None)
    elif convert.is_modern(ctx.protocol_version) or client.wants(report.level):  # there each request says what it wants
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MCPDeprecationWarning)
            await ctx.session.send_log_message(report.level, report.data, report.logger, ctx.request_id)


_REQUESTS: Final[Mapping[str, tuple[Any, Any]]] = {
    "elicitation/create": (types.ElicitRequest, types.ElicitResult),
    "sampling/createMessage": (types.CreateMessageRequest, types.CreateMessageResult),
    "roots/list": (types.ListRootsRequest, types.ListRootsResult),
}


async def _ask(call: ClientCall, ctx: Any) -> None:
    """Put the first question to a client of the older era, and hand its answer in."""
    asked = call.questions.pop(0)
    request, result = _REQUESTS[asked.method]
    message = request.model_validate({"method": asked.method, "params": dict(asked.params)}, by_name=False)
    sending = asyncio.ensure_future(ctx.session.send_request(message, result, metadata=relate_to_request(ctx)))
    ended = call.task or sending
    try:
        # The call may end without the answer: its time to ask is limited.
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


def _asked_back(client: Client, call: ClientCall) -> dict[str, Any]:
    """Have a client of the newer era call again with the answers; the call stands still meanwhile."""
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
    """Take up the call that a client was asked about, with its answers."""
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


def _complete_answer(ctx: Any, answer: dict[str, Any]) -> dict[str, Any]:
    return {"resultType": "complete", **answer} if convert.is_modern(ctx.protocol_version) else answer


# Modules of custom tools as servers in this process: one server a module, with its name, version and tools.
#
# A tool is called through the application's door, so that arguments are checked, permission is asked and the call is
# recorded. A failure comes back as a content list with `isError`, never as an exception.


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
        return _complete_answer(ctx, {"tools": [convert.tool_shape(info) for info in list_members()]})

    async def call_tool(ctx: Any, params: Any) -> dict[str, Any]:
        own = {provider_safe(info.name): info for info in list_members()}
        info = own.get(params.name)
        if info is None:
            raise MCPError(
                types.INVALID_PARAMS, f"Unknown tool: {params.name[:100]}{convert.nearest(params.name, list(own))}"
            )
        result = await run(info.name, params.arguments or {})
        return _complete_answer(ctx, convert.result_shape(result, info.output_schema))

    server.add_request_handler("tools/list", types.PaginatedRequestParams, list_tools)
    server.add_request_handler("tools/call", types.CallToolRequestParams, call_tool)
    tools = tuple(full_name(module, provider_safe(info.name)) for info in members)
    return ModuleServer(module, version, tools, server)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in version.split("."))
