"""The command line in the hands of a stranger: odd machines, wrong input, closed pipes. No traceback, ever."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from surehand.cli.main import COMMANDS

SUREHAND = [sys.executable, "-m", "surehand"]


def run(
    *words: str, cwd: Path, stdin: bytes | None = b"", env: dict[str, str] | None = None, **more: Any
) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run(
        [*SUREHAND, *words],
        cwd=cwd,
        input=stdin,
        env=os.environ | (env or {}),
        capture_output=True,
        timeout=300,
        check=False,
        **more,
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done


def shell(line: str, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    """Run a line of bash in which `surehand` is this one."""
    script = f'surehand() {{ "{sys.executable}" -m surehand "$@"; }}\n{line}'
    done = subprocess.run(["bash", "-c", script], cwd=cwd, capture_output=True, timeout=300, check=False)
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_help_page(tmp_path: Path, command: str) -> None:
    done = run(command, "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert f"usage: surehand {command}".encode() in done.stdout
    assert b"--cwd DIR" in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_refuses_an_unknown_option_with_code_2(tmp_path: Path, command: str) -> None:
    done = run(command, "--no-such-option", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == b""
    assert done.stderr


@pytest.mark.parametrize("words", [("tools", "invoke"), ("policy", "check"), ("mcp", "add"), ("approvals", "deny")])
def test_the_help_of_a_sub_command_says_what_it_does_and_what_works_everywhere(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    above = run(words[0], "--help", cwd=tmp_path).stdout.decode()
    about = next(line.split(maxsplit=1)[1] for line in above.splitlines() if line.startswith(f"    {words[1]} "))
    shown = run(*words, "--help", cwd=tmp_path).stdout.decode()
    assert f"\n{about[0].upper()}{about[1:]}" in shown
    assert "--cwd DIR" in shown


@pytest.mark.parametrize(
    ("words", "who", "said"),
    [
        (("tools", "invoke", "Read", "--dryrun"), "tools invoke", "--dryrun; did you mean --dry-run?"),
        (("log", "--sesion", "x"), "log", "--sesion; did you mean --session?"),
        (("tools", "invoke", "Read", "file_path=a.py"), "tools invoke", "too many words: file_path=a.py"),
        (("undo", "--yes"), "undo", "there is no option --yes"),
        (("tools", "lst"), "tools", "surehand tools has no command 'lst'; did you mean list? (it has list, info,"),
        (("doctor", "web", "extra"), "doctor", "extra"),
        (("tools",), "tools", "missing: list | info | invoke | new"),
        (("--nope", "tools"), None, "there is no option --nope before a command"),
        (("--alow", "Bash", "tools"), None, "there is no option --alow before a command; did you mean '--allow'?"),
        (("version",), None, "there is no command 'version'; did you mean '--version'?"),
    ],
)
def test_a_word_that_makes_no_sense_is_told_by_the_command_it_was_said_to(
    tmp_path: Path, words: tuple[str, ...], who: str | None, said: str
) -> None:
    done = run(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, b"")
    assert said in done.stderr.decode()
    if who is not None:
        assert f"usage: surehand {who} [-h]" in done.stderr.decode()
        assert f"`surehand {who} --help` says more." in done.stderr.decode()


@pytest.mark.parametrize("columns", [40, 60, 80])
@pytest.mark.parametrize(
    "words", [("--help",), ("audit", "--help"), ("policy", "list"), ("tools", "list"), ("doctor", "model")]
)
def test_pages_fit_the_terminal(tmp_path: Path, words: tuple[str, ...], columns: int) -> None:
    code, shown = on_terminal(*words, cwd=tmp_path, columns=columns)
    assert code == 0
    assert [line for line in shown.splitlines() if len(line) > columns] == []


def test_an_unknown_command_names_the_nearest(tmp_path: Path) -> None:
    done = run("tolls", cwd=tmp_path)
    assert done.returncode == 2
    assert b"did you mean 'tools'" in done.stderr


@pytest.mark.parametrize("words", [("--cwd",), ("--cwd", "/no/such/folder", "tools", "list"), ("--mode", "x", "log")])
def test_wrong_global_options_are_bad_usage(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert run(*words, cwd=tmp_path).returncode == 2


@pytest.mark.parametrize("stream", ["</dev/null", "</dev/null >/dev/null", "<empty", "0<&-"])
def test_a_server_without_a_client_ends(tmp_path: Path, stream: str) -> None:
    (tmp_path / "empty").touch()
    assert shell(f"timeout 30 bash -c 'exec \"{sys.executable}\" -m surehand serve {stream}'", tmp_path).returncode == 0


@pytest.mark.parametrize("stream", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_closed_standard_streams_are_no_reason_to_fail(tmp_path: Path, stream: str) -> None:
    assert shell(f"surehand tools invoke time.now {stream}", tmp_path).returncode == 0


@pytest.mark.parametrize("words", ["</dev/null | cat", "<file | cat", "<&- | cat", "< <(:) >out"])
def test_an_agent_for_editors_says_that_no_editor_can_be_there(tmp_path: Path, words: str) -> None:
    (tmp_path / "file").write_text("{}\n")
    done = shell(f"set -o pipefail; surehand acp {words}", tmp_path)
    assert done.returncode == 2
    assert b"is started by an editor" in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_an_agent_for_editors_refuses_a_model_nobody_has_at_its_start(tmp_path: Path) -> None:
    done = run("acp", "--model", "nope", cwd=tmp_path)
    assert done.returncode == 2
    assert b"no provider has a model 'nope'" in done.stderr
    assert b"anthropic, openai, gemini" in done.stderr


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("missing.json", "cannot be read: No such file or directory"),
        (".", "cannot be read: Is a directory"),
        ("half.json", "is not JSON: "),
        ("list.json", "is not a JSON Schema"),
    ],
)
def test_a_schema_that_cannot_be_used_is_told_in_words(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "half.json").write_text("{")
    (tmp_path / "list.json").write_text("[]")
    done = run("ask", "--schema", name, "hello", cwd=tmp_path)
    assert done.returncode == 2
    assert f"--schema {name} {said}" in done.stderr.decode()
    assert b"Errno" not in done.stderr


def test_arguments_from_a_closed_standard_input_are_none(tmp_path: Path) -> None:
    done = shell("surehand tools invoke time.now --args - 0<&-", tmp_path)
    assert json.loads(done.stdout)["ok"] is True


@pytest.mark.parametrize("command", ["tools list", "policy list", "--help", "completion bash"])
def test_a_reader_that_goes_away_is_no_error(tmp_path: Path, command: str) -> None:
    done = shell(f"set -o pipefail; surehand {command} | head -c 3", tmp_path)
    assert done.stderr == b""
    assert len(done.stdout) == 3


def test_a_command_that_has_ended_has_written_all_it_printed_and_did(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("line\n" * 1500)
    done = shell('surehand tools invoke Read --args \'{"file_path": "long.txt"}\' | cat', tmp_path)
    assert json.loads(done.stdout)["output"].count("line") == 1500
    listed = run("audit", "show", "--json", cwd=tmp_path)
    assert b"long.txt" in listed.stdout
    assert run("tools", "invoke", "Read", "--args", '{"file_path": "none.txt"}', cwd=tmp_path).returncode == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("command", ["tools list", "tools invoke time.now"])
def test_a_full_disk_is_told(tmp_path: Path, command: str) -> None:
    done = shell(f"surehand {command} > /dev/full", tmp_path)
    assert done.returncode == 1
    assert b"No space left on device" in done.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("--version", 0),
        ("--help", 0),
        ("tools invoke --help", 0),
        ("completion bash", 0),
        ("tools list --cwd /", 0),
        ("tools list", 2),
        ("doctor", 2),
    ],
)
def test_a_folder_that_is_gone(tmp_path: Path, words: str, code: int) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    done = shell(f"cd {gone} && rmdir {gone} && surehand {words}", tmp_path)
    assert done.returncode == code
    assert (b"name one with --cwd" in done.stderr) is (code == 2)


# -- state and settings ------------------------------------------------------------------------------------------------


def nowhere(tmp_path: Path) -> dict[str, str]:
    """Return an environment whose state folder cannot be made: a file stands in its place."""
    (tmp_path / "file").touch()
    return {"SUREHAND_HOME": str(tmp_path / "file")}


@pytest.mark.parametrize("words", [("tools", "list"), ("tools", "invoke", "time.now"), ("log",), ("config", "show")])
def test_what_needs_no_state_works_without_a_place_for_it(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = run(*words, cwd=tmp_path, env=nowhere(tmp_path))
    assert done.returncode == 0
    assert b"Errno" not in done.stderr


def test_a_warning_is_told_once(tmp_path: Path) -> None:
    done = run("mcp", "list", cwd=tmp_path, env=nowhere(tmp_path))
    assert done.stderr.count(b"calls are not audited") == 1


@pytest.mark.parametrize(("place", "hinted"), [("{tmp}/file", True), ("{tmp}/state", False)])
def test_where_state_lives_is_said_only_where_that_is_the_trouble(tmp_path: Path, place: str, hinted: bool) -> None:
    (tmp_path / "file").touch()
    (tmp_path / ".surehand").touch()  # stands where the tool's folder would be made
    home = place.format(tmp=tmp_path)
    words = ("trust", "--yes") if hinted else ("tools", "new", "thing")
    done = run(*words, cwd=tmp_path, env={"SUREHAND_HOME": home})
    assert done.returncode == 1
    assert (b"config path" in done.stderr) is hinted


def test_a_question_is_answered_without_a_place_to_keep_it(tmp_path: Path) -> None:
    done = run("ask", "what time is it", cwd=tmp_path, env=nowhere(tmp_path))
    assert done.returncode == 0
    assert json.loads(done.stdout)["answer"]
    assert b"not kept" in done.stderr


@pytest.mark.parametrize("words", [("tools", "invoke", "time.now", "--session", "s"), ("trust", "--yes")])
def test_what_needs_state_says_which_folder_cannot_be_written(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = run(*words, cwd=tmp_path, env=nowhere(tmp_path))
    assert done.returncode != 0
    failure = json.loads(done.stdout)
    assert failure["ok"] is False
    assert str(tmp_path / "file") in failure["error"]["message"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = ", "not valid TOML"),
        ("[permisions]\nallow = []", "did you mean 'permissions'"),
        ('[engine]\ntimeout = "soon"', "config.toml:2: engine.timeout"),
        ('[permissions]\nallow = "Bash"', "a list"),
        ('[permissions]\nallow = ["Bash((("]', "config.toml:2"),
    ],
)
def test_wrong_settings_are_told_with_their_place(tmp_path: Path, text: str, said: str) -> None:
    home = tmp_path / "state"
    home.mkdir()
    (home / "config.toml").write_text(text)
    for words in (("tools", "invoke", "time.now"), ("tools", "list")):
        done = run(*words, cwd=tmp_path, env={"SUREHAND_HOME": str(home)})
        assert done.returncode == 2
        failure = json.loads(done.stdout)
        assert failure["error"]["code"] == "invalid_args"
        assert said in failure["error"]["message"]


@pytest.mark.parametrize(
    "words",
    [
        ("--allow", "Bash((("),
        ("--session", "../x"),
    ],
)
def test_invoke_prints_one_result_whatever_is_wrong(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = run("tools", "invoke", "time.now", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert {"ok", "data", "output", "error", "meta"} <= set(json.loads(done.stdout))


@pytest.mark.parametrize(
    "words",
    [
        ("diff", "99"),
        ("stats", "Nope"),
        ("replay", "no-such-file"),
        ("policy", "replay", "no-such-file"),
        ("policy", "check", "--batch", "no-such-file"),
        ("sessions", "show", "nope"),
        ("approvals", "allow", "nope"),
    ],
)
def test_a_failure_is_json_on_standard_output_for_programs(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = run(*words, cwd=tmp_path)
    assert done.returncode in (1, 2)
    assert json.loads(done.stdout)["error"]["message"]
    assert b"Errno" not in done.stdout


def test_info_knows_every_name_of_a_tool(tmp_path: Path) -> None:
    for name in ("calculate", "mcp__calculator__calculate"):
        assert json.loads(run("tools", "info", name, cwd=tmp_path).stdout)["name"] == "calculate"
    assert json.loads(run("tools", "info", "FileRead", cwd=tmp_path).stdout)["name"] == "Read"


def test_a_rule_with_a_misspelt_verdict_is_refused(tmp_path: Path) -> None:
    check = ("policy", "check", "--tool", "Bash", "--args", '{"command": "ls"}', "--rule")
    assert run(*check, "dney Bash(ls:*)", cwd=tmp_path).returncode == 2
    assert json.loads(run(*check, "deny Bash(ls:*)", cwd=tmp_path).stdout)["decision"] == "deny"


# -- input and output of any kind --------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [b"{", b"[1]", b'"x"', b"nul", b"\xff\xfe\x00", b"[" * 100_000, b'{"a":' * 100_000])
def test_arguments_that_are_no_object_are_invalid(tmp_path: Path, text: bytes) -> None:
    done = run("tools", "invoke", "tools.echo", "--args", "-", cwd=tmp_path, stdin=text)
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["code"] == "invalid_args"


@pytest.mark.parametrize("words", [("policy", "check", "--batch", "-"), ("shell", "parse", "--batch", "-")])
def test_a_batch_answers_every_line_whatever_it_is(tmp_path: Path, words: tuple[str, ...]) -> None:
    lines = [b'{"command": "ls", "tool": "Read", "args": {"file_path": "a"}}', b"no json", b"\xff\xfe", b"[]", b"5"]
    done = run(*words, cwd=tmp_path, stdin=b"\n".join(lines), env={"LC_ALL": "C.UTF-8"})
    assert done.returncode == 0
    assert len([json.loads(line) for line in done.stdout.splitlines()]) == len(lines)


@pytest.mark.parametrize("locale", ["C", "POSIX", "C.UTF-8", "de_DE.ISO-8859-1"])
def test_json_is_whole_in_every_locale(tmp_path: Path, locale: str) -> None:
    text = json.dumps({"text": "世界 🙂 é"}, ensure_ascii=False)
    for more in ({}, {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "latin-1"}):
        done = run(
            *("tools", "invoke", "tools.echo", "--args", "-"),
            cwd=tmp_path,
            stdin=text.encode(),
            env={"LC_ALL": locale, **more},
        )
        assert json.loads(done.stdout)["output"] == "世界 🙂 é"


def on_terminal(
    *words: str, cwd: Path, typed: Mapping[bytes, bytes] | None = None, columns: int = 80
) -> tuple[int, str]:
    """Run a command on a pseudo-terminal; return its exit code and what was shown.

    `typed` says what to type when a text is shown; each is typed once.
    """
    answers = dict(typed or {})
    leader, follower = pty.openpty()
    termios.tcsetwinsize(follower, (24, columns))
    process = subprocess.Popen(
        [*SUREHAND, *words],
        cwd=cwd,
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env={name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")},
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(follower)
    shown = b""
    try:
        while part := os.read(leader, 65536):
            shown += part
            for asked in [asked for asked in answers if asked in shown]:
                os.write(leader, answers.pop(asked))
    except OSError:
        pass  # Linux says so when the last process has closed the other end
    code = process.wait(timeout=300)
    os.close(leader)
    assert b"Traceback" not in shown
    return code, re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()).replace("\r\n", "\n")


def test_a_person_sees_text_and_errors_once(tmp_path: Path) -> None:
    code, shown = on_terminal("tools", "invoke", "Read", "--args", '{"file_path": "nope"}', cwd=tmp_path)
    assert code == 1
    assert shown.startswith("error: File does not exist")
    assert "{" not in shown
    code, shown = on_terminal("diff", "99", cwd=tmp_path)
    assert (code, shown.count("there are no changes yet") + shown.count("there is no change 99")) == (1, 1)


def test_a_time_out_is_told_once(tmp_path: Path) -> None:
    words = ("tools", "invoke", "Bash", "--args", '{"command": "sleep 9"}', "--timeout", "0.3", "--allow", "Bash")
    code, shown = on_terminal(*words, cwd=tmp_path)
    assert code == 5
    assert "ERROR" not in shown


def test_a_person_is_asked_and_may_say_no(tmp_path: Path) -> None:
    args = json.dumps({"file_path": "a.txt", "content": "hi\n"})
    typed = {b"no (n and a reason) >": b"n too risky\n"}
    code, shown = on_terminal("tools", "invoke", "Write", "--args", args, cwd=tmp_path, typed=typed)
    assert code == 4
    assert "too risky (permission_denied)" in shown
    assert "Write asks for permission" in shown
    assert "+hi" in shown
    assert not (tmp_path / "a.txt").exists()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 0, "would ask first: it changes {path} (not with --allow 'Edit({path})')"),
        (("--allow", "Write"), 0, "would run without asking: rule Write (command line) allows it"),
        (("--mode", "plan"), 4, "error: Write was not permitted: "),
    ],
)
def test_a_dry_run_says_what_would_be_decided_about_the_real_call(
    tmp_path: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    args = json.dumps({"file_path": "a.txt", "content": "hi\n"})
    found, shown = on_terminal("tools", "invoke", "Write", "--args", args, "--dry-run", *words, cwd=tmp_path)
    assert found == code
    assert said.format(path=tmp_path / "a.txt") in shown
    done = run("tools", "invoke", "Write", "--args", args, "--dry-run", *words, cwd=tmp_path)
    result = json.loads(done.stdout)
    verdict = result["data"]["verdict"]["decision"] if result["ok"] else result["error"]["details"]["verdict"]
    assert verdict == {"would ask": "ask", "would run": "allow", "error: Wr": "deny"}[said[:9]]


def test_ctrl_c_at_the_prompt_of_a_chat_does_not_leave_it(tmp_path: Path) -> None:
    typed = {b"> ": b"\x03", b"/exit or Ctrl-D leaves": b"what time is it\n", b"ms since 1970)": b"/exit\n"}
    code, shown = on_terminal("chat", cwd=tmp_path, typed=typed)
    assert code == 0
    assert "ms since 1970)" in shown


def test_an_interrupted_call_is_cancelled(tmp_path: Path) -> None:
    words = ("tools", "invoke", "Bash", "--args", '{"command": "echo begun > begun; sleep 60"}', "--allow", "Bash")
    process = subprocess.Popen([*SUREHAND, *words], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while not (tmp_path / "begun").exists():
        assert process.poll() is None
        os.sched_yield()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert json.loads(out)["error"]["code"] == "cancelled"
    assert b"Traceback" not in err


@pytest.mark.parametrize("words", [("--max-turns", "0"), ("--max-seconds", "-1"), ("--max-cost", "nan")])
def test_limits_of_a_question_are_numbers_over_nothing(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert run("ask", "what time is it", *words, cwd=tmp_path).returncode == 2


@pytest.mark.parametrize(
    "words",
    [
        ("log", "--limit", "-1"),
        ("audit", "show", "--limit", "-1"),
        ("sessions", "show", "s", "-n", "x"),
        ("undo", "--last", "0"),
        ("cluster", "open", "--count", "0"),
    ],
)
def test_a_number_that_makes_no_sense_is_refused_by_name(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = run(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert re.search(rf"{words[-2]}.*'{words[-1]}' is not a whole number", done.stderr.decode())


@pytest.mark.parametrize("words", [("demo", "."), ("policy", "check"), ("doctor", "nothing")])
def test_wrong_words_are_invalid_arguments_for_programs_too(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "file").touch()
    done = run(*words, "--json", cwd=tmp_path)
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (2, "invalid_args")


def test_a_model_that_cannot_be_had_leaves_the_form_of_the_answer(tmp_path: Path) -> None:
    done = run("ask", "hi", "--model", "openai/gpt", cwd=tmp_path)
    assert done.returncode == 1
    keys = {"answer", "toolCalls", "toolResults", "toolError", "sessionContextUpdated", "usage", "session"}
    assert keys <= set(json.loads(done.stdout))


def test_a_recording_that_cannot_be_written_is_a_result_too(tmp_path: Path) -> None:
    done = run("tools", "invoke", "time.now", "--record", "no/such/folder/file", cwd=tmp_path)
    assert done.returncode == 1
    assert "no/such/folder/file" in json.loads(done.stdout)["error"]["message"]


def test_the_diff_of_a_tried_command_is_a_diff(tmp_path: Path) -> None:
    done = run("tools", "invoke", "Bash", "--args", '{"command": "echo x > q"}', "--dry-run", cwd=tmp_path)
    result = json.loads(done.stdout)
    if not result["ok"]:
        pytest.skip(result["error"]["message"])
    assert result["data"]["diff"].startswith("--- ")
    assert "Dry run on a copy" in result["output"]
    assert not (tmp_path / "q").exists()


def test_a_file_cannot_steer_the_terminal_it_is_shown_on(tmp_path: Path) -> None:
    import shlex

    (tmp_path / "a.txt").write_text("\x1b]0;owned\x07\x1b[31mred\n")
    invoke = [sys.executable, "-m", "surehand", "tools", "invoke", "Read", "--args", '{"file_path": "a.txt"}']
    done = subprocess.run(
        ["script", "-qec", shlex.join(invoke), "/dev/null"], cwd=tmp_path, capture_output=True, timeout=300, check=False
    )
    assert b"\x1b]0;owned" not in done.stdout
    assert b"red" in done.stdout
