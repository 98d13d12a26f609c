"""`python -m benchmarks.cluster [--quick] [--sessions=N] [calls idle wait compute]`: what a cluster costs, and gives.

Ratios within one run; without names all parts run, with 1,000 sessions.
Run it where there is only loopback (`make bench-cluster`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.cluster_tools import TOOLS

QUICK = "--quick" in sys.argv
SESSIONS = next((int(word[11:]) for word in sys.argv if word.startswith("--sessions=")), 60 if QUICK else 1000)
CALLS = 5 if QUICK else 20
ROUNDS = 10 if QUICK else 60
PLACES = 8
"""Sessions a node has at once, in the rows on throughput: few enough that calls which wait leave the cores free."""
NODES = (1, 2, 4)
ALLOW = ["Bash"]
OPENING = 16


def tell(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def load() -> str:
    return f"load {os.getloadavg()[0]:.0f}"


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
            took = f"{local * 1e3:.2f} ms, {remote * 1e3:.2f} ms; {load()}"
            tell(f"| remote {name} over local | {remote / local:.1f} | {took} |")
    await session.close()


async def measure_idle(fleet: Any, work: Path) -> None:
    """Memory of a session that does nothing, and the cost of a call with few and with many sessions around."""
    busy = await open_sessions(fleet, work, 10)
    few = await _cost_of_calls(fleet, busy)
    before = sum(host["rss_bytes"] for host in await fleet.describe())
    idle = await open_sessions(fleet, work, SESSIONS - len(busy))
    after = sum(host["rss_bytes"] for host in await fleet.describe())
    kept = f"{len(idle)} sessions after one Read each; {load()}"
    tell(f"| memory of an idle session | {(after - before) / len(idle) / 1024:.0f} KiB | {kept} |")
    many = await _cost_of_calls(fleet, busy)
    cost = f"CPU of both sides: {few * 1e3:.2f} ms, {many * 1e3:.2f} ms; {load()}"
    tell(f"| cost of a call among {SESSIONS} sessions over among {len(busy)} | {many / few:.2f} | {cost} |")
    await gather_few(each.close() for each in (*busy, *idle))


async def open_sessions(fleet: Any, work: Path, count: int) -> list[Any]:
    """Open sessions, and have each make a call."""

    async def open_one() -> Any:
        session = await fleet.session(work)
        assert (await session.call("Read", {"file_path": "a.txt"})).ok
        return session

    return await gather_few(open_one() for _ in range(count))


async def gather_few(work: Iterable[Awaitable[Any]]) -> list[Any]:
    """Do many things, a few at once; return what came of them."""
    places = asyncio.Semaphore(OPENING)

    async def one(each: Awaitable[Any]) -> Any:
        async with places:
            return await each

    return list(await asyncio.gather(*(one(each) for each in work)))


async def _cost_of_calls(fleet: Any, sessions: list[Any]) -> float:
    async def total() -> float:
        return time.process_time() + sum(host["cpu_s"] for host in await fleet.describe())

    await asyncio.gather(*(each.call("nothing") for each in sessions))
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


async def measure_nodes(work: Path, names: list[str]) -> None:
    """Throughput with more and more nodes, and what memory it took in all."""
    base: dict[str, float] = {}
    for nodes in NODES:

        async def throughput(fleet: Any, nodes: int = nodes) -> None:
            for name in names:
                await measure_throughput(fleet, work, name, PLACES * nodes)  # start the hosts
                async with PeakMemory() as memory:
                    found = await measure_throughput(fleet, work, name, SESSIONS)
                base.setdefault(name, found)
                calls = f"{SESSIONS} sessions of {CALLS} calls, {found:.0f} a second"
                took = f"{calls}; {memory.most / (1 << 30):.1f} GiB in all; {load()}"
                tell(f"| {name}: throughput of {nodes} nodes over 1 | {found / base[name]:.2f} | {took} |")

        await with_fleet(nodes, throughput, PLACES)


class PeakMemory:
    """The most that this process and all below it had in memory, looked at now and then; shared pages count once."""

    def __init__(self) -> None:
        self.most = 0

    async def __aenter__(self) -> PeakMemory:
        self._looking = asyncio.ensure_future(self._look())
        return self

    async def __aexit__(self, *problem: object) -> None:
        self._looking.cancel()
        self.most = max(self.most, await asyncio.to_thread(memory_below, os.getpid()))

    async def _look(self) -> None:
        while True:
            self.most = max(self.most, await asyncio.to_thread(memory_below, os.getpid()))
            await asyncio.sleep(5)


def memory_below(top: int) -> int:
    """Return the bytes of memory of a process and all its descendants."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(name)] = int(Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[1])
    family, size = {top}, 0
    while len(family) > size:
        size = len(family)
        family |= {child for child, parent in parents.items() if parent in family}
    return sum(_proportional_bytes(pid) for pid in family)


def _proportional_bytes(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path("/proc", str(pid), "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


async def with_fleet(nodes: int, work: Callable[[Any], Awaitable[None]], per_node: int) -> None:
    from surehand.cluster import Fleet

    fleet = Fleet(
        "local", nodes=nodes, cpus_per_node=2, tools=TOOLS, allow=ALLOW, sessions_per_node=per_node, queue=10_000
    )
    async with fleet:
        await work(fleet)


async def main() -> None:
    parts = [word for word in sys.argv[1:] if not word.startswith("-")] or ["calls", "idle", "wait", "compute"]
    with tempfile.TemporaryDirectory() as scratch:
        os.environ |= {"SUREHAND_HOME": f"{scratch}/home", "HOME": scratch}
        work = Path(scratch, "work")
        work.mkdir()
        (work / "a.txt").write_text("one\n" * 100)
        tell("| what | ratio | |\n|---|---|---|")

        async def on_one(fleet: Any) -> None:
            for name, measure in (("calls", measure_calls), ("idle", measure_idle)):
                if name in parts:
                    await measure(fleet, work)

        if {"calls", "idle"} & set(parts):
            await with_fleet(1, on_one, 10_000)
        if names := [name for name in ("wait", "compute") if name in parts]:
            await measure_nodes(work, names)


if __name__ == "__main__":
    asyncio.run(main())
