"""Recent reads: what a client has read in a workspace, for its next session there.

Many clients open a session for each call; in theirs, a file that was just read would count as never read, and could not
be edited. So what a client reads is noted, one line each, and a client of the same name that comes within half an hour
begins with it. Only that is carried over: no approval, no directory, nothing that runs. An edit is held to the content
that was read as always, so that a file which changed meanwhile is refused.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, cast

from surehand.core.read_state import Seen
from surehand.core.session import Session
from surehand.state import locations
from surehand.state.json_file import write_private

FRESH_S: Final = 1800.0
"""A client that has not been heard of for so long is gone, and so is what it read."""
FILE: Final = "mcp_reads.jsonl"
SIZE_LIMIT: Final = 256 * 1024
"""Bytes from which on old lines are dropped."""


class RecentReads:
    """What clients of one name read in the workspace of a session."""

    def __init__(self, session: Session, client: str) -> None:
        self._session = session
        self._client = client[:200]
        self._path = os.path.join(session.state_dir, FILE) if session.state_dir is not None else None

    def take_up(self) -> None:
        """Let the session know what was read in those before it."""
        for record in self._fresh():
            if record["client"] == self._client:
                self._session.read_state.put(record["path"], record["seen"])

    def note(self, data: Mapping[str, Any]) -> None:
        """Note that a file was read, as the event of it says; where that fails, the client has to read it again."""
        if self._path is None:
            return
        line = json.dumps({"client": self._client, "at": time.time(), **data}) + "\n"
        with suppress(OSError, UnicodeError):
            descriptor = os.open(
                self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
            try:
                os.write(descriptor, line.encode())
            finally:
                os.close(descriptor)

    def _fresh(self) -> list[dict[str, Any]]:
        """Return the lines that still count; a file that has grown long is left with no others."""
        if self._path is None:
            return []
        try:
            with open(self._path, encoding="utf-8", errors="replace") as file:
                lines = file.read(8 * SIZE_LIMIT).splitlines()
                size = os.fstat(file.fileno()).st_size
        except OSError:
            return []
        since = time.time() - FRESH_S
        found = [record for line in lines if (record := _parse(line)) is not None and record["at"] > since]
        if size > SIZE_LIMIT:
            self._rewrite(found)
        return found

    def _rewrite(self, found: list[dict[str, Any]]) -> None:
        """Keep the latest line of each file; one that another process adds meanwhile may be lost, and is read again."""
        latest = {(record["client"], record["path"]): record for record in found}
        lines = [json.dumps({**record, "seen": None, **record["seen"].to_dict()}) for record in latest.values()]
        assert self._path is not None
        with suppress(OSError):
            locations.private_dir(os.path.dirname(self._path))
            write_private(self._path, "".join(line + "\n" for line in lines[-1000:]), flush=False)


def _parse(line: str) -> dict[str, Any] | None:
    """Return one line as client, time, path and what was seen; None for one that is damaged or of another version."""
    try:
        record = cast("dict[str, Any]", json.loads(line))
        client, at, path = record.pop("client"), float(record.pop("at")), record.pop("path")
        record.pop("seen", None)
        return {"client": client, "at": at, "path": path, "seen": Seen(**record)}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
