"""Bash through the door: one command, with and without a sandbox, that writes one file or many, ten at once."""

from __future__ import annotations

import asyncio
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import VIBE_PACKAGES, Harness, process
from benchmarks.public_door import Door, Peer, contestants, door, scratch
from surehand.sandbox.linux import seccomp
from surehand.sandbox.linux.launcher import messages
from surehand.sandbox.linux.launcher.change_recorder import ChangeRecorder

CALLS = 10
VIBE = """
import asyncio, sys
from vibe.core.tools.builtins.bash import Bash, BashToolConfig
tool = Bash.from_config(BashToolConfig())
async def many():
    for _ in range(int(sys.argv[1])):
        await tool.invoke(command="echo hi")
print("ready", flush=True)
for _ in sys.stdin:
    asyncio.run(many())
    print("done", flush=True)
"""
REMOVED, APPENDED = 7000, 1000


def rows(harness: Harness) -> None:
    """Add the rows of this job."""
    from surehand.core.settings import SandboxSettings, Settings

    with scratch() as folder:
        anchor = ("asyncio bash -c", lambda: asyncio.run(_spawned("echo hi", folder, CALLS)))
        unconfined = Settings(sandbox=SandboxSettings(mode="off"))
        vibe = Peer("vibe", VIBE_PACKAGES, VIBE, str(CALLS))
        with door(folder, settings=unconfined) as app, contestants(vibe) as others:
            ours = ("surehand", _times(app, "echo hi", CALLS))
            harness.compare("Bash echo, no sandbox", [anchor, *others, ours], goal="<= 1.3")
        with door(folder) as app:
            harness.compare(
                "Bash echo, sandboxed", [anchor, ("surehand", _times(app, "echo hi", CALLS))], goal="<= 2.0"
            )
            writing = ("asyncio bash -c", lambda: asyncio.run(_spawned("echo $RANDOM > out.txt", folder, CALLS)))
            ours = ("surehand, with undo", _times(app, "echo $RANDOM > out.txt", CALLS))
            harness.compare("Bash that writes one file", [writing, ours], goal="<= 3.0")
            _many_files(harness, folder, app)
            _rate(harness, folder, app)
    command = str(Path(sys.executable).parent / "surehand")
    with scratch() as folder:
        invoke = [command, "tools", "invoke", "Bash", "--args", '{"command": "echo hi"}']
        harness.compare(
            "tools invoke Bash",
            [
                ("python -c pass", process(sys.executable, "-c", "pass")),
                ("surehand", process(*invoke, cwd=str(folder))),
            ],
            goal="<= 12",
        )


async def _spawned(command: str, folder: Path, times: int) -> None:
    for _ in range(times):
        words = ("bash", "-c", command)
        child = await asyncio.create_subprocess_exec(*words, cwd=folder, stdout=subprocess.PIPE)
        await child.communicate()


def _times(app: Door, command: str, times: int) -> Callable[[], None]:
    def run() -> None:
        for _ in range(times):
            app.call("Bash", command=command)

    return run


def fill_folder(folder: Path, count: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for number in range(count):
        place = folder / str(number // 100)
        if number % 100 == 0:
            place.mkdir(parents=True)
        (place / f"{number}.txt").write_bytes(b"file %d\n" % number)


def _only_reported(command: str, folder: Path) -> None:
    """Run a command whose changes are reported as ours are, each answered at once and nothing kept."""
    ours, theirs = messages.pair()
    if (pid := os.fork()) == 0:
        os.chdir(folder)
        messages.send(theirs, ("listen",), [seccomp.report_changes(seccomp.reporting())])
        os.execv("/bin/bash", ["bash", "-c", command])
    theirs.close()
    received = messages.receive(ours)
    assert received is not None
    [listener] = received[1]
    with tempfile.TemporaryDirectory() as log:
        journal = ChangeRecorder({}, os.open(log, os.O_RDONLY | os.O_DIRECTORY), [])
        journal.finish()  # what follows belongs to no list
        journal.listen(listener)
        poll = select.poll()
        poll.register(listener, select.POLLIN)
        while all(events & select.POLLIN and journal.answer(listener) for _, events in poll.poll()):
            pass
    os.close(listener)
    os.waitpid(pid, 0)


def _many_files(harness: Harness, folder: Path, app: Door) -> None:
    """Commands that change many files; each finds the same tree, made off the clock."""
    many = folder / "many"
    jobs = (
        (f"rm -rf of {REMOVED:,} files", "rm -rf many", REMOVED, "<= 2.5"),
        (f"append to {APPENDED:,} files", "for f in many/*/*; do echo more >> $f; done", APPENDED, "<= 3"),
    )
    for name, command, count, goal in jobs:
        fill_folder(many, count)
        harness.compare(
            f"Bash: {name}",
            [
                ("asyncio bash -c", lambda command=command: asyncio.run(_spawned(command, folder, 1))),
                ("floor: reported, nothing kept", lambda command=command: _only_reported(command, folder)),
                ("surehand, with undo", lambda command=command: app.call("Bash", command=command)),
            ],
            goal=goal,
            rounds=5,
            warm=0,
            between=lambda count=count: fill_folder(many, count),
        )
        fill_folder(many, count)
        gap = app.stall(lambda command=command: app.app.call("Bash", {"command": command}))
        harness.fact("loop held", name, gap * 1000, "<= 50", "ms")
    shutil.rmtree(many, ignore_errors=True)


def _rate(harness: Harness, folder: Path, app: Door) -> None:
    """Commands a second, ten at once."""
    count = 100

    async def bare() -> None:
        waiting = iter(range(count))

        async def worker() -> None:
            for _ in waiting:
                await _spawned("true", folder, 1)

        await asyncio.gather(*(worker() for _ in range(10)))

    started = time.perf_counter()
    asyncio.run(bare())
    harness.fact("Bash calls a second, ten at once", "asyncio", count / (time.perf_counter() - started), "", "a second")
    app.together("Bash", [{"command": "true"}] * 20, 10)
    started = time.perf_counter()
    app.together("Bash", [{"command": "true"}] * count, 10)
    taken = time.perf_counter() - started
    harness.fact("Bash calls a second, ten at once", "surehand", count / taken, ">= 500", "a second")
