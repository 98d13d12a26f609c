"""Approvals: what is asked, who answers, and that doubt means no."""

from __future__ import annotations

import asyncio
import errno
import os
import pty
import re
import select
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.policy.policy_requests import judge

from surehand import Surehand
from surehand.core.call import ToolCall
from surehand.core.effects import RunCommand, WritePath
from surehand.core.errors import StateError, SurehandError
from surehand.core.tool import Preview
from surehand.policy import rule_files
from surehand.policy.approval import Answer, Callback, First, Mailbox, Nobody, Question, Terminal, ask_approver, digest
from surehand.policy.rule_files import read_rules, remember
from surehand.state import locations

RAW = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e0fff]"
)


def question(tmp_path: Path, command: str = "git commit -m x", **facts: Any) -> Question:
    words = tuple(command.split())
    decision = judge([], tmp_path, RunCommand(words, False), WritePath(str(tmp_path / "a")), tool="Bash")
    args = {"command": command, "timeout": 5}
    values: dict[str, Any] = {"preview": None, "digest": digest("Bash", "1", args, str(tmp_path)), **facts}
    return Question(ToolCall("Bash", args, source="model"), "Bash", decision, **values)


@pytest.mark.spec("ENG-11")
def test_a_question_shows_command_effects_diff_and_origin(tmp_path: Path) -> None:
    asked = question(tmp_path, preview=Preview("", diff="--- a\n+++ b\n-old\n+new"), origins=("web", "workspace"))
    text = asked.text()
    for part in (
        "$ git commit -m x",
        '"timeout": 5',
        f"write {tmp_path}/a",
        "+new",
        "Asked by: model",
        "Text from web",
    ):
        assert part in text


def test_what_the_diff_shows_is_not_shown_twice(tmp_path: Path) -> None:
    decision = judge([], tmp_path, WritePath(str(tmp_path / "a")), tool="Write")
    call = ToolCall("Write", {"file_path": "a", "content": "one\ntwo\n" * 30})
    with_diff = Question(call, "Write", decision, Preview("", diff="+one"), "d").text()
    assert "(240 characters, see the changes below)" in with_diff
    assert "file_path: a" in with_diff
    assert "two" in Question(call, "Write", decision, None, "d").text()


def test_no_code_point_reaches_the_prompt_raw(tmp_path: Path) -> None:
    hidden = [chr(code) for code in range(sys.maxunicode + 1) if RAW.match(chr(code))]
    text = "".join(hidden)
    decision = judge([], tmp_path, RunCommand(("echo", text), False), WritePath(f"{tmp_path}/{text[1:]}"), tool="Bash")
    for args in ({"command": f"echo {text}"}, {"file_path": text, text: [text]}):
        asked = Question(
            ToolCall("Bash", args), f"Bash{text}", decision, Preview(text, diff=text), "d", origins=(text,)
        )
        assert not RAW.search(asked.text())


def test_a_carriage_return_or_line_separator_starts_no_new_line(tmp_path: Path) -> None:
    text = question(tmp_path, "echo harmless\r\u2028$ rm").text()
    assert "\\r" in text
    assert "\\u2028" in text


def test_a_long_argument_is_cut_and_says_so(tmp_path: Path) -> None:
    assert "characters not shown" in question(tmp_path, "echo " + "x" * 100_000).text()


def test_the_digest_changes_with_anything_that_runs() -> None:
    base = digest("Bash", "1", {"command": "ls"}, "/a")
    others = [
        digest("Bash2", "1", {"command": "ls"}, "/a"),
        digest("Bash", "2", {"command": "ls"}, "/a"),
        digest("Bash", "1", {"command": "ls "}, "/a"),
        digest("Bash", "1", {"command": "ls", "timeout": 1}, "/a"),
        digest("Bash", "1", {"command": "ls"}, "/b"),
    ]
    assert len({base, *others}) == 6
    long = "x" * 3_000_000
    texts = [{"a": long}, {"a": long[1:]}, {"a": f"{long[1:]}y"}, {"b": long}, {"a": long, "b": ""}, {"a": ""}]
    assert len({digest("Write", "1", each, "/") for each in texts}) == 6
    assert digest("T", "1", {"a": 1, "b": 2}, "/") == digest("T", "1", {"b": 2, "a": 1}, "/")


