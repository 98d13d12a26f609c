"""Searching: the lines of `rg`, in one order, whichever way the search takes."""

from __future__ import annotations

import asyncio
import os
import random
import re
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.git.repositories import put, random_pattern, random_tree, repository

from surehand.core.errors import ToolFailure
from surehand.search import ripgrep as rg
from surehand.search import search
from surehand.search.gitignore import rg_agrees
from surehand.search.globs import file_filter
from surehand.search.ignore_files import write_memory_file
from surehand.search.search import OpenFiles, Root, Search
from surehand.search.survey import survey, walk_options
from surehand.search.walk import Walk

PATTERNS = [
    "import",
    "needle",
    r"def \w+\(",
    r"\bself\b",
    "^import os$",
    r"[A-Z][a-z]+Error",
    "needle|haystack",
    r"x{2,3}",
    "é",
    r"\w+é",
    "[^a-z ]needle",
    r"nee\x64le",
    r"(?i)NEEDLE",
    r"needle\s*$",
    "日本",
    r"\S+needle",
    ".needle.",
    r"(need|hay)(le|stack)",
    r"\p{Greek}",
    "needle$",
    "",
    "no such text",
    r"needle\(x\)",
    r"self\.xx \+ xxx",
    "café needle",
]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with everything that makes searches differ: encodings, line ends, binary files, links, odd names."""
    top = repository(tmp_path / "tree")
    put(top, "a.py", "import os\ndef needle(x):\n    return self.xx + xxx\nimport sys")
    put(top, "b/crlf.txt", b"one needle\r\ntwo\r\nneedle\r\nimport os\r\n")
    put(top, "b/utf16le.txt", "a needle\né needle\n".encode("utf-16"))
    put(top, "b/utf16be.txt", b"\xfe\xff" + "needle b\n".encode("utf-16-be"))
    put(top, "b/bom.txt", b"\xef\xbb\xbfneedle first\nimport os\n")
    put(top, "b/latin.txt", b"caf\xe9 needle\n\xff\xfe needle\n")
    put(top, "b/greek.txt", "λόγος needle é 日本 ValueError\nNEEDLE ΝΕΕ\n")
    put(top, "c/binary.bin", b"needle\n\0\nneedle\n")
    put(top, "c/late.bin", b"needle here\n" * 8_000 + b"\0needle\n")
    put(top, "c/long.txt", b"x" * 3000 + b" needle " + b"y" * 3000 + b"\nneedle\n")
    put(top, "c/cr.txt", b"old mac needle\rsecond needle\rthird")
    put(top, "c/empty.txt", b"")
    put(top, "c/many.txt", "".join(f"needle {number} haystack\n" for number in range(700)))
    put(top, ".hidden/x", "hidden needle\n")
    put(top, "odd\nname.txt", "needle\n")
    put(top, os.fsdecode(b"odd\xff.txt"), "needle\n")
    put(top, "-e.txt", "needle\n")
    put(top, ".gitignore", "ignored/\n*.log\n!keep.log\n")
    put(top, "ignored/x.txt", "needle\n")
    put(top, "a.log", "needle\n")
    put(top, "keep.log", "needle\n")
    put(top, "d/.gitignore", "secretive.txt\n!*.log\n")
    put(top, "d/secretive.txt", "needle\n")
    put(top, "d/b.log", "needle\n")
    put(top, ".ignore", "a.py\n")
    put(top, ".env", "needle=1\n")
    put(top, ".git/needle", "needle\n")
    (top / "link.py").symlink_to(top / "a.py")
    (top / "linked").symlink_to(top / "b")
    return top


def by_rg(top: Path, pattern: str, *options: str) -> list[tuple[bytes, int]]:
    """Return path and line of every match `rg` prints, without binary files and secrets."""
    arguments = ["--no-config", "--hidden", "--glob=!.git", "--no-ignore-dot", "--crlf", "--no-heading", "--null", "-n"]
    command = [rg.program(), *arguments, "--sort=path", "--text", *options, "-e", pattern, "."]
    printed = subprocess.run(command, cwd=top, capture_output=True, check=False).stdout
    found = [(match[1][2:], int(match[2])) for match in re.finditer(rb"([^\0]*)\0(\d+):[^\n]*\n", printed)]
    return [each for each in found if each[0] not in (b".env", b"c/binary.bin", b"c/late.bin")]


def lines(top: Path, pattern: str, need: int = 1 << 30, **options: bool) -> list[tuple[bytes, int]]:
    found = Search(Walk(os.fsencode(top)), rg.Pattern(pattern, **options)).lines(need)
    return [(line.path, line.number) for line in found]


@pytest.mark.parametrize("small", [600, 3])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_lines_are_those_of_rg(tree: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, small: int) -> None:
    monkeypatch.setattr(search, "SMALL", small)
    monkeypatch.setattr(search, "PROBE", min(small, 24))
    assert lines(tree, pattern) == by_rg(tree, pattern)


@pytest.mark.parametrize("pattern", ["needle", r"NEE\w+", "é"])
def test_case_can_be_left_aside(tree: Path, pattern: str) -> None:
    assert lines(tree, pattern, ignore_case=True) == by_rg(tree, pattern, "-i")


def test_a_cut_result_is_the_beginning_of_the_whole(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = lines(tree, "needle")
    assert len(whole) > 700
    for small in (600, 3):
        monkeypatch.setattr(search, "SMALL", small)
        for need in (1, 2, 7, 20, 100, 705, len(whole)):
            assert lines(tree, "needle", need) == whole[:need]


@pytest.mark.parametrize("multiline", [False, True])
def test_lines_that_begin_late_among_many_files_come_in_order(tmp_path: Path, multiline: bool) -> None:
    for number in range(300):
        put(tmp_path, f"{number:03}", "plum π pear\nplum plum\n" * 9 if number > 150 else "cherry\n")
    whole = lines(tmp_path, r"pl\w+|\p{Greek}", multiline=multiline)
    assert whole == [(f"{number:03}".encode(), line) for number in range(151, 300) for line in range(1, 19)]
    assert lines(tmp_path, r"pl\w+|\p{Greek}", 50, multiline=multiline) == whole[:50]


def test_a_binary_file_is_not_handed_to_rg_however_small(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"needle\n\0")
    (tmp_path / "b.txt").write_bytes("needle\n".encode("utf-16"))
    (tmp_path / "c.txt").write_bytes(b"needle\n")
    root = Root(os.open(tmp_path, os.O_RDONLY))
    with OpenFiles(root, [b"a.bin", b"b.txt", b"c.txt"]) as held:
        assert sorted(held.files.values()) == [b"b.txt", b"c.txt"]
    root.close()


def test_files_without_a_plain_text_are_not_handed_to_rg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(40):
        put(tmp_path, f"{number}.txt", f"text {number}\n")
    put(tmp_path, "utf16.txt", "text 7\n".encode("utf-16"))
    handed: list[int] = []
    run = Search.run

    def count_handed(self: Search, arguments: Any, *rest: Any, **more: Any) -> Any:
        handed.append(len(arguments) - arguments.index("--") - 1)
        return run(self, arguments, *rest, **more)

    monkeypatch.setattr(Search, "run", count_handed)
    found = Search(Walk(os.fsencode(tmp_path)), rg.Pattern("text 7")).lines(10)
    assert [line.path for line in found] == [b"7.txt", b"utf16.txt"]
    assert handed == [2]
    assert not Search(Walk(os.fsencode(tmp_path)), rg.Pattern("text 99")).counts(10)
    assert handed == [2, 1]  # the file `rg` has to translate


def test_counts_are_the_numbers_of_lines(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected: dict[bytes, int] = {}
    for path, _ in by_rg(tree, "needle"):
        expected[path] = expected.get(path, 0) + 1
    for small in (600, 3):
        monkeypatch.setattr(search, "SMALL", small)
        for pattern in ("needle", "needl[e]"):
            counted = Search(Walk(os.fsencode(tree)), rg.Pattern(pattern)).counts(1 << 30)
            assert dict(counted) == expected
            assert [path for path, _ in counted] == list(expected)


def test_a_line_is_shown_without_its_end(tree: Path) -> None:
    found = Search(Walk(os.fsencode(tree / "b")), rg.Pattern("two")).lines(10)
    assert [(line.path, line.number, line.text) for line in found] == [(b"crlf.txt", 2, b"two")]


def test_a_match_over_lines_is_marked_on_each(tree: Path) -> None:
    found = Search(Walk(os.fsencode(tree)), rg.Pattern(r"os\ndef", multiline=True)).lines(10)
    assert [(line.number, line.text, line.spans) for line in found] == [
        (1, b"import os", ((7, 9),)),
        (2, b"def needle(x):", ((0, 3),)),
    ]


def test_a_matched_line_end_is_marked_where_it_is_and_not_on_the_next_line(tmp_path: Path) -> None:
    put(tmp_path, "a", "abc\nabc\r\n\n")
    found = Search(Walk(os.fsencode(tmp_path)), rg.Pattern(r"c\r?\n|^\n", multiline=True)).lines(10)
    assert [(line.text, line.spans) for line in found] == [(b"abc", ((2, 3),)), (b"abc", ((2, 3),)), (b"", ((0, 0),))]


def test_rules_that_rg_reads_otherwise_are_git_s_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = repository(tmp_path / "r")
    put(top, ".gitignore", "*.{a,b}\nx[[:digit:]]\n")
    for name in ("f.a", "f.b", "f.{a,b}", "x1", "xy", "z1", "z2"):
        put(top, name, "needle\n")
    monkeypatch.setattr(search, "SMALL", 2)
    assert [path for path, _ in lines(top, "needle")] == [b"f.a", b"f.b", b"xy", b"z1", b"z2"]


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every tree count as a large one, that `rg` would walk by itself."""
    monkeypatch.setattr(search, "SMALL", 2)
    monkeypatch.setattr(search, "PROBE", 1)


