"""Several processes at one file, and links swapped under it: nothing is lost silently, nothing leaks out."""

from __future__ import annotations

import os
import signal
import traceback
from pathlib import Path

import pytest
from tests.forks import fork
from tests.tools.workbench import Workbench

from surehand.core.errors import ToolFailure


def edit_together(folder: Path, processes: int, edits: int) -> tuple[int, int]:
    """Let processes add 1 to one number; return the number in the file and how many edits were accepted."""
    prepared = Workbench(folder)
    path = prepared.put("counter", "value 0 end\n")
    prepared.history.close()
    pipes: list[int] = []
    children: list[int] = []
    for number in range(processes):
        receive, send = os.pipe()
        child = os.fork()
        if child == 0:
            _count(folder, f"p{number}", edits, send)
        os.close(send)
        pipes.append(receive)
        children.append(child)
    accepted = 0
    for receive, child in zip(pipes, children, strict=True):
        with open(receive) as answer:
            accepted += int(answer.read() or -(10**9))
        assert os.waitpid(child, 0)[1] == 0
    return int(path.read_text().split()[1]), accepted


def _count(folder: Path, name: str, edits: int, send: int) -> None:
    accepted = 0
    try:
        bench = Workbench(folder, name=name)
        for _ in range(edits):
            bench.read("counter")
            value = int((bench.root / "counter").read_text().split()[1])
            try:
                bench.edit("counter", f"value {value} end", f"value {value + 1} end")
                accepted += 1
            except ToolFailure as problem:
                if problem.details.get("number") not in (7, 8):
                    raise
        os.write(send, str(accepted).encode())
        bench.history.close()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def test_no_update_of_several_processes_is_lost(tmp_path: Path) -> None:
    value, accepted = edit_together(tmp_path, processes=4, edits=25)
    assert value == accepted
    assert accepted > 25
    assert len(Workbench(tmp_path).history.changes()) == accepted


@pytest.mark.slow
def test_no_update_of_eight_processes_is_lost(tmp_path: Path) -> None:
    value, accepted = edit_together(tmp_path, processes=8, edits=200)
    assert value == accepted
    assert len(Workbench(tmp_path).history.changes()) == accepted


def swap_and_write(folder: Path, tries: int) -> None:
    """Write through a folder that is a link another process swaps all the time, until enough tries ended."""
    bench = Workbench(folder, state=False)
    outside = folder / "outside"
    for place in (bench.root / "inside", outside):
        place.mkdir()
        (place / "a").write_text("0\n")
    link, spare = bench.root / "link", bench.root / "spare"
    os.symlink("inside", link)

    def swap() -> None:
        while os.getppid() != 1:
            for target in ("inside", str(outside), "../outside", str(bench.root / "inside")):
                os.symlink(target, spare)
                os.replace(spare, link)

    swapper = fork(swap)
    ended, number = {"written": 0, "refused": 0}, 0
    try:
        while sum(ended.values()) < tries or not min(ended.values()):
            number += 1
            try:
                bench.write("link/a" if number % 2 else f"link/new{number % 50}", f"{number}\n")
                ended["written"] += 1
            except ToolFailure:
                ended["refused"] += 1
                if (bench.root / "inside/a").exists():
                    bench.read("inside/a")
    finally:
        os.kill(swapper, signal.SIGKILL)
        os.waitpid(swapper, 0)
    assert (outside / "a").read_text() == "0\n"
    assert os.listdir(outside) == ["a"]


def test_a_link_swapped_while_writing_never_leads_out(tmp_path: Path) -> None:
    swap_and_write(tmp_path, 600)


@pytest.mark.slow
def test_a_link_swapped_while_writing_never_leads_out_in_100_000_tries(tmp_path: Path) -> None:
    swap_and_write(tmp_path, 100_000)


def test_a_live_process_is_not_recovered_by_another(tmp_path: Path) -> None:
    """A change under way, its folder locked, is left alone by whoever opens the history meanwhile."""
    from surehand.files.atomic import locked_now
    from surehand.history.recovery import recover
    from surehand.history.words import ABSENT, Author, FileChange

    bench = Workbench(tmp_path)
    folder = os.open(bench.root, os.O_RDONLY | os.O_DIRECTORY)
    with locked_now([folder]):
        pending = bench.history.begin(Author("Write"), [FileChange(bench.path("a"), ABSENT, None)])
        other = Workbench(tmp_path, name="other")
        assert [change.id for change in other.history.log.intents()] == [pending.id]
    os.close(folder)
    assert recover(bench.history) == []
    assert bench.history.log.intents() == []
