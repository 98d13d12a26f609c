"""`app.apply_patch`: a patch comes home through the door, whole or not at all, and can be taken back."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from surehand import Surehand
from surehand.workspaces.patch import format_patch
from surehand.workspaces.snapshot import Pieces, compare, take_snapshot


@pytest.fixture
def work(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    (root / "sub").mkdir(parents=True)
    (root / "a.txt").write_text("one\ntwo\n")
    (root / "sub" / "gone.txt").write_text("x\n")
    (root / "data.bin").write_bytes(bytes(range(256)))
    return root


def patch_of(work: Path, tmp_path: Path) -> str:
    """Return the patch of a day's work on a copy."""
    copy = tmp_path / "copy"
    shutil.copytree(work, copy)
    pieces = Pieces(str(tmp_path / "pieces"))
    before = take_snapshot(str(copy), pieces)
    (copy / "a.txt").write_text("one\n2\n")
    (copy / "sub" / "gone.txt").unlink()
    (copy / "data.bin").write_bytes(b"\0\1")
    (copy / "new" / "er").mkdir(parents=True)
    (copy / "new" / "er" / "run.sh").write_text("#!/bin/sh\n")
    (copy / "new" / "er" / "run.sh").chmod(0o755)
    os.symlink("a.txt", copy / "link")
    patch = format_patch(compare(before, take_snapshot(str(copy), pieces, before)), pieces.read)
    shutil.rmtree(copy)
    return patch


async def test_a_patch_is_applied_whole_and_undone_whole(work: Path, tmp_path: Path) -> None:
    patch, pieces = patch_of(work, tmp_path), Pieces(str(tmp_path / "p"))
    before = take_snapshot(str(work), pieces)
    async with Surehand(work, allow=["ApplyPatch", "Undo", "Redo"]) as app:
        result = await app.apply_patch(patch, description="task 7")
        assert result.ok, result.error
        assert (work / "a.txt").read_text() == "one\n2\n"
        assert not (work / "sub" / "gone.txt").exists()
        assert (work / "new" / "er" / "run.sh").stat().st_mode & 0o111
        assert os.readlink(work / "link") == "a.txt"
        after = take_snapshot(str(work), pieces)
        assert (await app.undo()).ok
        assert compare(before, take_snapshot(str(work), pieces)) == []
        assert not (work / "new").exists()
        assert (await app.redo()).ok
        assert compare(after, take_snapshot(str(work), pieces)) == []


async def test_a_conflict_in_one_file_leaves_all_of_them_alone(work: Path, tmp_path: Path) -> None:
    patch, pieces = patch_of(work, tmp_path), Pieces(str(tmp_path / "p"))
    (work / "a.txt").write_text("mine\n")
    before = take_snapshot(str(work), pieces)
    async with Surehand(work, allow=["ApplyPatch"]) as app:
        result = await app.apply_patch(patch)
    assert result.error is not None
    assert result.error.code == "precondition_failed"
    assert result.error.details["paths"] == ["a.txt"]
    assert compare(before, take_snapshot(str(work), pieces)) == []


async def test_without_permission_nothing_is_applied_and_no_model_sees_the_tool(work: Path, tmp_path: Path) -> None:
    patch = patch_of(work, tmp_path)
    async with Surehand(work) as app:
        result = await app.apply_patch(patch)
        assert result.error is not None
        assert result.error.code == "permission_denied"
        assert "ApplyPatch" not in app.selection.names()
        shown = await app.apply_patch(patch, dry_run=True)
        assert shown.ok
    assert (work / "a.txt").read_text() == "one\ntwo\n"


async def test_a_patch_through_a_link_out_of_the_workspace_is_refused(work: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    os.symlink(outside, work / "out")
    patch = (
        "diff --git a/out/f b/out/f\nnew file mode 100644\n"
        f"index {'0' * 40}..587be6b4c3f93f93c489c0111bba5596147a26cb\n--- /dev/null\n+++ b/out/f\n@@ -0,0 +1 @@\n+x\n"
    )
    async with Surehand(work, allow=["ApplyPatch"]) as app:
        result = await app.apply_patch(patch)
    assert not result.ok
    assert list(outside.iterdir()) == []
