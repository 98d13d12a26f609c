"""The result cache: reuses results of read-only calls in a session and its next process, while they are valid.

What a result depends on is stated by the tool (`depends_on`), or follows from its effects if it only reads regular
files: then their status (size, times, inode) stands for their content. A `pure` tool depends on its arguments alone.
Nothing else is cached: a clock, a web page or a search of a tree may differ each time. The cache is consulted after
the call was judged.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast

from surehand.core.call import ToolResult
from surehand.core.effects import ReadPath
from surehand.core.frozen import frozen, replace_values
from surehand.core.session import SETTLED_NS, Kept, Session
from surehand.core.tool import Tool
from surehand.state.files import write_private

if TYPE_CHECKING:
    from surehand.engine.prepared import Prepared, Proceed

ENTRIES: Final = 500
SIZE_LIMIT: Final = 16 * 1024 * 1024
"""Characters of output cached in all."""
AGE_LIMIT_S: Final = 600.0


@frozen
class _Entry:
    result: ToolResult
    dependency: Hashable
    size: int
    at: float
    code: str
    """A fingerprint of the tool's code; empty if there is none: then the result is not saved for later processes."""


class ResultCache:
    """The cached results of a session: limited in number, size and age; the least recently used go first."""

    def __init__(
        self,
        *,
        entries: int = ENTRIES,
        size_limit: int = SIZE_LIMIT,
        age_limit_s: float = AGE_LIMIT_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._limits = entries, size_limit, age_limit_s
        self._clock = clock
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Hashable, dependency: Hashable) -> ToolResult | None:
        """Return a cached result if it is still valid; drop it otherwise."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.dependency != dependency or self._clock() - entry.at > self._limits[2]:
            self._drop(key)
            return None
        self._entries.move_to_end(key)
        return entry.result

    def put(self, key: Hashable, dependency: Hashable, result: ToolResult, code: str = "") -> None:
        """Cache a result, unless it is larger than the whole cache may be."""
        entries, size_limit, _ = self._limits
        size = len(result.output) + sum(len(getattr(block, "data", "")) for block in result.content)
        if size > size_limit // 4:
            return
        if key in self._entries:
            self._drop(key)
        self._entries[key] = _Entry(result, dependency, size, self._clock(), code)
        self._size += size
        while len(self._entries) > entries or self._size > size_limit:
            self._drop(next(iter(self._entries)))

    def save(self, path: str) -> None:
        """Save the results that a later process may use and JSON can represent."""
        rows: list[str] = []
        for key, entry in self._entries.items():
            row = {"key": key, "dependency": entry.dependency, "code": entry.code, "at": entry.at}
            try:
                text = json.dumps(row | {"result": entry.result.to_dict()})
            except (TypeError, ValueError):
                continue
            if entry.code and _tuples(json.loads(text)["dependency"]) == entry.dependency:
                rows.append(text + "\n")
        write_private(path, "".join(rows), flush=False)  # a loss by a power cut is harmless

    def load(self, path: str) -> None:
        """Load the results an earlier process saved; skip what cannot be read."""
        try:
            with open(path, encoding="utf-8") as file:
                rows: list[Any] = [json.loads(line) for line in file]
        except (OSError, ValueError):
            return
        for row in rows:
            try:
                result, at = ToolResult.from_dict(row["result"]), float(row["at"])
                if 0 <= self._clock() - at <= self._limits[2]:
                    key = _tuples(row["key"])
                    self.put(key, _tuples(row["dependency"]), result, str(row["code"]))
                    self._entries[key] = replace_values(self._entries[key], at=at)
            except (KeyError, TypeError, ValueError):
                continue

    def clear(self) -> None:
        """Drop all results."""
        self._entries.clear()
        self._size = 0

    def _drop(self, key: Hashable) -> None:
        self._size -= self._entries.pop(key).size


class _Stored(ResultCache):
    """The cache of one session; that of a named session is saved for later processes."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._path: str | None = None
        if session.name and session.state_dir:
            self._path = os.path.join(session.state_dir, "sessions", f"{session.name}.results")
            self.load(self._path)

    async def close(self) -> None:
        """Save the results for the next process, if possible."""
        if self._path is not None:
            with suppress(OSError):
                await asyncio.to_thread(self.save, self._path)


CACHE: Final = Kept[_Stored]("result_cache", make=_Stored, close=_Stored.close)


class Caching:
    """Middleware that looks up a call in the session's cache before it runs."""

    def __init__(self, count: Callable[[str, bool], None], wanted: Callable[[str], bool] = lambda tool: True) -> None:
        self._count = count
        self._wanted = wanted
        """Whether results of a tool are cached at the moment; tuning may change this."""

    async def __call__(self, prepared: Prepared, proceed: Proceed) -> ToolResult:
        tool = prepared.tool
        dependency = self._dependency(prepared)
        if dependency is None:
            return await proceed(prepared)
        cache = prepared.ctx.session.keep(CACHE)
        code = _code(tool)
        key = (tool.name, tool.version, code, prepared.ctx.cwd, _canonical(prepared.call.args))
        found = cache.get(key, dependency)
        self._count(tool.name, found is not None)
        if found is not None:
            return found.with_meta(cached=True)
        result = await proceed(prepared)
        # Signed again after the call: a change while it ran must not count as seen.
        if result.ok and result.undo is None and self._dependency(prepared) == dependency:
            cache.put(key, dependency, result, code)
        return result

    def _dependency(self, prepared: Prepared) -> Hashable | None:
        tool = prepared.tool
        if tool.pure:
            return "pure"
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
    """Whether results of this tool can be cached at all."""
    return tool.pure or (tool.read_only is not False and (tool.depends_on is not None or tool.effects is not None))


def _sign(path: str) -> tuple[int, ...] | None:
    """Return the status of a regular file; None for other files, and for one written just now."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    # A second write within the same tick of the clock would leave the same status.
    if not stat.S_ISREG(found.st_mode) or time.time_ns() - found.st_ctime_ns < SETTLED_NS:
        return None
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _code(tool: Tool) -> str:
    """Return the status of the file that defines a tool; empty if there is no such file."""
    module = sys.modules.get(getattr(getattr(tool, "function", tool.run), "__module__", ""))
    try:
        found = os.stat(getattr(module, "__file__", None) or "")
    except OSError:
        return ""
    return f"{found.st_ino}:{found.st_size}:{found.st_mtime_ns}"


def _tuples(value: Any) -> Any:
    """Convert lists back to the tuples they were before JSON."""
    return tuple(_tuples(each) for each in cast("list[Any]", value)) if isinstance(value, list) else value


def _canonical(args: Any) -> str:
    return json.dumps(args, sort_keys=True, default=repr)


def _hashable(value: object) -> Hashable:
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value