DEEP = "some/where/quite/deep/in/a/tree"


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("rules", ["*.{a,b}\n", ".*\n*.{a,b}\n"])
def test_a_deep_rule_that_rg_reads_otherwise_is_git_s_though_nobody_tracks_it(tmp_path: Path, rules: str) -> None:
    top = repository(tmp_path / "r")
    put(top, f"{DEEP}/.gitignore", rules)
    put(top, "x/.gitignore", "*.c\n")
    for name in (f"{DEEP}/f.a", "x/f.c", "z1", "z2"):
        put(top, name, "needle\n")
    assert [path for path, _ in lines(top, "needle")] == [f"{DEEP}/f.a".encode(), b"z1", b"z2"]


@pytest.mark.usefixtures("large")
def test_a_rule_file_git_does_not_read_hides_nothing_in_a_large_tree(tmp_path: Path) -> None:
    top = repository(tmp_path / "r")
    put(top, "elsewhere", "*.a\n")
    for name in (f"{DEEP}/f.a", "fifo/f.a", "z1", "z2"):
        put(top, name, "needle\n")
    (top / DEEP / ".gitignore").symlink_to(top / "elsewhere")
    found = [f"{DEEP}/f.a".encode(), b"z1", b"z2"]
    assert [path for path, _ in lines(top, "needle")] == [b"fifo/f.a", *found]
    os.mkfifo(top / "fifo" / ".gitignore")
    began = time.monotonic()
    assert [path for path, _ in lines(top, "needle")] == [b"fifo/f.a", *found]
    assert time.monotonic() - began < 60  # what hangs, hangs without end


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("outer_is_one_too", [True, False])
def test_a_repository_inside_a_large_tree_follows_its_own_rules(tmp_path: Path, outer_is_one_too: bool) -> None:
    top = repository(tmp_path / "outer") if outer_is_one_too else tmp_path / "outer"
    put(top, ".gitignore", "*.log\n")
    put(repository(top / "d" / "inner"), ".gitignore", "*.txt\n")
    for name in ("a.log", "d/inner/b.log", "d/inner/c.txt", "d/inner/sub/b.log", "z1", "z2"):
        put(top, name, "needle\n")
    assert [path for path, _ in lines(top, "needle")] == [b"d/inner/b.log", b"d/inner/sub/b.log", b"z1", b"z2"]


