"""`surehand chat` and `surehand ask` on a real terminal, with a model on loopback that says what a script says."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from tests.providers.model_stub import Stub
from tests.pty_terminal import Terminal

PROMPT = "> "


def call(name: str, **args: object) -> tuple[str, str, str]:
    return f"c_{name}", name, json.dumps(args)


def chat(stub: Stub, cwd: Path, *words: str, **env: str) -> Terminal:
    terminal = Terminal("chat", *words, cwd=cwd, env={**stub.environment, **env})
    terminal.wait_for("Ctrl-D leaves")
    terminal.wait_for(">")
    return terminal


def test_a_change_is_shown_approved_listed_and_undone(tmp_path: Path, stub: Stub) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    edit = call("Edit", file_path="a.txt", old_string="one", new_string="two")
    stub.script = [{"calls": [call("Read", file_path="a.txt")]}, {"calls": [edit]}, {"text": "It says two now."}]
    with chat(stub, tmp_path) as terminal:
        terminal.type("change it\n")
        question = terminal.wait_for("(n and a reason) > ")
        assert "● Read a.txt" in question
        assert "Edit asks for permission" in question
        assert "-one\n+two\n" in question
        terminal.type("y\n")
        after = terminal.wait_for("tokens")
        assert "● Edit a.txt" in after
        assert "+1 -1  (change 1)" in after
        assert "+two" not in after  # the diff was seen with the question
        assert "It says two now.\n" in after
        assert (tmp_path / "a.txt").read_text() == "two\n"
        terminal.type("/log\n")
        assert "Edit  done   ~ a.txt" in terminal.wait_for("session_chat")
        terminal.type("/undo\n")
        terminal.wait_for("Undid change 1")
        assert (tmp_path / "a.txt").read_text() == "one\n"
        terminal.type("/stats\n")
        assert "Edit  1" in terminal.wait_for("tokens: ")
        terminal.type("/exit\n")
        assert terminal.ended() == 0


def test_a_turn_is_rewound_with_its_files_after_a_preview(tmp_path: Path, stub: Stub) -> None:
    write = call("Write", file_path="a.txt", content="two\n")
    stub.script = [{"text": "hello"}, {"calls": [write]}, {"text": "It says two."}, {"text": "Nothing of it."}]
    with chat(stub, tmp_path, "--mode", "accept-edits") as terminal:
        terminal.type("hi\n")
        terminal.wait_for("tokens")
        terminal.type("write it\n")
        terminal.wait_for("It says two.")
        terminal.type("/rewind\n")
        listed = terminal.wait_for("shows what that does")
        assert re.search(r"1 .*hi .*-\n", listed)
        assert re.search(r"2 .*write it .*a\.txt", listed)
        terminal.type("/rewind 2\n")
        assert "-two" in terminal.wait_for("only the one")
        assert (tmp_path / "a.txt").exists()
        terminal.type("/rewind 2 yes\n")
        terminal.wait_for("Rewound turn 2")
        assert not (tmp_path / "a.txt").exists()
        terminal.type("what did I ask?\n")
        terminal.wait_for("Nothing of it.")
        assert "write it" not in json.dumps(stub.requests[-1])
        terminal.type("/exit\n")
        assert terminal.ended() == 0


def test_a_command_that_needs_permission_asks_at_once(tmp_path: Path, stub: Stub) -> None:
    work, outside = tmp_path / "work", tmp_path / "outside.txt"
    work.mkdir()
    stub.script = [{"calls": [call("Write", file_path=str(outside), content="x\n")]}, {"text": "Written."}]
    with chat(stub, work) as terminal:
        terminal.type("go\n")
        terminal.wait_for("(n and a reason) > ")
        terminal.type("y\n")
        terminal.wait_for("tokens")
        terminal.wait_for(PROMPT)
        assert outside.exists()
        terminal.type("/undo\n")
        terminal.wait_for("Undo asks for permission")
        terminal.wait_for("(n and a reason) > ")
        terminal.type("y\n")
        assert "● Undo" not in terminal.wait_for("Undid change"), "the command says itself what came of it"
        assert not outside.exists()
        terminal.wait_for(PROMPT)
        terminal.type("\x04")
        assert terminal.ended() == 0


def test_an_edit_that_needs_no_question_shows_its_diff(tmp_path: Path, stub: Stub) -> None:
    stub.script = [{"calls": [call("Write", file_path="a.txt", content="one\ntwo\n")]}, {"text": "Done."}]
    with chat(stub, tmp_path, "--mode", "accept-edits") as terminal:
        terminal.type("go\n")
        assert "  +one\n  +two\n  +2 -0" in terminal.wait_for("Done.")


def test_what_calls_show_keeps_its_indentation(tmp_path: Path, stub: Stub) -> None:
    (tmp_path / "a.py").write_text("def one():\n    two = 2\n    return two\n")
    edit = call("Edit", file_path="a.py", old_string="= 2", new_string="= 3")
    calls = (call("Read", file_path="a.py"), edit, call("Bash", command="cat a.py"))
    stub.script = [*({"calls": [each]} for each in calls), {"text": "Done."}]
    with Terminal("ask", "go", "--mode", "accept-edits", cwd=tmp_path, env=stub.environment) as terminal:
        shown = terminal.wait_for("Done.")
    assert "\n   def one():\n  -    two = 2\n  +    two = 3\n       return two\n" in shown
    assert "\n  def one():\n      two = 3\n      return two\n" in shown


def test_a_refusal_with_a_reason_reaches_the_model(tmp_path: Path, stub: Stub) -> None:
    stub.script = [{"calls": [call("Write", file_path="a.txt", content="x")]}, {"text": "As you wish."}]
    with chat(stub, tmp_path) as terminal:
        terminal.type("go\n")
        terminal.wait_for("(n and a reason) > ")
        terminal.type("n not that file\n")
        assert "not that file" in terminal.wait_for("As you wish.")
    assert "not that file" in str(stub.requests[1]["messages"][-1])
    assert not (tmp_path / "a.txt").exists()


def test_ctrl_c_stops_a_call_in_the_middle_and_the_chat_goes_on(tmp_path: Path, stub: Stub) -> None:
    stub.script = [{"calls": [call("Bash", command="echo begun; sleep 60")]}, {"text": "Something else."}]
    with chat(stub, tmp_path) as terminal:
        terminal.type("go\n")
        terminal.wait_for("begun")  # the line for what goes on now
        terminal.interrupt()
        terminal.wait_for("stopped; what was done so far is kept")
        terminal.wait_for(PROMPT)
        terminal.type("and now?\n")
        terminal.wait_for("Something else.")
    sent = stub.requests[1]["messages"]
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool", "user"]
    assert "stopped before it ended" in sent[3]["content"]


def test_ctrl_c_stops_an_answer_in_the_middle_and_what_was_said_is_kept(tmp_path: Path, stub: Stub) -> None:
    stub.script = [{"text": "The first half. The second half.", "hold": True}, {"text": "Yes."}]
    with chat(stub, tmp_path) as terminal:
        terminal.type("tell me\n")
        terminal.wait_for("The first half.")
        terminal.interrupt()
        terminal.wait_for("what was done so far is kept")
        terminal.wait_for(PROMPT)
        terminal.type("go on\n")
        terminal.wait_for("Yes.")
    assert "The first half." in stub.requests[1]["messages"][2]["content"]


def test_ctrl_c_at_the_prompt_forgets_the_line_and_ctrl_d_leaves(tmp_path: Path, stub: Stub) -> None:
    stub.script = [{"text": "Answered."}]
    with chat(stub, tmp_path) as terminal:
        terminal.type("half a thou")
        terminal.wait_for("half a thou")
        terminal.interrupt()
        terminal.wait_for("\n")
        terminal.wait_for(PROMPT)
        terminal.interrupt()
        terminal.wait_for("/exit or Ctrl-D leaves")
        terminal.wait_for(PROMPT)
        terminal.type("a whole one\n")
        terminal.wait_for("Answered.")
        terminal.wait_for(PROMPT)
        terminal.type("\x04")
        assert terminal.ended() == 0
    assert stub.requests[0]["messages"][-1]["content"] == "a whole one"


@pytest.mark.parametrize(
    "typed",
    [
        "\x1b[200~one\ntwo\n  three\x1b[201~\r",  # a paste
        "one\x1b\rtwo\x1b\r  three\r",  # Alt-Enter
        "one\\\rtwo\\\r  three\r",
    ],
)
def test_several_lines_are_one_question(tmp_path: Path, stub: Stub, typed: str) -> None:
    stub.script = [{"text": "Three lines."}]
    with chat(stub, tmp_path) as terminal:
        terminal.type(typed)
        terminal.wait_for("Three lines.")
    assert stub.requests[0]["messages"][-1]["content"] == "one\ntwo\n  three"


def test_wide_characters_are_edited_in_a_window_that_shrinks(tmp_path: Path, stub: Stub) -> None:
    stub.script = [{"text": "好."}]
    with chat(stub, tmp_path) as terminal:
        terminal.type("漢字 and a line that is longer than the window will be")
        terminal.wait_for("will be")
        terminal.resize(30, 20)
        terminal.signal(signal.SIGWINCH)
        terminal.type("\x7f\x7f字\n")  # two backspaces
        terminal.wait_for("好.")
    asked = stub.requests[0]["messages"][-1]["content"]
    assert asked == "漢字 and a line that is longer than the window will 字"


def test_what_was_typed_is_there_in_the_next_chat_and_only_the_user_may_read_it(tmp_path: Path, stub: Stub) -> None:
    stub.script = [{"text": "First."}, {"text": "Second."}]
    with chat(stub, tmp_path) as terminal:
        terminal.type("remember this\n")
        terminal.wait_for("First.")
        terminal.wait_for(PROMPT)
        terminal.type("\x04")
        assert terminal.ended() == 0
    history = Path(os.environ["SUREHAND_HOME"]) / "chat_history"
    assert history.stat().st_mode & 0o077 == 0
    with chat(stub, tmp_path) as terminal:
        terminal.type("\x1b[A\n")  # the arrow up
        terminal.wait_for("Second.")
    assert stub.requests[1]["messages"][-1]["content"] == "remember this"


def test_a_long_answer_streams_whole(tmp_path: Path, stub: Stub) -> None:
    lines = [f"line {number} 漢字 " + "x" * (number % 150) for number in range(2000)]
    stub.script = [{"text": "\n".join(lines)}]
    with chat(stub, tmp_path) as terminal:
        terminal.type("tell me everything\n")
        shown = terminal.wait_for("tokens")
    assert all(line in shown for line in lines)


def test_an_answer_is_shown_as_markdown_while_it_streams(tmp_path: Path, stub: Stub) -> None:
    stub.script = [{"text": "# Title\n\n- one **bold** word and `code`\n\n```py\nx = 2 ** 3\n```\nplain *end*\n"}]
    with chat(stub, tmp_path) as terminal:
        terminal.type("go\n")
        shown = terminal.wait_for("tokens")
        assert "# Title\n\n• one bold word and code\n\n```py\nx = 2 ** 3\n```\nplain *end*\n" in shown
        assert "\x1b[1mbold\x1b[0m" in terminal.shown
        assert "\x1b[36mcode\x1b[0m" in terminal.shown


def test_without_colour_nothing_is_coloured(tmp_path: Path, stub: Stub) -> None:
    stub.script = [{"calls": [call("Write", file_path="a.txt", content="x\n")]}, {"text": "Done."}]
    with chat(stub, tmp_path, "--mode", "accept-edits", NO_COLOR="1") as terminal:
        terminal.type("go\n")
        terminal.wait_for("Done.")
        assert not re.search(r"\x1b\[(?!0?m)[0-9;]+m", terminal.shown)


def test_what_runs_in_the_background_asks_when_the_user_is_ready(tmp_path: Path, stub: Stub) -> None:
    agent = call("Agent", prompt="write a file", description="writer", mode="background")
    write = call("Write", file_path="a.txt", content="x")

    def answer(body: dict[str, object]) -> dict[str, object]:
        said = str(body["messages"])
        if "write a file" in said and "go" not in said:
            return {"text": "Written."} if "c_Write" in said else {"calls": [write]}
        return {"text": "It works."} if "c_Agent" in said else {"calls": [agent]}

    stub.answer = answer
    with chat(stub, tmp_path) as terminal:
        terminal.type("go\n")
        terminal.wait_for("It works.")
        terminal.wait_for("asks for permission")
        if "press Enter" in terminal.wait_for("\n"):
            terminal.type("\n")
        terminal.wait_for("(n and a reason) > ")
        terminal.type("y\n")
        assert terminal.eventually(lambda: (tmp_path / "a.txt").exists())
        assert (tmp_path / "a.txt").read_text() == "x"


def running() -> str:
    """Return the command lines of every process there is."""
    return subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout


def test_a_terminal_that_is_closed_ends_the_chat_and_what_it_started(tmp_path: Path, stub: Stub) -> None:
    sleeping = f"sleep 86{os.getpid()}"
    stub.script = [{"calls": [call("Bash", command=sleeping, run_in_background=True)]}, {}]
    with chat(stub, tmp_path, "--allow", "Bash") as terminal:
        terminal.type("go\n")
        terminal.wait_for("bg_task_1")
        terminal.wait_for(PROMPT)
        assert terminal.eventually(lambda: sleeping in running())
        terminal.signal(signal.SIGHUP)
        assert terminal.ended() == 128 + signal.SIGHUP
        assert terminal.eventually(lambda: sleeping not in running())


def test_a_chat_told_to_end_in_the_middle_of_a_call_ends_it_first(tmp_path: Path, stub: Stub) -> None:
    sleeping = f"sleep 87{os.getpid()}"
    stub.script = [{"calls": [call("Bash", command=f"echo begun; {sleeping}")]}]
    with chat(stub, tmp_path, "--allow", "Bash") as terminal:
        terminal.type("go\n")
        terminal.wait_for("begun")
        terminal.signal(signal.SIGTERM)
        assert terminal.ended() == 128 + signal.SIGTERM
        assert terminal.eventually(lambda: sleeping not in running())
        assert "destroyed" not in terminal.plain
        assert terminal.echoes


def test_an_ask_on_a_terminal_shows_its_calls_and_streams_its_answer(tmp_path: Path, stub: Stub) -> None:
    stub.script = [{"text": "Let me see.", "calls": [call("Glob", pattern="*")]}, {"text": "Nothing here."}]
    with Terminal("ask", "what is here?", cwd=tmp_path, env=stub.environment) as terminal:
        shown = terminal.wait_for("Nothing here.")
        assert terminal.ended() == 0
    assert "Let me see.\n● Glob *" in shown.replace("\n\n", "\n")
    assert "{" not in shown


def test_ctrl_c_in_an_ask_says_how_to_go_on_with_it(tmp_path: Path, stub: Stub) -> None:
    stub.script = [{"calls": [call("Bash", command="echo begun; sleep 60")]}, {"text": "Went on."}]
    with Terminal("ask", "go", cwd=tmp_path, env=stub.environment) as terminal:
        terminal.wait_for("begun")
        terminal.interrupt()
        terminal.wait_for("Go on with: surehand ask --session ")
        session = terminal.wait_for(" ...").split()[0]
        assert terminal.ended() == 130
    with Terminal("ask", "--session", session, "and?", cwd=tmp_path, env=stub.environment) as terminal:
        terminal.wait_for("Went on.")
        assert terminal.ended() == 0
    assert "stopped before it ended" in str(stub.requests[1]["messages"])


def test_the_terminal_shows_what_is_typed_again_after_an_answer(tmp_path: Path, stub: Stub) -> None:
    stub.script = [{"text": "Said."}]
    with Terminal("ask", "go", cwd=tmp_path, env=stub.environment) as terminal:
        terminal.wait_for("Said.")
        assert terminal.ended() == 0
        assert terminal.echoes


def test_the_output_of_a_running_command_is_shown_on_several_lines(tmp_path: Path, stub: Stub) -> None:
    waits = "for n in 1 2 3; do echo line-$n; done; while [ ! -e go ]; do sleep 0.05; done"
    stub.script = [{"calls": [call("Bash", command=waits)]}, {"text": "It ran."}]
    with chat(stub, tmp_path, "--allow", "Bash") as terminal:
        terminal.type("run it\n")
        assert "line-1\n  line-2\n" in terminal.wait_for("line-3")
        (tmp_path / "go").touch()
        terminal.wait_for("It ran.")
        terminal.type("/exit\n")
        assert terminal.ended() == 0


def test_a_chat_goes_on_with_the_latest_session_and_knows_commands_of_files(tmp_path: Path, stub: Stub) -> None:
    folder = Path(os.environ["SUREHAND_HOME"]) / "commands"
    folder.mkdir(parents=True)
    (folder / "greet.md").write_text("Greet $1 kindly, and look at @a.txt.\n")
    (tmp_path / "a.txt").write_text("the text\n")
    stub.script = [{"text": "Hello."}, {"text": "Dear Ann."}]
    with chat(stub, tmp_path) as terminal:
        terminal.type("hi\n")
        terminal.wait_for("tokens")
        terminal.type("/exit\n")
        assert terminal.ended() == 0
    with chat(stub, tmp_path, "--continue") as terminal:
        assert "2 messages so far" in terminal.plain
        terminal.type("/greet Ann\n")
        terminal.wait_for("Dear Ann.")
        terminal.type("/exit\n")
        assert terminal.ended() == 0
    asked = stub.requests[-1]["messages"]
    assert [each["role"] for each in asked] == ["system", "user", "assistant", "user"]
    assert "Greet Ann kindly" in asked[-1]["content"]
    assert "the text" in asked[-1]["content"]
