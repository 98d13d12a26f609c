"""Undo and Redo: one, back to a point, a whole session; never over newer work unless forced."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest
from pydantic import ValidationError
from tests.tools.workbench import TOOLS, Workbench, failure

from surehand.core.effects import DeletePath, WritePath
from surehand.core.events import Event
from surehand.core.settings import HistorySettings, Settings
from surehand.history.disk import state_at
from surehand.history.words import ABSENT, Author, FileChange, FileState
from surehand.testing import Says, scratch_app


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return Workbench(tmp_path)


def text(bench: Workbench, name: str = "a") -> str:
    return (bench.root / name).read_text()


def count_up(bench: Workbench, last: int, name: str = "a") -> list[str]:
    """Edit a file from 0 to `last`; return the ids of the changes."""
    bench.put(name, "0\n")
    results = [bench.edit(name, f"{n}\n", f"{n + 1}\n") for n in range(last)]
    return [result.undo.change_id for result in results if result.undo]


@pytest.mark.spec("FILE-7")
def test_undo_goes_back_step_by_step_and_redo_forward(bench: Workbench) -> None:
    count_up(bench, 3)
    seen: list[str] = []
    for tool in ("Undo", "Undo", "Redo", "Undo", "Undo", "Redo", "Redo", "Redo"):
        bench.call(tool)
        seen.append(text(bench).strip())
    assert seen == ["2", "1", "2", "1", "0", "1", "2", "3"]
    assert "nothing to redo" in failure(lambda: bench.call("Redo")).message


@pytest.mark.spec("SESS-2")
def test_undo_takes_back_the_latest_change_of_its_own_session_unless_others_are_named(tmp_path: Path) -> None:
    first, second = Workbench(tmp_path, name="one"), Workbench(tmp_path, name="two")
    first.write("a", "1")
    second.write("b", "2")
    first.call("Undo")
    assert [path.name for path in first.root.iterdir()] == ["b"]
    problem = failure(lambda: first.call("Undo"))
    assert "nothing to undo in session_one" in problem.message
    assert "2, of session_two" in problem.hint
    assert "of session_two" in first.preview("Undo", all_sessions=True).text
    assert "of session_two" in first.call("Undo", all_sessions=True).output
    assert not list(first.root.iterdir())


def test_undo_to_a_point_takes_back_all_after_it(bench: Workbench) -> None:
    ids = count_up(bench, 5)
    bench.write("new", "x")
    bench.call("Undo", to=ids[1])
    assert text(bench) == "2\n"
    assert not (bench.root / "new").exists()
    bench.call("Redo")
    assert text(bench) == "5\n"
    assert text(bench, "new") == "x"


def test_undo_of_a_session_leaves_the_others(tmp_path: Path) -> None:
    one, two = Workbench(tmp_path, name="one"), Workbench(tmp_path, name="two")
    one.write("a", "1")
    two.write("b", "2")
    one.write("c/d", "3")
    two.call("Undo", session="one")
    assert sorted(path.name for path in one.root.iterdir()) == ["b"]
    assert "nothing to undo in session" in failure(lambda: one.call("Undo", session="one")).message


def test_undo_of_a_file_changed_since_is_refused_with_a_diff_unless_forced(bench: Workbench) -> None:
    path = bench.put("a", "one\n")
    bench.edit("a", "one", "two")
    path.write_text("two\nmine\n")
    problem = failure(lambda: bench.call("Undo"))
    assert problem.code == "precondition_failed"
    assert "+mine" in problem.details["diff"]
    assert path.read_text() == "two\nmine\n"
    bench.call("Undo", force=True)
    assert path.read_text() == "one\n"
    bench.call("Redo")
    assert path.read_text() == "two\nmine\n"


def test_one_change_among_later_ones_is_refused(bench: Workbench) -> None:
    ids = count_up(bench, 3)
    assert failure(lambda: bench.call("Undo", change_id=ids[0])).code == "precondition_failed"
    bench.put("b", "x\n")
    only = bench.edit("b", "x", "y")
    count_up(bench, 1, "c")
    assert only.undo is not None
    bench.call("Undo", change_id=only.undo.change_id)
    assert text(bench, "b") == "x\n"


def test_work_of_somebody_else_between_two_changes_stops_an_undo_over_both(bench: Workbench) -> None:
    path = bench.put("a", "one\n")
    first = bench.edit("a", "one", "two")
    path.write_text("two\nmine\n")
    bench.read("a")
    bench.edit("a", "two", "three")
    assert first.undo is not None
    before = str(int(first.undo.change_id) - 1)
    bench.write("other", "x")
    problem = failure(lambda: bench.call("Undo", session="s"))
    assert problem.details["paths"] == [str(path)]
    assert failure(lambda: bench.call("Undo", to=before)).message == f"there is no change {before}"


def test_an_undo_is_undone_by_its_own_id(bench: Workbench) -> None:
    count_up(bench, 1)
    undone = bench.call("Undo")
    assert undone.undo is not None
    redone = bench.call("Undo", change_id=undone.undo.change_id)
    assert text(bench) == "1\n"
    assert redone.undo is not None
    bench.call("Undo", change_id=redone.undo.change_id)
    assert text(bench) == "0\n"


def test_an_undo_of_very_many_paths_names_the_first_and_counts_the_rest(bench: Workbench) -> None:
    for number in range(60):
        bench.call("Write", file_path=f"{number:02}", content="x")
    result = bench.call("Undo", session=bench.session.id)
    assert len(result.data["paths"]) == 60
    assert result.output.count("  removed") == 50
    assert result.output.endswith("... and 10 more paths")


def test_a_change_is_not_undone_twice(bench: Workbench) -> None:
    [only] = count_up(bench, 1)
    bench.call("Undo", change_id=only)
    assert "already" in failure(lambda: bench.call("Undo", change_id=only)).message


def test_unknown_and_contradicting_wishes_are_refused(bench: Workbench) -> None:
    for wish in ("77", "x", "", "9" * 30, "-1", "٣"):
        assert "there is no change" in failure(lambda wish=wish: bench.call("Undo", change_id=wish)).message
    with pytest.raises(ValidationError, match="together with change_id"):
        bench.call("Undo", change_id="1", to="2")
    assert "nothing to undo" in failure(lambda: bench.call("Undo")).message


def test_created_files_and_folders_go_and_come_back(bench: Workbench) -> None:
    bench.write("x/y/z.txt", "z")
    modes = [(bench.root / name).stat().st_mode for name in ("x", "x/y")]
    bench.call("Undo")
    assert os.listdir(bench.root) == []
    bench.call("Redo")
    assert text(bench, "x/y/z.txt") == "z"
    assert [(bench.root / name).stat().st_mode for name in ("x", "x/y")] == modes


def test_a_folder_somebody_uses_by_now_stays(bench: Workbench) -> None:
    bench.write("x/a", "a")
    (bench.root / "x/mine").write_text("mine")
    bench.call("Undo")
    assert os.listdir(bench.root / "x") == ["mine"]


def keep_state(bench: Workbench, name: str) -> FileState:
    state, data = state_at(bench.path(name))
    if data is not None:
        bench.history.keep_bytes(data)
    return state


def test_what_a_command_did_is_undone_whole(bench: Workbench) -> None:
    """Files changed, deleted, made executable, links and folders, as a command's recorder reports them."""
    root = bench.root
    bench.put("changed", "old\n")
    bench.put("gone", "gone\n")
    bench.put("script", "#!/bin/sh\n").chmod(0o644)
    os.symlink("changed", root / "link")
    names = ["changed", "gone", "script", "link", "dir", "dir/new"]
    before = {name: keep_state(bench, name) for name in names}
    (root / "changed").write_text("new\n")
    (root / "gone").unlink()
    (root / "script").chmod(0o755)
    (root / "link").unlink()
    os.symlink("script", root / "link")
    (root / "dir").mkdir()
    (root / "dir/new").write_bytes(b"\0binary")
    changes = [FileChange(bench.path(name), before[name], keep_state(bench, name)) for name in names]
    bench.history.record(Author("Bash", "c", "session_s", "make a mess"), changes)
    for _ in range(2):
        bench.call("Undo")
        assert text(bench, "changed") == "old\n"
        assert text(bench, "gone") == "gone\n"
        assert stat.S_IMODE((root / "script").stat().st_mode) == 0o644
        assert os.readlink(root / "link") == "changed"
        assert not (root / "dir").exists()
        bench.call("Redo")
        assert text(bench, "changed") == "new\n"
        assert not (root / "gone").exists()
        assert stat.S_IMODE((root / "script").stat().st_mode) == 0o755
        assert os.readlink(root / "link") == "script"
        assert (root / "dir/new").read_bytes() == b"\0binary"


