"""Events leave the process: a session's channel, those who follow it, and sinks of one's own."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.users import USERS, somebody

from surehand import Settings, Surehand, ToolContext, ToolFailure, tool
from surehand.core.events import Event
from surehand.core.settings import PermissionSettings
from surehand.engine import channel as channels
from surehand.state import local_rpc
from surehand.state.local_rpc import follow_sessions, running_sessions
from surehand.testing import Says

pytestmark = pytest.mark.spec("EVT-1")
Line = dict[str, Any]


@tool(read_only=True)
async def look(text: str = "") -> str:
    "Look."
    return text


async def until(
    events: AsyncIterator[dict[str, Any]], wanted: Callable[[dict[str, Any]], bool]
) -> list[dict[str, Any]]:
    """Return the events up to the first that is wanted."""
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(120):
        async for event in events:
            found.append(event)
            if wanted(event):
                return found
    raise AssertionError("the stream ended")


def is_end(event: dict[str, Any]) -> bool:
    return event["kind"] == "call_finished"


def is_close(event: dict[str, Any]) -> bool:
    return event["kind"] == "session_closed"


def sockets() -> list[str]:
    return os.listdir(local_rpc.folder())


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["/usr/bin/surehand", "chat"], "surehand chat"),
        (["/lib/surehand/__main__.py", "--cwd", "/srv/shop", "serve", "--stdio"], "surehand serve"),
        (["agent.py", "/srv/shop"], "agent.py shop"),
        (["-c"], "-c"),
    ],
)
async def test_hello_names_the_program_and_what_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: list[str], said: str
) -> None:
    monkeypatch.setattr(sys, "argv", argv)
    async with follow_sessions() as events:
        async with Surehand(tmp_path, session="one"):
            pass
        seen = await until(events, is_close)
    assert seen[0]["program"] == said


async def test_a_session_that_runs_is_followed_from_hello_to_its_end(tmp_path: Path) -> None:
    async with follow_sessions() as events:
        async with Surehand(tmp_path, session="one", tools=[look]) as app:
            await app.call("look", {"text": "here"})
        seen = await until(events, is_close)
    kinds = [event["kind"] for event in seen]
    assert kinds[0] == "hello"
    assert kinds.index("call_started") < kinds.index("call_finished") < kinds.index("session_closed")
    hello, end = seen[0], next(filter(is_end, seen))
    assert (hello["v"], hello["session_id"], hello["workspace"]) == (1, "session_one", str(tmp_path))
    assert hello["pid"] == os.getpid()
    assert (end["tool"], end["args"], end["ok"], end["verdict"]) == ("look", '{"text": "here"}', True, "allow")
    assert [event["seq"] for event in seen[1:]] == list(range(1, len(seen)))
    assert sockets() == []


async def test_one_who_comes_later_is_greeted_and_sees_what_happens_from_then_on(tmp_path: Path) -> None:
    async with Surehand(tmp_path, session="one", tools=[look]) as app:
        await app.call("look", {"text": "before"})
        async with follow_sessions() as events:
            assert (await until(events, lambda event: event["kind"] == "hello"))[0]["session_id"] == "session_one"
            await app.call("look", {"text": "after"})
            seen = await until(events, lambda event: is_end(event) and "after" in event["args"])
        # The end of the call before may still have been on its way when the follower came.
        assert [event["kind"] for event in seen if "after" in event["args"]] == ["call_started", "call_finished"]
        await app.call("look", {"text": "unheard"})


async def test_who_runs_now_is_listed_and_gone_when_closed(tmp_path: Path) -> None:
    async with Surehand(tmp_path, session="one"), Surehand(tmp_path, session="two"):
        found = await asyncio.to_thread(running_sessions)
        assert {each["session_id"] for each in found} == {"session_one", "session_two"}
        assert len(sockets()) == 2
    assert running_sessions() == []
    assert sockets() == []
    assert not [each for each in threading.enumerate() if each.name == "surehand-channels"]


async def test_a_session_that_keeps_no_state_leaves_no_socket(tmp_path: Path) -> None:
    async with Surehand(tmp_path, keep_state=False):
        assert running_sessions() == []


async def test_questions_changes_and_tasks_are_told_with_their_arguments_secrets_masked(tmp_path: Path) -> None:
    async with follow_sessions() as events:
        async with Surehand(tmp_path, approver=Says("once")) as app:
            result = await app.call("Write", {"file_path": "a.txt", "content": "token=sk-abcdefgh12345678\n"})
            await app.call("TaskCreate", {"title": "write the docs"})
        seen = await until(events, is_close)
    by_kind = {event["kind"]: event for event in reversed(seen)}
    asked, decided = by_kind["permission_asked"], by_kind["permission_decided"]
    assert asked["call_id"] == decided["call_id"] == result.meta["call_id"]
    assert '"file_path": "a.txt"' in asked["args"]
    assert asked["digest"]
    assert (decided["answer"], decided["by"]) == ("once", "Says")
    assert by_kind["file_changed"]["path"].endswith("a.txt")
    assert (by_kind["task_changed"]["title"], by_kind["task_changed"]["status"]) == ("write the docs", "pending")
    assert result.undo is not None
    assert next(filter(is_end, seen))["change_id"] == result.undo.change_id
    assert "sk-abcdefgh" not in json.dumps(seen)


async def test_a_call_that_a_tool_made_names_its_parent(tmp_path: Path) -> None:
    @tool(read_only=True, requires=["look"])
    async def outer(ctx: ToolContext) -> str:
        "Call another tool."
        return (await ctx.call("look", {"text": "within"})).output

    async with follow_sessions() as events:
        async with Surehand(tmp_path, tools=[look, outer]) as app:
            result = await app.call("outer")
        seen = await until(events, is_close)
    inner = [event for event in seen if event.get("tool") == "look" and event["kind"].startswith("call_")]
    assert [(event["kind"], event["parent"]) for event in inner] == [
        ("call_started", result.meta["call_id"]),
        ("call_finished", result.meta["call_id"]),
    ]


async def test_a_refused_call_says_which_rule_refused_it(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("A=1")
    settings = Settings(permissions=PermissionSettings(deny=("Read(a.txt)",)))
    async with follow_sessions() as events:
        async with Surehand(tmp_path, settings=settings) as app:
            await app.call("Read", {"file_path": "a.txt"})
        seen = await until(events, is_close)
    ended = next(filter(is_end, seen))
    assert (ended["ok"], ended["error"]["code"], ended["verdict"]) == (False, "permission_denied", "deny")
    assert ended["rules"] == ["Read(a.txt)"]


async def test_a_flood_of_progress_arrives_as_its_latest(tmp_path: Path) -> None:
    @tool(read_only=True)
    async def busy(ctx: ToolContext) -> str:
        "Report a lot."
        for number in range(5000):
            ctx.progress(f"step {number}", done=number, total=5000)
        return "done"

    async with follow_sessions() as events:
        async with Surehand(tmp_path, tools=[busy]) as app:
            await app.call("busy")
        seen = await until(events, is_close)
    progress = [event for event in seen if event["kind"] == "call_progress"]
    assert 1 <= len(progress) < 5000
    assert progress[-1]["text"] == "step 4999"
    assert not any(event["kind"] == "gap" for event in seen)


async def test_one_who_does_not_read_loses_events_which_are_counted_and_delays_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_rpc, "BACKLOG_BYTES", 10_000)
    async with Surehand(tmp_path, tools=[look]) as app:
        peer = local_rpc.connect(local_rpc.session_sockets()[0])
        assert peer is not None
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.sendall(b'{"v": 1, "want": "events"}\n')
        lines = peer.makefile("rb")
        assert json.loads(await asyncio.to_thread(lines.readline))["kind"] == "hello"
        for _ in range(3000):  # far more than all the buffers between hold
            assert (await app.call("look", {"text": "x" * 200})).ok

        def read_to_the_gap() -> list[dict[str, Any]]:
            seen: list[dict[str, Any]] = []
            while not seen or seen[-1]["kind"] != "gap":
                seen.append(json.loads(lines.readline()))
            return [*seen, json.loads(lines.readline())]

        reading = asyncio.create_task(asyncio.to_thread(read_to_the_gap))
        while not reading.done():  # the gap is told with the first event that there is room for again
            await app.call("look")
        *_, before, gap, after = reading.result()
        assert gap["lost"] == after["seq"] - before["seq"] - 1 > 0
        peer.close()


PROGRAM = """
import asyncio, sys
from surehand import Surehand

