"""Questions are answered from other processes: by the session's channel, whoever else was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from surehand import Surehand, tool
from surehand.policy.approval import Answer, First, Mailbox, Question
from surehand.state import local_rpc, locations
from surehand.state.local_rpc import follow_sessions

pytestmark = pytest.mark.spec("PERM-3")
Row = dict[str, Any]


@tool
async def post(text: str) -> str:
    "Post something."
    return f"posted {text}"


class Waiting:
    """An approver that never answers; it hears when somebody else has."""

    def __init__(self) -> None:
        self.withdrawn: list[Answer] = []

    async def ask(self, question: Question) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError

    def withdraw(self, question: Question, answer: Answer) -> None:
        self.withdrawn.append(answer)


def ask(request: Row, wait_s: float = 20.0) -> Any:
    """Ask the one session that runs."""
    (name,) = local_rpc.session_sockets()
    return asyncio.to_thread(local_rpc.ask, name, request, wait_s)


async def waiting_question(wanted: Callable[[Row], bool] = lambda row: True) -> Row:
    """Return the question that waits, once one does."""
    async with asyncio.timeout(120):
        while True:
            found = [row for row in (await ask({"want": "questions"}))["questions"] if wanted(row)]
            if found:
                return found[0]
            await asyncio.sleep(0.01)


async def answer(row: Row, **given: Any) -> Row:
    request = {"want": "answer", "id": row["id"], "digest": row["digest"], "by": "ada"}
    return await ask(request | {"answer": {"kind": "once", **given}})


async def test_a_question_shows_exactly_what_would_run_and_is_answered_by_the_channel(tmp_path: Path) -> None:
    approver = Waiting()
    decided: list[Any] = []
    async with Surehand(tmp_path, tools=[post], approver=approver) as app:
        app.bus.subscribe(lambda event: decided.append(event) if event.kind == "permission_decided" else None)
        call = asyncio.create_task(app.call("post", {"text": "hello \u202e"}))
        row = await waiting_question()
        said = await answer(row)
        result = await call
    assert (row["tool"], row["args"], row["can_try"]) == ("post", {"text": "hello \u202e"}, False)
    assert "\u202e" not in row["text"]
    assert (said["ok"], said["by"]) == (True, "ada")
    assert result.output == "posted hello \u202e"
    assert [each.by for each in approver.withdrawn] == ["ada"]
    assert [(each.data["by"], each.data["question"]) for each in decided] == [("ada", row["id"])]


async def test_an_answer_to_something_else_than_waits_is_refused(tmp_path: Path) -> None:
    async with Surehand(tmp_path, tools=[post], approver=Waiting()) as app:
        call = asyncio.create_task(app.call("post", {"text": "one"}))
        row = await waiting_question()
        said = await answer(row | {"digest": "0" * 64})
        assert "not what was shown" in said["error"]
        assert "no longer waiting" in (await answer(row | {"id": "question_1"}))["error"]
        assert not call.done()
        await answer(row, kind="no", reason="use the other one")
        result = await call
    assert result.error is not None
    assert "use the other one" in result.error.message


async def test_the_second_answer_is_told_who_gave_the_first(tmp_path: Path) -> None:
    async with Surehand(tmp_path, tools=[post], approver=Waiting()) as app:
        call = asyncio.create_task(app.call("post", {"text": "one"}))
        row = await waiting_question()
        await answer(row)
        await call
        late = await answer(row, kind="no")
    assert "by ada: once" in late["error"]
    assert late["answered"]["answer"] == "once"


async def test_the_approver_may_still_be_the_first(tmp_path: Path) -> None:
    free = asyncio.Event()

    async def wait(question: Question) -> str:
        await free.wait()
        return "once"

    async with Surehand(tmp_path, tools=[post], approver=wait) as app:
        call = asyncio.create_task(app.call("post", {"text": "one"}))
        row = await waiting_question()
        free.set()
        assert (await call).ok
        late = await answer(row)
    assert "by Callback: once" in late["error"]


async def test_where_nobody_is_to_ask_a_question_waits_for_one_who_follows_and_answers(tmp_path: Path) -> None:
    async with follow_sessions(answers=True), Surehand(tmp_path, tools=[post]) as app:
        call = asyncio.create_task(app.call("post", {"text": "one"}))
        await answer(await waiting_question())
        assert (await call).ok


async def test_an_approver_that_can_ask_nobody_gives_way_to_one_who_answers(tmp_path: Path) -> None:
    async def silent_client(question: Question) -> Answer:
        return Answer("no", "this client cannot be asked", unasked=True)

    async with Surehand(tmp_path, tools=[post], approver=silent_client) as app:
        alone = await app.call("post", {"text": "one"})
        async with follow_sessions(answers=True) as events:
            assert (await anext(aiter(events)))["kind"] == "hello"
            call = asyncio.create_task(app.call("post", {"text": "two"}))
            await answer(await waiting_question())
            assert (await call).ok
    assert alone.error is not None
    assert "cannot be asked" in alone.error.message


async def test_whoever_only_follows_is_nobody_to_ask(tmp_path: Path) -> None:
    async with follow_sessions(), Surehand(tmp_path, tools=[post]) as app:
        result = await app.call("post", {"text": "one"})
    assert result.error is not None
    assert "nobody can be asked here" in result.error.message


async def test_when_the_last_one_leaves_who_answers_what_waited_for_them_is_a_no(tmp_path: Path) -> None:
    async with Surehand(tmp_path, tools=[post]) as app:
        async with follow_sessions(answers=True) as events:
            assert (await anext(aiter(events)))["kind"] == "hello"
            call = asyncio.create_task(app.call("post", {"text": "one"}))
            await waiting_question()
        result = await call
    assert result.error is not None
    assert "the console was closed" in result.error.message


async def test_a_rule_is_changed_before_it_is_kept_and_a_wrong_one_is_refused(tmp_path: Path) -> None:
    async with Surehand(tmp_path, approver=Waiting()) as app:
        call = asyncio.create_task(app.call("Bash", {"command": "touch one"}))
        row = await waiting_question()
        assert "Bash" in (await answer(row, kind="always", rule="Bash("))["error"]
        assert "no rule" in (await answer(row, kind="session", rule=" "))["error"]
        assert (await answer(row, kind="always", rule="Bash(touch:*)"))["ok"]
        assert (await call).ok
        assert (await app.call("Bash", {"command": "touch two"})).ok
    assert 'allow = "Bash(touch:*)"' in Path(locations.user_settings()).read_text()


async def test_changed_arguments_are_judged_anew(tmp_path: Path) -> None:
    async with Surehand(tmp_path, approver=Waiting()) as app:
        call = asyncio.create_task(app.call("Bash", {"command": "touch one"}))
        first = await waiting_question()
        assert "object" in (await answer(first, args=["touch two"]))["error"]
        await answer(first, args={"command": "touch two"})
        second = await waiting_question(lambda row: row["id"] != first["id"])
        assert second["args"] == {"command": "touch two"}
        await answer(second)
        assert (await call).ok
    assert not (tmp_path / "one").exists()
    assert (tmp_path / "two").exists()


async def test_a_command_is_tried_on_a_copy_and_exactly_that_is_applied(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    async with Surehand(tmp_path, approver=Waiting()) as app:
        call = asyncio.create_task(app.call("Bash", {"command": "date +%N >> a.txt"}))
        row = await waiting_question()
        request = {"want": "try", "id": row["id"], "digest": row["digest"]}
        stale = await ask(request, 60.0)
        tried = await ask(request, 60.0)
        assert (tmp_path / "a.txt").read_text() == "one\n"
        assert "a newer dry run was made since" in (await answer(row, dry_run=stale["dry_run"]))["error"]
        assert (await answer(row, dry_run=tried["dry_run"]))["ok"]
        assert (await call).ok
    added = next(line[1:] for line in tried["diff"].splitlines() if line.startswith("+") and line[1:].isdigit())
    assert (tmp_path / "a.txt").read_text() == f"one\n{added}\n"


async def test_what_is_being_tried_ends_with_the_question(tmp_path: Path) -> None:
    async with Surehand(tmp_path, approver=Waiting()) as app:
        call = asyncio.create_task(app.call("Bash", {"command": "sleep 60; touch one"}))
        row = await waiting_question()
        trying = asyncio.ensure_future(ask({"want": "try", "id": row["id"], "digest": row["digest"]}, 60.0))
        await asyncio.sleep(0)
        await answer(row, kind="no")
        result = await call
        said = await trying
    assert result.error is not None
    assert "error" in said


async def test_a_call_that_is_cancelled_takes_its_question_away(tmp_path: Path) -> None:
    withdrawn: list[Any] = []
    async with Surehand(tmp_path, tools=[post], approver=Waiting()) as app:
        app.bus.subscribe(lambda event: withdrawn.append(event) if event.kind == "permission_withdrawn" else None)
        call = asyncio.create_task(app.call("post", {"text": "one"}))
        row = await waiting_question()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert (await ask({"want": "questions"}))["questions"] == []
    assert [each.data["question"] for each in withdrawn] == [row["id"]]


async def test_a_question_in_the_mailbox_is_answered_there_too(tmp_path: Path) -> None:
    async with Surehand(tmp_path, tools=[post]) as app:
        box = Mailbox(app.session.state_dir or "")
        app.approver = First(Waiting(), box)
        call = asyncio.create_task(app.call("post", {"text": "one"}))
        await answer(await waiting_question())
        assert (await call).ok
        assert box.pending() == []


async def test_a_running_call_is_stopped_by_the_channel(tmp_path: Path) -> None:
    started: list[str] = []

    @tool(read_only=True)
    async def wait() -> str:
        "Wait."
        await asyncio.Event().wait()
        return ""

    async with Surehand(tmp_path, tools=[wait]) as app:
        app.bus.subscribe(lambda event: started.append(event.call_id) if event.kind == "call_started" else None)
        call = asyncio.create_task(app.call("wait"))
        async with asyncio.timeout(120):
            while not (started and (await ask({"want": "stop_call", "id": started[0]})).get("ok")):
                await asyncio.sleep(0.01)
        result = await call
        again = await ask({"want": "stop_call", "id": started[0]})
    assert result.error is not None
    assert result.error.code == "cancelled"
    assert "no longer running" in again["error"]
