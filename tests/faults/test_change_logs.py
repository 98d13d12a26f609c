"""What a command changed is never lost in silence: over the limit, on a full disk, after kill -9 of anybody."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.faults.test_disk_errors import can_mount, in_child, mount, own_mounts
from tests.tools.workbench import Workbench, failure

from surehand import Settings, Surehand
from surehand.core.settings import HistorySettings
from surehand.history import recovery
from surehand.history.change_logs import ABOUT, RECORD_HEAD
from surehand.history.disk import state_at
from surehand.history.history import History
from surehand.history.words import Author, FileChange, FileState
from surehand.sandbox.linux import probe
from surehand.state import locations
from surehand.testing import Says, scratch_app

pytestmark = pytest.mark.skipif(not probe.abilities().seccomp, reason="commands cannot be followed here")

MB = 1 << 20


async def test_a_file_over_the_limit_is_told_and_the_rest_is_in_the_history(tmp_path: Path) -> None:
    log, notes = tmp_path / "server.log", tmp_path / "notes.txt"
    log.write_bytes(b"x" * 3 * MB)
    notes.write_text("mine\n")
    settings = Settings(history=HistorySettings(command_mb=1))
    async with scratch_app(tmp_path, settings=settings) as app:
        result = await app.call("Bash", {"command": ": > server.log; echo gone > notes.txt"})
        assert result.ok
        assert result.undo is not None
        covered = "server.log" in str(result.data.get("changes"))
        assert covered or "cannot all be undone: " in result.output  # covered where the file system can clone
        assert covered or "server.log (3 MB; of one command 1 MB are kept)" in result.output
        assert (await app.undo()).ok
        assert notes.read_text() == "mine\n"
        assert log.stat().st_size == (3 * MB if covered else 0)
        [first] = (await app.changes()).data["changes"][1:]
        assert covered or "server.log" in first["note"]


async def test_a_change_that_would_push_out_all_others_is_refused_or_told(tmp_path: Path) -> None:
    bench = Workbench(tmp_path, limit_mb=1)
    bench.put("small", "old\n")
    bench.edit("small", "old", "new")
    large = b"".join(b"%d of a large text\n" % n for n in range(60_000))
    bench.put("large", large)
    problem = failure(lambda: bench.write("large", "short\n"))
    assert "displace every older change" in problem.message
    assert (bench.root / "large").read_bytes() == large
    assert [path for path in (tmp_path / "state").rglob("*") if path.is_file() and path.stat().st_nlink > 1] == []
    bench.call("Undo")
    assert (bench.root / "small").read_text() == "old\n"
    bench.history.close()


async def test_a_command_that_deletes_more_than_the_history_holds_says_so_and_keeps_the_rest(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(os.urandom(2 * MB))
    (tmp_path / "small").write_text("old\n")
    async with scratch_app(tmp_path, settings=Settings(history=HistorySettings(limit_mb=1))) as app:
        await app.call("Bash", {"command": "echo 1 > before"})
        result = await app.call("Bash", {"command": "rm large small"})
        assert "large" in result.output
        assert "history.limit_mb" in result.output
        assert (await app.undo()).ok
        assert (tmp_path / "small").read_text() == "old\n"
        assert (await app.undo()).ok
        assert os.listdir(tmp_path) == ["small"]


async def test_a_command_that_makes_more_than_the_history_holds_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "small").write_text("old\n")
    async with scratch_app(tmp_path, settings=Settings(history=HistorySettings(limit_mb=1))) as app:
        command = "head -c 3000000 /dev/urandom > new; ln -s new link; echo new > small"
        result = await app.call("Bash", {"command": command})
        assert result.undo is not None
        refused = await app.undo()  # it would have to keep what is removed
        assert "more than one change may take" in refused.output or "displace every older change" in refused.output
        assert "interrupted" not in (await app.changes()).output
        (tmp_path / "new").unlink()
        undone = await app.undo()
        assert undone.ok, undone.output
        assert os.listdir(tmp_path) == ["small"]
        assert (tmp_path / "small").read_text() == "old\n"


def test_an_interrupted_change_is_recovered_though_its_file_is_more_than_the_history_holds(tmp_path: Path) -> None:
    folder, file = str(tmp_path / "history"), tmp_path / "a"
    history = History(folder, MB)
    before = FileState("file", history.keep_bytes(b"old\n"), 0o644, 4)
    history.begin(Author("Edit"), [FileChange(str(file), before, None)])
    file.write_bytes(os.urandom(5 * MB))
    history.close()
    later = History(folder, MB)
    assert recovery.recover_interrupted(later) == ""
    [change] = later.changes()
    assert (change.state, change.files[0].after) == ("done", state_at(str(file))[0])
    later.close()


PROGRAM = """
import asyncio, sys
from surehand import Surehand
from surehand.testing import Says
async def main():
    async with Surehand(sys.argv[1], approver=Says("once"), session="work") as app:
        await app.call("Bash", {"command": sys.argv[2]})
