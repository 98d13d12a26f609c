"""The npm client `acpx` drives `surehand acp`: run by `make test-integrations`, since it is installed for the test."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.acp.editor import environment
from tests.npm import install

pytestmark = pytest.mark.spec("INT-2")

VERSION = "0.19.1"


@pytest.fixture(scope="module")
def acpx(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Install the client into a scratch folder and return the words that run it."""
    node, package = install("acpx", VERSION, tmp_path_factory.mktemp("acpx"))
    return [node, str(package / "dist" / "cli.js")]


def start(acpx: list[str], work: Path, home: Path, prompt: str, *options: str) -> subprocess.Popen[str]:
    """Have one prompt answered by our agent; every message that goes either way is printed."""
    agent = shlex.join([sys.executable, "-m", "surehand", "acp", "--model", "offline"])
    env = {**environment(home), "HOME": str(home)}
    command = [*acpx, "--agent", agent, *options, "--format", "json", "exec", prompt]
    return subprocess.Popen(command, cwd=work, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def messages(running: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """Return every message, once the client has ended."""
    said, _ = running.communicate(timeout=90)
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]


def test_acpx_reads_is_asked_and_denies(acpx: list[str], tmp_path: Path) -> None:
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir()
    (work / "a.txt").write_text("hello\n")

    said = messages(start(acpx, work, home, "read a.txt", "--approve-reads"))
    updates = [each["params"]["update"] for each in said if each.get("method") == "session/update"]
    assert any("hello" in json.dumps(each) for each in updates if each["sessionUpdate"] == "agent_message_chunk")
    assert [each["kind"] for each in updates if each["sessionUpdate"] == "tool_call"] == ["read"]
    assert said[-1]["result"]["stopReason"] == "end_turn"

    said = messages(start(acpx, work, home, "run `touch made.txt`", "--approve-all"))
    asked = next(each for each in said if each.get("method") == "session/request_permission")
    assert asked["params"]["options"][0]["kind"] == "allow_once"
    assert (work / "made.txt").exists()

    said = messages(start(acpx, work, home, "run `touch other.txt`", "--deny-all"))
    assert any(each.get("method") == "session/request_permission" for each in said)
    assert not (work / "other.txt").exists()


def test_acpx_cancels_a_command_that_runs(acpx: list[str], tmp_path: Path) -> None:
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir()
    os.mkfifo(work / "begun")
    running = start(acpx, work, home, "run `echo started > begun; sleep 600`", "--approve-all")
    assert (work / "begun").read_text() == "started\n"
    running.send_signal(signal.SIGINT)
    said = messages(running)
    assert any(each.get("method") == "session/cancel" for each in said)
    assert any(each.get("result", {}).get("stopReason") == "cancelled" for each in said)
