"""kill -9 before every system call of write, edit, undo and closing: old or new bytes, no stray files, a sound history.

All threads are followed. `test_fault_run.py` does the same to the whole program with its children.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.faults import tracing
from tests.tools.workbench import Workbench, failure

from surehand.commands.dry_run import Applying, remember
from surehand.commands.dry_run_copies import TreeCopy
from surehand.files.trees import remove_tree
from surehand.history.words import Author

pytestmark = pytest.mark.skipif(not tracing.available(), reason="no child can be traced here")

SMALL_OLD, SMALL_NEW = b"one\ntwo\nthree\n", b"one\n2\nthree\n"
LARGE_OLD = b"".join(b"line %d of a file that is linked into the store\n" % n for n in range(4000))
LARGE_NEW = LARGE_OLD.replace(b"line 2000 of", b"LINE 2000 of")
HUGE_OLD = LARGE_OLD + b"a line of a file whose digest is worked out beside the write\n" * 15_000
HUGE_NEW = HUGE_OLD.replace(b"line 2000 of", b"LINE 2000 of")


@dataclass(frozen=True)
class Case:
    """One operation: how its folder is prepared, what it does, and the contents before and after."""

    prepare: Callable[[Workbench], object]
    act: Callable[[Workbench], object]
    before: dict[str, bytes | None]
    after: dict[str, bytes | None]


def edited_twice(bench: Workbench) -> None:
    bench.put("a", SMALL_OLD)
    bench.put("dir/b", b"x\n")
    bench.edit("a", "two", "2")
    bench.edit("dir/b", "x", "y")
    bench.write("made/c", "c\n")


def applied(bench: Workbench) -> None:
    """Apply a dry run: a file changed, a folder gone, another made."""
    copy = TreeCopy.make(str(bench.root.parent / "dry_run"), str(bench.root))
    shutil.rmtree(os.path.join(copy.copy, "dir"))
    Path(copy.copy, "a").write_bytes(SMALL_NEW)
    Path(copy.copy, "made").mkdir()
    Path(copy.copy, "made/c").write_bytes(b"c\n")
    found = copy.differences()
    root = [str(bench.root)]
    applying = Applying(found, remember(found), roots=root, recorded=root, forbidden=lambda path: False)
    applying.apply(bench.history, Author("Bash", session_id=bench.session.id, main_session_id=bench.session.id))


CASES = {
    "write a new file in new folders": Case(
        lambda bench: None, lambda bench: bench.write("x/y/a", "new\n"), {"x/y/a": None}, {"x/y/a": b"new\n"}
    ),
    "write over a file": Case(
        lambda bench: bench.put("a", SMALL_OLD),
        lambda bench: (bench.read("a"), bench.write("a", SMALL_NEW.decode())),
        {"a": SMALL_OLD},
        {"a": SMALL_NEW},
    ),
    "edit a small file": Case(
        lambda bench: bench.put("a", SMALL_OLD),
        lambda bench: (bench.read("a"), bench.edit("a", "two", "2")),
        {"a": SMALL_OLD},
        {"a": SMALL_NEW},
    ),
    "edit a large file": Case(
        lambda bench: bench.put("a", LARGE_OLD),
        lambda bench: (bench.read("a"), bench.edit("a", "line 2000 of", "LINE 2000 of")),
        {"a": LARGE_OLD},
        {"a": LARGE_NEW},
    ),
    "edit a file of a megabyte": Case(
        lambda bench: bench.put("a", HUGE_OLD),
        lambda bench: (bench.read("a"), bench.edit("a", "line 2000 of", "LINE 2000 of")),
        {"a": HUGE_OLD},
        {"a": HUGE_NEW},
    ),
    "undo one change": Case(
        lambda bench: (bench.put("a", SMALL_OLD), bench.edit("a", "two", "2")),
        lambda bench: bench.call("Undo"),
        {"a": SMALL_NEW},
        {"a": SMALL_OLD},
    ),
    "undo a session of several files": Case(
        edited_twice,
        lambda bench: bench.call("Undo", session="s"),
        {"a": SMALL_NEW, "dir/b": b"y\n", "made/c": b"c\n"},
        {"a": SMALL_OLD, "dir/b": b"x\n", "made/c": None},
    ),
    "apply a dry run": Case(
        lambda bench: (bench.put("a", SMALL_OLD), bench.put("dir/b", b"x\n"), bench.put("dir/e/f", b"f\n")),
        applied,
        {"a": SMALL_OLD, "dir/b": b"x\n", "dir/e/f": b"f\n", "made/c": None},
        {"a": SMALL_NEW, "dir/b": None, "dir/e/f": None, "made/c": b"c\n"},
    ),
}


def contents(bench: Workbench, names: dict[str, bytes | None]) -> dict[str, bytes | None]:
    return {name: path.read_bytes() if (path := bench.root / name).exists() else None for name in names}


def kill_at_points(case: Case, folder: Path, most: int | None) -> int:
    """Kill at (at most `most`) points spread over the operation; return how many there were."""
    template = folder / "template"
    template.mkdir()
    prepared = Workbench(template)
    case.prepare(prepared)
    prepared.history.close()
    whole = tracing.trace(lambda: _act(case, _copy(template, folder / "count")))
    assert whole.status == 0
    calls = whole.calls
    step = 1 if most is None else max(1, calls // most)
    outcomes: set[bool] = set()
    points = range(1, calls + 1, step)
    for point in points:
        scene = _copy(template, folder / "scene")
        killed(lambda scene=scene: _act(case, scene), point)
        outcomes.add(judged(case, scene))
        remove_tree(str(scene))  # also folders of a dry run that an ordinary user may not enter
    assert outcomes == {True, False}, "the points must lie on both sides of the change"
    return len(points)


def killed(action: Callable[[], object], point: int) -> None:
    """Run an action and kill it before its system call number `point`, of whichever thread."""
    tracing.trace(action, lambda call: tracing.KILL if call.count == point else None)


def _copy(template: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(template, target, symlinks=True)
    _move_history(target, template)
    return target


def _move_history(target: Path, template: Path) -> None:
    """Rewrite the paths in the copied history to those of the copied files."""
    import sqlite3

    with sqlite3.connect(target / "state/history/history.db") as database:
        database.execute("UPDATE change SET files = replace(files, ?, ?)", (f"{template}/", f"{target}/"))
    database.close()


def _act(case: Case, scene: Path) -> None:
    case.act(Workbench(scene))


def judged(case: Case, scene: Path) -> bool:
    """Check everything that must hold after a kill and a recovery; return whether the change had happened."""
    bench = Workbench(scene)
    torn = contents(bench, case.before)
    for name, found in torn.items():
        assert found in (case.before[name], case.after[name]), f"{name} is torn"
    latest = bench.history.changes(limit=1)  # opening recovers
    found = contents(bench, case.before)
    assert found in (case.before, case.after), "some files changed and others did not"
    stray = [path for path in scene.rglob("*") if path.name.endswith((".tmp", ".part"))]
    assert stray == []
    assert bench.history.log.intents() == []
    if latest and latest[0].kind == "undo":
        undone = [bench.history.change(id) for id in latest[0].about]
        assert {each.state for each in undone if each} == {"undone"}
    happened = found == case.after
    for name in case.before:
        path = bench.root / name
        assert not path.exists() or path.stat().st_nlink == 1, "the store shares a file with the user"
    if happened and case.before != case.after:
        reverse = "Redo" if latest[0].kind == "undo" else "Undo"
        bench.call(reverse)
        assert contents(bench, case.before) == case.before
    elif not latest:
        assert "nothing to undo" in failure(lambda: bench.call("Undo")).message
    bench.history.close()
    return happened


@pytest.mark.parametrize("name", CASES)
def test_a_kill_leaves_old_or_new_bytes_and_a_history_that_recovers(name: str, tmp_path: Path) -> None:
    assert kill_at_points(CASES[name], tmp_path, most=30) > 20


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_kill_before_every_system_call(name: str, tmp_path: Path) -> None:
    kill_at_points(CASES[name], tmp_path, most=None)


def close_at_points(folder: Path, most: int | None) -> None:
    """Kill a closing history at its system calls; nothing that could be taken back before may be lost."""
    template = folder / "template"
    template.mkdir()
    bench = Workbench(template)
    old = {f"f{n}": f"{n}\n".encode() * 80_000 for n in range(3)} | {"small": b"one\n" * 200}
    for name, data in old.items():
        bench.put(name, data)
        bench.write(name, "new\n")
    bench.history.flush()
    whole = tracing.trace(lambda: Workbench(_copy(template, folder / "count")).history.close())
    assert whole.status == 0
    for point in range(1, whole.calls + 1, 1 if most is None else max(1, whole.calls // most)):
        scene = _copy(template, folder / "scene")
        killed(lambda scene=scene: Workbench(scene).history.close(), point)
        after = Workbench(scene)
        after.call("Undo", session="s")
        assert contents(after, dict.fromkeys(old)) == old
        after.history.close()
        remove_tree(str(scene))
    bench.history.close()


@pytest.mark.spec("SESS-5")
def test_a_kill_while_closing_loses_nothing_that_could_be_taken_back(tmp_path: Path) -> None:
    close_at_points(tmp_path, most=40)


@pytest.mark.slow
def test_a_kill_before_every_system_call_of_closing(tmp_path: Path) -> None:
    close_at_points(tmp_path, most=None)