def settle(top: Path) -> None:
    """Make every folder look as if nothing had happened in it for long."""
    for folder, _, _ in os.walk(top):
        os.utime(folder, (1_000_000_000, 1_000_000_000))


@pytest.mark.usefixtures("large")
def test_rules_that_appear_or_change_in_a_tree_searched_before_count_at_once(tmp_path: Path) -> None:
    top = repository(tmp_path / "r")
    put(top, "d/.gitignore", "*.c\n")
    for name in ("d/e/f.a", "d/f.c", "z1", "z2"):
        put(top, name, "needle\n")
    settle(top)
    for _ in range(2):
        assert [path for path, _ in lines(top, "needle")] == [b"d/e/f.a", b"z1", b"z2"]
    put(top, "d/.gitignore", "*.{a,b}\n")
    assert [path for path, _ in lines(top, "needle")] == [b"d/e/f.a", b"d/f.c", b"z1", b"z2"]
    put(top, "d/.gitignore", "*.c\n")
    settle(top)
    assert [path for path, _ in lines(top, "needle")] == [b"d/e/f.a", b"z1", b"z2"]
    put(top, "d/e/.gitignore", "f.a\n!*.{a,b}\n")
    put(top, "d/e/f.{a,b}", "needle\n")
    assert [path for path, _ in lines(top, "needle")] == [b"d/e/f.{a,b}", b"z1", b"z2"]


