"""`surehand chat`: the same loop as `ask`, turn after turn, in a plain terminal.

The prompt has the main thread, where Ctrl-C arrives; everything else runs beside it, so that what works in the
background goes on while the user types.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from argparse import ArgumentParser, Namespace
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from surehand.cli import render
from surehand.cli.parser import approvals_option
from surehand.core.model import Usage

if TYPE_CHECKING:
    from surehand.agent.loop import Loop
    from surehand.app import Surehand
    from surehand.cli.aside import Aside
    from surehand.cli.deferred import Deferred
    from surehand.cli.prompt import Prompt
    from surehand.cli.screen import Screen
    from surehand.models import Choice


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("--model", metavar="NAME", help="a model's name, or provider/name")
    parser.add_argument("--record", metavar="FILE", help="write every call to a file, for `surehand replay`")
    parser.add_argument("--tool-allow", default="", metavar="CSV", help="only these names, aliases or globs")
    approvals_option(parser)


def run(options: Namespace) -> int:
    from surehand.cli.aside import Aside
    from surehand.cli.door import OwnSession
    from surehand.core.call import new_id
    from surehand.core.model import ModelError

    options.max_turns = options.max_tokens = options.max_seconds = options.max_cost = None
    session = OwnSession(options, new_id("chat"))
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGHUP, _leave)
    with Aside() as aside:
        chat = Chat(options, aside)
        try:
            chat.open()
            chat.talk()
        except ModelError as problem:
            render.error(problem.message, problem.hint)
            return 1
        finally:
            chat.close()
            session.drop_if_empty()
    return 0


def _leave(number: int, frame: Any) -> None:
    raise SystemExit(128 + number)


class Chat:
    """Reads what the user types, and hands it to the loop or to a command."""

    def __init__(self, options: Namespace, aside: Aside) -> None:
        self.options = options
        self.aside = aside
        self.app: Surehand
        self.loop: Loop
        self.screen: Screen
        self.choice: Choice
        self.questions: Deferred
        self.usage = Usage()
        self._leaving: asyncio.Event
        self._main: Any = None

    def open(self) -> None:
        """Open the application, and say who answers."""
        ready: Any = self.aside.loop.create_future()
        self._main = self.aside.start(self._hold_open(ready))
        self.aside.wait(_settled(ready))
        render.line(render.paint(f"{self.choice.provider}/{self.choice.name}", "bold") + f": {self.choice.why}")
        past = f", {len(self.loop.messages)} messages so far" if self.loop.messages else ""
        render.line(f"session {self.options.session}{past}; /help lists the commands, Ctrl-D leaves")

    async def _hold_open(self, ready: asyncio.Future[None]) -> None:
        """Keep the application open in one task from its beginning to its end."""
        from surehand.cli import door
        from surehand.cli.tools import csv

        self._leaving = asyncio.Event()
        more: dict[str, Any] = {"tool_allow": csv(self.options.tool_allow), "record": self.options.record}
        try:
            async with door.opened(self.options, interactive=True, shows=("call_finished", "note"), **more) as app:
                self.app = app
                self.use(self.options.model)
                await door.connected(app)
                ready.set_result(None)
                await self._leaving.wait()
        except BaseException as problem:
            if ready.done():
                raise
            ready.set_exception(problem)

    def use(self, wanted: str | None) -> None:
        """Go on with a model, from where the conversation is."""
        from surehand.cli.ask import limits
        from surehand.cli.deferred import Deferred
        from surehand.cli.screen import Screen
        from surehand.models import choose, open_model

        choice = choose(self.app.settings, wanted)
        model = open_model(self.app.settings, choice)
        if not hasattr(self, "screen"):
            self.screen = Screen(self.app, choice)
            self.screen.at_prompt = True
            self.questions = Deferred(self.app.approver, self.screen)
            self.app.approver = self.questions
        self.screen.choice = choice
        self.choice = choice
        self.loop = self.app.conversation(model, limits=limits(self.options, self.app), on_text=self.screen)

    def talk(self) -> None:
        """Go on until the user leaves."""
        from surehand.cli.chat_commands import COMMANDS, unknown
        from surehand.cli.nudge import nudge
        from surehand.cli.prompt import Prompt

        prompt = Prompt(tuple(COMMANDS))
        nudge(self.aside, prompt)
        while (text := self._typed(prompt)) is not None:
            if not text.strip():
                continue
            if not text.startswith("/"):
                self._answer(text)
                continue
            name, _, rest = text[1:].strip().partition(" ")
            if name in ("exit", "quit"):
                return
            command = COMMANDS.get(name)
            self._order(command.run(self, rest.strip()) if command else unknown(name))

    def _typed(self, prompt: Prompt) -> str | None:
        """Wait for what the user types; what asks for permission meanwhile is asked afterwards."""
        text = prompt.read()
        self._catch_up()
        return text

    def _catch_up(self) -> None:
        with contextlib.suppress(KeyboardInterrupt):
            self.aside.wait(self.questions.catch_up())

    def _order(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what a command says; what asks for permission meanwhile is asked at once."""
        self.questions.at_once = True
        with contextlib.suppress(KeyboardInterrupt):
            self.aside.wait(work)
        self.questions.at_once = False

    def _answer(self, text: str) -> None:
        from surehand.core.model import ModelError

        try:
            self.screen.end(self.aside.wait(self._asked(text)))
        except KeyboardInterrupt:
            self.screen.broke_off()
            render.note("stopped; what was done so far is kept")
        except ModelError as problem:
            self.screen.broke_off()
            render.error(problem.message, problem.hint)
        self.usage += self.loop.outcome.spent.usage
        self._catch_up()

    async def _asked(self, text: str) -> Any:
        self.screen.at_prompt = False
        self.screen.begin()
        return await self.loop.ask(text)

    def close(self) -> None:
        """End what the conversation started."""
        if self._main is None:
            return
        with contextlib.suppress(AttributeError):
            self.aside.call(self._leaving.set)
        with contextlib.suppress(KeyboardInterrupt):
            self.aside.wait(_settled(asyncio.wrap_future(self._main, loop=self.aside.loop)))


async def _settled(future: Any) -> None:
    await future
