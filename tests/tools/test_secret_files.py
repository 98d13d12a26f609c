"""What is secret, and what lies outside: closed to writing as to reading, and nothing tells whether it is there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from surehand.core.call import ToolResult
from surehand.core.settings import PermissionSettings, Settings
from surehand.testing import scratch_app

CONTENT = "KEY=canary-4711\n"


def told(result: ToolResult) -> str:
    """Return everything a caller learns of a refusal."""
    assert result.error is not None
    return f"{result.error.code} {result.error.message} {result.error.hint} {result.error.details}"


WRITES: list[tuple[str, dict[str, Any]]] = [
    ("Edit", {"old_string": "a", "new_string": "b"}),
    ("Edit", {"old_string": "", "new_string": "b"}),
    ("MultiEdit", {"edits": [{"old_string": "a", "new_string": "b"}]}),
    ("Write", {"content": "x"}),
]


@pytest.mark.spec("PERM-5")
@pytest.mark.parametrize("mode", ["default", "accept-edits"])
@pytest.mark.parametrize(("tool", "args"), WRITES)
async def test_a_secret_is_refused_alike_whether_it_is_there_or_not(
    tmp_path: Path, tool: str, args: dict[str, Any], mode: Any
) -> None:
    there, missing = tmp_path / "a" / ".env", tmp_path / "b" / ".env"
    for folder in (there.parent, missing.parent):
        folder.mkdir()
    there.write_text(CONTENT)
    async with scratch_app(tmp_path, settings=Settings(permissions=PermissionSettings(mode=mode))) as app:
        first, second = [await app.call(tool, {"file_path": str(path), **args}) for path in (there, missing)]
    assert first.error is not None
    assert (first.error.code, first.error.details["layer"], first.error.details["number"]) == (
        "permission_denied",
        2,
        2,
    )
    assert told(first).replace("/a/.env", "/b/.env") == told(second)
    assert there.read_text() == CONTENT
    assert not missing.exists()


async def test_near_names_never_name_a_secret_or_anything_outside(tmp_path: Path) -> None:
    workspace, outside = tmp_path / "ws", tmp_path / "outside"
    workspace.mkdir()
    outside.mkdir()
    (workspace / ".env").write_text(CONTENT)
    (workspace / "server.pem").write_text(CONTENT)
    (outside / "diary.txt").write_text("x")
    async with scratch_app(workspace, approve=True) as app:
        for name in (".enw", "server.pen", str(outside / "diary.txd")):
            for tool, args in (("Read", {}), *WRITES[:1]):
                result = await app.call(tool, {"file_path": name, **args})
                assert "does not exist" in told(result)
                assert not any(each in told(result) for each in (".env", "server.pem", "diary.txt"))


@pytest.mark.parametrize(("tool", "args"), WRITES)
async def test_nothing_outside_is_told_before_it_is_permitted(tmp_path: Path, tool: str, args: dict[str, Any]) -> None:
    workspace, outside = tmp_path / "ws", tmp_path / "outside"
    (outside / "folder").mkdir(parents=True)
    workspace.mkdir()
    (outside / "file").write_text("text")
    os.mkfifo(outside / "fifo")
    async with scratch_app(workspace, approve=False) as app:
        for look in (app.call, app.dry_run):
            told_of = {
                told(await look(tool, {"file_path": str(outside / name), **args})).replace(name, "NAME")
                for name in ("file", "folder", "fifo", "missing", "missing/deeper")
            }
            assert len(told_of) == 1, told_of


async def test_a_hard_link_to_a_secret_is_neither_read_nor_searched_nor_edited(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(CONTENT)
    (tmp_path / "twin").write_text("plain canary-4711\n")
    os.link(tmp_path / "twin", tmp_path / "other-twin")
    async with scratch_app(tmp_path, approve=True) as app:
        assert (await app.call("Read", {"file_path": "twin"})).ok
        os.link(tmp_path / ".env", tmp_path / "notes.txt")  # after the first look
        for tool, args in (
            ("Read", {"file_path": "notes.txt"}),
            ("Grep", {"pattern": "canary", "path": "notes.txt"}),
            *((tool, {"file_path": "notes.txt", **args}) for tool, args in WRITES),
        ):
            result = await app.call(tool, args)
            assert result.error is not None, tool
            assert result.error.code == "permission_denied"
            assert "4711" not in told(result)
        for mode in ("content", "files_with_matches", "count"):
            found = await app.call("Grep", {"pattern": "canary", "output_mode": mode})
            assert "twin" in found.output
            assert "notes.txt" not in found.output
    assert (tmp_path / ".env").read_text() == CONTENT


async def test_a_file_that_only_looks_like_a_secret_is_read_by_the_rule_that_the_refusal_names(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "server.pem").write_text("test data\n")
    async with scratch_app(tmp_path) as app:
        refused = await app.call("Read", {"file_path": "tests/server.pem"})
    assert "Read(./tests/server.pem)" in told(refused)
    assert "layer" not in refused.error.details  # type: ignore[union-attr]
    async with scratch_app(tmp_path, allow=["Read(./tests/server.pem)"]) as app:
        assert "test data" in (await app.call("Read", {"file_path": "tests/server.pem"})).output
        assert not (await app.call("Read", {"file_path": "server.pem"})).ok