async def test_nobody_to_ask_means_no(tmp_path: Path) -> None:
    assert (await Nobody().ask(question(tmp_path))).kind == "no"


async def test_an_approver_that_hangs_or_dies_means_no(tmp_path: Path) -> None:
    async def hangs(asked: Question) -> Answer:
        await asyncio.Event().wait()
        return Answer("once")

    def dies(asked: Question) -> Answer:
        raise RuntimeError("gone")

    hung = await ask_approver(Callback(hangs), question(tmp_path), 0.05)
    assert (hung.kind, hung.reason) == ("no", "nobody answered within 0.05 s")
    died = await ask_approver(Callback(dies), question(tmp_path), 5)
    assert died.kind == "no"
    assert "gone" in died.reason


async def test_a_callback_may_answer_plainly_and_nonsense_means_no(tmp_path: Path) -> None:
    asked = question(tmp_path)
    assert (await Callback(lambda _: True).ask(asked)).kind == "once"
    assert (await Callback(lambda _: False).ask(asked)).kind == "no"
    assert (await Callback(lambda _: "session").ask(asked)).kind == "session"
    assert (await Callback(lambda _: "sure").ask(asked)).kind == "no"


async def test_an_application_takes_a_function_for_its_approver(tmp_path: Path) -> None:
    from surehand.testing import scratch_app

    asked: list[str] = []

    def decide(question: Question) -> bool:
        asked.append(question.tool)
        return question.call.args["file_path"] == "yes.txt"

    async with scratch_app(tmp_path, approver=decide) as app:
        assert (await app.call("Write", {"file_path": "yes.txt", "content": "x"})).ok
        assert not (await app.call("Write", {"file_path": "no.txt", "content": "x"})).ok
        app.approver = lambda _: Answer("no", "not today")
        refused = await app.call("Write", {"file_path": "yes/no.txt", "content": "x"})
    assert asked == ["Write", "Write"]
    assert refused.error is not None
    assert "not today" in refused.error.message


@pytest.mark.parametrize("word", ["deny", "yes", "", None])
async def test_an_answer_of_another_word_never_lets_a_call_run(tmp_path: Path, word: Any) -> None:
    from surehand.testing import scratch_app

    def decide(question: Question) -> Answer:
        return Answer(word)

    class Whoever:
        async def ask(self, question: Question) -> Any:
            return word

    for approver in (decide, Whoever()):
        async with scratch_app(tmp_path, approver=approver) as app:
            refused = await app.call("Write", {"file_path": "new.txt", "content": "x"})
        assert refused.error is not None
        assert refused.error.code == "permission_denied"
        assert repr(word) in refused.error.message
    assert not (tmp_path / "new.txt").exists()


def test_what_cannot_answer_is_no_approver() -> None:
    from surehand import Surehand

    with pytest.raises(TypeError, match="an approver is a function of the question"):
        Surehand(approver="yes")  # pyright: ignore


async def test_the_first_answer_of_several_counts(tmp_path: Path) -> None:
    async def never(asked: Question) -> Answer:
        await asyncio.Event().wait()
        return Answer("once")

    answer = await First(Callback(never), Callback(lambda _: "session")).ask(question(tmp_path))
    assert answer.kind == "session"
    assert (await First().ask(question(tmp_path))).kind == "no"


async def typed(tmp_path: Path, *lines: str, asked: Question | None = None, early: str = "") -> tuple[Answer, str]:
    """Answer a question on a real pseudo-terminal and return (answer, what was shown)."""
    controller, terminal = pty.openpty()
    waiting, shown = list(lines), ""

    def look() -> None:
        nonlocal shown
        part = os.read(controller, 65536).decode()
        shown += part
        if waiting and part.endswith((" > ", "[y/N] ")):
            os.write(controller, f"{waiting.pop(0)}\n".encode())

    asyncio.get_running_loop().add_reader(controller, look)
    try:
        os.write(controller, early.encode())
        answer = await asyncio.wait_for(Terminal(terminal, terminal).ask(asked or question(tmp_path)), 60)
        while select.select([controller], [], [], 0)[0]:
            look()
    finally:
        asyncio.get_running_loop().remove_reader(controller)
        os.close(controller)
        os.close(terminal)
    return answer, shown


