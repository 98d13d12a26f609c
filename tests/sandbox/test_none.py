"""Commands on a system that has nothing to contain them with: they run, they end, and results say what is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from surehand.core.settings import Settings
from surehand.sandbox import protocol
from surehand.sandbox.command import Abilities
from surehand.sandbox.none import PlainRunner, PlainSandbox
from surehand.sandbox.profile import SandboxProfile
from surehand.testing import scratch_app

pytestmark = pytest.mark.spec("PLAT-1")

ELSEWHERE = Path(__file__).with_name("elsewhere.py")


def elsewhere(workspace: Path, *calls: tuple[Any, ...], **settings: Any) -> list[dict[str, Any]]:
    """Make calls in a process that believes it is on macOS."""
    workspace.mkdir(exist_ok=True)
    steps = json.dumps({"workspace": str(workspace), "calls": calls, "settings": settings})
    ran = run_elsewhere(workspace, input=steps)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def run_elsewhere(workspace: Path, *words: str, input: str = "") -> subprocess.CompletedProcess[str]:
    """Run a process that believes it is on macOS, in a home of its own."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(workspace.parent), "SUREHAND_HOME": f"{workspace}-state"}
    command = [sys.executable, str(ELSEWHERE), *words]
    return subprocess.run(
        command, cwd=workspace, input=input, env=environment, capture_output=True, text=True, timeout=100, check=False
    )


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that waits to be collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_command_runs_without_a_sandbox_and_its_result_says_so(tmp_path: Path) -> None:
    long = "x=" + "y" * 150_000 + "; echo ${#x}"
    wrote, read, long_ran, failed, gone, large = elsewhere(
        tmp_path / "ws",
        ("Bash", {"command": "echo out; echo err >&2; echo text > made; cat made"}),
        ("Bash", {"command": "ls"}),
        ("Bash", {"command": long}),
        ("Bash", {"command": "exit 3"}),
        ("Bash", {"command": "kill -9 $$"}),
        ("Bash", {"command": "yes | head -c 3000000"}),
    )
    assert (wrote["ok"], wrote["data"]["stdout"], wrote["data"]["stderr"]) == (True, "out\ntext\n", "err\n")
    assert wrote["data"]["sandbox"] == {"active": False, "kind": "none", "changes_recorded": False}
    assert "what this command changed is not recorded and cannot be undone" in wrote["output"]
    assert wrote.get("undo") is None
    assert (read["data"]["stdout"], "recorded" in read["output"]) == ("made\n", False)
    assert (wrote["asked"], read["asked"]) == (1, 1), "what a sandbox would have held asks first"
    assert long_ran["data"]["stdout"] == "150000\n"
    assert (failed["ok"], failed["data"]["exit_code"]) == (False, 3)
    assert (gone["data"]["exit_code"], gone["data"]["signal"]) == (137, 9)
    assert large["data"]["truncated"]["stdout"]
    assert len(large["data"]["stdout"]) > 100_000
    assert wrote["data"]["usage"]["max_rss"] > 0


def test_nothing_of_its_group_outlives_a_command(tmp_path: Path) -> None:
    ws = tmp_path / "ws"
    note = "echo $$ $! > {name}.part; mv {name}.part {name}; wait"
    over, ended, cancelled = elsewhere(
        ws,
        ("Bash", {"command": f"trap '' TERM; sleep 300 & {note.format(name='over')}", "timeout": 1500}),
        ("Bash", {"command": "sleep 300 & echo $! > left"}),
        ("Bash", {"command": f"sleep 300 & {note.format(name='cancelled')}"}, "cancelled"),
    )
    assert over["error"]["code"] == "timeout"
    assert ended["ok"]
    assert "what the command had left running in its group ended with it" in ended["output"]
    assert cancelled == {"cancelled": True, "asked": 1} or cancelled["error"]["code"] == "cancelled"
    pids = [int(each) for name in ("over", "left", "cancelled") for each in (ws / name).read_text().split()]
    assert len(pids) == 5
    assert not [pid for pid in pids if is_alive(pid)]