def test_the_private_and_the_users_rules_hold_in_a_large_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = repository(tmp_path / "r")
    put(Path(os.environ["HOME"]), ".config/git/ignore", "*.user\n*.x\n")
    put(top, ".git/info/exclude", "*.private\n!*.x\n/d/only\n")
    for name in ("a.user", "b.private", "c.x", "d/only", "e/d/only", "f", "g"):
        put(top, name, "needle\n")
    monkeypatch.setattr(search, "SMALL", 2)
    monkeypatch.setattr(search, "PROBE", 1)
    assert [path for path, _ in lines(top, "needle")] == [b"c.x", b"e/d/only", b"f", b"g"]
    assert [path for path, _ in lines(top / "d", "needle")] == []


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("*.py", "a.py s/b.py s/t/c.py"),
        ("s/*.py", "s/b.py"),
        ("/*.py", "a.py"),
        ("s/**/*.{py,md}", "s/b.py s/t/c.py s/t/d.md"),
        ("!*.py", "s/t/d.md x.log"),
        ("!s", "a.py x.log"),
        ("!t/", "a.py s/b.py x.log"),
        ("*.{py}", "a.py s/b.py s/t/c.py"),
        ("{a.py,s/t/*}", "a.py s/t/c.py s/t/d.md"),
        ("{c.py,s/*}", "s/b.py"),
        ("nothing", ""),
    ],
)
@pytest.mark.parametrize("small", [600, 1])
def test_a_glob_narrows_as_in_rg(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, glob: str, expected: str, small: int
) -> None:
    for name in ("a.py", "s/b.py", "s/t/c.py", "s/t/d.md", "x.log"):
        put(tmp_path, name, "needle\n")
    monkeypatch.setattr(search, "SMALL", small)
    monkeypatch.setattr(search, "PROBE", 1)
    chosen = file_filter(glob, None)
    found = Search(Walk(os.fsencode(tmp_path)), rg.Pattern("needle"), chosen.keeps, chosen.narrow).lines(100)
    assert [os.fsdecode(line.path) for line in found] == expected.split()
    printed = subprocess.run(
        [rg.program(), "-l", "-g", glob, "needle", "."], cwd=tmp_path, capture_output=True, check=False
    )
    assert sorted(printed.stdout.decode().replace("./", "").split()) == expected.split()


