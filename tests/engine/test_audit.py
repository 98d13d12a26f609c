"""The audit: every call and refusal in a chain, and every tampering found."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from surehand import Settings, Surehand, Tool, ToolContext, tool
from surehand.core.call import ToolCall, ToolError, ToolResult
from surehand.core.events import Event
from surehand.engine.audit import Audit, line_hash, records, segments, verify
from surehand.policy.policy import Decision
from surehand.testing import Says


def filled(folder: Path, count: int = 5, **options: int) -> Path:
    audit = Audit(str(folder), **options)
    for number in range(count):
        audit.append({"kind": "call", "tool": f"tool{number}"})
    audit.close()
    return folder / "audit.jsonl"


def finished(call: ToolCall, result: ToolResult, decision: Decision | None = None) -> Event:
    data = {"call": call, "result": result, "decision": decision, "bug": False}
    return Event("call_finished", "session_1", call.id, call.name, data)


@pytest.mark.spec("ENG-10")
def test_calls_and_refusals_are_recorded_with_rule_and_approval(tmp_path: Path) -> None:
    audit = Audit(str(tmp_path))
    allowed, refused, asked = (ToolCall("Bash", {"command": name}, id=name) for name in ("ls", "rm", "make"))
    audit(finished(allowed, ToolResult(output="x"), Decision("allow", "ls is read-only")))
    error = ToolError("permission_denied", "no", details={"rules": [{"rule": "Bash(rm:*)"}]})
    audit(finished(refused, ToolResult.failed(error)))
    audit(Event("permission_decided", "s", "make", "Bash", {"answer": "once", "by": "Terminal", "reason": ""}))
    audit(finished(asked, ToolResult(output="x"), Decision("ask", "make is not read-only")))
    audit.close()
    first, second, third = records(str(tmp_path))
    assert (first["ok"], first["verdict"], first["args"]) == (True, "allow", {"command": "ls"})
    assert (second["refused"], second["rules"]) == (True, [{"rule": "Bash(rm:*)"}])
    assert third["approval"] == {"answer": "once", "by": "Terminal"}
    assert verify(str(tmp_path)).ok


@pytest.mark.spec("ENG-10")
def test_no_secret_reaches_the_log(tmp_path: Path) -> None:
    audit = Audit(str(tmp_path))
    args = {
        "headers": {"Authorization": "Bearer SECRETCANARY1"},
        "command": "curl --token SECRETCANARY2",
        "odd": "\ud800",
    }
    audit(finished(ToolCall("X", args), ToolResult.failed(ToolError("execution_error", "api_key=SECRETCANARY3"))))
    audit.close()
    assert "SECRETCANARY" not in (tmp_path / "audit.jsonl").read_text()
    assert verify(str(tmp_path)).ok


def test_an_untouched_chain_is_whole_and_goes_on_in_a_later_process(tmp_path: Path) -> None:
    filled(tmp_path)
    filled(tmp_path)
    found = verify(str(tmp_path))
    assert (found.ok, found.count) == (True, 10)
    assert [record["n"] for record in records(str(tmp_path))] == list(range(1, 11))


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines(keepends=True)


def changed(lines: list[str]) -> list[str]:
    return [*lines[:2], lines[2].replace("tool2", "tool9"), *lines[3:]]


def rehashed(lines: list[str]) -> list[str]:
    """A forger who makes the changed line whole again breaks the next one."""
    record = json.loads(lines[2])
    record.pop("hash")
    record["tool"] = "forged"
    text = json.dumps(record, separators=(",", ":"))
    digest = line_hash(record["prev"], text)
    return [*lines[:2], f'{text[:-1]},"hash":"{digest}"}}\n', *lines[3:]]


TAMPERINGS: list[tuple[Callable[[list[str]], list[str]], str]] = [
    (changed, "audit.jsonl:3: record 3 was changed"),
    (rehashed, "audit.jsonl:4: record 4 does not continue record 3"),
    (lambda lines: [*lines[:2], *lines[3:]], "record 4 does not follow record 2: 1 missing"),
    (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], "does not follow"),
    (lambda lines: lines[:-2], "the end is missing: records 4 to 5"),
    (lambda lines: lines[1:], "record 2 does not follow record 0: 1 missing"),
    (lambda lines: [*lines, lines[-1]], "record 5 does not follow record 5"),
    (lambda lines: [*lines[:2], "garbage\n", *lines[2:]], "audit.jsonl:3: the line is broken"),
    (lambda lines: [*lines[:-1], lines[-1][:20]], "the line is broken"),
    (lambda lines: [], "the end is missing: records 1 to 5"),
]


@pytest.mark.parametrize(("tamper", "says"), TAMPERINGS)
def test_every_kind_of_tampering_is_found(tmp_path: Path, tamper: Callable[[list[str]], list[str]], says: str) -> None:
    path = filled(tmp_path)
    path.write_text("".join(tamper(lines_of(path))))
    found = verify(str(tmp_path))
    assert not found.ok
    assert any(says in str(fault) for fault in found.faults), [str(fault) for fault in found.faults]


def test_a_log_without_its_head_says_that_a_cut_would_not_show(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "audit.head").unlink()
    assert "would not show" in str(verify(str(tmp_path)).faults[0])


@pytest.mark.parametrize("torn", ['{"n":6,"prev":"ab', "x" * 200_000])
def test_a_line_that_a_crash_cut_short_is_taken_away_at_the_next_opening(tmp_path: Path, torn: str) -> None:
    path = filled(tmp_path)
    with path.open("a") as file:
        file.write(torn)
    filled(tmp_path, 2)
    found = verify(str(tmp_path))
    assert found.ok, [str(fault) for fault in found.faults]
    assert [record["n"] for record in records(str(tmp_path))] == list(range(1, 8))


def test_a_crash_between_line_and_head_breaks_nothing(tmp_path: Path) -> None:
    path, head = filled(tmp_path), tmp_path / "audit.head"
    before = head.read_bytes()
    filled(tmp_path, 1)
    head.write_bytes(before)
    filled(tmp_path, 1)
    assert verify(str(tmp_path)).ok
    assert len(lines_of(path)) == 7


@pytest.mark.parametrize("keep", [0, 3])
def test_an_end_that_was_cut_off_shows_for_ever_also_after_further_calls_and_rotation(
    tmp_path: Path, keep: int
) -> None:
    path = filled(tmp_path)
    path.write_text("".join(lines_of(path)[:keep]))
    filled(tmp_path, 30, limit_bytes=1000)
    filled(tmp_path, 30, limit_bytes=1000)
    assert len(segments(str(tmp_path))) > 2
    found = verify(str(tmp_path))
    assert [fault.text for fault in found.faults] == [
        f"record 6 does not follow record {keep}: {5 - keep} missing before it"
    ]


def forged(lines: list[str], count: int) -> list[str]:
    """Return lines that continue a chain as it should be: whoever can write can hash."""
    for _ in range(count):
        last = json.loads(lines[-1])
        text = json.dumps({"n": last["n"] + 1, "prev": last["hash"], "kind": "call"}, separators=(",", ":"))
        lines = [*lines, f'{text[:-1]},"hash":"{line_hash(last["hash"], text)}"}}\n']
    return lines


@pytest.mark.parametrize("count", [0, 2, 3, 9])
@pytest.mark.parametrize("head", ["kept", "removed", "emptied", "unreadable"])
def test_an_end_that_was_cut_off_and_written_anew_shows_for_ever(tmp_path: Path, count: int, head: str) -> None:
    path = filled(tmp_path)
    path.write_text("".join(forged(lines_of(path)[:2], count)))
    if head != "kept":
        (tmp_path / "audit.head").write_text("" if head == "emptied" else "nonsense")
    if head == "removed":
        (tmp_path / "audit.head").unlink()
    assert not verify(str(tmp_path)).ok
    filled(tmp_path, 30, limit_bytes=1000)
    filled(tmp_path, 1)
    assert len(segments(str(tmp_path))) > 2
    assert not verify(str(tmp_path)).ok


def test_a_crash_at_the_very_first_record_breaks_nothing(tmp_path: Path) -> None:
    Audit(str(tmp_path)).close()
    begun = (tmp_path / "audit.head").read_bytes()
    filled(tmp_path, 1)
    (tmp_path / "audit.head").write_bytes(begun)
    assert verify(str(tmp_path)).ok
    filled(tmp_path, 1)
    assert verify(str(tmp_path)).ok


def test_a_head_that_the_kernel_writes_in_parts_is_written_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.pwrite

    def write_half(descriptor: int, data: bytes, at: int) -> int:
        return write(descriptor, data[: len(data) // 2 or 1], at)

    monkeypatch.setattr(os, "pwrite", write_half)
    for _ in range(2):
        audit = Audit(str(tmp_path))
        audit.append({"kind": "call"})
        audit.close()
    assert verify(str(tmp_path)).ok


def test_rotation_sets_files_aside_and_the_chain_goes_on(tmp_path: Path) -> None:
    filled(tmp_path, 30, limit_bytes=1000)
    assert len(segments(str(tmp_path))) > 2
    found = verify(str(tmp_path))
    assert (found.ok, found.count) == (True, 30)
    os.unlink(segments(str(tmp_path))[1][1])
    assert "missing before it" in str(verify(str(tmp_path)).faults[0])


def test_an_empty_audit_is_whole(tmp_path: Path) -> None:
    assert verify(str(tmp_path / "absent")).to_dict()["ok"] is True


APPENDING = """
import sys
import threading
from surehand.engine.audit import Audit
audit = Audit(sys.argv[1], limit_bytes=20_000)
for number in range(100):
    audit.append({"kind": "call", "who": sys.argv[2], "number": number})
