"""Two sessions that edit one file: nothing is lost; an edit of other lines is merged where that is wanted."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

from surehand.core.settings import FileSettings, Settings
from surehand.testing import scratch_app

pytestmark = pytest.mark.spec("SESS-4")

TEXT = "".join(f"line {number}\n" for number in range(1, 21))


def merging(how: Literal["off", "agents", "on"]) -> Settings:
    return Settings(files=FileSettings(merge=how))


async def edit(app: Any, old: str, new: str) -> Any:
    return await app.call("Edit", {"file_path": "a", "old_string": old, "new_string": new})


async def test_the_second_of_two_sessions_gets_the_difference_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text(TEXT)
    async with scratch_app(tmp_path) as one, scratch_app(tmp_path) as two:
        for app in (one, two):
            await app.call("Read", {"file_path": "a"})
        assert (await edit(one, "line 3\n", "LINE 3\n")).ok
        refused = await edit(two, "line 15\n", "LINE 15\n")
        assert "-line 3\n+LINE 3\n" in refused.error.details["diff"]
        assert (await edit(two, "line 15\n", "LINE 15\n")).ok
    assert path.read_text() == TEXT.replace("line 3\n", "LINE 3\n").replace("line 15\n", "LINE 15\n")


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
async def test_an_edit_of_other_lines_is_merged_and_says_what_others_changed(tmp_path: Path, ends: str) -> None:
    path, text = tmp_path / "a", TEXT.replace("\n", ends)
    path.write_bytes(text.encode())
    async with scratch_app(tmp_path) as one, scratch_app(tmp_path, settings=merging("on")) as two:
        for app in (one, two):
            await app.call("Read", {"file_path": "a"})
        assert (await edit(one, "line 3\n", "LINE 3\nand more\n")).ok
        result = await edit(two, "line 15\n", "LINE 15\n")
        assert result.ok, result.output
        assert result.data["merged"]
        assert "+LINE 3" in result.output
        wanted = text.replace(f"line 3{ends}", f"LINE 3{ends}and more{ends}").replace(
            f"line 15{ends}", f"LINE 15{ends}"
        )
        assert path.read_bytes() == wanted.encode()
        assert (await edit(two, "line 17\n", "LINE 17\n")).ok
        assert (await two.call("Undo")).ok
        assert (await two.call("Undo")).ok
        assert path.read_bytes() == text.replace(f"line 3{ends}", f"LINE 3{ends}and more{ends}").encode()


@pytest.mark.parametrize(("old", "new"), [("line 3\n", "third\n"), ("line 4\n", "fourth\n"), ("line 3\nline 4\n", "")])
async def test_an_edit_of_the_same_or_touching_lines_is_refused_with_the_difference(
    tmp_path: Path, old: str, new: str
) -> None:
    path = tmp_path / "a"
    path.write_text(TEXT)
    async with scratch_app(tmp_path, settings=merging("on")) as app:
        await app.call("Read", {"file_path": "a"})
        path.write_text(TEXT.replace("line 3\n", "LINE 3\n"))
        refused = await edit(app, old, new)
        assert refused.error is not None
        assert (refused.error.details["layer"], refused.error.details["number"]) == (8, 7)
        assert "+LINE 3" in refused.error.details["diff"]
        assert path.read_text() == TEXT.replace("line 3\n", "LINE 3\n")
        assert (await edit(app, "line 10\n", "LINE 10\n")).ok  # the refusal counts as a read


async def test_merging_is_on_for_sub_agents_alone_unless_it_is_set(tmp_path: Path) -> None:
    from surehand.core.call import ToolCall
    from surehand.core.context import ToolContext
    from surehand.core.session import Session
    from surehand.tools.file_write import FileWrite

    parent = Session(str(tmp_path), settings=Settings())
    child = Session(str(tmp_path), settings=Settings(), parent=parent)
    never = Session(str(tmp_path), settings=merging("off"), parent=parent)
    found = [
        FileWrite(ToolContext(ToolCall("Edit"), each, lambda _: None, {}), "a").merges
        for each in (parent, child, never)
    ]
    assert found == [False, True, False]