@pytest.mark.parametrize(
    "glob", ["[a-c]*", "[!c-z].py", "[-a]*", "[a-]*", "[]-a]*", r"[a\-b]*", "[[:alpha:]]*", "[!-]*"]
)
def test_a_class_of_a_glob_is_read_as_it_stands(glob: str) -> None:
    assert file_filter(glob, None).keeps(b"a.py")


def test_a_glob_that_begins_with_a_dot_and_a_slash_counts_from_the_directory(tmp_path: Path) -> None:
    for name in ("a.py", "s/a.py"):
        put(tmp_path, name, "needle\n")
    for glob, expected in (("./a.py", [b"a.py"]), ("./s/*.py", [b"s/a.py"]), ("!./a.py", [b"s/a.py"])):
        chosen = file_filter(glob, None)
        found = Search(Walk(os.fsencode(tmp_path)), rg.Pattern("needle"), chosen.keeps, chosen.narrow).lines(100)
        assert [line.path for line in found] == expected


def test_a_type_narrows_as_in_rg_and_an_unknown_one_is_explained(tmp_path: Path) -> None:
    for name in ("a.py", "b.pyi", "c.js", "Makefile", "d.mjs"):
        put(tmp_path, name, "needle\n")
    for type_name in ("py", "js", "make", "all"):
        chosen = file_filter(None, type_name)
        found = Search(Walk(os.fsencode(tmp_path)), rg.Pattern("needle"), chosen.keeps, chosen.narrow).lines(100)
        printed = subprocess.run(
            [rg.program(), "-l", "-t", type_name, "needle", "."], cwd=tmp_path, capture_output=True
        )
        assert sorted(os.fsdecode(line.path) for line in found) == sorted(
            printed.stdout.decode().replace("./", "").split()
        )
    with pytest.raises(ToolFailure) as refused:
        file_filter(None, "tsx2")
    assert refused.value.code == "invalid_args"


def test_a_negated_glob_leaves_the_searched_folder_itself_alone(tmp_path: Path) -> None:
    for name in ("a.py", "t/s/b.py", "t/c.py"):
        put(tmp_path / "s", name, "needle\n")
    chosen = file_filter("!s", None, b"s/")
    found = Search(Walk(os.fsencode(tmp_path / "s")), rg.Pattern("needle"), chosen.keeps, chosen.narrow).lines(100)
    assert [line.path for line in found] == [b"a.py", b"t/c.py"]


@pytest.mark.parametrize("glob", ["[abc", "*.{py", "a}", "!x[", "{a,[b}", "[z-a].py", "[!b-ac]", "a\\", "!"])
def test_a_glob_that_cannot_be_read_is_refused(glob: str) -> None:
    with pytest.raises(ToolFailure, match="the glob") as refused:
        file_filter(glob, None)
    assert refused.value.code == "invalid_args"


@pytest.mark.parametrize(
    ("pattern", "position"),
    [
        ("foo(", 3),
        ("a(b(c", 3),
        (r"[(]\((", 5),
        ("a[z-a]", 2),
        ("*x", 0),
        ("a{3,1}", 1),
        ("x)", 1),
        (r"x\N|\.", 1),
        (r"été{2,}\pN{,3}", 11),
        ("(?<n>a)(?<n>b)", 10),
        ("x\ny\\y", 3),
        ("ab\\", 2),
        ("é(?<=b*)", 1),
        (r"(é)\2", 4),
        ("é(?=b", 1),
    ],
)
def test_a_bad_pattern_is_refused_with_its_place(tmp_path: Path, pattern: str, position: int) -> None:
    put(tmp_path, "a", "x\n")
    with pytest.raises(ToolFailure) as refused:
        lines(tmp_path, pattern)
    assert refused.value.code == "invalid_args"
    assert refused.value.details["position"] == position


