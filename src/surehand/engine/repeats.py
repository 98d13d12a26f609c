"""A model that makes the same call again and again with the same outcome is told so, and then stopped.

Only outcomes that repeat count: a poll whose answer changes is no loop. A successful call of a tool that may change
things starts the count anew, since the next try may end differently.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import monotonic
from typing import Final

from surehand.core.call import ToolCall, ToolError, ToolResult
from surehand.core.session import Kept, Session

NOTICE_AT: Final = 3
"""The identical outcome that is remarked upon for the first time."""
REMEMBERED: Final = 64
FORGET_AFTER_S: Final = 600.0


@dataclass(slots=True)
class _Row:
    outcome: int
    count: int
    failed: bool
    at: float


class Repeats:
    """What one session called lately, and how often the same came of it."""

    def __init__(self, limit: int, clock: Callable[[], float] = monotonic) -> None:
        self.limit = limit
        self._clock = clock
        self._rows: OrderedDict[tuple[str, str], _Row] = OrderedDict()

    def refusal(self, call: ToolCall) -> ToolResult | None:
        """Return the answer to a call that has failed too often to be run once more, or None."""
        row = self._rows.get(_key(call))
        if row is None or not row.failed or not 0 < self.limit <= row.count:
            return None
        if self._clock() - row.at > FORGET_AFTER_S:
            return None
        error = ToolError(
            "precondition_failed",
            f"{call.name} was not run: this exact call failed {row.count} times in a row in the same way",
            "Change the arguments or the approach, or ask the user; the same call will not be tried again for now.",
            {"repeated": row.count, "tool": call.name},
        )
        return ToolResult.failed(error).with_meta(tool=call.name, call_id=call.id, repeated=row.count)

    def noted(self, call: ToolCall, result: ToolResult, *, changes: bool) -> ToolResult:
        """Count an outcome and return the result, with a remark when the same has come of the same call before."""
        key, outcome, now = _key(call), hash((result.ok, result.output)), self._clock()
        row = self._rows.pop(key, None)
        if result.ok and changes:
            self._rows.clear()
        same = row is not None and row.outcome == outcome and now - row.at <= FORGET_AFTER_S
        count = row.count + 1 if row is not None and same else 1
        self._rows[key] = _Row(outcome, count, not result.ok, now)
        if len(self._rows) > REMEMBERED:
            self._rows.popitem(last=False)
        return result if count < NOTICE_AT else self._remarked(result, count)

    def _remarked(self, result: ToolResult, count: int) -> ToolResult:
        remark = f"[This is the same call with the same outcome for the {_ordinal(count)} time in a row.]"
        if not result.ok and self.limit:
            remark = f"{remark[:-1]} After {self.limit} it is no longer run; try another way.]"
        return replace(result, output=f"{result.output}\n\n{remark}", meta={**result.meta, "repeated": count})


def _ordinal(number: int) -> str:
    """Return 1st, 2nd, 3rd, 4th, 11th, 22nd..."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


REPEATS: Final = Kept[Repeats]("repeats", make=lambda session: _of(session))


def _of(session: Session) -> Repeats:
    return Repeats(session.settings.engine.repeat_limit)


def _key(call: ToolCall) -> tuple[str, str]:
    return call.name, json.dumps(call.args, sort_keys=True, default=repr)
