"""`surehand shell parse`, one command or a batch."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from surehand.cli.main import main


@pytest.mark.spec("CLI-3")
def test_parse_prints_one_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--cwd", str(tmp_path), "shell", "parse", "cat a | sort -u > b"])
    facts = json.loads(capsys.readouterr().out)
    assert code == 0
    assert (facts["ok"], facts["error"], facts["class"], facts["read_only"]) == (True, None, "write", False)
    assert [(each["name"], each["words"], each["position"]) for each in facts["commands"]] == [
        ("cat", ["cat", "a"], 0),
        ("sort", ["sort", "-u"], 1),
    ]
    assert facts["redirects"] == [{"op": ">", "fd": "", "target": "b", "static": True}]


def test_parse_of_a_broken_command_says_so_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shell", "parse", "echo 'abc"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert facts["ok"] is False
    assert "quote" in facts["error"]


def test_a_batch_answers_every_line_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    requests = tmp_path / "requests.jsonl"
    lines = [
        '{"command": "ls"}',
        "not json",
        '{"command": 5}',
        '["ls"]',
        '{"command": "rm x"}',
        '{"command": "\\ud800"}',
    ]
    requests.write_text("\n".join(lines) + "\n")
    assert main(["shell", "parse", "--batch", str(requests)]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["ok"], each["read_only"]) for each in answers] == [
        (True, True), (False, False), (False, False), (False, False), (True, False), (False, False),
    ]  # fmt: skip
    assert all({"ok", "error", "class", "read_only", "commands", "redirects"} <= each.keys() for each in answers)


def test_a_batch_reads_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"command": "git status"}\n'))
    assert main(["shell", "parse", "--batch", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["read_only"] is True


def test_bad_usage_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shell", "parse"]) == 2
    assert main(["shell", "parse", "ls", "--batch", "-"]) == 2
    assert main(["shell", "parse", "--batch", "/nothing/here"]) == 2
    assert "cannot be read" in capsys.readouterr().err
