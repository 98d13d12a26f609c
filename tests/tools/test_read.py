"""Read: numbered lines of any text of any size, pictures, pages, cells, and a clear word for everything else."""

from __future__ import annotations

import base64
import codecs
import ctypes
import hashlib
import io
import json
import mmap
import os
import resource
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as Pillow

from surehand import Surehand
from surehand.core.call import Image, Text, ToolCall, ToolResult
from surehand.core.context import ToolContext
from surehand.core.effects import ReadPath
from surehand.core.errors import ToolFailure
from surehand.core.session import Seen, Session
from surehand.core.settings import Settings
from surehand.tools.read import TOOLS

(READ,) = TOOLS


def context(workspace: Path, **options: Any) -> ToolContext:
    session = Session(str(workspace), settings=Settings(), **options)
    return ToolContext(ToolCall("Read"), session, lambda progress: None, {})


@pytest.fixture
def ctx(tmp_path: Path) -> ToolContext:
    return context(tmp_path)


def read(ctx: ToolContext, path: str | Path, **values: Any) -> ToolResult:
    """Read in the thorough way; where the quick way has an answer as well, it must be the same one."""
    args = READ.arguments.parse({"file_path": str(path), **values})
    assert READ.at_once is not None
    like = ctx.session
    apart = context(Path(like.workspace), roots=like.roots[1:], interactive=like.interactive)
    apart.session.settings = like.settings
    quick = READ.at_once(args, apart)
    result = READ.run(args, ctx)
    if quick is not None:
        assert (quick.data, quick.output, quick.meta) == (result.data, result.output, result.meta)
        for name, seen in apart.session.read_state.items():
            known = ctx.session.read_state.get(name)
            assert known is not None
            assert (known.digest, known.size) == (seen.digest or known.digest, seen.size)
    return result


def at_once(ctx: ToolContext, path: str | Path, **values: Any) -> ToolResult | None:
    assert READ.at_once is not None
    return READ.at_once(READ.arguments.parse({"file_path": str(path), **values}), ctx)


def failure(ctx: ToolContext, path: str | Path, **values: Any) -> ToolFailure:
    with pytest.raises(ToolFailure) as caught:
        read(ctx, path, **values)
    return caught.value


def test_the_schema_and_flags_are_those_of_the_reference() -> None:
    properties = READ.arguments.schema()["properties"]
    assert READ.arguments.schema()["required"] == ["file_path"]
    assert properties["file_path"]["description"] == "The absolute path to the file to read"
    assert properties["offset"]["description"] == "The line number to start reading from (0-based)"
    assert properties["offset"]["minimum"] == 0
    assert properties["limit"]["description"] == "The number of lines to read (default 2000)"
    assert properties["limit"]["minimum"] == 1
    assert (READ.name, READ.aliases) == ("Read", ("FileRead",))
    assert (READ.read_only, READ.concurrency_safe, READ.destructive) == (True, True, False)


def test_lines_are_numbered_as_cat_n_does(ctx: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n\ntwo\tx\nlast")
    result = read(ctx, "a.txt")
    assert result.output == "     1\tone\n     2\t\n     3\ttwo\tx\n     4\tlast"
    assert result.data["content"] == "one\n\ntwo\tx\nlast"
    assert result.data["total_lines"] == 4
    assert result.meta["origin"] == "workspace"
    assert read(ctx, tmp_path / "a.txt").output == result.output


def numbered(count: int, first: int = 0) -> str:
    return "\n".join(f"{number + 1:6}\tline {number}" for number in range(first, first + count))


def test_offset_and_limit_choose_lines_and_a_note_says_how_to_go_on(ctx: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"line {number}\n" for number in range(5210)))
    result = read(ctx, "a.txt")
    assert result.output == numbered(2000) + "\n\n... 3,210 more lines; read on with offset=2000"
    assert result.meta["truncated"]
    assert read(ctx, "a.txt", offset=2000, limit=3).output.startswith(numbered(3, 2000))
    assert read(ctx, "a.txt", offset=5209).output == numbered(1, 5209)
    assert read(ctx, "a.txt", offset=3210).output == numbered(2000, 3210)
    assert read(ctx, "a.txt", offset=3209).output.endswith("\n\n... 1 more line; read on with offset=5209")


