"""`Bash`: what it answers, what it refuses, how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from surehand.core.call import ToolCall, ToolResult
from surehand.core.context import ToolContext
from surehand.core.effects import Unreadable
from surehand.core.errors import ToolFailure
from surehand.core.events import Progress
from surehand.core.session import Session
from surehand.core.settings import SandboxSettings, Settings, ToolSettings
from surehand.history.history import HISTORY
from surehand.sandbox import protocol
from surehand.sandbox.command import Abilities
from surehand.sandbox.linux import probe
from surehand.tools import background, tasks
from surehand.tools.bash import BASH
from surehand.tools.tasks import BOARD


class Bench:
    """A session and short ways to call the shell tools in it."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.progress: list[Progress] = []

    def context(self, name: str, args: dict[str, Any]) -> ToolContext:
        options = tool.custom if (tool := self.session.settings.tools.get("Bash")) else {}
        return ToolContext(ToolCall(name, args), self.session, self.progress.append, options)

    async def __call__(self, command: str, **more: Any) -> ToolResult:
        args = {"command": command, **more}
        parsed = BASH.arguments.parse(args)
        ctx = self.context("Bash", args)
        assert BASH.check is not None
        checking = BASH.check(parsed, ctx)
        assert checking is not None
        await checking
        return await BASH.run(parsed, ctx)

    async def other(self, name: str, **args: Any) -> ToolResult:
        tool = next(tool for tool in tasks.TOOLS if tool.name == name)
        return await tool.run(tool.arguments.parse(args), self.context(name, args))


@pytest.fixture
async def sh(tmp_path: Path) -> AsyncIterator[Bench]:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    session = Session(str(workspace), settings=Settings(), state_dir=str(tmp_path / "state"))
    yield Bench(session)
    await session.close()


async def test_a_command_answers_with_output_code_class_usage_and_sandbox(sh: Bench) -> None:
    result = await sh("echo hi; echo oops >&2")
    assert result.ok
    assert result.output == "hi\n[stderr] oops"
    assert {key: result.data[key] for key in ("exit_code", "stdout", "stderr")} == {
        "exit_code": 0,
        "stdout": "hi\n",
        "stderr": "oops\n",
    }
    assert set(result.data["usage"]) == {"cpu_s", "max_rss", "wall_s"}
    assert result.data["sandbox"]["active"] is protocol.available()
    assert result.data["class"] in ("search", "read", "list", "write", "silent", "general")


async def test_a_failing_command_is_an_error_that_keeps_its_output(sh: Bench) -> None:
    result = await sh("echo before; exit 7")
    assert not result.ok
    assert result.error is not None
    assert (result.error.code, result.data["exit_code"]) == ("execution_error", 7)
    assert result.output.startswith("before\n")


@pytest.mark.parametrize(
    "command",
    ["grep x /dev/null", "diff /etc/passwd /dev/null >/dev/null", "test 1 = 2", "[ -e nothing ]", "echo a | grep b"],
)
async def test_a_one_that_means_no_is_no_error(sh: Bench, command: str) -> None:
    result = await sh(command)
    assert (result.ok, result.error, result.data["exit_code"]) == (True, None, 1)


@pytest.mark.parametrize("command", ["false", "grep x /dev/null | false", "ls /nonexistent", "grep x /nonexistent"])
async def test_other_failures_stay_errors(sh: Bench, command: str) -> None:
    assert not (await sh(command)).ok


@pytest.mark.parametrize("timeout", [0, -1, 600_001])
def test_a_time_out_out_of_bounds_is_an_invalid_argument(timeout: int) -> None:
    with pytest.raises(ValidationError) as caught:
        BASH.arguments.parse({"command": "true", "timeout": timeout})
    assert str(timeout) in str(caught.value)


@pytest.mark.parametrize("command", ["", "  \n", "echo a\0b", "echo a\r\necho b", "echo \ud800", "x" * 3_000_000])
def test_a_command_no_shell_can_read_is_an_invalid_argument(command: str) -> None:
    with pytest.raises(ValidationError):
        BASH.arguments.parse({"command": command})


