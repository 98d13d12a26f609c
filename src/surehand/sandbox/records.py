"""Records of which processes belong to which session, kept so that another process can list and end them.

A process is known by its id and the moment it started: an id alone may belong to somebody else by now.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

from surehand.core.frozen import frozen, names_of
from surehand.files.trees import remove_tree
from surehand.state import locations
from surehand.state.files import write_private_json


def started_at(pid: int) -> int | None:
    """Return the moment a live process started, in ticks since boot; None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


@frozen
class Record:
    """One launcher of one session."""

    session_id: str
    workspace: str
    owner: int
    owner_started: int
    launcher: int
    launcher_started: int
    private_dir: str

    @classmethod
    def write(cls, session_id: str, workspace: str, launcher: int, private_dir: str) -> Record:
        """Write a record down; a disk that does not take it costs only the listing."""
        own = os.getpid()
        record = cls(session_id, workspace, own, started_at(own) or 0, launcher, started_at(launcher) or 0, private_dir)
        try:
            locations.private_dir(_folder())
            facts = {name: getattr(record, name) for name in names_of(record)}
            write_private_json(record._path, facts, flush=False)  # of no use after a power cut
        except OSError:
            pass
        return record

    @property
    def _path(self) -> str:
        return os.path.join(_folder(), f"{self.launcher}-{self.launcher_started}.json")

    def remove(self) -> None:
        """Forget it."""
        try:
            os.unlink(self._path)
        except OSError:
            pass

    @property
    def owner_alive(self) -> bool:
        """Whether the program that owns the session still runs."""
        return started_at(self.owner) == self.owner_started

    @property
    def launcher_alive(self) -> bool:
        """Whether the launcher still runs."""
        return started_at(self.launcher) == self.launcher_started


def clear_dead(most: int = 5) -> None:
    """Remove what killed sessions left on disk, a few at a time; `reap` ends their processes."""
    dead = [each for each in records() if not each.owner_alive and not each.launcher_alive]
    for record in dead[:most]:
        remove_tree(record.private_dir)
        record.remove()


def _folder() -> str:
    return os.path.join(locations.home(), "processes")


def records() -> Iterator[Record]:
    """Yield every record there is; one that cannot be read is passed over."""
    try:
        names = sorted(os.listdir(_folder()))
    except OSError:
        return
    for name in names:
        if name.endswith(".json"):
            try:
                with open(os.path.join(_folder(), name), encoding="utf-8") as file:
                    yield Record(**json.load(file))
            except (OSError, ValueError, TypeError):
                continue
