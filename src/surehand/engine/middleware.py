"""Middleware between a checked call and its handler, in this order: extensions, cache, retries, history.

Layers are chosen once per tool; a tool that needs none has none.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from surehand.core.call import ToolResult
from surehand.core.errors import ToolFailure

if TYPE_CHECKING:
    from surehand.core.settings import Settings
    from surehand.core.tool import Tool
    from surehand.engine.extensions import Extensions
    from surehand.engine.metrics import Metrics
    from surehand.engine.prepared import Middleware, Prepared, Proceed

FIRST_WAIT_S: Final = 0.1
LONGEST_WAIT_S: Final = 5.0
TRANSIENT: Final = frozenset({"execution_error", "timeout"})
"""Error codes that are retried."""


class Layers:
    """Chooses the layers of each tool, outermost first."""

    def __init__(self, settings: Settings, extensions: Extensions, metrics: Metrics) -> None:
        self._settings = settings
        self._extensions = extensions
        self._metrics = metrics
        self.advised: set[str] = set()
        """Tools whose results are cached because tuning advised it."""
        self.reuse = settings.engine.cache is True
        """Whether results of read-only calls are cached."""

    def __call__(self, tool: Tool) -> list[Middleware]:
        chosen = self._extensions.layers(tool) if self._extensions.active else []
        engine, own = self._settings.engine, self._settings.tools.get(tool.name)
        if self.reuse or (engine.tuning and engine.cache is not False) or tool.pure:
            from surehand.engine.cache import Caching, cacheable  # lazy: cache, 5 ms

            if cacheable(tool):
                chosen.append(Caching(self._metrics.count_cache_lookup, self._is_kept))
        if own is not None and own.retry_attempts:
            chosen.append(Retry(own.retry_attempts))
        if tool.effects is not None and tool.read_only is not True and not tool.reversible:
            from surehand.engine.record_changes import Keeping  # lazy: record_changes, 55 ms

            chosen.append(Keeping())
        return chosen

    def reuse_results(self) -> None:
        """Cache results of read-only calls from now on, for a conversation, unless the settings forbid it."""
        self.reuse = self._settings.engine.cache is not False

    def _is_kept(self, tool: str) -> bool:
        return self.reuse or tool in self.advised


class Retry:
    """Retries a failed call with exponential backoff, if it is read-only or idempotent."""

    def __init__(self, attempts: int, *, first_wait_s: float = FIRST_WAIT_S) -> None:
        self.attempts = attempts
        self.first_wait_s = first_wait_s

    async def __call__(self, prepared: Prepared, proceed: Proceed) -> ToolResult:
        if not (prepared.tool.idempotent or prepared.read_only):
            return await proceed(prepared)
        for attempt in range(1, self.attempts + 1):
            try:
                result = await proceed(prepared)
            except ToolFailure as failure:
                if failure.code not in TRANSIENT:
                    raise
            except Exception:  # the last attempt, below, raises it
                pass
            else:
                if result.error is None or result.error.code not in TRANSIENT:
                    return _with_attempts(result, attempt)
            await asyncio.sleep(self._pause(attempt))
        return _with_attempts(await proceed(prepared), self.attempts + 1)

    def _pause(self, attempt: int) -> float:
        import random

        # Jitter: calls that failed together are not retried together.
        return min(LONGEST_WAIT_S, self.first_wait_s * 2 ** (attempt - 1)) * random.uniform(0.75, 1.25)


def _with_attempts(result: ToolResult, attempts: int) -> ToolResult:
    return result if attempts == 1 else result.with_meta(attempts=attempts)
