"""What every framework's adapter has to carry, told once; the file of a framework adds what is its own.

`class TestFramework(Scenario)` has all of these tests: it says in which shape its provider speaks, how an agent is run,
and how a question is answered in the framework's own way.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.integrations.script import (
    EDIT,
    READ,
    TOUCH,
    calling,
    function_outputs,
    responding,
    shown_functions,
    shown_tools,
    tool_messages,
)
from tests.providers.model_stub import Stub

from surehand import Surehand, tool
from surehand.testing import Says

Call = tuple[str, str, dict[str, Any]]


@dataclass(frozen=True)
class Run:
    """What a run came to: its last words, or a question and how to answer it."""

    text: str = ""
    asked: str = ""
    answer: Callable[[bool], Awaitable[Run]] | None = None

    async def say(self, yes: bool) -> Run:
        assert self.answer is not None, f"nothing was asked: {self.text!r}"
        return await self.answer(yes)


@tool(read_only=True)
def word_count(text: str) -> int:
    "Count the words of a text."
    return len(text.split())


class Scenario:
    """The tests of an adapter; Chat Completions is the shape unless a framework says otherwise."""

    refusal = "not today"
    """What the model is told of a no."""

    def step(self, *calls: Call, text: str = "") -> dict[str, Any]:
        """Something the model says."""
        return {**calling(*calls), "text": text} if calls else {"text": text}

    def said(self, stub: Stub) -> Mapping[str, Any]:
        """What the model was told of its calls, by their ids."""
        return tool_messages(stub)

    def shown(self, stub: Stub, request: int) -> list[str]:
        """The tools a request showed."""
        return shown_tools(stub, request)

    def has_image(self, stub: Stub) -> bool:
        """Whether the last request had a picture."""
        return "data:image/png;base64," in json.dumps(stub.requests[-1])

    async def run(self, stub: Stub, app: Any) -> Run:
        """Have the framework's agent run, with our tools."""
        raise NotImplementedError

    # -- the tests ---------------------------------------------------------------------------------------------------

    async def test_it_searches_reads_edits_and_the_change_can_be_undone(self, stub: Stub, workspace: Path) -> None:
        calls = ("1", "Grep", {"pattern": "beta"}), ("2", "Read", READ), ("3", "word_count", {"text": "a b"})
        stub.script = [self.step(*calls), self.step(("4", "Edit", EDIT)), self.step(text="done")]
        async with Surehand(workspace, mode="accept-edits", tools=[word_count]) as app:
            assert (await self.run(stub, app)).text == "done"
            assert "word_count" in self.shown(stub, 0)
            assert not {"Agent", "Changes"} & set(self.shown(stub, 0))
            said = self.said(stub)
            assert "notes.txt" in str(said["1"])
            assert "beta" in str(said["2"])
            assert "2" in str(said["3"])
            assert (workspace / "notes.txt").read_text() == "alpha\ngamma\n"
            assert (await app.undo()).ok
            assert (workspace / "notes.txt").read_text() == "alpha\nbeta\n"

    async def test_a_command_waits_for_its_approval_and_runs_once_it_is_there(
        self, stub: Stub, workspace: Path
    ) -> None:
        stub.script = [self.step(("1", "Bash", TOUCH)), self.step(text="done")]
        async with Surehand(workspace) as app:
            run = await self.run(stub, app)
            assert "touch made.txt" in run.asked
            assert not (workspace / "made.txt").exists()
            assert (await run.say(True)).text == "done"
            assert (workspace / "made.txt").exists()

    async def test_a_refused_command_does_not_run_and_the_model_is_told(self, stub: Stub, workspace: Path) -> None:
        stub.script = [self.step(("1", "Bash", TOUCH)), self.step(text="sorry")]
        async with Surehand(workspace) as app:
            run = await self.run(stub, app)
            assert (await run.say(False)).text == "sorry"
            assert self.refusal in str(self.said(stub)["1"])
            assert not (workspace / "made.txt").exists()

    async def test_a_yes_does_not_hold_once_the_file_has_changed(self, stub: Stub, workspace: Path) -> None:
        edit = {**EDIT, "replace_all": True}
        stub.script = [self.step(("0", "Read", READ)), self.step(("1", "Edit", edit)), self.step(text="hm")]
        async with Surehand(workspace) as app:
            run = await self.run(stub, app)
            assert "+gamma" in run.asked
            (workspace / "notes.txt").write_text("alpha\nbeta\nbeta\n")
            await app.call("Read", READ)
            again = await run.say(True)
            assert again.asked or "not what was approved" in str(self.said(stub)["1"])
            assert (workspace / "notes.txt").read_text() == "alpha\nbeta\nbeta\n"

    async def test_a_rule_that_denies_is_not_asked_about(self, stub: Stub, workspace: Path) -> None:
        stub.script = [self.step(("1", "Read", {"file_path": ".env"})), self.step(text="sorry")]
        async with Surehand(workspace) as app:
            assert (await self.run(stub, app)).text == "sorry"
            assert "permission_denied" in str(self.said(stub)["1"])

    async def test_an_application_with_an_approver_asks_that_one(self, stub: Stub, workspace: Path) -> None:
        stub.script = [self.step(("1", "Bash", TOUCH)), self.step(text="done")]
        approver = Says("once")
        async with Surehand(workspace, approver=approver) as app:
            assert (await self.run(stub, app)).text == "done"
            assert len(approver.asked) == 1
            assert (workspace / "made.txt").exists()

    async def test_an_image_reaches_the_model(self, stub: Stub, workspace: Path) -> None:
        stub.script = [self.step(("1", "Read", {"file_path": "logo.png"})), self.step(text="red")]
        async with Surehand(workspace) as app:
            await self.run(stub, app)
            assert self.has_image(stub)

    async def test_failures_are_told_and_the_run_goes_on(self, stub: Stub, workspace: Path) -> None:
        calls = ("1", "Grep", {"nonsense": 1}), ("2", "Read", {"file_path": "missing.txt"})
        stub.script = [self.step(*calls), self.step(text="I see")]
        async with Surehand(workspace) as app:
            assert (await self.run(stub, app)).text == "I see"
            assert "pattern" in str(self.said(stub)["1"])
            assert "missing.txt" in str(self.said(stub)["2"])

    async def test_a_write_and_reads_of_one_message_keep_their_order(self, stub: Stub, workspace: Path) -> None:
        new = {"file_path": "new.txt"}
        calls = ("1", "Write", {**new, "content": "fresh\n"}), ("2", "Read", new), ("3", "Read", READ)
        stub.script = [self.step(*calls), self.step(text="done")]
        async with Surehand(workspace, mode="accept-edits") as app:
            await self.run(stub, app)
            assert "fresh" in str(self.said(stub)["2"])
            assert "alpha" in str(self.said(stub)["3"])

    async def test_calls_of_one_message_that_only_read_run_together(self, stub: Stub, workspace: Path) -> None:
        both = asyncio.Barrier(2)

        @tool(read_only=True)
        async def meet(name: str) -> str:
            "Wait for the other one."
            async with asyncio.timeout(60):
                await both.wait()
            return f"{name} met"

        stub.script = [
            self.step(("1", "meet", {"name": "Ann"}), ("2", "meet", {"name": "Bob"})),
            self.step(text="done"),
        ]
        async with Surehand(workspace, tools=[meet]) as app:
            await self.run(stub, app)
        said = self.said(stub)
        assert "Ann met" in str(said["1"])
        assert "Bob met" in str(said["2"])

    async def test_cancelling_the_run_stops_the_call(self, stub: Stub, workspace: Path) -> None:
        started, stopped = asyncio.Event(), asyncio.Event()

        @tool(read_only=True)
        async def wait_long() -> str:
            "Wait."
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()
            return "never"

        stub.script = [self.step(("1", "wait_long", {}))]
        async with Surehand(workspace, tools=[wait_long]) as app:
            running = asyncio.create_task(self.run(stub, app))
            await started.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            async with asyncio.timeout(60):
                await stopped.wait()  # while the application is still open: closing it would stop the call, too
            assert (await app.call("Read", READ)).ok

    async def test_a_tool_that_is_found_is_there_in_the_next_step(self, stub: Stub, workspace: Path) -> None:
        stub.script = [self.step(("1", "ToolSearch", {"query": "select:Changes"})), self.step(text="done")]
        async with Surehand(workspace) as app:
            await self.run(stub, app)
            assert "Changes" not in self.shown(stub, 0)
            assert "Changes" in self.shown(stub, 1)


class ResponsesScenario(Scenario):
    """The same with a model that speaks OpenAI's Responses."""

    def step(self, *calls: Call, text: str = "") -> dict[str, Any]:
        return responding(*calls, text=text)

    def said(self, stub: Stub) -> Mapping[str, Any]:
        return function_outputs(stub)

    def shown(self, stub: Stub, request: int) -> list[str]:
        return shown_functions(stub, request)


async def converse(
    tools: Any,
    ask: Callable[[], Awaitable[Any]],
    extend: Callable[[Any, Sequence[Any]], None],
    words: Callable[[Any], str],
) -> Run:
    """A loop of one's own round a plain client: ask the model, answer its calls, stop where somebody has to say yes."""
    turn = await ask()
    waiting = await tools.pending(turn)

    async def go_on(digests: Mapping[str, str]) -> Run:
        answers = await tools.answer(turn, digests)
        if not answers:
            return Run(words(turn))
        extend(turn, answers)
        return await converse(tools, ask, extend, words)

    if not waiting:
        return await go_on({})
    asked = next(iter(waiting.values()))["text"]
    return Run(
        asked=asked, answer=lambda yes: go_on({id: each["digest"] for id, each in waiting.items()} if yes else {})
    )
