"""Remote sessions on two real nodes: the same calls and results, and workspaces that go and come home."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.conftest import CPUS, Nodes

from surehand import Surehand, ToolCall
from surehand.cluster import Fleet
from surehand.core.errors import StateError, ToolFailure

pytestmark = pytest.mark.spec("FLEET-1")

EDIT = {"file_path": "a.txt", "old_string": "two", "new_string": "2"}
ALLOW = ("Edit", "Write", "Bash", "Undo", "Redo")


async def test_calls_edits_and_undo_are_the_same_as_at_home(nodes: Nodes, work: Path) -> None:
    async with Surehand(work, allow=ALLOW) as app, Fleet(nodes.address, allow=ALLOW) as fleet:
        session = await fleet.session(work)
        here, there = [await each.call("Read", {"file_path": "a.txt"}) for each in (app, session)]
        assert (here.ok, here.output) == (there.ok, there.output)
        assert type(there) is type(here)
        edited = await session.call("Edit", EDIT)
        assert edited.ok, edited.error
        assert edited.undo is not None
        shown = await session.call("Bash", {"command": "cat a.txt; pwd"})
        assert shown.output.splitlines() == ["one", "2", session.workspace]
        assert (await session.undo()).ok
        assert (await session.call("Bash", {"command": "cat a.txt"})).output == "one\ntwo"
        failed = await session.call("Read", {"file_path": "nothing.txt"})
        assert failed.error is not None
        assert failed.error.code == (await app.call("Read", {"file_path": "nothing.txt"})).error.code  # type: ignore[union-attr]
    assert (work / "a.txt").read_text() == "one\ntwo\n"


async def test_ignored_files_and_secrets_stay_at_home_unless_a_pattern_says_so(nodes: Nodes, work: Path) -> None:
    async with Fleet(nodes.address, allow=ALLOW) as fleet:
        session = await fleet.session(work)
        listed = (await session.call("Bash", {"command": "ls -A"})).output.split()
        assert sorted(listed) == [".gitignore", "a.txt", "sub"]
        carrying = await fleet.session(work, carry=[".env"])
        assert os.path.exists(os.path.join(carrying.workspace, ".env"))
        assert await carrying.diff() == ""


async def test_a_workspace_travels_once_and_then_only_what_is_new(nodes: Nodes, work: Path) -> None:
    (work / "big.bin").write_bytes(os.urandom(1 << 20))
    async with Fleet(nodes.address) as fleet:
        first = await fleet.session(work, labels={"zone": "b"})
        host = first.placement.host.actor  # type: ignore[union-attr]
        (work / "new.txt").write_text("new\n")
        sent: list[int] = []
        added = fleet._open_on

        async def counting(placement: Any, session: Any) -> Any:
            missing = await host.find_missing.remote(sorted(session.checkpoint.snapshot.digests))
            sent.append(len(missing))
            return await added(placement, session)

        fleet._open_on = counting  # type: ignore[method-assign]
        await fleet.session(work, labels={"zone": "b"})
        assert sent == [1]


async def test_changes_come_home_through_the_history_and_a_conflict_changes_nothing(nodes: Nodes, work: Path) -> None:
    rules = (*ALLOW, "ApplyPatch")
    async with Surehand(work, allow=rules) as app, Fleet(nodes.address, allow=ALLOW) as fleet:
        session = await fleet.session(work)
        await session.call("Bash", {"command": "rm sub/b.txt; printf '\\0\\1' > new.bin; sed -i s/one/1/ a.txt"})
        assert (await session.pull(app)).ok
        assert (work / "a.txt").read_text() == "1\ntwo\n"
        assert (work / "new.bin").read_bytes() == b"\0\1"
        assert not (work / "sub" / "b.txt").exists()
        assert await session.diff() == ""
        assert (await app.undo()).ok
        assert (work / "a.txt").read_text() == "one\ntwo\n"
        assert (await app.redo()).ok
        (work / "a.txt").write_text("mine\n")
        await session.call("Bash", {"command": "sed -i s/two/2/ a.txt; echo x > other.txt"})
        refused = await session.pull(app)
        assert refused.error is not None
        assert refused.error.code == "precondition_failed"
        assert not (work / "other.txt").exists()


async def test_forks_start_where_the_session_stands_and_go_their_own_ways(nodes: Nodes, work: Path) -> None:
    rules = (*ALLOW, "ApplyPatch")
    async with Surehand(work, allow=rules) as app, Fleet(nodes.address, allow=ALLOW) as fleet:
        session = await fleet.session(work)
        await session.call("Bash", {"command": "echo begun > progress.txt"})
        forks = await session.fork(3)
        await asyncio.gather(
            *(fork.call("Bash", {"command": f"echo {n} >> progress.txt"}) for n, fork in enumerate(forks))
        )
        shown = [(await fork.call("Bash", {"command": "cat progress.txt"})).output for fork in forks]
        assert shown == [f"begun\n{n}" for n in range(3)]
        assert (await session.call("Bash", {"command": "cat progress.txt"})).output == "begun"
        best = forks[1]
        patch = await best.diff()
        assert "+1" in patch
        assert "progress.txt" in patch
        assert (await session.pull(app)).ok
        assert len({fork.node for fork in forks}) == 2


async def test_placement_minds_labels_and_resources_and_the_queue_is_bounded(nodes: Nodes, work: Path) -> None:
    async with Fleet(nodes.address, sessions_per_node=2, queue=1) as fleet:
        b = await fleet.session(work, labels={"zone": "b"}, needs={"cpu": 1, "memory": "64MiB"})
        by_id = {node.id: node for node in await fleet.list_nodes()}
        assert by_id[b.node].labels["zone"] == "b"
        with pytest.raises(StateError, match="labels"):
            await fleet.session(work, labels={"zone": "nowhere"})
        rest = [await fleet.session(work) for _ in range(3)]
        waiting = asyncio.ensure_future(fleet.session(work))
        while not fleet.waiting:
            await asyncio.sleep(0.01)
        with pytest.raises(ToolFailure) as refused:
            await fleet.session(work)
        assert refused.value.code == "queue_full"
        await rest[0].close()
        assert (await (await waiting).call("Read", {"file_path": "a.txt"})).ok


async def test_two_hundred_sessions_queue_over_four_places(nodes: Nodes, work: Path) -> None:
    """Each place is a core and a half of the eight there are, so that Ray itself says who may begin."""
    most = now = 0
    async with Fleet(nodes.address, sessions_per_node=2, queue=500) as fleet:

        async def one(number: int) -> bool:
            nonlocal most, now
            async with await fleet.session(work, needs={"cpu": 1.5} if number % 10 == 0 else None) as session:
                now += 1
                most = max(most, now)
                result = await session.call("Read", {"file_path": "a.txt"})
                now -= 1
            return result.ok

        done = await asyncio.gather(*(one(number) for number in range(200)))
    assert done == [True] * 200
    assert most <= 4


async def test_cancel_reaches_the_remote_process_at_once(nodes: Nodes, work: Path, tmp_path: Path) -> None:
    async with Fleet(nodes.address, allow=ALLOW) as fleet:
        session = await fleet.session(work)
        call = asyncio.ensure_future(
            session.call("Bash", {"command": "echo $$ > pid.txt; sleep 300; echo late > late"})
        )
        begun = Path(session.workspace, "pid.txt")
        while not begun.exists() or not begun.read_text().strip():
            await asyncio.sleep(0.02)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        left = await session.call("Bash", {"command": "ls"})
        assert "late" not in left.output.split()
        assert not [each for each in _processes() if "sleep\0300" in each]


async def test_events_questions_and_metrics_come_home(nodes: Nodes, work: Path) -> None:
    seen: list[Any] = []
    asked: list[Any] = []

    async def decide(question: Any) -> bool:
        asked.append(question)
        return question.call.args["command"] == "touch good"

    async with Fleet(nodes.address, approver=decide, listener=seen.append) as fleet:
        session = await fleet.session(work)
        good = await session.call("Bash", {"command": "touch good"})
        bad = await session.call("Bash", {"command": "touch bad"})
        while sum(event.kind == "call_finished" for event in seen) < 2:
            await asyncio.sleep(0.02)
        figures = fleet.metrics.of("Bash")
    assert good.ok
    assert bad.error is not None
    assert bad.error.code == "permission_denied"
    assert [question.tool for question in asked] == ["Bash", "Bash"]
    assert "touch good" in asked[0].text()
    finished = [event for event in seen if event.kind == "call_finished"]
    assert [event.data["result"].ok for event in finished] == [True, False]
    assert figures is not None
    assert (figures.execution.total_calls, figures.execution.failed_calls) == (2, 1)
    assert figures.errors.by_code == {"permission_denied": 1}
    assert fleet.metrics.records["Bash"].running == 0


async def test_who_waits_no_longer_gives_back_what_was_reserved(nodes: Nodes, work: Path) -> None:
    import ray

    wanted: dict[str, Any] = {"labels": {"zone": "b"}, "needs": {"cpu": 3}}
    async with Fleet(nodes.address, sessions_per_node=1) as fleet:
        first = await fleet.session(work, labels={"zone": "b"})
        waiting = asyncio.ensure_future(fleet.session(work, **wanted))
        while ray.available_resources()["CPU"] > 2 * CPUS - 3:
            await asyncio.sleep(0.05)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await first.close()
        async with asyncio.timeout(60), await fleet.session(work, **wanted) as session:
            assert (await session.call("Read", {"file_path": "a.txt"})).ok


async def test_each_node_has_one_audit_chain_that_verifies(nodes: Nodes, work: Path) -> None:
    from surehand.engine.audit import records, verify

    async with Fleet(nodes.address, allow=ALLOW) as fleet:
        sessions = [await fleet.session(work) for _ in range(4)]
        await asyncio.gather(*(each.call("Bash", {"command": "echo x > x"}) for each in sessions))
        folders = {host["node"]: host["audit"] for host in await fleet.describe()}
    assert len(folders) == 2
    for folder in folders.values():
        assert verify(folder).ok
        assert len({record["session"] for record in records(folder)}) >= 2


async def test_a_session_with_a_process_of_its_own_shares_with_nobody(nodes: Nodes, work: Path) -> None:
    async with Fleet(nodes.address) as fleet:
        shared = [await fleet.session(work, labels={"zone": "a"}) for _ in range(2)]
        own = await fleet.session(work, labels={"zone": "a"}, own_process=True)
        assert shared[0].placement is not None
        assert shared[1].placement is not None
        assert own.placement is not None
        assert shared[0].placement.host is shared[1].placement.host
        assert own.placement.host is not shared[0].placement.host
        assert (await own.call("Read", {"file_path": "a.txt"})).ok
        results = await own.run_calls([ToolCall("Read", {"file_path": "a.txt"}) for _ in range(20)])
        assert all(result.ok for result in results)


def _processes() -> list[str]:
    found: list[str] = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                found.append(Path("/proc", name, "cmdline").read_text())
            except OSError:
                continue
    return found
