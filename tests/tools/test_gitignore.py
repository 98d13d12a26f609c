"""Gitignore: patterns added once and byte for byte, and the rule that decides about a path."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.tools.searching import TOOLS, Desk

from surehand.core.effects import ReadPath, WritePath
from surehand.core.errors import ToolFailure


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "ws", tmp_path / "state")


async def add(desk: Desk, *patterns: str, dir: str = ".") -> str:
    return (await desk.call("Gitignore", action="add", patterns=list(patterns), dir=dir)).output


def test_the_record_says_what_the_reference_says() -> None:
    info = TOOLS["Gitignore"].info()
    assert (info.read_only, info.concurrency_safe, info.destructive, info.level) == (False, False, False, 2)


async def test_patterns_are_added_once_and_the_file_is_made(desk: Desk) -> None:
    result = await desk.call("Gitignore", action="add", patterns=["*.log", "dist/", "*.log"])
    file = desk.root / ".gitignore"
    assert file.read_text() == "*.log\ndist/\n"
    assert result.data["created"]
    assert result.data["added"] == ["*.log", "dist/"]
    assert result.undo is not None
    again = await desk.call("Gitignore", action="add", patterns=["dist/"])
    assert "already" in again.output
    assert again.data["changed"] is False
    assert again.undo is None
    assert await add(desk, "dist/", "x") == f"Changed {file}: added x"
    assert file.read_text() == "*.log\ndist/\nx\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b"new\n"),
        (b"a\nb", b"a\nb\nnew\n"),
        (b"a\r\nb\r\n", b"a\r\nb\r\nnew\r\n"),
        (b"a\r\nb", b"a\r\nb\r\nnew\r\n"),
        (b"\xef\xbb\xbfa\n", b"\xef\xbb\xbfa\nnew\n"),
        (b"caf\xe9\n", b"caf\xe9\nnew\n"),
        (b"# new\n!new\n", b"# new\n!new\nnew\n"),
    ],
)
async def test_bytes_and_line_ends_of_the_file_stay(desk: Desk, before: bytes, after: bytes) -> None:
    file = desk.put(".gitignore", before)
    file.chmod(0o640)
    await add(desk, "new")
    assert file.read_bytes() == after
    assert file.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("before", [b"new\n", b"new", b"new  \r\n", b"\xef\xbb\xbfnew\n"])
async def test_a_line_that_means_the_same_counts_as_there(desk: Desk, before: bytes) -> None:
    file = desk.put(".gitignore", before)
    assert "already" in await add(desk, "new")
    assert file.read_bytes() == before


async def test_a_dry_run_shows_the_diff_and_writes_nothing(desk: Desk) -> None:
    desk.put(".gitignore", "a\n")
    shown = desk.preview("Gitignore", action="add", patterns=["b"])
    assert "+b" in shown.diff
    assert (desk.root / ".gitignore").read_text() == "a\n"
    assert "nothing would change" in desk.preview("Gitignore", action="add", patterns=["a"]).text


async def test_another_directory_can_be_meant(desk: Desk) -> None:
    desk.put("sub/x")
    await add(desk, "*.tmp", dir="sub")
    assert (desk.root / "sub" / ".gitignore").read_text() == "*.tmp\n"
    with pytest.raises(ToolFailure, match="no directory"):
        await add(desk, "x", dir="missing")


@pytest.mark.parametrize("args", [{"action": "add"}, {"action": "check"}, {"action": "add", "patterns": ["a\nb"]}])
async def test_arguments_that_do_not_belong_together_are_refused(desk: Desk, args: dict[str, object]) -> None:
    with pytest.raises(ToolFailure) as refused:
        await desk.call("Gitignore", **args)
    assert refused.value.code == "invalid_args"


async def test_a_check_names_file_line_and_pattern(desk: Desk) -> None:
    subprocess.run(["git", "init", "-q"], cwd=desk.root, check=True)
    desk.put(".gitignore", "# build output\nbuild/\n*.log\n!keep.log\n")
    desk.put("sub/.gitignore", "keep.log\n")
    top = desk.root / ".gitignore"

    async def check(path: str) -> tuple[bool, object]:
        result = await desk.call("Gitignore", action="check", path=path)
        return result.data["ignored"], result.data["rule"]

    inside = {"source": str(top), "line": 2, "pattern": "build/", "matches": "build"}
    assert await check("build/output.bin") == (True, inside)
    assert await check("keep.log") == (
        False,
        {"source": str(top), "line": 4, "pattern": "!keep.log", "matches": "keep.log"},
    )
    deeper = {"source": str(desk.root / "sub/.gitignore"), "line": 1, "pattern": "keep.log", "matches": "sub/keep.log"}
    assert await check("sub/keep.log") == (True, deeper)
    assert await check("README.md") == (False, None)
    assert await check("build") == (False, None)
    for folder in ("build/", "build/.", "sub/../build/./"):
        assert (await check(folder))[0], folder
    assert await check("./") == await check(".") == (False, None)
    said = (await desk.call("Gitignore", action="check", path="build/x")).output
    assert said.startswith(f"build/x is ignored by {top}:2: build/, which matches build/ above it")


def test_a_check_reads_and_an_add_writes(desk: Desk) -> None:
    path = str(desk.root / ".gitignore")
    assert desk.effects("Gitignore", action="add", patterns=["x"]) == [WritePath(path)]
    assert desk.effects("Gitignore", action="check", path="d/.env") == [ReadPath(f"{desk.root}/d/.gitignore")]
    tool = TOOLS["Gitignore"]
    assert callable(tool.read_only)
    assert tool.read_only(tool.arguments.parse({"action": "check", "path": "a"}), desk.context("Gitignore"))
