"""Watch long-running programs (servers, hooks, tools in processes) and revert what no program may change."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from surehand.commands.collect_changes import find_forbidden, put_back_message, revert_leftovers
from surehand.commands.session import SHELLS, Shells
from surehand.core.errors import ToolFailure
from surehand.history.change_logs import ChangeLog
from surehand.history.command_changes import put_back
from surehand.history.words import Author
from surehand.sandbox.command import SandboxFailure

if TYPE_CHECKING:
    from surehand.core.session import Session
    from surehand.sandbox.command import Ended
    from surehand.sandbox.linux.client import Run as RecordedRun
    from surehand.sandbox.protocol import Run, Runner


class ProgramWatch:
    """Reverts the forbidden changes of one program, at its end and on demand while it runs.

    Start the program with `change_log`. Its other changes are not recorded in the history.
    """

    def __init__(self, session: Session, launcher: Runner, who: str) -> None:
        self._session = session
        self._profile = launcher.profile
        self._who = who
        self._before = launcher.profile.already_there()
        self._turn = asyncio.Lock()
        self.change_log = self._make_change_log() if launcher.records else None

    async def look(self, run: Run) -> tuple[str, ...]:
        """Revert the forbidden changes made so far and return their paths; the program keeps running."""
        async with self._turn:
            if self.change_log is None or run.ended is not None:
                return ()  # `finish` reverts them
            next_log = self._make_change_log()
            try:
                facts = await cast("RecordedRun", run).begin_change_log(next_log)
            except (SandboxFailure, OSError):
                self._shells.finish_change_log(next_log)
                return ()
            change_log, self.change_log = self.change_log, next_log
            return await self._revert(change_log, facts)

    async def finish(self, ended: Ended | None) -> tuple[str, ...]:
        """Revert the forbidden changes of a program that has ended; return their paths."""
        async with self._turn:
            change_log, self.change_log = self.change_log, None
            return await self._revert(change_log, ended and ended.change_log)

    async def finish_with_note(self, ended: Ended | None) -> None:
        """Like `finish`, but report the outcome, or the failure, as a `note` event: no caller waits for it."""
        try:
            found = await self.finish(ended)
        except ToolFailure as failure:
            self._session.emit("note", message=str(failure))
            return
        if found:
            self._session.emit("note", message=put_back_message(self._who, found))

    @property
    def _shells(self) -> Shells:
        return self._session.keep(SHELLS)

    def _make_change_log(self) -> str:
        session = self._session
        who = Author(self._who, f"watch-{os.urandom(8).hex()}", session.id, self._who, session.main.id)
        return self._shells.change_log(who, self._profile)

    async def _revert(self, change_log: str | None, facts: Mapping[str, Any] | None) -> tuple[str, ...]:
        found = await asyncio.shield(asyncio.to_thread(self._revert_log, change_log, facts))
        self._before = self._profile.already_there()
        return found

    def _revert_log(self, change_log: str | None, facts: Mapping[str, Any] | None) -> tuple[str, ...]:
        if change_log is None:
            return revert_leftovers(self._session, self._profile, self._before, None)
        try:
            log = ChangeLog(change_log)
            made = revert_leftovers(self._session, self._profile, self._before, facts, log)
            forbidden = find_forbidden(self._session, self._profile)
            return made if forbidden is None else (*made, *put_back(log, forbidden))
        except OSError as problem:
            raise ToolFailure(f"what {self._who} changed and may not could not be put back: {problem}") from problem
        finally:
            self._shells.finish_change_log(change_log)
