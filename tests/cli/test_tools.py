"""`surehand tools`, as a person or a script runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.pty_terminal import Terminal


def surehand(*words: str, cwd: Path, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "surehand", *words],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=300,
        check=False,
    )


def invoked(name: str, args: Any, cwd: Path, *more: str) -> tuple[int, dict[str, Any]]:
    text = args if isinstance(args, str) else json.dumps(args)
    done = surehand("tools", "invoke", name, "--args", text, "--json", *more, cwd=cwd)
    return done.returncode, json.loads(done.stdout)


def test_the_version_and_the_help_are_printed(tmp_path: Path) -> None:
    assert surehand("--version", cwd=tmp_path).stdout.startswith("surehand ")
    assert "tools" in surehand("--help", cwd=tmp_path).stdout
    assert surehand(cwd=tmp_path).returncode == 0


def test_list_gives_name_description_and_schema_of_every_tool(tmp_path: Path) -> None:
    rows = json.loads(surehand("tools", "list", cwd=tmp_path).stdout)
    for row in rows:
        assert row["name"]
        assert row["description"]
        assert row["inputSchema"]["type"] == "object"
        assert row["state"] == "registered"
    names = [row["name"] for row in rows]
    for name in ("time.now", "tools.echo", "shell.pwd", "fs.list_dir", "fs.read_file", "Read", "Write", "Edit", "Bash"):
        assert name in names
    assert next(row for row in rows if row["name"] == "calculate")["module"] == "calculator"


def test_list_takes_an_allow_list_with_globs(tmp_path: Path) -> None:
    rows = json.loads(surehand("tools", "list", "--tool-allow", "fs.*,FileRead", cwd=tmp_path).stdout)
    assert [row["name"] for row in rows] == ["Read", "fs.list_dir", "fs.read_file"]


def test_a_tool_switched_off_in_the_settings_is_shown_so(tmp_path: Path) -> None:
    done = surehand("tools", "list", cwd=tmp_path, SUREHAND_TOOLS__Bash__ENABLED="false")
    assert next(row for row in json.loads(done.stdout) if row["name"] == "Bash")["state"] == "disabled"


def test_info_shows_one_tool_by_name_or_alias(tmp_path: Path) -> None:
    shown = json.loads(surehand("tools", "info", "FileRead", cwd=tmp_path).stdout)
    assert shown["name"] == "Read"
    assert shown["read_only"] is True
    done = surehand("tools", "info", "Raed", cwd=tmp_path)
    assert done.returncode == 3
    assert "Read" in json.loads(done.stdout)["error"]["hint"]


@pytest.mark.spec("CLI-1")
def test_invoke_prints_exactly_one_result(tmp_path: Path) -> None:
    code, result = invoked("tools.echo", {"text": "héllo\n世界"}, tmp_path)
    assert code == 0
    assert result["ok"] is True
    assert result["output"] == "héllo\n世界"
    assert set(result) == {"ok", "data", "output", "content", "error", "undo", "meta"}


def test_the_time_is_told_in_both_forms(tmp_path: Path) -> None:
    _, result = invoked("time.now", {}, tmp_path)
    assert isinstance(result["data"]["timestamp"], int)
    assert result["data"]["iso"].endswith(("Z", "+00:00"))


def test_the_working_directory_follows_cwd_before_and_after_the_command(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    after = surehand("tools", "invoke", "shell.pwd", "--cwd", "sub", cwd=tmp_path)
    before = surehand("--cwd=sub", "tools", "invoke", "shell.pwd", cwd=tmp_path)
    for done in (after, before):
        assert json.loads(done.stdout)["output"] == str((tmp_path / "sub").resolve())


def test_arguments_can_come_from_standard_input(tmp_path: Path) -> None:
    done = surehand("tools", "invoke", "tools.echo", "--args", "-", cwd=tmp_path, stdin='{"text": "piped"}')
    assert json.loads(done.stdout)["output"] == "piped"


@pytest.mark.spec("CLI-1")
@pytest.mark.parametrize(
    ("name", "args", "code", "error"),
    [
        ("tools.echo", {}, 2, "invalid_args"),
        ("tools.echo", '{"text": "a",}', 2, "invalid_args"),
        ("tools.echo", "[1]", 2, "invalid_args"),
        ("tools.ecko", {}, 3, "tool_not_found"),
        ("fs.read_file", {"path": "nowhere.txt"}, 1, None),
        ("Write", {"file_path": "new.txt", "content": "x"}, 4, "permission_denied"),
        ("Bash", {"command": "touch new.txt"}, 4, "permission_denied"),
    ],
)
def test_every_failure_has_its_exit_code(tmp_path: Path, name: str, args: Any, code: int, error: str | None) -> None:
    exit_code, result = invoked(name, args, tmp_path)
    assert exit_code == code
    assert result["ok"] is False
    assert error is None or result["error"]["code"] == error
    assert not (tmp_path / "new.txt").exists()


def test_broken_json_shows_the_position(tmp_path: Path) -> None:
    _, result = invoked("tools.echo", '{"text": oops}', tmp_path)
    assert "line 1, column 10" in result["error"]["message"]
    *_, shown, pointer = result["error"]["message"].splitlines()
    assert shown[pointer.index("^") :] == "oops}"


def test_a_rule_on_the_command_line_permits(tmp_path: Path) -> None:
    args = {"file_path": "new.txt", "content": "x"}
    code, _ = invoked("Write", args, tmp_path, "--allow", "Write")
    assert code == 0
    assert (tmp_path / "new.txt").read_text() == "x"


def test_a_mode_on_the_command_line_permits(tmp_path: Path) -> None:
    code, _ = invoked("Write", {"file_path": "new.txt", "content": "x"}, tmp_path, "--mode", "accept-edits")
    assert code == 0
    done = surehand("tools", "invoke", "time.now", "--mode", "yolo", cwd=tmp_path)
    assert done.returncode == 2
    assert "plan" in done.stderr


def test_a_timeout_on_the_command_line_is_in_seconds(tmp_path: Path) -> None:
    code, result = invoked("Bash", {"command": "sleep 30"}, tmp_path, "--allow", "Bash", "--timeout", "0.3")
    assert (code, result["error"]["code"]) == (5, "timeout")
    assert surehand("tools", "invoke", "time.now", "--timeout", "0", cwd=tmp_path).returncode == 2


def test_a_dry_run_shows_the_diff_and_changes_nothing(tmp_path: Path) -> None:
    code, result = invoked("Write", {"file_path": "new.txt", "content": "line\n"}, tmp_path, "--dry-run")
    assert code == 0
    assert "+line" in result["output"]
    assert list(tmp_path.iterdir()) == []


def test_a_named_session_remembers_what_was_read_between_processes(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    edit = {"file_path": "a.txt", "old_string": "one", "new_string": "two"}
    code, result = invoked("Edit", edit, tmp_path, "--session", "s", "--mode", "accept-edits")
    assert (code, result["error"]["details"]["number"]) == (1, 6)
    assert invoked("Read", {"file_path": "a.txt"}, tmp_path, "--session", "s")[0] == 0
    assert invoked("Edit", edit, tmp_path, "--session", "s", "--mode", "accept-edits")[0] == 0
    assert (tmp_path / "a.txt").read_text() == "two\n"


def test_nothing_is_written_into_the_workspace(tmp_path: Path) -> None:
    invoked("time.now", {}, tmp_path, "--session", "s")
    assert list(tmp_path.iterdir()) == []


def test_bad_usage_says_what_to_do_next(tmp_path: Path) -> None:
    done = surehand("tolls", cwd=tmp_path)
    assert done.returncode == 2
    assert "'tools'" in done.stderr
    assert surehand("--cwd", "nowhere", "tools", "list", cwd=tmp_path).returncode == 2
    assert surehand("tools", "invoke", cwd=tmp_path).returncode == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_names_commands_and_tools(tmp_path: Path, shell: str) -> None:
    script = surehand("completion", shell, cwd=tmp_path).stdout
    assert "invoke" in script
    assert "fs.list_dir" in script
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_the_output_of_a_long_command_is_shown_once_on_a_terminal(tmp_path: Path) -> None:
    command = "for i in 1 2 3; do echo line-$i; sleep 0.7; done"
    words = ("tools", "invoke", "Bash", "--allow", "Bash", "--args", json.dumps({"command": command}))
    with Terminal(*words, cwd=tmp_path) as terminal:
        assert terminal.ended(60) == 0
        lines = [line.rpartition("\x1b[K")[2].strip("\r") for line in terminal.shown.splitlines()]
    assert [line for line in lines if line.startswith("line-")] == ["line-1", "line-2", "line-3"]


@pytest.mark.parametrize("words", [("tools", "list"), ("config", "show"), ("mcp", "list"), ("events",), ("ps",)])
def test_tables_fit_eighty_columns(tmp_path: Path, words: tuple[str, ...]) -> None:
    with Terminal(*words, cwd=tmp_path, columns=80) as terminal:
        terminal.ended(60)
        wide = [line for line in terminal.plain.splitlines() if len(line) > 80]
    assert wide == []


def test_tables_of_a_session_with_long_names_fit_eighty_columns(tmp_path: Path) -> None:
    name = f"{'a_long_name_' * 6}.txt"
    for tool, args in (("Write", {"file_path": name, "content": "x\n"}), ("Bash", {"command": f"cat {name} " * 20})):
        words = ("tools", "invoke", tool, "--args", json.dumps(args), "--mode", "accept-edits", "--session", "s" * 60)
        assert surehand(*words, cwd=tmp_path).returncode in (0, 1, 4)
    for words in (("stats",), ("log",), ("sessions", "list"), ("audit",), ("health",)):
        with Terminal(*words, cwd=tmp_path, columns=80) as terminal:
            terminal.ended(60)
            lines = [line for line in terminal.plain.splitlines() if not line.startswith(("---", "+++"))]
        assert [line for line in lines if len(line) > 80] == [], words
    heads: list[str] = []
    for columns in (80, 120):
        with Terminal("stats", cwd=tmp_path, columns=columns) as terminal:
            assert terminal.ended(60) == 0
            heads += [line for line in terminal.plain.splitlines() if line.startswith("TOOL")]
    narrow, broad = (line.split() for line in heads)
    assert (narrow[:5], broad[:5]) == (
        ["TOOL", "CALLS", "FAILED", "AVERAGE", "P95"],  # with all its columns, times in milliseconds do not fit
        ["TOOL", "CALLS", "FAILED", "AVERAGE", "P50"],
    )


def completed(*words: str, cwd: Path) -> set[str]:
    """Return what bash offers for the last word."""
    script = surehand("completion", "bash", cwd=cwd).stdout
    line = " ".join(f"'{word}'" for word in ("surehand", *words))
    asked = f"COMP_WORDS=({line}); COMP_CWORD={len(words)}; _surehand; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    command = f'surehand() {{ {sys.executable} -m surehand "$@"; }}\n{script}\n{asked}'
    done = subprocess.run(["bash", "-c", command], cwd=cwd, capture_output=True, text=True, timeout=300, check=True)
    return set(done.stdout.split())


@pytest.mark.spec("CLI-4")
def test_completion_offers_options_of_sub_commands_sessions_and_changes(tmp_path: Path) -> None:
    done = surehand(
        "--session",
        "mine",
        "--mode",
        "accept-edits",
        "tools",
        "invoke",
        "Write",
        "--args",
        '{"file_path": "a", "content": "x"}',
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout
    change = json.loads(done.stdout)["undo"]["change_id"]
    assert {"--dry-run", "--args", "--json"} <= completed("tools", "invoke", "Write", "--", cwd=tmp_path)
    assert completed("sessions", "show", "m", cwd=tmp_path) == {"mine"}
    assert completed("tools", "list", "--session", "", cwd=tmp_path) == {"mine"}
    assert change in completed("undo", "", cwd=tmp_path)
    assert completed("tools", "inv", cwd=tmp_path) == {"invoke"}


def test_text_for_people_comes_in_a_pipe_too_when_asked_for(tmp_path: Path) -> None:
    done = surehand("tools", "list", "--text", cwd=tmp_path)
    assert done.stdout.startswith("NAME ")
    assert (
        surehand("--text", "tools", "invoke", "tools.echo", "--args", '{"text": "hi"}', cwd=tmp_path).stdout == "hi\n"
    )


def test_task_tools_take_the_names_other_programs_use_and_say_so(tmp_path: Path) -> None:
    words = ("--session", "s", "tools", "invoke")
    made = json.loads(surehand(*words, "TaskCreate", "--args", '{"subject": "write"}', cwd=tmp_path).stdout)
    assert made["data"]["title"] == "write"
    args = '{"task_id": "task_1", "status": "in_progress"}'
    assert json.loads(surehand(*words, "TaskUpdate", "--args", args, cwd=tmp_path).stdout)["ok"]
    args = '{"taskId": "task_1", "status": "completed"}'
    done = json.loads(surehand(*words, "TaskUpdate", "--args", args, cwd=tmp_path).stdout)
    assert done["data"]["status"] == "done"
    assert done["meta"]["repaired"] == ["taskId was read as id", "status: 'completed' was read as 'done'"]


def test_config_show_says_where_each_value_came_from(tmp_path: Path) -> None:
    done = surehand("config", "show", "--changed", cwd=tmp_path, SUREHAND_ENGINE__TIMEOUT="7")
    assert json.loads(done.stdout) == [{"key": "engine.timeout", "value": 7, "from": "SUREHAND_ENGINE__TIMEOUT"}]
    done = surehand("config", "show", cwd=tmp_path, SUREHAND_ENGINE__TIMEOUT="soon")
    assert done.returncode == 2
    assert "SUREHAND_ENGINE__TIMEOUT" in done.stderr


def own_tool(tmp_path: Path, source: str) -> Path:
    path = tmp_path / ".surehand" / "tools" / "own.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    return path


GREET = "from surehand import tool\n\n@tool(read_only=True)\ndef greet() -> str:\n    'Greet.'\n    return 'hi'\n"


def test_a_file_that_does_not_load_is_told_once(tmp_path: Path) -> None:
    own_tool(tmp_path, "x = (")
    surehand("trust", "--yes", cwd=tmp_path)
    for words in (["tools", "list"], ["tools", "invoke", "time.now"]):
        assert surehand(*words, cwd=tmp_path).stderr.count("was never closed") == 1


def test_tools_of_a_folder_that_was_never_trusted_are_said_to_be_left_out(tmp_path: Path) -> None:
    own_tool(tmp_path, GREET)
    for words in (["tools", "info", "greet"], ["tools", "invoke", "greet"]):
        assert ".surehand/tools was ignored: this folder is not trusted" in surehand(*words, cwd=tmp_path).stderr


def test_a_file_that_changed_and_awaits_trust_is_mentioned(tmp_path: Path) -> None:
    own_tool(tmp_path, GREET)
    surehand("trust", "--yes", cwd=tmp_path)
    assert surehand("tools", "invoke", "greet", cwd=tmp_path).stderr == ""
    own_tool(tmp_path, GREET.replace("hi", "ho"))
    done = surehand("tools", "invoke", "greet", cwd=tmp_path)
    assert done.returncode == 3
    assert ".surehand/tools/own.py" in done.stderr
    assert "surehand trust" in done.stderr


@pytest.mark.spec("REG-10")
def test_tools_of_a_trusted_folder_are_not_deferred(tmp_path: Path) -> None:
    own_tool(tmp_path, GREET)
    surehand("trust", "--yes", cwd=tmp_path)
    rows = {row["name"]: row for row in json.loads(surehand("tools", "list", cwd=tmp_path).stdout)}
    assert (rows["greet"]["deferred"], rows["WebFetch"]["deferred"], rows["Read"]["deferred"]) == (False, True, False)


def test_the_list_of_a_session_shows_what_it_has_activated(tmp_path: Path) -> None:
    invoked("ToolSearch", {"query": "select:WebFetch"}, tmp_path, "--session", "s")
    for words, deferred in ((["--session", "s"], False), (["--session", "other"], True), ([], True)):
        rows = json.loads(surehand("tools", "list", *words, cwd=tmp_path).stdout)
        assert next(row for row in rows if row["name"] == "WebFetch")["deferred"] is deferred


@pytest.mark.parametrize("words", [("tools", "lst"), ("log", "--nonsense"), ("undo", "--last", "many")])
def test_a_usage_error_is_one_json_object_for_programs(tmp_path: Path, words: tuple[str, ...]) -> None:
    shown = surehand(*words, "--json", cwd=tmp_path)
    assert shown.returncode == 2
    assert json.loads(shown.stdout)["error"]["code"] == "invalid_args"
    assert "usage: surehand" in shown.stderr
    assert surehand(*words, "--text", cwd=tmp_path).stdout == ""