def test_lookaround_and_backreferences_are_answered(tmp_path: Path) -> None:
    put(tmp_path, "a", "foobar\nfoobaz\nabab\nabcd\n")
    assert lines(tmp_path, "foo(?!bar)") == [(b"a", 2)]
    assert lines(tmp_path, r"(ab)\1") == [(b"a", 3)]


@pytest.mark.parametrize(
    "pattern", [r"(a+)+$", r"(a|aa)+$", r".*.*=.*", r"^(\w+\s?)*$", r"(?=(a+)+b)a", r"([a-z]+)*\1$"]
)
def test_patterns_that_hang_elsewhere_end_soon(tmp_path: Path, pattern: str) -> None:
    put(tmp_path, "a", "a" * 30_000 + "!\n" + "x" * 20_000 + "\n")
    began = time.monotonic()
    with suppress(ToolFailure):
        lines(tmp_path, pattern)
    assert time.monotonic() - began < 60  # what hangs, hangs without end


def test_a_pattern_that_tries_too_many_ways_is_refused_not_passed_over(tmp_path: Path) -> None:
    put(tmp_path, "a", "a" * 5000 + "!\n")
    with pytest.raises(ToolFailure, match="backtracks too much"):
        lines(tmp_path, r"^(a+)+$(?<!y)")


def test_a_search_ends_at_its_deadline(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDWR)
    slow = Search(Walk(os.fsencode(tmp_path)), rg.Pattern("x"), deadline=time.monotonic() + 0.2)
    with pytest.raises(ToolFailure, match="longer than") as refused:
        list(slow.run(["-"], stdin=reader))
    os.close(reader)
    assert refused.value.code == "timeout"


def test_a_match_over_which_rg_breaks_off_is_found_all_the_same(tmp_path: Path) -> None:
    put(tmp_path, "a", " b b b b b b b b\nc\n")
    put(tmp_path, "b", "x\n")
    pattern = rg.Pattern(r"(^|[^a-z])((([a-z]+)?)\s)?b(\s([a-z]+)?)($|[^a-z])", multiline=True, context=1)
    expected = [(1, b" b b b b b b b b", True), (2, b"c", False)]
    found = Search(Walk(os.fsencode(tmp_path)), pattern).lines(10)
    assert [(line.number, line.text, line.is_match) for line in found] == expected
    with (tmp_path / "a").open("rb") as file:
        alone = search.search_open_file(file.fileno(), pattern, 10, rg.Stop())
    assert [(line.number, line.text, line.is_match) for line in alone or ()] == expected


def test_a_search_that_breaks_off_is_an_error_and_no_short_result() -> None:
    reading, writing = os.pipe()
    stop = rg.Stop()
    found = rg.stream_output(["--regexp=needle", "--line-buffered", "--", "-"], None, stop, stdin=reading)
    os.write(writing, b"needle\n")
    assert next(found) + next(found) == b"needle\n"
    for process in stop.running:
        process.kill()
    with pytest.raises(ToolFailure, match=r"rg failed \(signal 9\)"):
        list(found)
    os.close(reading)
    os.close(writing)


async def test_a_cancelled_search_leaves_no_process(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDWR)
    endless = Search(Walk(os.fsencode(tmp_path)), rg.Pattern("x"))
    task = asyncio.create_task(rg.in_thread(lambda: list(endless.run(["-"], stdin=reader)), endless.stop))
    while not endless.stop.running:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    os.close(reader)
    assert not endless.stop.running


