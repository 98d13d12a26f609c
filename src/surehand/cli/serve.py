"""`surehand serve`, `acp` and `console`: serve tools to MCP clients, the agent to editors, sessions to a browser."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, cast

from surehand import __version__, catalog, config
from surehand.app import Surehand
from surehand.cli import render, session
from surehand.cli.parser import approvals_option, effort_option, port_number
from surehand.cli.tools import csv, warn_of_unmatched
from surehand.core.errors import SettingsError
from surehand.engine.bus import to_stderr
from surehand.mcp.server.calls import Listing, gathering
from surehand.mcp.server.resources import INSTRUCTIONS, own_extras
from surehand.models import choose, open_model
from surehand.policy.trust import is_trusted
from surehand.state.stdio import is_stream, own_stdio
from surehand.web.local_server import ServedAddress, is_loopback, serve_app

if TYPE_CHECKING:
    from surehand.acp.agent import EditorAgent
    from surehand.console.server import Console
    from surehand.core.model import Model
    from surehand.core.settings import McpServerSettings, ServeSettings


def configure(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--stdio", action="store_true", help="over standard input and output (the default)")
    way.add_argument("--http", type=port_number, metavar="PORT", help="over streamable HTTP; 0 picks a free port")
    parser.add_argument(
        "--tools",
        "--tool-allow",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="all, core, or only these names, aliases or globs; by default core is listed, and the rest can be called",
    )
    parser.add_argument(
        "--servers", default="", metavar="CSV", help="also serve the tools of these of your MCP servers ('*' for all)"
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: this machine only)")
    parser.add_argument(
        "--token-file", metavar="FILE", help="file with the bearer token (default: one is created and kept)"
    )
    parser.add_argument(
        "--no-token", action="store_true", help="use no token of its own (only on this machine, or with --issuer)"
    )
    parser.add_argument(
        "--issuer",
        action="append",
        default=[],
        metavar="URL",
        help="also accept access tokens of this authorization server (OAuth)",
    )
    parser.add_argument(
        "--resource", metavar="URL", help="with --issuer: the address at which clients reach this server"
    )
    parser.add_argument(
        "--scope", action="append", default=[], metavar="NAME", help="with --issuer: a scope that tokens must have"
    )
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME", help="a name this server is reached by"
    )
    parser.add_argument("--console", action="store_true", help="with --http: the web console on the same port")
    approvals_option(parser)
    parser.add_argument("--no-roots", action="store_true", help="use --cwd, whatever folder the client names")


def run(options: Namespace) -> int:
    """Run the command and return its exit code."""
    import gc

    if options.http is None and (options.issuer or options.resource or options.scope):
        raise SettingsError("--issuer, --resource and --scope are for clients over HTTP: give --http PORT")
    if options.console and options.http is None:
        raise SettingsError("--console is served over HTTP: give --http PORT, or run `surehand console` by itself")

    # Importing the SDK allocates a million lasting objects; scanning them for garbage takes a fifth of the start.
    gc.disable()
    return _run_server(_http(options) if options.http is not None else _stdio(options))


def _run_server(server: Coroutine[Any, Any, int]) -> int:
    """Run a server until it ends or is cancelled."""
    # To find pydantic plug-ins, the metadata of every installed package is read; no tool needs one.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        return session.run(server)
    except asyncio.CancelledError:
        return 0


def _serving(options: Namespace) -> Any:
    import gc

    from surehand.mcp.server.serving import Serving  # lazy: mcp, 900 ms

    words = [word for words in options.tools for word in csv(words)]
    shared = options.http is not None and bool(options.session)
    listing = Listing.of(words, (row["name"] for row in catalog.rows()))

    def open_app(approver: Any, workspace: str | None) -> Surehand:
        app = Surehand(
            workspace or options.cwd,
            approver=approver,
            allow=options.allow,
            mode=options.mode,
            session=options.session,
            tool_allow=listing.allow,
        )
        if session.wants_mailbox(options, app):
            app.approver = session.mailbox(app)
        to_stderr(app.settings.log.level, json_lines=app.settings.log.json_lines)
        warn_of_unmatched(app, [word for word in listing.allow if not word.startswith("mcp__")], "--tools")
        for warning in app.warnings:
            render.note(f"warning: {warning}")
        return app

    serving = Serving(
        open_app,
        version=__version__,
        instructions=INSTRUCTIONS,
        extras=own_extras(),
        follow_roots=not options.no_roots and not options.cwd_given and not shared,
        shared=shared,
        gather=gathering(csv(options.servers)),
        listing=listing,
    )
    gc.freeze()
    gc.enable()
    return serving


async def _stdio(options: Namespace) -> int:
    from surehand.mcp.server.serving import serve_stdio  # lazy: mcp, 900 ms

    serving = _serving(options)
    if sys.stdin.isatty():
        render.note("serving MCP on standard input; this is for a client to start, Ctrl-C ends it")
    try:
        await serve_stdio(serving.server)
    finally:
        await serving.close()
    return 0


async def _http(options: Namespace) -> int:
    from surehand.mcp.server.http import Door, serve_http  # lazy: mcp, 900 ms

    own = _oauth(options)
    guard = Door.of(options.host, options.allow_host, options.token_file, no_token=options.no_token, serve=own)
    serving = _serving(options)
    try:
        if not options.console:
            await serve_http(serving, guard, options.http, lambda url: _announce(url, guard.token_path, own))
            return 0
        from surehand.console.server import Console  # lazy: starlette, 400 ms

        console = Console(guard.address)

        def announce(url: str) -> None:
            _announce(url, guard.token_path, own)
            render.note(f"the console is at {console.make_sign_in_url(url)}")

        async with console.run():
            await serve_http(serving, guard, options.http, announce, beside=console.app)
    finally:
        await serving.close()
    return 0


def _oauth(options: Namespace) -> ServeSettings:
    """Return which issuers' access tokens are accepted: the settings, overridden by the options."""
    given = {"issuers": tuple(options.issuer), "resource": options.resource, "scopes": tuple(options.scope)}
    flags = {("serve", name): value for name, value in given.items() if value}
    return config.load(options.cwd, flags=flags, trusted=is_trusted(options.cwd)).settings.serve


