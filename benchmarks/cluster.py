"""`python -m benchmarks.cluster [--quick]`: what a cluster of simulated nodes costs and gives, as ratios in one run.

Run it where there is only loopback (`make bench-cluster`).
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from benchmarks.cluster_tools import TOOLS

QUICK = "--quick" in sys.argv
SESSIONS = 60 if QUICK else 1000
CALLS = 5 if QUICK else 20
ROUNDS = 10 if QUICK else 60
PLACES = 16
"""Sessions a node has at once, in the rows on throughput."""
ALLOW = ["Bash"]


def tell(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def measure_calls(fleet: Any, work: Path) -> None:
    """Time of a remote call over a local one, in turns."""
    from surehand import Surehand

    session = await fleet.session(work)
    async with Surehand(work, tools=TOOLS, allow=ALLOW) as app:
        for name, args in (("nothing", {}), ("Read", {"file_path": "a.txt"}), ("Bash", {"command": "true"})):
            times: dict[str, list[float]] = {"local": [], "remote": []}
            for _ in range(ROUNDS):
                for where, door in (("local", app), ("remote", session)):
                    began = time.perf_counter()
                    assert (await door.call(name, args)).ok
                    times[where].append(time.perf_counter() - began)
            local, remote = (statistics.median(times[where]) for where in ("local", "remote"))
            tell(f"| remote {name} over local | {remote / local:.1f} | {local * 1e3:.2f} ms, {remote * 1e3:.2f} ms |")
    await session.close()


async def measure_idle(fleet: Any, work: Path) -> None:
    """Memory of a session that does nothing, and the cost of a call with few and with many sessions around."""
    first = await fleet.session(work, labels={})
    before = sum(host["rss_bytes"] for host in await fleet.describe())
    idle = [await fleet.session(work) for _ in range(10 if QUICK else 200)]
    for each in idle:
        await each.call("Read", {"file_path": "a.txt"})
    after = sum(host["rss_bytes"] for host in await fleet.describe())
    tell(f"| memory of an idle session | {(after - before) / len(idle) / 1024:.0f} KiB | after one Read |")
    few = await _cost_of_calls(fleet, idle[:10])
    more = [await fleet.session(work) for _ in range(SESSIONS - len(idle) - 1)]
    many = await _cost_of_calls(fleet, idle[:10])
    tell(f"| cost of a call among {SESSIONS} sessions over {len(idle) + 1} | {many / few:.2f} | CPU of both sides |")
    for each in (first, *idle, *more):
        await each.close()


async def _cost_of_calls(fleet: Any, sessions: list[Any]) -> float:
    async def total() -> float:
        return time.process_time() + sum(host["cpu_s"] for host in await fleet.describe())

    began = await total()
    for _ in range(ROUNDS):
        await asyncio.gather(*(each.call("nothing") for each in sessions))
    return (await total() - began) / (ROUNDS * len(sessions))


async def measure_throughput(fleet: Any, work: Path, name: str, count: int) -> float:
    """Return calls a second of many sessions, each with so many calls one after the other."""

    async def one() -> None:
        async with await fleet.session(work) as session:
            for _ in range(CALLS):
                assert (await session.call(name)).ok

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(count)))
    return count * CALLS / (time.perf_counter() - began)


async def with_fleet(nodes: int, work: Callable[[Any], Awaitable[None]], per_node: int) -> None:
    from surehand.cluster import Fleet

    fleet = Fleet(
        "local", nodes=nodes, cpus_per_node=2, tools=TOOLS, allow=ALLOW, sessions_per_node=per_node, queue=10_000
    )
    async with fleet:
        await work(fleet)


async def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        os.environ |= {"SUREHAND_HOME": f"{scratch}/home", "HOME": scratch}
        work = Path(scratch, "work")
        work.mkdir()
        (work / "a.txt").write_text("one\n" * 100)
        tell("| what | ratio | |\n|---|---|---|")

        async def first(fleet: Any) -> None:
            await measure_calls(fleet, work)
            await measure_idle(fleet, work)

        await with_fleet(1, first, 10_000)
        base: dict[str, float] = {}
        for nodes in (1, 2, 4):

            async def throughput(fleet: Any, nodes: int = nodes) -> None:
                for name, count in (("wait", SESSIONS), ("compute", SESSIONS // 4)):
                    await measure_throughput(fleet, work, name, PLACES)  # start the hosts
                    found = await measure_throughput(fleet, work, name, count)
                    base.setdefault(name, found)
                    calls = f"{count} sessions of {CALLS} calls, {found:.0f} a second"
                    tell(f"| {name}: throughput of {nodes} nodes over 1 | {found / base[name]:.2f} | {calls} |")

            await with_fleet(nodes, throughput, PLACES)
        load = " ".join(f"{each:.1f}" for each in os.getloadavg())
        tell(f"\nload of the last 1, 5 and 15 minutes: {load} on {os.cpu_count()} cores")


if __name__ == "__main__":
    asyncio.run(main())