def test_rg_is_found_though_it_is_not_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    rg.program.cache_clear()
    assert os.access(rg.program(), os.X_OK)
    assert any(map(os.path.exists, rg.find_recorded_programs()))


def test_neither_configuration_nor_names_become_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = put(tmp_path, "p.sh", "#!/bin/sh\ntouch pwn\n")
    script.chmod(0o755)
    put(tmp_path, "rc", "--pre=./p.sh\n")
    put(tmp_path, "--pre=.", "x\n")
    put(tmp_path, "--files", "x\n")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(tmp_path / "rc"))
    assert lines(tmp_path, "--pre=./p.s[h]") == [(b"rc", 1)]
    assert [path for path, _ in lines(tmp_path, "[x]$")] == [b"--files", b"--pre=."]
    assert not (tmp_path / "pwn").exists()


EVERYDAY = [
    "\\#*#",
    ".\\#*",
    "*~",
    "[._]*.s[a-v][a-z]",
    "*.py[cod]",
    "[Bb]in/",
    "**/.x",
    "a/**",
    "**/a/**",
    "*/a",
    "/*",
    "x\\ ",
]


def compare_rg_with_git(folder: Path, seed: int, rounds: int) -> None:
    """Let `rg` list random trees by rules it is trusted with, and compare with the walk that follows git's."""
    chance = random.Random(seed)
    for number in range(rounds):
        top = repository(folder / str(number))
        for each in random_tree(top, chance, 20):
            drawn = [chance.choice([random_pattern(chance), chance.choice(EVERYDAY)]) for _ in range(6)]
            trusted = [line for line in drawn if rg_agrees(line.encode())]
            put(top, os.path.join(each, ".gitignore"), "\n".join(trusted) + "\n")
        walk = Walk(os.fsencode(top))
        printed = b"".join(
            rg.stream_output(["--files", "--null", *walk_options(walk), "--", "."], walk.root, rg.Stop())
        )
        assert sorted(path for path, _ in walk.files()) == sorted(path[2:] for path in printed.split(b"\0") if path)


def test_rules_rg_is_trusted_with_are_read_as_git_reads_them(tmp_path: Path) -> None:
    compare_rg_with_git(tmp_path, 1, 12)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 110))
def test_many_rules_rg_is_trusted_with_are_read_as_git_reads_them(tmp_path: Path, seed: int) -> None:
    compare_rg_with_git(tmp_path, seed, 200)


def compare_given_rules_with_git(folder: Path, seed: int, rounds: int) -> None:
    """Give `rg` the rules of random trees as one list: it leaves out nothing that git would not."""
    chance = random.Random(seed)
    given = 0
    for number in range(rounds):
        top = repository(folder / str(number))
        for each in random_tree(top, chance, 20):
            drawn = [chance.choice([random_pattern(chance), chance.choice(EVERYDAY), "*.{a,b}"]) for _ in range(4)]
            put(top, os.path.join(each, ".gitignore"), "\n".join(drawn) + "\n")
        walk = Walk(os.fsencode(chance.choice([top, *(path for path in top.iterdir() if path.is_dir())])))
        tree = survey(walk, rg.Stop())
        if tree is None or not (rules := tree.given):
            continue
        fd = write_memory_file(rules)
        given += 1
        arguments = ["--files", "--null", *walk_options(walk, fd), "--", "."]
        printed = b"".join(rg.stream_output(arguments, walk.root, rg.Stop(), held=(fd,)))
        os.close(fd)
        listed = {path[2:] for path in printed.split(b"\0") if path}
        assert {path for path, is_file in walk.files() if is_file} <= listed, (top, rules)
    assert given > rounds // 8


def test_a_list_of_rules_makes_rg_leave_out_nothing_that_git_keeps(tmp_path: Path) -> None:
    compare_given_rules_with_git(tmp_path, 1, 16)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 105))
