"""A session killed in the middle of a call and taken up again: no effect happens twice, and both sides are told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.providers.model_stub import Stub
from tests.pty_terminal import Terminal

from surehand.core.call import BROKEN_ARGUMENTS

SUREHAND = [sys.executable, "-m", "surehand"]


def until(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + 300
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def killed(stub: Stub, cwd: Path, happened: Callable[[], object], *words: str) -> None:
    """Ask, and kill the program once its call has had its effect."""
    command = [*SUREHAND, "ask", "do it", "--session", "s", *words]
    asking = subprocess.Popen(
        command, cwd=cwd, env=stub.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    try:
        until(happened)
        assert asking.poll() is None
    finally:
        asking.send_signal(signal.SIGKILL)
        asking.wait()


def resumed(stub: Stub, cwd: Path, *words: str) -> dict[str, Any]:
    command = [*SUREHAND, "ask", "go on", "--session", "s", *words]
    done = subprocess.run(
        command, cwd=cwd, env=stub.environment, capture_output=True, text=True, timeout=300, check=True
    )
    return json.loads(done.stdout)


def told(stub: Stub) -> list[str]:
    """Return the results the model got with its latest request."""
    return [message["content"] for message in stub.requests[-1]["messages"] if message["role"] == "tool"]


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.spec("ASK-4")
def test_a_command_that_was_running_is_not_run_again(tmp_path: Path, stub: Stub) -> None:
    work = json.dumps({"command": "echo once >> effects.txt; sleep 60"})
    stub.script = [{"calls": [("a", "Bash", work)]}, {"text": "I will look first."}]
    effects = tmp_path / "effects.txt"
    killed(stub, tmp_path, lambda: lines(effects), "--allow", "Bash")
    assert resumed(stub, tmp_path, "--allow", "Bash")["answer"] == "I will look first."
    assert "whether it took effect is not known" in told(stub)[0]
    assert lines(effects) == ["once"]


def test_a_file_that_was_being_written_is_not_written_again(tmp_path: Path, stub: Stub) -> None:
    # A hook that takes its time after the call holds the program between the effect and the end of the call.
    home = Path(os.environ["SUREHAND_HOME"])
    home.mkdir(parents=True)
    hook = '[[hooks]]\nevent = "after"\ntools = ["Write"]\ncommand = "sleep 60"\ntimeout = 100.0\n'
    (home / "config.toml").write_text(hook)
    stub.script = [
        {"calls": [("a", "Write", json.dumps({"file_path": "a.txt", "content": "by the model\n"}))]},
        {"text": "I will look first."},
    ]
    killed(stub, tmp_path, lambda: (tmp_path / "a.txt").exists(), "--mode", "accept-edits")
    (tmp_path / "a.txt").write_text("changed by a person since\n")
    (home / "config.toml").unlink()
    assert resumed(stub, tmp_path, "--mode", "accept-edits")["answer"] == "I will look first."
    assert "whether it took effect is not known" in told(stub)[0]
    assert (tmp_path / "a.txt").read_text() == "changed by a person since\n"


def test_a_tool_of_a_server_that_was_called_is_not_called_again(tmp_path: Path, stub: Stub) -> None:
    effects = tmp_path / "effects.txt"
    server = tmp_path / "server.py"
    server.write_text(ROUGH)
    servers = {"mcpServers": {"rough": {"command": sys.executable, "args": [str(server), str(effects)]}}}
    (tmp_path / ".mcp.json").write_text(json.dumps(servers))
    subprocess.run([*SUREHAND, "trust", "--yes"], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    stub.script = [{"calls": [("a", "mcp__rough__deploy", "{}")]}, {"text": "I will look first."}]
    killed(stub, tmp_path, lambda: lines(effects), "--allow", "mcp__rough")
    assert resumed(stub, tmp_path, "--allow", "mcp__rough")["answer"] == "I will look first."
    assert "whether it took effect is not known" in told(stub)[0]
    assert lines(effects) == ["deployed"]


ROUGH = '''
"""The smallest server there is: one tool that has its effect at once and then takes its time."""
import json, sys, time

def answer(id, result):
    print(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}), flush=True)

for line in sys.stdin:
    asked = json.loads(line)
    method = asked.get("method")
    if method == "initialize":
        info = {"name": "rough", "version": "1"}
        version = asked["params"]["protocolVersion"]
        answer(asked["id"], {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info})
    elif method == "tools/list":
        tool = {"name": "deploy", "description": "Deploys.", "inputSchema": {"type": "object", "properties": {}}}
        answer(asked["id"], {"tools": [tool]})
    elif method == "tools/call":
        with open(sys.argv[1], "a") as file:
            file.write("deployed\\n")
        time.sleep(60)
    elif "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "no"}}), flush=True)
'''


def test_calls_of_the_same_turn_that_had_not_begun_are_made(tmp_path: Path, stub: Stub) -> None:
    first = json.dumps({"command": "echo first >> effects.txt; sleep 60"})
    second = json.dumps({"command": "echo second >> effects.txt"})
    stub.script = [{"calls": [("a", "Bash", first), ("b", "Bash", second)]}, {"text": "I see."}]
    effects = tmp_path / "effects.txt"
    killed(stub, tmp_path, lambda: lines(effects), "--allow", "Bash")
    resumed(stub, tmp_path, "--allow", "Bash")
    assert lines(effects) == ["first", "second"]
    assert "is not known" in told(stub)[0]
    assert "is not known" not in told(stub)[1]


def test_a_person_who_goes_on_is_told_what_was_interrupted(tmp_path: Path, stub: Stub) -> None:
    work = json.dumps({"command": "echo once >> effects.txt; sleep 60"})
    stub.script = [{"calls": [("a", "Bash", work)]}, {"text": "I will look first."}]
    killed(stub, tmp_path, lambda: lines(tmp_path / "effects.txt"), "--allow", "Bash")
    words = ("ask", "go on", "--session", "s", "--allow", "Bash")
    with Terminal(*words, cwd=tmp_path, env=stub.environment) as terminal:
        shown = terminal.wait_for("I will look first.")
        assert terminal.ended() == 0
    assert shown.count("the session was interrupted in Bash") == 1


@pytest.mark.parametrize("wanted", ["Read", "nobody"])
def test_how_broken_arguments_are_handed_over_is_seen_by_nobody(tmp_path: Path, stub: Stub, wanted: str) -> None:
    home = Path(os.environ["SUREHAND_HOME"])
    home.mkdir(parents=True)
    seen = tmp_path / "hook.txt"
    (home / "config.toml").write_text(f'[[hooks]]\nevent = "before"\ncommand = "cat >> {seen}"\n')
    broken = '{"file_path": "a.txt'
    stub.script = [{"calls": [("a", wanted, broken)]}, {"text": "sorry"}, {"text": "resumed"}]
    asking = [*SUREHAND, "ask", "look", "--session", "s", "--json"]
    done = subprocess.run(
        asking, cwd=tmp_path, env=stub.environment, capture_output=True, text=True, timeout=300, check=False
    )
    shown = json.loads(done.stdout)
    assert shown["toolCalls"][0]["args"] == {}
    assert shown["toolError"]["code"] in ("invalid_args", "tool_not_found")
    assert resumed(stub, tmp_path)["answer"] == "resumed"  # from the journal
    if wanted == "Read":
        assert broken in told(stub)[0]  # what the model wrote is told to it
    sent = json.dumps(stub.requests)
    kept = "".join(path.read_text(errors="replace") for path in home.rglob("*") if path.is_file())
    assert "broken_args" in kept  # the journal keeps what came
    for text in (done.stdout, done.stderr, sent, kept, seen.read_text() if seen.exists() else ""):
        assert BROKEN_ARGUMENTS not in text
