"""A connection to one MCP server: one task opens it, reports when it is lost, and reconnects.

Calls come from any task. When the connection is lost, those under way fail at once with the reason; later ones fail
with the same reason until it is ready again. It is retried with growing pauses until it is closed.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
from asyncio import FIRST_COMPLETED
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Literal, cast

from surehand import __version__
from surehand.core.call import ToolError
from surehand.core.errors import SurehandError, ToolFailure
from surehand.core.installation import explain_missing_module
from surehand.core.session import Session
from surehand.files.sanitize import visible
from surehand.mcp import convert
from surehand.mcp.client.config import OAUTH, Configured, expand_variables

State = Literal["idle", "connecting", "ready", "lost", "closed"]
PAUSES_S: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
CONNECT_S: Final = 30.0
"""How long connecting and listing tools may take, unless the server's own time-out is shorter."""
LOGIN_S: Final = 400.0
"""How long that may take if a person logs in."""
TOOLS_LIMIT: Final = 20_000
PAGES_LIMIT: Final = 1_000
LIST_CHARS: Final = 32 * 1024 * 1024
"""Characters of all definitions in a server's list of tools."""
TOOL_CHARS: Final = 1024 * 1024
"""Characters of one definition."""
AT_ONCE: Final = 50
"""Definitions processed before other tasks get a turn."""
REFRESH_S: Final = 0.5
"""Least time between two listings of a server's tools, however often it reports changes."""

Show = Callable[[str], Coroutine[Any, Any, None]]
"""Shows a person the address at which to log in."""
Tools = Callable[[Sequence[Mapping[str, Any]]], Coroutine[Any, Any, None]]
Elicit = Callable[[str, Mapping[str, Any]], Any]
"""`elicit(message, schema)` returns the answer to a server's form: `{"action": ..., "content": ...}`."""