def test_a_list_of_rules_makes_rg_leave_out_nothing_in_many_trees(tmp_path: Path, seed: int) -> None:
    compare_given_rules_with_git(tmp_path, seed, 200)


@pytest.mark.usefixtures("large")
def test_a_tree_with_a_rule_that_rg_reads_otherwise_is_walked_by_rg(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = repository(tmp_path / "r")
    put(top, ".gitignore", "*.{a,b}\nIcon[\r]\n/out/\n")
    put(top, "deep/er/.gitignore", "*.log\n!keep.log\n/top.txt\n\\#x\n")
    kept = ["Icon", "deep/er/keep.log", "deep/er/x/top.txt", "deep/out/f", "deep/top.txt", "f.a", "z.log"]
    for name in (*kept, "Icon\r", "deep/er/no.log", "deep/er/top.txt", "deep/er/x/#x", "f.{a,b}", "out/f"):
        put(top, name, "needle\n")
    walked: list[object] = []
    count_kept = Search._count_kept  # pyright: ignore[reportPrivateUsage]

    def note_walk(*args: Any) -> Any:
        walked.append(1)
        return count_kept(*args)

    monkeypatch.setattr(Search, "_count_kept", note_walk)
    assert [os.fsdecode(path) for path, _ in lines(top, "needle")] == kept
    assert walked


@pytest.mark.usefixtures("large")
def test_what_changes_between_two_searches_counts_in_the_second(tmp_path: Path) -> None:
    top = repository(tmp_path / "r")
    for name in ("a/b/f.txt", "a/f.log", "z1", "z2"):
        put(top, name, "needle\n")

    def found() -> list[str]:
        return [os.fsdecode(path) for path, _ in lines(top, "needle")]

    assert found() == ["a/b/f.txt", "a/f.log", "z1", "z2"]
    put(top, "a/b/g.txt", "needle\n")
    assert found() == ["a/b/f.txt", "a/b/g.txt", "a/f.log", "z1", "z2"]
    put(top, "a/.gitignore", "*.{log,txt}\n")
    put(top, "a/x.{log,txt}", "needle\n")
    assert found() == ["a/b/f.txt", "a/b/g.txt", "a/f.log", "z1", "z2"]
    put(top, "a/.gitignore", "*.log\n")
    assert found() == ["a/b/f.txt", "a/b/g.txt", "a/x.{log,txt}", "z1", "z2"]
    put(top, "a/new/.gitignore", "!*.log\n")
    put(top, "a/new/f.log", "needle\n")
    assert found() == ["a/b/f.txt", "a/b/g.txt", "a/new/f.log", "a/x.{log,txt}", "z1", "z2"]
    put(top, "a/new/.gitignore", "f.{log,x}\n")
    assert found() == ["a/b/f.txt", "a/b/g.txt", "a/x.{log,txt}", "z1", "z2"]
    (top / "a" / ".gitignore").unlink()
    assert found() == ["a/b/f.txt", "a/b/g.txt", "a/f.log", "a/new/f.log", "a/x.{log,txt}", "z1", "z2"]


@pytest.mark.usefixtures("large")
def test_a_folder_with_the_times_of_another_is_not_taken_for_it(tmp_path: Path) -> None:
    top = repository(tmp_path / "r")
    for name in ("a/b/f.a", "z1", "z2"):
        put(top, name, "needle\n")
    other = tmp_path / "other"
    put(other, "b/f.a", "needle\n")
    put(other, "b/.gitignore", "*.{a,b}\n")
    os.utime(top / "a" / "b", (1, 1))
    assert [path for path, _ in lines(top, "needle")] == [b"a/b/f.a", b"z1", b"z2"]
    os.utime(other / "b", (1, 1))
    (top / "a").rename(tmp_path / "old")
    other.rename(top / "a")
    assert [path for path, _ in lines(top, "needle")] == [b"a/b/f.a", b"z1", b"z2"]
