"""Collect changes that a program made to files: revert the forbidden ones, record the others in the history."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from surehand.commands.session import SHELLS
from surehand.core.errors import ToolFailure
from surehand.core.frozen import frozen, replace_values
from surehand.files.protected_paths import git_paths, inside, within
from surehand.git.protected_files import git_dirs_touched
from surehand.sandbox import protocol
from surehand.sandbox.profile import take_out, trespasses

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from surehand.core.context import ToolContext
    from surehand.core.session import Session
    from surehand.history.change_logs import ChangeLog
    from surehand.history.command_changes import Recorded
    from surehand.sandbox.command import Ended
    from surehand.sandbox.profile import SandboxProfile

KEPT_HINT: Final = (
    "A rule denies writing it, or it runs as the user (hooks and settings of git, start files of shells, Surehand's "
    "own folder). Leave it, or ask the user to change it."
)


def put_back_message(who: str, paths: Sequence[str]) -> str:
    """Format the message that forbidden changes were reverted."""
    listed = ", ".join(paths[:20]) + (f" and {len(paths) - 20} more" if len(paths) > 20 else "")
    return f"{who} changed what no command may, and that is as it was again: {listed}"


@frozen
class ChangeCollector:
    """Collects what one program changed; `before` are the forbidden paths that existed already."""

    tool: str
    description: str
    profile: SandboxProfile
    before: frozenset[str]
    change_log: str | None

    async def collect(self, ctx: ToolContext, ended: Ended | None) -> Recorded | None:
        """Revert forbidden changes, record the rest in the history; return None if nothing changed."""
        if self.change_log is None:
            return _add_put_back(
                None, revert_leftovers(ctx.session, self.profile, self.before, ended and ended.change_log)
            )
        recorded = await asyncio.shield(asyncio.to_thread(self._collect_log, ctx, self.change_log, ended))
        for each in recorded.files[:100] if recorded else ():
            change = recorded.change_id if recorded else ""
            ctx.session.emit("file_changed", tool=self.tool, call_id=ctx.call.id, path=each.path, change_id=change)
        return recorded

    def _collect_log(self, ctx: ToolContext, folder: str, ended: Ended | None) -> Recorded | None:
        """Collect from the change log that the supervisor wrote."""
        from surehand.history.change_logs import ChangeLog  # lazy: change_logs, 2 ms

        try:
            log = ChangeLog(folder)
            made = revert_leftovers(ctx.session, self.profile, self.before, ended and ended.change_log, log)
            return _add_put_back(self._record_log(ctx, log, ended), made)
        finally:  # while it is held, no undo brings it in
            ctx.session.keep(SHELLS).release_change_log(folder)

    def _record_log(self, ctx: ToolContext, log: ChangeLog, ended: Ended | None) -> Recorded | None:
        """Record the changes in the history; a failure is noted in the result, to keep the program's output."""
        facts = ended.change_log if ended is not None else None
        if facts is not None and not facts["count"]:
            ctx.session.keep(SHELLS).finish_change_log(log.folder)
            return None
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
        lost = facts["lost"] if facts is not None else ""
        try:
            if (forbidden := find_forbidden(ctx.session, self.profile)) is not None:
                back = put_back(log, forbidden)
            if facts is not None and facts["threads"]:
                lost = "; ".join(filter(None, (lost, changed_unrecorded(log, self.profile.roots))))
            # No facts: the supervisor was killed, but its list has every change up to then.
            note = "" if facts is not None else INTERRUPTED
            who = replace_values(Author.of(ctx, self.tool, self.description), note=note)
            history, progress = ctx.session.keep(HISTORY), _make_progress(ctx)
            try:
                recorded = record(history, log, who, lost, progress)
            except (ToolFailure, OSError):  # a passing error must not cost the undo; a full disk has a reserve
                log.free_reserve()
                recorded = find_recorded(history, log, who) or record(history, log, who, lost, progress)
            ctx.session.keep(SHELLS).finish_change_log(log.folder)
        except (ToolFailure, OSError) as problem:
            # The change log has the only copy of the old contents: it stays, and is recovered with the next undo.
            gaps, all_of_it = (f"; {lost}", "What else it") if lost else ("", "What it")
            return Recorded(
                "", (), f"{problem}{gaps}. {all_of_it} changed is kept, and is brought in with the next undo", back
            )
        return _add_put_back(recorded, back)


def revert_leftovers(
    session: Session,
    profile: SandboxProfile,
    before: frozenset[str],
    facts: Mapping[str, Any] | None,
    log: ChangeLog | None = None,
) -> tuple[str, ...]:
    """Remove what a program created on forbidden paths, and what git would run as the user; return the paths.

    The latter are hooks, settings, links to other repositories and lines of rebases that were not there `before`.
    `facts` is the supervisor's report on the change log. If that may be incomplete (a thread can change a path after
    the supervisor has read it), all repositories are searched for what has changed since the log began.
    """
    absent = (path for path in profile.forbidden if path not in before)
    made = trespasses(path for path in absent if log is None or not inside(path, profile.roots))
    if not profile.contained or (log is None and protocol.abilities().records_changes):
        return tuple(made)  # not contained, or read-only
    shells = session.keep(SHELLS)
    if log is None:
        return (*made, *take_out(shells.touched_repositories(git_paths(profile.roots), profile), profile, before))
    if facts is not None:
        touched = [*map(os.fsdecode, facts["git"]), *log.entries]
        made += take_out(shells.touched_repositories(touched, profile), profile, before)
    if facts is None or facts["lost"] or facts["threads"]:
        made += take_out(git_dirs_touched(git_paths(profile.roots), profile.roots), profile, before, log.began_ns)
    return tuple(made)


def find_forbidden(session: Session, profile: SandboxProfile) -> Callable[[str], bool] | None:
    """Return a predicate for paths that no program may change; None if there are none."""
    kept, paths = session.keeps_as_is, profile.refused
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
            pass  # the loop is closed; the recording goes on

    return report


def _add_put_back(recorded: Recorded | None, paths: tuple[str, ...]) -> Recorded | None:
    if not paths:
        return recorded
    from surehand.history.command_changes import Recorded  # lazy: command_changes, 25 ms

    recorded = recorded or Recorded("", ())
    return replace_values(recorded, put_back=(*paths, *recorded.put_back))
