"""Diffs: what `patch` makes of them is the judge."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from surehand.files.diff import creation_diff, narrow_diff, snippet, splice_diff, splice_snippet, text_diff
from surehand.files.text import UTF8, Encoding, Splice, apply_splices, detect, find, replacements


def patched(folder: Path, before: bytes, diff: str) -> bytes:
    (folder / "f").write_bytes(before)
    if not diff:
        return before
    (folder / "p").write_bytes(diff.encode())
    done = subprocess.run(
        ["git", "apply", "--whitespace=nowarn", "--unidiff-zero", "p"], cwd=folder, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode() + diff
    return (folder / "f").read_bytes()


def named(diff: str) -> str:
    return diff.replace("--- f", "--- a/f", 1).replace("+++ f", "+++ b/f", 1)


def some_text(chance: random.Random, lines: int) -> str:
    text = "".join(chance.choice(["alpha", "beta", "gamma", "", "  delta", "é"]) + "\n" for _ in range(lines))
    return text if chance.random() < 0.7 else text.removesuffix("\n")


def test_the_diff_of_a_splice_applies_to_the_same_bytes(tmp_path: Path) -> None:
    chance = random.Random(11)
    for _ in range(60):
        data = some_text(chance, chance.randrange(1, 30)).encode()
        cuts = sorted(chance.randrange(len(data) + 1) for _ in range(4))
        cuts = [_whole(data, cut) for cut in cuts]
        splices = [Splice(cuts[0], cuts[1], chance.choice([b"", b"X", b"X\nY\n", b"\n"]))]
        if cuts[2] > cuts[1]:
            splices.append(Splice(cuts[2], cuts[3], chance.choice([b"Z", b"\nZ"])))
        after = b"".join(apply_splices(data, splices))
        if after == data:
            continue
        assert patched(tmp_path, data, named(splice_diff(data, splices, UTF8, "f"))) == after


def _whole(data: bytes, cut: int) -> int:
    return cut - 1 if cut < len(data) and data[cut] & 0xC0 == 0x80 else cut


def test_the_diff_of_two_texts_applies(tmp_path: Path) -> None:
    chance = random.Random(5)
    for _ in range(60):
        before, after = some_text(chance, chance.randrange(1, 25)), some_text(chance, chance.randrange(1, 25))
        assert patched(tmp_path, before.encode(), named(text_diff(before, after, "f"))) == after.encode()


def test_equal_texts_have_no_diff() -> None:
    assert text_diff("a\n", "a\n", "f") == ""


def test_a_diff_shows_three_lines_around_the_change() -> None:
    data = b"".join(b"line %d\n" % number for number in range(1, 21))
    [span] = find(data, "line 10", UTF8)
    diff = splice_diff(data, replacements(data, [span], "line 10", "ten", UTF8), UTF8, "f")
    assert diff.splitlines() == [
        "--- f", "+++ f", "@@ -7,7 +7,7 @@", " line 7", " line 8", " line 9", "-line 10", "+ten", " line 11",
        " line 12", " line 13",
    ]  # fmt: skip


def test_crlf_and_a_missing_last_newline_are_shown() -> None:
    assert "+b\r\n" in splice_diff(b"a\r\n", [Splice(0, 1, b"b")], UTF8, "f")
    assert "\\ No newline at end of file" in splice_diff(b"a", [Splice(0, 1, b"b")], UTF8, "f")


def test_a_very_long_line_is_cut() -> None:
    data = b"x" * 3_000_000 + b"needle" + b"y" * 3_000_000
    diff = splice_diff(data, [Splice(3_000_000, 3_000_006, b"pin")], UTF8, "f")
    assert len(diff) < 20_000


@pytest.mark.parametrize("codec", ["utf-8", "utf-16-le", "latin-1"])
def test_large_contents_that_differ_in_one_place_are_compared_there_alone(codec: str) -> None:
    lines = [f"Zeile {number} größer\n" for number in range(30_000)]
    before = "".join(lines).encode(codec)
    encoding = detect(before)
    assert encoding is not None
    for number, line in ((15_000, "Zeile ärger\n"), (0, ""), (29_999, "Zeile"), (7, lines[7].replace("ö", "ü"))):
        after = "".join([*lines[:number], line, *lines[number + 1 :]])
        shown = narrow_diff(before, after.encode(codec), encoding, "f")
        assert shown == text_diff("".join(lines), after, "f")
    assert narrow_diff(before, before[::-1], encoding, "f") is None


def test_a_new_file_is_cut_where_a_limit_is_given() -> None:
    assert creation_diff("a\n" * 9, "f", limit_lines=5).endswith("+a\n+a\n... 7 more lines of diff\n")


def test_many_places_are_cut_and_said_so() -> None:
    data = b"a\n\n\n\n\n\n\n\n\n\n" * 500
    splices = [Splice(span.start, span.end, b"b") for span in find(data, "a", UTF8)]
    diff = splice_diff(data, splices, UTF8, "f")
    assert diff.count("@@ -") == 100
    assert "... and 400 more places" in diff


@pytest.mark.parametrize("codec", ["utf-8", "utf-16", "utf-16-le"])
def test_a_snippet_numbers_lines_as_read_does(codec: str) -> None:
    data = "".join(f"row {number}\r\n" for number in range(1, 31)).encode(codec)
    encoding = detect(data)
    assert encoding is not None
    [span] = find(data, "row 20", encoding)
    assert snippet(data, span.start, span.end, encoding, context=1) == "    19\trow 19\n    20\trow 20\n    21\trow 21"


def test_a_new_file_is_all_added() -> None:
    assert creation_diff("a\nb", "f") == "--- /dev/null\n+++ f\n@@ -0,0 +1,2 @@\n+a\n+b\n\\ No newline at end of file\n"
    assert Encoding("utf-8").label == "utf-8"


def test_a_snippet_of_a_change_within_a_line_shows_the_lines_above_whole() -> None:
    data = b"".join(b"row %d of many\n" % number for number in range(1, 30))
    at = data.index(b"20 of")
    shown = snippet(data, at, at + 2, UTF8, context=1)
    assert shown == "    19\trow 19 of many\n    20\trow 20 of many\n    21\trow 21 of many"


@pytest.mark.parametrize("length", [1_500, 9_000, 100_000])
def test_what_changes_within_a_very_long_line_is_seen(length: int) -> None:
    data = b"one\n" + b"x" * length + b"needle" + b"y" * length + b"\nlast\n"
    at = data.index(b"needle")
    after = data.replace(b"needle", b"changed")
    diffs = (
        splice_diff(data, [Splice(at, at + 6, b"changed")], UTF8, "p"),
        text_diff(data.decode(), after.decode(), "p"),
    )
    for diff in diffs:
        removed, added = (line for line in diff.splitlines()[2:] if line[0] in "-+")
        assert "xneedley" in removed
        assert "xchangedy" in added
        assert len(diff) < 8_000
    numbered = snippet(after, at, at + 7, UTF8)
    assert "xchangedy" in numbered
    assert [line[:7] for line in numbered.splitlines() if "changed" in line] == ["     2\t"]


def test_two_lines_that_become_one_are_both_shown_as_changed() -> None:
    """What is left of the first has no end of its own any more: the second does not stay as it is."""
    data = b"ab\ncd\nef\n"
    for first_line in (None, 1):
        shown = splice_diff(data, [Splice(1, 3, b"")], UTF8, "p", first_line=first_line)
        assert shown == "--- p\n+++ p\n@@ -1,3 +1,2 @@\n-ab\n-cd\n+acd\n ef\n"


def test_a_small_change_is_shown_as_any_other() -> None:
    """The short way of one small change gives what the long way gives, which does without the line's number."""
    chance, quick = random.Random(23), 0
    words = [b"", b"a", b"b", b"row of many words", b"x\r", b"\xc3\xa9", b"\xff", b"long " * 120]
    for _ in range(4000):
        data = b"".join(chance.choice(words) + b"\n" for _ in range(chance.randrange(1, 25)))
        data += chance.choice([b"", b"", b"no end"])
        start, end = sorted(chance.randrange(len(data) + 1) for _ in range(2))
        start, end = _whole(data, start), _whole(data, min(end, start + chance.randrange(40)))
        splice = Splice(start, end, chance.choice([b"", b"b", b"\n", b"a\nb\n", b"a\nb", data[start:end] + b"a\n"]))
        after = data[:start] + splice.new + data[end:]
        if after == data:
            continue
        line = data.count(b"\n", 0, start) + 1
        whole = splice_diff(data, [splice], UTF8, "p")
        assert splice_diff(data, [splice], UTF8, "p", first_line=line) == whole, (data, splice)
        if short := splice_snippet(data, splice, UTF8, line):
            quick += 1
            assert short == snippet(after, start, start + len(splice.new), UTF8), (data, splice)
    assert quick > 1000