async def test_who_does_not_save_a_rule_is_told_what_holds(tmp_path: Path) -> None:
    answer, shown = await typed(tmp_path, "a", "n")
    assert answer.kind == "once"
    assert "Nothing was saved; it is allowed this once." in shown


async def test_what_was_typed_before_the_question_is_no_answer_to_it(tmp_path: Path) -> None:
    refused, _ = await typed(tmp_path, "n", early="y\nyes\n")
    assert refused.kind == "no"


@pytest.mark.spec("PERM-3")
async def test_the_terminal_shows_what_will_run_and_takes_each_answer(tmp_path: Path) -> None:
    once, shown = await typed(tmp_path, "y")
    assert once.kind == "once"
    assert "$ git commit -m x" in shown
    assert "Bash(git commit:*)" in shown
    session, _ = await typed(tmp_path, "s")
    assert (session.kind, session.rule) == ("session", f"Bash(git commit:*)\nEdit({tmp_path}/a)")
    refused, _ = await typed(tmp_path, "n use make instead")
    assert (refused.kind, refused.reason) == ("no", "use make instead")
    empty, _ = await typed(tmp_path, "")
    assert empty.kind == "no"
    confused, _ = await typed(tmp_path, "what?", "y")
    assert confused.kind == "once"


async def test_a_question_mark_explains_every_choice_there_is_and_asks_again(tmp_path: Path) -> None:
    answer, shown = await typed(tmp_path, "?", "n")
    assert answer.kind == "no"
    assert "[?] help" in shown
    for choice in ("  y  let it run", "  s  let it run, and whatever Bash(git commit:*)", "  a  ", "  n  refuse it"):
        assert choice in shown
    assert "  d  " not in shown
    assert "  r  " not in shown


def test_what_is_explained_is_what_may_be_answered() -> None:
    from surehand.policy.terminal import choices, explain_answers

    for rules in (None, "Bash(make)"):
        for can_try, seen in ((False, False), (True, False), (True, True)):
            offered = re.findall(r"\[(\w)\]", choices(rules, can_try, seen=seen))
            assert sorted(re.findall(r"^  (\w)  ", explain_answers(rules, can_try, seen=seen), re.M)) == sorted(offered)


async def test_always_shows_the_rule_before_it_is_saved(tmp_path: Path) -> None:
    saved, shown = await typed(tmp_path, "a", "y")
    assert saved.kind == "always"
    assert "allow Bash(git commit:*)" in shown
    thought_better, _ = await typed(tmp_path, "a", "n")
    assert thought_better.kind == "once"


