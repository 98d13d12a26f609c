"""`surehand sessions`, `ask` and `chat` as a person runs them, on a machine with no model."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.pty_terminal import Terminal


def surehand(*words: str, cwd: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "surehand", *words]
    return subprocess.run(command, cwd=cwd, input=stdin, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize(
    ("question", "tool", "word"),
    [
        ("what time is it", "time.now", "since 1970"),
        ("read README.md lines 1-2", "Read", "first line"),
        ("find TODO in src", "Grep", ">>TODO<<"),
        ("list the python files", "Glob", "src/a.py"),
        ("2+3*4", "calculate", "14.00"),
        ("run `ls`", "Bash", "README.md"),
    ],
)
def test_ask_works_on_a_machine_with_nothing_configured(tmp_path: Path, question: str, tool: str, word: str) -> None:
    (tmp_path / "README.md").write_text("first line\nsecond\nthird\n")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("# TODO\n")
    done = surehand("ask", question, cwd=tmp_path)
    shown = json.loads(done.stdout)
    assert done.returncode == 0
    assert [call["name"] for call in shown["toolCalls"]] == [tool]
    assert word in shown["answer"]
    assert shown["toolError"] is None
    assert shown["sessionContextUpdated"] is True
    assert shown["model"]["provider"] == "offline"


@pytest.mark.spec("ASK-3")
def test_the_planner_says_that_it_is_no_model(tmp_path: Path) -> None:
    shown = json.loads(surehand("ask", "write me a poem", cwd=tmp_path).stdout)
    assert shown["answer"].startswith("I do not understand this. I am the offline planner (no language model)")
    assert shown["toolCalls"] == []
    assert shown["sessionContextUpdated"] is False


def test_ask_without_tools_calls_none(tmp_path: Path) -> None:
    shown = json.loads(surehand("ask", "what time is it", "--with-tools=false", cwd=tmp_path).stdout)
    assert shown["toolCalls"] == []
    assert "this conversation has none" in shown["answer"]
    assert surehand("ask", "x", "--with-tools=perhaps", cwd=tmp_path).returncode == 2


def test_an_allow_list_binds_the_model(tmp_path: Path) -> None:
    shown = json.loads(surehand("ask", "2+2", "--tool-allow=time.now", cwd=tmp_path).stdout)
    assert shown["toolError"] == {
        "tool": "calculate",
        "code": "tool_unavailable",
        "message": "calculate is not among the tools of this session",
    }


def test_the_question_may_come_from_standard_input(tmp_path: Path) -> None:
    assert "4.00" in json.loads(surehand("ask", cwd=tmp_path, stdin="2+2\n").stdout)["answer"]
    assert surehand("ask", cwd=tmp_path).returncode == 2


def test_every_ask_is_kept_and_can_be_listed_shown_forked_and_deleted(tmp_path: Path) -> None:
    name = json.loads(surehand("ask", "2+2", cwd=tmp_path).stdout)["session"]
    listed = json.loads(surehand("sessions", "list", cwd=tmp_path).stdout)
    assert [(row["name"], row["calls"], row["first"]) for row in listed] == [(name, 1, "2+2")]
    assert "calculate" in surehand("sessions", "show", name, cwd=tmp_path).stdout
    assert surehand("sessions", "fork", name, "again", cwd=tmp_path).returncode == 0
    assert surehand("sessions", "fork", name, "again", cwd=tmp_path).returncode == 2
    [spent] = json.loads(surehand("stats", "--models", cwd=tmp_path).stdout)
    assert spent["turns"] == 2  # the call, and the answer: once, though two sessions have them
    assert json.loads(surehand("ask", "3+3", "--session", "again", cwd=tmp_path).stdout)["answer"] == "3+3 = 6.00"
    assert surehand("sessions", "delete", name, cwd=tmp_path).returncode == 0
    assert [row["name"] for row in json.loads(surehand("sessions", "list", cwd=tmp_path).stdout)] == ["again"]
    for bad in ("nowhere", "../x"):
        assert surehand("sessions", "show", bad, cwd=tmp_path).returncode == 2


def test_a_chat_that_cannot_be_kept_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUREHAND_HOME", "/proc/nowhere")  # where not even root can make a folder
    talked = surehand("chat", cwd=tmp_path, stdin="2+2\n")
    assert "a session that is not kept; /help lists the commands" in talked.stdout
    assert "2+2 = 4.00" in talked.stdout


def test_a_person_is_told_how_to_type_a_question(tmp_path: Path) -> None:
    with Terminal("ask", cwd=tmp_path) as terminal:
        terminal.wait_for("Ctrl-D on an empty line sends it")
        terminal.type("2+2\n\x04")
        assert terminal.ended() == 0
        assert "2+2 = 4.00" in terminal.plain


@pytest.mark.parametrize(("typed", "code"), [("\x04", 2), ("\n", 2), ("\x03", 130), ("sk-dummy-123\n", 0)])
def test_a_key_is_typed_unseen_or_not_at_all(tmp_path: Path, typed: str, code: int) -> None:
    with Terminal("auth", "set", "openai", cwd=tmp_path) as terminal:
        terminal.wait_for("(not shown): ")
        terminal.type(typed)
        assert terminal.ended() == code
        assert "sk-dummy" not in terminal.plain
    kept = json.loads(surehand("auth", "status", "openai", cwd=tmp_path).stdout)["openai"]
    assert kept == (None if code else "private file")


def test_a_session_is_resumed_in_a_chat(tmp_path: Path) -> None:
    name = json.loads(surehand("ask", "2+2", cwd=tmp_path).stdout)["session"]
    done = surehand("sessions", "resume", name, cwd=tmp_path, stdin="3+3\n")
    assert done.returncode == 0
    assert f"session {name}, 4 messages so far" in done.stdout
    assert "3+3 = 6.00" in done.stdout
    assert json.loads(surehand("sessions", "list", cwd=tmp_path).stdout)[0]["calls"] == 2
    assert surehand("sessions", "resume", "nowhere", cwd=tmp_path).returncode == 2


def test_a_person_sees_what_the_calls_of_a_session_were_about(tmp_path: Path) -> None:
    for question in ("read nothing.txt", "find TODO"):
        surehand("ask", question, "--session", "s", cwd=tmp_path)
    with Terminal("sessions", "show", "s", cwd=tmp_path) as terminal:
        assert terminal.ended() == 0
        assert re.search(
            r"\d\d:\d\d:\d\d  Read nothing.txt  .*\n +execution_error: File does not exist", terminal.plain
        )
        assert re.search(r"\d\d:\d\d:\d\d  Grep TODO", terminal.plain)


def test_a_limit_of_cost_without_prices_is_refused_and_leaves_no_session(tmp_path: Path) -> None:
    done = surehand("ask", "2+2", "--max-cost", "1", cwd=tmp_path)
    assert done.returncode == 2
    assert "input_price and output_price" in json.loads(done.stdout)["error"]["message"]
    assert json.loads(surehand("sessions", "list", cwd=tmp_path).stdout) == []


def test_a_word_of_an_allow_list_that_is_no_tool_is_told(tmp_path: Path) -> None:
    done = surehand("ask", "2+2", "--tool-allow", "calculate,calcullate,fs.*,nope.*", cwd=tmp_path)
    assert "there is no tool 'calcullate', 'nope.*'" in done.stderr
    assert json.loads(done.stdout)["answer"] == "2+2 = 4.00"


def test_what_the_planner_found_is_shown_once(tmp_path: Path) -> None:
    with Terminal("ask", "say it once", cwd=tmp_path) as terminal:
        assert terminal.ended() == 0
        assert "● tools.echo it once" in terminal.plain
        assert terminal.plain.count("it once\n") == 1


def test_chat_answers_and_takes_commands(tmp_path: Path) -> None:
    typed = "2+\\\n2\n/tools\n/mode plan\n/mode yolo\n/stats\n/model\n/log\n/help\n/nope\n/exit\n"
    done = surehand("chat", cwd=tmp_path, stdin=typed)
    assert done.returncode == 0
    for word in ("4.00", "ToolSearch", "mode: plan", "calculate  1", "No changes yet", "/undo"):
        assert word in done.stdout
    assert "no command /nope" in done.stderr
    assert "no mode 'yolo'" in done.stderr


def test_chat_ends_with_its_input(tmp_path: Path) -> None:
    assert surehand("chat", cwd=tmp_path, stdin="what time is it").returncode == 0


def test_interrupting_ask_leaves_what_was_done(tmp_path: Path) -> None:
    import signal
    import time

    command = [sys.executable, "-m", "surehand", "ask", "run `sleep 60`", "--session", "s", "--allow", "Bash"]
    running = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    journal = ""
    for _ in range(400):
        found = list(Path(os.environ["SUREHAND_HOME"]).rglob("s.jsonl"))
        journal = found[0].read_text() if found else ""
        if '"call_started"' in journal:
            break
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    assert running.wait(60) == 130
    assert '"call_started"' in journal
    shown = json.loads(surehand("ask", "2+2", "--session", "s", cwd=tmp_path).stdout)
    assert shown["answer"] == "2+2 = 4.00"


DAMAGE = b"""\x00\xff\xfe{{{
{"kind": 5}
[1, 2]
{"kind": "message", "data": {"message": {"role": "user"}}}
{"kind": "message", "data": {"message": 7}}
{"kind": "message", "data": [1]}
{"kind": "call_finished", "data": {"result": null}}
{"kind": "call_started"}
{"kind": "task_changed", "data": {"task": {"id": [1], "status": 7}}}
{"kind": "task_changed", "data": {"task": {"id": "task_1", "status": "done", "title": "a", "created": "x"}}}
{"kind": "file_read", "data": {"path": 1}}
{"kind": "permission_decided", "data": {"answer": "session", "rules": 5}}
{"kind": "message", "data":"""


def test_a_damaged_session_is_shown_listed_and_taken_up_as_far_as_it_can_be_read(tmp_path: Path) -> None:
    surehand("ask", "2+2", "--session", "s", cwd=tmp_path)
    (journal,) = Path(os.environ["SUREHAND_HOME"]).rglob("s.jsonl")
    journal.write_bytes(journal.read_bytes() + DAMAGE + b"[" * 100_000)
    for words in (("sessions", "list"), ("sessions", "show", "s"), ("ps", "--all"), ("sessions", "fork", "s", "t")):
        done = surehand(*words, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, ""), words
    assert json.loads(surehand("sessions", "list", cwd=tmp_path).stdout)[0]["first"] == "2+2"
    assert json.loads(surehand("ask", "3+3", "--session", "s", cwd=tmp_path).stdout)["answer"] == "3+3 = 6.00"


async def test_a_journal_damaged_anywhere_still_opens(tmp_path: Path) -> None:
    import random

    from surehand import Surehand
    from surehand.testing import ScriptedModel

    model = ScriptedModel([("time.now", {}), ("TaskCreate", {"title": "later"})], "now", "then")
    async with Surehand(tmp_path, session="s") as app:
        loop = app.conversation(model)
        await loop.ask("one")
        await loop.ask("two")
    (journal,) = Path(os.environ["SUREHAND_HOME"]).rglob("s.jsonl")
    whole = journal.read_bytes()
    for seed in range(100):
        chance = random.Random(seed)
        data = bytearray(whole)
        for _ in range(chance.randrange(1, 20)):
            at = chance.randrange(len(data))
            data[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(4))
        journal.write_bytes(data)
        async with Surehand(tmp_path, session="s", plugins=False) as app:
            again = ScriptedModel("still here")
            assert (await app.conversation(again).ask("are you there?")).text == "still here"
        for before, message in zip(again.requests[0].messages, again.requests[0].messages[1:], strict=False):
            assert (message.role == "tool") == bool(before.calls)
            assert len(message.results) == len(before.calls)
