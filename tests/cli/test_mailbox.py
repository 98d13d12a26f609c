"""Approvals from another process: `--approvals mailbox` waits, `surehand approvals` answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.providers.model_stub import Stub
from tests.pty_terminal import Terminal

from surehand.state import local_rpc

SUREHAND = [sys.executable, "-m", "surehand"]


def approvals(*words: str, cwd: Path) -> Any:
    done = subprocess.run([*SUREHAND, "approvals", *words], cwd=cwd, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout)


def waiting(cwd: Path) -> dict[str, Any]:
    """Return the one question that waits, once it does."""
    deadline = time.monotonic() + 300
    while not (rows := approvals("list", cwd=cwd)[1]):
        assert time.monotonic() < deadline, "no question came"
        time.sleep(0.02)
    (row,) = rows
    return row


def ask(stub: Stub, cwd: Path, *words: str, **env: str) -> subprocess.Popen[str]:
    command = [*SUREHAND, "ask", "go", *words]
    streams: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=cwd, env=stub.environment | env, text=True, **streams)


def script(stub: Stub, **args: object) -> None:
    stub.script = [{"calls": [("a", "Write", json.dumps(args))]}, {"text": "so be it"}]


def test_without_a_terminal_a_question_is_refused_and_the_way_out_is_named(tmp_path: Path, stub: Stub) -> None:
    script(stub, file_path="a.txt", content="one\n")
    said, _ = ask(stub, tmp_path).communicate(timeout=300)
    error = json.loads(said)["toolError"]
    assert error["code"] == "permission_denied"
    assert "--approvals mailbox" in error["message"]
    assert not (tmp_path / "a.txt").exists()


def test_an_ask_waits_and_is_allowed_from_another_folder_with_its_diff_shown(tmp_path: Path, stub: Stub) -> None:
    work, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    work.mkdir()
    elsewhere.mkdir()
    script(stub, file_path="a.txt", content="one\n")
    process = ask(stub, work, "--approvals", "mailbox")
    row = waiting(elsewhere)
    assert (row["tool"], row["cwd"], row["waiting"]) == ("Write", str(work), True)
    code, shown = approvals("show", row["id"], cwd=elsewhere)
    assert (code, shown["id"]) == (0, row["id"])
    assert "+one" in shown["text"]
    code, said = approvals("allow", row["id"][-6:], cwd=elsewhere)
    assert (code, said["answer"]) == (0, "once")
    answer, told = process.communicate(timeout=300)
    assert json.loads(answer)["answer"] == "so be it"
    assert f"surehand approvals show {row['id']}" in told
    assert (work / "a.txt").read_text() == "one\n"
    assert approvals("list", cwd=work) == (0, [])
    assert approvals("allow", row["id"], cwd=work)[0] == 2


def test_a_refusal_from_another_process_reaches_the_model_with_its_reason(tmp_path: Path, stub: Stub) -> None:
    script(stub, file_path="a.txt", content="one\n")
    process = ask(stub, tmp_path, SUREHAND_PERMISSIONS__APPROVALS="mailbox")
    row = waiting(tmp_path)
    assert approvals("deny", row["id"], "--reason", "not on a Sunday", cwd=tmp_path)[0] == 0
    answer, _ = process.communicate(timeout=300)
    assert "not on a Sunday" in json.loads(answer)["toolError"]["message"]
    assert "not on a Sunday" in str(stub.requests[1]["messages"][-1])
    assert not (tmp_path / "a.txt").exists()


def test_a_question_is_also_found_by_the_name_that_its_session_has_for_it(tmp_path: Path, stub: Stub) -> None:
    """The session lists it a moment before the mailbox does, under a name that somebody may have read by then."""
    script(stub, file_path="a.txt", content="one\n")
    process = ask(stub, tmp_path, "--approvals", "mailbox")
    while not (row := waiting(tmp_path))["id"].startswith("approval"):
        time.sleep(0.02)
    [channel] = local_rpc.session_sockets()
    [question] = (local_rpc.ask(channel, {"want": "questions"}) or {})["questions"]
    assert question["id"] != row["id"]
    assert approvals("show", question["id"], cwd=tmp_path)[1]["id"] == row["id"]
    assert approvals("allow", question["id"], cwd=tmp_path)[0] == 0
    assert process.wait(300) == 0
    assert (tmp_path / "a.txt").read_text() == "one\n"


def test_an_answer_for_the_session_is_not_asked_for_again(tmp_path: Path, stub: Stub) -> None:
    write = ("a", "Write", json.dumps({"file_path": "a.txt", "content": "one\n"}))
    edit = ("b", "Edit", json.dumps({"file_path": "a.txt", "old_string": "one", "new_string": "two"}))
    stub.script = [{"calls": [write]}, {"calls": [edit]}, {"text": "done"}]
    process = ask(stub, tmp_path, "--approvals", "mailbox")
    row = waiting(tmp_path)
    assert approvals("allow", row["id"], "--for", "session", cwd=tmp_path)[0] == 0
    answer, told = process.communicate(timeout=300)
    assert json.loads(answer)["toolError"] is None
    assert told.count("waits for an answer") == 1
    assert (tmp_path / "a.txt").read_text() == "two\n"


def test_nobody_who_answers_in_time_means_no(tmp_path: Path, stub: Stub) -> None:
    script(stub, file_path="a.txt", content="one\n")
    process = ask(stub, tmp_path, "--approvals", "mailbox", SUREHAND_PERMISSIONS__APPROVAL_TIMEOUT="0.3")
    answer, _ = process.communicate(timeout=300)
    assert "nobody answered within 0.3 s" in json.loads(answer)["toolError"]["message"]


@pytest.mark.slow
def test_a_question_whose_process_was_killed_cannot_be_answered(tmp_path: Path, stub: Stub) -> None:
    script(stub, file_path="a.txt", content="one\n")
    process = ask(stub, tmp_path, "--approvals", "mailbox")
    row = waiting(tmp_path)
    process.kill()
    process.communicate(timeout=300)
    deadline = time.monotonic() + 300
    while approvals("list", cwd=tmp_path)[1][0]["waiting"]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    code, said = approvals("allow", row["id"], cwd=tmp_path)
    assert code == 2
    assert "nobody waits" in said["error"]["message"]
    assert not (tmp_path / "a.txt").exists()


async def test_a_served_call_waits_for_a_terminal(tmp_path: Path) -> None:
    import asyncio

    from mcp.client.stdio import stdio_client

    from mcp import Client, StdioServerParameters

    words = ["-m", "surehand", "serve", "--approvals", "mailbox", "--cwd", str(tmp_path)]
    server = StdioServerParameters(command=sys.executable, args=words, env=dict(os.environ))
    async with Client(stdio_client(server), cache=None) as client:
        calling = asyncio.create_task(client.call_tool("Write", {"file_path": "a.txt", "content": "one\n"}))
        row = await asyncio.to_thread(waiting, tmp_path)
        assert row["source"] == "mcp"
        await asyncio.to_thread(approvals, "allow", row["id"], cwd=tmp_path)
        result = await asyncio.wait_for(calling, 120)
        assert not result.is_error
    assert (tmp_path / "a.txt").read_text() == "one\n"


def test_an_invoked_tool_waits_too(tmp_path: Path) -> None:
    args = json.dumps({"file_path": "a.txt", "content": "one\n"})
    command = [*SUREHAND, "tools", "invoke", "Write", "--args", args, "--approvals", "mailbox"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    approvals("allow", waiting(tmp_path)["id"], cwd=tmp_path)
    assert json.loads(process.communicate(timeout=300)[0])["ok"] is True


def test_a_question_on_a_terminal_may_be_answered_from_another(tmp_path: Path, stub: Stub) -> None:
    script(stub, file_path="a.txt", content="one\n")
    words = ("ask", "go", "--approvals", "mailbox")
    with Terminal(*words, cwd=tmp_path, env=stub.environment) as terminal:
        terminal.wait_for("(n and a reason) > ")
        approvals("allow", waiting(tmp_path)["id"], cwd=tmp_path)
        terminal.wait_for("answered elsewhere: once")
        terminal.wait_for("so be it")
        assert terminal.ended() == 0
    script(stub, file_path="b.txt", content="two\n")
    with Terminal(*words, cwd=tmp_path, env=stub.environment) as terminal:
        terminal.wait_for("(n and a reason) > ")
        terminal.type("y\n")
        terminal.wait_for("so be it")
        assert terminal.ended() == 0
    assert not [row for row in approvals("list", cwd=tmp_path)[1] if row["waiting"]]
    assert ((tmp_path / "a.txt").read_text(), (tmp_path / "b.txt").read_text()) == ("one\n", "two\n")