class Connection:
    """The connection to one server."""

    def __init__(
        self,
        server: Configured,
        *,
        session: Session,
        found: Tools,
        moved: Callable[[Connection, State], None],
        elicit: Callable[[], Elicit | None] = lambda: None,
        login: Callable[[], Show | None] = lambda: None,
        introduced_as: Callable[[], str] = lambda: "surehand",
        pauses_s: Sequence[float] = PAUSES_S,
    ) -> None:
        self.server = server
        self.state: State = "idle"
        self.problem = ""
        self.info: Mapping[str, Any] = {}
        self.attempts = 0
        """Failed attempts to connect, in a row."""
        self._session = session
        self._found = found
        self._moved = moved
        self._elicit = elicit
        self._login = login
        self._introduced_as = introduced_as
        self._pauses_s = pauses_s
        self._client: Any = None
        self._transport: Any = None
        self._task: asyncio.Task[None] | None = None
        self._attempted = asyncio.Event()
        self._refresh = asyncio.Event()
        self._lost = asyncio.Event()
        self._find_reverted: Callable[[], Awaitable[tuple[str, ...]]] | None = None

    @property
    def name(self) -> str:
        """The name of the server."""
        return self.server.name

    @property
    def _over_http(self) -> bool:
        return bool(self.server.settings.url)

    async def ready(self) -> None:
        """Wait until the server can be called; raise ToolFailure with the reason if it cannot."""
        if self._task is None and self.state != "closed":
            self._task = asyncio.get_running_loop().create_task(self._supervise())
        await self._attempted.wait()
        if self.state != "ready":
            raise self.unavailable()

    def unavailable(self) -> ToolFailure:
        """Return the failure of a call to a server that is not available."""
        return ToolFailure(
            f"the MCP server {self.name} is not available: {self.problem or self.state}",
            code="tool_unavailable",
            hint=f"It is retried automatically; `surehand mcp test {self.name}` tries it at once.",
            details={"server": self.name, "state": self.state, "attempts": self.attempts},
        )

    async def call(self, tool: str, args: Mapping[str, Any], progress: Callable[..., Any]) -> dict[str, Any]:
        """Call a tool and return the server's result; raise ToolFailure if there is none."""
        if self.state in ("idle", "connecting") and not self.attempts:
            await self.ready()
        client = self._client
        if self.state != "ready" or client is None:
            raise self.unavailable()

        async def report(done: float, total: float | None, message: str | None) -> None:
            progress(message or "", done=done, total=total)

        from mcp.shared.exceptions import MCPError

        try:
            result = await client.call_tool(tool, dict(args), progress_callback=report)
        except MCPError as problem:
            raise self._make_failure(tool, problem, current=client is self._client) from problem
        except (RuntimeError, ValueError, OSError) as problem:  # a result that is invalid
            raise ToolFailure(f"the MCP server {self.name} answered {tool} wrongly: {_plain(problem)}") from problem
        except asyncio.CancelledError:
            self._refresh.set()  # lists the tools: a server that hangs fails that, and is restarted
            raise
        return convert.plain(result)

    async def revert_leftovers(self) -> ToolError | None:
        """Revert changes of a sandboxed server that no program may make; return the error that reports them."""
        if self._find_reverted is None or not (found := await self._find_reverted()):
            return None
        from surehand.commands.collect_changes import KEPT_HINT, put_back_message  # lazy: collect_changes, 40 ms

        message = put_back_message(f"the MCP server {self.name}", found)
        self._note(message)
        return ToolError("execution_error", message, KEPT_HINT)

    def _make_failure(self, tool: str, problem: Any, *, current: bool) -> ToolFailure:
        import mcp_types as types

        from surehand.mcp.client.http import was_too_long, was_unreadable  # lazy: mcp, 900 ms

        code = problem.error.code
        if was_too_long(problem):
            hint = "Ask for less at a time; the server and its other calls continue."
            return ToolFailure(f"the MCP server {self.name} answered {tool} with too much: {problem}", hint=hint)
        if was_unreadable(problem):
            message = f"the MCP server {self.name} answered {tool} with what cannot be read: {_plain(problem)}"
            return ToolFailure(message, hint="This is a fault of the server; its other calls continue.")
        lost_codes = {types.CONNECTION_CLOSED}
        if self._over_http:  # there, nothing else shows that the session has ended or the server is gone
            lost_codes |= {types.INVALID_REQUEST, types.INTERNAL_ERROR}
        if code in lost_codes or self.state != "ready":
            if current and self.state == "ready":
                self.problem = self._fault or f"its connection broke ({_plain(problem)})"
                self._lost.set()
                self._set_state("lost")
            return ToolFailure(
                f"the MCP server {self.name} was lost during {tool}: {self.problem or _plain(problem)}",
                code="tool_unavailable",
                hint="It is being restarted; try again in a moment.",
            )
        message = f"the MCP server {self.name} refused {tool}: {_plain(problem)}"
        kind = "invalid_args" if code == types.INVALID_PARAMS else "execution_error"
        return ToolFailure(message, code=kind, details={"code": code})

    async def close(self) -> None:
        """Close the connection, and end the server's process."""
        self._set_state("closed")
        self._attempted.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    # -- the one task ------------------------------------------------------------------------------------------------

    async def _supervise(self) -> None:
        while self.state != "closed":
            self._attempted.clear()
            self._set_state("connecting")
            try:
                await self._live()
            except asyncio.CancelledError:
                raise
            except BaseException as problem:  # reported by the calls that fail
                self.problem = self._fault or _describe(problem)
            self._client = None
            self.attempts += 1
            self._set_state("lost")
            self._attempted.set()
            await asyncio.sleep(self._pauses_s[min(self.attempts, len(self._pauses_s)) - 1])

    async def _live(self) -> None:
        """Connect, report the tools, and return or raise when the connection is lost."""
        self._lost.clear()
        self._transport = None
        await asyncio.to_thread(_load_sdk, "login" if self._over_http else "stdio")
        patience_s = min(self.server.settings.timeout, CONNECT_S) if self._login() is None else LOGIN_S
        async with self._open_transport() as (client, ended, why):
            try:
                async with asyncio.timeout(patience_s):
                    await client.__aenter__()
                    # `_RemoteTool` validates results in a thread and within limits; here it would block the loop.
                    client.session.validate_tool_result = _skip_validation
                    tools = await self._list_tools(client)
            except TimeoutError:
                refusal = why() if self._over_http else ""
                raise self._fail(refusal or f"it did not introduce itself within {patience_s:g} s") from None
            except Exception as problem:
                refusal = why() if self._over_http else ""
                more = f" ({why()})" if ended.is_set() else ""
                raise self._fail(refusal or f"the connection failed: {_describe(problem)}{more}") from problem
            try:
                self.info = _sanitize_info(convert.plain(client.server_info) or {})
                self._client, self.problem, self.attempts = client, "", 0
                await self._found(tools)
                self._set_state("ready")
                self._attempted.set()
                await self._stay(client, ended)
                self.problem = self._fault or why() or self.problem or "the session has ended"
            finally:
                self._client = None
                self.problem = self.problem or "its connection broke"
                self._set_state("lost")  # before closing, which may take a while
                await client.__aexit__(None, None, None)

    @property
    def _fault(self) -> str:
        """Why this side closed the connection; empty where it did not."""
        return self._transport.fault if self._transport is not None else ""

    def _fail(self, problem: str) -> ToolFailure:
        """Report why the server is not available to those who wait, before closing, which may take a while."""
        self.problem = problem
        self._set_state("lost")
        self._attempted.set()
        return ToolFailure(problem)

    async def _stay(self, client: Any, ended: asyncio.Event) -> None:
        events = {name: asyncio.ensure_future(event.wait()) for name, event in self._events(ended).items()}
        listening = asyncio.ensure_future(self._listen_for_changes(client))
        try:
            while True:
                await asyncio.wait(events.values(), return_when=FIRST_COMPLETED)
                if events["ended"].done() or events["lost"].done():
                    return
                self._refresh.clear()
                events["refresh"] = asyncio.ensure_future(self._refresh.wait())
                await self._refresh_tools(client)
                await asyncio.wait({events["ended"], events["lost"]}, timeout=REFRESH_S, return_when=FIRST_COMPLETED)
        finally:
            for task in (*events.values(), listening):
                task.cancel()

    async def _refresh_tools(self, client: Any) -> None:
        try:
            async with asyncio.timeout(CONNECT_S):
                await self._found(await self._list_tools(client))
        except TimeoutError:
            raise ToolFailure(f"it answered nothing for {CONNECT_S:g} s") from None

    def _events(self, ended: asyncio.Event) -> dict[str, asyncio.Event]:
        return {"ended": ended, "lost": self._lost, "refresh": self._refresh}

    async def _listen_for_changes(self, client: Any) -> None:
        """Subscribe to changes of the tools of a server of the newer era, which notifies only subscribers."""
        tools = client.server_capabilities.tools
        if not convert.is_modern(client.protocol_version) or tools is None or not tools.list_changed:
            return
        async with client.listen(tools_list_changed=True) as changes:
            async for _ in changes:
                self._refresh.set()

    async def _on_message(self, message: Any) -> None:
        import mcp_types as types

        if isinstance(message, types.ToolListChangedNotification):
            self._refresh.set()

    async def _list_tools(self, client: Any) -> list[dict[str, Any]]:
        """Return a server's tools, up to the limits."""
        tools: list[dict[str, Any]] = []
        chars_left, cursors = LIST_CHARS, list[str | None]([None])
        while client.server_capabilities.tools is not None:
            page = await client.list_tools(cursor=cursors[-1])
            for number, each in enumerate(page.tools):
                if number % AT_ONCE == AT_ONCE - 1:
                    await asyncio.sleep(0)
                entry = convert.plain(each)
                size = len(json.dumps(entry))
                chars_left -= size
                if chars_left < 0 or len(tools) == TOOLS_LIMIT:
                    return self._end_list(tools)
                if size <= TOOL_CHARS:
                    tools.append(entry)
                else:
                    self._note(
                        f"a tool of the MCP server {self.name} was left out: its definition is too long ({size:,})"
                    )
            if page.next_cursor is None:
                break
            if page.next_cursor in cursors or len(cursors) == PAGES_LIMIT:
                return self._end_list(tools)
            cursors.append(page.next_cursor)
        return tools

    def _end_list(self, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
        self._note(f"the list of tools of the MCP server {self.name} has no end; the first {len(tools):,} are used")
        return tools

    def _note(self, message: str) -> None:
        self._session.emit("note", message=message)

    @asynccontextmanager
    async def _open_transport(self) -> AsyncGenerator[tuple[Any, asyncio.Event, Callable[[], str]]]:
        """Start the server or open its URL; yield a client to enter, the event of its end, and the reason for that."""
        # A new transport also needs: `_over_http` and `_load_sdk` in this file, `McpServerSettings` of
        # `core/settings.py`, in `config.py` `_KNOWN_KEYS` and the types of `read_file` (else its keys of .mcp.json are
        # dropped), `_add`, `address_problem` and `fingerprint` (a changed address must have its tools approved again),
        # `make docs`, `cli/mcp.py`, the servers that editors and SDKs pass on (`acp/convert.py`, `mcp_capabilities` of
        # `acp/agent.py`, `integrations/claude_sdk.py`), docs/mcp.md and docs/editors.md.
        own, fill = self.server.settings, _filler()
        if own.url:
            async with self._open_url(fill(own.url), fill) as (transport, refusal):
                yield self._make_client(transport), asyncio.Event(), refusal
            return
        from surehand.mcp.client.stdio import OverPipe, contained, of_project, piped  # lazy: mcp, 900 ms

        env = {name: fill(value) for name, value in own.env.items()}
        command, args = fill(own.command or ""), [fill(word) for word in own.args]
        if own.sandbox:
            running = contained(self._session, self.name, command, args, env)
        elif own.project and self._session.settings.sandbox.project_servers:
            running = of_project(self._session, self.name, command, args, env)
        else:
            running = piped(command, args, env, self._session.workspace)
        async with running as pipe:
            self._find_reverted = pipe.find_reverted
            yield self._make_client(OverPipe(pipe)), pipe.lines.ended, pipe.why_ended

    @asynccontextmanager
    async def _open_url(self, url: str, fill: Callable[[str], str]) -> AsyncGenerator[tuple[Any, Callable[[], str]]]:
        """Open the HTTP transport to a server, with the tokens of a login unless its headers have their own."""
        from surehand.mcp.client.http import LastResponse, over_http  # lazy: mcp, 900 ms
        from surehand.mcp.client.login import open_login  # lazy: mcp, 900 ms

        own = self.server.settings
        headers, last = {name: fill(value) for name, value in own.headers.items()}, LastResponse(self.name, url)
        if "authorization" in map(str.lower, headers):
            async with over_http(url, headers, last) as transport:
                yield transport, lambda: last.refusal
            return
        client = {name: fill(value) for name in OAUTH if (value := getattr(own, name))}
        async with (
            open_login(self.name, url, client, self._login(), last.fail) as auth,
            over_http(url, headers, last, auth) as transport,
        ):
            yield transport, lambda: last.refusal

    def _make_client(self, transport: Any) -> Any:
        import mcp_types as types

        from mcp import Client
        from surehand.mcp.client.http import CorrectedTransport  # lazy: mcp, 900 ms

        elicit = self._elicit()

        async def answer_form(context: Any, params: Any) -> Any:
            del context
            assert elicit is not None
            answer = elicit(params.message, convert.plain(getattr(params, "requested_schema", None)) or {})
            answer = await answer if asyncio.iscoroutine(answer) else answer
            return types.ElicitResult.model_validate(answer)

        self._transport = CorrectedTransport(transport)
        return Client(
            self._transport,
            client_info=types.Implementation(name=self._introduced_as(), version=__version__),
            message_handler=self._on_message,
            elicitation_callback=answer_form if elicit is not None else None,
            cache=None,
        )

    def _set_state(self, state: State) -> None:
        if self.state not in (state, "closed"):
            self.state = state
            self._moved(self, state)


def _load_sdk(transport: str) -> None:
    """Import what a connection needs; called in a thread, since it takes about a second."""
    for name in ("mcp", "surehand.mcp.client.http", f"surehand.mcp.client.{transport}"):
        importlib.import_module(name)


def _filler() -> Callable[[str], str]:
    return lambda text: expand_variables(text, os.environ)


def _describe(problem: BaseException) -> str:
    """Return an exception in one line; of a group, its first."""
    while isinstance(problem, BaseExceptionGroup):
        problem = cast("BaseException", problem.exceptions[0])  # pyright: ignore[reportUnknownMemberType]
    if isinstance(problem, SurehandError):
        return str(problem)
    if isinstance(problem, ModuleNotFoundError) and (missing := explain_missing_module(problem)):
        return ". ".join(missing)
    return f"{type(problem).__name__}: {_plain(problem)}" if str(problem) else type(problem).__name__


def _plain(problem: object) -> str:
    """Return a server's text, sanitized and truncated."""
    text = visible(str(problem)[:2000])
    return text if len(text) <= 1000 else f"{text[:1000]}…"


def _sanitize_info(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return a server's `serverInfo`, sanitized and truncated."""
    return {key: visible(each[:500], lines=False) if isinstance(each, str) else each for key, each in info.items()}


async def _skip_validation(name: str, result: Any) -> None:
    del name, result
