"""The way from the command line to the application: settings, approver, session, and a clean end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from argparse import Namespace
from collections.abc import AsyncGenerator, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.cli import render

if TYPE_CHECKING:
    from holdfast.app import Holdfast

T = TypeVar("T")


@contextlib.asynccontextmanager
async def opened(
    options: Namespace, *, interactive: bool = False, shows_result: bool = False, **settings: Any
) -> AsyncGenerator[Holdfast]:
    """Open the application for a command; `interactive` for commands that live on between calls.

    A command that shows the result of its one call itself (`shows_result`) logs no failure beside it, unless asked to.
    """
    # Looking for pydantic's plug-ins reads every installed package; no command needs one.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from holdfast.app import Holdfast
    from holdfast.engine.log import to_stderr
    from holdfast.policy.approval import Nobody, Terminal

    person = sys.stdin.isatty() and sys.stderr.isatty() and not options.json
    app = Holdfast(
        options.cwd,
        approver=Terminal() if person else Nobody(),
        allow=options.allow,
        mode=options.mode,
        session=options.session,
        interactive=interactive,
        **settings,
    )
    to_stderr(app.settings.log.level, json_lines=app.settings.log.json_lines)
    if shows_result and app.settings.log.level == "warning":
        import logging

        for handler in logging.getLogger("holdfast").handlers:
            handler.addFilter(lambda record: getattr(record, "holdfast", {}).get("event") != "call_finished")
    for warning in app.warnings:
        render.note(render.paint("warning: ", "yellow", stream=sys.stderr) + warning)
    async with app:
        yield app


async def connected(app: Holdfast) -> None:
    """Connect to the MCP servers there are, for commands that tell a model of all tools; say which did not answer."""
    for name, problem in (await app.connect_servers()).items():
        render.note(render.paint("warning: ", "yellow", stream=sys.stderr) + f"{name}: {problem}")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's work to its end; a SIGTERM ends it as Ctrl-C does, so that clean-up happens."""

    async def main() -> T:
        task = asyncio.current_task()
        if task is not None:
            with contextlib.suppress(NotImplementedError, RuntimeError):
                asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await work

    return asyncio.run(main())