asyncio.run(main())
"""


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)


def surehand(workspace: Path, *words: str) -> Any:
    command = [sys.executable, "-m", "surehand", *words, "--cwd", str(workspace)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_what_a_command_had_changed_when_the_program_was_killed_is_in_the_log_as_interrupted(tmp_path: Path) -> None:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    for name in ("a", "b"):
        (workspace / name).write_text(f"{name}\n")
    command = "echo new > a; rm b; mkdir c; echo c > c/d; touch ready; sleep 600"
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, str(workspace), command])
    wait_for(workspace / "ready")
    program.send_signal(signal.SIGKILL)
    program.wait()
    [log] = Path(locations.workspace_state(str(workspace)), "journals").glob("*/list")
    with log.open("ab") as file:  # as if the next record had been cut off in the middle
        file.write(RECORD_HEAD.pack(40, 1000) + b"half of it")
    while True:  # its supervisor ends just after it
        changes = surehand(workspace, "log")["changes"]
        if changes:
            break
    assert [(each["tool"], each["note"], each["session_id"]) for each in changes] == [
        ("Bash", "interrupted", "session_work")
    ]
    surehand(workspace, "undo")
    assert {path.name: path.read_text() for path in workspace.iterdir()} == {"a": "a\n", "b": "b\n"}


KILLED_BEFORE_IT_RECORDS = """
import os, signal
from surehand.history import command_changes
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
command_changes.record = die
"""


def test_a_command_that_had_ended_when_its_program_was_killed_is_in_the_log_as_recorded_late(tmp_path: Path) -> None:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    (workspace / "a").write_text("a\n")
    code = KILLED_BEFORE_IT_RECORDS + PROGRAM
    ended = subprocess.run([sys.executable, "-c", code, str(workspace), "echo new > a"], check=False)
    assert ended.returncode == -signal.SIGKILL
    while True:  # its supervisor ends just after it
        changes = surehand(workspace, "log")["changes"]
        if changes:
            break
    assert [(each["tool"], each["note"]) for each in changes] == [("Bash", "recorded late")]
    surehand(workspace, "undo")
    assert (workspace / "a").read_text() == "a\n"


def test_a_change_log_whose_facts_cannot_be_read_now_is_kept_for_later(tmp_path: Path) -> None:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    (workspace / "a").write_text("a\n")
    code = KILLED_BEFORE_IT_RECORDS + PROGRAM
    subprocess.run([sys.executable, "-c", code, str(workspace), "echo new > a"], check=False)
    [about] = Path(locations.workspace_state(str(workspace)), "journals").glob(f"*/{ABOUT}")
    about.rename(about.with_name("away"))
    about.mkdir()  # opening it fails, and not because it does not exist
    assert surehand(workspace, "log")["changes"] == []
    about.rmdir()
    about.with_name("away").rename(about)
    while not surehand(workspace, "log")["changes"]:  # its supervisor ends just after it
        pass
    surehand(workspace, "undo")
    assert (workspace / "a").read_text() == "a\n"


KILLED_BEFORE_ITS_JOURNAL_GOES = """
import os, signal
from surehand.commands.session import Shells
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
Shells.finish_change_log = die
"""


def test_a_program_killed_when_the_changes_are_in_the_history_and_their_journal_is_there_counts_them_once(
    tmp_path: Path,
) -> None:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    (workspace / "a").write_text("a\n")
    code = KILLED_BEFORE_ITS_JOURNAL_GOES + PROGRAM
    ended = subprocess.run([sys.executable, "-c", code, str(workspace), "echo new > a; echo b > b"], check=False)
    assert ended.returncode == -signal.SIGKILL
    journals = Path(locations.workspace_state(str(workspace)), "journals")
    assert list(journals.glob("*/list"))
    (workspace / "b").write_text("mine by now\n")  # what others did since is no part of the command
    while True:  # its supervisor ends just after it
        changes = surehand(workspace, "log")["changes"]
        if not list(journals.glob("*/list")):
            break
    assert [(each["tool"], each["note"]) for each in changes] == [("Bash", "")]
    (workspace / "b").write_text("b\n")
    surehand(workspace, "undo")
    assert {path.name: path.read_text() for path in workspace.iterdir()} == {"a": "a\n"}


async def test_a_command_that_changes_a_thousand_files_of_every_kind_is_undone_exactly(tmp_path: Path) -> None:
    for number in range(1000):
        folder = tmp_path / f"many{number % 7}" / str(number // 100)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{number}"
        path.write_bytes(b"%d\n" % number * (20_000 if number % 200 == 3 else number % 3))
        path.chmod((0o644, 0o600, 0o755)[number % 3])
    os.symlink("many0/0/0", tmp_path / "link")
    os.link(tmp_path / "many0/0/0", tmp_path / "second-name")
    os.mkfifo(tmp_path / "many1/fifo")
    before = {path: seen(path) for path in tmp_path.rglob("*")}
    command = (
        "rm -rf many0 many1 link; for f in many2/*/*; do echo more >> $f; done; mv many3 moved; "
        "for f in many4/*/*; do : > $f; done; chmod 640 many5/*/*; ln -sf ../x many6/0/6; echo via > second-name"
    )
    async with scratch_app(tmp_path) as app:
        result = await app.call("Bash", {"command": command})
        assert result.ok, result.output
        after = {path: seen(path) for path in tmp_path.rglob("*")}
        assert (await app.undo()).ok
        missing = tmp_path / "many1/fifo"  # no content, so nothing to bring back
        assert {path: seen(path) for path in tmp_path.rglob("*")} == {k: v for k, v in before.items() if k != missing}
        assert (await app.redo()).ok
        assert {path: seen(path) for path in tmp_path.rglob("*")} == after


def seen(path: Path) -> tuple[int, bytes]:
    status = path.lstat()
    if path.is_symlink():
        return 0, os.fsencode(os.readlink(path))
    return status.st_mode, path.read_bytes() if path.is_file() else b""


async def test_killing_the_supervisor_of_a_command_costs_no_undo(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old\n")
    async with scratch_app(tmp_path, keep_state=True) as app:
        call = asyncio.create_task(app.call("Bash", {"command": "echo new > a; touch ready; exec sleep 600"}))
        while not (tmp_path / "ready").exists():
            await asyncio.sleep(0.01)
        while not (found := [each for each in psutil.Process().children(recursive=True) if each.name() == "sleep"]):
            await asyncio.sleep(0.01)  # the shell becomes it a moment later
        os.kill(found[0].ppid(), signal.SIGKILL)
        result = await call
        assert result.undo is not None
        assert (await app.undo()).ok
        listed = (await app.changes()).data["changes"]
    assert (tmp_path / "a").read_text() == "old\n"
    assert listed[-1]["note"] == "interrupted"


@pytest.mark.skipif(sys.platform != "linux", reason="mounts are Linux")
def test_a_command_is_not_run_when_nothing_can_be_kept_for_its_undo(tmp_path: Path) -> None:
    workspace, home = tmp_path / "ws", tmp_path / "home"
    workspace.mkdir()
    home.mkdir()
    if not can_mount(home):
        pytest.skip("no mounts here")
    (workspace / "a").write_text("old\n")

    def act() -> None:
        own_mounts()
        mount(home, data=b"size=600k")
        os.environ["SUREHAND_HOME"] = str(home)

        async def run() -> None:
            async with Surehand(workspace, approver=Says("once"), settings=Settings()) as app:
                result = await app.call("Bash", {"command": "echo new > a"})
                assert result.error is not None
                assert "it was not run" in result.error.message
                assert (await app.call("Bash", {"command": "cat a"})).output.strip() == "old"

        asyncio.run(run())

    in_child(act)
    assert (workspace / "a").read_text() == "old\n"


RACE = """
import ctypes, os, threading
libc = ctypes.CDLL(None)
path = ctypes.create_string_buffer(b"a000", 16)
going = True
def flip():
    while going:
        path[0] = b"a"
        path[0] = b"b"
