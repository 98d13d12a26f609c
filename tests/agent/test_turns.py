"""Every change belongs to a turn: all that is done for one prompt, sub-agents included."""

from __future__ import annotations

from pathlib import Path

from surehand.history.history import HISTORY
from surehand.testing import ScriptedModel, scratch_app


def _write(name: str) -> tuple[str, dict[str, str]]:
    return "Write", {"file_path": name, "content": name}


async def test_all_changes_for_one_prompt_share_a_turn_and_calls_outside_are_each_their_own(tmp_path: Path) -> None:
    async with scratch_app(tmp_path, mode="accept-edits") as app:
        model = ScriptedModel([_write("a"), _write("b")], [_write("c")], "done", [_write("d")], "done")
        loop = app.conversation(model)
        await loop.ask("first")
        await loop.ask("second")
        await app.call(*_write("e"))
        await app.call(*_write("f"))
        turns = [each.turn for each in reversed(app.session.keep(HISTORY).changes())]
    first, second, alone, alone_too = turns[0], turns[3], turns[4], turns[5]
    assert turns == [first, first, first, second, alone, alone_too]
    assert len({first, second, alone, alone_too}) == 4


async def test_a_sub_agent_works_in_the_turn_and_for_the_session_of_its_parent(tmp_path: Path) -> None:
    async with scratch_app(tmp_path, mode="accept-edits") as app:
        work = {"prompt": "write a"}
        model = ScriptedModel([("Agent", work)], [_write("a")], "written", [_write("b")], "done")
        await app.conversation(model).ask("go")
        inner, own = reversed(app.session.keep(HISTORY).changes())
    assert inner.turn == own.turn != ""
    assert inner.session_id != own.session_id == app.session.id
    assert inner.main_session_id == own.main_session_id == app.session.id
