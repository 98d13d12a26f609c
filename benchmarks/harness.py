"""The harness: things measured in turns within one run, medians over rounds, wall and CPU time, one table.

A shared machine makes absolute times meaningless; the ratio of two medians of interleaved rounds is what counts.
Peers that are not our dependencies live in an environment of their own under `.bench/`.
"""

from __future__ import annotations

import gc
import math
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
SCRATCH = ROOT / ".bench"
VIBE_PACKAGES = ["mistral-vibe<2"]
"""The last version whose tools run by themselves."""
KIMI_PACKAGES = ["kimi-cli"]
FILESYSTEM_SERVER = "@modelcontextprotocol/server-filesystem"
WAITING = 0.2
"""An anchor that computes for less than this part of its time mostly waits."""


@dataclass
class Case:
    """One contestant: a name and a function that does the job once."""

    name: str
    run: Callable[[], object]
    wall: list[float] = field(default_factory=list[float])
    cpu: list[float] = field(default_factory=list[float])


@dataclass(frozen=True)
class Row:
    """One line of the table: a contestant's ratios to the anchor of its job."""

    job: str
    name: str
    wall: float
    cpu: float | None
    """None where the anchor only waits (for a timer, or for a process that lives on): its CPU time says nothing."""
    goal: str = ""
    seconds: float = 0.0
    note: str = ""


class Harness:
    """Collects rows; `quick` runs few rounds, to see that everything works."""

    def __init__(self, quick: bool = False) -> None:
        self.quick = quick
        self.rows: list[Row] = []
        self.failed: list[str] = []
        """Jobs without a figure, since the anchor or Surehand failed; the table says so, and the others go on."""

    def compare(
        self,
        job: str,
        cases: Sequence[tuple[str, Callable[[], object]]],
        *,
        goal: str = "",
        rounds: int = 15,
        warm: int = 2,
        between: Callable[[], object] = lambda: None,
    ) -> dict[str, float]:
        """Measure contestants in turns; the first is the anchor, the last is ours. Returns wall ratios by name.

        `between` tidies up after each turn, off the clock. A peer that fails is left out; where the anchor or Surehand
        does, the job has no figures.
        """
        contestants = [Case(name, run) for name, run in cases]
        needed = (contestants[0], contestants[-1])
        for turn in range(warm + (3 if self.quick else rounds)):
            for case in list(contestants):
                try:
                    _measure(case) if turn >= warm else case.run()
                except Exception as problem:
                    traceback.print_exc()
                    self.rows.append(Row(job, case.name, math.nan, math.nan, note=f"failed: {type(problem).__name__}"))
                    if case in needed:
                        self.failed.append(job)
                        return dict.fromkeys((name for name, _ in cases), math.nan)
                    contestants.remove(case)
                between()
        anchor = contestants[0]
        base_wall, base_cpu = statistics.median(anchor.wall), statistics.median(anchor.cpu)
        for case in contestants:
            wall, cpu = statistics.median(case.wall), statistics.median(case.cpu)
            ours = goal if case is contestants[-1] else ""
            cpu_ratio = cpu / base_cpu if base_cpu > base_wall * WAITING else None
            self.rows.append(Row(job, case.name, wall / base_wall, cpu_ratio, ours, wall))
        return {case.name: statistics.median(case.wall) / base_wall for case in contestants}

    def fact(self, job: str, name: str, value: float, goal: str = "", note: str = "") -> None:
        """Add a row that is no race: a size, a count, a gap."""
        self.rows.append(Row(job, name, value, value, goal, 0.0, note))

    def table(self) -> str:
        lines = [f"{'job':<38} {'contestant':<34} {'wall':>8} {'cpu':>8}  {'goal':<10} {'time':>11}"]
        last = ""
        for row in self.rows:
            job = row.job if row.job != last else ""
            last = row.job
            shown = f"{row.seconds * 1e3:9.3f} ms" if row.seconds else row.note
            cpu = "-" if row.cpu is None else f"{row.cpu:.3f}"
            lines.append(f"{job:<38} {row.name:<34} {row.wall:8.3f} {cpu:>8}  {row.goal:<10} {shown:>11}")
        return "\n".join(lines)


def _measure(case: Case) -> None:
    gc.collect()
    helpers, own = _cpu_of_helpers(), _own_cpu()  # in this order: looking for helpers takes a millisecond itself
    start = time.perf_counter()
    case.run()
    case.wall.append(time.perf_counter() - start)
    _wait_for_threads()
    case.cpu.append(_own_cpu() - own + _cpu_of_helpers() - helpers)


def _wait_for_threads() -> None:
    """Wait until threads that still work have ended: their time belongs to whoever started them, not to the next."""
    for _ in range(400):
        before = time.process_time()
        time.sleep(0.005)
        if time.process_time() - before < 0.001:
            return


def cpu_of_all() -> float:
    """Return the CPU seconds of this process, of its children that ended, and of all helpers below it that live on."""
    return _own_cpu() + _cpu_of_helpers()


def _own_cpu() -> float:
    own, ended = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime


def _cpu_of_helpers() -> float:
    """Return the CPU seconds of every living process below this one (launchers, servers), in ticks of the clock."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            parents[int(name)] = int(fields[1])
            ticks[int(name)] = sum(map(int, fields[11:15]))  # its own and that of its children that ended
    below, added = {os.getpid()}, True
    while added:
        found = {pid for pid, parent in parents.items() if parent in below} - below
        below |= found
        added = bool(found)
    return sum(ticks[pid] for pid in below if pid != os.getpid()) / os.sysconf("SC_CLK_TCK")


def process(*words: str, cwd: str | None = None) -> Callable[[], object]:
    """Return a contestant that runs a command to its end."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}

    def run() -> object:
        return subprocess.run(
            words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment, cwd=cwd, check=False
        )

    return run


def peers(name: str, packages: Sequence[str]) -> Path | None:
    """Return the interpreter of an environment that holds these packages, made on first use; None when it cannot be.

    What needs a newer Python than this one gets it where one is at hand.
    """
    place = SCRATCH / f"venv-{name}"
    python = place / "bin" / "python"
    if (place / ".ready").exists():
        return python
    for interpreter in (sys.executable, *_newer_interpreters()):
        try:
            subprocess.run([interpreter, "-m", "venv", "--clear", str(place)], check=True, capture_output=True)
            subprocess.run([str(python), "-m", "pip", "install", "-q", *packages], check=True, capture_output=True)
        except subprocess.CalledProcessError:
            continue
        (place / ".ready").touch()
        return python
    sys.stderr.write(f"left out: {name}, which cannot be installed here\n")
    return None


def _newer_interpreters() -> list[str]:
    """Return newer versions of Python on the path, and beside this one (as pyenv keeps them)."""
    found = [shutil.which(f"python3.{minor}") for minor in range(sys.version_info.minor + 1, 15)]
    beside = sorted(Path(sys.base_prefix).parent.glob("3.*/bin/python3"), reverse=True)
    return [*filter(None, found), *map(str, beside)]


def npm_package(package: str) -> Path | None:
    """Return the folder of a package for node, installed on first use; None when it cannot be."""
    place = SCRATCH / "npm"
    folder = place / "node_modules" / package
    if folder.exists():
        return folder
    place.mkdir(parents=True, exist_ok=True)
    try:
        words = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", package]
        subprocess.run(words, cwd=place, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        sys.stderr.write(f"left out: {package}, which cannot be installed here\n")
        return None
    return folder
