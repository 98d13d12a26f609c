"""Bash through the public API: one command, with and without a sandbox, that writes one file or many; ten at once."""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from struct import Struct

from benchmarks.harness import VIBE_PACKAGES, Harness, process
from benchmarks.public_door import Door, Peer, contestants, door, scratch
from surehand.sandbox.linux import seccomp, system
from surehand.sandbox.linux.launcher import messages

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
_RECEIVE, _ANSWER, _TAKE_TURNS = 0xC0502100, 0xC0182101, 0x40082104
_REQUEST, _REPLY = Struct("<QI4xi12x6Q"), Struct("<QqiI")
_UNLINKS, _OPENS = seccomp.NUMBERS.get("unlinkat"), seccomp.NUMBERS.get("openat")
_AT_CWD = 0xFFFFFF9C
_reply = bytearray(_REPLY.size)


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


def _supervised(command: str, folder: Path, answer: Callable[[int], None]) -> None:
    """Run a command whose changes the kernel reports, as under a supervisor; `answer` handles each report."""
    socket, command_socket = messages.pair()
    if (pid := os.fork()) == 0:
        os.chdir(folder)
        messages.send(command_socket, ("listen",), [seccomp.report_changes(seccomp.reporting())])
        os.execv("/bin/bash", ["bash", "-c", command])
    command_socket.close()
    received = messages.receive(socket)
    assert received is not None
    [listener] = received[1]
    fcntl.ioctl(listener, _TAKE_TURNS, 1)
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    while poll.poll()[0][1] & select.POLLIN:
        answer(listener)
    os.close(listener)
    os.waitpid(pid, 0)


def _only_answer(listener: int) -> None:
    """Let a change continue, and save nothing."""
    request = bytearray(_REQUEST.size)
    fcntl.ioctl(listener, _RECEIVE, request)
    _REPLY.pack_into(_reply, 0, _REQUEST.unpack(request)[0], 0, 0, 1)
    fcntl.ioctl(listener, _ANSWER, _reply)


class _Least:
    """The minimum for an undo: each old file saved once, by a hard link where it is deleted, with a record.

    There are no checks and limits, no handling of links, threads, git or a full disk, and no history.
    """

    def __init__(self, root: Path, log: Path) -> None:
        shutil.rmtree(log, ignore_errors=True)
        log.mkdir()
        self._root, self._log = os.fsencode(root), os.fsencode(log) + b"/"
        self._list = os.open(log / "list", os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def answer(self, listener: int) -> None:
        request = bytearray(_REQUEST.size)
        fcntl.ioctl(listener, _RECEIVE, request)
        id, pid, number, at, address, *_ = _REQUEST.unpack(request)
        if number in (_UNLINKS, _OPENS):
            at &= 0xFFFFFFFF
            folder = os.readlink(b"/proc/%d/cwd" % pid if at == _AT_CWD else b"/proc/%d/fd/%d" % (pid, at))
            path = folder + b"/" + system.read_text(pid, address)
            try:
                if path.startswith(self._root):
                    self._keep(path, b"%d" % id if number == _UNLINKS else b"")
            except OSError:
                pass  # a directory
        _REPLY.pack_into(_reply, 0, id, 0, 0, 1)
        fcntl.ioctl(listener, _ANSWER, _reply)

    def _keep(self, path: bytes, second_name: bytes) -> None:
        if second_name:
            os.link(path, self._log + second_name)
            os.write(self._list, path + b"\n")
            return
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        os.write(self._list, path + b"\n" + os.read(file, 65536))
        os.close(file)

    def close(self) -> None:
        os.close(self._list)


def _many_files(harness: Harness, folder: Path, app: Door) -> None:
    """Add the rows of commands that change many files; each run has the same tree, made off the clock."""
    many = folder / "many"
    jobs = (
        (f"rm -rf of {REMOVED:,} files", "rm -rf many", REMOVED, "<= 2.5"),
        (f"append to {APPENDED:,} files", "for f in many/*/*; do echo more >> $f; done", APPENDED, "<= 3"),
    )
    log = folder.parent / f"{folder.name}.log"
    for name, command, count, goal in jobs:

        def prepare(count: int = count) -> None:
            fill_folder(many, count)
            shutil.rmtree(log, ignore_errors=True)

        def least(command: str = command) -> None:
            keeper = _Least(many, log)
            _supervised(command, folder, keeper.answer)
            keeper.close()

        prepare()
        harness.compare(
            f"Bash: {name}",
            [
                ("asyncio bash -c", lambda command=command: asyncio.run(_spawned(command, folder, 1))),
                ("floor: reported, nothing kept", lambda command=command: _supervised(command, folder, _only_answer)),
                ("floor: a copy and a record a file", least),
                ("surehand, with undo", lambda command=command: app.call("Bash", command=command)),
            ],
            goal=goal,
            rounds=5,
            warm=0,
            between=prepare,
        )
        fill_folder(many, count)
        gap = app.stall(lambda command=command: app.app.call("Bash", {"command": command}))
        harness.fact("loop held", name, gap * 1000, "<= 50", "ms")
    for made in (many, log):
        shutil.rmtree(made, ignore_errors=True)


def _rate(harness: Harness, folder: Path, app: Door) -> None:
    """Add the row of commands a second, ten at once."""
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
