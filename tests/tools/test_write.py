"""Write: whole contents, with what an existing file has kept."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from tests.tools.workbench import TOOLS, Workbench, failure


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return Workbench(tmp_path)


def test_a_new_file_is_created_with_its_folders(bench: Workbench) -> None:
    result = bench.write("a/b/c.txt", "hello\n")
    assert (bench.root / "a/b/c.txt").read_text() == "hello\n"
    assert result.data["created"]
    assert "+hello" in result.data["diff"]
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE((bench.root / "a/b/c.txt").stat().st_mode) == 0o666 & ~mask


def test_the_record_says_what_the_reference_says() -> None:
    info = TOOLS["Write"].info()
    assert (info.aliases, info.read_only, info.concurrency_safe, info.destructive) == (
        ("FileWrite",),
        False,
        False,
        False,
    )
    assert info.level == 2
    assert info.input_schema["required"] == ["file_path", "content"]
    assert info.input_schema["properties"]["content"]["description"] == "The content to write to the file"


def test_overwriting_needs_a_read_and_no_change_since(bench: Workbench) -> None:
    path = bench.put("a", "old\n", read=False)
    unread = failure(lambda: bench.write("a", "new\n"))
    assert (unread.details["layer"], unread.details["number"], unread.details["behavior"]) == (7, 6, "ask")
    bench.read("a")
    path.write_text("newer\n")
    modified = failure(lambda: bench.write("a", "new\n"))
    assert (modified.details["layer"], modified.details["number"]) == (8, 7)
    assert "+newer" in modified.details["diff"]
    bench.write("a", "new\n")
    assert path.read_text() == "new\n"


def test_a_written_file_can_be_written_again(bench: Workbench) -> None:
    for text in ("one", "two", "three"):
        bench.write("a", text)
    assert (bench.root / "a").read_text() == "three"


@pytest.mark.parametrize(
    ("before", "content", "after"),
    [
        (b"a\r\nb\r\n", "x\ny\n", b"x\r\ny\r\n"),
        (b"a\nb\n", "x\r\ny\r\n", b"x\r\ny\r\n"),
        (b"\xef\xbb\xbfa\n", "x\n", b"\xef\xbb\xbfx\n"),
        (b"\xef\xbb\xbfa\n", "\ufeffx\n", b"\xef\xbb\xbfx\n"),
        ("\ufeffa\r\n".encode("utf-16-le"), "x\n", "\ufeffx\r\n".encode("utf-16-le")),
        ("première déjà\n".encode("latin-1"), "été\n", "été\n".encode("latin-1")),
        (b"", "x\n", b"x\n"),
    ],
)
def test_encoding_mark_and_line_ends_of_an_existing_file_are_kept(
    bench: Workbench, before: bytes, content: str, after: bytes
) -> None:
    path = bench.put("a", before)
    bench.write("a", content)
    assert path.read_bytes() == after


def test_what_cannot_be_written_is_refused_untouched(bench: Workbench) -> None:
    path = bench.put("latin", "première déjà\n".encode("latin-1"))
    assert failure(lambda: bench.write("latin", "行\n")).details["number"] == 5
    assert path.read_bytes() == "première déjà\n".encode("latin-1")
    bench.put("bin", b"\0\1\2\3")
    assert failure(lambda: bench.write("bin", "x")).details["number"] == 5
    (bench.root / "dir").mkdir()
    assert failure(lambda: bench.write("dir", "x")).details["number"] == 5
    assert failure(lambda: bench.write("newdir/", "x")).details["number"] == 5


@pytest.mark.spec("FILE-3")
def test_mode_is_kept_and_a_link_inside_written_through(bench: Workbench) -> None:
    path = bench.put("bin/tool", "#!/bin/sh\n")
    path.chmod(0o755)
    os.symlink("bin/tool", bench.root / "link")
    bench.write("link", "#!/bin/sh\nexit 0\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o755
    assert (bench.root / "link").is_symlink()
    assert path.read_text().endswith("exit 0\n")


def test_a_dangling_link_inside_is_written_through(bench: Workbench) -> None:
    os.symlink("sub/target", bench.root / "link")
    bench.write("link", "x")
    assert (bench.root / "sub/target").read_text() == "x"


@pytest.mark.parametrize("name", ["../outside.txt", "link/outside.txt", "link2"])
def test_a_way_out_is_refused(bench: Workbench, tmp_path: Path, name: str) -> None:
    (tmp_path / "out").mkdir()
    os.symlink(tmp_path / "out", bench.root / "link")
    os.symlink(tmp_path / "out/new", bench.root / "link2")
    if name.startswith("link"):
        problem = failure(lambda: bench.write(name, "x"))
        assert (problem.code, problem.details["number"]) == ("permission_denied", 2)
        assert os.listdir(tmp_path / "out") == []
    else:
        # A path outside by its own name is the policy's to judge; once allowed, it is written and can be undone.
        bench.write(name, "x")
        bench.call("Undo")
        assert not (tmp_path / "outside.txt").exists()


def test_the_same_content_again_is_no_change(bench: Workbench) -> None:
    bench.put("a", "x\n")
    result = bench.write("a", "x\n")
    assert result.data["changed"] is False
    assert bench.history.changes() == []


def test_a_refused_write_leaves_no_folders(bench: Workbench) -> None:
    failure(lambda: bench.write("a/b/\ud800", "x"))
    failure(lambda: bench.write("new/x", "\ud800"))
    assert os.listdir(bench.root) == []


def test_a_dry_run_shows_the_whole_diff(bench: Workbench) -> None:
    bench.put("a", "".join(f"{n}\n" for n in range(1000)))
    shown = bench.preview("Write", file_path="a", content="".join(f"{n}!\n" for n in range(1000)))
    assert shown.diff.count("\n+") == 1001
    assert (bench.root / "a").read_text().startswith("0\n1\n")


def test_a_dry_run_of_what_is_there_already_says_that_nothing_would_be_written(bench: Workbench) -> None:
    bench.put("a", "same\n")
    shown = bench.preview("Write", file_path="a", content="same\n")
    assert "nothing would be written" in shown.text
    assert shown.diff == ""
    assert shown.data["changed"] is False
