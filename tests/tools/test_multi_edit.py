"""MultiEdit: in order, all or none."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest
from workbench import Workbench, failure

from surehand.host.pieces import Pieces
from surehand.host.text import Splice, spliced


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
        current, pieces = data, Pieces(len(data))
        for _ in range(chance.randrange(1, 5)):
            first, second = sorted(chance.randrange(len(current) + 1) for _ in range(2))
            splices = [Splice(first, second, chance.choice([b"", b"X", b"YZ"]))]
            pieces.apply(splices)
            current = b"".join(spliced(current, splices))
        folded = pieces.splices(len(data))
        assert b"".join(spliced(data, folded)) == current
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
