"""The calls under way in an application: counted while they run, stopped and awaited when it closes."""

from __future__ import annotations

import asyncio
from typing import Any, Final, TypeAlias

from surehand.engine.running import CHANGE_LIMIT_S

CLOSE_LIMIT_S: Final = CHANGE_LIMIT_S + 10.0
"""How long closing waits for calls that it has stopped; one that outlasts this is recorded nowhere."""
Caller: TypeAlias = asyncio.Task[Any]


class Underway:
    """Who is inside a call at the moment, by task."""

    def __init__(self) -> None:
        self.closed = False
        self._callers: dict[Caller, int] = {}
        self._stopped: set[Caller] = set()
        self._all_ended = asyncio.Event()

    def begin(self) -> Caller | None:
        """Count the current task in; a call may be made inside another by the same task."""
        caller = asyncio.current_task()
        if caller is not None:
            self._callers[caller] = self._callers.get(caller, 0) + 1
        return caller

    def end(self, caller: Caller | None) -> None:
        """Count a task out."""
        if caller is None:
            return
        depth = self._callers.pop(caller) - 1
        if depth:
            self._callers[caller] = depth
            return
        self._stopped.discard(caller)
        if self.closed and not self._callers:
            self._all_ended.set()

    def take_stop(self) -> bool:
        """Tell whether a cancellation is ours alone, meant for the call; then its task itself is not cancelled."""
        caller = asyncio.current_task()
        if caller is None or caller not in self._stopped:
            return False
        self._stopped.discard(caller)
        return caller.uncancel() == 0

    async def close(self) -> None:
        """Refuse calls from now on; stop those under way and wait for their end."""
        self.closed = True
        for caller in self._callers.keys() - self._stopped:
            self._stopped.add(caller)
            caller.cancel()
        if self._callers:
            try:
                async with asyncio.timeout(CLOSE_LIMIT_S):
                    await self._all_ended.wait()
            except TimeoutError:
                pass
