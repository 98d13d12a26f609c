"""Grep: what is found, how it is shown, where it is cut."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from tests.tools.searching import TOOLS, Desk

from surehand.core.effects import ReadPath
from surehand.core.errors import ToolFailure
from surehand.search import search
from surehand.testing import scratch_app
from surehand.tools.grep import HEAD_MAXIMUM


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path / "ws")
    desk.put("a.py", "import os\n\ndef first():\n    return os\n")
    desk.put("src/b.py", "import sys\nimport os.path\n")
    desk.put("src/c.txt", "nothing\nimport this\n")
    return desk


def test_the_record_says_what_the_reference_says() -> None:
    info = TOOLS["Grep"].info()
    assert (info.read_only, info.concurrency_safe, info.destructive, info.level) == (True, True, False, 0)
    properties = info.input_schema["properties"]
    assert info.input_schema["required"] == ["pattern"]
    described = {
        "pattern": "The regular expression pattern to search for",
        "path": "File or directory to search in (default: cwd)",
        "glob": "File filter pattern (e.g. *.go, *.{ts,tsx})",
        "output_mode": "Output mode: content / files_with_matches / count",
        "context": "Number of surrounding lines to show",
        "case_insensitive": "Case insensitive search",
        "head_limit": "Maximum output lines (default 250)",
    }
    assert {name: properties[name]["description"] for name in described} == described
    assert properties["output_mode"]["enum"] == ["content", "files_with_matches", "count"]


async def test_matches_are_marked_and_named_by_path_and_line(desk: Desk) -> None:
    result = await desk.call("Grep", pattern=r"import \w+")
    assert result.output == (
        "a.py:1:>>import os<<\nsrc/b.py:1:>>import sys<<\nsrc/b.py:2:>>import os<<.path\nsrc/c.txt:2:>>import this<<"
    )
    assert result.data["lines"][2] == {"path": "src/b.py", "line": 2, "text": "import os.path"}
    assert result.data["truncated"] is False


async def test_context_lines_stand_between_dashes(desk: Desk) -> None:
    result = await desk.call("Grep", pattern="def|this", context=1)
    assert result.output == (
        "a.py-2-\na.py:3:>>def<< first():\na.py-4-    return os\n--\nsrc/c.txt-1-nothing\nsrc/c.txt:2:import >>this<<"
    )


async def test_files_and_counts(desk: Desk) -> None:
    files = await desk.call("Grep", pattern="import", output_mode="files_with_matches")
    assert files.output.split("\n") == ["a.py", "src/b.py", "src/c.txt"]
    counts = await desk.call("Grep", pattern="import", output_mode="count")
    assert counts.output.split("\n") == ["a.py:1", "src/b.py:2", "src/c.txt:1"]
    assert counts.data["files"][1] == {"path": "src/b.py", "count": 2}


async def test_one_file_can_be_searched(desk: Desk) -> None:
    assert (await desk.call("Grep", pattern="import", path="src/b.py")).output == (
        "src/b.py:1:>>import<< sys\nsrc/b.py:2:>>import<< os.path"
    )
    assert (await desk.call("Grep", pattern="import", path="src/b.py", output_mode="count")).output == "src/b.py:2"
    nothing = await desk.call("Grep", pattern="zebra", path="src/b.py")
    assert nothing.output == "No matches found in src/b.py (1 file)"


@pytest.mark.parametrize("small", [600, 5])
async def test_a_cut_result_says_how_to_go_on(desk: Desk, monkeypatch: pytest.MonkeyPatch, small: int) -> None:
    monkeypatch.setattr(search, "SMALL", small)
    for number in range(30):
        desk.put(f"many/{number:02}.txt", f"pear {number}\n" * 3)
    whole = await desk.call("Grep", pattern="pear")
    assert len(whole.output.split("\n")) == 90
    pages: list[str] = []
    offset = 0
    while True:
        page = await desk.call("Grep", pattern="pear", head_limit=40, offset=offset)
        pages += page.output.split("\n\n(cut")[0].split("\n")
        if not page.data["truncated"]:
            break
        offset = page.data["next_offset"]
        assert page.output.endswith(f"(cut at 40 lines; continue with offset={offset})")
        assert page.meta["truncated"] is True
    assert pages == whole.output.split("\n")
    files = await desk.call("Grep", pattern="pear", output_mode="files_with_matches", head_limit=10, offset=10)
    assert files.output.startswith("many/10.txt\n")
    assert files.output.endswith("(cut at 10 files; continue with offset=20)")
    beyond = await desk.call("Grep", pattern="pear", offset=1000)
    assert beyond.output == "(nothing at offset=1000: the result has 90 lines)"


async def test_250_lines_come_back_unless_said(desk: Desk) -> None:
    desk.put("long.txt", "plum\n" * 1000)
    result = await desk.call("Grep", pattern="plum")
    assert result.output.count("plum") == 250
    assert result.output.endswith("(cut at 250 lines; continue with offset=250)")


async def test_a_long_line_is_cut_round_its_match(desk: Desk) -> None:
    desk.put("wide.txt", "x" * 4000 + "needle" + "y" * 4000 + "\n" + "é" * 600 + "\n")
    result = await desk.call("Grep", pattern="needle|^é")
    first, second = result.output.split("\n")
    assert ">>needle<<" in first
    assert first.startswith("wide.txt:1:[3753 characters] ...xxx")
    assert first.endswith("yyy... [3753 characters]")
    assert len(first) < 600
    assert second.startswith("wide.txt:2:>>é<<é")
    desk.put("all.txt", "z" * 2000 + "\n")
    widest = await desk.call("Grep", pattern="z+", path="all.txt")
    assert widest.output == "all.txt:1:>>" + "z" * 500 + "<<... [1500 characters]"


async def test_a_monstrous_line_costs_little_memory_and_time(desk: Desk) -> None:
    desk.put("monster.txt", b"needle " + b"x" * 40_000_000 + b" needle\nneedle again\n")
    tracemalloc.start()
    try:
        result = await desk.call("Grep", pattern="needle", path="monster.txt")
        everything = await desk.call("Grep", pattern="xx", glob="monster.txt", output_mode="count")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    first, second = result.output.split("\n")
    assert first.startswith("monster.txt:1:>>needle<< xxxx")
    assert len(first) < 700
    assert second == "monster.txt:2:>>needle<< again"
    assert everything.output == "monster.txt:1"
    assert peak < 32 << 20


async def test_binary_files_are_skipped_and_a_named_one_is_an_error(desk: Desk) -> None:
    desk.put("x.bin", b"import\n\0\n")
    desk.put("late.bin", b"import x\n" * 20_000 + b"\0")
    files = await desk.call("Grep", pattern="import", output_mode="files_with_matches")
    assert "bin" not in files.output
    with pytest.raises(ToolFailure, match="binary file"):
        await desk.call("Grep", pattern="import", path="x.bin")


async def test_secrets_are_not_searched_and_that_does_not_depend_on_the_pattern(desk: Desk) -> None:
    desk.put(".env", "KEY=hunter2\n")
    desk.put("keys/server.pem", "hunter2\n")
    desk.put(".ssh/config", "hunter2\n")
    desk.put(".env.example", "KEY=hunter2\n")
    found = await desk.call("Grep", pattern="hunter2")
    assert found.output == ".env.example:1:KEY=>>hunter2<<\n\n(3 secret files or folders are not searched)"
    other = await desk.call("Grep", pattern="zebra")
    assert "(3 secret files or folders are not searched)" in other.output


@pytest.mark.parametrize("only", [{}, {"glob": "*.txt"}, {"output_mode": "count"}])
async def test_secrets_of_a_large_tree_are_told_of_wherever_they_lie(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, only: dict[str, str]
) -> None:
    monkeypatch.setattr(search, "SMALL", 2)
    monkeypatch.setattr(search, "PROBE", 1)
    desk.put(".gitignore", "*.key\n")
    desk.put("zoo/.env", "hunter2\n")
    desk.put("zoo/of/.ssh/config", "hunter2\n")
    desk.put("zoo/ignored.key", "hunter2\n")
    desk.put("zoo/z.txt", "hunter2\n")

    async def told(pattern: str) -> str:
        return (await desk.call("Grep", pattern=pattern, **only)).output.rpartition("\n")[2]

    assert await told("hunter2") == await told("zebra") == "(2 secret files or folders are not searched)"
    desk.put("zoo/of/apes/server.pem", "hunter2\n")
    desk.put("zoo/tls.pem", "hunter2\n")
    assert await told("hunter2") == await told("zebra") == "(4 secret files or folders are not searched)"
    for gone in ("zoo/.env", "zoo/tls.pem", "zoo/of/apes/server.pem"):
        (desk.root / gone).unlink()
    assert await told("zebra") == "(1 secret file is not searched)"
    desk.session.keeps_out = lambda path: path.endswith((".txt", ".env"))
    assert await told("zebra") == "(2 secret files or folders are not searched)"


@pytest.mark.parametrize("small", [600, 2])
async def test_what_the_policy_closes_gives_no_matches(desk: Desk, monkeypatch: pytest.MonkeyPatch, small: int) -> None:
    monkeypatch.setattr(search, "SMALL", small)
    desk.put("closed/x.txt", "import\n")
    desk.session.keeps_out = lambda path: path.startswith(str(desk.root / "closed"))
    result = await desk.call("Grep", pattern="import", output_mode="files_with_matches")
    assert "closed" not in result.output
    assert "src/b.py" in result.output


async def test_globs_count_from_the_directory_of_the_session(desk: Desk) -> None:
    async def files(**more: str) -> list[str]:
        result = await desk.call("Grep", pattern="import", output_mode="files_with_matches", **more)
        return [] if result.output.startswith("No") else result.output.split("\n")

    assert await files(glob="*.py") == ["a.py", "src/b.py"]
    assert await files(glob="src/*.{py,txt}") == ["src/b.py", "src/c.txt"]
    assert await files(glob="src/*.py", path="src") == ["src/b.py"]
    assert await files(glob="!*.py") == ["src/c.txt"]
    assert await files(type="py") == ["a.py", "src/b.py"]
    assert await files(type="js") == []


async def test_ignored_files_are_left_out_whatever_the_glob_says(desk: Desk) -> None:
    desk.put(".gitignore", "*.log\nout/\n")
    desk.put("a.log", "import\n")
    desk.put("out/x.py", "import\n")
    desk.put("node_modules/y.py", "import\n")
    result = await desk.call("Grep", pattern="import", glob="*.{log,py}", output_mode="files_with_matches")
    assert result.output.split("\n") == ["a.py", "node_modules/y.py", "src/b.py"]
    inside = await desk.call("Grep", pattern="import", path="out")
    assert inside.output == "out/x.py:1:>>import<<"


async def test_multiline_patterns_and_the_hint_to_ask_for_them(desk: Desk) -> None:
    result = await desk.call("Grep", pattern=r"sys\nimport", multiline=True)
    assert result.output == "src/b.py:1:import >>sys<<\nsrc/b.py:2:>>import<< os.path"
    with pytest.raises(ToolFailure) as refused:
        await desk.call("Grep", pattern=r"sys\nimport")
    assert refused.value.code == "invalid_args"
    assert "multiline" in refused.value.hint
    with pytest.raises(ToolFailure) as refused:
        await desk.call("Grep", pattern=r"\r$")
    assert r"\r\n with multiline" in refused.value.hint
    desk.put("crlf.txt", "one\r\ntwo\n")
    found = await desk.call("Grep", pattern=r"\r\n", multiline=True, output_mode="files_with_matches")
    assert [file["path"] for file in found.data["files"]] == ["crlf.txt"]


async def test_a_match_over_lines_counts_once_whether_a_file_or_a_folder_is_searched(desk: Desk) -> None:
    desk.put("m.txt", "begin\nend\nbegin\nend\n")
    for more in ({"path": "m.txt"}, {"glob": "m.txt"}):
        counted = await desk.call("Grep", pattern=r"begin\nend", multiline=True, output_mode="count", **more)
        assert counted.output == "m.txt:2"


async def test_pages_of_a_multiline_search_are_the_whole_however_many_matches_a_line_has(desk: Desk) -> None:
    desk.put("m.txt", "a b c d e f\n" * 30)
    for more in ({"path": "m.txt"}, {"glob": "m.txt"}):
        wanted: dict[str, Any] = {"pattern": r"[\w\s]", "multiline": True, "context": 1, **more}
        whole = await desk.call("Grep", **wanted)
        pages = [await desk.call("Grep", head_limit=4, offset=offset, **wanted) for offset in range(0, 30, 4)]
        assert [page.data["truncated"] for page in pages] == [True] * 7 + [False]
        assert [line for page in pages for line in page.data["lines"]] == whole.data["lines"]
        assert len(whole.data["lines"]) == 30


async def test_a_file_that_turns_out_binary_late_is_refused_in_every_mode(desk: Desk) -> None:
    desk.put("late.bin", b"import x\n" * 20_000 + b"\0")
    for mode in ("content", "count", "files_with_matches"):
        with pytest.raises(ToolFailure, match="is a binary file and was not searched"):
            await desk.call("Grep", pattern="import", path="late.bin", output_mode=mode)


async def test_no_mark_splits_a_letter(desk: Desk) -> None:
    desk.put("letters.txt", "né\n")
    found = await desk.call("Grep", pattern="x*", path="letters.txt")
    assert found.output == "letters.txt:1:>><<n>><<é>><<"


@pytest.mark.parametrize("pattern", ["[[a]", r"a{,3}[[:alpha:]]", "[a&&]("])
async def test_a_bad_pattern_is_refused_though_no_file_fits_and_nothing_else_is_said(
    desk: Desk, pattern: str, recwarn: pytest.WarningsRecorder
) -> None:
    with pytest.raises(ToolFailure, match="not a valid regular expression"):
        await desk.call("Grep", pattern=pattern, glob="*.none")
    assert not recwarn.list


async def test_nothing_found_says_in_how_many_files(desk: Desk) -> None:
    async def said(**more: str) -> str:
        return (await desk.call("Grep", pattern="zebra", **more)).output

    assert await said() == "No matches found in . (3 files)"
    assert await said(type="py") == "No matches found in . (2 files, type=py)"
    assert await said(glob="*.rs") == "No matches found in . (0 files, glob=*.rs)"
    desk.put("src/.gitignore", "*\n")
    assert await said(path="src") == "No matches found in src (0 files to search, 3 ignored)"


@pytest.mark.parametrize("pattern", ["a\0b", r"a\x00b"])
async def test_a_pattern_with_a_nul_is_refused_with_the_reason(desk: Desk, pattern: str) -> None:
    with pytest.raises(ToolFailure) as refused:
        await desk.call("Grep", pattern=pattern)
    assert refused.value.code == "invalid_args"
    assert "binary files" in refused.value.hint


async def test_odd_names_and_texts_are_shown_safely(desk: Desk) -> None:
    desk.put("two\nlines.txt", "grape\n")
    desk.put(os.fsdecode(b"\xff.txt"), b"grape \xfe\n")
    result = await desk.call("Grep", pattern="grape")
    assert result.output.split("\n") == [
        '"two\\nlines.txt":1:>>grape<<',
        '"\\377.txt":1:>>grape<< \ufffd',
    ]
    result.output.encode()


async def test_a_link_is_not_followed_and_a_path_outside_is_stated(desk: Desk, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x.txt").write_text("import\n")
    (desk.root / "way").symlink_to(outside)
    (desk.root / "file.txt").symlink_to(outside / "x.txt")
    result = await desk.call("Grep", pattern="import", output_mode="files_with_matches")
    assert result.output.split("\n") == ["a.py", "src/b.py", "src/c.txt"]
    with pytest.raises(ToolFailure) as refused:
        await desk.call("Grep", pattern="import", path="way")
    assert refused.value.code == "permission_denied"
    assert desk.effects("Grep", pattern="x") == [ReadPath(str(desk.root), recursive=True)]
    assert desk.effects("Grep", pattern="x", path="a.py") == [ReadPath(str(desk.root / "a.py"))]


async def test_a_missing_path_names_what_is_near(desk: Desk) -> None:
    with pytest.raises(ToolFailure, match="does not exist") as refused:
        await desk.call("Grep", pattern="x", path="src/b.pi")
    assert "src/b.py" in refused.value.hint


async def test_special_files_are_refused_at_once(desk: Desk) -> None:
    os.mkfifo(desk.root / "pipe")
    began = time.monotonic()
    with pytest.raises(ToolFailure, match="FIFO"):
        await desk.call("Grep", pattern="x", path="pipe")
    assert (await desk.call("Grep", pattern="import", glob="pipe")).data["lines"] == []
    assert time.monotonic() - began < 60  # what hangs, hangs without end


_BEATING = """
import asyncio, sys, time
from surehand import Surehand

