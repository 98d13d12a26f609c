"""The fault run: kill or fail any system call of any thread or child of the whole program, and check what must hold.

Driven by a seed through `call`, commands, the command line and closing. Afterwards: every file has its old or its new
bytes; every ok has its undo, with the old content; an answer that says nothing was changed is true; the audit verifies;
nothing is left behind, neither files nor processes; the next session works.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from tests.faults import tracing
from tests.faults.tracing import KILL, KILL_CALLER, Call, Decision

from surehand import Settings, Surehand
from surehand.cli.main import main as command_line
from surehand.engine.audit import verify
from surehand.history.history import HISTORY
from surehand.state import locations
from surehand.testing import Says

pytestmark = pytest.mark.skipif(not tracing.available(), reason="no child can be traced here")

SMALL: Final = b"one\ntwo\nthree\n"
LARGE: Final = b"".join(b"line %d of a file that is linked into the store\n" % n for n in range(4000))
START: Final = {"small.txt": SMALL, "large.txt": LARGE, "doomed.txt": b"doomed\n", "new.txt": None, "made.txt": None}

_ROOM = {"write", "pwrite64", "writev", "openat", "mkdir", "mkdirat", "link", "linkat", "rename", "renameat", "fsync",
         "fdatasync", "fallocate", "ftruncate", "symlinkat", "sendfile", "copy_file_range"}  # fmt: skip
_DEVICE = _ROOM | {"read", "pread64", "unlink", "unlinkat", "newfstatat", "fstat", "stat", "lstat", "statx",
                   "getdents64", "fchmod", "flock"}  # fmt: skip
_DESCRIPTORS = {"openat", "open", "openat2", "socket", "socketpair", "pipe2", "dup", "epoll_create1", "eventfd2",
                "memfd_create", "accept4"}  # fmt: skip
_WAITS = {"read", "write", "writev", "pwrite64", "openat", "fsync", "flock", "wait4", "epoll_wait", "rename",
          "renameat", "unlink", "unlinkat", "link", "linkat"}  # fmt: skip
FAULTS: Final[dict[str, tuple[int, set[str]]]] = {
    "ENOSPC": (errno.ENOSPC, _ROOM),
    "EIO": (errno.EIO, _DEVICE),
    "EMFILE": (errno.EMFILE, _DESCRIPTORS),
    "EINTR": (errno.EINTR, _WAITS),
}

NO_NEW_PRIVS: Final = 38
"""What a supervisor asks of the kernel just before it is ready."""


@dataclass
class Step:
    """One call of a scenario: its tool, its arguments, and what its files hold after it."""

    tool: str
    args: dict[str, Any]
    after: dict[str, bytes | None] = field(default_factory=dict[str, "bytes | None"])
    midway: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """What a shell that is killed between two system calls of its own leaves: no tool of ours writes in such steps."""


EDITED: Final = LARGE.replace(b"line 2000 of", b"LINE 2000 of")
FILES: Final = (
    Step("Write", {"file_path": "new.txt", "content": "new\n"}, {"new.txt": b"new\n"}),
    Step("Read", {"file_path": "small.txt"}),
    Step(
        "Edit",
        {"file_path": "small.txt", "old_string": "two", "new_string": "2"},
        {"small.txt": SMALL.replace(b"two", b"2")},
    ),
    Step("Read", {"file_path": "large.txt", "offset": 1990, "limit": 20}),
    Step(
        "Edit",
        {"file_path": "large.txt", "old_string": "line 2000 of", "new_string": "LINE 2000 of"},
        {"large.txt": EDITED},
    ),
    Step("Undo", {"last": 2}, {"small.txt": SMALL, "large.txt": LARGE}),
)
COMMAND: Final = (
    Step(
        "Bash",
        {"command": "echo made > made.txt; rm doomed.txt; echo more >> small.txt"},
        {"made.txt": b"made\n", "doomed.txt": None, "small.txt": SMALL + b"more\n"},
        {"made.txt": b""},
    ),
    Step("Undo", {}, {"made.txt": None, "doomed.txt": b"doomed\n", "small.txt": SMALL}),
)


@dataclass
class Scene:
    """A workspace, a home of its own, and the file in which the program reports what it was answered."""

    folder: Path

    def __post_init__(self) -> None:
        self.workspace.mkdir(parents=True)
        for name, data in START.items():
            if data is not None:
                (self.workspace / name).write_bytes(data)

    @property
    def workspace(self) -> Path:
        return self.folder / "ws"

    @property
    def report(self) -> Path:
        return self.folder / "report"

    def enter(self) -> None:
        """Make this process one that lives in the scene."""
        os.environ["HOME"] = str(self.folder / "home")
        os.environ["SUREHAND_HOME"] = str(self.folder / "home/state")
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - as long as the process lives
        os.dup2(sys.stdout.fileno(), 1)
        os.dup2(sys.stdout.fileno(), 2)

    def told(self) -> list[dict[str, Any]]:
        lines = self.report.read_text().splitlines() if self.report.exists() else []
        return [json.loads(line) for line in lines]


def through_calls(scene: Scene, steps: tuple[Step, ...]) -> None:
    """Run a scenario through `call`, reporting each answer as it comes."""
    scene.enter()
    report = os.open(scene.report, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def run() -> None:
        async with Surehand(
            scene.workspace, session="work", approver=Says("once"), settings=Settings(), plugins=False
        ) as app:
            for number, step in enumerate(steps):
                result = await app.call(step.tool, step.args)
                answer = {"step": number, "ok": result.ok, "output": result.output}
                answer["change"] = result.undo.change_id if result.undo else None
                os.write(report, json.dumps(answer).encode() + b"\n")

    asyncio.run(run())


def through_the_command_line(scene: Scene, steps: tuple[Step, ...]) -> None:
    """Run a scenario as a person types it, each step a command of one process."""
    scene.enter()
    for step in steps:
        words = ["tools", "invoke", step.tool, "--args", json.dumps(step.args), "--mode", "accept-edits"]
        command_line([*words, "--session", "work", "--allow", "Undo", "--cwd", str(scene.workspace)])


DOORS: Final[dict[str, tuple[Callable[[Scene, tuple[Step, ...]], None], tuple[Step, ...]]]] = {
    "call": (through_calls, FILES),
    "command": (through_calls, COMMAND),
    "command line": (through_the_command_line, FILES[:3]),
}


def _warm_up(scene: Scene, door: str) -> None:
    """Go through a door once in this process: what is imported by now is not imported again in every run."""
    act, steps = DOORS[door]
    outputs = os.dup(1), os.dup(2), sys.stdout, sys.stderr
    try:
        act(scene, steps)
    finally:
        for number in (0, 1):
            os.dup2(outputs[number], number + 1)
            os.close(outputs[number])
        sys.stdout, sys.stderr = outputs[2:]


class Run:
    """Makes points by a seed, counts what came of them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._random = random.Random(seed)
        self._sizes: dict[str, Counter[str]] = {}
        self.counts: Counter[str] = Counter()

    def point(self, door: str) -> None:
        """Make one fault somewhere in a run through a door, and check."""
        act, steps = DOORS[door]
        if door not in self._sizes:
            _warm_up(self._scene(), door)
            whole = tracing.trace(lambda: act(self._scene(), steps))
            assert whole.status == 0, f"without any fault the run through {door} ended with {whole.status}"
            self._sizes[door] = whole.names
        fault = self._random.choice([KILL, KILL, KILL, *FAULTS])
        number, names = FAULTS.get(fault, (0, set[str]()))
        size = sum(count for name, count in self._sizes[door].items() if not names or name in names)
        # The last part of a run is its closing; a third of all points lie there.
        first = size * 2 // 3 if self._random.random() < 0.33 else 1
        at, seen = self._random.randint(first, size), 0

        def decide(call: Call) -> Decision:
            nonlocal seen
            seen += not names or call.name in names
            return None if seen != at else KILL if fault == KILL else number

        scene = self._scene()
        traced = tracing.trace(lambda: act(scene, steps), decide)
        where = f"{door}, {traced.hit or 'no fault'} ({at} of {size})"
        self.counts[f"{door}: {fault}"] += bool(traced.hit)
        try:
            assert traced.left == 0, "processes were left behind"
            check(scene, steps)
        except BaseException as problem:
            problem.add_note(f"after {where}; answers: {scene.told()}")
            raise

    def _scene(self) -> Scene:
        shutil.rmtree(self._folder, ignore_errors=True)
        return Scene(self._folder)