def test_a_mode_changed_by_the_user_survives_the_undo_of_an_edit(bench: Workbench) -> None:
    path = bench.put("a", "one\n")
    bench.edit("a", "one", "two")
    path.chmod(0o755)
    bench.call("Undo")
    assert stat.S_IMODE(path.stat().st_mode) == 0o755


def test_effects_and_the_dry_run_name_every_file(bench: Workbench) -> None:
    count_up(bench, 1)
    bench.write("new", "x\n")
    tool, ctx = TOOLS["Undo"], bench.context("Undo")
    assert tool.effects is not None
    assert tool.effects(tool.arguments.parse({}), ctx) == [DeletePath(bench.path("new"))]
    assert tool.effects(tool.arguments.parse({"change_id": "1"}), ctx) == [WritePath(bench.path("a"))]
    shown = bench.preview("Undo", change_id="1")
    assert "-1\n+0\n" in shown.diff
    assert text(bench) == "1\n"


def test_after_an_undo_the_session_may_go_on_editing(bench: Workbench) -> None:
    count_up(bench, 2)
    bench.call("Undo")
    bench.edit("a", "1\n", "one\n")
    assert text(bench) == "one\n"


def test_the_log_lists_undo_and_events_are_sent(bench: Workbench) -> None:
    count_up(bench, 1)
    bench.call("Undo")
    kinds = [(change.kind, change.state, change.tool) for change in bench.history.changes()]
    assert kinds == [("undo", "done", "Undo"), ("change", "undone", "Edit")]
    changed = [event.data["action"] for event in bench.events if event.kind == "file_changed"]
    assert changed == ["changed", "changed"]


