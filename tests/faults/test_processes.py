"""Nothing a command started outlives it: not at its time-out, not when it is cancelled, not when we are killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE

import pytest
from tests.users import User, somebody

from surehand.commands import leftovers
from surehand.commands.leftovers import Record, records, started_at
from surehand.core.call import ToolCall
from surehand.core.context import ToolContext
from surehand.core.session import Session
from surehand.core.settings import SandboxSettings, Settings
from surehand.sandbox import protocol
from surehand.tools.bash import BASH

RUNAWAY = (
    "trap '' TERM; setsid sleep 600 & (setsid sh -c 'sleep 600 & sleep 600' &); touch up; while :; do sleep 600; done"
)
MODES = ["off", *(["preferred"] if protocol.available() else [])]

VICTIM = """
import asyncio, sys
from surehand.core.call import ToolCall
from surehand.core.context import ToolContext
from surehand.core.session import Session
from surehand.core.settings import SandboxSettings, Settings
from surehand.tools.bash import BASH

async def main(workspace, mode, state, command):
    settings = Settings(sandbox=SandboxSettings(mode=mode))
    session = Session(workspace, settings=settings, state_dir=state, id="session_victim")
    args = {"command": command}
    await BASH.run(BASH.arguments.parse(args), ToolContext(ToolCall("Bash", args), session, print, {}))

