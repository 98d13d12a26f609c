"""The size limit of a history: the oldest changes make room, and what only they refer to goes with them."""

from __future__ import annotations

import sqlite3
from typing import Final

from surehand.history.contents import Contents
from surehand.history.log import Log

SEEN_ROWS: Final = 2000
SEEN_BYTES: Final = 64 * 1024 * 1024
FULL: Final = 0.9
"""How much of the limit stays in use when the oldest have gone."""
_DROP_SEEN: Final = """
DELETE FROM seen WHERE digest IN (SELECT digest FROM (
    SELECT digest, ROW_NUMBER() OVER latest AS rows, SUM(LENGTH(body)) OVER latest AS bytes
    FROM seen WINDOW latest AS (ORDER BY at DESC, digest)) WHERE rows > ? OR bytes > ?)
"""


def drop_seen(database: sqlite3.Connection) -> None:
    """Drop the oldest of what sessions have read, which is kept beside the changes."""
    database.execute(_DROP_SEEN, (SEEN_ROWS, SEEN_BYTES))


def drop_oldest(log: Log, contents: Contents, limit_bytes: int) -> int:
    """Drop changes until a tenth of the limit is free again, and write down how many have gone; return how many now."""
    dropped = 0
    while contents.total() > limit_bytes * FULL:
        # An eighth at a time; the newest stays, so that numbers are never given twice.
        count = log.count()
        oldest = log.select("state != 'intent'", (), limit=max(1, count // 8), oldest_first=True)
        if count <= 1 or not oldest:
            break
        log.remove([each.id for each in oldest])
        dropped += len(oldest)
        _forget_unused(log, contents)
    count = int(log.fact("dropped_count", "0")) + dropped
    megabytes = limit_bytes // (1024 * 1024)
    changes = "older change was" if count == 1 else "older changes were"
    text = f"{count} {changes} dropped: the history is limited to {megabytes} MB (history.limit_mb)"
    log.set_fact("dropped_count", str(count))
    log.set_fact("dropped", text)
    return dropped


def _forget_unused(log: Log, contents: Contents) -> None:
    used, bases = log.digests(), contents.bases()
    for digest in list(used):
        while (digest := bases.get(digest, "")) and digest not in used:
            used.add(digest)
    contents.forget(contents.digests() - used)