def check(scene: Scene, steps: tuple[Step, ...]) -> None:
    """Check all that must hold after a fault, by what the program reported and what a new session finds."""
    os.environ["HOME"], os.environ["SUREHAND_HOME"] = str(scene.folder / "home"), str(scene.folder / "home/state")
    asyncio.run(_check(scene, steps))
    state = locations.workspace_state(str(scene.workspace))
    verified = verify(os.path.join(state, "audit"))
    assert verified.ok, verified
    stray = [path for path in scene.workspace.rglob("*") if path.name not in START]
    assert stray == [], "files were left behind"
    journals = Path(state, "journals")
    assert not journals.exists() or os.listdir(journals) == [], "a journal was left behind"


async def _check(scene: Scene, steps: tuple[Step, ...]) -> None:
    async with Surehand(scene.workspace, session="after", approver=Says("once"), settings=Settings()) as app:
        history = app.session.keep(HISTORY)
        before = dict(START)
        possible: dict[str, set[bytes | None]] = {name: {data} for name, data in START.items()}
        answers = {each["step"]: each for each in scene.told()}
        for number, step in enumerate(steps):
            answer = answers.get(number)
            if step.tool == "Undo" and not all(answers.get(each, {}).get("ok") for each in range(number)):
                step = Step("Undo", {}, {})  # it takes back what there is: any of the steps that were made
                for name, data in START.items():
                    possible[name].add(data)
            for name, data in step.after.items():
                possible[name].add(data)
            for name, data in step.midway.items():
                possible[name].add(data)
            if answer is not None and answer["ok"] and answer["change"] and step.after:
                change = history.change(answer["change"])
                assert change is not None, f"step {number} was ok and is not in the history"
                for each in change.files:
                    kept = history.content(each.before.digest) if each.before.digest else None
                    assert kept == before[os.path.basename(each.path)], f"the old content of {each.path} is lost"
            if answer is not None and answer["ok"]:
                before |= step.after
                for name, data in step.after.items():
                    possible[name] = {data}
        _check_files(scene, possible)
        told = any("cannot all be undone" in each["output"] for each in answers.values())
        if not told and history.standing(session_id="session_work"):
            undone = await app.undo(session="work")
            assert undone.ok, undone.output
        if not told:  # whatever had happened, answered or not, was in the history
            _check_files(scene, {name: {data} for name, data in START.items()})
        result = await app.call("Write", {"file_path": "after.txt", "content": "after\n"})
        assert result.ok, result.output
        assert (await app.undo()).ok, "the next session cannot undo"