def test_the_schema_and_the_flags_are_those_of_the_reference() -> None:
    assert BASH.arguments.schema()["properties"] == {
        "command": {"type": "string", "description": "The bash command to execute"},
        "timeout": {"type": "integer", "description": "Timeout in milliseconds (default 120000, max 600000)"},
        "run_in_background": {
            "type": "boolean",
            "description": "Run the command in the background and return a task_id immediately",
        },
        "description": {"type": "string", "description": "A description of what this command does"},
    }
    assert BASH.arguments.schema()["required"] == ["command"]
    assert (BASH.destructive, BASH.search_hint, BASH.level) == (True, "shell command execute terminal", 2)


async def test_reading_commands_are_read_only_and_safe_together_writing_ones_are_not(sh: Bench) -> None:
    for command, expected in (("ls -la", True), ("rm x", False), ("echo 'unterminated", False), ("ls > x", False)):
        parsed = BASH.arguments.parse({"command": command})
        ctx = sh.context("Bash", {})
        assert callable(BASH.read_only)
        assert callable(BASH.concurrency_safe)
        assert (BASH.read_only(parsed, ctx), BASH.concurrency_safe(parsed, ctx)) == (expected, expected)


async def test_an_unterminated_quote_fails_with_the_shells_own_words(sh: Bench) -> None:
    result = await sh("echo 'unterminated")
    assert not result.ok
    assert "unexpected EOF" in result.data["stderr"]


async def test_a_time_out_says_so_and_keeps_what_was_printed(sh: Bench) -> None:
    result = await sh("echo begun; sleep 60", timeout=300)
    assert result.error is not None
    assert result.error.code == "timeout"
    assert "begun" in result.output


