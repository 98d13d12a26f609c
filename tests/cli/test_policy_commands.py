"""`surehand policy`, `trust`, `approvals` and `audit`, as a person or a program uses them."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from surehand.cli.main import main
from surehand.engine.audit import Audit
from surehand.policy import trust
from surehand.policy.mailbox import Mailbox
from surehand.state import locations


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "ws"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    """Run a command and return (exit code, the facts it printed)."""
    code = main(list(words))
    out = capsys.readouterr().out
    return code, json.loads(out) if out.strip() else None


def test_check_explains_commands_effects_and_rules_with_their_line(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace / "surehand.toml").write_text('[permissions]\nask = ["Bash(ls:*)"]\n')
    code, answer = said(
        capsys,
        "policy",
        "check",
        "--tool",
        "Bash",
        "--args",
        '{"command": "ls -l && sudo rm -rf src > out"}',
        "--rule",
        "deny Bash(rm:*)",
    )
    assert (code, answer["decision"]) == (0, "deny")
    assert [each["name"] for each in answer["commands"]] == ["ls", "sudo", "rm"]
    assert {"kind": "write", "path": str(workspace / "out")}.items() <= answer["effects"][-1].items()
    rules = {rule["rule"]: rule for rule in answer["rules"]}
    assert rules["Bash(rm:*)"]["decided"] is True
    assert rules["Bash(ls:*)"]["line"] == 2
    assert rules["Bash(ls:*)"]["source"] == "project"


@pytest.mark.spec("CLI-3")
def test_a_batch_answers_line_by_line_in_order_whatever_a_line_holds(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    asked: list[Any] = [
        {"tool": "Bash", "args": {"command": "ls"}},
        {"tool": "Bash", "args": {"command": "make"}, "rules": ["allow Bash(make:*)"]},
        {"tool": "Bash", "args": {"command": "make"}, "mode": "plan"},
        {
            "tool": "Write",
            "args": {"file_path": str(other / "a"), "content": "x"},
            "mode": "acceptEdits",
            "cwd": str(other),
        },
        {"tool": "Write", "args": {"file_path": str(other / "a"), "content": "x"}, "mode": "accept-edits"},
        {"tool": "nope", "args": {}},
        {"tool": "Bash", "args": {"cmd": "ls"}},
        {"tool": "Bash", "args": ["ls"]},
        {"tool": "Bash", "args": {"command": "ls"}, "mode": "yolo"},
        {"tool": "Bash", "args": {"command": "ls"}, "rules": ["deny Bash("]},
        {"tool": "Bash", "args": {"command": "ls"}, "cwd": "/no/such/folder"},
        {"tool": "Bash", "args": {"command": "ls"}, "rules": "deny Bash"},
        [1],
        {"tool": "mcp__github__create", "args": {}},
        {"tool": "mcp__github__create", "args": {}, "rules": ["allow mcp__github"]},
    ]
    lines = [*map(json.dumps, asked), "not json"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(lines) + "\n\n"))
    assert main(["policy", "check", "--batch", "-"]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    decisions = "allow allow deny allow ask error error error error error error error error ask allow error"
    assert [answer["decision"] for answer in answers] == decisions.split()
    assert all({"decision", "reason", "rules", "effects", "commands"} <= answer.keys() for answer in answers)
    assert all(answer["reason"] for answer in answers)


@pytest.mark.parametrize("words", [["ls && git push"], ["--", "git", "push", "--force"]])
def test_a_command_is_checked_as_it_is_typed(
    words: list[str], workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, answer = said(capsys, "policy", "check", *words)
    assert (code, answer["decision"], answer["suggestion"]) == (0, "ask", "Bash(git push:*)")
    assert main(["policy", "check", "--tool", "Bash", "ls"]) == 2


def test_a_tool_named_before_its_command_is_not_judged_as_a_program(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["policy", "check", "Bash", "ls"]) == 2
    assert "say 'COMMAND'" in capsys.readouterr().err
    assert main(["policy", "check", "Read", "notes.txt"]) == 2
    assert "say --tool Read --args '{...}'" in capsys.readouterr().err


def test_check_of_nothing_or_of_no_json_is_bad_usage(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "check"]) == 2
    assert main(["policy", "check", "--tool", "Bash", "--args", "{"]) == 2
    assert "not JSON" in capsys.readouterr().out
    assert main(["policy", "check", "--batch", "/no/such/file"]) == 2


def test_an_unreadable_rule_stops_every_command_with_file_and_line(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace / "surehand.toml").write_text('[permissions]\n\ndeny = ["Bash("]\n')
    assert main(["policy", "check", "--tool", "time.now"]) == 2
    assert "surehand.toml:3: the rule 'Bash('" in capsys.readouterr().err


def test_list_shows_every_rule_and_warns_of_idle_and_undone_ones(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path(locations.user_settings())
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text('[permissions]\nallow = [\n  "Gerp",\n  "Bash(git push:*)",\n]\ndeny = ["Bash(git push:*)"]\n')
    code, answer = said(capsys, "policy", "list")
    assert code == 0
    assert {"user", "built-in"} <= {rule["source"] for rule in answer["rules"]}
    idle, undone = answer["warnings"]
    assert "Gerp matches nothing" in idle
    assert "did you mean Grep?" in idle
    assert f"{file}:3" in idle
    assert "allow Bash(git push:*) has no effect: deny Bash(git push:*)" in undone
    assert f"{file}:4" in undone


def test_replay_judges_a_recording_against_the_present_rules(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def call(command: str, **result: Any) -> dict[str, Any]:
        made = {"id": "c", "name": "Bash", "args": {"command": command}, "source": "model"}
        return {"kind": "call", "call": made, "result": {"ok": True, **result}, "decision": None}

    refused = {"code": "permission_denied", "message": "no", "hint": "", "details": {"verdict": "deny"}}
    lines = [
        {"kind": "recording", "version": 1, "workspace": "/elsewhere"},
        call("ls /elsewhere"),
        call("make"),
        call("rm x", ok=False, error=refused),
    ]
    (workspace / "session.jsonl").write_text("\n".join(map(json.dumps, lines)))
    code, answer = said(capsys, "policy", "replay", "session.jsonl", "--rule", "allow Bash(rm:*)")
    assert (code, answer["calls"], answer["differences"]) == (0, 3, 2)
    assert [(row["before"], row["now"]) for row in answer["rows"]] == [("allow", "ask"), ("deny", "allow")]
    _, answer = said(capsys, "policy", "replay", "session.jsonl", "--all")
    assert answer["rows"][0]["args"] == {"command": f"ls {workspace}"}
    (workspace / "session.jsonl").write_text("{broken\n")
    assert main(["policy", "replay", "session.jsonl"]) == 2
    assert "session.jsonl:1" in capsys.readouterr().err


def test_trust_needs_consent_and_a_change_asks_again(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (workspace / ".mcp.json").write_text("{}")
    assert main(["trust"]) == 4
    assert ".mcp.json" in capsys.readouterr().err
    assert not trust.is_trusted(str(workspace))
    code, answer = said(capsys, "trust", "--yes")
    assert (code, answer["state"]) == (0, "trusted")
    (workspace / ".mcp.json").write_text('{"a": 1}')
    assert said(capsys, "trust", "--show")[1]["changed"] == [".mcp.json"]
    assert said(capsys, "trust", "--list")[1] == [str(workspace)]
    assert said(capsys, "trust", "--remove")[1]["removed"] is True


def test_approvals_are_listed_and_answered(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "approvals", "list") == (0, [])
    assert said(capsys, "approvals", "allow", "approval_x")[0] == 2
    code = (
        "import asyncio, sys\n"
        "from surehand import Surehand, tool\n"
        "from surehand.policy.mailbox import Mailbox\n"
        "@tool\ndef deploy() -> str:\n    'Deploy.'\n    return 'deployed'\n"
        "async def work():\n"
        "    box = Mailbox(sys.argv[2], timeout_s=30)\n"
        "    async with Surehand(sys.argv[1], tools=[deploy], approver=box) as app:\n"
        "        print((await app.call('deploy')).output)\n"
        "asyncio.run(work())\n"
    )
    state = locations.workspace_state(str(workspace))
    process = subprocess.Popen([sys.executable, "-c", code, str(workspace), state], stdout=subprocess.PIPE, text=True)
    box, timer = Mailbox(state), threading.Event()
    for _ in range(600):
        if box.pending():
            break
        timer.wait(0.05)
    _, rows = said(capsys, "approvals", "list")
    assert rows[0]["tool"] == "deploy"
    assert said(capsys, "approvals", "show", rows[0]["id"])[1]["text"].startswith("deploy asks for permission")
    assert said(capsys, "approvals", "allow", rows[0]["id"])[0] == 0
    assert process.communicate(timeout=120)[0].strip() == "deployed"


def test_audit_shows_and_verifies(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = os.path.join(locations.workspace_state(str(workspace)), "audit")
    audit = Audit(folder)
    for number in range(3):
        audit.append({"kind": "call", "tool": f"t{number}", "ok": number != 1, "refused": number == 1})
    audit.close()
    assert [row["tool"] for row in said(capsys, "audit", "show", "-n", "2")[1]] == ["t1", "t2"]
    assert [row["tool"] for row in said(capsys, "audit", "show", "--refused")[1]] == ["t1"]
    assert said(capsys, "audit", "verify")[0] == 0
    path = Path(folder) / "audit.jsonl"
    path.write_text(path.read_text().replace('"t1"', '"t9"'))
    code, answer = said(capsys, "audit", "verify")
    assert code == 1
    assert "audit.jsonl:2: record 2 was changed" in answer["faults"][0]