async def test_a_closed_terminal_means_no(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(writing)
    out = os.open(os.devnull, os.O_WRONLY)
    try:
        assert (await Terminal(reading, out).ask(question(tmp_path))).kind == "no"
    finally:
        os.close(reading)
        os.close(out)


ANSWERING = """
import sys, time
from surehand.policy.mailbox import Mailbox
from surehand.policy.approval import Answer
box = Mailbox(sys.argv[1])
while not (found := box.pending()):
    time.sleep(0.02)
box.answer(found[0]["id"], Answer(sys.argv[2], "because"), by="another process")
"""


@pytest.mark.parametrize("kind", ["once", "no"])
async def test_a_waiting_question_is_answered_from_another_process(tmp_path: Path, kind: str) -> None:
    state = str(tmp_path / "state")
    process = subprocess.Popen([sys.executable, "-c", ANSWERING, state, kind])
    answer = await Mailbox(state, timeout_s=30).ask(question(tmp_path))
    assert await asyncio.to_thread(process.wait, 10) == 0
    assert (answer.kind, answer.reason) == (kind, "because")


async def test_a_waiting_question_has_a_time_limit(tmp_path: Path) -> None:
    box = Mailbox(str(tmp_path / "state"), timeout_s=0.1, poll_s=0.01)
    answer = await box.ask(question(tmp_path))
    assert answer.kind == "no"
    assert box.pending() == []


async def test_a_question_survives_its_asker_as_unanswered(tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    box = Mailbox(state, timeout_s=60)
    waiting = asyncio.create_task(box.ask(question(tmp_path)))
    while not box.pending():
        await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)

    [kept] = Mailbox(state).pending()
    assert kept["waiting"] is False
    with pytest.raises(StateError, match="nobody waits"):
        Mailbox(state).answer(kept["id"], Answer("once"))

    again = asyncio.create_task(box.ask(question(tmp_path)))
    while not any(row["waiting"] for row in box.pending()):
        await asyncio.sleep(0.01)
    [taken_up] = box.pending()
    assert taken_up["id"] == kept["id"]
    box.answer(kept["id"], Answer("once"))
    assert (await again).kind == "once"
    with pytest.raises(StateError, match="answered already"):
        box.answer(kept["id"], Answer("no"))


async def test_unknown_questions_and_broken_stores_are_refused_clearly(tmp_path: Path) -> None:
    box = Mailbox(str(tmp_path / "state"))
    with pytest.raises(StateError, match="no question"):
        box.answer("ask_x", Answer("once"))
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "approvals.sqlite3").write_text("this is no database" * 100)
    answer = await ask_approver(box, question(tmp_path), 5)
    assert answer.kind == "no"


async def test_what_waits_in_the_mailbox_holds_no_secret(tmp_path: Path) -> None:
    box = Mailbox(str(tmp_path / "state"), timeout_s=0.05, poll_s=0.01)
    await box.ask(question(tmp_path, "curl --token SECRETCANARY x"))
    for file in (tmp_path / "state").iterdir():
        assert b"SECRETCANARY" not in file.read_bytes()


async def test_an_answer_that_was_accepted_at_the_last_moment_counts(tmp_path: Path) -> None:
    put_up = asyncio.Event()

    def tell(name: str, asked: Question) -> None:
        put_up.set()

    box = Mailbox(str(tmp_path / "state"), timeout_s=1.0, poll_s=1.2, tell=tell)
    asking = asyncio.create_task(box.ask(question(tmp_path)))
    await put_up.wait()
    (row,) = box.pending()
    box.answer(row["id"], Answer("once"))
    assert (await asking).kind == "once"


async def test_an_answer_after_the_asker_stopped_waiting_is_refused(tmp_path: Path) -> None:
    names: list[str] = []

    def tell(name: str, asked: Question) -> None:
        names.append(name)

    box = Mailbox(str(tmp_path / "state"), timeout_s=0.05, poll_s=0.01, tell=tell)
    assert (await box.ask(question(tmp_path))).kind == "no"
    with pytest.raises(StateError, match=r"is over|nobody waits"):
        box.answer(names[0], Answer("once"))


def test_settings_of_other_editors_keep_their_line_endings_and_their_mark(tmp_path: Path) -> None:
    file = Path(locations.user_settings())
    file.parent.mkdir(parents=True)
    before = '\ufeff# mine\r\n[permissions]\r\ndeny = ["Bash(curl:*)"]'.encode()
    file.write_bytes(before)
    remember("Bash(make:*)")
    after = file.read_bytes()
    assert after.startswith(before + b"\r\n")
    assert after.count(b"\n") == after.count(b"\r\n")
    assert [rule.text for rule in read_rules(str(file), "user")] == ["Bash(curl:*)", "Bash(make:*)"]
    Surehand.sync(tmp_path, keep_state=False).close()


