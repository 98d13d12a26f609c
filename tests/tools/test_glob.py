"""Glob: the files git would name, newest first, and what is left out."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.tools.searching import TOOLS, Desk

from surehand.core.effects import ReadPath
from surehand.core.errors import ToolFailure
from surehand.search.walk import DEPTH_LIMIT
from surehand.tools import glob as glob_tool


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path / "ws")
    for age, name in enumerate(["a.py", "src/b.py", "src/deep/c.ts", ".hidden/d.py", "e.md"]):
        path = desk.put(name, "x" * age)
        os.utime(path, (2_000_000_000 - age, 2_000_000_000 - age))
    return desk


async def names(desk: Desk, pattern: str, **more: object) -> list[str]:
    result = await desk.call("Glob", pattern=pattern, **more)
    return [file["path"] for file in result.data["files"]]


def test_the_record_says_what_the_reference_says() -> None:
    info = TOOLS["Glob"].info()
    assert (info.read_only, info.concurrency_safe, info.destructive, info.level) == (True, True, False, 0)
    properties = info.input_schema["properties"]
    assert info.input_schema["required"] == ["pattern"]
    assert properties["pattern"]["description"] == (
        "The glob pattern to match files against (e.g. **/*.go, src/**/*.ts)"
    )
    assert properties["path"]["description"] == "The directory to search in. Defaults to the current working directory."
    assert properties["include_ignored"]["description"] == (
        "Force include files that are normally ignored by .gitignore (default false)"
    )
    assert properties["include_ignored"]["default"] is False


async def test_files_come_newest_first_with_their_sizes(desk: Desk) -> None:
    result = await desk.call("Glob", pattern="**/*.py")
    assert result.output == "a.py (0 bytes)\nsrc/b.py (1 bytes)\n.hidden/d.py (3 bytes)"
    assert result.data["files"][1] == {"path": "src/b.py", "size": 1, "mtime": 1_999_999_999.0}
    assert (result.data["total"], result.data["truncated"]) == (3, False)


async def test_patterns_find_what_they_name(desk: Desk) -> None:
    assert await names(desk, "*.py") == ["a.py"]
    assert await names(desk, "src/**") == ["src/b.py", "src/deep/c.ts"]
    assert await names(desk, "**/*.{ts,md}") == ["src/deep/c.ts", "e.md"]
    assert await names(desk, "*.py", path="src") == ["src/b.py"]
    assert await names(desk, "[a-c].py") == ["a.py"]
    assert await names(desk, str(desk.root / "src" / "*.py")) == ["src/b.py"]


async def test_ignored_and_excluded_files_are_left_out(desk: Desk) -> None:
    desk.put(".gitignore", "*.log\n!keep.log\n/only/\n")
    excluded = ["node_modules/m.js", "__pycache__/a.x", "z.pyc", "vendor/v.c", "p/dist/d.js", "build/b.o", ".DS_Store"]
    ignored = ["x.log", "only/o.c"]
    for name in (*excluded, *ignored, "keep.log", "p/only/o.c", "vendor.c", ".git/HEAD", ".git/config"):
        desk.put(name)
    kept = {
        ".gitignore",
        "keep.log",
        "p/only/o.c",
        "vendor.c",
        "a.py",
        "src/b.py",
        "src/deep/c.ts",
        ".hidden/d.py",
        "e.md",
    }
    assert set(await names(desk, "**")) == kept
    assert set(await names(desk, "**", include_ignored=True)) == kept | set(excluded) | set(ignored)


async def test_secrets_are_not_listed(desk: Desk) -> None:
    for name in (".env", "k/server.pem", ".ssh/known_hosts", ".env.example"):
        desk.put(name)
    for include_ignored in (False, True):
        found = await names(desk, "**", include_ignored=include_ignored)
        assert ".env.example" in found
        assert not {".env", "k/server.pem", ".ssh/known_hosts"} & set(found)
    desk.session.keeps_out = lambda path: "/src/" in path
    assert not [name for name in await names(desk, "**") if name.startswith("src/")]


async def test_a_pattern_that_matches_nothing_says_what_was_looked_at(desk: Desk) -> None:
    desk.put(".gitignore", "*.log\n")
    desk.put("x.log")
    result = await desk.call("Glob", pattern="**/*.log")
    assert result.output == (
        "No files match **/*.log in ./ (looked at 6 files in 4 folders; 1 ignored entry left out, "
        "include_ignored=true shows them)"
    )
    assert result.ok


async def test_a_long_list_is_cut_and_says_so(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glob_tool, "LIMIT", 3)
    result = await desk.call("Glob", pattern="**")
    assert [file["path"] for file in result.data["files"]] == ["a.py", "src/b.py", "src/deep/c.ts"]
    assert result.output.endswith("(cut at 3 of 5 files, the newest; use a narrower pattern)")
    assert (result.data["total"], result.meta["truncated"]) == (5, True)


async def test_links_are_listed_and_not_followed(desk: Desk, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.py").write_text("x")
    (desk.root / "way").symlink_to(outside)
    (desk.root / "loop").symlink_to(desk.root)
    found = await names(desk, "**")
    assert {"way", "loop"} <= set(found)
    assert not [name for name in found if "secret" in name]
    with pytest.raises(ToolFailure) as refused:
        await names(desk, "*", path="way")
    assert refused.value.code == "permission_denied"


async def test_a_large_tree_is_listed_like_a_small_one_links_included(desk: Desk) -> None:
    desk.put(".gitignore", "*.log\nskipped/\n")
    for number in range(1500):
        desk.put(f"many/{number % 30}/{number}.txt")
    desk.put("skipped/x.txt")
    (desk.root / "many" / "7" / "to-a-file").symlink_to(desk.root / "a.py")
    (desk.root / "many" / "7" / "to-a-folder").symlink_to(desk.root / "src")
    (desk.root / "many" / "8" / "to-nothing").symlink_to("nowhere")
    (desk.root / "many" / "8" / "left-out.log").symlink_to("nowhere")
    os.mkfifo(desk.root / "many" / "9" / "pipe")
    result = await desk.call("Glob", pattern="many/**")
    listed = {file["path"] for file in result.data["files"]}
    assert {name for name in listed if not name.endswith(".txt")} == {
        "many/7/to-a-file",
        "many/7/to-a-folder",
        "many/8/to-nothing",
    }
    assert (result.data["total"], result.meta.get("truncated")) == (1503, None)


async def test_a_folder_left_out_by_default_is_named_when_nothing_else_is_found(desk: Desk) -> None:
    desk.put("dist/app.js")
    result = await desk.call("Glob", pattern="dist/*.js")
    assert "1 ignored entry left out, include_ignored=true shows them" in result.output
    assert await names(desk, "dist/*.js", include_ignored=True) == ["dist/app.js"]


async def test_folders_that_cannot_be_read_are_told(desk: Desk) -> None:
    desk.put("too/x")
    at = os.open(desk.root / "too", os.O_RDONLY)
    for _ in range(DEPTH_LIMIT):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    open_before = len(os.listdir("/proc/self/fd"))
    result = await desk.call("Glob", pattern="too/**")
    assert result.output == "too/x (0 bytes)\n\n(1 folder that cannot be read is not listed)"
    found = await desk.call("Grep", pattern="zzz", path="too")
    assert found.output == "No matches found in too (1 file)\n(1 folder that cannot be read is not searched)"
    assert len(os.listdir("/proc/self/fd")) <= open_before  # garbage of other tests may go meanwhile


async def test_odd_names_are_shown_safely(desk: Desk) -> None:
    desk.put("two\nlines.c")
    desk.put(os.fsdecode(b"\xff.c"))
    desk.put('quo"te.c')
    assert sorted(await names(desk, "*.c")) == ['"\\377.c"', '"quo\\"te.c"', '"two\\nlines.c"']


async def test_the_root_of_a_pattern_is_what_the_policy_judges(desk: Desk) -> None:
    assert desk.effects("Glob", pattern="**/*.py") == [ReadPath(str(desk.root), recursive=True)]
    assert desk.effects("Glob", pattern="/etc/**") == [ReadPath("/etc", recursive=True)]
    assert desk.effects("Glob", pattern="../x/*") == [ReadPath(f"{desk.root}/../x", recursive=True)]


async def test_what_cannot_be_a_pattern_is_refused(desk: Desk) -> None:
    for pattern in ("a\0b", "{a,b}" * 40, "src/*/../x"):
        with pytest.raises(ToolFailure) as refused:
            await names(desk, pattern)
        assert refused.value.code == "invalid_args"
    with pytest.raises(ToolFailure, match="does not exist"):
        await names(desk, "*", path="nowhere")
    with pytest.raises(ToolFailure, match="not a directory"):
        await names(desk, "*", path="a.py")


async def test_a_whole_repository_is_listed_as_git_lists_it(desk: Desk) -> None:
    subprocess.run(["git", "init", "-q"], cwd=desk.root, check=True)
    desk.put(".gitignore", "*.o\n/gen/*\n!/gen/keep\nlogs/\n{a,b}.x\n[[:digit:]]y\n")
    desk.put("lib/.gitignore", "!*.o\n/skip\n")
    for name in (
        "a.o",
        "lib/b.o",
        "gen/x",
        "gen/keep",
        "logs/l",
        "lib/logs/l",
        "lib/skip",
        "lib/s/skip",
        "a.x",
        "1y",
        "zy",
    ):
        desk.put(name)
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=desk.root, capture_output=True, check=True
    )
    assert set(await names(desk, "**")) == set(listed.stdout.decode().split())


async def test_an_extended_pattern_that_finds_nothing_is_explained(desk: Desk) -> None:
    result = await desk.call("Glob", pattern="*.@(py|md)")
    assert "@(py|md) is read as plain text, {a,b} stands for one of several" in result.output
    assert await names(desk, "*.{py,md}") == ["a.py", "e.md"]
    desk.put("f(1).txt", "")
    assert await names(desk, "f(1).*") == ["f(1).txt"]
