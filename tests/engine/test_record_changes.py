"""What a tool of one's own changes is in the history as soon as it states its paths."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from surehand import DeletePath, Effect, Event, Tool, ToolContext, ToolFailure, WritePath, tool
from surehand.engine import record_changes
from surehand.testing import scratch_app


def note(**options: Any) -> Tool:
    def effects(args: Any, ctx: ToolContext) -> Sequence[Effect]:
        return [WritePath(ctx.resolve(args.path))]

    @tool(effects=effects, **options)
    def note(path: str, text: str, ctx: ToolContext, fail: bool = False) -> str:
        "Keep a note in a file."
        place = Path(ctx.resolve(path))
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        if fail:
            raise ToolFailure("half done")
        return "noted"

    return note


async def test_a_stated_change_is_undone_and_redone_like_an_edit(tmp_path: Path) -> None:
    place = tmp_path / "a.txt"
    place.write_text("before")
    place.chmod(0o640)
    async with scratch_app(tmp_path, tools=[note()]) as app:
        result = await app.call("note", {"path": "a.txt", "text": "after"})
        assert result.undo is not None
        await app.call("Undo")
        assert (place.read_text(), place.stat().st_mode & 0o777) == ("before", 0o640)
        await app.call("Redo")
        assert place.read_text() == "after"


async def test_a_new_file_goes_with_the_folders_made_for_it(tmp_path: Path) -> None:
    async with scratch_app(tmp_path, tools=[note()]) as app:
        await app.call("note", {"path": "deep/down/a.txt", "text": "new"})
        assert (await app.call("Undo")).ok
    assert os.listdir(tmp_path) == []


async def test_a_call_that_fails_half_way_is_in_the_history_too(tmp_path: Path) -> None:
    async with scratch_app(tmp_path, tools=[note()]) as app:
        assert not (await app.call("note", {"path": "a.txt", "text": "half", "fail": True})).ok
        assert (await app.call("Undo")).ok
    assert os.listdir(tmp_path) == []


async def test_a_link_is_followed_to_what_was_written(tmp_path: Path) -> None:
    (tmp_path / "real.txt").write_text("before")
    (tmp_path / "link.txt").symlink_to("real.txt")
    async with scratch_app(tmp_path, tools=[note()]) as app:
        await app.call("note", {"path": "link.txt", "text": "after"})
        await app.call("Undo")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "before"


async def test_what_changes_nothing_is_no_change(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("same")
    async with scratch_app(tmp_path, tools=[note()]) as app:
        result = await app.call("note", {"path": "a.txt", "text": "same"})
        assert (result.ok, result.undo) == (True, None)
        assert not (await app.call("Undo")).ok


async def test_a_tool_that_keeps_its_changes_itself_is_left_alone(tmp_path: Path) -> None:
    async with scratch_app(tmp_path, tools=[note(reversible=True)]) as app:
        assert (await app.call("note", {"path": "a.txt", "text": "x"})).undo is None


def sweep() -> Tool:
    def effects(args: Any, ctx: ToolContext) -> Sequence[Effect]:
        return [DeletePath(ctx.resolve(args.folder), recursive=True)]

    @tool(effects=effects)
    def sweep(folder: str, ctx: ToolContext) -> str:
        "Remove a folder."
        import shutil

        shutil.rmtree(ctx.resolve(folder))
        return "gone"

    return sweep


async def test_a_folder_that_is_removed_comes_back_whole(tmp_path: Path) -> None:
    (tmp_path / "logs" / "old").mkdir(parents=True)
    (tmp_path / "logs" / "a.log").write_bytes(b"\x00\xff")
    (tmp_path / "logs" / "old" / "b.log").write_text("b")
    async with scratch_app(tmp_path, tools=[sweep()]) as app:
        assert (await app.call("sweep", {"folder": "logs"})).undo is not None
        assert not (tmp_path / "logs").exists()
        await app.call("Undo")
    assert (tmp_path / "logs" / "a.log").read_bytes() == b"\x00\xff"
    assert (tmp_path / "logs" / "old" / "b.log").read_text() == "b"


async def test_more_than_can_be_kept_is_made_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_changes, "PATHS_LIMIT", 3)
    (tmp_path / "logs").mkdir()
    for number in range(9):
        (tmp_path / "logs" / f"{number}.log").write_text("x")
    notes: list[Event] = []
    async with scratch_app(tmp_path, tools=[sweep()]) as app:
        app.bus.subscribe(notes.append)
        result = await app.call("sweep", {"folder": "logs"})
    assert (result.ok, result.undo) == (True, None)
    assert "sweep changes is not in the history" in next(each.data["message"] for each in notes if each.kind == "note")
