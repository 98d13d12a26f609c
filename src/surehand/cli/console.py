"""`surehand console`: every session of the user in a browser, on this machine unless told otherwise."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Final

from surehand.cli import render
from surehand.cli.parser import port_number
from surehand.cli.session import hold_log
from surehand.cli.session import run as run_command
from surehand.engine.log import to_stderr
from surehand.web.local_server import ServedAddress, is_loopback, serve_app

if TYPE_CHECKING:
    from surehand.console.server import Console

PORT: Final = 7317


def configure(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    about = f"where to listen (default {PORT}, or a free one where that is taken; 0 picks a free one)"
    parser.add_argument("--port", type=port_number, metavar="N", help=about)
    parser.add_argument("--open", action="store_true", help="open it in the browser")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: this machine only)")
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME", help="a name the console is reached by"
    )


def run(options: Namespace) -> int:
    """Run the command and return its exit code."""
    # Looking for pydantic's plug-ins reads every installed package; no command needs one.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    hold_log()
    try:
        return run_command(_serve(options))
    except asyncio.CancelledError:
        return 0


async def _serve(options: Namespace) -> int:
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
    """Print a further address, for another browser, whenever Enter is pressed."""
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
