"""Undo as people mean it: the last change, a turn, a session, a moment, a file; caches and others' work left alone."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests.users import USERS, somebody

from surehand import Settings, Surehand
from surehand.core.call import ToolResult
from surehand.history.history import HISTORY
from surehand.policy.approval import Answer, Question
from surehand.search.ignore_files import KeptFiles
from surehand.testing import Says, scratch_app
from surehand.tools.history import moment


async def write(app: Surehand, name: str, text: str = "x\n") -> str:
    result = await app.call("Write", {"file_path": name, "content": text})
    assert result.undo is not None, result.error
    return result.undo.change_id


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and ".git/" not in str(path)}


def error(result: ToolResult) -> str:
    assert result.error is not None
    return result.error.text


@pytest.mark.spec("SESS-2")
async def test_undo_after_an_edit_and_a_test_run_takes_back_the_edit(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\n")
    async with scratch_app(tmp_path, mode="accept-edits") as app:
        await app.call("Read", {"file_path": "a.py"})
        await app.call("Edit", {"file_path": "a.py", "old_string": "one", "new_string": "two"})
        await app.call(
            "Bash", {"command": "mkdir -p .pytest_cache/v __pycache__; touch .pytest_cache/v/x __pycache__/a.pyc"}
        )
        result = await app.undo()
        assert result.ok, error(result)
        assert (tmp_path / "a.py").read_text() == "one\n"
        assert (tmp_path / ".pytest_cache/v/x").exists()
        assert "nothing to undo" in error(await app.undo())
        assert (await app.undo(all=True)).ok
    assert files(tmp_path) == {"a.py"}


@pytest.mark.spec("SESS-2")
async def test_a_command_that_changed_both_leaves_its_cache_files_alone_and_says_how_many(tmp_path: Path) -> None:
    (tmp_path / "gone.txt").write_text("old\n")
    command = "mkdir .cache; for n in 1 2 3; do echo $n > .cache/$n; done; rm gone.txt; echo new > new.txt"
    async with scratch_app(tmp_path) as app:
        assert (await app.call("Bash", {"command": command})).ok
        shown = await app.undo(dry_run=True)
        assert "left alone" in shown.output
        result = await app.undo()
        first = result.output.splitlines()[0]
        assert first.endswith("restored 1 file, removed 1 (and 4 cache or ignored files left alone)")
        assert files(tmp_path) == {"gone.txt", ".cache/1", ".cache/2", ".cache/3"}
        await app.undo(file=".cache/2")
        assert files(tmp_path) == {"gone.txt", ".cache/1", ".cache/3"}
        await app.redo()
        await app.redo()
        assert files(tmp_path) == {"new.txt", ".cache/1", ".cache/2", ".cache/3"}
        change = (await app.changes(limit=10)).data["changes"][-1]
        assert change["state"] == "done"
        assert (await app.undo(change["id"])).ok
    assert files(tmp_path) == {"gone.txt"}


@pytest.mark.spec("SESS-2")
async def test_ignored_files_follow_the_rules_of_git_and_what_it_tracks_is_kept(tmp_path: Path) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    (tmp_path / ".gitignore").write_text("*.log\nout/\n!keep.log\n")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/tracked").write_text("t")
    for version in ("2", "4"):
        subprocess.run([*git, "-c", f"index.version={version}", "add", "-f", "out/tracked", ".gitignore"], check=True)
        kept = KeptFiles([str(tmp_path)])
        names = ["a.txt", "a.log", "keep.log", "out/x", "out/tracked", "deep/gone/b.log", "__pycache__/m.pyc"]
        assert [name for name in names if kept(f"{tmp_path}/{name}")] == ["a.txt", "keep.log", "out/tracked"]


async def test_a_turn_is_taken_back_and_brought_back_as_one(tmp_path: Path) -> None:
    async with scratch_app(tmp_path, mode="accept-edits") as app:
        await write(app, "before")
        turn = app.session.begin_turn()
        await write(app, "a")
        await write(app, "b")
        app.session.end_turn()
        await app.undo(turn="last")
        assert files(tmp_path) == {"before"}
        await app.redo()
        assert files(tmp_path) == {"before", "a", "b"}
        await write(app, "after")
        await app.undo(turn=turn)
        assert files(tmp_path) == {"before", "after"}
        listed = await app.changes(turn=turn)
        assert [each["state"] for each in listed.data["changes"]] == ["undone", "undone"]


async def test_since_a_moment_and_of_one_file(tmp_path: Path) -> None:
    async with scratch_app(tmp_path, mode="accept-edits") as app:
        await write(app, "a", "1")
        with (history := app.session.keep(HISTORY)).transaction():
            history._database.execute("UPDATE change SET at = at - 3600")  # pyright: ignore[reportPrivateUsage]
        await app.call("Write", {"file_path": "a", "content": "2"})
        await write(app, "b")
        await app.undo(file="a")
        assert ((tmp_path / "a").read_text(), (tmp_path / "b").exists()) == ("1", True)
        await app.redo()
        await app.undo(since="10 min")
        assert ((tmp_path / "a").read_text(), (tmp_path / "b").exists()) == ("1", False)
        await app.undo(since="2 h")
        assert files(tmp_path) == set()
        assert "is not a time" in error(await app.undo(since="soon"))


@pytest.mark.parametrize(
    ("text", "ago"), [("10 min", 600), ("90s", 90), ("1.5 hours ago", 5400), ("2 d", 172800), ("yesterday", None)]
)
def test_a_person_says_when(text: str, ago: float | None) -> None:
    now = time.time()
    assert moment(text, now) == (None if ago is None else now - ago)


def test_a_time_of_day_is_the_latest_that_has_been() -> None:
    now = time.mktime((2026, 3, 10, 12, 0, 0, 0, 0, -1))
    assert moment("11:30", now) == now - 1800
    assert moment("12:30", now) == now - 86400 + 1800
    assert moment("2026-03-10 10:00", now) == now - 7200


async def test_edit_undo_edit_redo_undo_takes_back_the_redo(tmp_path: Path) -> None:
    async with scratch_app(tmp_path, mode="accept-edits") as app:
        await write(app, "a")
        await app.undo()
        await write(app, "b")
        await app.redo()
        assert files(tmp_path) == {"a", "b"}
        await app.undo()
        assert files(tmp_path) == {"b"}
        await app.undo()
        assert files(tmp_path) == set()
        await app.redo()
        await app.redo()
        assert files(tmp_path) == {"a", "b"}


async def test_redo_brings_back_what_was_there_after_a_file_was_put_back_by_hand(tmp_path: Path) -> None:
    async with scratch_app(tmp_path, mode="accept-edits") as app:
        await write(app, "f.txt", "mine\n")
        os.unlink(tmp_path / "f.txt")
        undone = await app.undo()
        assert undone.ok
        assert "already as wanted" in undone.output
        redone = await app.redo()
        assert (tmp_path / "f.txt").read_text() == "mine\n"
        assert "restored 1 file" in redone.output
        await app.undo()
        (tmp_path / "f.txt").write_text("mine\n")
        again = await app.redo()
        assert "already as wanted" in again.output
        assert (tmp_path / "f.txt").read_text() == "mine\n"


async def test_a_person_without_a_session_undoes_the_latest_one_and_no_other(tmp_path: Path) -> None:
    async def within(name: str | None, file: str = "") -> ToolResult | None:
        async with Surehand(
            tmp_path, session=name, interactive=False, approver=Says("once"), mode="accept-edits"
        ) as app:
            if file:
                await write(app, file)
                return None
            return await app.undo()

    for name, file in (("one", "a"), ("two", "b"), ("two", "c"), ("one", "__pycache__/x.pyc")):
        await within(name, file)
    for left in ({"a", "b"}, {"a"}):
        result = await within(None)
        assert result is not None
        assert "of session_two" in result.output
        assert files(tmp_path) - {"__pycache__/x.pyc"} == left
    last = await within(None)
    assert last is not None
    assert "nothing to undo in session_two" in error(last)
    assert "of session_one" in error(last)


async def test_undo_through_the_library_is_judged(tmp_path: Path) -> None:
    says = Says("no", "not now")
    async with scratch_app(tmp_path, approver=says) as app:
        assert (await app.call("Write", {"file_path": "a", "content": "x"})).error is not None
        says.answer = Says("once").answer
        await write(app, "a")
        says.answer = Says("no", "not now").answer
        refused = await app.undo()
        assert "not now" in error(refused)
        shown = says.asked[-1].preview
        assert shown is not None
        assert "would undo change" in shown.text
    assert files(tmp_path) == {"a"}


LINES = [f"line {number}\n" for number in range(20)]


async def test_an_undo_keeps_what_the_user_changed_in_other_lines_where_it_is_told_to_merge(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("".join(LINES))
    async with scratch_app(tmp_path, mode="accept-edits") as app:
        await app.call("Read", {"file_path": "a.txt"})
        edited = await app.call(
            "Edit", {"file_path": "a.txt", "old_string": "line 3\n", "new_string": "by the agent\n"}
        )
        assert edited.ok, edited.output
        with_both = file.read_text().replace("line 15\n", "by the user\n")
        file.write_text(with_both)
        refused = await app.undo()
        assert refused.error is not None
        assert "--merge" in refused.error.hint
        shown = await app.undo(merge=True, dry_run=True)
        assert "-by the agent" in shown.data["diff"]
        assert "by the user" not in "".join(each for each in shown.data["diff"].splitlines() if each[:1] in "+-")
        assert file.read_text() == with_both
        undone = await app.undo(merge=True)
        assert undone.ok, undone.output
        assert undone.data["merged"] == [str(file)]
        assert "with what was changed in other lines since" in undone.output
        assert file.read_text() == "".join(LINES).replace("line 15\n", "by the user\n")
        redone = await app.redo()
        assert redone.ok, redone.output
        assert file.read_text() == with_both


async def test_an_undo_of_changes_with_others_between_them_shows_or_keeps_those(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("".join(LINES))
    async with scratch_app(tmp_path, mode="accept-edits") as app:
        await app.call("Read", {"file_path": "a.txt"})
        for number in (3, 16):
            edit = {"file_path": "a.txt", "old_string": f"line {number}\n", "new_string": "by the agent\n"}
            assert (await app.call("Edit", edit)).ok
            if number == 3:
                file.write_text(file.read_text().replace("line 9\n", "by the user\n"))
                await app.call("Read", {"file_path": "a.txt"})
        refused = await app.undo(last=2)
        assert "+by the user" in error(refused)
        assert "agent\n" not in "".join(each for each in error(refused).splitlines(True) if each[:1] in "+-")
        assert "--merge" in error(refused)
        with_both = file.read_text()
        undone = await app.undo(last=2, merge=True)
        assert undone.ok, undone.output
        assert undone.data["merged"] == [str(file)]
        assert file.read_text() == "".join(LINES).replace("line 9\n", "by the user\n")
        assert (await app.redo()).ok
        assert file.read_text() == with_both


async def test_an_undo_names_the_change_of_another_session_between_its_own(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    async with (
        Surehand(tmp_path, mode="accept-edits", session="ours", plugins=False) as ours,
        Surehand(tmp_path, mode="accept-edits", session="theirs", plugins=False) as theirs,
    ):
        made: list[str] = []
        for app in (ours, theirs, ours):
            await app.call("Read", {"file_path": "a.txt"})
            made.append(await write(app, "a.txt", f"{len(made)}\n"))
        refused = await ours.undo(session="ours", merge=True)
        assert f"Change {made[1]} came later in the same place; undo that first" in error(refused)
        assert (tmp_path / "a.txt").read_text() == "2\n"


async def test_a_merging_undo_is_refused_where_the_same_lines_were_changed(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("".join(LINES))
    async with scratch_app(tmp_path, mode="accept-edits") as app:
        await app.call("Read", {"file_path": "a.txt"})
        await app.call("Edit", {"file_path": "a.txt", "old_string": "line 3\n", "new_string": "by the agent\n"})
        file.write_text(by_user := file.read_text().replace("by the agent\n", "by the user\n"))
        refused = await app.undo(merge=True)
    assert refused.error is not None
    assert "changed since" in refused.error.message
    assert "--merge" not in refused.error.hint
    assert file.read_text() == by_user


@pytest.mark.parametrize("lasting", [False, True], ids=["one error", "a device that stays broken"])
@pytest.mark.parametrize("at", range(1, 5))
async def test_an_undo_says_that_nothing_was_changed_only_where_nothing_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, lasting: bool
) -> None:
    names = ("a.txt", "b.txt", "c.txt")
    async with scratch_app(tmp_path, mode="accept-edits") as app:
        turn = app.session.begin_turn()
        for name in names:
            (tmp_path / name).write_text("old")
            await app.call("Read", {"file_path": name})
            assert (await app.call("Write", {"file_path": name, "content": "new"})).ok
        app.session.end_turn()
        real, calls = os.rename, 0

        def rename(*args: Any, **more: Any) -> None:
            nonlocal calls
            calls += 1
            if calls == at or (lasting and calls > at):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            real(*args, **more)

        with monkeypatch.context() as patched:
            patched.setattr(os, "rename", rename)
            undone = await app.undo(turn=turn)
        texts = [(tmp_path / name).read_text() for name in names]
        if undone.error is None:
            assert texts == ["old"] * 3
        elif "Nothing was changed" in undone.output or "stay changed" not in undone.output:
            assert texts == ["new"] * 3, undone.output
        else:
            changed = [str(tmp_path / name) for name, text in zip(names, texts, strict=True) if text == "old"]
            assert sorted(undone.error.details["paths"]) == changed
            assert changed
        await app.undo(turn=turn)  # what is half done is ended by looking at the history, the rest is taken back now
    assert [(tmp_path / name).read_text() for name in names] == ["old"] * 3


async def test_a_folder_that_took_a_files_place_is_named_and_only_an_empty_one_gives_way(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old\n")
    async with scratch_app(tmp_path) as app:
        assert (await app.call("Bash", {"command": "rm a.txt"})).ok
        (tmp_path / "a.txt").mkdir()
        (tmp_path / "a.txt/mine").write_text("mine\n")
        assert "a.txt is a folder now; move it away first, unless it is empty" in error(await app.undo())
        assert not (await app.undo(force=True)).ok
        assert (tmp_path / "a.txt/mine").read_text() == "mine\n"
        (tmp_path / "a.txt/mine").unlink()
        assert (await app.undo(force=True)).output.startswith("Undid change 1: restored 1 file\n")
        assert (tmp_path / "a.txt").read_text() == "old\n"
        assert (await app.redo()).ok
    assert (tmp_path / "a.txt").is_dir()


@pytest.mark.parametrize("command", ["echo new > a.txt", "rm a.txt; echo new > b.txt"])
async def test_a_pipe_that_took_a_files_place_is_named_and_never_lost(tmp_path: Path, command: str) -> None:
    if command.startswith("rm"):
        (tmp_path / "a.txt").write_text("old\n")
    async with scratch_app(tmp_path) as app:
        assert (await app.call("Bash", {"command": command})).ok
        (tmp_path / "a.txt").unlink(missing_ok=True)
        os.mkfifo(tmp_path / "a.txt")
        for force in (False, True):
            refused = error(await app.undo(force=force))
            assert "a.txt is a pipe, a socket or a device now; move it away first" in refused
            assert "recorded" not in refused
        assert (tmp_path / "a.txt").is_fifo()
        (tmp_path / "a.txt").unlink()
        assert (await app.undo(force=True)).ok
    assert (tmp_path / "a.txt").exists() is command.startswith("rm")


async def test_a_link_that_took_a_files_place_is_named(tmp_path: Path) -> None:
    async with scratch_app(tmp_path) as app:
        assert (await app.call("Write", {"file_path": "a.txt", "content": "new\n"})).ok
        (tmp_path / "a.txt").unlink()
        (tmp_path / "a.txt").symlink_to("elsewhere")
        refused = error(await app.undo())
        assert "a.txt is a link to elsewhere now" in refused
        assert "--merge" not in refused
        assert (await app.undo(force=True)).ok
        assert not (tmp_path / "a.txt").is_symlink()
        assert (await app.redo()).ok
    assert os.readlink(tmp_path / "a.txt") == "elsewhere"


async def test_contents_that_are_kept_already_need_no_room_in_the_history(tmp_path: Path) -> None:
    names = ("a.bin", "b.bin")
    for name in names:
        (tmp_path / name).write_bytes(os.urandom(480 * 1024))
    (tmp_path / "small").mkdir()
    for number in range(20):
        (tmp_path / f"small/{number}").write_bytes(os.urandom(1024))
    settings = Settings.parse({"history": {"limit_mb": 1}})
    async with scratch_app(tmp_path, settings=settings, keep_state=True) as app:
        for name in (*names, "small/*"):
            removed = await app.call("Bash", {"command": f"rm {name}"})
            assert "cannot all be undone" not in removed.output
        assert (await app.undo(last=3)).ok
        redone = await app.redo()
        assert redone.ok, redone.output
        assert files(tmp_path) == set()
        undone = await app.undo(last=3)
        assert undone.ok, undone.output
    assert len(files(tmp_path)) == 22


UNREADABLE = """
import asyncio, os, sys
from surehand import Settings, Surehand
from surehand.history.history import HISTORY
from surehand.history.words import ABSENT, Author, FileChange
from surehand.testing import Says

