"""Another process prunes between any two transactions of ours: what a change needs to be taken back is never lost."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from surehand import Settings, Surehand, ToolContext, tool
from surehand.core.effects import WritePath
from surehand.history.history import HISTORY, History
from surehand.testing import Says


@contextmanager
def pruned_beside(history: History) -> Generator[None]:
    """Drop what no change refers to, as a process does whose history is full, whenever the database is free."""
    assert history.folder is not None
    other = History(history.folder, 1 << 30)
    ours, depth = history.transaction, 0

    @contextmanager
    def transaction() -> Generator[None]:
        nonlocal depth
        if not depth:
            other.keep_bytes(os.urandom(1 + other.size_bytes()))
            other.prune(other.size_bytes() - 1)
        depth += 1
        try:
            with ours():
                yield
        finally:
            depth -= 1

    history.transaction = transaction
    try:
        yield
    finally:
        history.transaction = ours
        other.close()


@tool(effects=lambda args, ctx: [WritePath(ctx.resolve("own.txt"))])
def scribble(ctx: ToolContext) -> None:
    "Writes a file it has stated."
    Path(ctx.resolve("own.txt")).write_text("scribbled\n")


@pytest.fixture
async def app(tmp_path: Path) -> Surehand:
    return Surehand(tmp_path, settings=Settings(), approver=Says("once"), tools=[scribble], plugins=False)


async def test_what_an_undo_overwrites_can_be_brought_back(app: Surehand, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    async with app:
        assert (await app.call("Write", {"file_path": "a.txt", "content": "first\n"})).ok
        path.write_text("the user's own\n")
        with pruned_beside(app.session.keep(HISTORY)):
            assert (await app.undo(force=True)).ok
        assert not path.exists()
        assert (await app.redo()).ok
    assert path.read_text() == "the user's own\n"


async def test_what_an_undo_merged_can_be_brought_back(app: Surehand, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    lines = [f"line {number}" for number in range(20)]
    path.write_text("\n".join(lines))
    async with app:
        await app.call("Read", {"file_path": "a.txt"})
        assert (await app.call("Edit", {"file_path": "a.txt", "old_string": "line 3\n", "new_string": "three\n"})).ok
        path.write_text(path.read_text().replace("line 15", "fifteen"))
        with pruned_beside(app.session.keep(HISTORY)):
            assert (await app.undo(merge=True)).ok
        merged = path.read_text()
        assert (await app.redo()).ok
        assert (await app.undo(merge=True)).ok
    assert path.read_text() == merged


@pytest.mark.parametrize("size", [10, 300_000])
async def test_what_edits_and_commands_overwrote_can_be_brought_back(app: Surehand, tmp_path: Path, size: int) -> None:
    path = tmp_path / "a.txt"
    texts = [letter * size + "\n" for letter in "abc"]
    path.write_text(texts[0])
    async with app:
        with pruned_beside(app.session.keep(HISTORY)):
            await app.call("Read", {"file_path": "a.txt", "limit": 1})
            assert (await app.call("Write", {"file_path": "a.txt", "content": texts[1]})).ok
            command = f"head -c {size} /dev/zero | tr '\\0' c > a.txt; echo >> a.txt"
            assert (await app.call("Bash", {"command": command})).undo is not None
            for text in (texts[1], texts[0]):
                undone = await app.undo()
                assert undone.ok, undone.output
                assert path.read_text() == text
            for text in texts[1:]:
                assert (await app.redo()).ok
                assert path.read_text() == text


async def test_a_patch_can_be_brought_back(app: Surehand, tmp_path: Path) -> None:
    patch = "diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-old\n+new\n"
    (tmp_path / "a.txt").write_text("old\n")
    async with app:
        with pruned_beside(app.session.keep(HISTORY)):
            applied = await app.apply_patch(patch)
        assert applied.ok, applied.output
        assert (await app.undo()).ok
        assert (tmp_path / "a.txt").read_text() == "old\n"
        assert (await app.redo()).ok
    assert (tmp_path / "a.txt").read_text() == "new\n"


async def test_what_a_tool_of_your_own_overwrote_can_be_brought_back(app: Surehand, tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("before\n")
    async with app:
        with pruned_beside(app.session.keep(HISTORY)):
            assert (await app.call("scribble")).undo is not None
        assert (await app.undo()).ok
        assert (tmp_path / "own.txt").read_text() == "before\n"
        assert (await app.redo()).ok
    assert (tmp_path / "own.txt").read_text() == "scribbled\n"
