"""Trials on the way of one call: made for a question, then made real or dropped; everybody who listens is told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from surehand.core.context import ToolContext
from surehand.core.errors import ToolFailure
from surehand.core.events import EventKind
from surehand.core.frozen import frozen
from surehand.core.tool import Preview, Tool, Trial


@frozen
class Settled:
    """What came of a question: changed arguments, to be judged anew, or the trial to make real instead of a run."""

    args: Mapping[str, Any] | None = None
    trial: Trial | None = None


class Trials:
    """The trials made for one question: the newest is kept until the answer, and dropped unless that wants it."""

    def __init__(self, tool: Tool, ctx: ToolContext, preview: Callable[[], Awaitable[Preview | None]]) -> None:
        self._tool = tool
        self._ctx = ctx
        self._preview = preview
        self._newest: Trial | None = None

    async def make(self) -> Preview | None:
        """Try the call (once more)."""
        await self.close()
        shown = await self._preview()
        self._newest = shown.trial if shown is not None else None
        return shown

    def meant(self, wanted: str | None, shown: Preview | None) -> Trial | None:
        """Return the trial an answer is about: the one it names, or the one its question showed."""
        trial = self._newest
        if wanted is None:
            return trial if trial is not None and shown is not None and shown.trial is trial else None
        return trial if trial is not None and trial.id == wanted else None

    def take(self, wanted: str | None, shown: Preview | None) -> Trial | None:
        """Hand out the trial an answer is about; raise ToolFailure for one that is gone."""
        trial = self.meant(wanted, shown)
        if trial is None and (wanted or (wanted is None and shown is not None and shown.trial is not None)):
            raise ToolFailure(
                "the trial that was to be applied is gone: it was tried again since",
                code="precondition_failed",
                hint="Nothing was changed. Ask again.",
            )
        if trial is not None:
            self._newest = None
        return trial

    async def close(self) -> None:
        """Discard what was tried and not taken."""
        if self._newest is not None:
            trial, self._newest = self._newest, None
            await drop(self._tool, self._ctx, trial)


async def drop(tool: Tool, ctx: ToolContext, trial: Trial, *, applied: bool = False) -> None:
    """Take a trial away: what it did is made real by now, or nobody wants it."""
    await asyncio.shield(trial.drop())
    tell("trial_applied" if applied else "trial_dropped", tool, ctx, trial)


def tell(kind: EventKind, tool: Tool, ctx: ToolContext, trial: Trial, **data: Any) -> None:
    """Say what became of a trial."""
    ctx.session.emit(kind, tool=tool.name, call_id=ctx.call.id, trial=trial.id, **data)