async def main(folder):
    path = os.path.join(folder, "a.txt")
    async with Surehand(folder, settings=Settings(), approver=Says("once"), plugins=False) as app:
        assert (await app.call("Write", {"file_path": "a.txt", "content": "new"})).ok
        os.chmod(path, 0)
        refused = await app.undo(force=True)
        print(refused.output.splitlines()[0])
        # A process was killed while it changed the file: that cannot be recovered yet, and everything else goes on.
        app.session.keep(HISTORY).begin(Author("Write"), [FileChange(path, ABSENT, None)])
        assert (await app.call("Write", {"file_path": "b.txt", "content": "new"})).ok
        undone = await app.undo()
        assert undone.ok, undone.output
        print(len(app.session.keep(HISTORY).begun()))
        os.chmod(path, 0o600)
        assert (await app.undo(force=True)).ok
        print(len(app.session.keep(HISTORY).begun()))

asyncio.run(main(sys.argv[1]))
"""


def test_an_undo_says_that_a_file_cannot_be_read_and_other_changes_are_undone() -> None:
    with somebody(USERS[1]) as user:
        (user.folder / "ws").mkdir()
        user.give()
        program = user.start(UNREADABLE, str(user.folder / "ws"), stdout=subprocess.PIPE, text=True)
        said, _ = program.communicate(timeout=300)
        assert program.returncode == 0
        assert said.splitlines() == [
            f"cannot read {user.folder}/ws/a.txt: the operating system denies access (EACCES)",
            "1",
            "0",
        ]


async def test_a_workspace_that_was_moved_away_costs_no_undo(tmp_path: Path) -> None:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    async with scratch_app(workspace, mode="accept-edits", allow=["Undo"]) as app:
        await write(app, "a.txt")
        workspace.rename(tmp_path / "elsewhere")
        assert "no longer exists" in (await app.undo()).output
        (tmp_path / "elsewhere").rename(workspace)
        assert (await app.undo()).ok
    assert files(workspace) == set()


async def test_of_two_undos_at_once_one_takes_the_change_back(tmp_path: Path) -> None:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    other = Surehand(workspace, session="work", allow=["Undo"], settings=Settings(), plugins=False)

    class UndoesMeanwhile:
        async def ask(self, question: Question) -> Answer:
            assert question.tool != "Undo" or (await other.undo()).ok
            return Answer("once")

    async with (
        other,
        Surehand(
            workspace,
            session="work",
            approver=UndoesMeanwhile(),
            settings=Settings(),
            plugins=False,
        ) as app,
    ):
        await write(app, "a.txt")
        assert "somebody else has undone" in (await app.undo()).output
        assert [each.kind for each in app.session.keep(HISTORY).changes()] == ["undo", "change"]
