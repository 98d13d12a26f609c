"""Results of read-only calls, used again within a session while nothing they depend on has changed.

What a call depends on is said by the tool (`depends_on`), or follows from its effects when it reads nothing but
plain files: then the status of those files stands for their content. Anything else is never kept: a clock, a web
page or a search over a tree may answer differently each time. Permission is judged before the cache is looked at.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Final

from surehand.core.call import ToolResult
from surehand.core.effects import ReadPath
from surehand.core.frozen import frozen
from surehand.core.read_state import SETTLED_NS
from surehand.core.session import Kept
from surehand.core.tool import Tool

if TYPE_CHECKING:
    from surehand.engine.prepared import Prepared, Proceed

ENTRIES: Final = 500
SIZE_LIMIT: Final = 16 * 1024 * 1024
"""Characters of output kept."""
AGE_LIMIT_S: Final = 600.0


@frozen
class _Entry:
    result: ToolResult
    dependency: Hashable
    size: int
    at: float


class ResultCache:
    """The results one session may use again: bounded in number, size and age; the least used go first."""

    def __init__(
        self,
        *,
        entries: int = ENTRIES,
        size_limit: int = SIZE_LIMIT,
        age_limit_s: float = AGE_LIMIT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = entries, size_limit, age_limit_s
        self._clock = clock
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Hashable, dependency: Hashable) -> ToolResult | None:
        """Return the kept result when it still holds; one that does not is dropped."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.dependency != dependency or self._clock() - entry.at > self._limits[2]:
            self._drop(key)
            return None
        self._entries.move_to_end(key)
        return entry.result

    def put(self, key: Hashable, dependency: Hashable, result: ToolResult) -> None:
        """Keep a result; what is too large for the whole cache is not kept."""
        entries, size_limit, _ = self._limits
        size = len(result.output) + sum(len(getattr(block, "data", "")) for block in result.content)
        if size > size_limit // 4:
            return
        if key in self._entries:
            self._drop(key)
        self._entries[key] = _Entry(result, dependency, size, self._clock())
        self._size += size
        while len(self._entries) > entries or self._size > size_limit:
            self._drop(next(iter(self._entries)))

    def clear(self) -> None:
        """Forget every result."""
        self._entries.clear()
        self._size = 0

    def _drop(self, key: Hashable) -> None:
        self._size -= self._entries.pop(key).size


CACHE: Final = Kept[ResultCache]("result_cache", make=lambda session: ResultCache())


class Caching:
    """The layer that looks into the session's cache before a call runs."""

    def __init__(self, count: Callable[[str, bool], None], wanted: Callable[[str], bool] = lambda tool: True) -> None:
        self._count = count
        self._wanted = wanted
        """Whether results of a tool are kept at the moment; tuning may change its mind."""

    async def __call__(self, prepared: Prepared, proceed: Proceed) -> ToolResult:
        tool = prepared.tool
        dependency = self._dependency(prepared)
        if dependency is None:
            return await proceed(prepared)
        cache = prepared.ctx.session.keep(CACHE)
        key = (tool.name, tool.version, prepared.ctx.cwd, _canonical(prepared.call.args))
        found = cache.get(key, dependency)
        self._count(tool.name, found is not None)
        if found is not None:
            return found.with_meta(cached=True)
        result = await proceed(prepared)
        # Looked at again: what changed while the call ran must not be taken for what it saw.
        if result.ok and result.undo is None and self._dependency(prepared) == dependency:
            cache.put(key, dependency, result)
        return result

    def _dependency(self, prepared: Prepared) -> Hashable | None:
        tool = prepared.tool
        if not self._wanted(tool.name) or not prepared.read_only:
            return None
        if tool.depends_on is not None:
            return _hashable(tool.depends_on(prepared.args, prepared.ctx))
        effects = tool.effects(prepared.args, prepared.ctx) if tool.effects is not None else None
        if not effects:
            return None
        signs = [
            _sign(effect.path) if isinstance(effect, ReadPath) and not effect.recursive else None for effect in effects
        ]
        return None if None in signs else tuple(signs)


def cacheable(tool: Tool) -> bool:
    """Return whether results of this tool can ever be used again."""
    return tool.read_only is not False and (tool.depends_on is not None or tool.effects is not None)


def _sign(path: str) -> tuple[int, ...] | None:
    """Return what changes whenever a plain file is written; None for anything else and for one written just now."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    # A status this young proves nothing: a second write in the same tick would look the same.
    if not stat.S_ISREG(found.st_mode) or time.time_ns() - found.st_ctime_ns < SETTLED_NS:
        return None
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _canonical(args: Any) -> str:
    return json.dumps(args, sort_keys=True, default=repr)


def _hashable(value: object) -> Hashable:
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value
