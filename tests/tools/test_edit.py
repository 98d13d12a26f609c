"""Edit: the nine layers with their numbers, exact bytes, and refusals that say what is different."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import stat
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.tools.workbench import TOOLS, Workbench, failure

from surehand.commands.session import SHELLS
from surehand.core.call import ToolResult
from surehand.core.effects import WritePath
from surehand.core.session import digest_of
from surehand.policy.approval import Question
from surehand.testing import Says, scratch_app
from surehand.tools.file_write import CHECKED_FILES


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return Workbench(tmp_path)


def refused(bench: Workbench, name: str, old: str, new: str, **more: object) -> tuple[int, int]:
    problem = failure(lambda: bench.edit(name, old, new, **more))
    assert problem.code == "precondition_failed"
    return problem.details["layer"], problem.details["number"]


def test_an_edit_changes_the_match_and_nothing_else(bench: Workbench) -> None:
    path = bench.put("a.py", "def f():\n    return 1\n")
    result = bench.edit("a.py", "return 1", "return 2")
    assert path.read_text() == "def f():\n    return 2\n"
    assert result.data["replacements"] == 1
    assert "     2\t    return 2" in result.output
    assert result.data["diff"].splitlines()[2:] == ["@@ -1,2 +1,2 @@", " def f():", "-    return 1", "+    return 2"]
    assert result.undo is not None


def test_the_record_says_what_the_reference_says() -> None:
    tool = TOOLS["Edit"]
    info = tool.info()
    assert (info.aliases, info.read_only, info.concurrency_safe, info.destructive) == (
        ("FileEdit",),
        False,
        False,
        False,
    )
    assert info.level == 2
    assert info.requires_permission
    properties = info.input_schema["properties"]
    assert properties["old_string"]["description"] == "The text to replace"
    assert properties["replace_all"]["default"] is False
    assert info.input_schema["required"] == ["file_path", "old_string", "new_string"]


def test_effects_and_resources_name_the_file(bench: Workbench) -> None:
    tool, ctx = TOOLS["Edit"], bench.context("Edit")
    args = tool.arguments.parse({"file_path": "sub/../a", "old_string": "x", "new_string": "y"})
    assert tool.effects is not None
    assert tool.resources is not None
    assert tool.effects(args, ctx) == [WritePath(bench.path("sub/../a"))]
    assert list(tool.resources(args, ctx)) == [f"file:{bench.path('a')}"]


def test_every_layer_refuses_with_its_number(bench: Workbench, tmp_path: Path) -> None:
    bench.put("a", "one\ntwo\ntwo\n")
    bench.put("unread", "text\n", read=False)
    bench.put("n.ipynb", "{}\n")
    bench.put("bin", b"\x7fELF\0\0\0")
    (bench.root / "dir").mkdir()
    assert refused(bench, "a", "one", "one") == (1, 1)
    assert refused(bench, "a", "", "new") == (4, 3)
    assert refused(bench, "missing", "a", "b") == (5, 4)
    assert refused(bench, "n.ipynb", "{", "[") == (6, 5)
    assert refused(bench, "bin", "E", "F") == (6, 5)
    assert refused(bench, "dir", "a", "b") == (6, 5)
    assert refused(bench, "unread", "text", "x") == (7, 6)
    assert refused(bench, "a", "three", "x") == (9, 8)
    assert refused(bench, "a", "two", "x") == (9, 9)
    bench.put("a", "one\nTWO\n", read=False)
    assert refused(bench, "a", "one", "x") == (8, 7)
    (tmp_path / "outside").write_text("secret")
    os.symlink(tmp_path / "outside", bench.root / "link")
    problem = failure(lambda: bench.edit("link", "secret", "x"))
    assert (problem.code, problem.details["layer"], problem.details["number"]) == ("permission_denied", 2, 2)
    assert (tmp_path / "outside").read_text() == "secret"


def test_layers_seven_and_eight_have_the_exact_words_and_ask(bench: Workbench) -> None:
    bench.put("a", "text\n", read=False)
    unread = failure(lambda: bench.edit("a", "text", "x"))
    assert unread.message == "File has not been read yet. Read it first before writing to it."
    bench.put("b", "text\n")
    bench.put("b", "changed\n", read=False)
    modified = failure(lambda: bench.edit("b", "text", "x"))
    assert modified.message.startswith("File has been modified since read, either by the user or by a linter.")
    assert unread.details["behavior"] == modified.details["behavior"] == "ask"


def test_a_conflict_shows_the_diff_and_counts_as_read(bench: Workbench) -> None:
    path = bench.put("a", "one\ntwo\n")
    path.write_text("one\nTWO\n")
    problem = failure(lambda: bench.edit("a", "one", "1"))
    assert "-two\n+TWO\n" in problem.details["diff"]
    bench.edit("a", "one", "1")
    assert path.read_text() == "1\nTWO\n"


def test_a_file_saved_in_another_encoding_is_a_conflict_that_says_so(bench: Workbench) -> None:
    path = bench.put("a", "grün\n")
    path.write_bytes("grün\n".encode("utf-16"))
    problem = failure(lambda: bench.edit("a", "grün", "rot"))
    assert str(problem).endswith("The text is the same in other bytes: it is utf-16-le with BOM now.")
    bench.edit("a", "grün", "rot")
    assert path.read_bytes() == "rot\n".encode("utf-16")


def test_a_miss_in_an_empty_file_says_how_to_fill_it(bench: Workbench) -> None:
    bench.put("a", "")
    problem = failure(lambda: bench.edit("a", "x", "y"))
    assert (problem.details["number"], problem.hint) == (8, "An empty old_string puts new_string into it.")


def test_a_file_of_secrets_is_not_said_to_be_readable(bench: Workbench) -> None:
    bench.put(".env", "A=1\n", read=False)
    assert "ask the user" in failure(lambda: bench.edit(".env", "A", "B")).hint


def test_a_conflict_in_a_later_process_still_shows_the_diff(tmp_path: Path) -> None:
    import asyncio

    first = Workbench(tmp_path)
    path = first.put("a", "one\ntwo\n")
    seen = first.session.read_state.get(str(path))
    asyncio.run(first.session.close())
    path.write_text("one\nTWO\n")
    second = Workbench(tmp_path)
    assert seen is not None
    second.session.read_state.put(str(path), seen)
    assert "-two\n+TWO\n" in failure(lambda: second.edit("a", "one", "1")).details["diff"]


def test_a_touch_is_no_conflict_and_a_faked_time_hides_none(bench: Workbench) -> None:
    path = bench.put("a", "one\n")
    os.utime(path, (1, 1))
    bench.edit("a", "one", "two")
    status = path.stat()
    path.write_text("2wo\n")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert refused(bench, "a", "two", "x") == (8, 7)


def test_a_file_deleted_or_replaced_since_the_read_is_found(bench: Workbench) -> None:
    path = bench.put("a", "one\n")
    path.unlink()
    assert refused(bench, "a", "one", "x") == (5, 4)
    path.mkdir()
    assert refused(bench, "a", "one", "x") == (6, 5)


def test_an_empty_old_string_creates_a_file_and_its_folders(bench: Workbench) -> None:
    result = bench.edit("new/sub/a.txt", "", "hello\n")
    assert (bench.root / "new/sub/a.txt").read_text() == "hello\n"
    assert result.data["created"]
    bench.put("empty", "")
    bench.edit("empty", "", "filled")
    assert (bench.root / "empty").read_text() == "filled"


def test_replace_all_changes_every_place(bench: Workbench) -> None:
    path = bench.put("a", "x = 1\ny = x\nx\n")
    result = bench.edit("a", "x", "z", replace_all=True)
    assert path.read_text() == "z = 1\ny = z\nz\n"
    assert result.data["replacements"] == 3


def test_several_matches_are_listed_by_line(bench: Workbench) -> None:
    bench.put("a", "x\n\nx\nx x\n")
    problem = failure(lambda: bench.edit("a", "x", "y"))
    assert problem.details["lines"] == [1, 3, 4, 4]
    assert "lines 1, 3, 4, 4" in problem.message


@pytest.mark.parametrize("codec", ["utf-8", "utf-16", "utf-16-be"])
async def test_lines_that_end_with_cr_alone_are_numbered_as_read_numbers_them(tmp_path: Path, codec: str) -> None:
    path = tmp_path / "a"
    path.write_bytes("one\rtwo same\rthree\rfour same\rfive\r".encode(codec))

    async with scratch_app(tmp_path) as app:

        async def edited(old: str, new: str) -> ToolResult:
            return await app.call("Edit", {"file_path": "a", "old_string": old, "new_string": new})

        assert "     4\tfour same" in (await app.call("Read", {"file_path": "a"})).output
        several, missed = (await edited("same", "other")).error, (await edited("three\nfour sane", "x")).error
        result = await edited("three\nfour", "3\n4")
    assert several is not None
    assert missed is not None
    assert several.details["lines"] == [2, 4]
    assert (missed.details["nearest"], missed.details["line"]) == ("three\nfour same", 3)
    assert "     3\t3\n     4\t4 same\n     5\tfive" in result.output
    assert path.read_bytes() == "one\rtwo same\r3\r4 same\rfive\r".encode(codec)


@pytest.mark.parametrize(
    ("content", "old", "difference", "nearest"),
    [
        ("if x:\n\treturn 1\n", "if x:\n    return 1", "tabs", "if x:\n\treturn 1"),
        ("if x:\n    return 1\n", "if x:\n\treturn 1", "tabs", "if x:\n    return 1"),
        ("class A:\n        def f(self):\n            pass\n", "    def f(self):\n        pass", "indentation", None),
        ("a = 1   \nb = 2\n", "a = 1\nb = 2", "trailing_blanks", "a = 1   \nb = 2"),
        ("say “hello”\n", 'say "hello"', "look_alikes", "say “hello”"),
        ("a\u00a0b\n", "a b", "look_alikes", "a\u00a0b"),
        ("x – y\n", "x - y", "look_alikes", "x – y"),
        (f"{'x' * 60_000} – y\n", f"{'x' * 60_000} - y", "look_alikes", None),
        ("caf\u0065\u0301\n", "caf\u00e9", "look_alikes", "caf\u0065\u0301"),
        ("one\ntwo\n", "one\r\ntwo", "line_ends", "one\ntwo"),
        ("x = \"one\"\ny = 'two'\n", 'y = "two"', "quotes", "y = 'two'"),
        ('text = "a\\nb"\n', 'text = "a\nb"', "escapes", 'text = "a\\nb"'),
        ("one\ntwo\n", "one\\ntwo", "escapes", "one\ntwo"),
        ("one\ntwo\n", "     1\tone\n     2\ttwo", "line_numbers", "one\ntwo"),
        ("Hello World\n", "hello world", "case", "Hello World"),
        ("f(a,  b)\n", "f(a, b)", "whitespace", "f(a,  b)"),
        ("def total(items):\n    return sum(items)\n", "def total(item):\n    return sum(item)", "similar", None),
        ("one\ntwo\n", "\none\ntwo\n\n\n", "blank_lines", "one\ntwo"),
        ("something else\n", "qqqq zzzz", "absent", None),
    ],
)
def test_a_miss_names_the_difference(bench: Workbench, content: str, old: str, difference: str, nearest: str) -> None:
    path = bench.put("a", content)
    problem = failure(lambda: bench.edit("a", old, "NEW"))
    assert problem.details["difference"] == difference
    if difference != "absent":
        exact = problem.details["nearest"]
        assert nearest in (None, exact)
        assert exact in content
        bench.edit("a", exact, "NEW")
        assert "NEW" in path.read_text()


def test_a_text_that_is_only_alike_is_offered_with_a_doubt(bench: Workbench) -> None:
    bench.put("a", "def total(items):\n    return sum(items)\n")
    assert failure(lambda: bench.edit("a", "def totals(item):", "NEW")).hint.startswith("If that is the text you mean")


def test_a_miss_in_a_large_file_says_how_far_it_was_explained(bench: Workbench) -> None:
    bench.put("a", "".join(f"line {number} of many\n" for number in range(500_000)))
    assert "Only the first 8 MiB" in failure(lambda: bench.edit("a", "line 499999  of many", "NEW")).hint
    bench.put("b", "line 1 of many\n")
    assert "MiB" not in failure(lambda: bench.edit("b", "line 499999  of many", "NEW")).hint


@pytest.mark.parametrize(
    ("content", "old", "new"),
    [
        ("x = 2\ny = 7\n", "x = 1", "x = 2"),
        ("def f(a):\n    return a + 2\n\ndef g(b):\n    pass\n", "    return a + 1", "    return a + 2"),
        ("one\nzwei (two)\nthree\n", "one\ntwo\nthree", "one\nzwei (two)\nthree"),
    ],
)
def test_an_edit_made_already_is_told(bench: Workbench, content: str, old: str, new: str) -> None:
    bench.put("a", content)
    problem = failure(lambda: bench.edit("a", old, new))
    assert problem.details["difference"] == "applied"
    assert "already" in problem.message
    assert problem.details["nearest"] == new


@pytest.mark.parametrize(
    ("content", "old", "new", "nearest"),
    [
        ("def f():\n    pass\n\ndef g():\n    return compute(y)\n", "    return compute(x)", "    pass", "compute(y)"),
        ("x = 2\nx = 3\n", "x = 1", "x = 2", "x = "),
        ("a = load(1)\nlog(a)\nb = load(22)\n", "b = load(2, 2)", "a = load(1)", "b = load(22)"),
        ("return\nvalue = total(items)\n", "value = total(item)", "return", "value = total(items)"),
    ],
)
def test_a_new_text_that_stands_elsewhere_is_not_taken_for_the_change(
    bench: Workbench, content: str, old: str, new: str, nearest: str
) -> None:
    bench.put("a", content)
    problem = failure(lambda: bench.edit("a", old, new))
    assert problem.details["difference"] != "applied"
    assert "already" not in f"{problem.message} {problem.hint}"
    assert nearest in problem.details["nearest"]
    assert nearest in problem.message


async def test_no_step_of_an_explanation_holds_the_other_threads_for_long(tmp_path: Path) -> None:
    # Where everything is a little alike, one comparison with the whole text took all of the time there is.
    (tmp_path / "a").write_text("word – and “quoted” ünï " * 20_000)
    began = last = longest = 0.0

    def watch(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal began, last, longest
        if not frame.f_code.co_filename.endswith("edit_miss.py"):
            return None
        now = time.thread_time()
        began, longest = began or now, max(longest, now - (last or now))
        last = time.thread_time()
        return watch

    threading.settrace(watch)
    try:
        async with scratch_app(tmp_path) as app:
            await app.call("Read", {"file_path": str(tmp_path / "a"), "limit": 1})
            edit = {"file_path": str(tmp_path / "a"), "old_string": "word and " * 100_000, "new_string": "x"}
            missed = await app.call("Edit", edit)
    finally:
        threading.settrace(None)  # pyright: ignore[reportArgumentType]
    assert missed.error is not None
    assert missed.error.details["difference"] == "similar"
    assert longest < (last - began) / 4


async def test_an_edit_at_the_edge_of_a_line_keeps_crlf_through_the_door(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for codec in ("utf-8", "utf-16"):
        async with scratch_app(tmp_path, approve=True) as app:
            for new, wanted in (("\nx\nb", "a\r\nx\r\nb\r\nc\r\n"), ("", "a\r\nc\r\n")):
                edit = {"old_string": "\nb", "new_string": new}
                for tool, args in (("Edit", edit), ("MultiEdit", {"edits": [edit]})):
                    path.write_bytes("a\r\nb\r\nc\r\n".encode(codec))
                    await app.call("Read", {"file_path": "a"})
                    assert (await app.call(tool, {"file_path": "a", **args})).ok
                    assert path.read_bytes() == wanted.encode(codec)
            path.write_bytes("a\r\nb\n--\na\nb\n".encode(codec))
            await app.call("Read", {"file_path": "a"})
            both = await app.call("Edit", {"file_path": "a", "old_string": "a\nb", "new_string": "x"})
            assert both.error is not None
            assert both.error.details["lines"] == [1, 4]


def test_mode_owner_and_attributes_are_kept(bench: Workbench) -> None:
    path = bench.put("run.sh", "#!/bin/sh\necho 1\n")
    path.chmod(0o4751)
    try:
        os.setxattr(path, "user.note", b"kept")
    except OSError:
        pytest.skip("no extended attributes here")
    if os.geteuid() == 0:
        os.chown(path, 1234, 2345)
        path.chmod(0o4751)
    bench.edit("run.sh", "echo 1", "echo 2")
    status = path.stat()
    assert stat.S_IMODE(status.st_mode) == 0o4751
    assert os.getxattr(path, "user.note") == b"kept"
    if os.geteuid() == 0:
        assert (status.st_uid, status.st_gid) == (1234, 2345)


def test_a_link_inside_is_written_through(bench: Workbench) -> None:
    path = bench.put("real/a", "one\n")
    os.symlink("real/a", bench.root / "link")
    bench.edit("link", "one", "two")
    assert path.read_text() == "two\n"
    assert (bench.root / "link").is_symlink()


def test_other_hard_links_keep_the_old_content_and_it_is_said(bench: Workbench) -> None:
    path = bench.put("a", "one\n")
    os.link(path, bench.root / "b")
    result = bench.edit("a", "one", "two")
    assert (bench.root / "b").read_text() == "one\n"
    assert "hard link" in result.output


def test_a_character_the_encoding_lacks_is_refused_untouched(bench: Workbench) -> None:
    data = "première ligne déjà là\n".encode("latin-1")
    path = bench.put("a", data)
    assert refused(bench, "a", "ligne", "行") == (6, 5)
    assert path.read_bytes() == data


def test_kana_are_japanese_also_where_chinese_has_them_in_the_same_bytes(bench: Workbench) -> None:
    path = bench.put("a", "# 日本\nx = 'テスト'\n".encode("euc_jp"))
    bench.edit("a", "テスト", "表示")
    assert path.read_bytes() == "# 日本\nx = '表示'\n".encode("euc_jp")


def test_a_text_whose_alphabets_are_switched_by_escapes_is_not_edited(bench: Workbench) -> None:
    data = "# 日本語 F|K\nx = 1\n".encode("iso2022_jp")
    path = bench.put("a", data)
    for old, new in (("F|K", "G"), ("x = 1", "x = 'é'"), ("日本", "東京")):  # the first are bytes of a character too
        assert refused(bench, "a", old, new) == (6, 5)
    assert "iconv" in failure(lambda: bench.write("a", "x = 'é'\n")).hint
    assert path.read_bytes() == data


def test_half_a_character_is_refused(bench: Workbench) -> None:
    bench.put("a", "x\n")
    assert refused(bench, "a", "x", "\ud83d") == (1, 1)
    assert refused(bench, "a", "x", "\udc80") == (6, 5)
    assert refused(bench, "a", "\udc80", "x") == (9, 8)


def test_a_huge_sparse_file_is_refused_at_once(bench: Workbench) -> None:
    path = bench.put("big", "x\n")
    os.truncate(path, 10 * 2**30)
    assert refused(bench, "big", "x", "y") == (6, 5)


def test_a_fifo_is_refused_at_once(bench: Workbench) -> None:
    os.mkfifo(bench.root / "fifo")
    assert "FIFO" in failure(lambda: bench.edit("fifo", "x", "y")).message
    assert "FIFO" in failure(lambda: bench.write("fifo", "x")).message


def test_odd_names_work(bench: Workbench) -> None:
    for name in ("two\nlines", "ünïcode ", os.fsdecode(b"caf\xe9"), "-rf", "a" * 255):
        bench.put(name, "one\n")
        bench.edit(name, "one", "two")
        assert (bench.root / name).read_text() == "two\n"
    assert bench.call("Undo").ok


def test_a_dry_run_shows_the_diff_and_writes_nothing(bench: Workbench) -> None:
    path = bench.put("a", "one\ntwo\n")
    shown = bench.preview("Edit", file_path="a", old_string="two", new_string="2")
    assert "-two\n+2\n" in shown.diff
    assert path.read_text() == "one\ntwo\n"
    assert bench.history.changes() == []
    created = bench.preview("Edit", file_path="new/b", old_string="", new_string="x\n")
    assert "+x" in created.diff
    assert not (bench.root / "new").exists()


def test_an_edit_updates_the_read_state_so_that_edits_follow_each_other(bench: Workbench) -> None:
    path = bench.put("a", "0\n")
    for number in range(20):
        bench.edit("a", f"{number}\n", f"{number + 1}\n")
    assert path.read_text() == "20\n"


def test_a_large_file_is_edited_exactly_and_undone(bench: Workbench) -> None:
    data = b"".join(b"line %d with some text in it\r\n" % number for number in range(100_000))
    path = bench.put("big", data)
    bench.edit("big", "line 70000 with", "LINE seventy thousand with\nand")
    wanted = data.replace(b"line 70000 with", b"LINE seventy thousand with\r\nand")
    assert path.read_bytes() == wanted
    bench.edit("big", "line 5 with", "line five with")
    bench.call("Undo")
    assert path.read_bytes() == wanted
    bench.call("Undo")
    assert path.read_bytes() == data


def test_a_single_line_of_many_megabytes_is_edited(bench: Workbench) -> None:
    path = bench.put("one-line", b"x" * 20_000_000 + b"needle" + b"y" * 20_000_000)
    result = bench.edit("one-line", "needle", "pin")
    assert path.stat().st_size == 40_000_003
    assert len(result.output) + len(result.data["diff"]) < 300_000


def test_without_a_state_folder_everything_works_in_memory(tmp_path: Path) -> None:
    bench = Workbench(tmp_path, state=False)
    path = bench.put("a", "one\n")
    bench.edit("a", "one", "two")
    bench.call("Undo")
    assert path.read_text() == "one\n"
    assert not bench.state.exists()
    assert os.listdir(bench.root) == ["a"]


def test_a_file_that_became_binary_after_an_edit_is_refused_for_its_type(bench: Workbench) -> None:
    path = bench.put("a", "one\n")
    bench.edit("a", "one", "two")
    path.write_bytes(b"two\n\0\1\2")
    assert failure(lambda: bench.edit("a", "two", "three")).details["number"] == 5


def test_a_link_turned_round_between_the_check_and_the_write_does_not_move_the_write(bench: Workbench) -> None:
    for name in ("judged", "other"):
        bench.put(name, "one\n")
    link = bench.root / "link"
    link.symlink_to("judged")
    tool, ctx = TOOLS["Edit"], bench.context("Edit")
    args = tool.arguments.parse({"file_path": "link", "old_string": "one", "new_string": "two"})
    assert tool.check is not None
    tool.check(args, ctx)
    link.unlink()
    link.symlink_to("other")
    tool.run(args, ctx)
    assert [(bench.root / name).read_text() for name in ("judged", "other")] == ["two\n", "one\n"]


def test_a_large_file_is_edited_and_undone_like_a_small_one(bench: Workbench) -> None:
    before = b"".join(b"line %d of a large file\n" % number for number in range(60_000))
    path = bench.put("a", before)
    result = bench.edit("a", "line 30000 of", "LINE 30000 of")
    bench.edit("a", "line 7 of", "LINE 7 of")
    assert bench.session.read_state.get(str(path)).digest == digest_of(path.read_bytes())  # type: ignore[union-attr]
    assert result.data["diff"].count("\n+LINE 30000") == 1
    bench.call("Undo", session="s")
    assert path.read_bytes() == before


@pytest.mark.parametrize("tool", ["Edit", "Write"])
def test_what_is_no_file_is_refused_for_its_type(bench: Workbench, tool: str) -> None:
    (bench.root / "folder").mkdir()
    os.mkfifo(bench.root / "fifo")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(bench.root / "socket"))
        for name in ("fifo", "socket", "folder", "folder/", ".", "", "/", "/dev/null"):
            args = {"content": "x"} if tool == "Write" else {"old_string": "x", "new_string": "y"}
            problem = failure(lambda name=name, args=args: bench.call(tool, file_path=name, **args))
            assert problem.code == "precondition_failed", name
            assert (problem.details["layer"], problem.details["number"]) == (6, 5)


def test_utf_8_with_stray_bytes_is_edited_as_utf_8(bench: Workbench) -> None:
    before = "café ok\nnaïve €\nline four 日本\n".encode() + b"stray \xff\xfe bytes\n"
    path = bench.put("a", before)
    result = bench.edit("a", "line four", "línea")
    assert path.read_bytes() == before.replace(b"line four", "línea".encode())
    assert "café ok" in result.output
    bench.edit("a", "stray \udcff\udcfe bytes", "no stray bytes")
    assert path.read_bytes() == before.replace(b"line four", "línea".encode()).replace(b"\xff\xfe", b"").replace(
        b"stray  bytes", b"no stray bytes"
    )


def held_open(name: str) -> list[str]:
    """Return the descriptors of this process that lead to a file of this name, deleted ones included."""
    found: list[str] = []
    for each in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # closed since it was listed
            found.append(os.readlink(f"/proc/self/fd/{each}"))
    return [each for each in found if name in each]


@pytest.mark.parametrize(("lines", "turns"), [(200_000, 20), (1_300_000, 6)])
async def test_many_edits_of_a_large_file_leave_no_descriptor_open(tmp_path: Path, lines: int, turns: int) -> None:
    file = tmp_path / "large.txt"
    file.write_text("0\n" + "a line\n" * lines)
    async with scratch_app(tmp_path, approve=True) as app:
        assert (await app.call("Read", {"file_path": str(file), "limit": 5})).ok
        for turn in range(turns):
            result = await app.call(
                "Edit", {"file_path": str(file), "old_string": f"{turn}\na line", "new_string": f"{turn + 1}\na line"}
            )
            assert result.ok, result.output
            while len(held_open("large.txt")) > 3:  # the threads that close them may be one or two behind
                await asyncio.sleep(0.01)
    assert file.read_text().startswith(f"{turns}\n")


@pytest.mark.parametrize("lines", [10, 200_000])
async def test_a_result_does_not_wait_until_the_replaced_file_is_freed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: int
) -> None:
    file, close, answered, freed = tmp_path / "a.txt", os.close, threading.Event(), threading.Event()
    file.write_text("one\n" + "a line\n" * lines)

    def close_when_answered(fd: int) -> None:  # as a disk may take its time for the last descriptor of a file
        gone = os.readlink(f"/proc/self/fd/{fd}").endswith("a.txt (deleted)")
        in_time = not gone or answered.wait(60)
        close(fd)
        if gone and in_time:
            freed.set()

    async with scratch_app(tmp_path) as app:
        await app.call("Read", {"file_path": str(file), "limit": 1})
        monkeypatch.setattr(os, "close", close_when_answered)
        edit = {"file_path": str(file), "old_string": "one", "new_string": "two"}
        assert (await asyncio.wait_for(app.call("Edit", edit), 30)).ok
        answered.set()
        assert await asyncio.to_thread(freed.wait, 60)


async def test_a_large_file_is_not_held_for_as_long_as_a_person_takes_to_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surehand.tools.file_write._HELD_LARGER_S", 0.01)
    file = tmp_path / "large.txt"
    file.write_text("one\n" + "a line\n" * 200_000)

    async def answer(question: Question) -> str:
        while app.session.keep(CHECKED_FILES)[str(file)].data is not None:
            await asyncio.sleep(0.01)
        return "once"

    async with scratch_app(tmp_path, approver=answer) as app:
        await app.call("Read", {"file_path": str(file), "limit": 5})
        for old, new in (("one", "three"), ("three", "four")):
            edit = {"file_path": str(file), "old_string": old, "new_string": new}
            assert (await app.call("Edit", edit)).ok
        assert app.session.keep(CHECKED_FILES) == {}
    assert file.read_text().startswith("four\na line\n")


async def test_a_workspace_that_was_removed_meanwhile_is_named_by_every_file_tool(tmp_path: Path) -> None:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    calls: list[tuple[str, dict[str, object]]] = [
        ("Read", {"file_path": "a"}),
        ("Grep", {"pattern": "x"}),
        ("Glob", {"pattern": "*"}),
        ("Write", {"file_path": "a", "content": "x"}),
        ("Edit", {"file_path": "a", "old_string": "x", "new_string": "y"}),
        ("Edit", {"file_path": "sub/a", "old_string": "", "new_string": "y"}),
        ("NotebookEdit", {"notebook_path": "a.ipynb", "cell_number": 1, "new_source": "y"}),
    ]
    async with scratch_app(workspace, approve=True) as app:
        workspace.rmdir()
        for tool, args in calls:
            result = await app.call(tool, args)
            assert result.error is not None
            assert result.error.message == f"the workspace {workspace} no longer exists", tool
    assert not workspace.exists()


async def test_a_workspace_that_was_removed_after_a_command_is_named_by_the_next(tmp_path: Path) -> None:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    async with scratch_app(workspace, approve=True) as app:
        assert (await app.call("Bash", {"command": "mkdir sub"})).ok
        shutil.rmtree(workspace)
        app.session.keep(SHELLS)._next_look = 0.0  # pyright: ignore[reportPrivateUsage]
        result = await app.call("Bash", {"command": "true"})
        assert result.error is not None
        assert result.error.message == f"the workspace {workspace} no longer exists"


@pytest.mark.parametrize("exists", [False, True])
def test_a_write_that_the_history_cannot_hold_is_refused_before_it_is_made(tmp_path: Path, exists: bool) -> None:
    bench = Workbench(tmp_path, limit_mb=1)
    bench.put("a", "one\n")
    kept = bench.edit("a", "one", "two").undo
    if exists:
        bench.put("b", "old\n")
    problem = failure(lambda: bench.write("b", "x" * 1_000_000))
    assert problem.code == "precondition_failed"
    assert problem.hint.startswith("Nothing was changed. ")
    assert (bench.root / "b").exists() == exists
    assert kept is not None
    assert bench.call("Undo").ok
    assert (bench.root / "a").read_text() == "one\n"
    assert bench.history.begun() == []


@pytest.mark.parametrize(("mode", "looks"), [("default", 2), ("accept-edits", 1)])
async def test_a_file_is_looked_at_once_where_nobody_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, looks: int
) -> None:
    (tmp_path / "a").write_text("one\n")
    opened: list[str] = []
    real_open = os.open

    def watch(path: str, *more: int, **named: int | None) -> int:
        opened.append(path)
        return real_open(path, *more, **named)  # pyright: ignore[reportArgumentType]

    async with scratch_app(tmp_path, mode=mode) as app:
        await app.call("Read", {"file_path": "a"})
        monkeypatch.setattr(os, "open", watch)
        result = await app.call("Edit", {"file_path": "a", "old_string": "one", "new_string": "two"})
        monkeypatch.undo()
        assert result.ok
        assert opened.count("a") <= looks  # the first one is another call of the kernel where no disk is waited for
        missed = await app.call("Edit", {"file_path": "a", "old_string": "one", "new_string": "three"})
        assert missed.error is not None
        assert missed.error.details["layer"] == 9
        nowhere = await app.call("Edit", {"file_path": "new/b", "old_string": "", "new_string": ""})
        assert nowhere.error is not None
        assert nowhere.error.details["layer"] == 1
    assert (tmp_path / "a").read_text() == "two\n"
    assert not (tmp_path / "new").exists()


_LOOKS = {
    "found": (b"one\ntwo\n", "one", "three"),
    "missing": (b"one\ntwo\n", "four", "three"),
    "twice": (b"one\none\n", "one", "three"),
    "overlapping": (b"aaa\n", "aa", "b"),
    "line ends": (b"one\r\ntwo\r\n", "one\ntwo", "three\nfour"),
    "other encoding": ("é one\n".encode("latin-1"), "one", "two"),
    "wide": ("one\n".encode("utf-16"), "one", "two"),
    "half a character": (b"one\n", "one", "\ud800"),
    "the same": (b"one\n", "one", "one"),
    "would be binary": (b"one\n", "one", "\0"),
    "empty": (b"", "one", "two"),
    "created": (b"", "", "two"),
}


@pytest.mark.parametrize("case", _LOOKS)
async def test_an_edit_checked_without_a_thread_comes_to_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    content, old, new = _LOOKS[case]
    outcomes: list[object] = []
    for at_hand in (True, False):
        if not at_hand:
            monkeypatch.setattr("surehand.tools.edit_checks.read_at_once", lambda fd, size: None)  # pyright: ignore
        (tmp_path / "a").write_bytes(content)
        asks = Says("once")
        async with scratch_app(tmp_path, approver=asks) as app:
            await app.call("Read", {"file_path": "a"})
            result = await app.call("Edit", {"file_path": "a", "old_string": old, "new_string": new})
        shown = [each.preview and (each.preview.text, each.preview.diff, each.preview.data) for each in asks.asked]
        outcomes.append((result.output, result.data, result.error, shown, (tmp_path / "a").read_bytes()))
    assert outcomes[0] == outcomes[1]


async def test_an_edit_of_a_file_that_others_changed_is_refused_before_anyone_is_asked(tmp_path: Path) -> None:
    asks = Says("once")
    async with scratch_app(tmp_path, approver=asks) as app:
        (tmp_path / "a").write_text("one\n")
        await app.call("Read", {"file_path": "a"})
        (tmp_path / "a").write_text("one \n")
        edit = {"file_path": "a", "old_string": "one", "new_string": "two"}
        refused = await app.call("Edit", edit)
        assert refused.error is not None
        assert refused.error.details["layer"] == 8
        (tmp_path / "a").write_text("ONE \n")
        assert not (await app.call("Edit", edit)).ok
        assert asks.asked == []


async def test_an_edit_behind_a_link_that_was_turned_since_the_judgement_is_not_made(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\n")
    (tmp_path / "b").write_text("one\n")
    (tmp_path / "link").symlink_to("a")

    def turn(question: Question) -> str:
        (tmp_path / "link").unlink()
        (tmp_path / "link").symlink_to("b")
        return "once"

    async with scratch_app(tmp_path, approver=turn) as app:
        await app.call("Read", {"file_path": "a"})
        await app.call("Edit", {"file_path": "link", "old_string": "one", "new_string": "two"})
    assert ((tmp_path / "a").read_text(), (tmp_path / "b").read_text()) == ("two\n", "one\n")
