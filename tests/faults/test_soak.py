"""A long session: what ended leaves nothing in memory, however many calls there were."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

import pytest

from surehand import Settings, Surehand
from surehand.history import contents
from surehand.history.history import HISTORY
from surehand.testing import Says

FILES, LINES = 5, 200


class Work:
    """Reads and edits a few files again and again, as an agent does; no two contents are the same."""

    def __init__(self, app: Surehand) -> None:
        self._app = app
        self._calls = 0
        self._line = {f"f{n}.txt": "first\n" for n in range(FILES)}

    async def go_on(self, rounds: int) -> None:
        for _ in range(rounds):
            for name, line in self._line.items():
                self._calls += 1
                changed = self._line[name] = f"{self._calls}\n"
                await self._call("Read", {"file_path": name})
                await self._call("Edit", {"file_path": name, "old_string": line, "new_string": changed})

    async def _call(self, tool: str, args: dict[str, object]) -> None:
        result = await self._app.call(tool, args)
        assert result.ok, result.output


async def test_a_session_keeps_nothing_of_edits_that_are_in_the_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "_KNOWN", 20)  # what may be remembered, and is not much, is full at once
    monkeypatch.setenv("SUREHAND_HOME", str(tmp_path / "state"))
    workspace = tmp_path / "ws"
    workspace.mkdir()
    for n in range(FILES):
        (workspace / f"f{n}.txt").write_text("first\n" + "a line that stays\n" * LINES)
    async with Surehand(
        workspace, session="work", approver=Says("once"), settings=Settings(), mode="accept-edits", plugins=False
    ) as app:
        work = Work(app)
        await work.go_on(20)
        tracemalloc.start()
        try:
            grown = [await _grown(work) for _ in range(4)]
        finally:
            tracemalloc.stop()
        assert len(app.session.keep(HISTORY).contents.known) <= 20
    # What is kept of calls is kept each time; a cache that is cleared now and then grows only in between.
    assert min(grown) < 64 * 1024, grown


async def _grown(work: Work) -> int:
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    await work.go_on(20)
    gc.collect()
    return tracemalloc.get_traced_memory()[0] - before