async def main():
    async with Surehand(sys.argv[1], session=sys.argv[2]) as app:
        print("ready", flush=True)
        for line in sys.stdin:
            await app.call("tools.echo", {"text": line.strip()})

asyncio.run(main())
"""


@contextmanager
def program(workspace: Path, session: str, python: tuple[str, ...] = (sys.executable,), **more: Any) -> Generator[Any]:
    command = [*python, "-c", PROGRAM, str(workspace), session]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **more)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


async def test_a_killed_session_is_reported_lost_and_leaves_no_socket(tmp_path: Path) -> None:
    async with follow_sessions() as events:
        with program(tmp_path, "doomed") as process:
            await until(events, lambda event: event["kind"] == "hello")
            process.send_signal(signal.SIGKILL)
            lost = (await until(events, lambda event: event["kind"] == "session_lost"))[-1]
        assert (lost["session_id"], lost["pid"]) == ("session_doomed", process.pid)
        assert [name for name in sockets() if not name.startswith("follower-")] == []


async def test_what_a_killed_session_left_is_cleaned_by_the_next_that_starts(tmp_path: Path) -> None:
    with program(tmp_path, "doomed") as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert len(sockets()) == 1
    async with Surehand(tmp_path, session="next"):
        assert [each["session_id"] for each in await asyncio.to_thread(running_sessions)] == ["session_next"]
        assert len(sockets()) == 1
    assert sockets() == []


async def test_a_session_whose_loop_is_busy_is_seen_all_the_same(tmp_path: Path) -> None:
    async with Surehand(tmp_path, session="busy"):
        assert [each["session_id"] for each in running_sessions()] == ["session_busy"]  # asked from within its loop


def test_another_user_reaches_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with somebody(USERS[1]) as other:
        monkeypatch.setenv("SUREHAND_HOME", str(other.folder / "of-root"))
        with program(tmp_path, "private"):
            assert os.stat(local_rpc.folder()).st_mode & 0o777 == 0o700
            # Even where the doors stood open.
            path = Path(local_rpc.folder(), sockets()[0])
            for each in (path, *list(path.parents)[:2]):
                each.chmod(0o777)
            asking = other.start(ASKING, str(path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            said, trouble = asking.communicate(timeout=300)
            assert (said, "Refused" in trouble) == ("answered: b''\n", False)
            assert "session_private" in str(running_sessions())
            local_rpc.listen("next")[1].close()
            assert os.stat(local_rpc.folder()).st_mode & 0o777 == 0o700


ASKING = """
import socket, sys
peer = socket.socket(socket.AF_UNIX)
peer.connect(sys.argv[1])
try:
    peer.sendall(b'{"want": "session"}\\n')
    print("answered:", peer.recv(1000))