async def test_a_yes_holds_for_the_session_where_always_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: str, data: str, **options: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(rule_files, "write_private", full)
    notes: list[str] = []
    async with Surehand(tmp_path, keep_state=False, approver=lambda asked: Answer("always")) as app:
        app.bus.subscribe(lambda event: notes.append(event.data["message"]) if event.kind == "note" else None)
        done = await app.call("Bash", {"command": "touch x"})
    assert done.ok, done.error
    assert (tmp_path / "x").exists()
    assert any("this session only" in note and "No space left" in note for note in notes)


def test_always_is_added_to_the_users_settings_and_the_rest_stays(tmp_path: Path) -> None:
    file = Path(locations.user_settings())
    file.parent.mkdir(parents=True)
    before = '# mine\n[permissions]\ndeny = ["Bash(curl:*)"]\n'
    file.write_text(before)
    remember('Bash(git commit:*)\nEdit(./a "b")')
    remember("Bash(git commit:*)")
    text = file.read_text()
    assert text.startswith(before)
    rules = tomllib.loads(text)["permissions"]["rules"]
    assert [rule["allow"] for rule in rules] == ["Bash(git commit:*)", 'Edit(./a "b")']
    assert sorted(path.name for path in file.parent.iterdir()) == ["config.toml", "config.toml.lock"]


def test_a_settings_file_that_is_broken_is_left_as_it_is(tmp_path: Path) -> None:
    file = Path(locations.user_settings())
    file.parent.mkdir(parents=True)
    for broken in ("[permissions\n", "permissions = 3\n", "[permissions]\nrules = 3\n"):
        file.write_text(broken)
        with pytest.raises(SurehandError, match="nothing was added"):
            remember("Bash(git commit:*)")
        assert file.read_text() == broken


def test_many_processes_remember_without_losing_a_rule(tmp_path: Path) -> None:
    code = "import sys; from surehand.policy.rule_files import remember; remember(f'Bash(x{sys.argv[1]}:*)')"
    running = [subprocess.Popen([sys.executable, "-c", code, str(number)]) for number in range(6)]
    assert [process.wait(30) for process in running] == [0] * 6
    rules = tomllib.loads(Path(locations.user_settings()).read_text())["permissions"]["rules"]
    assert {rule["allow"] for rule in rules} == {f"Bash(x{number}:*)" for number in range(6)}


async def test_a_command_can_be_tried_from_the_question_before_it_is_answered(tmp_path: Path) -> None:
    from surehand.sandbox.linux.probe import abilities
    from surehand.testing import scratch_app

    if not abilities().enough:
        pytest.skip(f"dry runs are not possible on this system: {abilities().why_not}")
    (tmp_path / "a.txt").write_text("one\n")
    reading, typed = os.pipe()
    shown, writing = os.pipe()
    os.write(typed, b"d\nn not like this\n")
    async with scratch_app(tmp_path, approver=Terminal(reading, writing)) as app:
        refused = await app.call("Bash", {"command": "sed -i s/one/two/ a.txt"})
    text = os.read(shown, 65536).decode()
    for descriptor in (reading, typed, shown, writing):
        os.close(descriptor)
    assert "[d] dry run first" in text
    assert "+two" in text
    assert refused.error is not None
    assert "not like this" in refused.error.message
    assert (tmp_path / "a.txt").read_text() == "one\n"


async def test_settings_may_want_a_class_of_commands_tried_before_every_question(tmp_path: Path) -> None:
    from surehand import Settings
    from surehand.sandbox.linux.probe import abilities
    from surehand.testing import Says, scratch_app

    if not abilities().enough:
        pytest.skip(f"dry runs are not possible on this system: {abilities().why_not}")
    (tmp_path / "a.txt").write_text("one\n")
    settings = Settings.parse({"tools": {"Bash": {"custom": {"try_first": ["silent"]}}}})
    approver = Says("no")
    async with scratch_app(tmp_path, settings=settings, approver=approver) as app:
        await app.call("Bash", {"command": "mv a.txt b.txt"})
        await app.call("Bash", {"command": "make thing"})
    tried, plain = approver.asked
    assert tried.preview is not None
    assert "b.txt" in tried.text()
    assert plain.preview is None
    assert plain.try_first is not None