async def test_a_slow_command_reports_its_time(sh: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surehand.tools.bash_call.SLOW_S", 0.05)
    assert "[took 0." in (await sh("sleep 0.1")).output


async def test_long_output_names_the_file_that_has_all_of_it_also_when_the_command_fails(sh: Bench) -> None:
    result = await sh("seq 100000; exit 1")
    file = Path(result.data["output_file"])
    assert file.read_text().splitlines() == [str(number) for number in range(1, 100001)]
    assert str(file) in result.output
    assert result.data["stdout"].endswith("100000\n")
    assert len(result.output) < 300 * 1024


async def test_binary_output_is_replaced_by_a_note(sh: Bench) -> None:
    result = await sh("printf '\\x7fELF\\x01\\x02\\x00'; printf '\\xff\\xfe\\xfa' >&2")
    assert "ELF" in result.data["stdout"]
    assert "not valid UTF-8" in result.data["stderr"]
    json.dumps(result.to_dict())


async def test_one_byte_that_is_no_text_hides_nothing_of_the_rest(sh: Bench) -> None:
    result = await sh("printf 'caf\\xe9 one\ntwo\n'")
    assert result.output.startswith("caf\\xe9 one\ntwo\n[1 binary byte")
    assert result.data["binary_bytes"] == {"stdout": 1, "stderr": 0}
    assert "truncated" not in result.data


async def test_lines_stream_as_progress_without_a_flood(sh: Bench) -> None:
    await sh("echo first; sleep 0.3; echo second; seq 20000; sleep 0.2")
    texts = [each.text for each in sh.progress]
    assert texts[0] == "first"
    assert len(texts) < 20
    assert any("second" in text or "20000" in text for text in texts)


async def test_a_command_sees_the_environment_as_it_is_now(sh: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = "echo $PLAIN_NAME $LATER_TOKEN $HOME"
    before = (await sh(shown)).output
    monkeypatch.setenv("PLAIN_NAME", "set")
    monkeypatch.setenv("LATER_TOKEN", "hidden")
    assert (await sh(shown)).output == f"set {before}"
    monkeypatch.setenv("PLAIN_NAME", "other")
    assert (await sh(shown)).output == f"other {before}"
    monkeypatch.delenv("PLAIN_NAME")
    assert (await sh(shown)).output == before


async def test_secrets_of_the_environment_do_not_reach_a_command(sh: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary")
    monkeypatch.setenv("DEPLOY_PASSWORD", "canary-2")
    sh.session.environment["VISIBLE"] = "yes"
    output = (await sh("env")).data["stdout"]
    assert "canary" not in output
    assert "VISIBLE=yes" in output


async def test_a_prompt_for_input_ends_at_once_and_is_explained(sh: Bench) -> None:
    result = await sh("python3 -c 'input(\"Name? \")'")
    assert result.error is not None
    assert "no input" in result.error.hint
    assert result.data["waiting_for_input"] is True


async def test_what_a_command_leaves_running_ends_with_it_and_is_told(sh: Bench) -> None:
    result = await sh("sleep 600 & echo up")
    assert result.ok
    assert result.data["left_behind"] == 1
    assert "run_in_background" in result.output


@pytest.mark.parametrize("more", [{}, {"run_in_background": True}])
async def test_a_working_directory_that_vanished_is_a_clear_error(
    sh: Bench, tmp_path: Path, more: dict[str, bool]
) -> None:
    sh.session.cwd = f"{tmp_path}/ws/gone/away"
    with pytest.raises(ToolFailure, match="gone/away no longer exists, so nothing ran") as failure:
        await sh("pwd", **more)
    assert failure.value.hint == f"Commands run in {tmp_path}/ws from now on."
    assert (await sh("pwd")).data["stdout"] == f"{tmp_path}/ws\n"


async def test_a_vanished_workspace_is_a_clear_error(tmp_path: Path) -> None:
    session = Session(str(tmp_path / "nowhere"), settings=Settings(), state_dir=None)
    with pytest.raises(ToolFailure, match="no longer exists"):
        await Bench(session)("true")
    await session.close()


@pytest.mark.spec("SHELL-9")
async def test_a_required_sandbox_that_is_missing_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "abilities", lambda: Abilities(why_not="for a test"))
    settings = Settings(sandbox=SandboxSettings(mode="required"))
    session = Session(str(tmp_path), settings=settings, state_dir=None)
    with pytest.raises(ToolFailure, match="required") as caught:
        await Bench(session)("true")
    assert caught.value.code == "tool_unavailable"
    await session.close()


async def test_a_preferred_sandbox_that_is_missing_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "abilities", lambda: Abilities(why_not="for a test"))
    session = Session(str(tmp_path), settings=Settings(), state_dir=None)
    bench = Bench(session)
    assert BASH.effects is not None
    effects = BASH.effects(BASH.arguments.parse({"command": "ls"}), bench.context("Bash", {})) or ()
    assert Unreadable("no sandbox here: for a test") in effects
    assert (await bench("echo ran")).data["sandbox"]["active"] is False
    await session.close()


async def test_a_session_that_closes_removes_its_private_temp(sh: Bench) -> None:
    folder = (await sh("echo $TMPDIR; touch $TMPDIR/x")).data["stdout"].strip()
    assert os.path.exists(f"{folder}/x")
    await sh.session.close()
    assert not os.path.exists(folder)


async def test_a_background_command_answers_at_once_and_shows_its_output_bit_by_bit(sh: Bench) -> None:
    began = time.monotonic()
    result = await sh("echo one; while [ ! -e go ]; do sleep 0.02; done; echo two", run_in_background=True)
    assert time.monotonic() - began < 60  # what hangs, hangs without end
    assert result.data == {"task_id": "bg_task_1", "status": "running"}
    seen = ""
    while "one" not in seen:
        seen += (await sh.other("TaskOutput", id="bg_task_1")).data["output"]
        await asyncio.sleep(0.01)
    assert (await sh.other("TaskOutput", id="bg_task_1")).output.startswith("(nothing new)")
    Path(sh.session.workspace, "go").touch()
    news = ""
    while (latest := await sh.other("TaskOutput", id="bg_task_1")).data["status"] == "in_progress":
        news += latest.data["output"]
        await asyncio.sleep(0.01)
    assert (news + latest.data["output"]) == "two"
    assert (latest.data["status"], latest.data["details"]["exit_code"]) == ("done", 0)


async def test_how_a_background_command_ended_is_told(sh: Bench) -> None:
    started = await sh("exit 4", run_in_background=True)
    assert '{"id": "bg_task_1"}' in started.output
    await sh("sleep 60", run_in_background=True, timeout=50)
    for task in sh.session.keep(background.BACKGROUND).all():
        await task.waiting
    assert (await sh.other("TaskOutput", id="bg_task_1")).output.endswith("[bg_task_1: failed, exit code 4]")
    assert (await sh.other("TaskOutput", id="bg_task_2")).output.endswith("[bg_task_2: failed, timeout]")


async def test_death_by_a_signal_is_told_by_name(sh: Bench) -> None:
    result = await sh("kill -SEGV $$")
    assert result.error is not None
    assert "ended by signal 11, SIGSEGV" in result.error.message


async def test_a_short_time_out_of_a_program_that_asks_says_both(sh: Bench) -> None:
    result = await sh("printf 'Overwrite? '; sleep 60", timeout=300)
    assert result.error is not None
    assert "more time" in result.error.hint
    assert "no input" in result.error.hint


async def test_background_commands_are_listed_and_stopped(sh: Bench) -> None:
    await sh("sleep 600", run_in_background=True)
    await sh("setsid sleep 600 & wait", run_in_background=True)
    listed = (await sh.other("TaskList")).data["tasks"]
    assert {task["id"]: task["status"] for task in listed} == {"bg_task_1": "in_progress", "bg_task_2": "in_progress"}
    stopped = await sh.other("TaskStop", id="bg_task_2")
    assert stopped.data["status"] == "cancelled"
    assert (await sh.other("TaskStop", id="bg_task_2")).output == "bg_task_2 is already cancelled."
    with pytest.raises(ToolFailure, match="bg_task_9"):
        await sh.other("TaskStop", id="bg_task_9")


async def test_a_background_command_ends_at_its_time_out(sh: Bench) -> None:
    await sh("sleep 600", run_in_background=True, timeout=200)
    task = sh.session.keep(background.BACKGROUND).get("bg_task_1")
    await asyncio.wait_for(asyncio.shield(task.waiting), 60)
    assert task.status == "timeout"


async def test_nothing_runs_on_when_the_session_closes(sh: Bench) -> None:
    await sh("setsid sleep 600 & echo $$ > up; wait", run_in_background=True)
    while not Path(sh.session.workspace, "up").exists():
        await asyncio.sleep(0.01)
    await sh.session.close()
    marker = f"SUREHAND_SESSION={sh.session.id}".encode()
    assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and _has(pid, marker)]