"""


def test_several_processes_append_to_one_chain(tmp_path: Path) -> None:
    running = [subprocess.Popen([sys.executable, "-c", APPENDING, str(tmp_path), str(who)]) for who in range(4)]
    assert [process.wait(60) for process in running] == [0] * 4
    found = verify(str(tmp_path))
    assert found.ok, [str(fault) for fault in found.faults]
    assert found.count == 400
    seen = [(record["who"], record["number"]) for record in records(str(tmp_path))]
    assert len(set(seen)) == 400


@tool()
async def act(text: str) -> str:
    "Changes something out there."
    return text


@tool(read_only=True)
async def look() -> str:
    "Looks."
    return "seen"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SUREHAND_HOME", str(tmp_path / "home"))
    (tmp_path / "ws").mkdir()
    return tmp_path / "home"


def opened(tmp_path: Path, *tools: Tool) -> Surehand:
    return Surehand(
        tmp_path / "ws", settings=Settings(), approver=Says("once"), tools=tools, builtin=False, plugins=False
    )


def folder_of(app: Surehand) -> Path:
    assert app.session.state_dir is not None
    return Path(app.session.state_dir) / "audit"


async def test_what_changes_something_is_written_down_before_it_runs(home: Path, tmp_path: Path) -> None:
    seen: list[list[str]] = []

    @tool()
    async def change() -> None:
        "Changes something."
        seen.append([record["kind"] for record in records(str(folder_of(app)))])

    async with opened(tmp_path, change, look) as app:
        assert (await app.call("change")).ok
        assert (await app.call("look")).ok
    assert seen == [["intent"]]
    kept = list(records(str(folder_of(app))))
    assert [(record["kind"], record["tool"]) for record in kept] == [
        ("intent", "change"),
        ("call", "change"),
        ("call", "look"),
    ]
    assert kept[0]["approval"]["answer"] == "once"
    assert verify(str(folder_of(app))).ok


async def test_where_nothing_can_be_recorded_reads_run_and_say_so_and_changes_are_refused(
    home: Path, tmp_path: Path
) -> None:
    async with opened(tmp_path, act, look) as app:
        pass
    folder = folder_of(app)
    for each in folder.iterdir():
        each.unlink()
    folder.rmdir()
    folder.touch()  # a file stands in its place
    async with opened(tmp_path, act, look) as app:
        assert "not audited" in app.warnings[0]
        read, change = await app.call("look"), await app.call("act", {"text": "x"})
        assert read.ok
        assert str(folder) in read.meta["unrecorded"]
        assert change.error is not None
        assert change.error.code == "precondition_failed"
        assert "Nothing was changed" in change.error.hint
        folder.unlink()  # mended while it runs
        assert (await app.call("act", {"text": "y"})).ok
        assert "unrecorded" not in (await app.call("look")).meta
    kept = [(record["kind"], record["tool"]) for record in records(str(folder))]
    assert sorted(kept) == sorted(
        [("intent", "act"), ("call", "look"), ("call", "act"), ("call", "act"), ("call", "look")]
    )
    assert verify(str(folder)).ok


async def test_the_first_read_after_the_log_became_unwritable_says_so(home: Path, tmp_path: Path) -> None:
    async with opened(tmp_path, look) as app:
        assert "unrecorded" not in (await app.call("look")).meta
        folder = folder_of(app)
        while not list(records(str(folder))):
            await asyncio.sleep(0.01)
        for each in folder.iterdir():
            each.unlink()
        folder.rmdir()
        folder.touch()  # a file stands in its place
        assert str(folder) in (await app.call("look")).meta["unrecorded"]
        folder.unlink()


async def test_a_long_argument_is_cut_before_it_is_masked_and_no_secret_survives_at_the_cut(
    home: Path, tmp_path: Path
) -> None:
    secret = "sk-ant-" + "SECRETCANARY" * 8
    text = "x" * 1960 + " " + secret + " " + "y" * 1_000_000
    async with opened(tmp_path, act) as app:
        assert (await app.call("act", {"text": text})).ok
    written = (folder_of(app) / "audit.jsonl").read_text()
    assert "SECRETCANARY" not in written
    assert f"({len(text)} characters)" in written
    assert len(written) < 10_000


async def test_records_of_reads_are_written_on_the_way_fifty_at_a_time(tmp_path: Path) -> None:
    @tool(read_only=True)
    async def look(name: str) -> str:
        "Look."
        return name

    async with Surehand(tmp_path, tools=[look], builtin=False, settings=Settings()) as app:
        assert (await app.call("look", {"name": "first, which is checked in a thread"})).ok
        audit = app.executor.ledger
        assert isinstance(audit, Audit)
        audit.flush()
        for number in range(60):
            assert (await app.call("look", {"name": str(number)})).ok
        assert len(list(records(audit.folder))) >= 51
    assert len(list(records(audit.folder))) == 61
    assert verify(audit.folder).ok


@pytest.mark.parametrize("allowed", [True, False])
async def test_nested_arguments_are_masked_in_a_thread(tmp_path: Path, allowed: bool) -> None:
    masked_in = set[threading.Thread]()

    class Word(str):
        def lower(self) -> str:
            masked_in.add(threading.current_thread())
            return super().lower()

    async def take(args: Any, ctx: ToolContext) -> str:
        return "taken"

    taker = Tool(name="take", description="Take.", args={"type": "object"}, run=take)
    async with Surehand(tmp_path, tools=[taker], builtin=False, allow=["take"] if allowed else []) as app:
        result = await app.call("take", {"items": [Word("a word")]})
        assert result.ok is allowed
        audit = app.executor.ledger
        assert isinstance(audit, Audit)
        while not (found := list(records(audit.folder))) or found[-1]["kind"] != "call":
            await asyncio.sleep(0.01)
    assert found[-1]["args"] == {"items": ["a word"]}
    assert masked_in
    assert threading.main_thread() not in masked_in
