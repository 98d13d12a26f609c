"""`surehand acp`: our agent for an editor that speaks the Agent Client Protocol, over standard input and output."""

from __future__ import annotations

import asyncio
import os
import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from surehand.cli import render
from surehand.cli.parser import effort_option
from surehand.core.errors import SettingsError

if TYPE_CHECKING:
    from surehand.app import Surehand
    from surehand.core.model import Model
    from surehand.core.settings import McpServerSettings


def configure(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("--model", metavar="NAME", help="a model's name, or provider/name")
    effort_option(parser)
    parser.add_argument("--tool-allow", default="", metavar="CSV", help="only these names, aliases or globs")


def run(options: Namespace) -> int:
    """Serve one editor until it leaves."""
    from surehand.cli import session
    from surehand.config import load
    from surehand.models import choose

    if options.session:
        raise SettingsError("an editor names its sessions itself; --session is for chat and ask")
    if options.model:  # sessions open it later; a name that cannot be right is said while somebody looks
        choose(load(options.cwd).settings, options.model)
    # Looking for pydantic's plug-ins reads every installed package; no tool needs one.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    if sys.stdin.isatty():
        render.note("speaking ACP on standard input; this is for an editor to start, Ctrl-C ends it")
    try:
        return session.run(_serve(options))
    except asyncio.CancelledError:
        return 0


async def _serve(options: Namespace) -> int:
    from surehand.acp.agent import EditorAgent
    from surehand.acp.stdio import serve_stdio
    from surehand.cli.session import hold_log
    from surehand.cli.tools import csv
    from surehand.models import choose, open_model

    def open_app(workspace: str, session: str, servers: dict[str, McpServerSettings]) -> Surehand:
        from surehand.app import Surehand
        from surehand.engine.log import to_stderr

        more: dict[str, Any] = {"tool_allow": csv(options.tool_allow), "mcp_servers": servers}
        app = Surehand(workspace, allow=options.allow, mode=options.mode, session=session, **more)
        to_stderr(app.settings.log.level, json_lines=app.settings.log.json_lines)
        return app

    def model_of(app: Surehand) -> Model:
        return open_model(app.settings, choose(app.settings, options.model), effort=options.effort)

    hold_log()
    agent = EditorAgent(open_app, model_of)
    try:
        await serve_stdio(agent)
    finally:
        await agent.close()
    return 0