def _has(pid: str, marker: bytes) -> bool:
    try:
        return marker in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


@pytest.mark.spec("SHELL-8")
async def test_a_one_shot_call_refuses_the_background(tmp_path: Path) -> None:
    session = Session(str(tmp_path), settings=Settings(), state_dir=None, interactive=False)
    with pytest.raises(ToolFailure, match="one-shot"):
        await Bench(session)("sleep 1", run_in_background=True)
    await session.close()


async def test_the_engine_outlives_a_fork_bomb(sh: Bench) -> None:
    if not probe.abilities().private_view:
        pytest.skip(f"no namespaces here: {probe.abilities().why_not}")
    result = await sh("bomb() { bomb | bomb & }; bomb; sleep 2", timeout=3000)
    assert isinstance(result.ok, bool)
    assert (await sh("echo alive")).data["stdout"] == "alive\n"


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Bench]:
    (tmp_path / "ws" / "sub").mkdir(parents=True)
    settings = Settings(tools={"Bash": ToolSettings(custom={"persistent": True})})
    session = Session(str(tmp_path / "ws"), settings=settings, state_dir=str(tmp_path / "state"))
    yield Bench(session)
    await session.close()


async def test_directory_and_variables_carry_over_in_a_persistent_shell(memory: Bench) -> None:
    await memory("cd sub; export GREETING=hello; plain=world; f() { echo from f; }")
    result = await memory("pwd; echo $GREETING $plain; f; bash -c 'echo $GREETING $plain'")
    assert result.data["stdout"].splitlines() == [f"{memory.session.workspace}/sub", "hello world", "from f", "hello"]
    assert memory.session.cwd == f"{memory.session.workspace}/sub"


