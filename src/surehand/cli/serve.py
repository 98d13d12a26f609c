"""`surehand serve`: the tools for any MCP client, over standard input and output or HTTP."""

from __future__ import annotations

import asyncio
import os
import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from surehand import __version__, catalog, config
from surehand.app import Surehand
from surehand.cli import render, session
from surehand.cli.parser import approvals_option, port_number
from surehand.cli.tools import csv, warn_of_unmatched
from surehand.core.errors import SettingsError
from surehand.engine.log import to_stderr
from surehand.mcp.server.calls import Listing, gathering
from surehand.mcp.server.resources import INSTRUCTIONS, own_extras
from surehand.policy.trust import is_trusted

if TYPE_CHECKING:
    from surehand.core.settings import ServeSettings


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

    # Importing the SDK allocates a million lasting objects; scanning them for garbage is a fifth of the start-up.
    gc.disable()
    # Looking for pydantic's plug-ins reads every installed package; no tool needs one.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        return session.run(_http(options) if options.http is not None else _stdio(options))
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
    from surehand.mcp.server.stdio import serve_stdio  # lazy: mcp, 900 ms

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
            await serve_http(serving, guard, options.http, lambda url: _announce(url, guard.token_place, own))
            return 0
        from surehand.console.server import Console  # lazy: starlette, 400 ms

        console = Console(guard.address)

        def announce(url: str) -> None:
            _announce(url, guard.token_place, own)
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


def _announce(url: str, token_place: str, own: ServeSettings) -> None:
    lines = [f"serving MCP at {url}"]
    if token_place:
        lines.append(f"the bearer token is in {token_place}")
    if own.issuers:
        lines.append(f"access tokens of {', '.join(own.issuers)} are taken, if they are for {own.resource or url}")
    render.note("\n".join(lines))