def test_a_link_put_in_the_way_is_not_followed_out(bench: Workbench, tmp_path: Path) -> None:
    bench.write("dir/a", "1")
    bench.read("dir/a")
    bench.write("dir/a", "2")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/a").write_text("secret")
    (bench.root / "dir").rename(bench.root / "moved")
    os.symlink(tmp_path / "out", bench.root / "dir")
    assert "secret" not in str(failure(lambda: bench.call("Undo")).details)
    assert "secret" not in str(failure(lambda: bench.preview("Undo")).details)
    failure(lambda: bench.call("Undo", force=True))
    assert (tmp_path / "out/a").read_text() == "secret"


def test_absent_before_and_after_is_harmless(bench: Workbench) -> None:
    change = FileChange(bench.path("x"), ABSENT, ABSENT)
    bench.history.record(Author("Bash", "c", "session_s"), [change])
    bench.call("Undo")
    assert not (bench.root / "x").exists()


def test_an_undo_under_a_later_change_names_it_and_one_of_a_moved_file_says_that_it_is_gone(tmp_path: Path) -> None:
    bench = Workbench(tmp_path)
    path = bench.put("a", "one\ntwo\n")
    first = bench.edit("a", "one", "1").data["change_id"]
    second = bench.edit("a", "two", "2").data["change_id"]
    problem = failure(lambda: bench.call("Undo", change_id=first))
    assert f"Change {second} came later" in problem.hint
    assert problem.details["later"] == [second]
    path.rename(path.with_name("b"))
    problem = failure(lambda: bench.call("Undo"))
    assert "is gone (moved or deleted) since" in problem.message
    assert problem.details["later"] == []


def test_an_undo_under_many_later_changes_names_a_few_and_the_way(tmp_path: Path) -> None:
    bench = Workbench(tmp_path)
    bench.put("a", "0\n")
    ids = [bench.edit("a", f"{number}\n", f"{number + 1}\n").data["change_id"] for number in range(30)]
    problem = failure(lambda: bench.call("Undo", change_id=ids[4]))
    assert problem.details["later"] == ids[:4:-1]
    assert f"{ids[20]} and 15 more came later" in problem.hint
    assert f"`--to {ids[4]}` takes back all after it" in problem.hint


def test_a_name_with_line_feeds_adds_no_lines_to_what_an_undo_says(tmp_path: Path) -> None:
    bench = Workbench(tmp_path)
    bench.write("a\n  removed b", "x\n")
    assert bench.call("Undo").output.splitlines()[1:] == [f"  removed {bench.root}/a\\n  removed b"]


def test_an_undo_through_a_folder_that_became_a_link_is_refused_and_says_why(tmp_path: Path) -> None:
    bench = Workbench(tmp_path)
    bench.put("d/f", "one\n")
    bench.edit("d/f", "one", "1")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/f").write_text("1\n")
    (bench.root / "d").rename(bench.root / "e")
    (bench.root / "d").symlink_to(tmp_path / "outside")
    for force in (False, True):
        assert "is now a link" in failure(lambda force=force: bench.call("Undo", force=force)).message
    assert (tmp_path / "outside/f").read_text() == "1\n"