async def test_each_command_of_a_persistent_shell_has_its_own_output_and_code(memory: Bench) -> None:
    first = await memory("echo one; echo err >&2; false")
    second = await memory("echo two")
    assert (first.data["stdout"], first.data["stderr"], first.data["exit_code"]) == ("one\n", "err\n", 1)
    assert (second.data["stdout"], second.data["stderr"], second.data["exit_code"]) == ("two\n", "", 0)


async def test_leaving_the_workspace_is_noticed_and_brought_back(memory: Bench) -> None:
    result = await memory("cd /usr; pwd")
    assert result.data["stdout"] == "/usr\n"
    assert "outside the workspace" in result.output
    assert (await memory("pwd")).data["stdout"] == f"{memory.session.workspace}\n"


@pytest.mark.parametrize("command", ["exit 5", "exec bash -c 'exit 5'", "set -e; bash -c 'exit 5'; echo never"])
async def test_a_shell_that_exits_is_followed_by_a_new_one(memory: Bench, command: str) -> None:
    await memory("cd sub; export GONE=1")
    result = await memory(command)
    assert result.data["exit_code"] == 5
    assert "shell ended" in result.output
    after = await memory("pwd; echo ${GONE-unset}")
    assert after.data["stdout"].splitlines() == [f"{memory.session.workspace}/sub", "unset"]


async def test_a_time_out_in_a_persistent_shell_ends_it_whole(memory: Bench) -> None:
    result = await memory("echo begun; setsid sleep 600 & while :; do :; done", timeout=300)
    assert result.error is not None
    assert result.error.code == "timeout"
    assert (await memory("echo again")).data["stdout"] == "again\n"


async def test_a_syntax_error_leaves_the_shell_alive(memory: Bench) -> None:
    await memory("export KEPT=1")
    assert not (await memory("echo 'unterminated")).ok
    assert (await memory("echo $KEPT")).data["stdout"] == "1\n"


async def test_a_command_cannot_silence_a_persistent_shell_for_good(memory: Bench) -> None:
    await memory("exec >log 2>&1; exec 9>lock; echo hidden")
    assert (await memory("cat log; echo open >&9; cat lock")).data["stdout"] == "hidden\nopen\n"
    await memory("exec 1>&- 2>&-; echo gone")
    result = await memory("echo heard; echo too >&2; ls /proc/self/fd")
    assert (result.data["stdout"].split()[0], result.data["stderr"]) == ("heard", "too\n")
    assert "250" not in result.data["stdout"].split()


async def test_commands_of_a_persistent_shell_see_none_of_its_lines(memory: Bench) -> None:
    result = await memory("ls /proc/self/fd; cat <&10; echo x >&11; echo $?")
    assert "10" not in result.data["stdout"].split()
    assert result.data["stdout"].endswith("1\n")


async def test_what_a_command_changes_is_in_the_history_and_can_be_undone(sh: Bench) -> None:
    for name in ("a", "b"):
        Path(sh.session.workspace, name).write_text(name)
    result = await sh("echo more >> a; rm b; mkdir d; echo n > d/n")
    assert result.undo is not None
    root = sh.session.workspace
    assert {each["path"]: each["action"] for each in result.data["changes"]} == {
        f"{root}/a": "changed",
        f"{root}/b": "deleted",
        f"{root}/d": "created",
        f"{root}/d/n": "created",
    }
    change = sh.session.keep(HISTORY).change(result.undo.change_id)
    assert change is not None
    kept = {
        file.path: sh.session.keep(HISTORY).content(file.before.digest) for file in change.files if file.before.digest
    }
    assert kept == {f"{root}/a": b"a", f"{root}/b": b"b"}


