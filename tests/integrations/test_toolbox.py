"""What all adapters share, without any framework: order of calls, approvals that come later, loops, content."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.console.served import serve_console

from surehand import Image, Surehand, SurehandError, Text, ToolCall, ToolContext, ToolResult, tool
from surehand.core.call import Foreign
from surehand.integrations.toolbox import REMEMBERED, CallOrder, FileContent, Pending, Toolbox, list_content, text_of
from surehand.policy.mailbox import Mailbox
from surehand.testing import Says

pytestmark = pytest.mark.spec("INT-1")

TOUCH = {"command": "touch made.txt"}


async def test_a_call_waits_until_the_digest_that_was_shown_comes_back(workspace: Path) -> None:
    async with Surehand(workspace) as app:
        box = Toolbox(app)
        pending = await box.call("Bash", TOUCH, id="1")
        assert isinstance(pending, Pending)
        assert isinstance(await box.call("Bash", TOUCH, id="2", approved=True), Pending)  # another call
        assert isinstance(await box.call("Bash", TOUCH, id="1", approved="0" * 64), Pending)
        assert not (workspace / "made.txt").exists()
        done = await box.call("Bash", TOUCH, id="1", approved=pending.digest)
        assert isinstance(done, ToolResult)
        assert (workspace / "made.txt").exists()
        assert isinstance(await box.call("Bash", TOUCH, id="1", approved=True), Pending)  # a yes holds once


async def test_a_yes_does_not_hold_in_another_directory(workspace: Path) -> None:
    (workspace / "sub").mkdir()
    async with Surehand(workspace) as app:
        box = Toolbox(app)
        pending = await box.call("Bash", TOUCH, id="1")
        assert isinstance(pending, Pending)
        app.session.cwd = str(workspace / "sub")
        assert isinstance(await box.call("Bash", TOUCH, id="1", approved=pending.digest), Pending)


async def test_a_rule_that_denies_since_the_yes_denies(workspace: Path) -> None:
    async with Surehand(workspace) as app:
        box = Toolbox(app)
        pending = await box.call("Bash", TOUCH, id="1")
        assert isinstance(pending, Pending)
        app.session.mode = "plan"
        refused = await box.call("Bash", TOUCH, id="1", approved=pending.digest)
        assert isinstance(refused, ToolResult)
        assert not refused.ok
        assert not (workspace / "made.txt").exists()


async def test_only_so_many_open_approvals_are_remembered(workspace: Path) -> None:
    async with Surehand(workspace) as app:
        box = Toolbox(app)
        for number in range(REMEMBERED + 1):
            await box.find_pending("Bash", TOUCH, id=str(number))
        assert box.get_pending("0") is None
        assert box.get_pending(str(REMEMBERED)) is not None


async def test_with_a_mailbox_for_an_approver_the_run_stands_still_until_the_console_answers(workspace: Path) -> None:
    async with serve_console() as served, Surehand(workspace) as app:
        assert app.session.state_dir is not None
        app.approver = Mailbox(app.session.state_dir, timeout_s=300)
        call = asyncio.create_task(Toolbox(app).call("Bash", TOUCH, id="1"))
        async with asyncio.timeout(60):
            while not (rows := (await served.get("/api/questions"))["questions"]):
                await asyncio.sleep(0.02)
        assert not (workspace / "made.txt").exists()
        answer = {"session_id": rows[0]["root"], "digest": rows[0]["digest"], "kind": "once"}
        await served.post(f"/api/questions/{rows[0]['id']}/answer", answer)
        done = await call
        assert isinstance(done, ToolResult)
        assert done.ok, done.output
        assert (workspace / "made.txt").exists()


async def test_an_approver_set_later_takes_over(workspace: Path) -> None:
    async with Surehand(workspace) as app:
        box = Toolbox(app)
        assert isinstance(await box.call("Bash", TOUCH, id="1"), Pending)
        app.approver = Says("no", "never")
        refused = await box.call("Bash", TOUCH, id="1", approved=True)
        assert isinstance(refused, ToolResult)
        assert "never" in refused.output


async def test_calls_begun_together_keep_the_order_they_came_in(workspace: Path) -> None:
    async with Surehand(workspace, mode="accept-edits") as app:
        box = Toolbox(app)
        new = {"file_path": "new.txt"}
        write, read, edit = await asyncio.gather(
            box.call("Write", {**new, "content": "one\n"}),
            box.call("Read", new),
            box.call("Edit", {**new, "old_string": "one", "new_string": "two"}),
        )
        assert [isinstance(each, ToolResult) and each.ok for each in (write, read, edit)] == [True, True, True]
        assert (workspace / "new.txt").read_text() == "two\n"


async def test_safe_calls_run_together_and_a_call_that_is_given_up_holds_up_nobody() -> None:
    order, log = CallOrder(), list[str]()
    gates = {name: asyncio.Event() for name in "abcd"}

    async def run(name: str, safe: bool) -> None:
        async def is_safe() -> bool:
            return safe

        async with order.turn(is_safe):
            log.append(name)
            await gates[name].wait()

    tasks = {name: asyncio.create_task(run(name, safe=name != "c")) for name in "abcd"}
    for _ in range(5):
        await asyncio.sleep(0)
    assert log == ["a", "b"]
    tasks["c"].cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert log == ["a", "b", "d"]
    for gate in gates.values():
        gate.set()
    await asyncio.gather(*tasks.values(), return_exceptions=True)


async def test_a_call_made_inside_another_does_not_wait_for_itself(workspace: Path) -> None:
    @tool
    async def nested() -> str:
        "Call through the same toolbox, as an agent that is a tool does."
        said = await box.call("Glob", {"pattern": "*.txt"})
        return text_of(said) if isinstance(said, ToolResult) else "pending"

    async with Surehand(workspace, tools=[nested], allow=["nested"]) as app:
        box = Toolbox(app)
        result = await box.call("nested", {})
        assert isinstance(result, ToolResult)
        assert "notes.txt" in result.output


async def test_a_child_of_an_approved_call_is_not_approved_with_it(workspace: Path) -> None:
    @tool
    async def parent(ctx: ToolContext) -> Any:
        "Call a command."
        return await ctx.call("Bash", {"command": "touch made.txt"})

    async with Surehand(workspace, tools=[parent]) as app:
        box = Toolbox(app)
        pending = await box.call("parent", {}, id="1")
        assert isinstance(pending, Pending)
        await box.call("parent", {}, id="1", approved=pending.digest)
        assert not (workspace / "made.txt").exists()


def test_another_loop_and_plain_code_reach_an_application_on_its_own_thread(workspace: Path) -> None:
    with Surehand.sync(workspace) as app:
        box = Toolbox(app)

        async def elsewhere() -> Any:
            return await box.call("Glob", {"pattern": "*.txt"})

        assert asyncio.run(elsewhere()).ok
        plain = box.call_blocking("Glob", {"pattern": "*.txt"})
        assert isinstance(plain, ToolResult)
        assert plain.ok
        (answer,) = box.wait(box.run_message([ToolCall("Bash", TOUCH, id="1")], {}))
        assert not answer.ok


def test_a_call_cancelled_on_another_loop_has_ended_when_that_is_told(workspace: Path) -> None:
    started, ended = asyncio.Event(), list[str]()

    @tool(read_only=True)
    async def wait_long() -> str:
        "Wait."
        loop.call_soon_threadsafe(started.set)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")
        return ""

    async def run() -> None:
        nonlocal loop
        loop = asyncio.get_running_loop()
        calling = asyncio.create_task(Toolbox(app).call("wait_long", {}))
        await started.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert ended == ["ended"]

    loop: Any = None
    with Surehand.sync(workspace, tools=[wait_long]) as app:
        asyncio.run(run())


def test_plain_code_with_an_async_application_is_told_what_to_open(workspace: Path) -> None:
    app = Surehand(workspace)
    with pytest.raises(SurehandError, match=r"Surehand\.sync"):
        Toolbox(app).call_blocking("Glob", {"pattern": "*"})


async def test_what_is_shown_follows_the_session_and_what_is_named(workspace: Path) -> None:
    @tool(read_only=True)
    def word_count(text: str) -> int:
        "Count the words of a text."
        return len(text.split())

    async with Surehand(workspace, tools=[word_count]) as app:
        box = Toolbox(app)
        shown = {info.name for info in box.list_shown()}
        assert {"word_count", "Read", "ToolSearch"} <= shown
        assert shown == {info.name for info in box.list_all() if box.is_shown(info.name)}
        assert "ToolSearch" not in {info.name for info in box.list_fixed()}
        assert not box.is_shown("Changes")
        assert not box.is_shown("Agent")
        app.selection.activate_tool("Changes")
        assert box.is_shown("Changes")
        everything = Toolbox(app, ["*"])
        assert [each.name for each in everything.list_shown()] == [each.name for each in everything.list_all()]
        app.registry.lifecycle.move("Read", "disabled")
        assert not box.is_shown("Read")
        assert not everything.is_shown("Read")


def test_content_is_text_images_and_files() -> None:
    blob = {
        "type": "resource",
        "resource": {"uri": "file:///a/report.pdf", "mimeType": "application/pdf", "blob": "QQ=="},
    }
    sound = {"type": "audio", "data": "QQ==", "mimeType": "audio/wav"}
    blocks = (Text("a"), Image("QQ==", "image/png"), Foreign(blob), Foreign(sound), Foreign({"type": "new", "x": 1}))
    result = ToolResult(output="a", content=blocks)
    assert list_content(result) == [
        Text("a"),
        Image("QQ==", "image/png"),
        FileContent("QQ==", "application/pdf", "report.pdf"),
        FileContent("QQ==", "audio/wav"),
        Text('{"type": "new", "x": 1}'),
    ]
    assert "[file report.pdf, application/pdf]" in text_of(result)
