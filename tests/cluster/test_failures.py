"""What happens when nodes and drivers die: nothing is lost but what is reported, and nothing is left running."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.conftest import Nodes

import surehand
from surehand import Surehand
from surehand.batch.work import FleetRunner
from surehand.cluster import Fleet
from surehand.core.errors import StateError
from surehand.testing import ScriptedModel

pytestmark = pytest.mark.spec("FLEET-1")

ALLOW = ("Edit", "Write", "Bash", "Undo")


async def until(happened: Any, within_s: float = 60.0) -> None:
    async with asyncio.timeout(within_s):
        while not happened():
            await asyncio.sleep(0.05)


def running(words: str) -> list[int]:
    found: list[int] = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if words in Path("/proc", name, "cmdline").read_text().replace("\0", " "):
                    found.append(int(name))
            except OSError:
                continue
    return found


async def test_a_node_killed_among_fifty_sessions_loses_nothing_but_what_is_reported(nodes: Nodes, work: Path) -> None:
    async with Fleet(nodes.address, allow=ALLOW) as fleet:
        sessions = await asyncio.gather(*(fleet.session(work) for _ in range(50)))
        doomed = [each for each in sessions if each.node == nodes.second.node_id]
        assert 10 < len(doomed) < 40
        mine = [each.call("Write", {"file_path": "mine", "content": each.id}) for each in sessions]
        assert all(result.ok for result in await asyncio.gather(*mine))
        slow = {each.id: asyncio.ensure_future(each.call("Bash", {"command": "sleep 300"})) for each in doomed[:5]}
        acknowledged: dict[str, set[int]] = {each.id: set() for each in sessions}
        reported: dict[str, list[Any]] = {each.id: [] for each in sessions}
        reads: list[bool] = []
        going = True

        async def keep_busy(session: Any) -> None:
            number = 0
            while going:
                number += 1
                made = await session.call("Write", {"file_path": f"f{number}", "content": f"{number}"})
                if made.ok:
                    acknowledged[session.id].add(number)
                else:
                    reported[session.id].append(made.error)
                reads.append((await session.call("Read", {"file_path": "mine"})).ok)

        busy = [asyncio.ensure_future(keep_busy(each)) for each in sessions if each.id not in slow]
        await until(lambda: len(reads) > 60)
        nodes.kill(nodes.second)
        await until(lambda: all(each.moves == 1 and each.node for each in doomed), 120)
        seen = len(reads)
        await until(lambda: len(reads) > seen + 60)
        going = False
        await asyncio.gather(*busy)
        for result in await asyncio.gather(*slow.values()):
            assert result.error is not None
            assert result.error.details["may_have_run"]
        assert all(reads)
        told = [error for errors in reported.values() for error in errors]
        assert all(error.details["may_have_run"] for error in told)
        assert all(len(errors) <= 1 for errors in reported.values())
        assert fleet.metrics.records["Bash"].errors == {"execution_error": len(slow)}
        await until(lambda: all(record.running == 0 for record in fleet.metrics.records.values()))
        for session in sessions:
            assert (await session.call("Read", {"file_path": "mine"})).output.strip().endswith(session.id)
            patch = await session.diff()
            assert all(f" b/f{number}\n" in patch for number in acknowledged[session.id])


DRIVER = """
import asyncio, sys
from surehand.cluster import Fleet

async def main():
    detach = sys.argv[3] or None
    fleet = Fleet(sys.argv[1], allow=["Bash", "Write"], detach=detach)
    await fleet.__aenter__()
    session = await fleet.session(sys.argv[2])
    await session.call("Write", {"file_path": "made.txt", "content": "kept"})
    started = await session.call("Bash", {"command": "sleep 98765", "run_in_background": True})
    print("ready", started.ok, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def start_driver(nodes: Nodes, work: Path, detach: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", DRIVER, nodes.address, str(work), detach]
    driver = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    # Ray says between our lines what it noticed of nodes that died before.
    assert any(line.split() == ["ready", "True"] for line in driver.stdout)
    return driver


async def test_a_driver_that_dies_leaves_nothing_running(nodes: Nodes, work: Path) -> None:
    driver = await asyncio.to_thread(start_driver, nodes, work, "")
    assert running("sleep 98765")
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    await until(lambda: not running("sleep 98765"))


async def test_detached_sessions_outlive_their_driver_and_are_attached_to(nodes: Nodes, work: Path) -> None:
    driver = await asyncio.to_thread(start_driver, nodes, work, "night")
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    async with Fleet(nodes.address, detach="night") as fleet:
        (session,) = fleet.sessions.values()
        assert (await session.call("Read", {"file_path": "made.txt"})).output.strip().endswith("kept")
        assert "made.txt" in await session.diff()
        assert running("sleep 98765")
        await fleet.close()
    await until(lambda: not running("sleep 98765"))


async def test_a_node_with_another_version_is_refused_by_name(nodes: Nodes, work: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(Path(surehand.__file__).parent, other / "surehand", ignore=shutil.ignore_patterns("__pycache__"))
    init = other / "surehand" / "__init__.py"
    init.write_text(init.read_text().replace('__version__ = "', '__version__ = "99.'))
    node = nodes.add({"PYTHONPATH": str(other)}, zone="old")
    try:
        async with Fleet(nodes.address) as fleet:
            with pytest.raises(StateError, match=r"surehand 99\."):
                await fleet.session(work, labels={"zone": "old"})
            assert (await (await fleet.session(work, labels={"zone": "a"})).call("Read", {"file_path": "a.txt"})).ok
    finally:
        nodes.kill(node)


def scripted(task: Any) -> ScriptedModel:
    edit = {"file_path": "a.txt", "old_string": "two", "new_string": task.id}
    return ScriptedModel([("Read", {"file_path": "a.txt"})], [("Edit", edit)], "done")


async def test_a_batch_runs_on_the_cluster_with_the_same_results(nodes: Nodes, work: Path, tmp_path: Path) -> None:
    tasks = [{"id": f"t{n}", "prompt": "go", "check": f"grep -q t{n} a.txt"} for n in range(8)]
    tasks.append({"id": "calls", "calls": [{"tool": "Write", "args": {"file_path": "n", "content": "x"}}]})
    tasks.append({"id": "look", "calls": [{"tool": "Bash", "args": {"command": "ls -A"}}]})
    async with Surehand(work) as app, Fleet(nodes.address) as fleet:
        results = app.batch(tasks, parallel=4, out=tmp_path / "r.jsonl", model=scripted, runner=FleetRunner(fleet))
        found = {result.id: result async for result in results}
        await until(lambda: "Edit" in fleet.metrics.records and fleet.metrics.records["Edit"].calls == 8)
    assert {result.status for result in found.values()} == {"passed"}, found
    assert all(f"+t{n}" in found[f"t{n}"].diff for n in range(8))
    assert len({result.node for result in found.values()}) == 2
    assert found["look"].answer.split() == [".gitignore", "a.txt", "sub"]  # neither what is secret nor what is ignored