thread = threading.Thread(target=flip)
thread.start()
for number in range(300):
    path[1:4] = b"%03d" % number
    fd = libc.open(path, os.O_CREAT | os.O_WRONLY, 0o644)
    if fd >= 0:
        os.close(fd)
going = False
thread.join()
"""


async def test_a_thread_that_changes_the_path_meanwhile_makes_no_silent_gap(tmp_path: Path) -> None:
    (tmp_path / "race.py").write_text(RACE)
    async with scratch_app(tmp_path) as app:
        result = await app.call("Bash", {"command": f"{sys.executable} race.py"})
        assert result.ok, result.output
        assert (await app.undo(all=True)).ok
    left = sorted(path.name for path in tmp_path.iterdir() if path.name != "race.py")
    assert not left or "past the recorder" in result.output, left
    assert all(name in result.output for name in left[:1])


PATH_RACE = """
import ctypes, os, threading
libc = ctypes.CDLL(None)
for number in range(12):
    path = ctypes.create_string_buffer(b"large", 16)
    opening = threading.Event()
    def swap():
        opening.wait()
        for _ in range(200 * number):
            pass
        path.value = b"precious%02d" % number
    thread = threading.Thread(target=swap)
    thread.start()
    opening.set()
    fd = libc.open(path, os.O_WRONLY | os.O_TRUNC)
    if fd >= 0:
        os.write(fd, b"x" * (4 << 20))
        os.close(fd)
    thread.join()
"""


async def test_a_path_that_is_swapped_while_its_file_is_kept_is_undone_or_named(tmp_path: Path) -> None:
    (tmp_path / "race.py").write_text(PATH_RACE)
    (tmp_path / "large").write_bytes(b"x" * (4 << 20))
    precious = [tmp_path / f"precious{number:02}" for number in range(12)]
    for path in precious:
        path.write_text("precious\n")
    async with scratch_app(tmp_path) as app:
        result = await app.call("Bash", {"command": f"{sys.executable} race.py"})
        assert result.ok, result.output
        await app.undo(all=True)
    changed = [path.name for path in precious if path.read_text() != "precious\n"]
    assert not changed or "past the recorder" in result.output
    assert all(name in result.output for name in changed[:5]), result.output
