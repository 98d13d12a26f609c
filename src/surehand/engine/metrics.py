"""Metrics of calls, counted in memory at about a microsecond a call, or from the events of other processes.

Times are in seconds. A bottleneck is a call that had to wait for a slot; rates are for a window of 60 s. Resources are
known only for calls that ran in their own process: usage inside this process cannot be attributed to single calls.
`MetricsStore` keeps the counts across processes; `metrics_export` converts them to figures for people.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import closing, contextmanager
from math import exp, floor, log
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final, cast

from surehand.core.call import ToolResult, new_id
from surehand.core.errors import StateError
from surehand.state.files import open_to_read

if TYPE_CHECKING:
    import sqlite3

    from surehand.core.events import Event
    from surehand.engine.metrics_export import ToolMetrics


WINDOW_S: Final = 60.0
UNKNOWN: Final = "(unknown)"
"""Counts calls of tools that do not exist, whose names are unlimited input of others."""
_STEP: Final = log(1.04)
_SCALE: Final = 1.0 / _STEP
_LEAST: Final = 1e-7
_MOST: Final = 1e7


class Sketch:
    """A histogram of durations with logarithmic buckets, for quantiles within 2%; can be merged with others."""

    __slots__ = ("counts",)

    def __init__(self, counts: Mapping[int, int] | None = None) -> None:
        self.counts: dict[int, int] = dict(counts or {})

    def add(self, seconds: float) -> None:
        """Count one value."""
        place = floor(log(seconds) * _SCALE) if _LEAST < seconds < _MOST else _edge(seconds)
        self.counts[place] = self.counts.get(place, 0) + 1

    def quantile(self, share: float) -> float:
        """Return the value below which `share` (0 to 1) of all values lie; 0 if there are none."""
        total = sum(self.counts.values())
        if not total:
            return 0.0
        wanted, seen = share * total, 0
        for place in sorted(self.counts):
            seen += self.counts[place]
            if seen >= wanted:
                return _value(place)
        return _value(max(self.counts))

    def merge(self, other: Sketch) -> None:
        """Add the values of another sketch."""
        for place, count in other.counts.items():
            self.counts[place] = self.counts.get(place, 0) + count


def _edge(seconds: float) -> int:
    return floor(log(_LEAST if seconds < 1 else _MOST) * _SCALE)


def _value(place: int) -> float:
    return exp((place + 0.5) * _STEP)


class _Sums:
    """Counts that are summed over calls and processes."""

    __slots__ = ()
    calls: int
    failed: int
    total_s: float
    started: int
    level_sum: int
    bottlenecks: int
    queue_s: float
    bytes_out: int
    measured: int
    memory_sum: float
    cpu_share_sum: float
    io_operations: int
    io_measured: int
    cache_hits: int
    cache_misses: int


class _Peaks:
    """Maxima over calls and processes."""

    __slots__ = ()
    max_s: float
    max_running: int
    max_queue_s: float
    memory_peak: int
    busiest: float
    """The largest number of calls that ended within one pane of 60 s."""


_SUMS: Final = tuple(_Sums.__annotations__)
_PEAKS: Final = tuple(_Peaks.__annotations__)


class Record(_Sums, _Peaks):
    """The running counts of one tool; `merge` adds those of another process."""

    # No dataclass: making one of this size costs more at start than all counting in a short run.
    __slots__ = (*_SUMS, *_PEAKS, "errors", "pane", "pane_before", "pane_began", "running", "sketch")

    def __init__(self, pane_began: float = 0.0) -> None:
        for name in (*_SUMS, *_PEAKS):
            setattr(self, name, 0)
        self.errors: dict[str, int] = {}
        self.sketch = Sketch()
        self.running = 0
        self.pane_began = pane_began
        self.pane = [0.0, 0.0, 0.0]
        """Calls, bottlenecks and seconds of the current 60 s; `pane_before` of the 60 s before it."""
        self.pane_before = [0.0, 0.0, 0.0]

    def merge(self, other: Record) -> None:
        """Add the figures of another record."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in _PEAKS:
            setattr(self, name, max(getattr(self, name), getattr(other, name)))
        for code, count in other.errors.items():
            self.errors[code] = self.errors.get(code, 0) + count
        self.sketch.merge(other.sketch)

    def to_dict(self) -> dict[str, Any]:
        """Return what is saved: no running calls, and of the window only its maximum."""
        self.busiest = max(self.busiest, self.pane[0])
        kept: dict[str, Any] = {name: getattr(self, name) for name in (*_SUMS, *_PEAKS)}
        return kept | {"errors": self.errors, "sketch": {str(place): n for place, n in self.sketch.counts.items()}}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Record:
        """Decode plain data."""
        record = cls()
        for name in (*_SUMS, *_PEAKS):
            setattr(record, name, data.get(name, 0))
        record.errors = dict(data.get("errors", {}))
        record.sketch = Sketch({int(place): int(count) for place, count in data.get("sketch", {}).items()})
        return record

    def turn(self, now: float) -> None:
        """Start a new pane of the window."""
        late = now - self.pane_began >= 2 * WINDOW_S
        self.busiest = max(self.busiest, self.pane[0])
        self.pane_before = [0.0, 0.0, 0.0] if late else self.pane
        self.pane = [0.0, 0.0, 0.0]
        self.pane_began = now if late else self.pane_began + WINDOW_S

    def window(self, now: float) -> tuple[float, float, float]:
        """Return calls, bottlenecks and seconds of the last 60 s."""
        if now - self.pane_began >= WINDOW_S:
            self.turn(now)
        left = max(0.0, 1.0 - (now - self.pane_began) / WINDOW_S)
        new, old = self.pane, self.pane_before
        return new[0] + old[0] * left, new[1] + old[1] * left, new[2] + old[2] * left


