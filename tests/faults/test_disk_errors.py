"""A full disk, a read-only one, a limit, an error of the device: the original stays, the error says why."""

from __future__ import annotations

import errno
import gc
import os
import resource
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.faults.mounts import RDONLY, REMOUNT, can_mount, in_child, mount, own_mounts
from tests.tools.workbench import Workbench, failure

from surehand.core.errors import ToolFailure


def assert_intact(bench: Workbench, content: bytes) -> None:
    assert (bench.root / "a").read_bytes() == content
    assert [path.name for path in bench.root.iterdir()] == ["a"]
    assert bench.history.changes() == []
    assert bench.history.log.intents() == []


@pytest.mark.skipif(sys.platform != "linux", reason="mounts are Linux")
@pytest.mark.parametrize("content", [b"one\n", b"one\n" * 12_000])
def test_a_full_disk_leaves_the_original(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "ws").mkdir()
    if not can_mount(tmp_path / "ws"):
        pytest.skip("no mounts here")

    def act() -> None:
        own_mounts()
        mount(tmp_path / "ws")
        bench = Workbench(tmp_path)
        bench.put("a", b"start\n" + content)
        (bench.root / "a").chmod(0o640)
        try:
            for size in (4096, 1):
                with open(bench.root / "filler", "ab", buffering=0) as filler:
                    while True:
                        filler.write(b"x" * size)
        except OSError:
            pass
        problem = failure(lambda: bench.edit("a", "start", "begin" * 10_000))
        assert problem.details["errno"] == "ENOSPC"
        assert "no space" in problem.message
        os.unlink(bench.root / "filler")
        assert_intact(bench, b"start\n" + content)
        bench.edit("a", "start", "begin")

    in_child(act)


@pytest.mark.skipif(sys.platform != "linux", reason="mounts are Linux")
def test_a_history_that_cannot_be_written_stops_the_edit_before_it_begins(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    if not can_mount(tmp_path / "state"):
        pytest.skip("no mounts here")

    def act() -> None:
        own_mounts()
        mount(tmp_path / "state", data=b"size=300k")
        bench = Workbench(tmp_path)
        content = os.urandom(60_000).hex().encode()
        bench.put("a", b"start\n" + content)
        assert bench.history.changes() == []
        try:
            with open(bench.state / "filler", "ab", buffering=0) as filler:
                while True:
                    filler.write(b"x" * 4096)
        except OSError:
            pass
        problem = failure(lambda: bench.edit("a", "start", "begin"))
        assert "history cannot be written" in problem.message
        assert (bench.root / "a").read_bytes() == b"start\n" + content
        assert os.listdir(bench.root) == ["a"]
        os.unlink(bench.state / "filler")
        bench.edit("a", "start", "begin")
        assert (bench.root / "a").read_bytes() == b"begin\n" + content

    in_child(act)


@pytest.mark.skipif(sys.platform != "linux", reason="mounts are Linux")
def test_a_read_only_file_system_is_told(tmp_path: Path) -> None:
    (tmp_path / "ws").mkdir()
    if not can_mount(tmp_path / "ws"):
        pytest.skip("no mounts here")

    def act() -> None:
        own_mounts()
        mount(tmp_path / "ws")
        bench = Workbench(tmp_path)
        bench.put("a", b"one\n")
        mount(tmp_path / "ws", REMOUNT | RDONLY, None)
        for action in (
            lambda: bench.edit("a", "one", "two"),
            lambda: bench.write("a", "two"),
            lambda: bench.write("new/dir/b", "x"),
        ):
            assert failure(action).details["errno"] == "EROFS"
        assert_intact(bench, b"one\n")

    in_child(act)


def test_a_file_size_limit_leaves_the_original(tmp_path: Path) -> None:
    def act() -> None:
        bench = Workbench(tmp_path)
        bench.put("a", b"one\n")
        assert bench.history.changes() == []
        resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000))
        problem = failure(lambda: bench.edit("a", "one", "two" * 300_000))
        assert problem.details["errno"] == "EFBIG"
        assert_intact(bench, b"one\n")
        bench.edit("a", "one", "two")

    in_child(act)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("call", ["writev", "fsync", "rename", "fchmod"])
@pytest.mark.parametrize("content", [b"one\n", b"one\n" + b"more\n" * 60_000])
def test_an_error_of_the_device_at_any_step_leaves_the_original(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, content: bytes
) -> None:
    bench = Workbench(tmp_path)
    bench.put("a", content)

    def broken(*args: object, **kwargs: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(os, call, broken)
        problem = failure(lambda: bench.edit("a", "one", "two"))
    assert problem.details["errno"] == errno.errorcode[number]
    assert_intact(bench, content)
    bench.edit("a", "one", "two")


@pytest.mark.parametrize("call", ["writev", "fsync", "link"])
def test_an_error_while_a_file_is_created_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    bench = Workbench(tmp_path)

    def broken(*args: object, **kwargs: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(os, call, broken)
        assert failure(lambda: bench.write("x/y/a", "one")).details["errno"] == "EIO"
    assert os.listdir(bench.root) == []
    assert bench.history.changes() == []


def test_an_undo_that_fails_half_way_takes_back_what_it_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Workbench(tmp_path)
    for name in ("a", "b", "c"):
        bench.put(name, "old\n")
        bench.edit(name, "old", "new")
    calls = 0
    rename = os.rename

    def second_fails(*args: object, **kwargs: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        rename(*args, **kwargs)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", second_fails)
        assert failure(lambda: bench.call("Undo", session="s")).details["errno"] == "EIO"
    assert {(bench.root / name).read_text() for name in "abc"} == {"new\n"}
    bench.call("Undo", session="s")
    assert {(bench.root / name).read_text() for name in "abc"} == {"old\n"}


def test_a_folder_that_may_not_be_written_is_told(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    bench = Workbench(tmp_path)
    bench.put("a", "one\n")
    bench.root.chmod(0o555)
    try:
        assert failure(lambda: bench.edit("a", "one", "two")).details["errno"] == "EACCES"
    finally:
        bench.root.chmod(0o755)
    assert (bench.root / "a").read_text() == "one\n"


@contextmanager
def every_descriptor_but(room: int) -> Generator[None]:
    """Leave a process only so many descriptors to open."""
    taken: list[int] = []
    try:
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        for descriptor in taken[:room]:
            os.close(descriptor)
    try:
        yield
    finally:
        for descriptor in taken[room:]:
            os.close(descriptor)


@pytest.mark.parametrize("size", [10, 1_000_000])
def test_too_many_open_files_leave_the_original(tmp_path: Path, size: int) -> None:
    def act() -> None:
        bench = Workbench(tmp_path)
        before = b"start\n" + b"x" * size
        path = bench.put("a", before)
        bench.history.changes()
        gc.collect()  # what other tests left behind would give descriptors back in the middle
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        refused = 0
        for room in range(12):
            with every_descriptor_but(room):
                try:
                    bench.edit("a", "start", "begin")
                except ToolFailure:
                    refused += 1
            assert os.listdir(bench.root) == ["a"]
            if path.read_bytes() != before:
                break
        assert refused
        assert path.read_bytes() == b"begin\n" + b"x" * size
        assert len(bench.history.changes()) == 1

    in_child(act)
