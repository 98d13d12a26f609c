"""The five small tools: time, echo, directory, listing, plain file."""

from __future__ import annotations

import asyncio
import datetime
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from surehand.core.call import ToolCall, ToolResult
from surehand.core.context import ToolContext
from surehand.core.effects import ReadPath
from surehand.core.errors import ToolFailure
from surehand.core.session import Session
from surehand.core.settings import Settings
from surehand.tools.basics import TOOLS

BY_NAME = {tool.name: tool for tool in TOOLS}


@pytest.fixture
def ctx(tmp_path: Path) -> ToolContext:
    session = Session(str(tmp_path), settings=Settings())
    return ToolContext(ToolCall("x"), session, lambda progress: None, {})


def call(ctx: ToolContext, name: str, **values: Any) -> ToolResult:
    tool = BY_NAME[name]
    found = tool.run(tool.arguments.parse(values), ctx)
    return asyncio.run(found) if asyncio.iscoroutine(found) else found


def failure(ctx: ToolContext, name: str, **values: Any) -> ToolFailure:
    with pytest.raises(ToolFailure) as caught:
        call(ctx, name, **values)
    return caught.value


def test_the_five_tools_have_the_names_and_parameters_of_the_specification() -> None:
    schemas = {name: tool.arguments.schema() for name, tool in BY_NAME.items()}
    assert list(schemas) == ["time.now", "tools.echo", "shell.pwd", "fs.list_dir", "fs.read_file"]
    listing, reading = schemas["fs.list_dir"]["properties"], schemas["fs.read_file"]["properties"]
    assert {name: each.get("default") for name, each in listing.items()} == {
        "path": None,
        "recursive": False,
        "maxDepth": 4,
    }
    assert {name: each.get("default") for name, each in reading.items()} == {"path": None, "maxBytes": 204800}
    assert all(tool.read_only is True and tool.concurrency_safe is True for tool in TOOLS)


def test_time_now_gives_milliseconds_and_the_same_moment_in_iso(ctx: ToolContext) -> None:
    before = time.time() * 1000
    data = call(ctx, "time.now").data
    assert before - 1 <= data["timestamp"] <= time.time() * 1000
    assert datetime.datetime.fromisoformat(data["iso"]).timestamp() * 1000 == pytest.approx(data["timestamp"])


def test_echo_returns_the_text_unchanged(ctx: ToolContext) -> None:
    text = "a\tb\n 日本 \u0000 'x'"
    result = call(ctx, "tools.echo", text=text)
    assert result.output == text
    assert result.data == {"text": text}


def test_pwd_follows_the_session(ctx: ToolContext) -> None:
    assert call(ctx, "shell.pwd").output == ctx.session.cwd
    ctx.session.cwd = "/elsewhere"
    assert call(ctx, "shell.pwd").output == "/elsewhere"


def make_tree(root: Path) -> None:
    (root / "a" / "b" / "c" / "d" / "e").mkdir(parents=True)
    (root / "a" / "b" / "c" / "d" / "deep.txt").write_text("deep")
    (root / "one.txt").write_text("12345")
    (root / "link").symlink_to("/etc")
    (root / ".git" / "objects").mkdir(parents=True)
    os.mkfifo(root / "pipe")


def test_a_listing_has_type_and_size_of_each_entry(ctx: ToolContext, tmp_path: Path) -> None:
    make_tree(tmp_path)
    data = call(ctx, "fs.list_dir", path=".").data
    assert [(each["path"], each["type"]) for each in data["entries"]] == [
        (".git", "directory"),
        ("a", "directory"),
        ("link", "symlink"),
        ("one.txt", "file"),
        ("pipe", "fifo"),
    ]
    assert data["entries"][3]["size"] == 5
    assert data["entries"][2]["target"] == "/etc"


def test_a_recursive_listing_stops_at_max_depth_and_follows_no_link(ctx: ToolContext, tmp_path: Path) -> None:
    make_tree(tmp_path)
    shown = call(ctx, "fs.list_dir", path=str(tmp_path), recursive=True).output.splitlines()
    assert shown == [".git/", "a/", "a/b/", "a/b/c/", "a/b/c/d/", "link -> /etc", "one.txt (5 bytes)", "pipe [fifo]"]
    deeper = call(ctx, "fs.list_dir", path=".", recursive=True, maxDepth=5).data["entries"]
    assert {"a/b/c/d/deep.txt", "a/b/c/d/e"} <= {each["path"] for each in deeper}
    shallow = call(ctx, "fs.list_dir", path=".", recursive=True, maxDepth=1).data["entries"]
    assert "a/b" not in {each["path"] for each in shallow}


