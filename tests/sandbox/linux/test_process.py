"""Commands run in supervisors of a launcher: they end when they should, whole, and nothing is left of them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.forks import fork

from surehand.commands.environment import clean_environment, is_secret_name
from surehand.core.settings import SandboxSettings
from surehand.sandbox.command import Command, Ended, SandboxFailure
from surehand.sandbox.linux import client, probe
from surehand.sandbox.linux.client import Launcher
from surehand.sandbox.linux.launcher import tree
from surehand.sandbox.linux.sandbox import LinuxSandbox
from surehand.sandbox.profile import closed_profile, open_profile


@pytest.fixture(params=["open", "closed", "landlock alone"])
async def launcher(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Launcher]:
    workspace, private = tmp_path / "ws", tmp_path / "private"
    workspace.mkdir()
    private.mkdir()
    if request.param == "closed":
        if not probe.abilities().private_view:
            pytest.skip(f"no namespaces here: {probe.abilities().why_not}")
        profile = closed_profile(str(workspace), [], SandboxSettings(), str(private))
    elif request.param == "landlock alone":
        if not probe.abilities().landlock:
            pytest.skip("no Landlock here")
        profile = closed_profile(str(workspace), [], SandboxSettings(), str(private), private_view=False)
    else:
        profile = open_profile(str(workspace), [], str(private))
    started = await Launcher.start(profile)
    yield started
    await started.close()


class Outcome:
    def __init__(self) -> None:
        self.stdout = bytearray()
        self.stderr = bytearray()
        self.ended = Ended(-1)


async def sh(launcher: Launcher, text: str, timeout_s: float = 20, **environment: str) -> Outcome:
    outcome = Outcome()
    command = Command(("/bin/bash", "-c", text), launcher.profile.workspace, clean_environment(os.environ, environment))
    run = launcher.run(command, outcome.stdout.extend, outcome.stderr.extend)
    outcome.ended = await run.finish(timeout_s)
    return outcome


def marked_processes(marker: str) -> list[int]:
    """Every live process with this marker in its environment or its command line."""
    found: list[int] = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            text = Path(f"/proc/{name}/environ").read_bytes() + Path(f"/proc/{name}/cmdline").read_bytes()
            state = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()[0]
        except OSError:
            continue
        if marker.encode() in text and state not in (b"Z", b"X"):
            found.append(int(name))
    return found


async def eventually(condition: Callable[[], bool], within_s: float = 2.0) -> bool:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.01)
    return True


async def test_a_command_gives_its_output_and_its_exit_code(launcher: Launcher) -> None:
    outcome = await sh(launcher, "echo out; echo err >&2; exit 3")
    assert (bytes(outcome.stdout), bytes(outcome.stderr), outcome.ended.exit_code) == (b"out\n", b"err\n", 3)


def supervisors(launcher: Launcher) -> set[str]:
    return set(Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split())


async def six_at_once(launcher: Launcher, name: str) -> None:
    """Run six commands each of which ends only when all have begun."""
    wait = f"while [ $(ls | grep -c {name}) -lt 6 ]; do sleep 0.01; done"
    outcomes = await asyncio.gather(*(sh(launcher, f"touch {name}{number}; {wait}", 60) for number in range(6)))
    assert all(each.ended.exit_code == 0 for each in outcomes)


async def test_a_process_that_was_started_ahead_becomes_the_launcher_or_ends(tmp_path: Path) -> None:
    sandbox, before = LinuxSandbox(), set(tree.children(os.getpid()))
    sandbox.start_ahead()
    sandbox.start_ahead()
    [waiting] = set(tree.children(os.getpid())) - before
    started = await sandbox.start(open_profile(str(tmp_path), [], str(tmp_path)))
    assert started.pid == waiting
    assert bytes((await sh(started, "echo out")).stdout) == b"out\n"
    sandbox.start_ahead()
    sandbox.end_ahead()
    await started.close()
    assert set(tree.children(os.getpid())) == before


async def test_a_process_that_died_while_it_waited_is_not_taken(tmp_path: Path) -> None:
    sandbox, before = LinuxSandbox(), set(tree.children(os.getpid()))
    for end in ("taken", "dropped"):
        sandbox.start_ahead()
        [waiting] = set(tree.children(os.getpid())) - before
        os.kill(waiting, 9)
        os.waitid(os.P_PID, waiting, os.WEXITED | os.WNOWAIT)
        if end == "dropped":
            sandbox.end_ahead()
            continue
        started = await sandbox.start(open_profile(str(tmp_path), [], str(tmp_path)))
        assert bytes((await sh(started, "echo out")).stdout) == b"out\n"
        await started.close()
    assert set(tree.children(os.getpid())) == before


def test_what_was_started_ahead_is_the_parents_alone_after_a_fork() -> None:
    sandbox, before = LinuxSandbox(), set(tree.children(os.getpid()))
    sandbox.start_ahead()
    assert os.waitpid(fork(sandbox.end_ahead), 0)[1] == 0
    [waiting] = set(tree.children(os.getpid())) - before
    assert os.waitpid(waiting, os.WNOHANG) == (0, 0)
    sandbox.end_ahead()


async def test_commands_at_once_find_the_supervisors_of_those_before_them(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "IDLE_S", 600.0)
    await six_at_once(launcher, "first")
    before = supervisors(launcher)
    assert len(before) >= 6
    await six_at_once(launcher, "second")
    assert supervisors(launcher) >= before


async def test_supervisors_that_nobody_needs_are_ended(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "IDLE_S", 0.01)
    await six_at_once(launcher, "at-once")
    assert await eventually(lambda: len(supervisors(launcher)) == client.IDLE_SUPERVISORS, 60)
    assert (await sh(launcher, "exit 3")).ended.exit_code == 3


@pytest.mark.parametrize("launcher", ["closed"], indirect=True)
async def test_no_program_below_a_command_can_get_what_it_gave_up(launcher: Launcher) -> None:
    outcome = await sh(launcher, "grep ^Cap /proc/self/status")
    held = {name: int(value, 16) for name, value in (line.split(b":") for line in bytes(outcome.stdout).splitlines())}
    assert held[b"CapBnd"] == held[b"CapPrm"] | held[b"CapEff"]
    assert held[b"CapAmb"] == 0
    assert not held[b"CapBnd"] & (1 << 21 | 1 << 19 | 1 << 12)  # mounts, other processes, the network


async def test_usage_is_measured(launcher: Launcher) -> None:
    ended = (await sh(launcher, "i=0; while ((i < 60000)); do ((i++)); done; sleep 0.05")).ended
    assert ended.cpu_s > 0.02
    assert ended.wall_s > 0.05
    assert ended.max_rss > 1_000_000


async def test_standard_input_is_empty_and_there_is_no_terminal(launcher: Launcher) -> None:
    outcome = await sh(launcher, "read x; echo $?; : < /dev/tty || echo none; tty")
    assert bytes(outcome.stdout) == b"1\nnone\nnot a tty\n"


async def test_no_descriptor_is_inherited(launcher: Launcher) -> None:
    with open("/dev/null") as extra:
        os.set_inheritable(extra.fileno(), True)
        second = await Launcher.start(launcher.profile)
        outcome = await sh(second, "echo /proc/self/fd/*")
        await second.close()
    names = bytes(outcome.stdout).split()
    assert {name.rpartition(b"/")[2] for name in names} <= {b"0", b"1", b"2", b"3", b"255"}


async def test_a_command_has_a_process_group_and_session_of_its_own(launcher: Launcher) -> None:
    outcome = await sh(launcher, "ps -o pid=,pgid=,sid= -p $$")
    pid, group, session = outcome.stdout.split()
    assert pid == group == session


async def test_death_by_a_signal_is_told_apart_from_an_exit(launcher: Launcher) -> None:
    ended = (await sh(launcher, "kill -SEGV $$")).ended
    assert (ended.exit_code, ended.signal) == (128 + signal.SIGSEGV, signal.SIGSEGV)


async def test_many_commands_run_at_once(launcher: Launcher) -> None:
    outcomes = await asyncio.gather(*(sh(launcher, f"sleep 0.1; echo {number}") for number in range(8)))
    assert [int(outcome.stdout) for outcome in outcomes] == list(range(8))


async def test_a_child_that_keeps_the_pipe_open_does_not_hold_the_call(launcher: Launcher) -> None:
    began = time.monotonic()
    outcome = await sh(launcher, "sleep 600 & echo started", HOLD="pipe-holder-4711")
    assert time.monotonic() - began < 60  # what hangs, hangs without end
    assert (bytes(outcome.stdout), outcome.ended.left_behind) == (b"started\n", 1)
    assert marked_processes("pipe-holder-4711") == []


RUNAWAYS = {
    "plain": "sleep 600",
    "ignores TERM": "trap '' TERM; while :; do sleep 600; done",
    "setsid": "setsid sleep 600 & wait",
    "double fork": "( ( setsid sh -c 'sleep 600' & ) & ); sleep 600",
    "stopped": "sleep 600 & kill -STOP $!; wait",
    "many": "for i in $(seq 20); do setsid sleep 600 & done; wait",
    "no environment": "env -i setsid sleep 600 & wait",
}


@pytest.mark.parametrize("kind", RUNAWAYS)
async def test_nothing_survives_a_time_out(launcher: Launcher, kind: str) -> None:
    seconds = f"600.{time.monotonic_ns()}"  # no other sleep on this machine is as long
    command = Command(
        ("/bin/bash", "-c", RUNAWAYS[kind].replace("600", seconds)), launcher.profile.workspace, dict(os.environ)
    )
    run = launcher.run(command, bytearray().extend, bytearray().extend)
    assert await eventually(lambda: marked_processes(seconds) != [], 10)
    await eventually(lambda: len(marked_processes(seconds)) > 1, 0.3)  # one of the kinds has only one
    run.stop("timeout", 0.3)
    ended = await run.finish()
    assert ended.stopped == "timeout"
    assert marked_processes(seconds) == []


async def test_a_cancelled_call_ends_its_command_and_reports_the_cancellation(launcher: Launcher) -> None:
    task = asyncio.create_task(sh(launcher, "echo go > started; setsid sleep 600 & wait", MARK="cancelled-4712"))
    assert await eventually((Path(launcher.profile.workspace) / "started").exists)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert marked_processes("cancelled-4712") == []


async def test_a_polite_command_may_clean_up_at_its_time_out(launcher: Launcher) -> None:
    outcome = await sh(launcher, "trap 'echo cleaned; exit 9' TERM; echo up; while :; do sleep 0.05; done", 0.4)
    assert (bytes(outcome.stdout), outcome.ended.exit_code, outcome.ended.stopped) == (b"up\ncleaned\n", 9, "timeout")


async def test_a_command_that_kills_its_parent_harms_only_itself(launcher: Launcher) -> None:
    outcome = await sh(launcher, "kill -9 $PPID; sleep 0.2; echo alive", MARK="parricide-4713")
    assert bytes(outcome.stdout) == b"alive\n" or outcome.ended.exit_code == -1
    assert await eventually(lambda: marked_processes("parricide-4713") == [])
    assert bytes((await sh(launcher, "echo next")).stdout) == b"next\n"


async def test_a_working_directory_that_is_gone_is_a_clear_failure(launcher: Launcher) -> None:
    run = launcher.run(
        Command(("/bin/bash", "-c", "true"), launcher.profile.workspace + "/gone", dict(os.environ)),
        bytearray().extend,
        bytearray().extend,
    )
    ended = await run.finish(5)
    assert ended.exit_code == -1
    assert ended.stopped.endswith("gone: No such file or directory")


async def test_a_program_that_does_not_exist_is_a_clear_failure(launcher: Launcher) -> None:
    run = launcher.run(
        Command(("/no/such/shell",), launcher.profile.workspace, {}), bytearray().extend, bytearray().extend
    )
    assert "/no/such/shell: No such file or directory" in (await run.finish(5)).stopped


async def test_a_command_of_a_megabyte_runs(launcher: Launcher) -> None:
    text = "x='" + "y" * 1_000_000 + "'; echo ${#x}"
    outcome = Outcome()
    command = Command(("/bin/bash", "/dev/fd/10"), launcher.profile.workspace, dict(os.environ), text.encode())
    outcome.ended = await launcher.run(command, outcome.stdout.extend, outcome.stderr.extend).finish(10)
    assert bytes(outcome.stdout) == b"1000000\n"


async def test_a_large_output_arrives_whole(launcher: Launcher) -> None:
    outcome = await sh(launcher, "head -c 5000000 /dev/zero | tr '\\0' 'x'; echo end >&2")
    assert (len(outcome.stdout), bytes(outcome.stderr)) == (5_000_000, b"end\n")


async def test_a_flood_is_taken_in_large_pieces_and_not_page_by_page(launcher: Launcher) -> None:
    sizes: list[int] = []
    command = Command(("/bin/bash", "-c", "seq 1 4000000"), launcher.profile.workspace, os.environ)
    await launcher.run(command, lambda data: sizes.append(len(data)), lambda data: None).finish(60)
    assert sum(sizes) == 30_888_896
    assert len(sizes) < sum(sizes) / 4096 / 2


async def test_a_killed_launcher_fails_its_runs_and_takes_them_along(launcher: Launcher) -> None:
    if not launcher.profile.private_view:
        pytest.skip("without namespaces `surehand reap` ends what a killed launcher leaves")
    task = asyncio.create_task(sh(launcher, "touch started; sleep 600", MARK="orphan-4714"))
    assert await eventually((Path(launcher.profile.workspace) / "started").exists)
    os.kill(launcher.pid, signal.SIGKILL)
    outcome = await task
    assert "killed" in outcome.ended.stopped
    assert await eventually(lambda: marked_processes("orphan-4714") == [])


async def test_closing_a_launcher_ends_what_runs(launcher: Launcher) -> None:
    task = asyncio.create_task(sh(launcher, "touch started; setsid sleep 600 & wait", MARK="closed-4715"))
    assert await eventually((Path(launcher.profile.workspace) / "started").exists)
    await launcher.close()
    assert (await task).ended.stopped == "the session was closed"
    assert await eventually(lambda: marked_processes("closed-4715") == [])


@pytest.mark.parametrize(
    "name",
    [
        "ANTHROPIC_API_KEY",
        "OPENAI_API_KEY",
        "GEMINI_API_KEY",
        "GOOGLE_API_KEY",
        "AZURE_OPENAI_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "GITHUB_TOKEN",
        "MY_PASSWORD",
        "db_password",
        "STRIPE_SECRET",
        "NPM_TOKEN",
        "SOME_CREDENTIALS",
        "SSH_KEY",
        "CI_JOB_TOKEN",
        "MYSQL_PWD_SECRET",
        "DOCKER_AUTH_CONFIG",
        "PGPASSWORD",
        "apiKey",
        "ACCESS_KEY",
    ],
)
def test_variables_with_secrets_are_kept_from_commands(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    ["PATH", "HOME", "LANG", "KEYBOARD_LAYOUT", "TOKENIZERS_PARALLELISM", "MONKEY", "VIRTUAL_ENV", "AUTHOR", "EDITOR"],
)
def test_ordinary_variables_pass(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("REDIS", "redis://:hunter2@cache:6379/0"),
        ("MONGODB_URI", "mongodb+srv://app:hunter2@db.example.com/x"),
        ("SIGNING", "-----BEGIN RSA PRIVATE KEY-----\nabc"),
        ("CI_BOT", "ghp_0123456789abcdefghij0123456789abcdefgh"),
        ("MODEL", "sk-ant-0123456789abcdef"),
        ("MYSQL_PWD", "x"),
    ],
)
def test_a_secret_value_is_kept_from_commands_under_any_name(name: str, value: str) -> None:
    assert name not in clean_environment({name: value, "PATH": "/bin"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HTTPS_PROXY", "http://me:hunter2@proxy:3128"),
        ("DOCS", "https://example.com/a:b@c"),
        ("REMOTE", "git@example.com:me/project.git"),
        ("TZ", "Asia/Kolkata"),
        ("DATABASE", "postgres://localhost:5432/x"),
    ],
)
def test_a_value_that_only_looks_like_one_passes(name: str, value: str) -> None:
    assert clean_environment({name: value})[name] == value


def test_variables_that_change_what_a_shell_does_are_dropped() -> None:
    given = {"BASH_ENV": "x", "BASH_FUNC_ls%%": "() { evil; }", "SHELLOPTS": "xtrace", "PATH": "/bin", "LESSOPEN": "|x"}
    assert clean_environment(given).keys() & given.keys() == {"PATH"}


async def test_without_namespaces_landlock_and_seccomp_confine_writes_and_the_network(tmp_path: Path) -> None:
    if not probe.abilities().landlock:
        pytest.skip("no Landlock here")
    workspace, private, outside = tmp_path / "ws", tmp_path / "private", tmp_path / "outside"
    for folder in (workspace, private, outside):
        folder.mkdir()
    profile = closed_profile(str(workspace), [], SandboxSettings(), str(private), private_view=False)
    launcher = await Launcher.start(profile)
    connect = "python3 -c \"import socket; socket.create_connection(('127.0.0.1', 9), 1)\""
    results = [
        (await sh(launcher, command)).ended.exit_code
        for command in ("echo x > f", f"echo x > {outside}/f", connect, "unshare -Ur true")
    ]
    await launcher.close()
    assert results[0] == 0
    assert 0 not in results[1:]
    assert not (outside / "f").exists()


async def test_a_python_that_cannot_start_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    used = len(os.listdir("/proc/self/fd"))
    for _ in range(5):  # it ends before or after it is told its profile
        with pytest.raises(SandboxFailure, match="/bin/false"):
            await Launcher.start(open_profile(str(tmp_path), [], str(tmp_path)))
    assert len(os.listdir("/proc/self/fd")) <= used


async def test_a_python_that_needs_the_environment_to_find_its_library_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\ntest "$LD_LIBRARY_PATH" = {tmp_path} || exit 9\nexec {sys.executable} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    launcher = await Launcher.start(open_profile(str(tmp_path), [], str(tmp_path)))
    assert (await sh(launcher, "echo ok")).stdout == b"ok\n"
    await launcher.close()


async def test_a_process_out_of_descriptors_gets_an_error_and_lives_on(launcher: Launcher) -> None:
    import resource

    await sh(launcher, "true")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))
    free = os.dup(0)
    os.close(free)
    for room in range(5):
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + room, hard))
        try:
            with pytest.raises(SandboxFailure, match="could not start"):
                await sh(launcher, "true")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(os.listdir("/proc/self/fd")) <= used + 1
    assert (await sh(launcher, "echo ok")).stdout == b"ok\n"


async def test_descriptors_reach_a_command_in_their_order_whatever_their_numbers_were(launcher: Launcher) -> None:
    for count in range(1, 9):
        pipes = [os.pipe() for _ in range(count)]
        for number, (_, writer) in enumerate(pipes):
            os.write(writer, b"%d" % number)
            os.close(writer)
        words = (
            "/bin/bash",
            "-c",
            f"for n in $(seq 10 {9 + count}); do cat <&$n; done; echo; ls /proc/self/fd | wc -l",
        )
        printed = bytearray()
        command = Command(words, launcher.profile.workspace, os.environ, descriptors=[reader for reader, _ in pipes])
        await launcher.run(command, printed.extend, printed.extend).finish(10)
        for reader, _ in pipes:
            os.close(reader)
        assert printed.decode().split() == ["".join(map(str, range(count))), str(count + 4)]
