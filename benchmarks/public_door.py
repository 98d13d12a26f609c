"""What the benchmarks of the public door share: an application with default settings, a checkout, and peers.

Everything is on as a user has it: policy, audit, history, sandbox. The state is in a scratch folder of its own.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness import SCRATCH, peers
from benchmarks.search import FILES, LARGE, make_tree

ODD_RULE = "Icon[\r]\n"
"""From GitHub's macOS template: `rg` reads it otherwise than git."""
TEMPLATE = """\
__pycache__/
*.py[cod]
*.egg-info/
/build/
/dist/
.venv/
node_modules/
*.log
!keep.log
.coverage.*
"""


def _say_yes(question: Any) -> bool:
    """Answer as a program does, which keeps nothing of what it was asked."""
    return True


class Door:
    """An application over a folder, called as a program calls it; each call must succeed."""

    def __init__(self, workspace: str | Path, **options: Any) -> None:
        from surehand import Surehand

        self._home = tempfile.mkdtemp(prefix="surehand-bench-home-")
        os.environ["SUREHAND_HOME"] = self._home
        self.runner = asyncio.Runner()
        self.held_cpu_s = 0.0
        self.app = Surehand(workspace, approver=_say_yes, **options)

    def call(self, name: str, **args: Any) -> Any:
        """Make one call and return its result."""
        # Not by `run`, which puts a handler of signals up and takes it down again: as much as a small call.
        return self.runner.get_loop().run_until_complete(self._called(name, args))

    def calling(self, name: str, **args: Any) -> Callable[[], Any]:
        """Return a contestant that makes this call."""
        return lambda: self.call(name, **args)

    async def _called(self, name: str, args: dict[str, Any]) -> Any:
        result = await self.app.call(name, args)
        assert result.ok, result.output
        return result

    def together(self, name: str, many: list[dict[str, Any]], at_once: int) -> None:
        """Make many calls, some at once."""

        async def all_of_them() -> None:
            waiting = iter(many)

            async def worker() -> None:
                for args in waiting:
                    await self._called(name, args)

            await asyncio.gather(*(worker() for _ in range(at_once)))

        self.runner.run(all_of_them())

    def stall(self, work: Callable[[], Any]) -> float:
        """Return the longest time (s) the event loop was not served while an awaitable ran.

        `held_cpu_s` is the longest time it computed without a pause: on a busy machine the rest is waiting for a core.
        """

        async def watched() -> float:
            widest = self.held_cpu_s = 0.0

            async def beat() -> None:
                nonlocal widest
                while True:
                    before, computed = time.perf_counter(), time.thread_time()
                    await asyncio.sleep(0.001)
                    widest = max(widest, time.perf_counter() - before - 0.001)
                    self.held_cpu_s = max(self.held_cpu_s, time.thread_time() - computed)

            beating = asyncio.create_task(beat())
            await asyncio.sleep(0.01)
            await work()
            await asyncio.sleep(0.01)
            beating.cancel()
            return widest

        return self.runner.run(watched())

    def write_records(self) -> None:
        """Write the records of calls that may follow a moment later, so that no other contestant pays for them."""
        from surehand.engine.audit import Audit

        if isinstance(audit := self.app.executor.ledger, Audit):
            audit.flush()

    def close(self) -> None:
        """End the application, and remove what it kept."""
        self.runner.run(self.app.close())
        self.runner.close()
        shutil.rmtree(self._home, ignore_errors=True)


@contextmanager
def door(workspace: str | Path, **options: Any) -> Generator[Door]:
    """Open the door for a few rows."""
    made = Door(workspace, **options)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def scratch() -> Generator[Path]:
    """Give a folder that is gone afterwards, on the disk the checkout is on."""
    SCRATCH.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=SCRATCH))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def checkout() -> Path:
    """Return a large checkout: the one that `BENCH_CHECKOUT` names, or one made of the packages of this environment.

    The made one has an ignore file in every top folder, as a repository of many projects has.
    """
    if given := os.environ.get("BENCH_CHECKOUT"):
        return Path(given)
    folder = make_tree(LARGE, FILES)
    for project in folder.glob("copy*"):
        (project / ".gitignore").write_text(TEMPLATE)
    return folder


@contextmanager
def odd_rule(folder: Path) -> Generator[None]:
    """Put a rule that `rg` reads otherwise than git into the ignore file of a checkout, for a while."""
    place = folder / ".gitignore"
    before = place.read_bytes()
    place.write_bytes(before + ODD_RULE.encode())
    try:
        yield
    finally:
        place.write_bytes(before)


class Peer:
    """Another tool in an environment of its own: a process that does its job once for every line it is sent."""

    def __init__(self, name: str, packages: list[str], script: str, *words: str) -> None:
        self.name = name
        python = peers(name, packages)
        self.there = False
        if python is None:
            return
        here = os.path.dirname(sys.executable)  # where `rg` is, which some of them look for
        self._child = subprocess.Popen(
            [str(python), "-c", script, *words],
            env={**os.environ, "HOME": str(SCRATCH / "home"), "PATH": f"{here}:{os.environ['PATH']}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
        )
        self.there = self._answer() == "ready"

    def _answer(self) -> str:
        assert self._child.stdout is not None
        return self._child.stdout.readline().strip()

    def __call__(self) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write("go\n")
        if (said := self._answer()) != "done":
            raise RuntimeError(f"{self.name} said {said!r}")

    def close(self) -> None:
        """End the process."""
        if hasattr(self, "_child"):
            self._child.kill()
            self._child.wait()


@contextmanager
def contestants(*wanted: Peer) -> Generator[list[tuple[str, Callable[[], object]]]]:
    """Give the peers that could be had as contestants; they end afterwards."""
    try:
        yield [(peer.name, peer) for peer in wanted if peer.there]
    finally:
        for peer in wanted:
            peer.close()
