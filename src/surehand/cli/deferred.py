"""Questions take turns on a terminal with everything else: the answer that streams, and what the user types."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from surehand.cli import render
from surehand.policy.approvals.question import Answer

if TYPE_CHECKING:
    from surehand.cli.screen import Screen
    from surehand.policy.approvals.question import Approver, Question


class Deferred:
    """An approver that asks when the terminal is free: not while the user types something else."""

    def __init__(self, approver: Approver, screen: Screen) -> None:
        self.at_once = False
        """Whether to ask even where the user has the terminal: while a command of theirs is being done."""
        self._approver = approver
        self._screen = screen
        self._waiting: list[asyncio.Event] = []
        self._open: set[asyncio.Task[Answer]] = set()

    async def ask(self, question: Question) -> Answer:
        """Ask whoever is to answer, and wait for the answer."""
        asking = asyncio.get_running_loop().create_task(self._ask(question))
        self._open.add(asking)
        try:
            await asyncio.wait({asking})
        finally:
            self._open.discard(asking)
            asking.cancel()
        return Answer("no", "the user pressed Ctrl-C") if asking.cancelled() else asking.result()

    async def _ask(self, question: Question) -> Answer:
        if self._screen.at_prompt and not self.at_once:
            await self._turn(question)
        with self._screen.question():
            return await self._approver.ask(question)

    async def _turn(self, question: Question) -> None:
        said = f"\n{question.tool} asks for permission in the background; press Enter to see the question"
        render.note(render.paint(said, "yellow", stream=sys.stderr))
        free = asyncio.Event()
        self._waiting.append(free)
        await free.wait()

    async def catch_up(self) -> None:
        """Let what waited be asked now; give the terminal to the user when no question is open.

        Cancelled, it answers what is open with no. Between the last answer and the user's turn nothing else runs, so
        that no question can come up beside the prompt.
        """
        self._screen.at_prompt = False
        self._screen.flush()
        waiting, self._waiting = self._waiting, []
        for free in waiting:
            free.set()
        try:
            while self._open:
                await asyncio.wait(self._open)
        finally:
            for asking in self._open:
                asking.cancel()
            self._screen.at_prompt = True