def test_a_long_listing_is_cut_and_says_so(ctx: ToolContext, tmp_path: Path) -> None:
    for number in range(2_001):
        (tmp_path / f"{number:04}").touch()
    result = call(ctx, "fs.list_dir", path=".")
    assert len(result.data["entries"]) == 2_000
    assert result.data["truncated"]
    assert "cut at 2,000 entries" in result.output.splitlines()[-1]
    (tmp_path / "2000").unlink()
    assert not call(ctx, "fs.list_dir", path=".").data["truncated"]


def test_odd_names_stay_on_one_line_and_survive_json(ctx: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "two\nlines").touch()
    (tmp_path / os.fsdecode(b"not\xffutf8")).touch()
    result = call(ctx, "fs.list_dir", path=".")
    assert len(result.output.splitlines()) == 2
    result.output.encode("utf-8")
    assert [each["name"] for each in result.data["entries"]] == ["not\\xffutf8", "two\nlines"]


def test_an_empty_folder_says_so(ctx: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert call(ctx, "fs.list_dir", path="empty").output.endswith("is empty")


def test_listing_a_file_or_nothing_is_an_error_with_a_hint(ctx: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "file.txt").touch()
    assert "is a file" in failure(ctx, "fs.list_dir", path="file.txt").message
    missing = failure(ctx, "fs.list_dir", path="fil.txt")
    assert "does not exist" in missing.message
    assert "file.txt" in missing.hint


def test_a_small_file_is_read_whole(ctx: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("eins\nzwei €\n", encoding="utf-8")
    result = call(ctx, "fs.read_file", path="x.txt")
    assert result.output == "eins\nzwei €\n"
    assert result.data == {"path": str(tmp_path / "x.txt"), "content": "eins\nzwei €\n", "size": 14}


def test_a_file_over_max_bytes_is_an_error(ctx: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_bytes(b"a" * 204_801)
    problem = failure(ctx, "fs.read_file", path="x.txt")
    assert problem.code == "execution_error"
    assert "204,801 bytes" in problem.message
    assert "maxBytes" in problem.message
    (tmp_path / "x.txt").write_bytes(b"a" * 204_800)
    assert len(call(ctx, "fs.read_file", path="x.txt").output) == 204_800
    assert "maxBytes (3)" in failure(ctx, "fs.read_file", path="x.txt", maxBytes=3).message
    with pytest.raises(ValidationError, match="maxBytes"):
        call(ctx, "fs.read_file", path="x.txt", maxBytes=0)


def test_folders_devices_pipes_and_sockets_are_refused_at_once(ctx: ToolContext, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    here = socket.socket(socket.AF_UNIX)
    here.bind(str(tmp_path / "sock"))
    started = time.monotonic()
    assert "directory" in failure(ctx, "fs.read_file", path=".").message
    for path in ("pipe", "sock", "/dev/zero", "/proc/self/mem", "/proc/self/environ", "a\0b"):
        failure(ctx, "fs.read_file", path=path)
    assert time.monotonic() - started < 60  # what hangs, hangs without end
    here.close()


def test_a_link_that_leads_out_of_the_workspace_is_refused(ctx: ToolContext, tmp_path: Path) -> None:
    inside = tmp_path / "work"
    inside.mkdir()
    (tmp_path / "secret.txt").write_text("outside")
    (inside / "link.txt").symlink_to("../secret.txt")
    session = Session(str(inside), settings=Settings())
    problem = failure(ToolContext(ToolCall("x"), session, lambda progress: None, {}), "fs.read_file", path="link.txt")
    assert problem.code == "permission_denied"
    assert "outside" in problem.message


def test_effects_name_the_path_that_is_read(ctx: ToolContext) -> None:
    for name in ("fs.list_dir", "fs.read_file"):
        tool = BY_NAME[name]
        assert tool.effects is not None
        assert tool.effects(tool.arguments.parse({"path": "x"}), ctx) == [ReadPath(os.path.join(ctx.cwd, "x"))]
    assert [tool.effects(None, ctx) for tool in TOOLS[:3] if tool.effects] == [[], [], []]
