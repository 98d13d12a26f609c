"""Record and replay: what a session did, done again, each difference named; and faults on purpose."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from surehand.app import Surehand
from surehand.core.call import ToolResult
from surehand.core.effects import ReadPath
from surehand.core.errors import StateError
from surehand.core.settings import Settings, ToolSettings
from surehand.core.tool import Tool, tool
from surehand.engine.replay import Replayed, differences, judge, read, replay
from surehand.testing import Faults, Playback, scratch_app


@tool(read_only=True)
async def shout(text: str) -> str:
    "Shouts."
    return text.upper()


async def _show(args: Any, ctx: Any) -> ToolResult:
    path = ctx.resolve(args["path"])
    return ToolResult(data={"path": path, "content": Path(path).read_text()}, output=Path(path).read_text())


SHOW = Tool(
    name="show",
    description="Shows a file",
    run=_show,
    args={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    read_only=True,
    effects=lambda args, ctx: [ReadPath(ctx.resolve(args["path"]))],
)


def opened(folder: Path, **options: Any) -> Any:
    return scratch_app(folder, tools=[shout, SHOW], builtin=False, **options)


async def recorded(folder: Path, file: Path) -> None:
    (folder / "a.txt").write_text("one")
    async with opened(folder, record=str(file)) as app:
        await app.call("shout", {"text": "hello"})
        await app.call("show", {"path": str(folder / "a.txt")})
        await app.call("shout", {"wrong": 1})
        await app.call("nobody")


async def again(app: Surehand, file: Path, **options: Any) -> list[Replayed]:
    return [each async for each in replay(read(str(file)), app.executor, app.session, app.selection, **options)]


async def test_a_recording_holds_every_call_and_is_private(tmp_path: Path) -> None:
    file = tmp_path / "calls.jsonl"
    await recorded(tmp_path, file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    recording = read(str(file))
    assert recording.workspace == str(tmp_path)
    assert [each.call.name for each in recording.calls] == ["shout", "show", "shout", "nobody"]
    assert [each.result.ok for each in recording.calls] == [True, True, False, False]
    assert recording.calls[0].verdict == "allow"


@pytest.mark.spec("ENG-9")
async def test_nothing_changed_means_nothing_differs(tmp_path: Path) -> None:
    file = tmp_path / "calls.jsonl"
    await recorded(tmp_path, file)
    async with opened(tmp_path) as app:
        calls = await again(app, file)
    assert [each.differences for each in calls] == [()] * 4
    assert [each.result.meta["call_id"] for each in calls] == [each.recorded.call.id for each in calls]


@pytest.mark.spec("ENG-9")
async def test_a_command_that_differs_in_times_usage_and_temporary_names_alone_does_not_differ(tmp_path: Path) -> None:
    file = tmp_path / "calls.jsonl"
    temporary = "f=$(mktemp); echo made $f, then $f again; rm $f; echo hi > new.txt"
    async with scratch_app(tmp_path, record=str(file)) as app:
        assert (await app.call("Bash", {"command": temporary})).ok
    (tmp_path / "new.txt").unlink()
    async with scratch_app(tmp_path) as app:
        (same,) = await again(app, file)
    assert same.result.data["stdout"] != same.recorded.result.data["stdout"]
    assert same.differences == ()


@pytest.mark.spec("ENG-9")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("1", "2"),
        ("took 0.1 s", "took 0.2 s"),
        ("at 12:00:01", "at 12:00:02"),
        ("/tmp/one", "/tmp/two"),
        ("/tmp/tmp.aaaaaaaaaa", "/tmp/report.txt"),
        ("tmp.aaaaaaaaaa tmp.aaaaaaaaaa", "tmp.bbbbbbbbbb tmp.cccccccccc"),
        ("template", "tmp.aaaaaaaaaa"),
    ],
)
async def test_whatever_else_a_command_prints_is_a_difference(tmp_path: Path, first: str, second: str) -> None:
    file, printed = tmp_path / "calls.jsonl", tmp_path / "printed"
    printed.write_text(first)
    async with scratch_app(tmp_path, record=str(file)) as app:
        assert (await app.call("Bash", {"command": "cat printed"})).ok
    printed.write_text(second)
    async with scratch_app(tmp_path) as app:
        (other,) = await again(app, file)
    assert {each.path for each in other.differences} == {"data.stdout", "output"}


@pytest.mark.spec("ENG-9")
async def test_each_difference_is_named_by_its_place(tmp_path: Path) -> None:
    file = tmp_path / "calls.jsonl"
    await recorded(tmp_path, file)
    (tmp_path / "a.txt").write_text("two")
    async with opened(tmp_path) as app:
        calls = await again(app, file)
        found = calls[1].differences
        assert [(each.path, each.before, each.after) for each in found] == [
            ("data.content", "one", "two"),
            ("output", "one", "two"),
        ]
        ignoring = await again(app, file, ignore=["output", "data.content"])
        assert ignoring[1].differences == ()


async def test_a_recording_moves_with_its_workspace(tmp_path: Path) -> None:
    first, second, file = tmp_path / "first", tmp_path / "second", tmp_path / "calls.jsonl"
    first.mkdir()
    second.mkdir()
    await recorded(first, file)
    (second / "a.txt").write_text("one")
    async with opened(second) as app:
        assert not any(each.differences for each in await again(app, file))


async def test_the_journal_of_a_session_can_be_replayed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    async with opened(tmp_path, session="work", keep_state=True) as app:
        await app.call("show", {"path": "a.txt"})
        journal = Path(str(app.session.state_dir)) / "sessions" / "work.jsonl"
    async with opened(tmp_path) as app:
        (each,) = await again(app, journal)
        assert each.differences == ()


async def test_a_recording_is_judged_against_changed_rules_without_running(tmp_path: Path) -> None:
    file = tmp_path / "calls.jsonl"
    await recorded(tmp_path, file)
    from surehand.core.settings import PermissionSettings

    stricter = Settings(permissions=PermissionSettings(deny=("show",)))
    async with opened(tmp_path, settings=stricter) as app:
        verdicts = judge(read(str(file)), app.executor, app.session, app.selection)
        assert [(each.before, each.after) for each in verdicts] == [
            ("allow", "allow"),
            ("allow", "deny"),
            (None, "error"),
            (None, "error"),
        ]
        assert app.metrics.all() == []


@pytest.mark.parametrize("text", ["", "not json\n", '{"no": "kind"}\n', "[1]\n", '{"kind": "recording"}\n'])
def test_what_is_no_recording_is_said_so(tmp_path: Path, text: str) -> None:
    file = tmp_path / "odd"
    file.write_text(text)
    with pytest.raises(StateError, match="odd"):
        read(str(file))
    with pytest.raises(StateError, match="cannot be read"):
        read(str(tmp_path / "missing"))


def test_differences_look_into_lists_and_objects() -> None:
    before, after = {"a": [1, {"b": 2}], "c": 3}, {"a": [1, {"b": 5}], "d": 4}
    found = {each.path: (each.before, each.after) for each in differences(before, after)}
    assert found == {"a[1].b": (2, 5), "c": (3, None), "d": (None, 4)}
    assert [each.path for each in differences({"a": [1]}, {"a": [1, 2]})] == ["a"]


# Faults --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "code"),
    [("timeout", "timeout"), ("crash", "execution_error"), ("fail", "execution_error"), ("slow", None)],
)
async def test_a_fault_goes_through_the_real_engine(tmp_path: Path, kind: Any, code: str | None) -> None:
    async with opened(tmp_path) as app:
        faults = Faults()
        app.extend(faults)
        faults.inject("shout", kind, times=1)
        struck, after = await app.call("shout", {"text": "a"}), await app.call("shout", {"text": "a"})
        assert (struck.error.code if struck.error else None) == code
        assert after.output == "A"
        assert faults.struck == [("shout", kind)]


async def test_retries_and_the_breaker_meet_injected_faults(tmp_path: Path) -> None:
    settings = Settings(tools={"shout": ToolSettings(retry_attempts=2)})
    async with opened(tmp_path, settings=settings) as app:
        faults = Faults()
        app.extend(faults)
        faults.inject("shout", "crash", times=2)
        assert (await app.call("shout", {"text": "a"})).meta["attempts"] == 3
    async with opened(tmp_path) as app:
        faults = Faults()
        app.extend(faults)
        faults.inject("shout", "crash")
        for _ in range(5):
            await app.call("shout", {"text": "a"})
        assert app.registry.lifecycle.state("shout") == "disabled"


async def test_the_fixture_injects_into_the_application_of_the_test(
    surehand_app: Surehand, surehand_faults: Faults
) -> None:
    surehand_faults.inject("tools.echo", "fail", message="no network")
    result = await surehand_app.call("tools.echo", {"text": "a"})
    assert result.error is not None
    assert result.error.message == "no network"
    surehand_faults.clear()
    assert (await surehand_app.call("tools.echo", {"text": "a"})).output == "a"


async def test_playback_answers_from_a_recording_and_runs_nothing(tmp_path: Path) -> None:
    file = tmp_path / "calls.jsonl"
    await recorded(tmp_path, file)
    (tmp_path / "a.txt").unlink()
    async with opened(tmp_path) as app:
        app.extend(Playback(read(str(file))))
        for _ in range(2):
            assert (await app.call("show", {"path": str(tmp_path / "a.txt")})).output == "one"
        unknown = await app.call("show", {"path": "other"})
        assert unknown.error is not None
        assert "the recording has no such call" in unknown.error.message


async def test_appending_to_a_recording_keeps_one_heading(tmp_path: Path) -> None:
    file = tmp_path / "calls.jsonl"
    await recorded(tmp_path, file)
    await recorded(tmp_path, file)
    kinds = [json.loads(line)["kind"] for line in file.read_text().splitlines()]
    assert kinds == ["recording", *["call"] * 8]