class Metrics:
    """Counts calls: the executor reports each one that starts and ends, others only read."""

    def __init__(self, clock: Callable[[], float] = monotonic, *, without: Iterable[str] = ()) -> None:
        self.records: dict[str, Record] = {}
        self._clock = clock
        self._without = frozenset(without)
        """Tools that are not measured."""

    # Counting: on the path of every call -----------------------------------------------------------------------------

    def count_start(self, tool: str) -> None:
        """Count a call that passed its checks and starts to run, or to wait for a slot."""
        record = self.records.get(tool) or self._new(tool)
        record.started += 1
        running = record.running = record.running + 1
        record.level_sum += running
        if running > record.max_running:
            record.max_running = running

    def count_end(
        self,
        tool: str,
        duration_s: float,
        error: str | None,
        *,
        queue_s: float = 0.0,
        bytes_out: int = 0,
        ran: bool = True,
    ) -> None:
        """Count a call that ended; `ran` is False if it was refused before it started."""
        record = self.records.get(tool) or self._new(tool if error != "tool_not_found" else UNKNOWN)
        now = self._clock()
        if now - record.pane_began >= WINDOW_S:
            record.turn(now)
        record.calls += 1
        record.total_s += duration_s
        record.bytes_out += bytes_out
        if duration_s > record.max_s:
            record.max_s = duration_s
        pane = record.pane
        pane[0] += 1
        pane[2] += duration_s
        record.sketch.add(duration_s)
        if ran:
            record.running -= 1
        if error is not None:
            record.failed += 1
            record.errors[error] = record.errors.get(error, 0) + 1
        if queue_s > 0.0:
            pane[1] += 1
            record.bottlenecks += 1
            record.queue_s += queue_s
            record.max_queue_s = max(record.max_queue_s, queue_s)

    def count_use(self, tool: str, use: Mapping[str, Any], duration_s: float) -> None:
        """Add the resources of a call in its own process: `cpu_s`, `max_rss_bytes`, `io_operations`."""
        record = self.records.get(tool) or self._new(tool)
        memory = int(use.get("max_rss_bytes", 0))
        record.measured += 1
        record.memory_sum += memory
        record.memory_peak = max(record.memory_peak, memory)
        record.cpu_share_sum += float(use.get("cpu_s", 0.0)) / duration_s if duration_s > 0 else 0.0
        if "io_operations" in use:
            record.io_operations += int(use["io_operations"])
            record.io_measured += 1

    def count_cache_lookup(self, tool: str, hit: bool) -> None:
        """Count a lookup in the result cache."""
        record = self.records.get(tool) or self._new(tool)
        if hit:
            record.cache_hits += 1
        else:
            record.cache_misses += 1

    def _new(self, tool: str) -> Record:
        record = self.records.get(tool)
        if record is None:
            record = Record(self._clock())
            if tool not in self._without:
                self.records[tool] = record
        return record

    # Reading ---------------------------------------------------------------------------------------------------------

    def of(self, tool: str) -> ToolMetrics | None:
        """Return the figures of one tool, or None if it was never called."""
        record = self.records.get(tool)
        return None if record is None else self._figures([(tool, record)])[0]

    def all(self) -> list[ToolMetrics]:
        """Return the figures of every tool that was called, in order of first call."""
        return self._figures(list(self.records.items()))

    def _figures(self, records: list[tuple[str, Record]]) -> list[ToolMetrics]:
        from surehand.engine.metrics_export import figures  # lazy: metrics_export, 3 ms; only for who reads them

        now = self._clock()
        return [figures(tool, record, now) for tool, record in records]

    def estimate_s(self, tool: str) -> float:
        """Estimate the duration (s) of a call by the tool's average; 0 if unknown."""
        record = self.records.get(tool)
        return record.total_s / record.calls if record is not None and record.calls else 0.0


# -- metrics of calls made in the applications of a batch, or on the nodes of a cluster --------------------------------

_UNKNOWN: Final = ToolResult(ok=True)
"""Stands in if an event has no result."""