except (BrokenPipeError, ConnectionResetError):
    print("answered:", b"")
"""


async def test_requests_that_make_no_sense_are_answered_or_cut_off(tmp_path: Path) -> None:
    async with Surehand(tmp_path):
        name = local_rpc.session_sockets()[0]
        assert "no request 'nonsense'" in (local_rpc.ask(name, {"want": "nonsense"}) or {})["error"]
        assert "version 99" in (local_rpc.ask(name, {"want": "session", "v": 99}) or {})["error"]
        for noise in (b"no json\n", b"[]\n", b"\xff\xfe\n"):
            peer = local_rpc.connect(name)
            assert peer is not None
            with peer:
                peer.sendall(noise)
                assert peer.recv(10) == b""
        assert (local_rpc.ask(name, {"want": "session"}) or {})["pid"] == os.getpid()


# -- the command line --------------------------------------------------------------------------------------------------


@contextmanager
def following(*words: str, cwd: Path) -> Generator[Any]:
    command = [sys.executable, "-m", "surehand", "events", "--follow", *words]
    process = subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        while not (os.path.isdir(local_rpc.folder()) and local_rpc.follower_sockets()):
            assert process.poll() is None
            threading.Event().wait(0.01)
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate()


def test_events_follows_other_processes_and_misses_not_even_the_shortest(tmp_path: Path) -> None:
    with following(cwd=tmp_path) as process:
        command = [sys.executable, "-m", "surehand", "tools", "invoke", "tools.echo", "--args", '{"text": "quick"}']
        subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=300, check=True)
        seen: list[dict[str, Any]] = []
        while not seen or seen[-1]["kind"] != "session_closed":
            seen.append(json.loads(process.stdout.readline()))
    ends = [event for event in seen if is_end(event)]
    assert [(event["tool"], event["output"]) for event in ends] == [("tools.echo", "quick")]
    assert sockets() == []


def test_events_are_filtered_by_session_and_tool_and_begin_in_the_past(tmp_path: Path) -> None:
    for session in ("one", "two"):
        with program(tmp_path, session) as process:
            process.communicate("hello\n")
    command = [sys.executable, "-m", "surehand", "events", "--since", "10 min", "--session", "one"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(each["session_id"], each["tool"], each["recorded"]) for each in found] == [
        ("session_one", "tools.echo", True)
    ]
    words = ("--session", "four", "--tool", "tools.echo", "--kind", "call_started", "--kind", "call_finished")
    with following(*words, cwd=tmp_path) as process:
        for session in ("three", "four"):
            with program(tmp_path, session) as other:
                other.communicate("hello\n")
        seen = [json.loads(process.stdout.readline()) for _ in range(2)]
    assert [(each["session_id"], each["kind"]) for each in seen] == [
        ("session_four", "call_started"),
        ("session_four", "call_finished"),
    ]


# -- sinks -------------------------------------------------------------------------------------------------------------


async def test_a_sink_of_ones_own_gets_every_event(tmp_path: Path) -> None:
    seen: list[Event] = []
    async with Surehand(tmp_path, tools=[look]) as app:
        app.events.add(seen.append, kinds=["call_finished"])
        await app.call("look", {"text": "one"})
        await app.call("look", {"text": "two"})
    assert [event.data["result"].output for event in seen] == ["one", "two"]


async def test_a_sink_that_blocks_or_raises_delays_no_call_and_its_losses_are_counted_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    release, blocked = threading.Event(), threading.Event()

    def block(event: Event) -> None:
        blocked.set()
        release.wait(60)

    def fail(event: Event) -> None:
        raise RuntimeError("no")

    with caplog.at_level(logging.WARNING, "surehand"):
        async with Surehand(tmp_path, tools=[look]) as app:
            app.events.add(block, kinds=["call_finished"], waiting=2)
            app.events.add(fail, kinds=["call_finished"])
            for _ in range(10):
                assert (await app.call("look")).ok
            blocked.wait(30)
            assert not release.is_set()
        stuck, failing = app.events.figures()
    assert stuck.lost == 9  # one is being taken; ten were made; what waited at the end was never taken
    assert (failing.failed, failing.delivered, failing.lost) == (10, 0, 0)
    assert "is too slow" in caplog.text
    assert "lost 9 events" in caplog.text
    assert caplog.text.count("RuntimeError: no") == 1  # said once, counted ten times
    release.set()


async def test_a_handler_that_fails_is_told_to_followers_too(tmp_path: Path) -> None:
    @tool(read_only=True)
    async def broken() -> str:
        "Break."
        raise ToolFailure("it is broken")

    async with follow_sessions() as events:
        async with Surehand(tmp_path, tools=[broken]) as app:
            await app.call("broken")
        ended = (await until(events, is_end))[-1]
    assert ended["error"] == {"code": "execution_error", "message": "it is broken"}


def test_arguments_are_one_short_line() -> None:
    line = channels.one_line({"content": "x\n" * 100_000, "password": "hunter22", "deep": {"a": [1, 2]}})
    assert len(line) <= channels.ARGS_LIMIT + 1
    assert "\n" not in line
    assert "hunter22" not in channels.one_line({"password": "hunter22"})
