"""Markdown as it streams: however it is cut into pieces, the same is shown, and nothing of the text is lost."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surehand.cli import render
from surehand.cli.screen import MarkdownStream

TEXTS = st.text("ab *`#->~\n", max_size=60)


@pytest.fixture(autouse=True)
def _coloured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "paint", lambda text, *styles, stream=None: f"\x1b[1m{text}\x1b[0m")


def show(*pieces: str) -> str:
    stream = MarkdownStream()
    return "".join(map(stream.feed, pieces)) + stream.end()


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@given(TEXTS, st.lists(st.integers(0, 60), max_size=8))
def test_it_does_not_matter_where_a_text_is_cut(text: str, cuts: list[int]) -> None:
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[start:end] for start, end in itertools.pairwise(places)]
    assert show(*pieces) == show(text)


@given(TEXTS)
def test_nothing_but_marks_is_taken_away(text: str) -> None:
    kept = [character for character in text if character not in "*`#->~+ "]
    assert [each for each in plain(show(text)) if each in "ab\n"] == kept


@given(TEXTS)
def test_every_style_ends(text: str) -> None:
    codes = re.findall(r"\x1b\[([0-9;]*)m", show(text))
    assert not codes or codes[-1] == "0"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("**b** c", "\x1b[0m\x1b[1mb\x1b[0m c"),
        ("`a*b`", "\x1b[0m\x1b[36ma*b\x1b[0m"),
        ("2 * 3 * 4", "2 * 3 * 4"),
        ("# head\nx", "\x1b[1m# head\x1b[0m\nx"),
        ("- item", "• item"),
        ("-not an item", "-not an item"),
        ("> said", "\x1b[2m│ said\x1b[0m"),
    ],
)
def test_marks_become_colours(text: str, shown: str) -> None:
    assert show(text) == shown
