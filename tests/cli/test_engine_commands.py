"""The commands over the engine: stats, health, replay, tools new."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from surehand.cli.main import main
from surehand.cli.stats import format_histogram
from surehand.engine.metrics import Sketch


class Command:
    """The command line over one folder, run in this process."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder = folder
        self._capsys = capsys

    def __call__(self, *words: str) -> tuple[int, str, str]:
        code = main(["--cwd", str(self._folder), *words])
        said = self._capsys.readouterr()
        return code, said.out, said.err

    def facts(self, *words: str) -> Any:
        _, out, err = self(*words)
        assert out, err
        return json.loads(out)


@pytest.fixture
def surehand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(tmp_path, capsys)


def test_events_since_a_time_as_undo_takes_it_and_of_kinds_there_are(
    surehand: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    surehand("tools", "invoke", "time.now", "--session", "clock")
    for since in ("10 min", "2h", "00:00", "2026-01-31 14:30"):
        _, out, _ = surehand("events", "--since", since, "--session", "clock", "--kind", "call_finished", "--json")
        assert [json.loads(line)["tool"] for line in out.splitlines()] == ["time.now"], since
    for option, value, said in (
        ("--since", "noon", "10 min"),
        ("--kind", "call_ended", "call_finished"),
    ):
        with pytest.raises(SystemExit):
            surehand("events", option, value)
        assert said in capsys.readouterr().err


@pytest.mark.spec("CLI-4")
def test_stats_adds_up_what_named_sessions_measured(surehand: Command) -> None:
    assert surehand.facts("stats") == []
    code, out, _ = surehand("stats", "--prometheus")
    assert code == 1  # an empty text would read as "all is well"
    assert "nothing was measured" in out
    for _ in range(2):
        surehand("tools", "invoke", "tools.echo", "--args", '{"text": "x"}', "--session", "work")
    surehand("tools", "invoke", "tools.echo", "--args", "{}", "--session", "work")
    (row,) = surehand.facts("stats")
    assert row["tool"] == "tools.echo"
    assert row["execution"]["totalCalls"] == 3
    assert row["errors"]["validationErrors"] == 1
    assert surehand.facts("stats", "--advice")["advice"] == []
    _, text, _ = surehand("stats", "--prometheus")
    assert 'surehand_tool_calls_total{tool="tools.echo",outcome="success"} 2' in text
    code, out, _ = surehand("stats", "nothing")
    assert code == 1
    assert "tools.echo" in json.loads(out)["error"]["hint"]
    surehand.facts("stats", "--clear")
    assert surehand.facts("stats") == []


def test_a_spread_is_drawn_from_fast_to_slow() -> None:
    sketch = Sketch()
    for _ in range(100):
        sketch.add(0.001)
    sketch.add(1.0)
    plot = format_histogram(sketch)
    assert (plot[0], plot[-1], len(plot)) == ("█", "▂", 16)
    assert format_histogram(Sketch()) == ""


def test_health_checks_all_tools_or_some(surehand: Command) -> None:
    rows = surehand.facts("health")
    assert {row["status"] for row in rows} == {"healthy"}
    assert "tools.echo" in {row["tool"] for row in rows}
    code, out, _ = surehand("health", "tools.echo", "nobody")
    assert code == 1
    assert [row["status"] for row in json.loads(out)] == ["healthy", "not_found"]


def test_a_recorded_call_is_replayed_and_differences_are_told(tmp_path: Path, surehand: Command) -> None:
    file = tmp_path / "calls.jsonl"
    (tmp_path / "a.txt").write_text("one")
    for name, args in (("fs.read_file", '{"path": "a.txt"}'), ("time.now", "{}")):
        surehand("tools", "invoke", name, "--args", args, "--record", str(file))
    code, out, _ = surehand(
        "replay", str(file), "--ignore", "data.timestamp", "--ignore", "data.iso", "--ignore", "output"
    )
    assert (code, json.loads(out)["different"]) == (0, 0)
    (tmp_path / "a.txt").write_text("two")
    code, out, _ = surehand("replay", str(file))
    told = json.loads(out)
    assert code == 1
    assert told["results"][0]["differences"][0]["path"] == "data.content"
    code, out, _ = surehand("replay", str(file), "--judge")
    assert code == 0
    assert [row["after"] for row in json.loads(out)["verdicts"]] == ["allow", "allow"]
    code, out, _ = surehand("replay", str(tmp_path / "a.txt"))
    assert code == 2
    assert "not a line of a recording" in json.loads(out)["error"]["message"]


def test_a_new_tool_works_as_written_and_its_test_passes(tmp_path: Path, surehand: Command) -> None:
    told = surehand.facts("tools", "new", "first_words")
    assert told["tool"] == ".surehand/tools/first_words.py"
    test = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-o", "asyncio_mode=auto", "-p", "no:cacheprovider", told["test"]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert "2 passed" in test.stdout, test.stdout + test.stderr
    assert surehand("trust", "--yes")[0] == 0
    result = surehand.facts("tools", "invoke", "first_words", "--args", '{"text": "a b"}')
    assert result["data"] == {"count": 2, "first": ["a", "b"]}
    assert "first_words" in {row["name"] for row in surehand.facts("tools", "list")}


@pytest.mark.parametrize("name", ["two words", "class", "1st", "näme", "../x"])
def test_a_name_that_is_no_function_is_refused_with_a_better_one(surehand: Command, name: str) -> None:
    code, out, _ = surehand("tools", "new", name)
    assert code == 2
    assert json.loads(out)["error"]["hint"].startswith("Try '")


def test_a_tool_that_is_there_is_not_overwritten(tmp_path: Path, surehand: Command) -> None:
    surehand("tools", "new", "mine")
    path = tmp_path / ".surehand" / "tools" / "mine.py"
    path.write_text("changed")
    assert surehand("tools", "new", "mine")[0] == 1
    assert path.read_text() == "changed"


def test_the_list_shows_tools_of_installed_packages(
    tmp_path: Path, surehand: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sample_listed_plugin.py").write_text(
        "from surehand import tool\n\n"
        "@tool(read_only=True)\ndef plugged() -> str:\n    'From a package.'\n    return ''\n"
    )
    info = tmp_path / "sample_listed_plugin-1.0.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text("[surehand.tools]\nsample = sample_listed_plugin\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (row,) = [row for row in surehand.facts("tools", "list") if row["name"] == "plugged"]
    assert (row["module"], row["description"]) == ("sample", "From a package.")
    assert surehand.facts("tools", "invoke", "mcp__sample__plugged")["ok"]
