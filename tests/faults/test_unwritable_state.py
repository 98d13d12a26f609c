"""Reads answer where the state cannot be written: what was done, by whom, and what an undo would do."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.faults.mounts import bind_read_only, can_mount, fill, in_child, mount, own_mounts

from surehand import Surehand
from surehand.cli.main import main
from surehand.state.files import open_to_read

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mounts are Linux")


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace `ws` with two changes by the session `s`, and its state in `home`."""
    for name in ("ws", "home", "view"):
        (tmp_path / name).mkdir()
    if not can_mount(tmp_path / "view"):
        pytest.skip("no mounts here")
    monkeypatch.setenv("SUREHAND_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "ws")
    return tmp_path


def make_changes(base: Path, *, killed: bool) -> None:
    """Write a file twice in another process, which ends as it should or is killed."""

    def work() -> None:
        app = Surehand.sync(base / "ws", session="s", allow=["Write"])
        for text in ("one\n", "two\n"):
            assert app.call("Write", {"file_path": "a.txt", "content": text}).ok
        if not killed:
            app.close()
        os._exit(0)  # the second change is not confirmed in the history yet

    in_child(work)


def say(*words: str) -> str:
    """Run a command of the command line, which must succeed; return what it printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main([*words, "--text"]) == 0, words
    return printed.getvalue()


def show_read_only(base: Path) -> None:
    bind_read_only(base / "home", base / "view")


def show_full(base: Path) -> None:
    mount(base / "view", data=b"size=1m")
    shutil.copytree(base / "home", base / "view", dirs_exist_ok=True, ignore=shutil.ignore_patterns("channels"))
    fill(base / "view")


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("show", [show_read_only, show_full])
def test_what_was_done_is_told_where_nothing_can_be_written(
    base: Path, show: Callable[[Path], None], killed: bool
) -> None:
    make_changes(base, killed=killed)

    def look() -> None:
        own_mounts()
        show(base)
        os.environ["SUREHAND_HOME"] = str(base / "view")
        assert "+ a.txt" in say("log")
        assert "+one" in say("diff", "1")
        assert "Write" in say("tools", "invoke", "Changes", "--args", "{}")
        assert "cannot be written" in say("tools", "invoke", "Changes", "--args", "{}")
        assert say("sessions", "list").splitlines()[1].startswith("s ")
        assert "a.txt" in say("sessions", "show", "s")
        assert "chain is intact" in say("audit", "verify")
        assert "a.txt" in say("audit", "show")
        assert "no turns yet" in say("rewind", "s")
        assert "two" in say("tools", "invoke", "--session", "s", "Read", "--args", '{"file_path": "a.txt"}')
        if not killed:
            assert "~ a.txt" in say("log")
            assert "+one" in say("undo", "--dry-run")
            assert "Write" in say("stats")
        with Surehand.sync(base / "ws", allow=["Edit", "Undo"]) as app:
            app.call("Read", {"file_path": "a.txt"})
            refused = app.call("Edit", {"file_path": "a.txt", "old_string": "two", "new_string": "2"}).error
            assert refused is not None
            assert "Nothing was changed" in refused.hint
            assert not app.call("Undo", {"all_sessions": True}).ok
        assert (base / "ws" / "a.txt").read_text() == "two\n"

    in_child(look)


def test_a_reader_sees_what_a_writer_commits_meanwhile(base: Path) -> None:
    with Surehand.sync(base / "ws", session="s", allow=["Write"]) as app:
        assert app.call("Write", {"file_path": "a.txt", "content": "one\n"}).ok
        read_end, write_end = os.pipe()
        done_read, done_write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                own_mounts()
                show_read_only(base)
                os.environ["SUREHAND_HOME"] = str(base / "view")
                first = say("log")
                os.write(done_write, b"1")
                os.read(read_end, 1)
                second = say("log")
                os._exit(0 if "b.txt" not in first and "b.txt" in second else 1)
            finally:
                os._exit(2)
        assert os.read(done_read, 1) == b"1"
        assert app.call("Write", {"file_path": "b.txt", "content": "two\n"}).ok
        assert app.call("Write", {"file_path": "c.txt", "content": "three\n"}).ok  # confirms the one before
        os.write(write_end, b"1")
        assert os.waitpid(child, 0)[1] == 0
        for descriptor in (read_end, write_end, done_read, done_write):
            os.close(descriptor)


def test_a_history_opened_on_a_full_disk_is_written_once_there_is_room(base: Path) -> None:
    make_changes(base, killed=False)

    def work() -> None:
        own_mounts()
        show_full(base)
        os.environ["SUREHAND_HOME"] = str(base / "view")
        with Surehand.sync(base / "ws", allow=["Write", "Read"]) as app:
            assert len(app.call("Changes", {}).data["changes"]) == 2
            assert not app.call("Write", {"file_path": "b.txt", "content": "b\n"}).ok
            (base / "view" / "filler").unlink()
            assert app.call("Write", {"file_path": "b.txt", "content": "b\n"}).undo
            fill(base / "view")
            # The last change is confirmed in memory alone, and is shown all the same.
            assert [each["id"] for each in app.call("Changes", {}).data["changes"]] == ["3", "2", "1"]
            (base / "view" / "filler").unlink()

    in_child(work)


@pytest.mark.parametrize("index", [True, False])
def test_a_log_that_a_killed_writer_left_is_read(base: Path, index: bool) -> None:
    folder = base / "home"

    def write() -> None:
        database = sqlite3.connect(folder / "odd ?#%20.db", isolation_level=None)
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE t(x)")
        database.execute("INSERT INTO t VALUES (7)")
        os._exit(0)

    in_child(write)
    if not index:
        (folder / "odd ?#%20.db-shm").unlink()

    def read() -> None:
        own_mounts()
        show_read_only(base)
        database = open_to_read(str(base / "view" / "odd ?#%20.db"))
        assert database.execute("SELECT x FROM t").fetchall() == [(7,)]

    in_child(read)