def test_a_command_in_the_background_runs_and_is_ended_without_a_sandbox(tmp_path: Path) -> None:
    ws = tmp_path / "ws"
    started, _, listed, stopped, left = elsewhere(
        ws,
        ("Bash", {"command": "echo $$ > pid; echo ready; sleep 300", "run_in_background": True}),
        ("Bash", {"command": "while [ ! -s pid ]; do sleep 0.01; done"}),
        ("TaskOutput", {"id": "bg_task_1"}),
        ("TaskStop", {"id": "bg_task_1"}),
        ("Bash", {"command": "echo $$ > other; sleep 300", "run_in_background": True}),
    )
    assert started["data"]["status"] == "running"
    assert "cannot be undone" in started["output"]
    assert listed["ok"]
    assert "ready" in listed["output"]
    assert stopped["ok"]
    assert left["ok"]
    assert not is_alive(int((ws / "pid").read_text()))
    assert not (ws / "other").exists() or not is_alive(int((ws / "other").read_text() or 0)), "the session has closed"


def test_files_are_edited_searched_and_put_back_without_a_sandbox(tmp_path: Path) -> None:
    results = elsewhere(
        tmp_path / "ws",
        ("Write", {"file_path": "deep/er/note.txt", "content": "one\n"}),
        ("Edit", {"file_path": "deep/er/note.txt", "old_string": "one", "new_string": "two"}),
        ("Grep", {"pattern": "two"}),
        ("Glob", {"pattern": "**/*.txt"}),
        ("Read", {"file_path": "deep/er/note.txt"}),
        ("Undo", {}),
        ("Undo", {}),
    )
    assert [each["ok"] for each in results] == [True] * 7
    assert not (tmp_path / "ws/deep/er/note.txt").exists()


def test_a_required_sandbox_refuses_and_a_persistent_shell_says_that_there_is_none(tmp_path: Path) -> None:
    (refused,) = elsewhere(tmp_path / "a", ("Bash", {"command": "echo x"}), sandbox={"mode": "required"})
    assert refused["error"]["code"] == "tool_unavailable"
    assert "darwin has no Landlock" in refused["error"]["message"]
    custom = {"Bash": {"custom": {"persistent": True}}}
    _, second = elsewhere(
        tmp_path / "b",
        ("Bash", {"command": "cd /; export X=1"}),
        ("Bash", {"command": "echo $X; pwd"}),
        tools=custom,
        sandbox={"mode": "off"},
    )
    assert second["data"]["stdout"] == f"\n{tmp_path / 'b'}\n"
    assert "there is no persistent shell on this system" in second["output"]


def test_doctor_says_what_is_missing_without_a_sandbox(tmp_path: Path) -> None:
    said = run_elsewhere(tmp_path, "doctor", "sandbox").stdout
    assert "not available: darwin has no Landlock and no namespaces" in said
    assert "Commands ask first and run as you; what they change is not recorded, so that it cannot be undone." in said
    facts = json.loads(run_elsewhere(tmp_path, "doctor", "sandbox", "--json").stdout)
    assert '"kind": "none"' in json.dumps(facts)
    assert run_elsewhere(tmp_path, "ps").returncode == 0


async def test_another_sandbox_is_a_class_that_implements_the_protocol(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class JailedRunner(PlainRunner):
        kind = "jail"
        means = ("jail",)

    class Jail(PlainSandbox):
        kind = "jail"

        def abilities(self) -> Abilities:
            return Abilities(other_mechanism="jail", why_not="no namespaces")

        async def start(self, profile: SandboxProfile) -> PlainRunner:
            return JailedRunner(profile)

    jail = Jail("")
    monkeypatch.setattr(protocol, "choose", lambda: jail)
    settings = Settings.parse({"tools": {"Bash": {"custom": {"persistent": True}}}})
    async with scratch_app(tmp_path, settings=settings) as app:
        result = await app.call("Bash", {"command": "echo hi > made; cat made"})
        assert (result.ok, result.data["stdout"]) == (True, "hi\n")
        assert (result.data["sandbox"]["active"], result.data["sandbox"]["by"]) == (True, ["jail"])
        assert "cannot be undone" in result.output
