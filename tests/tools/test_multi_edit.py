"""MultiEdit: in order, all or none."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.tools.workbench import Workbench, failure

from surehand.files.merge import fold_rounds
from surehand.files.text import Splice, apply_splices


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return Workbench(tmp_path)


def edits(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    return [{"old_string": old, "new_string": new} for old, new in pairs]


def test_edits_are_applied_in_order_to_the_result_before(bench: Workbench) -> None:
    path = bench.put("a", "one\r\ntwo\r\nthree\r\n")
    result = bench.call("MultiEdit", file_path="a", edits=edits(("one", "1"), ("1\ntwo", "1\n2"), ("three", "3\n4")))
    assert path.read_bytes() == b"1\r\n2\r\n3\r\n4\r\n"
    assert result.undo is not None
    bench.call("Undo")
    assert path.read_bytes() == b"one\r\ntwo\r\nthree\r\n"


def test_one_that_fails_leaves_the_file_and_is_named(bench: Workbench) -> None:
    path = bench.put("a", "one\ntwo\n")
    problem = failure(lambda: bench.call("MultiEdit", file_path="a", edits=edits(("one", "1"), ("three", "3"))))
    assert (problem.details["number"], problem.details["edit"]) == (8, 1)
    assert path.read_text() == "one\ntwo\n"


def test_the_first_edit_may_create_the_file(bench: Workbench) -> None:
    bench.call("MultiEdit", file_path="new", edits=edits(("", "hello world\n"), ("world", "there")))
    assert (bench.root / "new").read_text() == "hello there\n"
    problem = failure(lambda: bench.call("MultiEdit", file_path="b", edits=edits(("", "x"), ("", "y"))))
    assert problem.details["layer"] == 3


def test_edits_that_cancel_each_other_are_refused(bench: Workbench) -> None:
    bench.put("a", "one\n")
    problem = failure(lambda: bench.call("MultiEdit", file_path="a", edits=edits(("one", "two"), ("two", "one"))))
    assert problem.details["number"] == 1


def test_an_empty_list_is_no_call(bench: Workbench) -> None:
    with pytest.raises(Exception, match="edits"):
        bench.call("MultiEdit", file_path="a", edits=[])


def test_rounds_of_splices_fold_into_one() -> None:
    chance = random.Random(9)
    for _ in range(300):
        data = bytes(chance.randrange(97, 105) for _ in range(chance.randrange(40)))
        current, rounds = data, list[list[Splice]]()
        for _ in range(chance.randrange(1, 6)):
            places = sorted(chance.randrange(len(current) + 1) for _ in range(2 * chance.randrange(1, 4)))
            pairs = zip(places[::2], places[1::2], strict=True)
            rounds.append([Splice(first, second, chance.choice([b"", b"X", b"YZ"])) for first, second in pairs])
            current = b"".join(apply_splices(current, rounds[-1]))
        folded = fold_rounds(rounds)
        assert b"".join(apply_splices(data, folded)) == current
        assert all(a.end <= b.start for a, b in pairwise(folded))


def test_the_lines_shown_are_those_the_file_has_now(bench: Workbench) -> None:
    bench.put("a", "def f():\n    return 1\n\ndef g():\n    return 2\n")
    both = edits(("return 1", "return 10"), ("return 2", "return 20"))
    shown = bench.call("MultiEdit", file_path="a", edits=both).output
    assert "     2\t    return 10\n" in shown
    assert "     5\t    return 20" in shown
    shown = bench.edit("a", "return", "give", replace_all=True).output
    assert shown.count("give") == 2
    assert "return" not in shown


def test_a_refusal_says_which_edit_it_is_about(bench: Workbench) -> None:
    bench.put("a", "one\ntwo\n")
    missing, cancelled = edits(("one", "1"), ("absent", "2")), edits(("one", "1"), ("1", "one"))
    problem = failure(lambda: bench.call("MultiEdit", file_path="a", edits=missing))
    assert problem.message.startswith("Edit 2 of 2: String to replace not found")
    problem = failure(lambda: bench.call("MultiEdit", file_path="a", edits=cancelled))
    assert (problem.details["layer"], problem.details["number"]) == (1, 1)


def test_a_file_edited_to_nothing_is_said_to_be_empty(bench: Workbench) -> None:
    bench.put("a", "one\n")
    assert "It is empty now." in bench.edit("a", "one\n", "").output


def growth(work: Callable[[int], object], size: int) -> float:
    """Return how many times more lines of Python four times the work executes: the same on every machine."""
    return count_lines(work, 4 * size) / count_lines(work, size)


def count_lines(work: Callable[[int], object], count: int) -> int:
    """Return how many lines are executed, in loops inside an expression too: each round of these is an opcode."""
    executed = 0

    def watch(frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        nonlocal executed
        frame.f_trace_opcodes = frame.f_code.co_name in _LOOPS
        executed += event in ("line", "opcode")
        return watch

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        work(count)
    finally:
        sys.settrace(before)
    return executed


_LOOPS = {"<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>", "<lambda>"}


def replace_many(bench: Workbench, codec: str, text: str, new: str, count: int) -> None:
    path = bench.put("a", (text * count).encode(codec))
    wishes = [{"old_string": "old", "new_string": new, "replace_all": True}, {"old_string": text[0], "new_string": "-"}]
    wishes[1]["replace_all"] = True
    bench.call("MultiEdit", file_path="a", edits=wishes)
    wanted = (text * count).replace("old", new).replace(text[0], "-").encode(codec)
    assert path.read_bytes() == wanted


@pytest.mark.parametrize(
    ("codec", "text", "new"),
    [
        ("utf-8", "x old text\n", "new"),
        ("utf-8", "x old text;", "new\n"),
        ("gbk", "编辑文件时 old 不能损坏其它字节;", "新"),
        ("big5", "這是一個測試檔案 old 內容;", "新"),
        ("shift_jis", "ファイルを編集する old テストする;", "新"),
    ],
)
def test_work_grows_with_the_number_of_matches_not_with_its_square(
    tmp_path: Path, codec: str, text: str, new: str
) -> None:
    bench = Workbench(tmp_path, state=False)
    assert growth(lambda count: replace_many(bench, codec, text, new, count), 200) < 6  # a square makes it 16


def test_work_grows_with_the_number_of_edits_that_are_folded() -> None:
    def fold(count: int) -> list[Splice]:
        return fold_rounds([[Splice(4 * at, 4 * at + 1, b"xy")] for at in range(count)])

    assert growth(fold, 250) < 6
