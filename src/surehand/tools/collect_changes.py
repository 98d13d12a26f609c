"""Collect changes of files that a program made: revert those that no program may make, record the others."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from surehand.commands.session import SHELLS
from surehand.core.errors import ToolFailure
from surehand.core.frozen import frozen
from surehand.files.protected_paths import git_paths, inside, within
from surehand.sandbox import protocol
from surehand.sandbox.profile import take_out, trespasses

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from surehand.core.context import ToolContext
    from surehand.history.change_logs import ChangeLog
    from surehand.history.command_changes import Recorded
    from surehand.sandbox.command import Ended
    from surehand.sandbox.profile import SandboxProfile


KEPT_HINT: Final = (
    "A rule denies writing it, or it runs as the user (hooks and settings of git, start files of shells, Surehand's "
    "own folder). Leave it, or ask the user to change it."
)


def put_back_message(who: str, paths: Sequence[str]) -> str:
    """Say that something changed what it may not."""
    listed = ", ".join(paths[:20]) + (f" and {len(paths) - 20} more" if len(paths) > 20 else "")
    return f"{who} changed what no command may, and that is as it was again: {listed}"


@frozen
class ChangeCollector:
    """Collects what one program changed, by its profile and change log; `absent` lists paths that none may create."""

    tool: str
    description: str
    profile: SandboxProfile
    absent: Sequence[str]
    change_log: str | None

    async def collect(self, ctx: ToolContext, ended: Ended | None) -> Recorded | None:
        """Revert what it may not change, record the rest in the history; return None if it changed nothing."""
        if self.change_log is None:
            return _add_put_back(None, (*trespasses(self.absent), *self._remove_programs(ctx, ended, None)))
        recorded = await asyncio.shield(asyncio.to_thread(self._collect_log, ctx, self.change_log, ended))
        for each in recorded.files[:100] if recorded else ():
            change = recorded.change_id if recorded else ""
            ctx.session.emit("file_changed", tool=self.tool, call_id=ctx.call.id, path=each.path, change_id=change)
        return recorded

    def _collect_log(self, ctx: ToolContext, folder: str, ended: Ended | None) -> Recorded | None:
        """Collect from the change log that the launcher's supervisor wrote."""
        from surehand.history.change_logs import ChangeLog  # lazy: change_logs, 2 ms

        log = ChangeLog(folder)
        beyond = [path for path in self.absent if not inside(path, self.profile.roots)]
        made = (*trespasses(beyond), *self._remove_programs(ctx, ended, log))
        return _add_put_back(self._record_log(ctx, log, ended), made)

    def _remove_programs(self, ctx: ToolContext, ended: Ended | None, log: ChangeLog | None) -> list[str]:
        """Remove what repositories it made would run as the user (hooks, settings, links to others), and return it."""
        if not self.profile.contained or (log is None and protocol.abilities().seccomp):
            return []  # not contained, or it only looked
        facts = ended.change_log if ended is not None and log is not None else None
        if facts is None or facts["lost"] or log is None:
            touched = git_paths(self.profile.roots)
        else:
            touched = [*map(os.fsdecode, facts["git"]), *log.entries]
        return take_out(ctx.session.keep(SHELLS).touched_repositories(touched, self.profile), self.profile)

    def _record_log(self, ctx: ToolContext, log: ChangeLog, ended: Ended | None) -> Recorded | None:
        """Record the changes in the history; a failure is only noted, or the program's answer would be lost."""
        from surehand.history.change_logs import free_reserve  # lazy: change_logs, 2 ms
        from surehand.history.command_changes import (  # lazy: command_changes, 25 ms
            INTERRUPTED,
            Recorded,
            changed_unrecorded,
            find_recorded,
            put_back,
            record,
        )
        from surehand.history.history import HISTORY  # lazy: history, 35 ms
        from surehand.history.words import Author  # lazy: words, 2 ms

        back: tuple[str, ...] = ()
        facts = ended.change_log if ended is not None else None
        lost = facts["lost"] if facts is not None else ""
        try:
            if facts is not None and not facts["count"]:
                ctx.session.keep(SHELLS).finish_change_log(log.folder)
                return None
            if (forbidden := self._make_forbidden(ctx)) is not None:
                back = put_back(log, forbidden)
            if facts is not None and facts["threads"]:
                lost = "; ".join(filter(None, (lost, changed_unrecorded(log, self.profile.roots))))
            # Without a word of its supervisor, which was killed, the list it wrote as it went says what was changed.
            note = "" if facts is not None else INTERRUPTED
            who = replace(Author.of(ctx, self.tool, self.description), note=note)
            history, progress = ctx.session.keep(HISTORY), _make_progress(ctx)
            try:
                recorded = record(history, log, who, lost, progress)
            except (ToolFailure, OSError):  # one that passes must not cost the undo; a full disk has room set aside
                free_reserve(log.folder)
                recorded = find_recorded(history, log, who) or record(history, log, who, lost, progress)
            ctx.session.keep(SHELLS).finish_change_log(log.folder)
        except (ToolFailure, OSError) as problem:
            # The change log has the only copy of the old contents: it stays, and the next look at the history reads it.
            return Recorded("", (), f"{problem}. What it changed is kept, and is brought in with the next undo", back)
        finally:
            ctx.session.keep(SHELLS).release_change_log(log.folder)
        return _add_put_back(recorded, back)

    def _make_forbidden(self, ctx: ToolContext) -> Callable[[str], bool] | None:
        """Return a test for paths that no program may change; None if it may change all it reaches."""
        kept, paths = ctx.session.keeps_as_is, self.profile.refused
        if not paths:
            return kept
        refused = within(paths)
        return refused if kept is None else lambda path: refused(path) or kept(path)


def _make_progress(ctx: ToolContext) -> Callable[[int, int], None]:
    """Return a function that reports the progress of the recording from a thread to the event loop."""

    def report(done: int, total: int) -> None:
        send = partial(ctx.progress, f"recording what it changed: {done:,} of {total:,}", done=done, total=total)
        try:
            if ctx.loop is not None:
                ctx.loop.call_soon_threadsafe(send)
        except RuntimeError:
            pass  # the loop has ended; the recording goes on

    return report


def _add_put_back(recorded: Recorded | None, paths: tuple[str, ...]) -> Recorded | None:
    if not paths:
        return recorded
    from surehand.history.command_changes import Recorded  # lazy: command_changes, 25 ms

    recorded = recorded or Recorded("", ())
    return replace(recorded, put_back=(*paths, *recorded.put_back))
