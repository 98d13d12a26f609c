"""Running git ourselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from surehand.core.errors import ToolFailure
from surehand.host.git import add_worktree


async def test_a_machine_without_git_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolFailure, match="git cannot be run") as refused:
        await add_worktree(str(tmp_path), "", "agent_1")
    assert "Install git" in refused.value.hint
