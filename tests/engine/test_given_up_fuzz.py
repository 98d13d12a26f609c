"""Writers given up at random moments: what is told of each call is what the disk holds, whenever it was stopped.

A seed chooses files, tools and the moment (in turns of the loop, not in time) at which a call is cancelled, runs into
its deadline, loses its caller or its session closes. How far the call has come by then depends on the machine; what
must be true afterwards does not.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from typing import Any

import pytest

from surehand import Event, Settings, Surehand, ToolResult
from surehand.engine.audit import verify
from surehand.engine.running import DEADLINE
from surehand.testing import Says

NAMES = ("a.txt", "b.txt", "c.txt", "sub/d.txt")


class Bench:
    """One workspace, what its files must hold, and the changes that can be taken back."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.random = folder, random.Random(seed)
        self.files: dict[str, str] = {}
        self.changes: list[tuple[str, str, str | None]] = []
        """(change id, file, what it held before), the latest last."""
        self.recorded: dict[str, ToolResult] = {}
        self.count = 0
        self.written = self.stopped = 0

    def open(self) -> Surehand:
        app = Surehand(self.folder, settings=Settings(), approver=Says("once"), plugins=False)
        app.bus.subscribe(self._listen)
        return app

    def _listen(self, event: Event) -> None:
        if event.kind == "call_finished":
            self.recorded[event.call_id] = event.data["result"]

    def wish(self, name: str) -> tuple[str, dict[str, Any], str]:
        """Return a tool, its arguments, and what the file holds if it does its work."""
        self.count += 1
        held = self.files.get(name)
        kind = self.random.choice(("Write", "Edit", "MultiEdit")) if held else "Write"
        new = f"{self.count} {self.random.random()}\n" * self.random.choice((1, 5, 20_000))
        if kind == "Write":
            return kind, {"file_path": name, "content": new}, new
        assert held is not None
        first, mark = held.split("\n", 1)[0], f"edited {self.count}"
        edit = {"old_string": held[: len(first) + 1], "new_string": f"{mark}\n"}
        if held.count(edit["old_string"]) > 1:  # whole, so that it is found once
            edit["old_string"] = held
        after = held.replace(edit["old_string"], edit["new_string"], 1)
        return kind, {"file_path": name, **(edit if kind == "Edit" else {"edits": [edit]})}, after

    async def turns(self) -> None:
        """Let the loop turn a while."""
        for _ in range(int(self.random.expovariate(1 / self.random.choice((3, 60, 1500))))):
            await asyncio.sleep(0)

    def settle(self, name: str, result: ToolResult, after: str) -> None:
        """Take up what is told of a call, and hold the disk against it."""
        if result.ok:
            assert result.undo is not None
            self.changes.append((result.undo.change_id, name, self.files.get(name)))
            self.files[name] = after
            self.written += 1
        else:
            assert result.error is not None
            assert result.error.code in ("cancelled", "timeout", "tool_unavailable"), result.output
            self.stopped += 1
        self.check(name)

    def check(self, name: str) -> None:
        path = self.folder / name
        assert (path.read_text() if path.exists() else None) == self.files.get(name)

    async def one(self, app: Surehand) -> None:
        """Make one call and perhaps give it up."""
        name = self.random.choice(NAMES)
        if self.files.get(name):
            assert (await app.call("Read", {"file_path": name})).ok
        tool, args, after = self.wish(name)
        call_id = f"call_{self.count}"
        running = asyncio.create_task(app.call(tool, args, id=call_id))
        way = self.random.choice(("leave", "cancel", "deadline", "caller"))
        if way != "leave":
            await self.turns()
        if way == "cancel":
            app.executor.cancel(call_id)
        elif way == "deadline" and (waiter := app.executor._running.get(call_id)) is not None:
            waiter.cancel(DEADLINE)
        elif way == "caller":
            running.cancel()
        await asyncio.wait({running})
        if not running.cancelled():
            result = running.result()
        elif call_id in self.recorded:
            result = self.recorded[call_id]
        else:  # cancelled before it had begun at all
            self.check(name)
            return
        self.settle(name, result, after)

    async def undo(self, app: Surehand) -> None:
        """Take the latest change back and perhaps give that up."""
        change_id, name, before = self.changes[-1]
        call_id = f"undo_{self.count}"
        self.count += 1
        running = asyncio.create_task(app.call("Undo", {"change_id": change_id}, id=call_id))
        if self.random.random() < 0.5:
            await self.turns()
            app.executor.cancel(call_id)
        result = await running
        if result.ok:
            self.changes.pop()
            if before is None:
                del self.files[name]
            else:
                self.files[name] = before
            self.written += 1
        else:
            assert result.error is not None
            assert result.error.code == "cancelled", result.output
            self.stopped += 1
        self.check(name)

    async def close_with_calls_under_way(self, app: Surehand) -> None:
        wishes = [(name, *self.wish(name)) for name in self.random.sample(NAMES, 3)]
        for name in NAMES:
            if self.files.get(name):
                assert (await app.call("Read", {"file_path": name})).ok
        running = [asyncio.create_task(app.call(tool, args)) for _, tool, args, _ in wishes]
        await self.turns()
        await app.close()
        for task, (name, _, _, after) in zip(running, wishes, strict=True):
            self.settle(name, await task, after)
        assert app.session.state_dir is not None
        assert verify(os.path.join(app.session.state_dir, "audit")).ok


async def run(folder: Path, seed: int, operations: int) -> None:
    (folder / "ws").mkdir()
    bench = Bench(folder / "ws", seed)
    app = bench.open()
    while bench.count < operations:
        chance = bench.random.random()
        if chance < 0.04:
            await bench.close_with_calls_under_way(app)
            app = bench.open()
        elif chance < 0.15 and bench.changes:
            await bench.undo(app)
        else:
            await bench.one(app)
    await app.close()
    for name in NAMES:
        bench.check(name)
    # Both happen in every run, or nothing was tried at all.
    assert bench.written
    assert bench.stopped


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUREHAND_HOME", str(tmp_path / "home"))


async def test_writers_stopped_at_random_moments_tell_what_the_disk_holds(tmp_path: Path) -> None:
    await run(tmp_path, seed=20, operations=500)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
async def test_many_writers_stopped_at_random_moments_tell_what_the_disk_holds(tmp_path: Path, seed: int) -> None:
    await run(tmp_path, seed, operations=2000)
