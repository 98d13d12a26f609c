"""`surehand mcp` from outside: servers added to the user's settings, tried, listed, and forgotten."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.pty_terminal import Terminal

from surehand.cli.main import main

ROUGH = str(Path(__file__).parent.parent / "mcp" / "rough_server.py")


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    code = main(list(words))
    out = capsys.readouterr().out
    return code, json.loads(out) if out.strip() else None


def test_a_server_is_added_tried_listed_and_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ("--cwd", str(tmp_path))
    command = ("--", sys.executable, "-S", ROUGH, "", "--json")
    code, _ = said(capsys, "mcp", "add", "rough", "--env", "CITY=${HOME}", "--timeout", "20", *where, *command)
    assert code == 0
    code, _ = said(capsys, "mcp", "add", "rough", *where, "--", "true")
    assert code == 2
    code, _ = said(capsys, "mcp", "add", "gone", *where, "--url", "http://127.0.0.1:1/mcp")
    assert code == 0
    code, shown = said(capsys, "mcp", "test", "rough", *where)
    assert code == 0
    assert shown["server"]["name"] == "rough"
    assert "mcp__rough__echo" in [each["name"] for each in shown["tools"]]
    code, rows = said(capsys, "mcp", "list", *where)
    assert code == 0
    assert {row["name"]: row["state"] for row in rows} == {"rough": "ready", "gone": "lost"}
    for name in ("rough", "gone"):
        assert said(capsys, "mcp", "remove", name, *where)[0] == 0
    assert said(capsys, "mcp", "list", *where) == (0, [])
    code, shown = said(capsys, "mcp", "test", "rough", *where)
    assert code == 3
    assert shown["error"]["message"] == "MCP server not found: rough"


@pytest.mark.parametrize(
    "words",
    [
        ("a__b", "--", "true"),
        ("x ", "--", "true"),
        ("x",),
        ("x", "--url", "http://y", "--", "true"),
        ("x", "--url", "ftp://y"),
        ("x", "--url", "y.example/mcp"),
        ("x", "--url", "https://"),
    ],
)
def test_what_cannot_be_a_server_is_refused(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "mcp", "add", *words)[0] == 2


def test_a_variable_may_stand_for_an_address(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "mcp", "add", "far", "--url", "${FAR_URL:-http://127.0.0.1:1/mcp}")[0] == 0
    code, shown = said(capsys, "mcp", "test", "far")
    assert code == 1
    assert "the connection failed" in shown["error"]["message"]


@pytest.mark.parametrize("words", [("test", "rough"), ("list",)], ids=" ".join)
def test_a_servers_own_name_steers_no_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    where = ("--cwd", str(tmp_path))
    assert said(capsys, "mcp", "add", "rough", *where, "--", sys.executable, "-S", ROUGH, "", "escapes")[0] == 0
    with Terminal("mcp", *words, *where, cwd=tmp_path) as terminal:
        assert terminal.ended(60) == 0
        assert "rough" in terminal.plain
        assert "\x1b[2J" not in terminal.shown
        assert "\x1b]0;" not in terminal.shown
        assert "\x07" not in terminal.shown


def test_many_servers_are_asked_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Each answers only when all have been started: one after the other, none would.
    script = tmp_path / "meets.py"
    script.write_text(MEETS)
    names = [f"s{number}" for number in range(3)]
    where = ("--cwd", str(tmp_path))
    for name in names:
        words = ("--", sys.executable, "-S", str(script), name, str(tmp_path), str(len(names)))
        assert said(capsys, "mcp", "add", name, *where, *words)[0] == 0
    code, rows = said(capsys, "mcp", "list", *where)
    assert code == 0
    assert {row["name"]: row["state"] for row in rows} == dict.fromkeys(names, "ready")


MEETS = """
import json, os, sys, time
name, folder, count = sys.argv[1:]
open(os.path.join(folder, f"{name}.here"), "w").close()
while sum(each.endswith(".here") for each in os.listdir(folder)) < int(count):
    time.sleep(0.02)
for line in sys.stdin:
    asked = json.loads(line)
    results = {
        "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                       "serverInfo": {"name": name, "version": "1"}},
        "tools/list": {"tools": []},
    }
    if "id" in asked:
        result = results.get(asked["method"])
        answer = {"result": result} if result else {"error": {"code": -32601, "message": "unknown"}}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
"""


@pytest.mark.parametrize("words", [("mcp", "test", "rough"), ("mcp", "list"), ("tools", "list")])
def test_names_that_servers_give_cannot_steer_a_terminal(tmp_path: Path, words: tuple[str, ...]) -> None:
    nasty = "evil\x1b]0;title\x07\u202ename"
    told = [
        {"name": name, "description": nasty, "inputSchema": {"type": "object"}} for name in (nasty, "two\nlines", "a")
    ]
    state = tmp_path / "state.json"
    state.write_text(json.dumps({"tools": told}))
    where = ("--cwd", str(tmp_path))
    assert main(["mcp", "add", "rough", *where, "--", sys.executable, "-S", ROUGH, str(state)]) == 0
    done = subprocess.run(
        [sys.executable, "-m", "surehand", *words, *where, "--text"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    shown = done.stdout + done.stderr
    assert [letter for letter in shown if letter != "\n" and not letter.isprintable()] == []
    assert words[0] == "tools" or "name 'evil" in shown  # what was left out is named, in letters that can be seen
    assert words[1] != "test" or "mcp__rough__a" in shown


def test_an_error_that_a_server_gives_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = {"code": -1, "message": "no\nerror: said by somebody else\x1b[2J"}
    server = (
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    asked = json.loads(line).get('id')\n"
        f"    print(json.dumps({{'jsonrpc': '2.0', 'id': asked, 'error': {error!r}}}), flush=True)\n"
    )
    where = ("--cwd", str(tmp_path))
    assert main(["mcp", "add", "rude", *where, "--", sys.executable, "-S", "-c", server]) == 0
    assert main(["mcp", "test", "rude", *where, "--text"]) == 1
    shown = capsys.readouterr().err
    assert "said by somebody else" in shown
    assert [line for line in shown.splitlines() if line.startswith("error: said")] == []
    assert "\x1b[2J" not in shown
