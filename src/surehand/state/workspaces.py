"""Which workspaces have state here: the state folder of each names the folder it is about."""

from __future__ import annotations

import os
from typing import Final

from surehand.core.frozen import frozen
from surehand.state import locations
from surehand.state.json_file import write_private

_FILE: Final = "workspace"


@frozen
class Workspace:
    """A folder somebody worked in, and where its state is."""

    path: str
    state_dir: str


def note_workspace(state_dir: str, workspace: str) -> None:
    """Write down which folder a state folder is about; its name holds only a digest of that."""
    path = os.path.join(state_dir, _FILE)
    if os.path.exists(path):
        return
    locations.private_dir(state_dir)
    write_private(path, os.fsencode(workspace), flush=False)


def known_workspaces() -> list[Workspace]:
    """Return every workspace of the user that has state, the last used first."""
    folder = os.path.join(locations.home(), "workspaces")
    found: list[tuple[float, Workspace]] = []
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        state_dir = os.path.join(folder, name)
        try:
            with open(os.path.join(state_dir, _FILE), "rb") as file:
                path = os.fsdecode(file.read())
            used = os.stat(state_dir).st_mtime
        except OSError:
            continue
        if locations.workspace_state(path) == state_dir:  # a folder that was moved here speaks of another
            found.append((used, Workspace(path, state_dir)))
    return [each for _, each in sorted(found, key=lambda pair: pair[0], reverse=True)]