asyncio.run(main(*sys.argv[1:]))
"""


def alive(session_id: str) -> list[int]:
    """The processes whose environment names a session, and their launchers."""
    marker = f"SUREHAND_SESSION={session_id}\0".encode()
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if marker in _environment(pid)]


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes() if started_at(pid) is not None else b""
    except OSError:
        return b""


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


async def run_away(workspace: Path, mode: str, *, cancel: bool) -> str:
    """Run the runaway command to its time-out, or cancel it; return the session's id."""
    settings = Settings(sandbox=SandboxSettings(mode=mode))  # type: ignore[arg-type]
    session = Session(str(workspace), settings=settings, state_dir=None)
    args = {"command": RUNAWAY, "timeout": 30_000 if cancel else 400}
    ctx = ToolContext(ToolCall("Bash", args), session, lambda progress: None, {})
    task = asyncio.create_task(BASH.run(BASH.arguments.parse(args), ctx))
    while not (workspace / "up").exists() and not task.done():
        await asyncio.sleep(0.01)
    if cancel:
        task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    left = alive(session.id)
    await session.close()
    (workspace / "up").unlink(missing_ok=True)
    assert left == []
    return session.id


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("cancel", [False, True])
async def test_nothing_is_alive_after_a_time_out_or_a_cancellation(
    tmp_path: Path, mode: str, cancel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surehand.sandbox.linux.client.Run.stop.__defaults__", (0.2,))
    await run_away(tmp_path, mode, cancel=cancel)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
async def test_nothing_is_alive_a_hundred_times_out_of_a_hundred(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surehand.sandbox.linux.client.Run.stop.__defaults__", (0.2,))
    for number in range(100):
        await run_away(tmp_path, mode, cancel=number % 2 == 0)


RUNNER = """
import asyncio, sys
from pathlib import Path
from surehand.sandbox.linux.client import Run
from tests.faults.test_processes import run_away

async def main(workspace, mode, times):
    for number in range(int(times)):
        await run_away(Path(workspace), mode, cancel=number % 2 == 0)

Run.stop.__defaults__ = (0.2,)
asyncio.run(main(*sys.argv[1:]))
"""


def run_away_as(kind: str, mode: str, times: int) -> None:
    with somebody(kind) as user:
        (user.folder / "ws").mkdir()
        user.give()
        paths = [str(Path(__file__).parent.parent.parent), *user.packages]
        runner = user.start(
            RUNNER, str(user.folder / "ws"), mode, str(times), env={"PYTHONPATH": os.pathsep.join(paths)}, stderr=PIPE
        )
        _, said = runner.communicate(timeout=600)
        assert runner.returncode == 0, said.decode()[-2000:]


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_alive_after_the_commands_of_an_ordinary_user(mode: str) -> None:
    run_away_as("ordinary user", mode, 2)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_alive_a_hundred_times_out_of_a_hundred_for_an_ordinary_user(mode: str) -> None:
    run_away_as("ordinary user", mode, 100)


def start_victim_as(user: User, mode: str) -> subprocess.Popen[bytes]:
    workspace = user.folder / "ws"
    workspace.mkdir(exist_ok=True)
    (workspace / "up").unlink(missing_ok=True)
    user.give()
    victim = user.start(VICTIM, str(workspace), mode, str(user.folder / "state"), RUNAWAY)
    assert within(20, (workspace / "up").exists)
    return victim


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_alive_two_seconds_after_an_ordinary_users_process_is_killed(mode: str) -> None:
    with somebody("ordinary user") as user:
        victim = start_victim_as(user, mode)
        assert alive("session_victim")
        kill(victim)
        assert within(2, lambda: alive("session_victim") == [])


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_nothing_outlives_an_ordinary_users_process_a_hundred_times_out_of_a_hundred(mode: str) -> None:
    with somebody("ordinary user") as user:
        for _ in range(100):
            kill(start_victim_as(user, mode))
            assert within(2, lambda: alive("session_victim") == [])


NO_FORK = """
import asyncio, json, resource, sys
from surehand.core.settings import Settings
from surehand.testing import scratch_app

async def main(workspace, first):
    results = []
    async with scratch_app(workspace, settings=Settings.parse({"sandbox": {"mode": "off"}})) as app:
        if not int(first):
            results.append(await app.call("Bash", {"command": "echo before"}))
        soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
        resource.setrlimit(resource.RLIMIT_NPROC, (1, hard))
        results.append(await app.call("Bash", {"command": "echo during; (echo child)"}))
        resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))
        results.append(await app.call("Bash", {"command": "echo after"}))
    print(json.dumps([result.to_dict() for result in results]))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("first", ["0", "1"])
def test_a_system_that_starts_no_more_processes_gets_an_error_and_we_live_on(first: str) -> None:
    with somebody("ordinary user" if os.geteuid() == 0 else "same user") as user:
        (user.folder / "ws").mkdir()
        user.give()
        process = user.start(NO_FORK, str(user.folder / "ws"), first, stdout=PIPE, stderr=PIPE)
        shown, said = process.communicate(timeout=300)
        assert process.returncode == 0, said.decode()[-2000:]
        *_, during, after = json.loads(shown)
        assert after["data"]["stdout"] == "after\n"
        if first == "1":
            assert during["error"]["code"] == "tool_unavailable"
            assert "Resource temporarily unavailable" in during["error"]["message"]


def start_victim(tmp_path: Path, mode: str, command: str) -> subprocess.Popen[bytes]:
    workspace = tmp_path / "ws"
    workspace.mkdir(exist_ok=True)
    argv = [sys.executable, "-c", VICTIM, str(workspace), mode, str(tmp_path / "state"), command]
    victim = subprocess.Popen(argv, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    assert within(20, (workspace / "up").exists)
    return victim


def kill(victim: subprocess.Popen[bytes]) -> None:
    os.kill(victim.pid, signal.SIGKILL)
    victim.wait()


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_alive_two_seconds_after_we_are_killed(tmp_path: Path, mode: str) -> None:
    victim = start_victim(tmp_path, mode, RUNAWAY)
    assert alive("session_victim")
    kill(victim)
    assert within(2, lambda: alive("session_victim") == [])
    assert within(2, lambda: not any(record.launcher_alive for record in records()))


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_nothing_outlives_us_a_hundred_times_out_of_a_hundred(tmp_path: Path, mode: str) -> None:
    for _ in range(100):
        (tmp_path / "ws" / "up").unlink(missing_ok=True)
        kill(start_victim(tmp_path, mode, RUNAWAY))
        assert within(2, lambda: alive("session_victim") == [])


def test_ps_lists_what_a_session_runs_and_its_record_goes_with_it(tmp_path: Path) -> None:
    victim = start_victim(tmp_path, "off", "touch up; sleep 600")
    [record] = list(records())
    assert record.owner == victim.pid
    assert record.owner_alive
    assert within(2, lambda: "sleep 600" in [each.command for each in leftovers.running(record) if not each.ours])
    assert leftovers.reap() == []
    shown = subprocess.run([sys.executable, "-m", "surehand", "ps", "--json"], capture_output=True, check=True)
    rows = json.loads(shown.stdout)
    assert any(row["session_id"] == "session_victim" and "sleep 600" in row["command"] for row in rows)
    kill(victim)


def test_reap_ends_what_a_killed_launcher_and_a_killed_program_left(tmp_path: Path) -> None:
    victim = start_victim(tmp_path, "off", "setsid sleep 600 & touch up; wait")
    [record] = list(records())
    os.kill(victim.pid, signal.SIGSTOP)  # so that it cannot see its launcher die
    os.kill(record.launcher, signal.SIGKILL)
    kill(victim)
    ended = leftovers.reap()
    assert any("sleep 600" in process.command for process in ended) or alive("session_victim") == []
    assert within(2, lambda: alive("session_victim") == [])
    assert not os.path.exists(record.private_dir)
    assert list(records()) == []


def test_reap_never_ends_a_process_that_only_got_the_same_id(tmp_path: Path) -> None:
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        started = started_at(bystander.pid)
        assert started is not None
        record = Record(
            "session_gone", str(tmp_path), bystander.pid, started - 1, bystander.pid, started - 1, str(tmp_path / "p")
        )
        assert leftovers.reap([record]) == []
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


async def test_the_next_session_takes_away_what_a_killed_one_left_on_disk(tmp_path: Path) -> None:
    victim = start_victim(tmp_path, "off", "touch up; sleep 600")
    [record] = list(records())
    kill(victim)
    assert within(3, lambda: not record.launcher_alive)
    session = Session(str(tmp_path), settings=Settings(), state_dir=str(tmp_path / "state"))
    args = {"command": "true"}
    await BASH.run(BASH.arguments.parse(args), ToolContext(ToolCall("Bash", args), session, print, {}))
    assert not os.path.exists(record.private_dir)
    await session.close()
    assert list(records()) == []
