"""A batch that is killed at random moments goes on exactly: one result each, and no task runs after its result."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from surehand.batch.tasks import read_results

pytestmark = pytest.mark.spec("BATCH-1")

PROGRAM = """
import asyncio, os, sys
from surehand import Surehand, tool

work, log, out, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])

@tool
def mark(name: str) -> str:
    "Write down that a task runs."
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, f"{name}\\n".encode())
    os.close(descriptor)
    return name

def task(name):
    write = {"tool": "Write", "args": {"file_path": "made.txt", "content": name}}
    return {"id": name, "calls": [{"tool": "mark", "args": {"name": name}}, write]}

async def main():
    async with Surehand(work, tools=[mark], allow=["mark"]) as app:
        tasks = [task(f"t{number}") for number in range(count)]
        async for result in app.batch(tasks, parallel=4, out=out, resume=True):
            assert result.ok, result

asyncio.run(main())
"""


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def kill_and_resume(tmp_path: Path, kills: int, count: int, seed: int) -> None:
    chance = random.Random(seed)
    work, log, out = tmp_path / "work", tmp_path / "log", tmp_path / "results.jsonl"
    work.mkdir()
    (work / "a.txt").write_text("a\n")
    (work / "b").mkdir()
    words = [sys.executable, "-c", PROGRAM, str(work), str(log), str(out), str(count)]
    done: set[str] = set()
    for _ in range(kills):
        begun = len(lines(log))
        running = subprocess.Popen(words, cwd=tmp_path)
        aim = begun + chance.randint(0, max(1, 2 * count // kills))
        while len(lines(log)) < aim and running.poll() is None:
            time.sleep(0.001)
        time.sleep(chance.random() * 0.03)  # a random moment, not one at which something is waited for
        os.kill(running.pid, signal.SIGKILL)
        running.wait()
        assert not done & set(lines(log)[begun:])
        done = {result.id for result in read_results(str(out))} if out.exists() else set()
    begun = len(lines(log))
    subprocess.run(words, cwd=tmp_path, check=True, timeout=600)
    assert not done & set(lines(log)[begun:])
    counts = Counter(result.id for result in read_results(str(out)))
    assert counts == {f"t{number}": 1 for number in range(count)}
    assert all("+" in result.diff for result in read_results(str(out)))
    from surehand.state.locations import batch_folder

    assert not os.path.exists(batch_folder(str(out)))


def test_a_batch_killed_a_few_times_has_one_result_for_every_task(tmp_path: Path) -> None:
    kill_and_resume(tmp_path, kills=4, count=20, seed=7)


@pytest.mark.slow
def test_fifty_kills_of_two_hundred_tasks_leave_one_result_for_every_task(tmp_path: Path) -> None:
    kill_and_resume(tmp_path, kills=50, count=200, seed=11)