async def test_a_command_that_fails_or_is_ended_is_in_the_history_too(sh: Bench) -> None:
    Path(sh.session.workspace, "a").write_text("a")
    failed = await sh("echo changed > a; exit 1")
    ended = await sh("echo again > a; sleep 60", timeout=300)
    assert failed.undo is not None
    assert ended.undo is not None


@pytest.mark.parametrize("command", ["touch a", "cat a", "cp a b; rm b", "mv a b; mv b a", "echo x > $TMPDIR/x"])
async def test_a_command_that_changes_nothing_in_the_end_is_not_in_the_history(sh: Bench, command: str) -> None:
    Path(sh.session.workspace, "a").write_text("a")
    result = await sh(command)
    assert result.ok
    assert result.undo is None


async def test_changes_in_a_persistent_shell_are_told_apart_by_command(memory: Bench) -> None:
    first = await memory("echo 1 > one")
    await memory("ls")
    second = await memory("echo 2 > two")
    root = memory.session.workspace
    assert [each["path"] for each in first.data["changes"]] == [f"{root}/one"]
    assert [each["path"] for each in second.data["changes"]] == [f"{root}/two"]


async def test_changes_without_a_sandbox_are_in_the_history_too(tmp_path: Path) -> None:
    session = Session(str(tmp_path), settings=Settings(sandbox=SandboxSettings(mode="off")), state_dir=None)
    result = await Bench(session)("echo x > x")
    assert result.undo is not None
    assert result.data["sandbox"]["active"] is False
    await session.close()


async def test_what_a_background_command_changed_is_in_the_history_too(sh: Bench) -> None:
    await sh("echo x > made; echo done", run_in_background=True)
    task = sh.session.keep(background.BACKGROUND).get("bg_task_1")
    await asyncio.wait_for(asyncio.shield(task.waiting), 60)
    facts = (await sh.other("TaskOutput", id="bg_task_1")).data["details"]
    assert [each["path"] for each in facts["changes"]] == [f"{sh.session.workspace}/made"]


async def test_a_time_out_of_the_settings_is_kept_and_the_output_is_not_lost(tmp_path: Path) -> None:
    settings = Settings(tools={"Bash": ToolSettings(timeout=3.0)})
    session = Session(str(tmp_path), settings=settings, state_dir=None)
    result = await Bench(session)("echo begun; sleep 60")
    assert result.error is not None
    assert result.error.code == "timeout"
    assert "begun" in result.output
    await session.close()


async def test_git_writes_nothing_in_a_command_that_only_reads(sh: Bench) -> None:
    subprocess.run(["git", "init", "-q"], cwd=sh.session.workspace, check=True)
    Path(sh.session.workspace, "a").write_text("a")
    subprocess.run(["git", "add", "a"], cwd=sh.session.workspace, check=True)
    os.utime(Path(sh.session.workspace, "a"), (1, 1))
    index = Path(sh.session.workspace, ".git/index")
    before = index.read_bytes()
    assert (await sh("git status --short")).data["stdout"] == "A  a\n"
    assert index.read_bytes() == before


async def test_a_background_command_is_on_the_board_of_tasks(sh: Bench) -> None:
    await sh("echo hello; sleep 600", run_in_background=True, description="a server")
    board = sh.session.keep(BOARD)
    assert (board.get("bg_task_1").title, board.get("bg_task_1").status) == ("a server", "in_progress")
    seen = ""
    while "hello" not in seen:
        seen += board.running("bg_task_1").output()
        await asyncio.sleep(0.01)
    await board.running("bg_task_1").stop()
    assert board.get("bg_task_1").status == "cancelled"


async def test_old_files_of_long_output_make_room(sh: Bench) -> None:
    folder = Path(str(sh.session.state_dir), "output")
    folder.mkdir(parents=True)
    (folder / "old.out").write_text("old")
    (folder / "new.out").write_text("new")
    os.utime(folder / "old.out", (1, 1))
    await sh("seq 100000")
    assert sorted(path.name.split("_")[0] for path in folder.iterdir()) == ["call", "new.out"]
