"""Two hundred small repair tasks by a scripted model: one after the other, and by a batch."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.harness import Harness

TASKS = 200


def rows(harness: Harness) -> None:
    count = 20 if harness.quick else TASKS
    with tempfile.TemporaryDirectory() as scratch:
        work = make_workspace(Path(scratch))
        harness.compare(
            f"a batch of {count} repairs",
            [("one by one", lambda: repair_all(work, count, 1)), ("by four", lambda: repair_all(work, count, 4))],
            rounds=1,
            warm=0,
        )


def make_workspace(scratch: Path) -> Path:
    os.environ["SUREHAND_HOME"] = str(scratch / "home")
    work = scratch / "work"
    work.mkdir()
    (work / "sum.py").write_text("def add(a, b):\n    return a - b\n")
    for number in range(20):
        (work / f"module_{number}.py").write_text(f"VALUE = {number}\n" * 50)
    return work


def repair(task: Any) -> Any:
    """Return the model that repairs a task's file."""
    from surehand.testing import ScriptedModel

    edit = {"file_path": "sum.py", "old_string": "a - b", "new_string": "a + b"}
    return ScriptedModel([("Read", {"file_path": "sum.py"})], [("Edit", edit)], "repaired")


def repair_all(work: Path, count: int, parallel: int) -> None:
    from surehand import Surehand

    async def run() -> None:
        tasks = [{"id": f"t{n}", "prompt": "repair add", "check": "grep -q 'a + b' sum.py"} for n in range(count)]
        async with Surehand(work, keep_state=False) as app:
            async for result in app.batch(tasks, parallel=parallel, model=repair):
                assert result.ok, result

    asyncio.run(run())
