"""`holdfast chat`: the same loop as `ask`, turn after turn, in a plain terminal.

Lines that begin with `/` are commands. A line that ends with a backslash goes on in the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from holdfast.cli import render

if TYPE_CHECKING:
    from holdfast.agent.loop import Loop
    from holdfast.app import Holdfast

HELP = """\
/undo [N]    take back the last change (or the last N)
/log         what was changed here
/tools       the tools the model sees
/mode [M]    show or set the mode: default, accept-edits, plan
/stats       what was measured in this session
/model       which model answers, and why
/help        this page
/exit        leave (also Ctrl-D)
A line that ends with \\ goes on in the next one. Ctrl-C stops an answer, not the chat."""


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("--model", metavar="NAME", help="a model's name, or provider/name")
    parser.add_argument("--record", metavar="FILE", help="write every call to a file, for `holdfast replay`")
    parser.add_argument("--tool-allow", default="", metavar="CSV", help="only these names, aliases or globs")


def run(options: Namespace) -> int:
    from holdfast.cli import door

    return door.run(_chat(options))


async def _chat(options: Namespace) -> int:
    from holdfast.cli import door
    from holdfast.cli.ask import Shown, limits
    from holdfast.cli.tools import csv
    from holdfast.core.call import new_id
    from holdfast.models import choose, open_model

    options.session = options.session or new_id("chat")
    async with door.opened(options, interactive=True, tool_allow=csv(options.tool_allow), record=options.record) as app:
        await door.connected(app)
        choice = choose(app.settings, options.model)
        options.max_turns = options.max_tokens = options.max_seconds = options.max_cost = None
        model = open_model(app.settings, choice)
        loop = app.conversation(model, limits=limits(options, app), on_text=Shown(app))
        chat = Chat(app, loop, choice)
        render.line(f"{choice.provider}/{choice.name}: {choice.why}")
        render.line(f"session {options.session}; /help lists the commands")
        _use_history(app)
        await chat.talk()
    return 0


def _use_history(app: Holdfast) -> None:
    """Keep what was typed, where the terminal can edit lines."""
    with contextlib.suppress(ImportError, OSError):
        import atexit
        import readline

        from holdfast.host import locations

        path = os.path.join(locations.private_dir(locations.home()), "chat_history")
        if os.path.exists(path):
            readline.read_history_file(path)
        readline.set_history_length(1000)
        atexit.register(readline.write_history_file, path)


class Chat:
    """Reads lines, hands them to the loop or to a command."""

    def __init__(self, app: Holdfast, loop: Loop, choice: Any) -> None:
        self.app = app
        self.loop = loop
        self.choice = choice
        self.commands: dict[str, Callable[[str], Awaitable[None]]] = {
            "undo": self._undo,
            "log": self._log,
            "tools": self._tools,
            "mode": self._mode,
            "stats": self._stats,
            "model": self._model,
            "help": self._help,
        }

    async def talk(self) -> None:
        """Go on until the person leaves."""
        while (text := await self._line()) is not None:
            if not text.strip():
                continue
            if text.startswith("/"):
                name, _, rest = text[1:].strip().partition(" ")
                if name in ("exit", "quit"):
                    return
                await self.commands.get(name, self._unknown)(rest.strip() if name in self.commands else name)
            else:
                await self._answer(text)

    async def _line(self) -> str | None:
        """Wait for a line; what runs in the background goes on meanwhile, and Ctrl-C does not leave."""
        with _on_interrupt(lambda: render.note("\n/exit or Ctrl-D leaves")):
            return await asyncio.get_running_loop().run_in_executor(None, _typed)

    async def _answer(self, text: str) -> None:
        from holdfast.core.model import ModelError

        work = asyncio.ensure_future(self.loop.ask(text))
        with _on_interrupt(work.cancel):
            try:
                outcome = await work
            except asyncio.CancelledError:
                render.note("stopped; what was done so far is kept")
                return
            except ModelError as problem:
                render.error(problem.message, problem.hint)
                return
        render.line()
        if not outcome.answered:
            render.note(f"stopped: {outcome.stop}")

    async def _undo(self, rest: str) -> None:
        for _ in range(int(rest) if rest.isdigit() else 1):
            # That a person typed it is its approval, for this one call.
            self.app.session.grants.append("Undo")
            result = await self.app.call("Undo", {}, source="user")
            self.app.session.grants.remove("Undo")
            render.line(result.output)
            if not result.ok:
                return

    async def _log(self, rest: str) -> None:
        from holdfast.host.history.history import HISTORY

        changes = self.app.session.keep(HISTORY).changes(limit=20)
        render.line(
            "\n".join(f"{change.id}  {change.tool}  {change.description}" for change in changes) or "nothing yet"
        )

    async def _tools(self, rest: str) -> None:
        rows = [(info.name, render.shortened(info.description, 70)) for info in self.app.selection.active_tools()]
        render.line(render.table(rows))
        hidden = len(self.app.selection) - len(rows)
        if hidden:
            render.line(f"and {hidden} more that the model finds with ToolSearch")

    async def _mode(self, rest: str) -> None:
        if rest in ("default", "accept-edits", "plan"):
            self.app.session.mode = rest
        elif rest:
            render.error(f"there is no mode {rest!r} to switch to", "default, accept-edits or plan")
        render.line(f"mode: {self.app.session.mode}")

    async def _stats(self, rest: str) -> None:
        from holdfast.engine.metrics_report import to_json

        rows: list[tuple[str, str, str, str]] = []
        for each in self.app.metrics.all():
            shown = to_json(each)["execution"]
            rows.append(
                (each.tool, str(shown["totalCalls"]), str(shown["failedCalls"]), f"{shown['p95ExecutionTime']:.0f} ms")
            )
        render.line(render.table(rows, ("TOOL", "CALLS", "FAILED", "P95")) if rows else "no calls yet")

    async def _model(self, rest: str) -> None:
        render.line(f"{self.choice.provider}/{self.choice.name}: {self.choice.why}")

    async def _help(self, rest: str) -> None:
        render.line(HELP)

    async def _unknown(self, name: str) -> None:
        render.error(f"there is no command /{name}", "/help lists them")


def _typed() -> str | None:
    """Return what was typed, several lines joined; None at the end of input."""
    lines: list[str] = []
    while True:
        try:
            line = input("> " if not lines else ". ")
        except EOFError:
            return "\n".join(lines) if lines else None
        except KeyboardInterrupt:
            return ""
        if not line.endswith("\\"):
            return "\n".join([*lines, line])
        lines.append(line[:-1])


@contextlib.contextmanager
def _on_interrupt(act: Callable[[], object]) -> Any:
    """Let Ctrl-C do this instead of ending the program."""
    import signal

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, act)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        sys.stdout.flush()