def _announce(url: str, token_path: str, own: ServeSettings) -> None:
    lines = [f"serving MCP at {url}"]
    if token_path:
        lines.append(f"the bearer token is in {token_path}")
    if own.issuers:
        lines.append(f"access tokens of {', '.join(own.issuers)} are taken, if they are for {own.resource or url}")
    render.note("\n".join(lines))


def configure_acp(parser: ArgumentParser) -> None:
    """Add the options of `acp`."""
    parser.add_argument("--model", metavar="NAME", help="a model's name, or provider/name")
    effort_option(parser)
    parser.add_argument("--tool-allow", default="", metavar="CSV", help="only these names, aliases or globs")


def run_acp(options: Namespace) -> int:
    """Serve one editor on stdin and stdout until it closes stdin."""
    if options.session:
        raise SettingsError("an editor names its sessions itself; --session is for chat and ask")
    if options.model:  # sessions open the model later; a wrong name is reported at the start
        choose(config.load(options.cwd).settings, options.model)
    if sys.stdin.isatty():
        render.note("speaking ACP on standard input; this is for an editor to start, Ctrl-C ends it")
    return _run_server(_serve_editor(options))


async def _serve_editor(options: Namespace) -> int:
    from surehand.acp.agent import EditorAgent  # lazy: acp, 800 ms; its extra may be missing

    def open_app(workspace: str, session: str, servers: dict[str, McpServerSettings]) -> Surehand:
        more: dict[str, Any] = {"tool_allow": csv(options.tool_allow), "mcp_servers": servers}
        app = Surehand(workspace, allow=options.allow, mode=options.mode, session=session, **more)
        to_stderr(app.settings.log.level, json_lines=app.settings.log.json_lines)
        return app

    def model_of(app: Surehand) -> Model:
        return open_model(app.settings, choose(app.settings, options.model), effort=options.effort)

    session.hold_log()
    agent = EditorAgent(open_app, model_of)
    try:
        await serve_stdio(agent)
    finally:
        await agent.close()
    return 0


# The agent's stdio transport: one editor on stdin and stdout.

LINE_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of a message; a prompt may contain several images."""


async def serve_stdio(agent: EditorAgent) -> None:
    """Serve the editor on stdin until it closes; raise SettingsError if stdin or stdout is not a stream."""
    from acp import run_agent

    for descriptor, name in ((0, "input"), (1, "output")):
        if not is_stream(descriptor):
            raise SettingsError(
                f"standard {name} is neither a pipe, a socket nor a terminal: `surehand acp` is started by an editor"
            )
    reader, writer = await own_stdio(LINE_BYTES)
    # Resuming and closing sessions are part of the protocol, but the SDK still requires this flag for them.
    await run_agent(cast("Any", agent), writer, reader, use_unstable_protocol=True)


PORT: Final = 7317


def configure_console(parser: ArgumentParser) -> None:
    """Add the options of `console`."""
    about = f"where to listen (default {PORT}, or a free one where that is taken; 0 picks a free one)"
    parser.add_argument("--port", type=port_number, metavar="N", help=about)
    parser.add_argument("--open", action="store_true", help="open it in the browser")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: this machine only)")
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME", help="a name the console is reached by"
    )


def run_console(options: Namespace) -> int:
    """Run `console` and return its exit code."""
    session.hold_log()
    return _run_server(_serve_console(options))


async def _serve_console(options: Namespace) -> int:
    from surehand.console.server import Console  # lazy: starlette, 400 ms

    to_stderr("warning")
    address = ServedAddress(options.host, tuple(options.allow_host))
    console = Console(address)

    def announce(port: int) -> None:
        served = f"http://{address.shown}:{port}"
        url = console.make_sign_in_url(served)
        render.facts(options, {"url": url}, f"{url}\nIt works once. Ctrl-C ends the console.")
        sys.stdout.flush()
        if not is_loopback(options.host):
            render.note("warning: nothing sent here is encrypted; `surehand help console` says how to reach it safely")
        if options.open:
            import webbrowser

            webbrowser.open(url)
        _offer_more(served, console)

    async with console.run():
        try:
            await serve_app(console.app, address, PORT if options.port is None else options.port, announce)
        except OSError:
            if options.port is not None:
                raise
            await serve_app(console.app, address, 0, announce)
    return 0


def _offer_more(served: str, console: Console) -> None:
    """Print another sign-in URL, for another browser, each time Enter is pressed."""
    if not sys.stdin.isatty():
        return

    def give() -> None:
        if os.read(sys.stdin.fileno(), 1000):
            render.note(console.make_sign_in_url(served))
        else:
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())

    render.note("Enter prints a further one.")
    with contextlib.suppress(NotImplementedError, OSError):
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), give)