def _check_files(scene: Scene, possible: dict[str, set[bytes | None]]) -> None:
    for name, contents in possible.items():
        path = scene.workspace / name
        found = path.read_bytes() if path.exists() else None
        assert found in contents, f"{name} is neither old nor new"
        assert found is None or path.stat().st_nlink == 1, f"the store shares {name} with the user"


def run_points(folder: Path, seed: int, points: dict[str, int]) -> Counter[str]:
    """Inject so many faults at each door; where a run does not reach its point, another one is drawn."""
    run = Run(folder / "scene", seed)
    wanted = 0
    for door, count in points.items():
        wanted += count
        for _ in range(3 * count):
            if run.counts.total() == wanted:
                break
            run.point(door)
    return run.counts


@pytest.mark.parametrize(
    ("seed", "door", "count"),
    [
        *((seed, "call", 40) for seed in range(1, 5)),
        *((seed, "command", 12) for seed in range(5, 7)),
        *((seed, "command line", 8) for seed in range(7, 9)),
    ],
)
def test_no_fault_at_any_system_call_breaks_a_promise(tmp_path: Path, seed: int, door: str, count: int) -> None:
    counts = run_points(tmp_path, seed, {door: count})
    assert counts.total() == count, counts


def test_a_read_of_the_history_that_fails_once_costs_none_of_it(tmp_path: Path) -> None:
    act, steps = DOORS["call"]
    run = Run(tmp_path / "scene", seed=0)
    _warm_up(run._scene(), "call")
    reads = tracing.trace(lambda: act(run._scene(), steps)).names["pread64"]
    for at in range(1, reads + 1, 5):
        seen = 0

        def decide(call: Call, at: int = at) -> Decision:
            nonlocal seen
            seen += call.name == "pread64"
            return errno.EIO if call.name == "pread64" and seen == at else None

        scene = run._scene()
        tracing.trace(lambda scene=scene: act(scene, steps), decide)
        check(scene, steps)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1050))
def test_thousands_of_faults_break_no_promise(
    tmp_path: Path, seed: int, record_property: Callable[[str, object], None]
) -> None:
    counts = run_points(tmp_path, seed, {"call": 58, "command": 28, "command line": 14})
    record_property("counted", dict(counts))
    assert counts.total() == 100, counts


def test_too_many_open_files_while_a_command_is_recorded_costs_no_undo(tmp_path: Path) -> None:
    act, steps = DOORS["command"]
    run = Run(tmp_path / "scene", seed=0)
    _warm_up(run._scene(), "command")
    opened = tracing.trace(lambda: act(run._scene(), steps)).names["openat"]
    for at in range(opened - 90, opened - 50, 2):  # about where what the command changed is read
        seen = 0

        def decide(call: Call, at: int = at) -> Decision:
            nonlocal seen
            seen += call.name == "openat"
            return errno.EMFILE if call.name == "openat" and seen == at else None

        scene = run._scene()
        tracing.trace(lambda scene=scene: act(scene, steps), decide)
        check(scene, steps)


def test_a_command_whose_supervisor_dies_while_it_gets_ready_fails_at_once_and_the_next_one_runs(
    tmp_path: Path,
) -> None:
    command = Step("Bash", {"command": "echo made > made.txt", "timeout": 20_000}, {"made.txt": b"made\n"})
    act, steps = DOORS["command"][0], (command, command)
    run = Run(tmp_path / "scene", seed=0)
    _warm_up(run._scene(), "command")  # what the system can do is tried by processes of their own, once

    def decide(call: Call) -> Decision:
        return KILL_CALLER if not call.is_main and call.name == "prctl" and call.args[0] == NO_NEW_PRIVS else None

    scene = run._scene()
    assert tracing.trace(lambda: act(scene, steps), decide).hit == "kill caller a child at prctl"
    first, second = scene.told()
    assert not first["ok"]
    assert "the process that watched over it was killed" in first["output"]
    assert second["ok"], second