class HeardCalls:
    """A listener that counts calls by their events."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self._running: dict[str, dict[str, str]] = {}
        """Session → running call → tool."""

    def __call__(self, event: Event) -> None:
        """Count the call of an event."""
        if event.kind == "subagent_event":
            self(event.data["event"])
        elif event.kind == "call_started":
            running = self._running.setdefault(event.session_id, {})
            if event.call_id not in running:  # a call made again, as its node died, counts once
                running[event.call_id] = event.tool
                self.metrics.count_start(event.tool)
        elif event.kind == "call_finished":
            result = event.data.get("result")
            if isinstance(result, Mapping):  # plain data, if it came from another process
                result = ToolResult.from_dict(cast("Mapping[str, Any]", result))
            self._count_end(event, result or _UNKNOWN)
        elif event.kind == "session_closed":
            self._forget(event.session_id)

    def _count_end(self, event: Event, result: ToolResult) -> None:
        ran = self._running.get(event.session_id, {}).pop(event.call_id, None) is not None
        meta = result.meta
        duration_s = meta.get("duration_ms", 0.0) / 1000
        error = result.error.code if result.error else None
        queue_s = meta.get("queued_ms", 0.0) / 1000
        self.metrics.count_end(event.tool, duration_s, error, queue_s=queue_s, bytes_out=len(result.output), ran=ran)
        if (use := meta.get("resources")) is not None:
            self.metrics.count_use(event.tool, use, duration_s)

    def forget_running(self) -> None:
        """Stop counting calls as running, whose process ended without reporting their end."""
        for session_id in list(self._running):
            self._forget(session_id)

    def _forget(self, session_id: str) -> None:
        for tool in self._running.pop(session_id, {}).values():
            if (record := self.metrics.records.get(tool)) is not None:
                record.running -= 1


RUNS_LIMIT: Final = 200
_EARLIER: Final = "earlier"
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS metrics (run TEXT NOT NULL, tool TEXT NOT NULL, written REAL NOT NULL, record TEXT NOT NULL,
PRIMARY KEY (run, tool)) WITHOUT ROWID
"""


class MetricsStore:
    """The metrics of one workspace on disk."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._run = new_id("run")

    def save(self, records: Mapping[str, Record]) -> None:
        """Save the counts of this process, replacing those it saved before."""
        rows = [(self._run, tool, time(), json.dumps(record.to_dict())) for tool, record in records.items()]
        if not rows:
            return
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        with self._open_database() as database, database:
            database.execute("BEGIN IMMEDIATE")
            database.executemany("INSERT OR REPLACE INTO metrics VALUES (?, ?, ?, ?)", rows)
            (runs,) = database.execute("SELECT count(DISTINCT run) FROM metrics").fetchone()
            if runs > RUNS_LIMIT:
                self._fold(database)

    def load(self) -> dict[str, Record]:
        """Return the sums over all processes; empty if none has saved any."""
        if not os.path.exists(self.path):
            return {}
        with self._open_database(to_read=True) as database:
            return _add_up_records(database.execute("SELECT tool, record FROM metrics ORDER BY written").fetchall())

    def clear(self) -> None:
        """Delete all saved counts."""
        if os.path.exists(self.path):
            with self._open_database() as database, database:
                database.execute("DELETE FROM metrics")

    @contextmanager
    def _open_database(self, *, to_read: bool = False) -> Generator[sqlite3.Connection]:
        """Open the database for one operation; raise StateError if it cannot be used."""
        import sqlite3

        try:
            if to_read:
                with closing(open_to_read(self.path)) as database:
                    yield database
                return
            with closing(sqlite3.connect(self.path, timeout=10, isolation_level=None)) as database:
                database.execute("PRAGMA journal_mode=WAL")
                database.execute(_SCHEMA)
                yield database
        except sqlite3.Error as problem:
            # An error of the disk does not mean that the file is damaged.
            next_step = "" if isinstance(problem, sqlite3.OperationalError) else "; delete the file"
            raise StateError(f"the metrics in {self.path} cannot be used ({problem}){next_step}") from problem

    def _fold(self, database: sqlite3.Connection) -> None:
        """Merge the rows of all but the newest runs into one row per tool."""
        newest = "SELECT run FROM metrics GROUP BY run ORDER BY max(written) DESC LIMIT ?"
        older = f"run NOT IN ({newest})"
        keep = (RUNS_LIMIT // 2,)
        records = _add_up_records(database.execute(f"SELECT tool, record FROM metrics WHERE {older}", keep).fetchall())
        database.execute(f"DELETE FROM metrics WHERE {older}", keep)
        rows = [(_EARLIER, tool, 0.0, json.dumps(record.to_dict())) for tool, record in records.items()]
        database.executemany("INSERT OR REPLACE INTO metrics VALUES (?, ?, ?, ?)", rows)


def _add_up_records(rows: list[tuple[str, str]]) -> dict[str, Record]:
    records: dict[str, Record] = {}
    for tool, text in rows:
        record = Record.from_dict(json.loads(text))
        if tool in records:
            records[tool].merge(record)
        else:
            records[tool] = record
    return records
