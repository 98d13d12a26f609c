"""The session of a command: opens the application with its settings and approver, and closes it at the end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from argparse import Namespace
from collections.abc import AsyncGenerator, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from surehand.cli import render
from surehand.engine.bus import to_stderr
from surehand.engine.journal import drop_empty
from surehand.policy.approval import First, Nobody
from surehand.state import locations

if TYPE_CHECKING:
    from surehand.app import Surehand
    from surehand.policy.approval import Answer, Approver, Question

T = TypeVar("T")
PATIENCE_S = 5.0
"""Seconds a command waits for MCP servers before it starts without them."""


@contextlib.asynccontextmanager
async def open_app(
    options: Namespace, *, interactive: bool = False, shows: tuple[str, ...] = (), **settings: Any
) -> AsyncGenerator[Surehand]:
    """Open the application for a command; `interactive` for commands that make several calls over time.

    Events of the kinds in `shows`, which the command prints itself, are not logged as well unless the user asks for it.
    """
    # To find pydantic plug-ins, the metadata of every installed package is read; no command needs one.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from surehand.app import Surehand  # lazy: app, 160 ms

    hold_log()  # warnings of opening the application are printed below, once
    app = Surehand(
        options.cwd,
        allow=options.allow,
        mode=options.mode,
        session=options.session,
        interactive=interactive,
        **settings,
    )
    app.approver = approver(options, app)
    app.executor.permissions.questions.tell = _tell_waiting
    to_stderr(app.settings.log.level, json_lines=app.settings.log.json_lines)
    if shows and app.settings.log.level == "warning":
        for handler in logging.getLogger("surehand").handlers:
            handler.addFilter(lambda record: getattr(record, "surehand", {}).get("event") not in shows)
    render.warnings(app.warnings)
    async with app:
        yield app


def hold_log() -> None:
    """Keep log lines off the terminal until a handler is set; without any, Python prints warnings to stderr."""
    logging.getLogger("surehand").addHandler(logging.NullHandler())


class OwnSession:
    """The session of one command: named by the user or after the command; deleted if it stays empty."""

    def __init__(self, options: Namespace, name: str) -> None:
        self._options = options
        self._folder = os.path.join(locations.workspace_state(options.cwd), "sessions")
        if options.session is None and self._can_be_kept():
            options.session = name
        self._path = os.path.join(self._folder, f"{options.session}.jsonl")
        self._fresh = options.session is not None and not os.path.exists(self._path)

    def _can_be_kept(self) -> bool:
        try:
            locations.private_dir(self._folder)
        except OSError as problem:
            render.note(f"warning: this is not kept as a session: {self._folder}: {problem.strerror}")
            return False
        return True

    def drop_if_empty(self) -> None:
        """Delete the session if it contains no call and no answer of a model."""
        if self._fresh and drop_empty(self._path):
            self._options.session = None


def approver(options: Namespace, app: Surehand) -> Approver:
    """Return the approver of a command: the person at the terminal, another process, both, or nobody."""
    elsewhere = mailbox(app) if wants_mailbox(options, app) else None
    if not (sys.stdin.isatty() and sys.stderr.isatty()) or options.json:
        return elsewhere or Nobody(
            "with `--approvals mailbox` the call waits for `surehand approvals` in another terminal"
        )
    from surehand.policy.terminal import Terminal  # lazy: terminal, 3 ms

    here = Terminal(style=render.question)
    return First(here, _Elsewhere(elsewhere)) if elsewhere else here


class _Elsewhere:
    """An approver in another process. Its answer is printed at the terminal too, where the question was also shown."""

    def __init__(self, approver: Approver) -> None:
        self._approver = approver

    async def ask(self, question: Question) -> Answer:
        answer = await self._approver.ask(question)
        render.note(f"\nanswered elsewhere: {answer.kind}")
        return answer

    def withdraw(self, question: Question, answer: Answer) -> None:
        if (withdraw := getattr(self._approver, "withdraw", None)) is not None:
            withdraw(question, answer)


def wants_mailbox(options: Namespace, app: Surehand) -> bool:
    """Whether questions may be answered from another process."""
    wanted = getattr(options, "approvals", None) or app.settings.permissions.approvals
    return wanted == "mailbox" and app.session.state_dir is not None


def mailbox(app: Surehand) -> Approver:
    """Return the approver that waits for `surehand approvals`, and prints how to answer."""
    from surehand.policy.mailbox import Mailbox  # lazy: mailbox, 3 ms

    timeout_s = app.settings.permissions.approval_timeout
    return Mailbox(app.session.state_dir or "", timeout_s=timeout_s, tell=_tell_waiting_there)


def _tell_waiting_there(name: str, question: Question) -> None:
    render.note(f"{question.tool} waits for an answer. In another terminal: {_format_answering(name)}")


def _tell_waiting(name: str, question: Question) -> None:
    how = _format_answering(name)
    render.note(f"{question.tool} waits for an answer in the console. Or in another terminal: {how}")


def _format_answering(name: str) -> str:
    return f"surehand approvals show {name}; then allow {name}, or deny {name}"


async def connect_servers(app: Surehand) -> None:
    """Connect to the configured MCP servers, for commands that give a model all tools; warn of those that failed."""
    for name, problem in (await app.connect_servers(patience_s=PATIENCE_S)).items():
        render.note(render.paint("warning: ", "yellow", stream=sys.stderr) + f"{name}: {problem}")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end; SIGTERM cancels it like Ctrl-C, so that clean-up happens."""

    async def main() -> T:
        task = asyncio.current_task()
        if task is not None:
            with contextlib.suppress(NotImplementedError, RuntimeError):
                asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await work

    return asyncio.run(main())