def test_an_offset_past_the_end_says_how_many_lines_there_are(ctx: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1\n2\n3\n")
    problem = failure(ctx, "a.txt", offset=3)
    assert "has 3 lines" in problem.message
    assert "0 to 2" in problem.hint


def test_an_empty_file_says_so(ctx: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert read(ctx, "empty").output == "File exists but is empty"


def test_a_file_of_a_byte_order_mark_alone_is_empty(ctx: ToolContext, tmp_path: Path) -> None:
    for number, mark in enumerate((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF32_BE)):
        (tmp_path / str(number)).write_bytes(mark)
        assert read(ctx, str(number)).output == "File exists but is empty"


@pytest.mark.parametrize("first", [7_998, 7_999, 8_000])
def test_a_crlf_cut_in_two_by_the_first_look_is_one_line_end(ctx: ToolContext, tmp_path: Path, first: int) -> None:
    (tmp_path / "a").write_bytes(b"x" * first + b"\r\nb\r\nc\r\n")
    assert read(ctx, "a").data["lines"] == 3


def test_a_crlf_after_many_lone_returns_is_one_line_end(ctx: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"mac\r" * 3000 + b"dos\r\n" * 40_000)
    shown = read(ctx, "a", offset=2999, limit=3)
    assert shown.output.startswith("  3000\tmac\n  3001\tdos\n  3002\tdos")
    assert "has 43,000 lines" in failure(ctx, "a", offset=43_000).message


def test_a_file_of_one_line_end_has_one_empty_line(ctx: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("\n")
    assert read(ctx, "a").output == "     1\t"


def test_a_directory_is_an_error_that_says_how_to_list_it(ctx: ToolContext) -> None:
    problem = failure(ctx, ".")
    assert "is a directory" in problem.message
    assert "ls" in problem.hint


def test_a_missing_file_is_an_error_with_near_names(ctx: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "readme.md").touch()
    (tmp_path / "main.py").touch()
    problem = failure(ctx, "README.md")
    assert problem.message == f"File does not exist: {tmp_path / 'README.md'}"
    assert "readme.md" in problem.hint
    assert "main.py" in failure(ctx, "mian.py").hint
    assert "does not exist" in failure(ctx, "main.py/x").message


def test_a_name_with_a_newline_or_bytes_that_are_no_text_can_be_read(ctx: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "two\nlines").write_text("x")
    assert read(ctx, "two\nlines").output == "     1\tx"
    assert failure(ctx, "a\0b").code == "invalid_args"
    assert failure(ctx, "x" * 5000).message


def refusal_s(ctx: ToolContext, path: str) -> float:
    started = time.monotonic()
    assert failure(ctx, path).message
    return time.monotonic() - started


def test_what_never_ends_or_blocks_is_refused_within_a_tenth_of_a_second(ctx: ToolContext, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    here = socket.socket(socket.AF_UNIX)
    here.bind(str(tmp_path / "sock"))
    (tmp_path / "loop").symlink_to("loop")
    traps = ("pipe", "sock", "loop", "/dev/zero", "/dev/tty", "/proc/self/mem", "/proc/self/environ", "/proc/kmsg")
    for path in (*traps, f"/proc/{os.getppid()}/environ"):
        assert min(refusal_s(ctx, path) for _ in range(3)) < 0.1, path
    here.close()


TEXT = "naïve café – 日本語 текст\nzwei\n"


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_unicode_in_any_form_and_with_any_line_ends_is_read(
    ctx: ToolContext, tmp_path: Path, codec: str, newline: str
) -> None:
    (tmp_path / "a.txt").write_bytes(TEXT.replace("\n", newline).encode(codec))
    result = read(ctx, "a.txt")
    assert result.output.splitlines()[:2] == ["     1\tnaïve café – 日本語 текст", "     2\tzwei"]
    assert result.data["total_lines"] == 2
    assert read(ctx, "a.txt", offset=1).output.startswith("     2\tzwei")
    assert "2 lines" in failure(ctx, "a.txt", offset=2).message


@pytest.mark.parametrize(
    ("codec", "text"),
    [
        ("gb18030", "这是一个用于测试的中文文本文件，包含多行内容。\n第二行也是中文。\n" * 5),
        ("latin-1", "Voilà un été très agréable, où l'on déjeune à côté du café.\nGarçon!\n" * 5),
        ("cp1251", "Это обычный русский текст для проверки кодировки.\nВторая строка.\n" * 5),
        ("cp932", "これは日本語のテキストです。文字コードの判定を確認します。\n二行目。\n" * 5),
        ("iso2022_jp", "Subject: 日本語のテキスト, price $B\n二行目。\n" * 5),
    ],
)
def test_text_in_older_encodings_is_read_and_the_encoding_said(
    ctx: ToolContext, tmp_path: Path, codec: str, text: str
) -> None:
    (tmp_path / "a.txt").write_bytes(text.encode(codec))
    result = read(ctx, "a.txt")
    assert result.data["content"] == text.rstrip("\n")
    assert "(read as " in result.output


def test_colours_of_a_terminal_are_no_other_encoding(ctx: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\x1b[31mred\x1b[0m\nESC dollar: \x1b$ and \x1b$B odd\n")
    result = read(ctx, "a.txt")
    assert "red" in result.output
    assert "(read as " not in result.output


def test_a_stray_byte_does_not_turn_utf_8_into_something_else(ctx: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("äöü € 日本\n".encode() + b"bad \xff byte\n" + "ßß\n".encode())
    result = read(ctx, "a.txt")
    assert "äöü € 日本" in result.output
    assert "bad \ufffd byte" in result.output
    assert "1 invalid bytes" in result.output


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"\x7fELF\x02\x01\x01" + bytes(600), "ELF"),
        (b"PK\x03\x04" + bytes(100), "ZIP"),
        (b"\x1f\x8b\x08" + bytes(100), "GZIP"),
        (bytes(range(256)) * 10, "binary"),
        (b"text and then\0a NUL\n", "binary"),
        (b"\x01\x02\x03\x04" * 50, "binary"),
    ],
)
def test_a_binary_file_is_refused_with_its_type_and_size(
    ctx: ToolContext, tmp_path: Path, content: bytes, word: str
) -> None:
    (tmp_path / "a.bin").write_bytes(content)
    problem = failure(ctx, "a.bin")
    assert word in problem.message
    assert f"{len(content):,} bytes" in problem.message
    assert problem.details["reason"] == "binary"


def test_long_lines_are_cut_with_their_length(ctx: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("short\n" + "é" * 3000 + "\n" + "x" * 300_000 + "\nend\n")
    rows = read(ctx, "a.txt").output.split("\n")
    assert rows[0] == "     1\tshort"
    assert rows[1] == "     2\t" + "é" * 2000 + "... [line cut; it is 6,000 bytes long]"
    assert rows[2] == "     3\t" + "x" * 2000 + "... [line cut; it is 300,000 bytes long]"
    assert rows[3] == "     4\tend"
    (tmp_path / "b.txt").write_text("é" * 1999 + "\n")
    assert read(ctx, "b.txt").data["content"] == "é" * 1999


def peak_growth(before: int) -> float:
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def test_one_line_of_200_megabytes_is_bounded_in_memory_and_time(ctx: ToolContext, tmp_path: Path) -> None:
    with (tmp_path / "a.txt").open("wb") as file:
        for _ in range(200):
            file.write(b"y" * 1_000_000)
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    output = read(ctx, "a.txt").output
    assert "line cut" in output
    assert len(output) < 3_000
    assert time.monotonic() - started < 60  # what hangs, hangs without end
    assert peak_growth(before) < 32


def test_a_sparse_file_of_ten_gigabytes_is_no_trouble(ctx: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "holes").touch()
    os.truncate(tmp_path / "holes", 10 << 30)
    (tmp_path / "text").write_text("line\n" * 100_000)
    os.truncate(tmp_path / "text", 10 << 30)
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    assert "binary" in failure(ctx, "holes").message
    assert read(ctx, "text").data["lines"] == 2000
    assert read(ctx, "text", offset=99_999, limit=1).data["content"] == "line"
    assert "100,001 lines" in failure(ctx, "text", offset=200_000).message
    assert time.monotonic() - started < 60  # what hangs, hangs without end
    assert peak_growth(before) < 32


def test_output_ends_at_the_limit_of_the_session_and_can_be_read_on(ctx: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"{number:6} {'x' * 1000}\n" for number in range(1500)))
    seen: list[str] = []
    offset, rounds = 0, 0
    while True:
        result = read(ctx, "a.txt", offset=offset, limit=10**9)
        assert len(result.output) <= ctx.session.settings.engine.output_limit
        seen += result.data["content"].split("\n")
        rounds += 1
        if not result.data["truncated"]:
            break
        assert "cut at the output limit" in result.output
        offset += result.data["lines"]
    assert rounds > 2
    assert [int(line.split()[0]) for line in seen] == list(range(1500))


def test_deep_pages_of_a_large_file_are_right_cold_and_warm(tmp_path: Path) -> None:
    rows = [f"{number} {'z' * (number % 97)}" for number in range(60_000)]
    (tmp_path / "a.txt").write_text("\n".join(rows))
    warm = context(tmp_path)
    for offset in (0, 1, 999, 31_000, 59_990, 59_999, 12_345):
        expected = rows[offset : offset + 50]
        for each in (context(tmp_path), warm):
            assert read(each, "a.txt", offset=offset, limit=50).data["content"].split("\n") == expected


def test_a_page_of_a_file_that_changed_is_not_taken_from_an_old_index(ctx: ToolContext, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("a\n" * 1_000_000)
    assert read(ctx, path, offset=900_000, limit=1).output.startswith("900001\ta")
    path.write_text("bb\n" * 1_000_000)
    assert read(ctx, path, offset=900_000, limit=1).data["content"] == "bb"


def test_pages_read_at_the_same_time_in_one_session_are_all_right(tmp_path: Path) -> None:
    rows = [f"{number} {'z' * (number % 61)}" for number in range(80_000)]
    (tmp_path / "a.txt").write_text("\n".join(rows))
    offsets = [79_000, 100, 50_000, 20_000, 65_000, 1, 33_333, 79_999] * 2

    def content(ctx: ToolContext, offset: int) -> list[str]:
        return read(ctx, "a.txt", offset=offset, limit=9).data["content"].split("\n")

    for _ in range(5):
        with ThreadPoolExecutor(8) as threads:
            found = threads.map(content, [context(tmp_path)] * len(offsets), offsets)
        assert list(found) == [rows[offset : offset + 9] for offset in offsets]


SWAPPER = """
import os, sys
inside, outside, name = sys.argv[1:]
print("ready", flush=True)
number = 0
while True:
    number += 1
    os.symlink(outside if number % 2 else inside, name + ".new")
    os.replace(name + ".new", name)
"""


def swapped_reads(tmp_path: Path, tries: int) -> dict[str, int]:
    """Read a file through a folder that is a link, swapped all the time between inside and outside."""
    work, outside = tmp_path / "work", tmp_path / "outside"
    for folder, text in ((work / "real", "inside"), (outside, "OUTSIDE")):
        folder.mkdir(parents=True)
        (folder / "file.txt").write_text(text)
    ctx, counts = context(work), {"inside": 0, "refused": 0}
    command = [sys.executable, "-c", SWAPPER, str(work / "real"), str(outside), str(work / "link")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as swapper:
        assert swapper.stdout is not None
        swapper.stdout.readline()
        try:
            for _ in range(tries):
                try:
                    said, outcome = read(ctx, "link/file.txt").output, "inside"
                except ToolFailure as problem:
                    said, outcome = problem.message + problem.hint, "refused"
                assert "OUTSIDE" not in said
                counts[outcome] += 1
        finally:
            swapper.kill()
    return counts


def test_a_link_swapped_while_reading_never_shows_a_byte_from_outside(tmp_path: Path) -> None:
    counts = swapped_reads(tmp_path, 1_500)
    assert counts["inside"] > 20
    assert counts["refused"] > 20


@pytest.mark.slow
def test_a_link_swapped_while_reading_never_shows_a_byte_from_outside_in_many_tries(tmp_path: Path) -> None:
    assert sum(swapped_reads(tmp_path, 100_000).values()) == 100_000


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_what_was_read_is_remembered_by_content(ctx: ToolContext, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("x\n" * 5000)
    (tmp_path / "link").symlink_to("a.txt")
    read(ctx, "link", limit=10)
    seen = ctx.session.read_state.get(str(path))
    assert seen is not None
    assert (seen.digest, seen.size, seen.whole) == (digest(path), 10_000, False)
    read(ctx, path, limit=9999)
    seen = ctx.session.read_state.get(str(path))
    assert seen is not None
    assert seen.whole


def aged(path: Path) -> None:
    """Wait until the file's status is old enough to prove something, by the clock of the file system itself."""
    while time.time_ns() - path.stat().st_ctime_ns < 60_000_000:
        os.sched_yield()


def test_a_part_of_a_large_file_is_remembered_by_status_without_reading_it_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt"
    path.write_text(("x" * 99 + "\n") * 30_000)
    fresh, settled, once = context(tmp_path), context(tmp_path), context(tmp_path, interactive=False)
    with monkeypatch.context() as clock:  # read in the very moment it was written, however slow the machine is
        clock.setattr(time, "time_ns", lambda: path.stat().st_ctime_ns)
        read(fresh, path, limit=1)
    aged(path)
    read(settled, path, limit=1)
    read(once, path, limit=1)
    states = [each.session.read_state.get(str(path)) for each in (fresh, settled, once)]
    assert [state.digest if state else None for state in states] == [digest(path), "", digest(path)]
    late = states[1]
    assert late is not None
    assert late.untouched(path.stat())
    status = path.stat()
    path.write_text(("y" * 99 + "\n") * 30_000)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_mtime_ns == status.st_mtime_ns
    assert not late.untouched(path.stat())


def test_an_image_is_shown_as_a_block(ctx: ToolContext, tmp_path: Path) -> None:
    Pillow.new("RGB", (40, 30), "red").save(tmp_path / "a.png")
    Pillow.new("RGB", (40, 30), "red").save(tmp_path / "wrong_name.txt", "TIFF")
    result = read(ctx, "a.png")
    text, block = result.content
    assert isinstance(text, Text)
    assert isinstance(block, Image)
    assert base64.b64decode(block.data) == (tmp_path / "a.png").read_bytes()
    assert "40 x 30 pixels" in result.output
    assert result.data["type"] == "image"
    converted = read(ctx, "wrong_name.txt").content[1]
    assert isinstance(converted, Image)
    assert converted.mime_type == "image/jpeg"


def test_a_broken_image_is_a_clear_error(ctx: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"nonsense" * 20)
    assert "cannot be shown as an image" in failure(ctx, "a.png").message


def notebook(*cells: dict[str, Any]) -> str:
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def test_a_notebook_is_shown_by_cells_with_outputs_and_pictures(ctx: ToolContext, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    Pillow.new("RGB", (8, 8), "blue").save(buffer, "PNG")
    picture = {"output_type": "display_data", "data": {"image/png": base64.b64encode(buffer.getvalue()).decode()}}
    code = {"cell_type": "code", "source": ["plot()"], "outputs": [picture], "execution_count": 1}
    (tmp_path / "a.ipynb").write_text(notebook({"cell_type": "markdown", "source": "# Title"}, code))
    result = read(ctx, "a.ipynb")
    assert "# Title" in result.output
    assert "plot()" in result.output
    assert isinstance(result.content[1], Image)
    assert base64.b64decode(result.content[1].data) == buffer.getvalue()
    assert "plot()" not in read(ctx, "a.ipynb", limit=1).output.split("...")[0]
    assert "offset=1" in read(ctx, "a.ipynb", limit=1).output
    assert "has 2 cells" in failure(ctx, "a.ipynb", offset=2).message


def test_a_notebook_that_is_broken_is_shown_as_text(ctx: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.ipynb").write_text('<<<<<<< HEAD\n{"cells": []}\n')
    result = read(ctx, "a.ipynb")
    assert result.output.startswith("     1\t<<<<<<< HEAD\n")
    assert "not a valid notebook" in result.output


@pytest.mark.parametrize("mark", [b"\xff\xfe", b"\xfe\xff"])
def test_a_file_of_nothing_but_a_byte_order_mark_is_empty(ctx: ToolContext, tmp_path: Path, mark: bytes) -> None:
    (tmp_path / "a.txt").write_bytes(mark)
    assert read(ctx, "a.txt").output == "File exists but is empty"


def test_a_file_outside_the_workspace_is_labelled_and_a_link_out_is_refused(tmp_path: Path) -> None:
    inside = tmp_path / "work"
    inside.mkdir()
    (tmp_path / "secret.txt").write_text("outside")
    (inside / "link").symlink_to(tmp_path / "secret.txt")
    ctx = context(inside)
    assert failure(ctx, "link").code == "permission_denied"
    assert read(ctx, tmp_path / "secret.txt").meta["origin"] == "outside"


def test_effects_and_cache_stamp_follow_the_file(ctx: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    args = READ.arguments.parse({"file_path": "a"})
    assert READ.effects is not None
    assert READ.depends_on is not None
    assert READ.effects(args, ctx) == [ReadPath(str(tmp_path / "a"))]
    before = READ.depends_on(args, ctx)
    assert before == READ.depends_on(args, ctx)
    (tmp_path / "a").write_text("22")
    assert READ.depends_on(args, ctx) != before


def test_a_text_in_memory_is_read_at_once(tmp_path: Path, ctx: ToolContext) -> None:
    file = tmp_path / "a.py"
    file.write_text("x = 1\n" * 50)
    quick = at_once(ctx, file)
    assert quick is not None
    assert quick.output == read(context(tmp_path), file).output
    assert ctx.session.read_state.get(os.path.realpath(file)) is not None


def test_the_head_of_a_large_file_is_read_at_once_when_nothing_need_be_hashed(tmp_path: Path, ctx: ToolContext) -> None:
    file = tmp_path / "large.txt"
    file.write_text("".join(f"line {number}\n" for number in range(300_000)))
    file.touch()
    assert at_once(ctx, file) is None  # so young that its status proves nothing: its digest must be taken
    while not Seen.of("", file.stat()).ctime_ns:
        time.sleep(0.005)
    whole = read(ctx, file)
    quick = at_once(ctx, file)
    assert quick is not None
    assert quick.output == whole.output
    assert at_once(ctx, file, offset=1) is None  # where a line begins may take a scan
    assert at_once(ctx, file, limit=100_000) is None  # more than its beginning


def test_what_is_not_in_memory_is_never_waited_for(tmp_path: Path, ctx: ToolContext) -> None:
    file = tmp_path / "cold.txt"
    file.write_text("cold\n" * 10_000)
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if _begins_in_memory(file):
        pytest.skip("this file system keeps its pages in memory")
    assert at_once(ctx, file) is None
    assert read(ctx, file).data["total_lines"] == 10_000


def _begins_in_memory(file: Path) -> bool:
    """Ask the kernel about the first page. Reading it, even without waiting, would make the kernel fetch it."""
    resident = ctypes.c_ubyte()
    with (
        file.open("rb") as opened,
        mmap.mmap(opened.fileno(), 1, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as first,
    ):
        address = ctypes.c_char.from_buffer(first)
        problem = ctypes.CDLL(None, use_errno=True).mincore(
            ctypes.byref(address), ctypes.c_size_t(1), ctypes.byref(resident)
        )
        del address  # else the map cannot be closed
    assert problem == 0, os.strerror(ctypes.get_errno())
    return bool(resident.value & 1)


def test_everything_but_a_plain_text_is_left_to_the_thorough_way(tmp_path: Path, ctx: ToolContext) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "binary").write_bytes(b"\x00\x01\x02" * 100)
    (tmp_path / "book.ipynb").write_text("{}")
    (tmp_path / "out").symlink_to("/etc/hostname")
    for name in ("fifo", "empty", "binary", "book.ipynb", "out", "missing", ".", "no\0name"):
        assert at_once(ctx, tmp_path / name) is None, name
    assert ctx.session.read_state.items() == []


async def test_a_file_whose_name_is_no_utf_8_is_read_and_an_empty_name_refused(tmp_path: Path) -> None:
    from surehand.testing import scratch_app

    with open(os.path.join(os.fsencode(tmp_path), b"caf\xe9.txt"), "w") as file:
        file.write("hi\n")
    async with scratch_app(tmp_path) as app:
        found = await app.call("Read", {"file_path": os.path.join(tmp_path, "caf\udce9.txt")})
        empty = await app.call("Read", {"file_path": ""})
    assert found.data["content"] == "hi"
    assert empty.error is not None
    assert empty.error.code == "invalid_args"


async def test_an_encoding_with_an_endless_name_is_told_in_short(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    async with Surehand(tmp_path, keep_state=False) as app:
        result = await app.call("Read", {"file_path": str(tmp_path / "a.txt"), "encoding": "x" * 1_000_000})
    assert result.error is not None
    assert result.error.code == "invalid_args"
    assert len(result.output) < 2000
