"""Rewind: each turn is a checkpoint of the transcript and the files, and the way back loses nothing."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.faults import tracing

from surehand import Settings, Surehand, ToolCall, ToolFailure, ToolResult, tool
from surehand.core.model import Message
from surehand.testing import Says, ScriptedModel
from surehand.tools.background import BACKGROUND

pytestmark = pytest.mark.spec("SESS-3")
ALLOWED = ["Write", "Edit", "Read", "Undo", "Redo", "Bash(echo:*)", "Bash(sleep:*)"]


def write(name: str, text: str) -> list[tuple[str, dict[str, str]]]:
    return [("Write", {"file_path": name, "content": text})]


def three_turns() -> ScriptedModel:
    return ScriptedModel(
        write("a.txt", "one\n"),
        "wrote a",
        [("Read", {"file_path": "a.txt"}), ("Edit", {"file_path": "a.txt", "old_string": "one", "new_string": "two"})],
        "edited a",
        write("b.txt", "bee\n"),
        "wrote b",
        "and on",
        "and on again",
    )


async def talk(app: Surehand, model: ScriptedModel, *prompts: str) -> None:
    loop = app.conversation(model)
    for prompt in prompts:
        assert (await loop.ask(prompt)).answered


def said(app: Surehand) -> list[str]:
    return [message.text for message in app.rewinder.transcript().messages if message.role == "user"]


def opened(folder: Path, session: str | None = "work", **more: object) -> Surehand:
    return Surehand(folder, allow=ALLOWED, session=session, **more)  # pyright: ignore[reportArgumentType]


async def test_every_turn_is_a_checkpoint_with_its_prompt(tmp_path: Path) -> None:
    async with opened(tmp_path) as app:
        await talk(app, three_turns(), "write a", "edit a", "write b")
        assert [(each.number, each.prompt) for each in app.session.checkpoints()] == [
            (1, "write a"),
            (2, "edit a"),
            (3, "write b"),
        ]


@pytest.mark.parametrize("session", ["work", None], ids=["kept on disk", "in memory only"])
async def test_a_rewind_puts_files_and_transcript_back_and_the_session_goes_on(
    tmp_path: Path, session: str | None
) -> None:
    async with opened(tmp_path, session) as app:
        model = three_turns()
        loop = app.conversation(model)
        for prompt in ("write a", "edit a", "write b"):
            await loop.ask(prompt)
        result = await app.session.rewind(2)
        assert result.ok, result.output
        assert (tmp_path / "a.txt").read_text() == "one\n"
        assert not (tmp_path / "b.txt").exists()
        assert said(app) == ["write a"]
        assert [message.text for message in loop.messages if message.role == "user"] == ["write a"]
        await loop.ask("go on")
        assert [each.prompt for each in app.checkpoints()] == ["write a", "go on"]
        assert model.requests[-1].messages[-1] == Message("user", "go on")


async def test_a_preview_shows_the_difference_and_changes_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as app:
        await talk(app, three_turns(), "write a", "edit a", "write b")
        result = await app.rewind(2, dry_run=True)
        assert result.ok
        assert "-two" in result.output
        assert "+one" in result.output
        assert (tmp_path / "a.txt").read_text() == "two\n"
        assert len(app.checkpoints()) == 3


async def test_files_or_transcript_can_be_rewound_alone(tmp_path: Path) -> None:
    async with opened(tmp_path) as app:
        await talk(app, three_turns(), "write a", "edit a", "write b")
        await app.rewind(3, transcript=False)
        assert not (tmp_path / "b.txt").exists()
        assert len(app.checkpoints()) == 3
        await app.rewind(2, files=False)
        assert (tmp_path / "a.txt").read_text() == "two\n"
        assert len(app.checkpoints()) == 1


async def test_what_the_user_changed_since_is_shown_and_refused(tmp_path: Path) -> None:
    async with opened(tmp_path) as app:
        await talk(app, three_turns(), "write a", "edit a", "write b")
        (tmp_path / "a.txt").write_text("two, by hand\n")
        result = await app.rewind(2)
        assert result.error is not None
        assert result.error.code == "precondition_failed"
        assert "two, by hand" in result.output
        assert (tmp_path / "b.txt").exists()
        assert len(app.checkpoints()) == 3
        assert (await app.rewind(2, force=True)).ok
        assert (tmp_path / "a.txt").read_text() == "one\n"


async def test_what_the_user_changed_in_other_lines_since_is_kept(tmp_path: Path) -> None:
    lines = [f"line {number}\n" for number in range(20)]
    file = tmp_path / "a.txt"
    file.write_text("".join(lines))
    edit = {"file_path": "a.txt", "old_string": "line 3\n", "new_string": "by the agent\n"}
    async with opened(tmp_path) as app:
        await talk(app, ScriptedModel([("Read", {"file_path": "a.txt"}), ("Edit", edit)], "edited"), "edit a")
        with_both = file.read_text().replace("line 15\n", "by the user\n")
        file.write_text(with_both)
        result = await app.session.rewind(1)
        assert result.ok, result.output
        assert "with what was changed in other lines since" in result.output
        assert file.read_text() == "".join(lines).replace("line 15\n", "by the user\n")
        assert said(app) == []
        assert (await app.undo_rewind()).ok
        assert file.read_text() == with_both


async def test_what_was_done_elsewhere_than_in_files_is_rewound_too(tmp_path: Path) -> None:
    out: list[str] = []

    @tool(undo=lambda args, result: ToolCall("unsend", {}))
    def send(text: str) -> str:
        "Send a letter."
        out.append(text)
        return "sent"

    @tool
    def unsend() -> str:
        "Fetch the last letter back."
        return out.pop()

    async with Surehand(tmp_path, tools=[send, unsend], allow=[*ALLOWED, "send", "unsend"], session="work") as app:
        await talk(app, ScriptedModel([("send", {"text": "hello"})], "sent"), "send it")
        assert (await app.session.rewind(1)).ok
        assert out == []
        assert (await app.undo_rewind()).ok
    assert out == ["hello"]


async def test_a_rewind_can_be_undone_until_the_conversation_goes_on(tmp_path: Path) -> None:
    async with opened(tmp_path) as app:
        model = three_turns()
        await talk(app, model, "write a", "edit a", "write b")
        assert (await app.rewind(2)).ok
        assert (await app.undo_rewind()).ok
        assert (tmp_path / "a.txt").read_text() == "two\n"
        assert (tmp_path / "b.txt").read_text() == "bee\n"
        assert said(app) == ["write a", "edit a", "write b"]
        assert (await app.rewind(3)).ok
        await talk(app, model, "another way")
        refused = await app.undo_rewind()
        assert refused.error is not None
        assert "no rewind to undo" in refused.output


async def test_a_later_process_sees_the_rewound_session(tmp_path: Path) -> None:
    async with opened(tmp_path) as app:
        await talk(app, three_turns(), "write a", "edit a", "write b")
        await app.rewind(3)
    async with opened(tmp_path) as app:
        assert said(app) == ["write a", "edit a"]
        assert (await app.undo_rewind()).ok
        assert len(app.checkpoints()) == 3


async def test_a_branch_goes_on_from_the_turn_and_the_old_session_stays(tmp_path: Path) -> None:
    async with opened(tmp_path) as app:
        await talk(app, three_turns(), "write a", "edit a", "write b")
        assert (await app.rewind(2, branch="other")).ok
        assert len(app.checkpoints()) == 3
        taken = await app.rewind(2, branch="other")
        assert taken.error is not None
        assert "exists already" in taken.output
    async with opened(tmp_path, "other") as app:
        assert said(app) == ["write a"]
    assert (tmp_path / "a.txt").read_text() == "one\n"


async def test_what_rewound_turns_left_running_is_stopped_and_said(tmp_path: Path) -> None:
    model = ScriptedModel([("Bash", {"command": "sleep 600", "run_in_background": True})], "started", "more")
    async with opened(tmp_path) as app:
        await talk(app, model, "start it")
        result = await app.rewind(1)
        assert "Stopped bg_task_1" in result.output
        listed = await app.call("TaskList", {})
        assert "in_progress" not in listed.output


async def test_what_a_background_command_has_changed_so_far_goes_back_when_it_is_stopped(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old\n")
    command = "echo new > a.txt; echo written; sleep 600"
    model = ScriptedModel([("Bash", {"command": command, "run_in_background": True})], "started", "more")
    async with opened(tmp_path) as app:
        await talk(app, model, "start it")
        task = app.session.keep(BACKGROUND).get("bg_task_1")
        while "written" not in task.show_output():
            await asyncio.sleep(0.01)
        preview = await app.rewind(1, dry_run=True)
        assert f"Stops bg_task_1 ({command}) and takes back what it changed." in preview.output
        assert "No file changes" not in preview.output
        assert task.status == "running"
        result = await app.rewind(1)
        assert "Stopped bg_task_1" in result.output
        assert (tmp_path / "a.txt").read_text() == "old\n"
        assert (await app.undo_rewind()).ok
        assert (tmp_path / "a.txt").read_text() == "new\n"


async def test_what_was_stopped_is_said_although_the_rewind_was_refused(tmp_path: Path) -> None:
    calls = [*write("a.txt", "one\n"), ("Bash", {"command": "sleep 600", "run_in_background": True})]
    settings = Settings.parse({"permissions": {"ask": ["Undo"], "allow": ALLOWED}})
    async with Surehand(tmp_path, settings=settings, approver=Says("no"), session="work") as app:
        await talk(app, ScriptedModel(calls, "done"), "go")
        refused = await app.rewind(1)
        assert refused.error is not None
        assert refused.error.code == "permission_denied"
        assert refused.output.endswith("Stopped bg_task_1 (sleep 600).")
        assert len(app.checkpoints()) == 1
    assert (tmp_path / "a.txt").exists()


@pytest.mark.parametrize("branch", [None, "other"])
async def test_a_rewind_cancelled_at_any_step_has_happened_whole_or_not_at_all(
    tmp_path: Path, branch: str | None
) -> None:
    outcomes: set[bool] = set()
    for step in range(20):
        folder = tmp_path / str(step)
        folder.mkdir()
        async with opened(folder) as app:
            loop = app.conversation(three_turns())
            for prompt in ("write a", "edit a", "write b"):
                await loop.ask(prompt)
            rewinding = asyncio.ensure_future(app.rewind(2, branch=branch))
            left = [step]

            def count(event: object, rewinding: asyncio.Future[ToolResult] = rewinding, left: list[int] = left) -> None:
                left[0] -= 1
                if left[0] < 0:
                    rewinding.cancel()

            app.bus.subscribe(count)
            await asyncio.wait([rewinding])
            whole = (folder / "a.txt").read_text() == "one\n"
            assert (folder / "b.txt").exists() == (not whole)
            turns = ["write a"] if whole and branch is None else ["write a", "edit a", "write b"]
            assert said(app) == turns
            assert [message.text for message in loop.messages if message.role == "user"] == turns
            assert app.journal is not None
            assert Path(app.journal.path).with_name("other.jsonl").exists() == (whole and branch is not None)
            outcomes.add(whole)
        if not rewinding.cancelled():
            break
    else:
        pytest.fail("the rewind never came to its end")
    assert outcomes == {True, False}


async def test_a_branch_that_is_there_already_is_told_in_the_preview(tmp_path: Path) -> None:
    async with opened(tmp_path) as app:
        await talk(app, three_turns(), "write a")
        assert (await app.rewind(1, branch="other")).ok
        for dry_run in (True, False):
            refused = await app.rewind(1, branch="other", dry_run=dry_run)
            assert "the session 'other' exists already" in refused.output


async def test_no_rewind_while_a_turn_is_under_way(tmp_path: Path) -> None:
    results: list[ToolResult] = []

    async with opened(tmp_path) as app:
        loop = app.conversation(three_turns())
        await loop.ask("write a")

        def meanwhile(event: object) -> None:
            if getattr(event, "kind", "") == "call_started" and not results:
                results.append(ToolResult())
                running.append(asyncio.ensure_future(app.rewind(1)))

        running: list[asyncio.Future[ToolResult]] = []
        app.bus.subscribe(meanwhile)
        await loop.ask("edit a")
        refused = await running[0]
        assert refused.error is not None
        assert "a turn is still running" in refused.output


async def test_another_process_that_has_the_session_open_is_not_left_behind(tmp_path: Path) -> None:
    async with opened(tmp_path) as first:
        await talk(first, three_turns(), "write a", "edit a", "write b")
        async with opened(tmp_path) as second:
            refused = await second.rewind(2)
            assert refused.error is not None
            assert "open in another process" in refused.output
            assert (await second.rewind(3, transcript=False)).ok
        assert (await first.rewind(2)).ok


async def test_the_rewind_of_one_who_may_not_undo_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path) as app:
        await talk(app, three_turns(), "write a")
    async with Surehand(tmp_path, session="work") as app:
        refused = await app.rewind(1)
        assert refused.error is not None
        assert refused.error.code == "permission_denied"
        assert (tmp_path / "a.txt").exists()
        assert len(app.checkpoints()) == 1


async def test_after_the_end_of_its_session_a_rewind_is_refused_in_words_and_no_model_is_asked(tmp_path: Path) -> None:
    model = three_turns()
    async with opened(tmp_path) as app:
        loop = app.conversation(model)
        await loop.ask("write a")
        await app.rewind(1, transcript=False)
    asked = len(model.requests)
    for refused in (await app.rewind(1), await app.rewind(1, files=False), await app.undo_rewind()):
        assert refused.error is not None
        assert refused.error.code == "tool_unavailable"
        assert "the session is closed" in refused.output
    with pytest.raises(ToolFailure, match="the session is closed"):
        await loop.ask("go on")
    assert len(model.requests) == asked


@pytest.mark.parametrize("name", ["../elsewhere", "a/b", "", ".", "x" * 65, "two words"])
async def test_a_branch_has_a_name_that_sessions_may_have(tmp_path: Path, name: str) -> None:
    async with opened(tmp_path) as app:
        await talk(app, three_turns(), "write a")
        assert app.journal is not None
        sessions = Path(app.journal.path).parent
        before = sorted(sessions.parent.rglob("*.jsonl"))
        for dry_run in (True, False):
            refused = await app.rewind(1, branch=name, dry_run=dry_run)
            assert refused.error is not None
            assert "a session's name is letters, digits" in refused.output
        assert (tmp_path / "a.txt").exists()
        assert sorted(sessions.parent.rglob("*.jsonl")) == before


async def test_a_branch_whose_files_were_not_put_back_is_not_there(tmp_path: Path) -> None:
    async with opened(tmp_path) as app:
        await talk(app, three_turns(), "write a")
    async with Surehand(tmp_path, session="work") as app:
        refused = await app.rewind(1, branch="other")
        assert refused.error is not None
        assert refused.error.code == "permission_denied"
        assert app.journal is not None
        assert [path.name for path in Path(app.journal.path).parent.glob("*.jsonl")] == ["work.jsonl"]


async def test_a_preview_says_what_would_go_back_and_nothing_at_all_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path) as app:
        await talk(app, three_turns(), "write a", "edit a")
        whole = await app.rewind(2, dry_run=True)
        assert whole.output.startswith("Would rewind turn 2, files and transcript.\n--- ")
        alone = await app.rewind(2, files=False, dry_run=True)
        assert alone.output == "Would rewind turn 2, the transcript only."
        files = await app.rewind(2, transcript=False, dry_run=True)
        assert files.output.startswith("Would rewind turn 2, files only.\n--- ")
        branch = await app.rewind(2, branch="other", dry_run=True)
        assert branch.output.startswith("Would go on from before turn 2 as session other, with the files of then.\n---")
        neither = await app.rewind(2, files=False, transcript=False)
        assert neither.error is not None
        assert neither.error.code == "invalid_args"


def surehand(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "surehand", "--cwd", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_a_session_that_is_not_there_is_not_made_by_asking_for_its_turns(tmp_path: Path) -> None:
    for words in (("rewind", "nosuch"), ("rewind", "nosuch", "--to", "1"), ("rewind", "--session", "nosuch")):
        refused = surehand(tmp_path, *words, "--text")
        assert refused.returncode == 2, words
        assert "there is no session 'nosuch' here" in refused.stderr
    assert json.loads(surehand(tmp_path, "sessions", "list", "--json").stdout) == []


async def test_the_command_line_lists_turns_and_rewinds(tmp_path: Path) -> None:
    async with opened(tmp_path) as app:
        await talk(app, three_turns(), "write a", "edit a", "write b")
    turns = json.loads(surehand(tmp_path, "rewind", "--json").stdout)
    assert [(row["number"], row["prompt"], [os.path.basename(each) for each in row["paths"]]) for row in turns] == [
        (1, "write a", ["a.txt"]),
        (2, "edit a", ["a.txt"]),
        (3, "write b", ["b.txt"]),
    ]
    done = surehand(tmp_path, "rewind", "work", "--to", "2", "--json")
    assert done.returncode == 0, done.stderr + done.stdout
    assert (tmp_path / "a.txt").read_text() == "one\n"
    assert surehand(tmp_path, "rewind", "--undo", "--json").returncode == 0
    assert (tmp_path / "b.txt").exists()
    wrong = surehand(tmp_path, "rewind", "--to", "9")
    assert wrong.returncode != 0
    assert "The turns are 1 to 3." in wrong.stdout + wrong.stderr


def rewind_at_points(folder: Path, most: int | None) -> int:
    """Kill a rewind before (at most `most`) system calls spread over it; return how many points there were."""
    home, work = Path(os.environ["SUREHAND_HOME"]), folder / "work"
    work.mkdir()
    asyncio.run(_make_turns(work))
    for place in (home, work):
        shutil.copytree(place, folder / "saved" / place.name)
    whole = tracing.trace(lambda: asyncio.run(_rewind(work)))
    assert whole.status == 0
    outcomes: set[bool] = set()
    points = range(1, whole.calls + 1, 1 if most is None else max(1, whole.calls // most))
    for point in points:
        for place in (home, work):
            shutil.rmtree(place)
            shutil.copytree(folder / "saved" / place.name, place)
        tracing.trace(
            lambda: asyncio.run(_rewind(work)),
            lambda call, point=point: tracing.KILL if call.count == point else None,
        )
        outcomes.add(asyncio.run(_judge(work, point)))
    assert outcomes == {True, False}, "the points must lie on both sides of the rewind"
    return len(points)


async def _make_turns(work: Path) -> None:
    async with opened(work) as app:
        await talk(app, three_turns(), "write a", "edit a", "write b")


async def _rewind(work: Path) -> None:
    async with opened(work) as app:
        assert (await app.rewind(2)).ok


async def _judge(work: Path, point: int) -> bool:
    """Check what must hold after a kill; return whether the rewind had happened."""
    async with opened(work) as app:
        turns = len(app.checkpoints())
        files = (work / "a.txt").read_text(), (work / "b.txt").exists()
        assert (turns, files) in ((3, ("two\n", True)), (1, ("one\n", False))), point
        assert (await app.undo_rewind()).ok == (turns == 1), point
        assert (work / "a.txt").read_text() == "two\n"
        assert said(app) == ["write a", "edit a", "write b"]
    return turns == 1


@pytest.mark.skipif(not tracing.available(), reason="no tracing here")
def test_a_rewind_killed_at_any_step_has_happened_whole_or_not_at_all(tmp_path: Path) -> None:
    assert rewind_at_points(tmp_path, most=25) > 20


@pytest.mark.slow
@pytest.mark.skipif(not tracing.available(), reason="no tracing here")
def test_a_rewind_killed_before_every_system_call_has_happened_whole_or_not_at_all(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    record_property("counted", {"kills of a rewind": rewind_at_points(tmp_path, most=None)})
