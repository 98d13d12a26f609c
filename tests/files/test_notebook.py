"""Notebooks: cells with outputs, whatever a file claims to be."""

from __future__ import annotations

import base64
import json
import resource
import time
from typing import Any

import pytest

from surehand.core.errors import ToolFailure
from surehand.core.text import NOTEBOOK_OUTPUT_CHARACTERS
from surehand.files.notebook import PICTURE_LIMIT, as_data, parse_notebook, render_cells


def book(*cells: Any, **more: Any) -> bytes:
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5, **more}).encode()


def code(source: str | list[str], *outputs: Any, **more: Any) -> dict[str, Any]:
    return {"cell_type": "code", "source": source, "outputs": outputs, "execution_count": 3, "metadata": {}, **more}


def shown(content: bytes, first: int = 0, limit: int = 1000, budget: int = 100_000) -> str:
    return render_cells(parse_notebook(content, "/a.ipynb"), first, limit, budget)[0]


def test_cells_are_shown_in_order_with_kind_and_count() -> None:
    text = shown(book({"cell_type": "markdown", "source": ["# A\n", "b"]}, code("x = 1", id="abc")))
    assert text == "--- cell 1 (markdown)\n# A\nb\n\n--- cell 2 (code, python, run [3], id abc)\nx = 1"


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ({"output_type": "stream", "name": "stdout", "text": ["a\n", "b\n"]}, "(stdout)\na\nb"),
        ({"output_type": "stream", "name": "stderr", "text": "oops"}, "(stderr)\noops"),
        ({"output_type": "execute_result", "data": {"text/plain": "42", "text/html": "<b>42</b>"}}, "(text/plain)\n42"),
        ({"output_type": "display_data", "data": {"text/html": ["<p>", "x"]}}, "(text/html)\n<p>x"),
        ({"output_type": "display_data", "data": {"application/json": {"a": 1}}}, '(application/json)\n{"a": 1}'),
        (
            {"output_type": "error", "ename": "E", "evalue": "v", "traceback": ["\x1b[31mTrace\x1b[0m", "E: v"]},
            "(error)\nTrace\nE: v",
        ),
        ({"output_type": "error", "ename": "E", "evalue": "v", "traceback": []}, "(error)\nE: v"),
        ({"output_type": "stream", "text": "10%\r50%\r100%\ndone\n"}, "(stdout)\n100%\ndone"),
    ],
)
def test_outputs_read_as_a_person_sees_them(output: dict[str, Any], expected: str) -> None:
    assert shown(book(code("x", output))).endswith(f"--- output of cell 1 {expected}")


def test_pictures_come_beside_the_text() -> None:
    picture = {"output_type": "display_data", "data": {"image/png": base64.b64encode(b"PNG bytes").decode()}}
    found = parse_notebook(book(code("plot()", picture, picture)), "/a")
    text, pictures, count = render_cells(found, 0, 10, 1000)
    assert pictures == [b"PNG bytes"] * 2
    assert "[picture 2, shown below]" in text
    assert count == 1
    many = render_cells(parse_notebook(book(code("p", *[picture] * 30)), "/a"), 0, 10, 100_000)
    assert len(many[1]) == PICTURE_LIMIT
    assert "left out" in many[0]


def test_long_outputs_and_long_notebooks_are_cut_with_a_word() -> None:
    text = shown(book(code("x", {"output_type": "stream", "text": "y" * 50_000})))
    assert len(text) < NOTEBOOK_OUTPUT_CHARACTERS + 500
    assert "output cut" in text
    cells = [code(f"cell {number} " + "z" * 90) for number in range(100)]
    _, _, count = render_cells(parse_notebook(book(*cells), "/a"), 10, 1000, 1000)
    assert 3 < count < 10
    assert len(shown(book(code("q" * 5000)), budget=1000)) < 1100


def test_the_language_comes_from_the_notebook() -> None:
    content = book(code("1"), metadata={"language_info": {"name": "julia"}})
    assert parse_notebook(content, "/a").language == "julia"
    assert parse_notebook(book(metadata=["nonsense"]), "/a").language == "python"


def test_the_older_format_is_read() -> None:
    cell = {
        "cell_type": "code",
        "input": ["1+1"],
        "prompt_number": 7,
        "outputs": [{"output_type": "pyout", "text": ["2"]}],
    }
    old = json.dumps({"worksheets": [{"cells": [cell]}], "nbformat": 3}).encode()
    assert "run [7])\n1+1" in shown(old)
    assert shown(old).endswith("(text/plain)\n2")


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b"null", b'{"cells": 3}', b'{"nbformat": 4}', b"\xff\xfe{}", b'{"cells": [' * 50_000,
        b"[" * 200_000, b'{"cells": "x"}',
    ],
)  # fmt: skip
def test_what_is_no_notebook_is_a_clear_error(content: bytes) -> None:
    with pytest.raises(ToolFailure, match=r"/a\.ipynb"):
        parse_notebook(content, "/a.ipynb")


def test_odd_values_inside_are_passed_over() -> None:
    odd = {"cell_type": 5, "source": {"a": 1}, "outputs": [None, 3, {"output_type": "stream", "text": 9}, {"data": []}]}
    found = parse_notebook(book(odd, None, "text", code(["a", 3, None])), "/a")
    assert [cell.source for cell in found.cells] == ["", "a"]
    assert as_data(found.cells)[1]["source"] == "a"


def test_a_file_that_would_fill_the_memory_is_refused_before_it_is_parsed() -> None:
    content = b'{"cells": [' + b"[],{}," * 3_000_000 + b"0]}"
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    with pytest.raises(ToolFailure, match="too large"):
        parse_notebook(content, "/a")
    assert time.monotonic() - started < 60  # what hangs, hangs without end
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024
