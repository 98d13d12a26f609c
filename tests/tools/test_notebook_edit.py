"""NotebookEdit: one cell changes, every other byte stays; the nine layers, undo and dry run as for Edit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from surehand.core.call import ToolResult
from surehand.testing import scratch_app


def cell(kind: str, source: str, **more: Any) -> dict[str, Any]:
    lines = source.splitlines(keepends=True)
    made: dict[str, Any] = {"cell_type": kind, "metadata": {}, "source": lines, **more}
    return made | (
        {"execution_count": 3, "outputs": [{"output_type": "stream", "text": ["1\n"]}]} if kind == "code" else {}
    )


def notebook(minor: int = 5) -> dict[str, Any]:
    cells = [cell("markdown", "# Übersicht\n\ntext"), cell("code", "a = 1\nprint(a)"), cell("code", "b = 2\n")]
    if minor >= 5:
        for number, each in enumerate(cells):
            each["id"] = f"id-{number + 1}"
    meta = {"kernelspec": {"language": "python", "name": "python3"}}
    return {"cells": cells, "metadata": meta, "nbformat": 4, "nbformat_minor": minor}


def compact(book: Any) -> str:
    return json.dumps(book, separators=(",", ":"))


SPELLINGS: dict[str, Callable[[Any], bytes]] = {
    "jupyter": lambda book: (json.dumps(book, indent=1, ensure_ascii=False, sort_keys=True) + "\n").encode(),
    "four": lambda book: json.dumps(book, indent=4).encode(),
    "tabs": lambda book: json.dumps(book, indent="\t", ensure_ascii=False).encode(),
    "crlf": lambda book: json.dumps(book, indent=2, ensure_ascii=False).replace("\n", "\r\n").encode(),
    "bom": lambda book: b"\xef\xbb\xbf" + json.dumps(book, indent=1, ensure_ascii=False).encode(),
    "one line": lambda book: json.dumps(book).encode(),
    "compact": lambda book: compact(book).encode(),
    "strings": lambda book: json.dumps(
        {**book, "cells": [{**each, "source": "".join(each["source"])} for each in book["cells"]]}, indent=1
    ).encode(),
    "odd": lambda book: json.dumps(book, indent=3).replace("[\n", "[ \n").replace('": {', '" :  {').encode() + b"\n\n",
}


def parsed(data: bytes) -> dict[str, Any]:
    book = json.loads(data.decode("utf-8-sig"))
    for each in book["cells"]:
        each["source"] = "".join(each["source"])
    return book


def kept_around(before: bytes, after: bytes) -> tuple[int, int]:
    """Return how many bytes two contents share at the front and at the back."""
    least = min(len(before), len(after))
    head = next((at for at in range(least) if before[at] != after[at]), least)
    tail = next((at for at in range(least - head) if before[-1 - at] != after[-1 - at]), least - head)
    return head, tail


@pytest.mark.spec("FILE-8")
@pytest.mark.parametrize("minor", [0, 4, 5])
@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_one_cell_changes_and_every_other_byte_stays(tmp_path: Path, spelling: str, minor: int) -> None:
    path = tmp_path / "n.ipynb"
    before = SPELLINGS[spelling](notebook(minor))
    async with scratch_app(tmp_path) as app:

        async def edited(**args: Any) -> tuple[dict[str, Any], bytes]:
            path.write_bytes(before)
            await app.call("Read", {"file_path": "n.ipynb"})
            result = await app.call("NotebookEdit", {"notebook_path": "n.ipynb", **args})
            assert result.ok, result.output
            after = path.read_bytes()
            assert (await app.call("Undo")).ok
            assert path.read_bytes() == before
            return parsed(after), after

        old = parsed(before)
        book, after = await edited(cell_number=2, new_source="a = 'ü'\n\nprint(a)")
        wanted = {**old["cells"][1], "source": "a = 'ü'\n\nprint(a)", "outputs": [], "execution_count": None}
        assert book == {**old, "cells": [old["cells"][0], wanted, old["cells"][2]]}
        head, tail = kept_around(before, after)
        third = before.rindex(b"{", 0, before.index(b"b = 2"))
        assert head > before.index(b'"markdown"')
        assert tail >= len(before) - third

        book, after = await edited(cell_number=2, new_source="x", outputs="keep")
        assert book["cells"][1] == {**old["cells"][1], "source": "x"}
        assert after.count(b"stream") == 2

        book, after = await edited(cell_number=1, edit_mode="insert", new_source="new\ncell")
        made = book["cells"].pop(1)
        assert book == old
        assert (made["cell_type"], made["source"], made["outputs"]) == ("code", "new\ncell", [])
        assert ("id" in made) == (minor >= 5)
        assert sum(kept_around(before, after)) >= len(before)

        book, _ = await edited(edit_mode="insert", new_source="first", cell_type="markdown")
        assert book["cells"].pop(0)["source"] == "first"
        assert book == old

        for number in (1, 2, 3):
            book, after = await edited(cell_number=number, edit_mode="delete")
            assert book["cells"] == [each for at, each in enumerate(old["cells"], 1) if at != number]
            assert sum(kept_around(before, after)) >= len(after)

        book, _ = await edited(cell_number=2, new_source="# now text", cell_type="markdown")
        assert book["cells"][1]["cell_type"] == "markdown"
        assert "outputs" not in book["cells"][1]
        assert (book["cells"][0], book["cells"][2]) == (old["cells"][0], old["cells"][2])


@pytest.mark.spec("FILE-8")
@pytest.mark.parametrize("spelling", ["jupyter", "crlf", "compact", "four"])
async def test_what_is_inserted_is_spelled_as_the_file_spells_its_own(tmp_path: Path, spelling: str) -> None:
    path, book = tmp_path / "n.ipynb", notebook(4)
    path.write_bytes(SPELLINGS[spelling](book))
    async with scratch_app(tmp_path) as app:
        await app.call("Read", {"file_path": "n.ipynb"})
        args = {"notebook_path": "n.ipynb", "edit_mode": "insert", "cell_number": 3, "new_source": "x = 1\ny = 2"}
        assert (await app.call("NotebookEdit", args)).ok
        again = json.loads(path.read_bytes())
        assert path.read_bytes() == SPELLINGS[spelling](again)  # as the same program would write it
        for number in (4, 3, 2, 1):
            args = {"notebook_path": "n.ipynb", "edit_mode": "delete", "cell_number": number}
            assert (await app.call("NotebookEdit", args)).ok
        args = {"notebook_path": "n.ipynb", "edit_mode": "insert", "new_source": "only"}
        assert (await app.call("NotebookEdit", args)).ok
        again = json.loads(path.read_bytes())
        assert path.read_bytes() == SPELLINGS[spelling](again)


async def refusal(app: Any, **args: Any) -> tuple[int, int]:
    result = await app.call("NotebookEdit", {"notebook_path": "n.ipynb", **args})
    assert result.error is not None, result.output
    return result.error.details["layer"], result.error.details["number"]


@pytest.mark.spec("FILE-8")
async def test_every_layer_refuses_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "n.ipynb"
    async with scratch_app(tmp_path) as app:
        assert await refusal(app, edit_mode="replace", cell_number=1) == (1, 1)
        assert await refusal(app, new_source="x") == (1, 1)
        assert await refusal(app, new_source="x", cell_number=1, cell_id="a") == (1, 1)
        assert await refusal(app, new_source="a stray byte \udcff", cell_number=1) == (1, 1)
        assert await refusal(app, notebook_path=".env", new_source="x", cell_number=1) == (2, 2)
        assert await refusal(app, new_source="x", cell_number=1) == (5, 4)
        path.write_text("{")
        assert await refusal(app, new_source="x", cell_number=1) == (6, 5)
        (tmp_path / "a.py").write_text("x = 1\n")
        assert await refusal(app, notebook_path="a.py", new_source="x", cell_number=1) == (6, 5)
        book = notebook()
        book["cells"][2]["id"] = "id-1"
        path.write_bytes(SPELLINGS["jupyter"](book))
        assert await refusal(app, new_source="x", cell_number=1) == (7, 6)
        await app.call("Read", {"file_path": "n.ipynb"})
        path.write_bytes(SPELLINGS["jupyter"](book) + b"\n")
        assert await refusal(app, new_source="x", cell_number=1) == (8, 7)
        assert await refusal(app, new_source="x", cell_id="nobody") == (9, 8)
        assert await refusal(app, new_source="x", cell_number=9) == (9, 8)
        assert await refusal(app, new_source="x", cell_id="id-1") == (9, 9)
        assert await refusal(app, new_source="b = 2\n", cell_number=3, outputs="keep") == (1, 1)
        edit = await app.call("Edit", {"file_path": "n.ipynb", "old_string": "b = 2", "new_string": "b = 3"})
        assert edit.error is not None
        assert (edit.error.details["layer"], edit.error.details["number"]) == (6, 5)
        assert "NotebookEdit" in edit.error.hint


@pytest.mark.parametrize(
    "content",
    [
        b'{"worksheets": [], "nbformat": 3, "nbformat_minor": 0}',
        b'{"cells": {}, "nbformat": 4}',
        b'{"cells": [1], "nbformat": 4}',
        b'{"cells": [], "cells": [], "nbformat": 4}',
        b'{"nbformat": 4}',
        b"[]",
        b'{"cells": [{"source": "x"}',
        '{"cells": [], "nbformat": 4}'.encode("utf-16"),
    ],
)
async def test_what_is_no_notebook_of_format_4_is_refused_and_stays(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "n.ipynb"
    path.write_bytes(content)
    async with scratch_app(tmp_path) as app:
        await app.call("Read", {"file_path": "n.ipynb"})
        assert await refusal(app, edit_mode="insert", new_source="x") == (6, 5)
    assert path.read_bytes() == content


async def test_a_dry_run_shows_the_change_that_a_run_then_makes(tmp_path: Path) -> None:
    path = tmp_path / "n.ipynb"
    before = SPELLINGS["jupyter"](notebook())
    path.write_bytes(before)
    async with scratch_app(tmp_path) as app:
        await app.call("Read", {"file_path": "n.ipynb"})
        args = {"notebook_path": "n.ipynb", "cell_id": "id-2", "edit_mode": "insert", "new_source": "tried = 1"}
        shown: ToolResult = await app.dry_run("NotebookEdit", args)
        assert "tried = 1" in shown.data["diff"]
        assert path.read_bytes() == before
        made = await app.call("NotebookEdit", args)
        assert made.data["diff"] == shown.data["diff"]
        assert "Inserted cell 3" in made.output


async def test_huge_outputs_elsewhere_stay_to_the_last_byte(tmp_path: Path) -> None:
    path, book = tmp_path / "n.ipynb", notebook()
    book["cells"][2]["outputs"] = [{"output_type": "display_data", "data": {"image/png": "A" * 8_000_000}}]
    before = SPELLINGS["jupyter"](book)
    path.write_bytes(before)
    async with scratch_app(tmp_path) as app:
        await app.call("Read", {"file_path": "n.ipynb", "limit": 1})
        result = await app.call("NotebookEdit", {"notebook_path": "n.ipynb", "cell_id": "id-2", "new_source": "c"})
        assert result.ok, result.output
        assert len(result.output) < 10_000
        assert kept_around(before[:5000], path.read_bytes()[:5000])[0] > 100
        assert path.read_bytes().endswith(before[-8_000_000:])
        assert (await app.call("Undo")).ok
    assert path.read_bytes() == before
