"""`surehand acp`: our agent for an editor that speaks the Agent Client Protocol, over standard input and output."""

from __future__ import annotations

import asyncio
import os
import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any, Final, cast

from surehand.app import Surehand
from surehand.cli import render, session
from surehand.cli.parser import effort_option
from surehand.cli.session import hold_log
from surehand.cli.tools import csv
from surehand.config import load
from surehand.core.errors import SettingsError
from surehand.engine.log import to_stderr
from surehand.models import choose, open_model
from surehand.state.stdio import is_stream, own_stdio

if TYPE_CHECKING:
    from surehand.acp.agent import EditorAgent
    from surehand.core.model import Model
    from surehand.core.settings import McpServerSettings


def configure(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("--model", metavar="NAME", help="a model's name, or provider/name")
    effort_option(parser)
    parser.add_argument("--tool-allow", default="", metavar="CSV", help="only these names, aliases or globs")


def run(options: Namespace) -> int:
    """Serve one editor until it leaves."""
    if options.session:
        raise SettingsError("an editor names its sessions itself; --session is for chat and ask")
    if options.model:  # sessions open the model later; a wrong name is reported now, while the user is watching
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
    from surehand.acp.agent import EditorAgent  # lazy: acp, 800 ms; its extra may be missing

    def open_app(workspace: str, session: str, servers: dict[str, McpServerSettings]) -> Surehand:
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


# The stdio transport of the agent: one editor on standard input and output.

LINE_BYTES: Final = 64 * 1024 * 1024
"""Longest message accepted: a prompt may hold several images."""


async def serve_stdio(agent: EditorAgent) -> None:
    """Serve the editor on standard input until it closes; raise SettingsError if stdin or stdout is no stream."""
    from acp import run_agent

    for descriptor, name in ((0, "input"), (1, "output")):
        if not is_stream(descriptor):
            raise SettingsError(
                f"standard {name} is neither a pipe, a socket nor a terminal: `surehand acp` is started by an editor"
            )
    reader, writer = await own_stdio(LINE_BYTES)
    # Resuming and closing sessions are part of the protocol; the SDK still guards them by this word.
    await run_agent(cast("Any", agent), writer, reader, use_unstable_protocol=True)
