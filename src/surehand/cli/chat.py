"""`surehand chat`: the same loop as `ask`, turn after turn, in a terminal.

Everything runs in one event loop: the prompt, the answer, and what works in the background meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from argparse import ArgumentParser, Namespace
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from surehand.agent.loop import Spent
from surehand.cli import render
from surehand.cli.parser import approvals_option, effort_option

if TYPE_CHECKING:
    from surehand.agent.loop import Loop
    from surehand.app import Surehand
    from surehand.cli.approvals import Deferred
    from surehand.cli.screen import Screen
    from surehand.models import Choice
    from surehand.slash import FileCommand


def configure(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("--model", metavar="NAME", help="a model's name, or provider/name")
    parser.add_argument("--continue", action="store_true", dest="go_on", help="go on with the latest session here")
    parser.add_argument("--record", metavar="FILE", help="write every call to a file, for `surehand replay`")
    parser.add_argument("--tool-allow", default="", metavar="CSV", help="only these names, aliases or globs")
    effort_option(parser)
    approvals_option(parser)


def run(options: Namespace) -> int:
    """Talk until the user leaves, or a signal ends it."""
    from surehand.cli.session import OwnSession
    from surehand.core.call import new_id
    from surehand.core.model import ModelError

    options.max_turns = options.max_tokens = options.max_seconds = options.max_cost = None
    if options.go_on:
        options.session = _latest_session(options)
    session = OwnSession(options, new_id("chat"))
    try:
        return asyncio.run(_until_signalled(_chat(options)))
    except ModelError as problem:
        render.error(problem.message, problem.hint)
        return 1
    finally:
        session.drop_if_empty()


def _latest_session(options: Namespace) -> str:
    """Return the session that was used last here; raise SettingsError where there is none to go on with."""
    from surehand.core.errors import SettingsError
    from surehand.engine.journal import list_sessions
    from surehand.state import locations

    if options.session:
        raise SettingsError("--continue takes the latest session; --session names one. Say one of them.")
    found = list_sessions(os.path.join(locations.workspace_state(options.cwd), "sessions"))
    if (latest := next((each.name for each in found if each.first), None)) is None:
        raise SettingsError("there is no session here to continue; `surehand chat` begins one")
    return latest


async def _until_signalled(work: Coroutine[Any, Any, None]) -> int:
    """Run to the end, or to a signal that ends the chat; what it started is ended first."""
    task = asyncio.ensure_future(work)
    ended_by: list[int] = []

    def end(number: int) -> None:
        ended_by.append(number)
        task.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, end, number)
    try:
        await task
    except asyncio.CancelledError:
        if not ended_by:
            raise
    return 128 + ended_by[0] if ended_by else 0


async def _chat(options: Namespace) -> None:
    from surehand.cli import session
    from surehand.cli.tools import csv

    more: dict[str, Any] = {"tool_allow": csv(options.tool_allow), "record": options.record}
    async with session.open_app(options, interactive=True, shows=("call_finished", "note"), **more) as app:
        chat = Chat(options, app)
        chat.use(options.model)
        await session.connect_servers(app)
        await chat.talk()


class Chat:
    """Reads what the user types, and hands it to the loop or to a command."""

    def __init__(self, options: Namespace, app: Surehand) -> None:
        self.options = options
        self.app = app
        self.loop: Loop
        self.screen: Screen
        self.choice: Choice
        self.questions: Deferred
        self.spent = Spent()
        self.kept: dict[str, FileCommand] = {}
        """Prompts kept in files, by the word after `/`."""
        self._working: asyncio.Task[Any] | None = None

    def use(self, wanted: str | None) -> None:
        """Go on with a model, from where the conversation is."""
        from surehand.cli.approvals import Deferred
        from surehand.cli.ask import limits
        from surehand.cli.screen import Screen
        from surehand.models import choose, open_model

        choice = choose(self.app.settings, wanted)
        model = open_model(self.app.settings, choice, effort=self.options.effort)
        if not hasattr(self, "screen"):
            self.screen = Screen(self.app, choice)
            self.screen.at_prompt = True
            self.questions = Deferred(self.app.approver, self.screen)
            self.app.approver = self.questions
        self.screen.choice = choice
        self.choice = choice
        self.loop = self.app.conversation(model, limits=limits(self.options, self.app, choice), on_text=self.screen)

    async def talk(self) -> None:
        """Say who answers, and go on until the user leaves."""
        from surehand.cli.chat_commands import COMMANDS, report_unknown
        from surehand.cli.prompt import open_prompt
        from surehand.slash import load_commands

        self.kept, left_out = load_commands(self.app.session.workspace, trusted=self.app.trusted)
        for problem in left_out:
            render.note(f"warning: {problem}")

        render.line(render.paint(f"{self.choice.provider}/{self.choice.name}", "bold") + f": {self.choice.why}")
        so_far = f", {len(self.loop.messages)} messages so far" if self.loop.messages else ""
        render.line(f"session {self.options.session}{so_far}; /help lists the commands, Ctrl-D leaves")
        prompt = open_prompt((*COMMANDS, *self.kept), self.app.session.workspace)
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._interrupt)
        while (text := await prompt.read()) is not None:
            await self._interruptible(self.questions.catch_up())
            if not text.strip():
                continue
            if not text.startswith("/"):
                await self._answer(text)
                continue
            name, _, rest = text[1:].strip().partition(" ")
            if name in ("exit", "quit"):
                return
            if name not in COMMANDS and (kept := self.kept.get(name)):
                await self._answer(kept.prompt(rest.strip()))
                continue
            command = COMMANDS.get(name)
            self.questions.at_once = True  # what a command of theirs asks is asked at once
            await self._interruptible(command.run(self, rest.strip()) if command else report_unknown(name))
            self.questions.at_once = False

    async def _interruptible(self, work: Coroutine[Any, Any, Any]) -> bool:
        """Do something that Ctrl-C stops; say whether it came to its end."""
        task = self._working = asyncio.ensure_future(work)
        try:
            await task
        except asyncio.CancelledError:
            if not task.cancelled() or (current := asyncio.current_task()) is None or current.cancelling():
                raise
            return False
        finally:
            self._working = None
        return True

    def _interrupt(self) -> None:
        """Stop what is under way; between two things there is nothing to stop."""
        if self._working is not None:
            self._working.cancel()

    async def _ask(self, text: str) -> None:
        from surehand.mentions import add_mentioned

        await self.loop.ask(await add_mentioned(self.app, text))

    async def _answer(self, text: str) -> None:
        from surehand.core.model import ModelError

        try:
            self.screen.at_prompt = False
            self.screen.begin()
            if await self._interruptible(self._ask(text)):
                self.screen.end(self.loop.outcome)
            else:
                self.screen.break_off()
                render.note("stopped; what was done so far is kept")
        except ModelError as problem:
            self.screen.break_off()
            render.error(problem.message, problem.hint)
        except asyncio.CancelledError:
            with contextlib.suppress(RuntimeError):
                self.screen.break_off()
            raise
        self.spent.join(self.loop.outcome.spent)
        await self._interruptible(self.questions.catch_up())