def test_an_undo_says_which_folder_it_left_and_what_stands_in_its_way(tmp_path: Path) -> None:
    bench = Workbench(tmp_path)
    bench.write("d/f", "x\n")
    other = bench.root / "d/other"
    other.write_text("somebody's\n")
    assert f"left {bench.root}/d, which is not empty" in bench.call("Undo").output
    assert other.exists()
    path = bench.put("g", "one\n")
    bench.edit("g", "one", "1")
    path.unlink()
    os.mkfifo(path)
    assert "is a pipe, a socket or a device now" in failure(lambda: bench.call("Undo", force=True)).message


def test_what_came_and_went_in_a_session_is_left_alone_by_its_undo(tmp_path: Path) -> None:
    bench = Workbench(tmp_path)
    path = bench.put("a", "one\n")
    kept = bench.put("b", "two\n")
    for old, new in (("one", "1"), ("1", "one")):
        bench.edit("a", old, new)
    bench.edit("b", "two", "2")
    path.write_text("somebody else's\n")
    result = bench.call("Undo", session="s")
    assert result.data["paths"] == [str(kept)]
    assert (path.read_text(), kept.read_text()) == ("somebody else's\n", "two\n")
    bench.call("Redo")
    assert (path.read_text(), kept.read_text()) == ("somebody else's\n", "2\n")


def test_a_session_whose_changes_cancel_out_is_undone_all_the_same(tmp_path: Path) -> None:
    bench = Workbench(tmp_path)
    path = bench.put("a", "one\n")
    for old, new in (("one", "1"), ("1", "one")):
        bench.edit("a", old, new)
    assert bench.call("Undo", session="s").ok
    assert path.read_text() == "one\n"
    assert "nothing to undo in session" in failure(lambda: bench.call("Undo", session="s")).message


def test_whoever_listens_is_told_that_old_changes_were_dropped(tmp_path: Path) -> None:
    bench = Workbench(tmp_path, limit_mb=1)
    for number in range(4):
        bench.put(f"f{number}", os.urandom(200_000).hex())
        bench.write(f"f{number}", "short\n")
    bench.history.close()
    notes = [event.data["message"] for event in bench.events if event.kind == "note"]
    assert any("older changes were dropped: the history is limited to 1 MB" in note for note in notes)


async def test_the_result_of_the_change_that_displaced_older_ones_says_so(tmp_path: Path) -> None:
    async with scratch_app(tmp_path, settings=Settings(history=HistorySettings(limit_mb=1))) as app:
        outputs: list[str] = []
        for number in range(6):
            (tmp_path / f"f{number}").write_text(os.urandom(200_000).hex())
            await app.call("Read", {"file_path": f"f{number}", "limit": 1})
            result = await app.call("Bash", {"command": f"echo short > f{number}"})
            assert result.ok, result.output
            outputs.append(result.output)
        later = await app.call("Bash", {"command": "true"})
    assert "dropped" not in outputs[0]
    assert any("dropped: the history is limited to 1 MB (history.limit_mb)]" in output for output in outputs[2:])
    assert "dropped" not in later.output


async def test_what_is_shown_of_an_undo_holds_no_secret(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("KEY=canary\n")
    (tmp_path / "a").write_text("plain\n")
    make = "git init -q && git add -A && git -c user.name=n -c user.email=e commit -qm m"
    subprocess.run(["bash", "-c", make], cwd=tmp_path, check=True)
    async with scratch_app(tmp_path, approver=Says("once")) as app:
        assert (await app.call("Bash", {"command": "git worktree add w HEAD"})).ok
        assert (tmp_path / "w" / ".env").exists()
        done = await app.call("Undo")
        assert "-plain" in done.data["diff"]
        assert "canary" not in f"{done.output}{done.data}"
    assert not (tmp_path / "w" / ".env").exists()


async def test_an_undo_succeeds_though_a_file_it_restored_is_removed_at_once(tmp_path: Path) -> None:
    async with scratch_app(tmp_path) as app:
        for name in ("a", "b"):
            (tmp_path / name).write_text("old\n")
            assert (await app.call("Read", {"file_path": name})).ok
            assert (await app.call("Edit", {"file_path": name, "old_string": "old", "new_string": "new"})).ok

        def remove_other(event: Event) -> None:
            (tmp_path / ("b" if event.data["path"].endswith("a") else "a")).unlink(missing_ok=True)

        app.bus.subscribe(remove_other, kinds=("file_changed",))
        result = await app.call("Undo", {"last": 2})
        assert result.ok, result.output
        assert len(result.data["paths"]) == 2
