"""What a command did for real is taken back and brought back exactly, whatever it did."""

from __future__ import annotations

from pathlib import Path

import pytest
from changing import COMMANDS, furnish, snapshot

from holdfast.testing import scratch_app


@pytest.mark.parametrize("case", COMMANDS)
async def test_undo_and_redo_of_a_command_are_exact(case: str, tmp_path: Path) -> None:
    workspace = furnish(tmp_path / "ws")
    before = snapshot(workspace)
    command, expected = COMMANDS[case]
    async with scratch_app(workspace) as app:
        done = await app.call("Bash", {"command": command})
        assert done.ok, done.output
        after = snapshot(workspace)
        assert (done.undo is not None) == bool(expected)
        if done.undo is None:
            assert after == before
            return
        undone = await app.call("Undo", {})
        assert undone.ok, undone.output
        assert snapshot(workspace) == before
        redone = await app.call("Redo", {})
        assert redone.ok, redone.output
        assert snapshot(workspace) == after
