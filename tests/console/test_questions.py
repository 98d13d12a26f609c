"""Questions of other sessions, listed, tried and answered through the API."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.console.served import Served, serve_console

from surehand import Surehand, tool
from surehand.testing import ScriptedModel

pytestmark = pytest.mark.spec("CON-1", "PERM-3")
Row = dict[str, Any]

ASKING = """
import asyncio, sys
from surehand import Surehand

async def main():
    async with Surehand(sys.argv[1], session="away") as app:
        result = await app.call("Bash", {"command": "echo two >> a.txt"}, source="model")
        print(result.ok, result.output)

asyncio.run(main())
"""


async def waiting(served: Served, count: int = 1) -> list[Row]:
    async with asyncio.timeout(60):
        while True:
            found = (await served.get("/api/questions"))["questions"]
            if len(found) >= count:
                return found
            await asyncio.sleep(0.02)


def shown(row: Row, **answer: Any) -> Row:
    return {"session_id": row["root"], "digest": row["digest"], **answer}


async def test_a_question_of_another_process_is_tried_answered_and_undone(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    async with serve_console() as served:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", ASKING, str(tmp_path), stdout=asyncio.subprocess.PIPE
        )
        (row,) = await waiting(served)
        tried = await served.post(f"/api/questions/{row['id']}/try", shown(row))
        before = (tmp_path / "a.txt").read_text()
        said = await served.post(
            f"/api/questions/{row['id']}/answer", shown(row, kind="once", dry_run=tried["dry_run"])
        )
        output, _ = await process.communicate()
        late = await served.client.post(f"/api/questions/{row['id']}/answer", json=shown(row, kind="no"))
    assert (row["tool"], row["source"], row["arguments"]) == ("Bash", "model", "  $ echo two >> a.txt")
    assert "+two" in tried["diff"]
    assert before == "one\n"
    assert (tmp_path / "a.txt").read_text() == "one\ntwo\n"
    assert said["by"].endswith("in the console")
    assert output.startswith(b"True")
    assert late.status_code in (404, 409)


async def test_an_answer_that_comes_second_says_who_was_first(tmp_path: Path) -> None:
    @tool
    async def post(text: str) -> str:
        "Post."
        return text

    async with serve_console() as served, Surehand(tmp_path, tools=[post]) as app:
        call = asyncio.create_task(app.call("post", {"text": "one"}))
        (row,) = await waiting(served)
        await served.post(f"/api/questions/{row['id']}/answer", shown(row, kind="no", reason="not now"))
        result = await call
        second = await served.post(f"/api/questions/{row['id']}/answer", shown(row, kind="once"), status=409)
        assert (await served.get("/api/questions"))["questions"] == []
    assert result.error is not None
    assert "not now" in result.error.message
    assert second["answered"]["answer"] == "no"
    assert "in the console" in second["answered"]["by"]


async def test_a_wrong_digest_an_unknown_question_and_a_bad_rule_are_refused_in_words(tmp_path: Path) -> None:
    async with serve_console() as served, Surehand(tmp_path) as app:
        call = asyncio.create_task(app.call("Bash", {"command": "touch one"}))
        (row,) = await waiting(served)
        path = f"/api/questions/{row['id']}/answer"
        wrong = [
            (path, shown(row | {"digest": "no"}, kind="once"), 409),
            (path, shown(row | {"root": "session_none"}, kind="once"), 404),
            (path, shown(row, kind="perhaps"), 409),
            (path, shown(row, kind="always", rule="Bash("), 409),
            (path, {"kind": "once"}, 400),
            ("/api/questions/question_0/answer", shown(row, kind="once"), 409),
        ]
        for where, body, status in wrong:
            assert (await served.post(where, body, status=status))["error"]
        assert not call.done()
        await served.post(path, shown(row, kind="once"))
        assert (await call).ok


async def test_a_question_that_waited_before_the_console_started_is_listed(tmp_path: Path) -> None:
    async def wait(question: Any) -> bool:
        await asyncio.Event().wait()
        return False

    async with Surehand(tmp_path, approver=wait) as app:
        asked = asyncio.Event()
        app.bus.subscribe(lambda event: asked.set() if event.kind == "permission_asked" else None)
        call = asyncio.create_task(app.call("Bash", {"command": "touch one"}))
        await asked.wait()
        async with serve_console() as served:
            (row,) = await waiting(served)
            await served.post(f"/api/questions/{row['id']}/answer", shown(row, kind="once"))
            assert (await call).ok


async def test_a_call_is_shown_whole_while_its_session_runs_and_from_the_audit_after(tmp_path: Path) -> None:
    (tmp_path / "page<img src=x>.txt").write_text("xxxxxxxxx\n" * 500)
    async with serve_console() as served:
        async with Surehand(tmp_path) as app:
            await served.until(lambda feed: bool(feed.sessions))
            result = await app.call("Read", {"file_path": "page<img src=x>.txt"})
            await served.until(lambda feed: any(each["state"] == "ok" for each in feed.calls.values()))
            id = result.meta["call_id"]
            whole = await served.get(f"/api/calls/{id}")
        await served.until(lambda feed: not feed.sessions)
        recorded = await served.get(f"/api/calls/{id}")
        assert (await served.client.get("/api/calls/call_none")).status_code == 404
    assert whole["whole"]
    assert len(whole["output"]) > 5000
    assert whole["judged"]["decision"] == "allow"
    assert recorded["args"] == {"file_path": "page<img src=x>.txt"}
    assert "whole" not in recorded


async def test_a_running_call_is_stopped(tmp_path: Path) -> None:
    @tool(read_only=True)
    async def wait() -> str:
        "Wait."
        await asyncio.Event().wait()
        return ""

    async with serve_console() as served, Surehand(tmp_path, tools=[wait]) as app:
        await served.until(lambda feed: bool(feed.sessions))
        call = asyncio.create_task(app.call("wait"))
        await served.until(lambda feed: any(each["state"] == "running" for each in feed.calls.values()))
        id = next(iter(served.console.feed.calls))
        async with asyncio.timeout(120):
            while (await served.client.post(f"/api/calls/{id}/stop", json={})).status_code != 200:
                await asyncio.sleep(0.01)
        result = await call
        await served.until(lambda feed: feed.calls[id]["state"] == "cancelled")
        assert (await served.client.post(f"/api/calls/{id}/stop", json={})).status_code == 409
    assert result.error is not None
    assert result.error.code == "cancelled"


async def test_the_calls_of_a_sub_agent_stand_below_the_call_that_started_it(tmp_path: Path) -> None:
    async with serve_console() as served, Surehand(tmp_path, session="tree", approver=lambda question: True) as app:
        await served.until(lambda feed: bool(feed.sessions))
        agent = {"description": "look", "prompt": "look around"}
        model = ScriptedModel([("Agent", agent)], [("Glob", {"pattern": "*"})], "found nothing", "done")
        await app.conversation(model).ask("go")
        await served.until(lambda feed: len([each for each in feed.calls.values() if each["state"] == "ok"]) == 2)
        calls = {each["tool"]: each for each in served.console.feed.calls.values()}
    assert calls["Glob"]["parent"] == calls["Agent"]["call_id"]
    assert calls["Glob"]["root"] == calls["Agent"]["session_id"]


async def test_a_call_that_waits_for_a_console_says_so_and_is_answered_from_a_terminal(tmp_path: Path) -> None:
    async def surehand(*words: str) -> Any:
        command = [sys.executable, "-m", "surehand", *words]
        running = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, stdout=asyncio.subprocess.PIPE)
        return json.loads((await running.communicate())[0])

    (tmp_path / "a.txt").write_text("one\n")
    command = [sys.executable, "-m", "surehand", "tools", "invoke", "Bash", "--args", '{"command": "rm a.txt"}']
    pipe = asyncio.subprocess.PIPE
    pipes: Any = {"stdin": asyncio.subprocess.DEVNULL, "stdout": pipe, "stderr": pipe}
    async with serve_console() as served, asyncio.timeout(300):
        process = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, **pipes)
        (row,) = await waiting(served)
        assert process.stderr is not None
        told = (await process.stderr.readline()).decode()
        listed = await surehand("approvals", "list")
        said = await surehand("approvals", "allow", row["id"])
        output, rest = await process.communicate()
    assert "Bash waits for an answer in the console" in told
    assert f"surehand approvals show {row['id']}" in told
    assert [(each["id"], each["tool"], each["waiting"]) for each in listed] == [(row["id"], "Bash", True)]
    assert said["answer"] == "once"
    assert json.loads(output)["ok"], rest
    assert not (tmp_path / "a.txt").exists()
