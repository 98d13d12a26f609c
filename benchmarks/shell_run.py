"""Running commands: one shot, sandboxed or not, the persistent shell, floods of output, ending many processes.

Anchors: asyncio's own `bash -c`, the same output sent to /dev/null, `killpg`. A call is measured without the engine,
with a launcher that already runs; `dispatch` measures the engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import signal
import tempfile
from collections.abc import Callable, Coroutine
from typing import Any

from benchmarks.harness import Harness
from surehand.commands.environment import clean_environment
from surehand.commands.output import Stream
from surehand.commands.persistent_shell import PersistentShell
from surehand.core.settings import SandboxSettings
from surehand.core.text import STDOUT_LIMIT
from surehand.sandbox.command import Command
from surehand.sandbox.linux import probe
from surehand.sandbox.linux.client import Launcher
from surehand.sandbox.profile import closed_profile, open_profile

FLOOD = "seq 1 12500000"  # 100 MB
MANY = "for i in $(seq 50); do setsid sleep 600 & done; wait"
CALLS = 10


def rows(harness: Harness) -> None:
    """Add the rows to the table of all benchmarks."""
    with asyncio.Runner() as runner:
        bench = runner.run(Bench.make())
        try:
            bench.compare(runner, harness)
        finally:
            runner.run(bench.close())


def _quiet(data: bytes) -> None:
    del data


class Bench:
    """Launchers with and without a sandbox, and a persistent shell, in a scratch workspace."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.workspace = os.path.join(folder, "ws")
        self.environment = clean_environment(os.environ)
        self.open: Launcher
        self.closed: Launcher | None = None
        self.shell: PersistentShell

    @classmethod
    async def make(cls) -> Bench:
        bench = cls(tempfile.mkdtemp(prefix="surehand-bench-"))
        private = os.path.join(bench.folder, "private")
        os.makedirs(bench.workspace)
        os.makedirs(private)
        bench.open = await Launcher.start(open_profile(bench.workspace, [], private))
        if probe.abilities().private_view:
            bench.closed = await Launcher.start(closed_profile(bench.workspace, [], SandboxSettings(), private))
        bench.shell = PersistentShell(bench.closed or bench.open, private, bench.workspace, bench.environment)
        return bench

    async def close(self) -> None:
        await self.shell.close()
        for launcher in (self.open, self.closed):
            if launcher is not None:
                await launcher.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def compare(self, runner: asyncio.Runner, harness: Harness) -> None:
        def times(work: Callable[[], Coroutine[Any, Any, None]], count: int = CALLS) -> Callable[[], object]:
            async def repeat() -> None:
                for _ in range(count):
                    await work()

            return lambda: runner.run(repeat())

        bare = ("asyncio bash -c", times(self.bare))
        harness.compare("bash one shot, unsandboxed", [bare, ("surehand", times(self.one_shot))], goal="≤ 1.3")
        if self.closed is not None:
            harness.compare("bash one shot, sandboxed", [bare, ("surehand", times(self.contained))], goal="≤ 2.5")
        harness.compare("bash in a shell with memory", [bare, ("surehand", times(self.remembered))], goal="≤ 0.1")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        harness.compare(
            "100 MB of output",
            [("to /dev/null", times(self.to_nowhere, 1)), ("surehand", times(self.flood, 1))],
            goal="≤ 1.6",
            rounds=7,
            between=self.forget_output,
        )
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        harness.fact("100 MB of output, memory", "surehand", grown, "≤ 8", "MiB more")
        harness.compare(
            "ending 50 processes",
            [("killpg", times(self.kill_group, 1)), ("surehand, setsid included", times(self.end_many, 1))],
            goal="≤ 2",
            rounds=7,
        )

    async def bare(self) -> None:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec("bash", "-c", "echo hi", stdout=pipe, stderr=pipe)
        await process.communicate()

    async def one_shot(self) -> None:
        await self._run(self.open, "echo hi")

    async def contained(self) -> None:
        assert self.closed is not None
        await self._run(self.closed, "echo hi")

    async def _run(self, launcher: Launcher, text: str) -> None:
        command = Command(("/bin/bash", "-c", text), self.workspace, self.environment)
        await launcher.run(command, _quiet, _quiet).finish(60)

    async def remembered(self) -> None:
        await self.shell.run("echo hi", self.workspace, _quiet, _quiet, 10)

    async def to_nowhere(self) -> None:
        process = await asyncio.create_subprocess_exec("bash", "-c", FLOOD, stdout=asyncio.subprocess.DEVNULL)
        await process.wait()

    async def flood(self) -> None:
        """Store the output as a call does: head and tail in memory, all of it in a file."""
        file = os.path.join(self.folder, "flood")
        stream = Stream(STDOUT_LIMIT, lambda: file)
        command = Command(("/bin/bash", "-c", FLOOD), self.workspace, self.environment)
        await self.open.run(command, stream.feed, _quiet).finish(60)
        stream.close()
        assert stream.total > 100_000_000

    def forget_output(self) -> None:
        """Delete the file of the last call off the clock: each call has a new file."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.folder, "flood"))

    async def kill_group(self) -> None:
        process = await asyncio.create_subprocess_exec(
            "bash", "-c", MANY.replace("setsid ", ""), start_new_session=True, stdout=asyncio.subprocess.DEVNULL
        )
        await self._until_many(process.pid)
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()

    async def end_many(self) -> None:
        launcher = self.closed or self.open
        run = launcher.run(Command(("/bin/bash", "-c", MANY), self.workspace, self.environment), _quiet, _quiet)
        while not run.supervisor_pid:
            await asyncio.sleep(0)
        await self._until_many(run.supervisor_pid)
        run.stop("timeout", 0.0)
        await run.finish()

    async def _until_many(self, pid: int) -> None:
        from surehand.sandbox.linux.launcher import tree

        while len(tree.descendants(pid)) < 50:
            await asyncio.sleep(0.001)


if __name__ == "__main__":
    harness = Harness()
    rows(harness)
    print(harness.table())
