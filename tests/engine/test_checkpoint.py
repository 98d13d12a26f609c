"""A session's journal is read once: what it comes to is kept beside it, and it does not grow for ever."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from surehand import Settings, Surehand
from surehand.cli.main import main
from surehand.core.settings import HistorySettings
from surehand.engine.journal import Journal, checkpoint_path, list_sessions, read_past, records
from surehand.state import locations
from surehand.testing import Says


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SUREHAND_HOME", str(tmp_path / "home"))
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws/a.txt").write_text("one\n")
    return tmp_path / "ws"


def journal_of(workspace: Path, name: str = "work") -> Path:
    return Path(locations.workspace_state(str(workspace)), "sessions", f"{name}.jsonl")


async def fill(workspace: Path, calls: int, **options: Any) -> None:
    """Work in a session: read a file, and call so often that its journal is large."""
    async with Surehand(workspace, session="work", approver=Says("session"), **options) as app:
        assert (await app.call("Read", {"file_path": "a.txt"})).ok
        for number in range(calls):
            assert (await app.call("calculate", {"expression": f"{number} + 1"})).ok


async def test_a_session_goes_on_without_reading_its_old_records_again(workspace: Path) -> None:
    await fill(workspace, 120)
    journal = journal_of(workspace)
    [before] = list_sessions(str(journal.parent))  # reads it all, and leaves a checkpoint
    assert Path(checkpoint_path(str(journal))).exists()
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(b"x" * (len(line) - 1) + b"\n" for line in lines[:-5]) + b"".join(lines[-5:]))
    async with Surehand(workspace, session="work", approver=Says("session")) as app:
        edited = await app.call("Edit", {"file_path": "a.txt", "old_string": "one", "new_string": "two"})
        assert edited.ok, edited.output  # it is known that the file was read
    [after] = list_sessions(str(journal.parent))
    assert (after.calls, after.workspace) == (before.calls + 1, str(workspace))


@pytest.mark.parametrize("damage", ["no json", "other journal", "nonsense"])
async def test_a_checkpoint_that_does_not_fit_costs_nothing_but_time(workspace: Path, damage: str) -> None:
    await fill(workspace, 120)
    journal = journal_of(workspace)
    kept = Path(checkpoint_path(str(journal)))
    past = read_past(str(journal)).to_dict()
    if damage == "no json":
        kept.write_text("{")
    elif damage == "nonsense":
        kept.write_text(json.dumps(json.loads(kept.read_text()) | {"past": {"calls": "many"}}))
    else:
        kept.write_text(json.dumps(json.loads(kept.read_text()) | {"mark": "another"}))
    assert read_past(str(journal)).to_dict() == past


async def test_a_line_that_is_not_whole_yet_is_left_to_the_next_reader(workspace: Path) -> None:
    await fill(workspace, 120)
    journal = journal_of(workspace)
    lines = journal.read_bytes().splitlines(keepends=True)
    finished = next(line for line in reversed(lines) if b'"call_finished"' in line)
    calls = read_past(str(journal)).calls
    with journal.open("ab") as file:
        file.write(finished[:50])
    assert read_past(str(journal)).calls == calls
    with journal.open("ab") as file:
        file.write(finished[50:])
    assert read_past(str(journal)).calls == calls + 1


async def test_a_journal_above_its_limit_drops_its_older_half_and_nothing_it_came_to(workspace: Path) -> None:
    await fill(workspace, 30)
    journal = journal_of(workspace)
    with journal.open("ab") as file:
        for _ in range(60):
            file.write(json.dumps({"kind": "note", "data": {"message": "x" * 20_000}}).encode() + b"\n")
    settings = Settings(history=HistorySettings(session_mb=1))
    async with Surehand(workspace, session="work", approver=Says("session"), settings=settings) as app:
        assert journal.stat().st_size < 600_000
        edited = await app.call("Edit", {"file_path": "a.txt", "old_string": "one", "new_string": "two"})
        assert edited.ok, edited.output
    first, *rest = records(str(journal))
    assert (first["kind"], first["data"]["calls"]) == ("past", 31)
    assert sum(record["kind"] == "call_finished" for record in rest) == 1
    assert read_past(str(journal)).calls == 32


def test_a_journal_that_others_have_open_is_not_shortened_under_them(tmp_path: Path) -> None:
    path = tmp_path / "work.jsonl"
    other = Journal(str(path), "session_work")
    for number in range(100):
        other.append({"kind": "note", "data": {"message": f"{number}"}})
    second = Journal(str(path), "session_work", limit_bytes=100)
    other.append({"kind": "note", "data": {"message": "last"}})
    assert len(list(second.records())) == 101
    for each in (other, second):
        each.close()
    alone = Journal(str(path), "session_work", limit_bytes=100)
    alone.append({"kind": "note", "data": {"message": "after"}})
    found = list(alone.records())
    alone.close()
    assert (found[0]["kind"], found[-1]["data"]["message"]) == ("past", "after")
    assert len(found) < 10
    assert sorted(os.listdir(tmp_path)) == ["work.jsonl"]


async def test_show_ends_with_the_latest_records_and_log_has_pages(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Surehand(workspace, session="work", approver=Says("session")) as app:
        for number in range(5):
            assert (await app.call("Write", {"file_path": f"{number}.txt", "content": "x\n"})).ok

    def run(*words: str) -> Any:
        assert main([*words, "--json", "--cwd", str(workspace)]) == 0
        return json.loads(capsys.readouterr().out)

    every, some = run("sessions", "show", "work", "--limit", "0"), run("sessions", "show", "work", "-n", "3")
    assert some == every[-3:]
    first = run("log", "--limit", "3")
    assert [each["id"] for each in first["changes"]] == ["5", "4", "3"]
    second = run("log", "--limit", "3", "--before", first["before"])
    assert [each["id"] for each in second["changes"]] == ["2", "1"]
    assert "before" not in second