async def main():
    widest = 0.0

    async def beat():
        nonlocal widest
        while True:
            before, worked = time.perf_counter(), time.process_time()
            await asyncio.sleep(0.001)
            # What others do on the machine is not ours: where this process did nothing, nothing held the loop.
            widest = max(widest, min(time.perf_counter() - before, time.process_time() - worked))

    async with Surehand(sys.argv[1], keep_state=False) as app:
        await app.call("Grep", {"pattern": "warm"})
        beating = asyncio.create_task(beat())
        for args in ({"pattern": "zebra"}, {"pattern": r"wor\\w+ in", "output_mode": "count"}):
            assert (await app.call("Grep", args)).ok
        beating.cancel()
    print(widest)

asyncio.run(main())
"""


def test_the_event_loop_goes_on_while_a_search_runs(tmp_path: Path) -> None:
    # In a process of its own: the heap of a whole test run takes longer to look through than a search holds the loop.
    (tmp_path / "work").mkdir()
    for number in range(200):
        (tmp_path / f"work/{number}.txt").write_text("some words in a line\n" * 1000)
    variables = {**os.environ, "SUREHAND_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-c", _BEATING, str(tmp_path / "work")]
    ran = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    assert float(ran.stdout) < 0.2  # the figure is 20 ms


async def test_a_large_binary_file_costs_no_time(desk: Desk) -> None:
    desk.put("a.txt", "needle\n")
    with desk.put("sparse.bin").open("r+b") as file:
        file.truncate(8 << 30)
    began = time.monotonic()
    for mode in ("content", "count"):
        for pattern in ("needle", r"n\w+le|\p{Greek}"):
            result = await desk.call("Grep", pattern=pattern, output_mode=mode)
            assert "a.txt" in result.output
            assert "sparse.bin" not in result.output
    assert time.monotonic() - began < 60  # what hangs, hangs without end


async def test_a_named_binary_file_is_refused_whether_or_not_it_matches(desk: Desk) -> None:
    with desk.put("sparse.bin").open("r+b") as file:
        file.truncate(8 << 30)
    desk.put("b.bin", b"needle\n\0\n")
    for name in ("sparse.bin", "b.bin"):
        with pytest.raises(ToolFailure, match="is a binary file and was not searched"):
            await desk.call("Grep", pattern="needle", path=name)


async def test_a_pattern_that_grows_too_large_is_refused_with_what_helps(desk: Desk) -> None:
    desk.put("a.txt", "needle\n")
    with pytest.raises(ToolFailure, match="size limit") as refused:
        await desk.call("Grep", pattern=r"\w{5000}\w{5000}")
    assert "repeats" in refused.value.hint


class Swapping:
    """Puts a link to a folder outside in the place of one inside, and takes it away again, all the time."""

    def __init__(self, folder: Path, outside: Path) -> None:
        self._folder = folder
        self._link = folder.with_name("link")
        self._link.symlink_to(outside)
        self._aside = folder.with_name("aside")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._swap)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _swap(self) -> None:
        while not self._ended.is_set():
            os.rename(self._folder, self._aside)
            os.rename(self._link, self._folder)
            os.rename(self._folder, self._link)
            os.rename(self._aside, self._folder)


async def look_through_a_swapped_folder(desk: Desk, outside: Path, rounds: int) -> None:
    outside.mkdir()
    for name in ("canary-0", "canary-1", "sub/canary-2"):
        (outside / name).parent.mkdir(exist_ok=True)
        (outside / name).write_text("needle from outside\n")
    for number in range(12):
        desk.put(f"d/sub/canary-{number}", "needle from inside\n")
    calls = [{"pattern": pattern} for pattern in ("needle", r"n\w+e from|\p{Greek}")]
    with Swapping(desk.root / "d", outside):
        for _ in range(rounds):
            for args in calls:
                found = await desk.call("Grep", **args)
                assert "outside" not in found.output
            listed = await desk.call("Glob", pattern="d/*")
            assert listed.data["files"] == []


@pytest.mark.parametrize("small", [600, 2])
async def test_a_folder_swapped_for_a_link_lets_nothing_in(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    monkeypatch.setattr(search, "SMALL", small)
    monkeypatch.setattr(search, "PROBE", 1)
    await look_through_a_swapped_folder(desk, tmp_path / "outside", 15)


@pytest.mark.slow
@pytest.mark.parametrize("small", [600, 2])
async def test_a_folder_swapped_for_a_link_lets_nothing_in_however_often(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    monkeypatch.setattr(search, "SMALL", small)
    monkeypatch.setattr(search, "PROBE", 1)
    await look_through_a_swapped_folder(desk, tmp_path / "outside", 400)


@pytest.mark.parametrize("head", [b"", b"first line\nsecond line\n" * 10])
async def test_a_file_of_one_monstrous_line_does_not_abort_a_search(desk: Desk, head: bytes) -> None:
    (desk.root / "big.txt").write_bytes(head + b"xy" * 10_000_000)
    (desk.root / "small.txt").write_text("one xy here\n")
    found = await desk.call("Grep", pattern="xy")
    assert "small.txt:1:one" in found.output
    assert "big.txt:" in found.output
    assert "omitted" not in found.output
    assert len(found.output) < 5_000
    assert f"big.txt:{head.count(bytes([10])) + 1}" in (await desk.call("Grep", pattern="xy", path="big.txt")).output
    assert "big.txt:1" in (await desk.call("Grep", pattern="xyxy", output_mode="count")).output


async def test_millions_of_matches_in_a_line_do_not_hold_up_a_search_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MATCHES_COUNTED", 4 << 20)
    (tmp_path / "big.txt").write_bytes(b"xy" * (4 << 20))
    (tmp_path / "small.txt").write_text("one xy here\n")
    async with scratch_app(tmp_path) as app:
        for pattern in ("xy", "x.*y", "(?<=x)y"):
            found = await app.call("Grep", {"pattern": pattern})
            assert [line["path"] for line in found.data["lines"]] == ["big.txt", "small.txt"], found.output
            assert len(found.output) < 5_000
        alone = await app.call("Grep", {"pattern": "xy", "path": "big.txt"})
        assert alone.output.startswith("big.txt:1:xyxy")


async def test_a_head_limit_over_its_maximum_is_clamped_and_said(desk: Desk) -> None:
    desk.put("long.txt", "plum\n" * 3)
    result = await desk.call("Grep", pattern="plum", head_limit=10**9)
    assert result.output.count("plum") == 3
    assert result.data["head_limit"] == HEAD_MAXIMUM
    assert result.output.endswith(f"(head_limit=1,000,000,000 is over its maximum; {HEAD_MAXIMUM:,} was used)")


async def test_an_extended_pattern_that_finds_nothing_is_explained(desk: Desk) -> None:
    result = await desk.call("Grep", pattern="import", glob="*.@(py|txt)")
    assert "@(py|txt) is read as plain text, {a,b} stands for one of several" in result.output
    assert (await desk.call("Grep", pattern="import", glob="*.{py,txt}")).output.count("import") == 4
