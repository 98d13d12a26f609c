"""The fault run: kill or fail any system call of any thread or child of the program, then check what must hold.

A seed picks points in runs through `call`, every tool that changes files, commands of each kind, a dry run, a batch, a
server's tool, a rewind, the command line and closing. Afterwards files have their old or their new bytes; every change
that was reported has its undo, with the old content; "Nothing was changed" is true; the audit verifies and has an
intent of every call that changed files; no files and no processes are left behind; the next session works.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import os
import random
import re
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from tests.faults import tracing
from tests.faults.tracing import KILL, KILL_CALLER, SHORT, Call, Decision, Traced

from surehand import Settings, Surehand, ToolCall, ToolResult
from surehand.cli.main import main as command_line
from surehand.core.settings import McpServerSettings, ToolSettings
from surehand.engine.audit import records, verify
from surehand.history.change_logs import RESERVE, RESERVED_BYTES
from surehand.history.history import HISTORY
from surehand.history.words import Change
from surehand.policy.approval import Answer, Question
from surehand.state import locations
from surehand.testing import Says, ScriptedModel

pytestmark = pytest.mark.skipif(not tracing.available(), reason="no child can be traced here")

SMALL: Final = b"one\ntwo\nthree\n"
LARGE: Final = b"".join(b"line %d of a file that is linked into the store\n" % n for n in range(4000))
BOOK: Final = b"""{"cells": [{"cell_type": "code", "id": "a", "metadata": {}, "outputs": [], "execution_count": null,
"source": ["print(1)"]}], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
"""
START: Final = {"small.txt": SMALL, "large.txt": LARGE, "doomed.txt": b"doomed\n", "book.ipynb": BOOK, "new.txt": None,
                "made.txt": None}  # fmt: skip

_ROOM = {"write", "pwrite64", "writev", "openat", "mkdir", "mkdirat", "link", "linkat", "rename", "renameat", "fsync",
         "fdatasync", "fallocate", "ftruncate", "symlinkat", "sendfile", "copy_file_range"}  # fmt: skip
_DEVICE = _ROOM | {"read", "pread64", "unlink", "unlinkat", "newfstatat", "fstat", "stat", "lstat", "statx",
                   "getdents64", "fchmod", "flock"}  # fmt: skip
_DESCRIPTORS = {"openat", "open", "openat2", "socket", "socketpair", "pipe2", "dup", "epoll_create1", "eventfd2",
                "memfd_create", "accept4"}  # fmt: skip
_WAITS = {"read", "write", "writev", "pwrite64", "openat", "fsync", "flock", "wait4", "epoll_wait", "rename",
          "renameat", "unlink", "unlinkat", "link", "linkat"}  # fmt: skip
_TAKE_ROOM = {"write", "pwrite64", "writev", "fallocate", "mkdir", "mkdirat", "copy_file_range", "sendfile"}


@dataclass(frozen=True)
class Fault:
    """A fault, and the system calls at which it may be injected."""

    decision: Decision
    names: frozenset[str] | None = None
    """None for any call."""
    children: bool = False
    """Whether only calls of children count."""
    on_files: bool = False
    """Whether only calls on files count: only a disk is full, not a pipe or a socket."""
    lasting: bool = False
    """Whether the disk stays full from the point on, except for the reserve that the program frees."""

    def size(self, whole: Traced) -> int:
        """Return the number of points in a run without faults."""
        if self.children:
            return whole.child_calls
        return sum(count for name, count in whole.names.items() if self.names is None or name in self.names)

    def at(self, point: int, report: str) -> Callable[[Call], Decision]:
        """Return the tracer's decision function. The report file is exempt, as if it were on another disk."""
        seen = room = 0

        def decide(call: Call) -> Decision:
            nonlocal seen, room
            if self.lasting and seen >= point and call.name in ("unlink", "unlinkat"):
                room += RESERVED_BYTES if call.text(call.name == "unlinkat").endswith(RESERVE) else 0
            if (self.names is not None and call.name not in self.names) or (self.children and call.is_main):
                return None
            if self.on_files and not call.name.startswith("mkdir") and call.file() in ("", report):
                return None
            seen += 1
            if seen < point or (seen > point and not self.lasting):
                return None
            if self.lasting and (needed := _room_for(call)) <= room:
                room -= needed
                return None
            return self.decision

        return decide


def _room_for(call: Call) -> int:
    """Return how many bytes a file grows by a write."""
    if call.name == "fallocate":
        return call.args[3]
    if call.name not in ("write", "pwrite64"):
        return 4096
    try:
        size = os.stat(f"/proc/{call.thread}/fd/{call.args[0]}").st_size
    except OSError:
        size = 0
    return max(call.args[3] + call.args[2] - size, 0) if call.name == "pwrite64" else call.args[2]


FAULTS: Final = {
    "kill": Fault(KILL),
    "kill a child": Fault(KILL_CALLER, children=True),
    "ENOSPC": Fault(errno.ENOSPC, frozenset(_ROOM)),
    "EDQUOT": Fault(errno.EDQUOT, frozenset(_ROOM), on_files=True),
    "EIO": Fault(errno.EIO, frozenset(_DEVICE)),
    "EMFILE": Fault(errno.EMFILE, frozenset(_DESCRIPTORS)),
    "EINTR": Fault(errno.EINTR, frozenset(_WAITS)),
    "short write": Fault(SHORT, frozenset({"write", "pwrite64"}), on_files=True),
    "full disk": Fault(errno.ENOSPC, frozenset(_TAKE_ROOM), on_files=True, lasting=True),
}

NO_NEW_PRIVS: Final = 38
"""PR_SET_NO_NEW_PRIVS, which a supervisor sets just before it is ready."""


@dataclass
class Step:
    """One call of a scenario: its tool, its arguments, and the contents of its files afterwards."""

    tool: str
    args: dict[str, Any]
    after: dict[str, bytes | None] = field(default_factory=dict[str, "bytes | None"])
    midway: dict[str, bytes | None] = field(default_factory=dict[str, "bytes | None"])
    """Contents that a shell may leave if it is killed between two system calls; our own tools never do."""
    turn: bool = False
    """Whether a model makes the call in a turn of its own; its result is not reported."""


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


def blob_id(data: bytes) -> str:
    """Return git's blob id of a content."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


MORE: Final = SMALL + b"more\n"
_ALL: Final = "echo made > made.txt && rm doomed.txt && echo more >> small.txt"
_CHANGED: Final[dict[str, bytes | None]] = {"made.txt": b"made\n", "doomed.txt": None, "small.txt": MORE}
_AS_BEFORE: Final[dict[str, bytes | None]] = {"made.txt": None, "doomed.txt": b"doomed\n", "small.txt": SMALL}
COMMAND: Final = (
    Step("Bash", {"command": _ALL}, _CHANGED, {"made.txt": b""}),
    Step("Undo", {}, _AS_BEFORE),
)
SHELL: Final = (
    Step("Bash", {"command": "x=made"}),
    Step("Bash", {"command": "echo ${x:?} > made.txt"}, {"made.txt": b"made\n"}, {"made.txt": b""}),
    Step("Bash", {"command": "rm doomed.txt && echo more >> small.txt"}, {"doomed.txt": None, "small.txt": MORE}),
    Step("Undo", {"last": 2}, _AS_BEFORE),
)
BACKGROUND: Final = (
    Step("Bash", {"command": _ALL, "run_in_background": True}, midway={"made.txt": b""}),
    Step("TaskOutput", {}, _CHANGED),
    Step("Undo", {}, _AS_BEFORE),
)
DRY_RUN: Final = (
    Step("dry run", {"command": _ALL}),
    Step("Bash", {"command": _ALL}, _CHANGED, {"made.txt": b""}),
    Step("Undo", {}, _AS_BEFORE),
    Step("Redo", {}, _CHANGED),
)
PATCH: Final = f"""diff --git a/small.txt b/small.txt
index {blob_id(SMALL)}..{blob_id(SMALL.replace(b"two", b"2"))} 100644
--- a/small.txt
+++ b/small.txt
@@ -1,3 +1,3 @@
 one
-two
+2
 three
diff --git a/doomed.txt b/doomed.txt
deleted file mode 100644
index {blob_id(b"doomed" + bytes([10]))}..{"0" * 40}
--- a/doomed.txt
+++ /dev/null
@@ -1 +0,0 @@
-doomed
diff --git a/new.txt b/new.txt
new file mode 100644
index {"0" * 40}..{blob_id(b"new" + bytes([10]))}
--- /dev/null
+++ b/new.txt
@@ -0,0 +1 @@
+new
"""
_PATCHED: Final = {"small.txt": SMALL.replace(b"two", b"2"), "doomed.txt": None, "new.txt": b"new\n"}
TOOLS: Final = (
    Step("Read", {"file_path": "large.txt", "limit": 2}),
    Step(
        "MultiEdit",
        {
            "file_path": "large.txt",
            "edits": [
                {"old_string": "line 2000 of", "new_string": "line Two thousand of"},
                {"old_string": "line Two thousand of", "new_string": "LINE 2000 of"},
            ],
        },
        {"large.txt": EDITED},
    ),
    Step("Read", {"file_path": "book.ipynb"}),
    Step(
        "NotebookEdit",
        {"notebook_path": "book.ipynb", "cell_id": "a", "new_source": "print(2)"},
        {"book.ipynb": BOOK.replace(b"print(1)", b"print(2)")},
    ),
    Step("ApplyPatch", {"patch": PATCH}, _PATCHED),
    Step("Undo", {"last": 2}, {name: START[name] for name in ("book.ipynb", "small.txt", "doomed.txt", "new.txt")}),
    Step("Redo", {}, {"book.ipynb": BOOK.replace(b"print(1)", b"print(2)"), **_PATCHED}),
)
SERVER: Final = (
    Step("rough:echo", {"text": "hello"}),
    FILES[0],
    Step("rough:echo", {"text": "again"}),
    Step("Undo", {}, {"new.txt": None}),
)
BATCH: Final = (
    FILES[0],
    Step("Read", {"file_path": "large.txt", "limit": 2}),
    Step("Bash", {"command": "rm doomed.txt"}, {"doomed.txt": None}),
    Step("Write", {"file_path": "made.txt", "content": "made\n"}, {"made.txt": b"made\n"}),
    Step("Glob", {"pattern": "*.txt"}),
)
TURNS: Final = (
    Step(FILES[0].tool, FILES[0].args, FILES[0].after, turn=True),
    Step("Bash", {"command": "rm doomed.txt"}, {"doomed.txt": None}, turn=True),
    Step("rewind", {"to": 1}, {"new.txt": None, "doomed.txt": b"doomed\n"}),
)
_UNCHANGED: Final = ("Nothing was changed", "The file is as it was")
BACK: Final = ("Undo", "Redo", "rewind")
"""Steps that revert earlier steps, so that their effect depends on which of those succeeded."""


@dataclass
class Scene:
    """A workspace, a home directory, and the file to which the program reports each answer."""

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

    def blob_id(self, name: str) -> str:
        """Return git's blob id of a file; empty if it does not exist or cannot be read."""
        try:
            return blob_id((self.workspace / name).read_bytes())
        except OSError:
            return ""

    def enter(self) -> None:
        """Point this process's home and state at the scene, and silence its output."""
        os.environ["HOME"] = str(self.folder / "home")
        os.environ["SUREHAND_HOME"] = str(self.folder / "home/state")
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - open until the process ends
        os.dup2(sys.stdout.fileno(), 1)
        os.dup2(sys.stdout.fileno(), 2)

    def answers(self) -> list[dict[str, Any]]:
        lines = self.report.read_text().splitlines() if self.report.exists() else []
        return [json.loads(line) for line in lines]


class Applies:
    """An approver that makes a dry run of every command, and approves its result."""

    async def ask(self, question: Question) -> Answer:
        shown = await question.try_first() if question.try_first is not None else None
        return Answer("once", dry_run=shown.dry_run.id if shown is not None and shown.dry_run else None)


def through_calls(scene: Scene, steps: tuple[Step, ...], *, at_once: int = 0, **options: Any) -> None:
    """Run a scenario through `call`, its first `at_once` steps concurrently; report each answer as it comes."""
    scene.enter()
    report = os.open(scene.report, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    given: dict[str, Any] = {"approver": Says("once"), "settings": Settings(), **options}

    def note(number: int, result: ToolResult) -> None:
        answer = {"step": number, "ok": result.ok, "output": result.output}
        answer["change"] = result.undo.change_id if result.undo else None
        if not result.ok:
            answer["found"] = {name: scene.blob_id(name) for name in steps[number].after}
        os.write(report, json.dumps(answer).encode() + b"\n")

    async def run() -> None:
        async with Surehand(scene.workspace, session="work", plugins=False, **given) as app:
            talk = app.conversation(ScriptedModel(*_script(steps))) if any(step.turn for step in steps) else None
            calls = [ToolCall(step.tool, step.args) for step in steps[:at_once]]
            for number, result in enumerate(await app.run_calls(calls) if calls else ()):
                note(number, result)
            task_id = ""
            for number, step in enumerate(steps[at_once:], at_once):
                if step.turn and talk is not None:
                    await talk.ask(f"turn {number}")
                    continue
                result = await _make(app, step, task_id)
                task_id = str(result.data.get("task_id", task_id)) if isinstance(result.data, dict) else task_id
                note(number, result)

    asyncio.run(run())


def _script(steps: tuple[Step, ...]) -> list[Any]:
    return [each for step in steps if step.turn for each in ([(step.tool, step.args)], "done")]


async def _make(app: Surehand, step: Step, task_id: str) -> ToolResult:
    match step.tool:
        case "ApplyPatch":
            return await app.apply_patch(**step.args)
        case "rewind":
            return await app.rewind(**step.args)
        case "dry run":
            return await app.dry_run("Bash", step.args)
        case "TaskOutput":
            while (result := await app.call("TaskOutput", {"id": task_id})).ok:
                if result.data["status"] == "done":
                    return result
                if result.data["status"] != "in_progress":
                    return ToolResult(ok=False, output=result.output)
                await asyncio.sleep(0.01)
            return result
        case tool:
            return await app.call(tool, step.args)


def through_the_command_line(scene: Scene, steps: tuple[Step, ...]) -> None:
    """Run a scenario on the command line, each step one command, all in one process."""
    scene.enter()
    for step in steps:
        words = ["tools", "invoke", step.tool, "--args", json.dumps(step.args), "--mode", "accept-edits"]
        command_line([*words, "--session", "work", "--allow", "Undo", "--cwd", str(scene.workspace)])


_PERSISTENT: Final = Settings(tools={"Bash": ToolSettings(custom={"persistent": True})})
_ROUGH: Final = {
    "rough": McpServerSettings(
        command=sys.executable, args=("-S", str(Path(__file__).parents[1] / "mcp/rough_server.py"))
    )
}
DOORS: Final[dict[str, tuple[Callable[[Scene, tuple[Step, ...]], None], tuple[Step, ...]]]] = {
    "call": (through_calls, FILES),
    "command": (through_calls, COMMAND),
    "command line": (through_the_command_line, FILES[:3]),
    "tools": (through_calls, TOOLS),
    "persistent shell": (partial(through_calls, settings=_PERSISTENT), SHELL),
    "background": (through_calls, BACKGROUND),
    "dry run": (partial(through_calls, approver=Applies()), DRY_RUN),
    "batch": (partial(through_calls, at_once=len(BATCH)), BATCH),
    "server": (partial(through_calls, mcp_servers=_ROUGH), SERVER),
    "rewind": (through_calls, TURNS),
}
OTHERS: Final = ("persistent shell", "background", "dry run", "batch", "server", "rewind")


def _warm_up(scene: Scene, door: str) -> None:
    """Run a door once in this process, so that its imports do not repeat in every run."""
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
    """Injects faults at random points of a seed, and counts them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._random = random.Random(seed)
        self._whole: dict[str, Traced] = {}
        self.counts: Counter[str] = Counter()

    def point(self, door: str) -> None:
        """Inject one random fault into a run through a door, and check."""
        act, steps = DOORS[door]
        if door not in self._whole:
            _warm_up(self.scene(), door)
            whole = self._whole[door] = tracing.trace(lambda: act(self.scene(), steps))
            assert whole.status == 0, f"without any fault the run through {door} ended with {whole.status}"
        name = self._random.choice(["kill", "kill", *FAULTS])
        size = FAULTS[name].size(self._whole[door])
        # A third of all points lie in the last third of a run, which includes closing.
        first = size * 2 // 3 if self._random.random() < 0.33 else 1
        self.fault(door, name, self._random.randint(first, max(size, 1)))

    def fault(self, door: str, name: str, point: int) -> None:
        """Inject a fault at a point of a run through a door, and check."""
        (act, steps), fault = DOORS[door], FAULTS[name]
        scene = self.scene()
        traced = tracing.trace(
            lambda: act(scene, steps), fault.at(point, str(scene.report)), lasting=fault.lasting, patience_s=60
        )
        self.counts[f"{door}: {name}"] += bool(traced.hit)
        try:
            assert traced.left == 0, "processes were left behind"
            check(scene, steps)
        except BaseException as problem:
            problem.add_note(f"after {door}, {name} {point}: {traced.hit or 'no fault'}; answers: {scene.answers()}")
            raise

    def scene(self) -> Scene:
        shutil.rmtree(self._folder, ignore_errors=True)
        return Scene(self._folder)


def check(scene: Scene, steps: tuple[Step, ...]) -> None:
    """Check every promise, against what the program reported and what a new session finds."""
    os.environ["HOME"], os.environ["SUREHAND_HOME"] = str(scene.folder / "home"), str(scene.folder / "home/state")
    changes = asyncio.run(_check(scene, steps))
    state = locations.workspace_state(str(scene.workspace))
    verified = verify(os.path.join(state, "audit"))
    assert verified.ok, verified
    intents = {each["call"] for each in records(os.path.join(state, "audit")) if each["kind"] == "intent"}
    missing = [each.tool for each in changes if each.call_id and each.call_id not in intents]
    assert missing == [], "a call changed files and was not in the audit before"
    stray = [path for path in scene.workspace.rglob("*") if path.name not in START]
    assert stray == [], "files were left behind"
    journals = Path(state, "journals")
    assert not journals.exists() or os.listdir(journals) == [], "a journal was left behind"
    everything = (scene.folder / "home/state").rglob("*")
    left = [str(path) for path in everything if path.suffix == ".tmp" or path.parent.name == "dry_runs"]
    assert left == [], "temporary files were left in the state folder"


async def _check(scene: Scene, steps: tuple[Step, ...]) -> list[Change]:
    """Check the files, the history and undo in a new session; return all changes of the history."""
    async with Surehand(scene.workspace, session="after", approver=Says("once"), settings=Settings()) as app:
        history = app.session.keep(HISTORY)
        ever = {name: {data} for name, data in START.items()}
        possible: dict[str, set[bytes | None]] = {name: {data} for name, data in START.items()}
        answers = {each["step"]: each for each in scene.answers()}
        for number, step in enumerate(steps):
            answer, before = answers.get(number), {name: {*data} for name, data in possible.items()}
            made = all(answers.get(each, {"ok": steps[each].turn}).get("ok") for each in range(number))
            if step.tool in BACK and not made:
                step = Step(step.tool, {}, {})  # any earlier step may be reverted
                for name, data in ever.items():
                    possible[name] |= data
            unchanged = answer is not None and not answer["ok"] and any(each in answer["output"] for each in _UNCHANGED)
            if unchanged and answer is not None and step.tool not in BACK:
                for name, found in answer.get("found", {}).items():
                    old = {blob_id(data) if data is not None else "" for data in before[name]}
                    assert found in old, f"step {number} said that nothing was changed, and {name} was"
                continue
            for name, data in [*step.after.items(), *step.midway.items()]:
                possible[name].add(data)
                ever[name].add(data)
            if step.args.get("run_in_background"):  # it may have been ended anywhere in its work
                for name, data in steps[number + 1].after.items():
                    possible[name].add(data)
                    ever[name].add(data)
            if answer is not None and answer["ok"] and answer["change"] and step.after:
                change = history.change(answer["change"])
                assert change is not None, f"step {number} was ok and is not in the history"
                for each in change.files:
                    kept = history.content(each.before.digest) if each.before.digest else None
                    assert not each.before.digest or kept is not None, f"the old content of {each.path} is lost"
                    assert kept in before[os.path.basename(each.path)], f"the old content of {each.path} is another"
            if answer is not None and answer["ok"]:
                for name, data in step.after.items():
                    possible[name] = {data}
        _check_files(scene, possible)
        warned = any(
            "cannot all be undone" in each["output"] and "What it changed is kept" not in each["output"]
            for each in answers.values()
        )
        if not warned and history.standing(session_id="session_work"):
            undone = await app.undo(session="work")
            assert undone.ok, undone.output
        if not warned:  # every change, answered or not, was in the history
            _check_files(scene, {name: {data} for name, data in START.items()})
        result = await app.call("Write", {"file_path": "after.txt", "content": "after\n"})
        assert result.ok, result.output
        assert (await app.undo()).ok, "the next session cannot undo"
        return history.changes()


def _check_files(scene: Scene, possible: dict[str, set[bytes | None]]) -> None:
    for name, contents in possible.items():
        path = scene.workspace / name
        found = path.read_bytes() if path.exists() else None
        assert found in contents, f"{name} is neither old nor new"
        assert found is None or path.stat().st_nlink == 1, f"the store shares {name} with the user"


def run_points(folder: Path, seed: int, points: dict[str, int]) -> Counter[str]:
    """Inject the given number of faults at each door; a run that ends before its point is drawn again."""
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
        *((seed, "call", 30) for seed in range(1, 4)),
        *((seed, "tools", 20) for seed in range(4, 6)),
        *((seed, "command", 12) for seed in range(6, 8)),
        *((seed, "command line", 8) for seed in range(8, 10)),
        *((10 + at, door, 5) for at, door in enumerate(OTHERS)),
    ],
)
def test_no_fault_at_any_system_call_breaks_a_promise(tmp_path: Path, seed: int, door: str, count: int) -> None:
    counts = run_points(tmp_path, seed, {door: count})
    assert counts.total() == count, counts


def test_a_read_of_the_history_that_fails_once_costs_none_of_it(tmp_path: Path) -> None:
    act, steps = DOORS["call"]
    run = Run(tmp_path / "scene", seed=0)
    _warm_up(run.scene(), "call")
    reads = tracing.trace(lambda: act(run.scene(), steps)).names["pread64"]
    for at in range(1, reads + 1, 5):
        seen = 0

        def decide(call: Call, at: int = at) -> Decision:
            nonlocal seen
            seen += call.name == "pread64"
            return errno.EIO if call.name == "pread64" and seen == at else None

        scene = run.scene()
        tracing.trace(lambda scene=scene: act(scene, steps), decide)
        check(scene, steps)


def test_a_disk_that_fails_once_when_asked_what_is_there_costs_no_undo(tmp_path: Path) -> None:
    act, steps = DOORS["command"]
    run = Run(tmp_path / "scene", seed=0)
    _warm_up(run.scene(), "command")
    asked = 0
    for at in range(1, 20):
        seen = 0

        def decide(call: Call, at: int = at) -> Decision:
            nonlocal seen
            asks = call.name == "newfstatat" and not call.is_main and call.text(1).endswith("doomed.txt")
            seen += asks
            return errno.EIO if asks and seen == at else None

        scene = run.scene()
        traced = tracing.trace(lambda scene=scene: act(scene, steps), decide)
        check(scene, steps)
        if not traced.hit:
            break
        asked = at
    assert 1 <= asked < 19


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1050))
def test_thousands_of_faults_break_no_promise(
    tmp_path: Path, seed: int, record_property: Callable[[str, object], None]
) -> None:
    counts = run_points(
        tmp_path, seed, {"call": 24, "command": 16, "command line": 8, "tools": 16} | dict.fromkeys(OTHERS, 6)
    )
    record_property("counted", dict(counts))
    assert counts.total() == 100, counts


def test_a_disk_that_fails_once_when_a_change_is_recorded_makes_no_file_look_deleted(tmp_path: Path) -> None:
    act, steps = DOORS["command"]
    run = Run(tmp_path / "scene", seed=0)
    _warm_up(run.scene(), "command")
    for at in range(1, 40):
        seen = 0

        def decide(call: Call, at: int = at) -> Decision:
            nonlocal seen
            asks = call.name == "newfstatat" and call.is_main and call.text(1).endswith("/small.txt")
            seen += asks
            return errno.EIO if asks and seen == at else None

        scene = run.scene()
        hit = tracing.trace(lambda scene=scene: act(scene, steps), decide).hit
        check(scene, steps)
        if not hit:
            break
    assert 1 < at < 39


def test_a_list_of_changes_that_cannot_be_opened_once_costs_no_undo(tmp_path: Path) -> None:
    act, steps = DOORS["command"]
    run = Run(tmp_path / "scene", seed=0)
    _warm_up(run.scene(), "command")
    seen = 0

    def decide(call: Call) -> Decision:
        nonlocal seen
        opens = call.name == "openat" and call.is_main and call.text(1).endswith("/list")
        seen += opens
        return errno.EMFILE if opens and seen == 1 else None

    scene = run.scene()
    assert tracing.trace(lambda: act(scene, steps), decide).hit
    assert [each["ok"] for each in scene.answers()] == [True, True]
    check(scene, steps)


def test_too_many_open_files_while_a_command_is_recorded_costs_no_undo(tmp_path: Path) -> None:
    act, steps = DOORS["command"]
    run = Run(tmp_path / "scene", seed=0)
    _warm_up(run.scene(), "command")
    opened = tracing.trace(lambda: act(run.scene(), steps)).names["openat"]
    for at in range(opened - 90, opened - 50, 2):  # about where what the command changed is read
        seen = 0

        def decide(call: Call, at: int = at) -> Decision:
            nonlocal seen
            seen += call.name == "openat"
            return errno.EMFILE if call.name == "openat" and seen == at else None

        scene = run.scene()
        tracing.trace(lambda scene=scene: act(scene, steps), decide)
        check(scene, steps)


def test_a_command_whose_supervisor_dies_while_it_gets_ready_fails_at_once_and_the_next_one_runs(
    tmp_path: Path,
) -> None:
    command = Step("Bash", {"command": "echo made > made.txt", "timeout": 20_000}, {"made.txt": b"made\n"})
    act, steps = DOORS["command"][0], (command, command)
    run = Run(tmp_path / "scene", seed=0)
    _warm_up(run.scene(), "command")  # what the system can do is tried by processes of their own, once

    def decide(call: Call) -> Decision:
        return KILL_CALLER if not call.is_main and call.name == "prctl" and call.args[0] == NO_NEW_PRIVS else None

    scene = run.scene()
    assert tracing.trace(lambda: act(scene, steps), decide).hit == "kill caller a child at prctl"
    first, second = scene.answers()
    assert not first["ok"]
    assert "the process that watched over it was killed" in first["output"]
    assert second["ok"], second


def test_why_a_large_file_could_not_be_saved_is_said(tmp_path: Path) -> None:
    act, steps = DOORS["command"][0], (Step("Bash", {"command": "echo more >> large.txt"}),)
    run = Run(tmp_path / "scene", seed=0)
    _warm_up(run.scene(), "command")

    def decide(call: Call) -> Decision:
        saves = not call.is_main and call.name == "openat" and re.fullmatch(r"\d+-\d+", call.text(1)) is not None
        return errno.ENOSPC if saves else None

    scene = run.scene()
    assert tracing.trace(lambda: act(scene, steps), decide).hit
    assert "large.txt (No space left on device)" in scene.answers()[0]["output"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's IDs are mapped by a helper process")
@pytest.mark.parametrize("decision", [errno.EIO, KILL_CALLER])
def test_a_launcher_that_fails_while_its_ids_are_mapped_leaves_no_process(tmp_path: Path, decision: Decision) -> None:
    act, steps = DOORS["command"]
    run = Run(tmp_path / "scene", seed=0)
    _warm_up(run.scene(), "command")

    def decide(call: Call) -> Decision:
        starts_helper = not call.is_main and call.name == "write" and call.memory(call.args[1], call.args[2]) == b"x"
        return decision if starts_helper else None

    scene = run.scene()
    traced = tracing.trace(lambda: act(scene, steps), decide, patience_s=5)
    assert "a child at write" in traced.hit
    assert traced.left == 0
    check(scene, steps)


def test_a_command_whose_end_is_signalled_in_vain_ends_all_the_same(tmp_path: Path) -> None:
    command = Step("Bash", {"command": "echo made > made.txt", "timeout": 20_000}, {"made.txt": b"made\n"})
    act, steps = DOORS["command"][0], (command,)
    run = Run(tmp_path / "scene", seed=0)
    _warm_up(run.scene(), "command")

    def decide(call: Call) -> Decision:
        if call.is_main or call.name != "write" or call.args[2] != 1:
            return None
        return errno.EIO if call.memory(call.args[1], 1) == bytes([signal.SIGCHLD]) else None

    scene = run.scene()
    assert tracing.trace(lambda: act(scene, steps), decide).hit == "EIO a child at write"
    [answer] = scene.answers()
    assert answer["ok"], answer
    check(scene, steps)


def test_a_dry_run_whose_copy_cannot_be_read_deletes_nothing(tmp_path: Path) -> None:
    act, steps = DOORS["dry run"]
    run = Run(tmp_path / "scene", seed=0)
    _warm_up(run.scene(), "dry run")
    for at in range(1, 20):
        seen = 0

        def decide(call: Call, at: int = at) -> Decision:
            nonlocal seen
            path = call.text(1) if call.is_main and call.name == "newfstatat" else ""
            seen += "/dry_runs/" in path and path.endswith("small.txt")
            return errno.EIO if seen == at else None

        scene = run.scene()
        hit = tracing.trace(lambda scene=scene: act(scene, steps), decide).hit
        check(scene, steps)
        if not hit:
            return
    raise AssertionError("so often nobody looks at one file")


def test_what_a_full_disk_kept_from_the_list_of_changes_is_said_and_not_promised(tmp_path: Path) -> None:
    act, steps = DOORS["command"]
    run = Run(tmp_path / "scene", seed=0)
    _warm_up(run.scene(), "command")
    scene, is_full = run.scene(), False

    def decide(call: Call) -> Decision:
        """Fill the disk when the command changes something, and take also the room that was set aside."""
        nonlocal is_full
        if call.name not in _TAKE_ROOM or (path := call.file()) == str(scene.report):
            return None
        is_full = is_full or path.endswith("/list")
        takes_room = call.name.startswith("mkdir") or (path and _room_for(call) > 0)
        return errno.ENOSPC if is_full and takes_room else None

    assert tracing.trace(lambda: act(scene, steps), decide, lasting=True).hit
    output = scene.answers()[0]["output"]
    assert "made.txt (no room for the list of changes)" in output
    assert "What else it changed is kept" in output
    check(scene, steps)
