"""What a tool did elsewhere than in files is taken back by a call that the tool names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from surehand import Connect, Settings, Tool, ToolCall, ToolFailure, ToolResult, Undo, WritePath, tool
from surehand.core.settings import PermissionSettings
from surehand.testing import scratch_app

pytestmark = pytest.mark.spec("CORE-6", "CORE-12")


class Post:
    """A place elsewhere: letters that are out, by number."""

    def __init__(self) -> None:
        self.out: dict[int, str] = {}
        self.broken = False

    def tools(self) -> list[Tool]:
        @tool(undo=lambda args, result: ToolCall("unsend", {"number": result.data["number"]}))
        def send(text: str) -> dict[str, int]:
            "Send a letter."
            number = len(self.out) + 1
            self.out[number] = text
            return {"number": number}

        @tool
        def send_with_result(text: str) -> ToolResult:
            "Send a letter, and say with the result how it is taken back."
            self.out[9] = text
            return ToolResult(output="sent", undo=Undo(call=ToolCall("unsend", {"number": 9}), description="fetch it"))

        @tool
        def unsend(number: int) -> str:
            "Fetch a letter back."
            if self.broken:
                raise ToolFailure("the post is closed")
            return f"fetched {self.out.pop(number)}"

        return [send, send_with_result, unsend]


async def test_the_call_a_tool_names_is_recorded_and_made_by_undo() -> None:
    post = Post()
    async with scratch_app(tools=post.tools()) as app:
        sent = await app.call("send", {"text": "hello"})
        assert sent.undo is not None
        assert sent.undo.change_id
        listed = (await app.changes()).data["changes"]
        assert listed[0]["compensation"] == {"tool": "unsend", "args": {"number": 1}, "description": ""}
        undone = await app.call("Undo")
        assert undone.ok, undone.output
        assert "fetched hello" in undone.output
        assert post.out == {}
        again = await app.call("Undo", {"change_id": sent.undo.change_id})
        assert again.error is not None


async def test_the_call_may_come_with_the_result_and_survives_the_process(tmp_path: Path) -> None:
    post = Post()
    async with scratch_app(tmp_path, tools=post.tools(), keep_state=True) as app:
        sent = await app.call("send_with_result", {"text": "hi"})
        assert sent.undo is not None
        assert "call" not in sent.to_dict()["undo"]
    async with scratch_app(tmp_path, tools=post.tools(), keep_state=True) as app:
        assert (await app.call("Undo", {"change_id": sent.undo.change_id})).ok
    assert post.out == {}


async def test_a_call_that_fails_is_told_and_nothing_is_claimed() -> None:
    post = Post()
    async with scratch_app(tools=post.tools()) as app:
        await app.call("send", {"text": "hello"})
        post.broken = True
        failed = await app.call("Undo")
        assert failed.error is not None
        assert "the post is closed" in failed.error.message
        assert "was not taken back" in failed.error.message
        post.broken = False
        assert (await app.call("Undo")).ok
    assert post.out == {}


async def test_files_and_calls_of_a_turn_are_taken_back_together(tmp_path: Path) -> None:
    post = Post()
    async with scratch_app(tmp_path, tools=post.tools()) as app:
        turn = app.session.begin_turn()
        await app.call("Write", {"file_path": "a.txt", "content": "a"})
        await app.call("send", {"text": "hello"})
        app.session.end_turn()
        shown = await app.dry_run("Undo", {"turns": [turn]})
        assert "would call unsend" in shown.output
        undone = await app.call("Undo", {"turns": [turn]})
        assert undone.ok, undone.output
    assert post.out == {}
    assert not (tmp_path / "a.txt").exists()


async def test_the_call_is_judged_like_any_other() -> None:
    post = Post()
    rules = Settings(permissions=PermissionSettings(deny=("unsend",)))
    async with scratch_app(tools=post.tools(), settings=rules) as app:
        await app.call("send", {"text": "hello"})
        refused = await app.call("Undo")
        assert refused.error is not None
        assert refused.error.code == "permission_denied"
    assert post.out == {1: "hello"}


async def test_what_cannot_be_recorded_is_said_in_the_result() -> None:
    @tool(undo=lambda args, result: ToolCall("nobody", {}))
    def act() -> str:
        "Act."
        return "acted"

    @tool(undo=lambda args, result: result.data["missing"])
    def slip() -> str:
        "Slip."
        return "slipped"

    async with scratch_app(tools=[act, slip]) as app:
        acted, slipped = await app.call("act"), await app.call("slip")
    assert (acted.ok, acted.undo) == (True, None)
    assert "nobody" in acted.meta["not_undoable"]
    assert (slipped.ok, slipped.undo) == (True, None)
    assert "TypeError" in slipped.meta["not_undoable"]


def test_a_tools_level_follows_from_what_it_has() -> None:
    send, plain, _ = Post().tools()
    assert (send.level, plain.level) == (1, 0)


async def test_a_tool_whose_stated_changes_are_recorded_counts_as_reversible(tmp_path: Path) -> None:
    def write(args: Any, ctx: Any) -> str:
        (tmp_path / "x").write_text("x")
        return "written"

    def made(name: str, *effects: Any) -> Tool:
        return Tool(
            name=name, description="Writes.", args={"type": "object"}, run=write, effects=lambda args, ctx: effects
        )

    place = WritePath(str(tmp_path / "x"))
    tools = [made("files", place), made("more", place, Connect("h"))]
    own = {"permissions": {"required_capabilities": ["undo"]}}
    settings = Settings.parse({"tools": {"files": own, "more": own}})
    async with scratch_app(tmp_path, tools=tools, settings=settings) as app:
        assert (await app.call("files")).ok
        assert not (await app.call("more")).ok


async def test_redo_makes_the_call_again_and_its_new_undo_takes_that_back() -> None:
    post = Post()
    async with scratch_app(tools=post.tools()) as app:
        await app.call("send", {"text": "hello"})
        await app.call("send", {"text": "other"})
        undone = await app.call("Undo", {"last": 2})
        assert undone.ok, undone.output
        assert post.out == {}
        shown = await app.dry_run("Redo")
        assert shown.output.index('send({"text": "hello"})') < shown.output.index('send({"text": "other"})')
        redone = await app.call("Redo")
        assert redone.ok, redone.output
        assert 'called send({"text": "hello"})' in redone.output
        assert post.out == {1: "hello", 2: "other"}
        assert (await app.call("Redo")).error is not None  # once is enough
        assert redone.undo is not None
        back = await app.call("Undo")  # the redo, whole
        assert back.ok, back.output
    assert post.out == {}


async def test_a_redo_whose_call_fails_says_so_and_can_be_made_again(tmp_path: Path) -> None:
    post = Post()
    closed = Settings(permissions=PermissionSettings(deny=("send",)))
    async with scratch_app(tmp_path, tools=post.tools(), keep_state=True) as app:
        turn = app.session.begin_turn()
        await app.call("Write", {"file_path": "a.txt", "content": "a"})
        await app.call("send", {"text": "hello"})
        app.session.end_turn()
        undone = await app.call("Undo", {"turns": [turn]})
        assert undone.ok, undone.output
        undo_id = undone.data["change_id"]
    async with scratch_app(tmp_path, tools=post.tools(), keep_state=True, settings=closed) as app:
        failed = await app.call("Redo", {"change_id": undo_id})
        assert failed.error is not None
        assert failed.error.code == "permission_denied"
        assert "was not made again" in failed.error.message
        assert "brought back" in failed.error.hint
        assert (tmp_path / "a.txt").read_text() == "a"
        assert post.out == {}
    async with scratch_app(tmp_path, tools=post.tools(), keep_state=True) as app:
        redone = await app.call("Redo", {"all_sessions": True})
        assert redone.ok, redone.output
        assert post.out == {1: "hello"}
        back = await app.call("Undo", {"change_id": redone.undo.change_id if redone.undo else ""})
        assert back.ok, back.output
    assert post.out == {}


async def test_files_and_calls_come_back_with_one_redo(tmp_path: Path) -> None:
    post = Post()
    async with scratch_app(tmp_path, tools=post.tools()) as app:
        turn = app.session.begin_turn()
        await app.call("Write", {"file_path": "a.txt", "content": "a"})
        await app.call("send", {"text": "hello"})
        app.session.end_turn()
        assert (await app.call("Undo", {"turns": [turn]})).ok
        assert (await app.call("Redo")).ok
        assert (post.out, (tmp_path / "a.txt").read_text()) == ({1: "hello"}, "a")
        assert (await app.call("Undo")).ok
        assert post.out == {}
        assert not (tmp_path / "a.txt").exists()
        assert (await app.call("Redo")).ok
    assert (post.out, (tmp_path / "a.txt").read_text()) == ({1: "hello"}, "a")


async def test_one_undo_takes_back_the_files_and_the_call_of_one_call(tmp_path: Path) -> None:
    post, place = Post(), tmp_path / "copy.txt"

    def send_and_copy(args: Any, ctx: Any) -> ToolResult:
        number = len(post.out) + 1
        post.out[number] = args["text"]
        place.write_text(args["text"])
        return ToolResult(output="sent", undo=Undo(call=ToolCall("unsend", {"number": number})))

    both = Tool(
        name="send_and_copy",
        description="Sends a letter and keeps a copy.",
        args={"type": "object", "properties": {"text": {"type": "string"}}},
        run=send_and_copy,
        effects=lambda args, ctx: [WritePath(str(place))],
    )
    async with scratch_app(tmp_path, tools=[both, *post.tools()]) as app:
        sent = await app.call("send_and_copy", {"text": "hello"})
        assert sent.undo is not None
        assert len((await app.changes()).data["changes"]) == 1
        undone = await app.call("Undo", {"change_id": sent.undo.change_id})
        assert undone.ok, undone.output
        assert (post.out, place.exists()) == ({}, False)
        redone = await app.call("Redo")
        assert redone.ok, redone.output
        assert (post.out, place.read_text()) == ({1: "hello"}, "hello")
        assert (await app.call("Undo")).ok
        assert (post.out, place.exists()) == ({}, False)


async def test_what_was_taken_back_by_a_call_that_failed_half_way_is_not_taken_back_twice(tmp_path: Path) -> None:
    post, place = Post(), tmp_path / "copy.txt"

    def send_and_copy(args: Any, ctx: Any) -> ToolResult:
        post.out[1] = "hello"
        place.write_text("hello")
        return ToolResult(output="sent", undo=Undo(call=ToolCall("unsend", {"number": 1})))

    both = Tool(
        name="send_and_copy",
        description="Sends a letter and keeps a copy.",
        args={"type": "object"},
        run=send_and_copy,
        effects=lambda args, ctx: [WritePath(str(place))],
    )

    @tool
    def unsend(number: int) -> str:
        "Fetch a letter back; meanwhile somebody changes the copy."
        place.write_text("changed meanwhile")
        return f"fetched {post.out.pop(number)}"

    async with scratch_app(tmp_path, tools=[both, unsend]) as app:
        await app.call("send_and_copy")
        refused = await app.call("Undo")
        assert refused.error is not None
        assert post.out == {}
        assert "changed since" in refused.error.message
        assert "fetched hello" in refused.error.hint  # the call was made, and that is said
        undone = await app.call("Undo", {"force": True})
        assert undone.ok, undone.output
        assert not place.exists()
