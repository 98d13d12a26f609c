"""`surehand batch --cluster` and `surehand cluster`, as a person runs them."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.conftest import Nodes

pytestmark = pytest.mark.spec("FLEET-1")


async def surehand(work: Path, *words: str) -> Any:
    command = [sys.executable, "-m", "surehand", *words, "--json"]
    done = await asyncio.to_thread(subprocess.run, command, cwd=work, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def test_a_batch_runs_on_a_cluster_by_a_command(nodes: Nodes, work: Path, tmp_path: Path) -> None:
    write = {"tool": "Write", "args": {"file_path": "new.txt", "content": "x"}}
    tasks = [{"id": f"t{n}", "calls": [write], "check": "test -f new.txt"} for n in range(4)]
    (tmp_path / "tasks.jsonl").write_text("".join(f"{json.dumps(task)}\n" for task in tasks))
    out = tmp_path / "r.jsonl"
    words = ("batch", str(tmp_path / "tasks.jsonl"), "--out", str(out), "--cluster", nodes.address, "--cpu", "0.5")
    summary = await surehand(work, *words)
    assert summary["passed"] == 4
    assert all("new.txt" in json.loads(line)["diff"] for line in out.read_text().splitlines())


async def test_questions_of_a_batch_on_a_cluster_are_answered_at_home(nodes: Nodes, work: Path, tmp_path: Path) -> None:
    task = {"id": "a", "calls": [{"tool": "Bash", "args": {"command": "rm a.txt"}}], "timeout": 400}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(task))
    out = tmp_path / "r.jsonl"
    words = ("batch", str(tmp_path / "tasks.jsonl"), "--out", str(out), "--cluster", nodes.address)
    batch = asyncio.ensure_future(surehand(work, *words, "--approvals", "console"))
    while not (waiting := await surehand(work, "approvals", "list")) and not batch.done():
        await asyncio.sleep(0.2)
    await surehand(work, "approvals", "allow", waiting[0]["id"])
    assert (await batch)["passed"] == 1
    assert json.loads(out.read_text())["files"] == [{"path": "a.txt", "action": "deleted"}]


async def test_sessions_are_kept_called_pulled_and_stopped_by_commands(nodes: Nodes, work: Path) -> None:
    at = ("--name", "day", "--address", nodes.address)
    detached = ("--detach", "day", "--address", nodes.address)
    (opened,) = await surehand(work, "cluster", "open", *detached, "--allow", "Bash")
    assert [row["session"] for row in await surehand(work, "cluster", "attach", *at)] == [opened["session"]]
    args = json.dumps({"command": "echo made > made.txt"})
    called = await surehand(work, "cluster", "call", opened["session"], "Bash", "--args", args, *at)
    assert called["ok"]
    assert (await surehand(work, "cluster", "pull", opened["session"], *at))["ok"]
    assert (work / "made.txt").read_text() == "made\n"
    assert await surehand(work, "cluster", "stop", *at) == {"ended": 1}
    assert await surehand(work, "cluster", "attach", *at) == []
