"""Batches: each task in a workspace of its own, exactly one result each, and what a person does with them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from surehand import Question, Surehand
from surehand.batch.tasks import ResultsFile, TaskResult, read_results, read_tasks
from surehand.core.errors import SettingsError, StateError, ToolFailure
from surehand.core.events import Event
from surehand.state.locations import batch_folder
from surehand.testing import ScriptedModel
from surehand.workspaces.snapshot import Snapshot, with_statuses

pytestmark = pytest.mark.spec("BATCH-1")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    root.mkdir()
    (root / "sum.py").write_text("def add(a, b):\n    return a - b\n")
    (root / ".env").write_text("PASSWORD=hunter2\n")
    (root / ".gitignore").write_text("*.log\n")
    (root / "old.log").write_text("noise\n")
    return root


def git(folder: Path, *words: str) -> str:
    quiet = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
    return subprocess.run(["git", *quiet, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


def commit_all(folder: Path) -> None:
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")


def edit(old: str, new: str, file: str = "sum.py") -> dict[str, Any]:
    return {"tool": "Edit", "args": {"file_path": file, "old_string": old, "new_string": new}}


def bash(command: str) -> dict[str, Any]:
    return {"tool": "Bash", "args": {"command": command}}


READ = {"tool": "Read", "args": {"file_path": "sum.py"}}
FIX = [READ, edit("a - b", "a + b")]
CHECK = "python3 -c 'import sum; assert sum.add(1, 2) == 3'"


async def run(app: Surehand, tasks: list[Any], **options: Any) -> dict[str, TaskResult]:
    return {result.id: result async for result in app.batch(tasks, **options)}


async def test_every_task_works_in_a_workspace_of_its_own_and_its_diff_is_a_patch(work: Path) -> None:
    tasks = [
        {"id": "fix", "calls": FIX, "check": CHECK},
        {"id": "spoil", "calls": [READ, edit("a - b", "a * b")], "check": CHECK},
        {"id": "look", "calls": [READ]},
    ]
    async with Surehand(work) as app:
        found = await run(app, tasks, parallel=3)
    assert {name: result.status for name, result in found.items()} == {
        "fix": "passed",
        "spoil": "failed",
        "look": "passed",
    }
    assert found["spoil"].check is not None
    assert found["spoil"].check["exit_code"] == 1
    assert "+    return a + b\n" in found["fix"].diff
    assert found["look"].diff == ""
    assert [call["tool"] for call in found["fix"].calls] == ["Read", "Edit"]
    assert (work / "sum.py").read_text() == "def add(a, b):\n    return a - b\n"


async def test_a_prompt_runs_a_conversation_with_tokens_turns_and_the_answer(work: Path) -> None:
    def model(task: Any) -> ScriptedModel:
        return ScriptedModel([("Read", {"file_path": "sum.py"})], [("Edit", FIX[1]["args"])], f"did {task.id}")

    async with Surehand(work) as app:
        found = await run(app, [{"id": "a", "prompt": "fix add", "check": CHECK}], model=model)
    result = found["a"]
    assert (result.status, result.answer, result.turns) == ("passed", "did a", 3)
    assert result.usage["output_tokens"] > 0
    assert result.model == "scripted/scripted"


async def test_a_clean_repository_gives_worktrees_at_a_revision_and_none_is_left(work: Path) -> None:
    commit_all(work)
    (work / "sum.py").write_text("def add(a, b):\n    return a // b\n")
    git(work, "commit", "-qam", "second")
    first = {"path": str(work), "revision": "HEAD~1"}
    tasks = [
        {"id": "now", "calls": [READ, edit("a // b", "a + b")]},
        {
            "id": "then",
            "calls": [*FIX, {"tool": "Bash", "args": {"command": "git log --oneline | wc -l"}}],
            "workspace": first,
        },
    ]
    async with Surehand(work) as app:
        found = await run(app, tasks)
    assert {result.status for result in found.values()} == {"passed"}, found
    assert "-    return a // b" in found["now"].diff
    assert "-    return a - b" in found["then"].diff
    assert found["then"].calls[-1]["output"].strip() == "1"
    assert git(work, "worktree", "list").count("\n") == 1
    assert git(work, "status", "--porcelain") == ""


async def test_a_copy_has_what_is_ignored_but_no_secret_and_the_diff_has_neither(work: Path) -> None:
    look = bash("ls -A; echo more > new.log; echo x > made.txt; python3 -c \"open('server' + '.key', 'w').write('k')\"")
    rules = ["allow Bash"]
    async with Surehand(work) as app:
        found = await run(app, [{"id": "a", "calls": [look], "rules": rules}])
    listed = found["a"].calls[0]["output"].split()
    assert "old.log" in listed
    assert ".env" not in listed
    assert [each["path"] for each in found["a"].files] == ["made.txt"]
    assert "hunter2" not in json.dumps(found["a"].to_dict())


async def test_archives_are_unpacked_and_one_that_leads_out_is_an_error(work: Path, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.tar.gz", tmp_path / "bad.tar"
    with tarfile.open(good, "w:gz") as tar:
        tar.add(work / "sum.py", "sum.py")
    with tarfile.open(bad, "w") as tar:
        tar.add(work / "sum.py", "../../out.py")
    tasks = [{"id": "g", "calls": FIX, "workspace": str(good)}, {"id": "b", "calls": FIX, "workspace": str(bad)}]
    async with Surehand(work) as app:
        found = await run(app, tasks)
    assert found["g"].status == "passed"
    assert found["b"].status == "error"


async def test_a_repository_elsewhere_is_cloned_over_http(work: Path, tmp_path: Path) -> None:
    import functools
    import threading
    from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

    commit_all(work)
    git(tmp_path, "clone", "-q", "--bare", str(work), "served.git")
    git(tmp_path / "served.git", "update-server-info")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/served.git"
    try:
        async with Surehand(work) as app:
            found = await run(app, [{"id": "a", "calls": FIX, "workspace": {"git": address, "revision": "main"}}])
    finally:
        server.shutdown()
    assert found["a"].status == "passed", found["a"].error
    assert "+    return a + b" in found["a"].diff


async def test_what_fails_is_tried_again_from_a_fresh_workspace(work: Path) -> None:
    tries: list[int] = []

    def model(task: Any) -> ScriptedModel:
        tries.append(len(tries))
        right = "a + b" if len(tries) == 2 else "a * b"
        return ScriptedModel([("Read", {"file_path": "sum.py"})], [("Edit", edit("a - b", right)["args"])], "done")

    async with Surehand(work) as app:
        found = await run(app, [{"id": "a", "prompt": "fix", "check": CHECK}], model=model, retries=3)
    assert (found["a"].status, found["a"].attempts, len(tries)) == ("passed", 2, 2)


async def test_a_task_that_takes_too_long_is_stopped_and_says_so(work: Path) -> None:
    slow = {"tool": "Bash", "args": {"command": "sleep 60"}}
    async with Surehand(work) as app:
        found = await run(app, [{"id": "a", "calls": [slow], "timeout": 1.0, "rules": ["allow Bash"]}])
    assert found["a"].status == "timeout"
    assert found["a"].error is not None


async def test_nobody_is_asked_and_denied_calls_fail_the_task(work: Path) -> None:
    remove = {"tool": "Bash", "args": {"command": "rm sum.py"}}
    tasks = [{"id": "ask", "calls": [remove]}, {"id": "deny", "calls": FIX, "rules": ["deny Edit"]}]
    async with Surehand(work) as app:
        found = await run(app, tasks)
    assert [found[name].calls[-1]["error"]["code"] for name in ("ask", "deny")] == ["permission_denied"] * 2
    assert [found[name].status for name in ("ask", "deny")] == ["failed"] * 2


async def test_an_approver_of_the_program_answers_the_tasks(work: Path) -> None:
    def yes(question: Question) -> bool:
        return True

    remove = {"tool": "Bash", "args": {"command": "rm sum.py"}}
    async with Surehand(work) as app:
        found = await run(app, [{"id": "a", "calls": [remove]}], approver=yes)
    assert found["a"].files == [{"path": "sum.py", "action": "deleted"}]


async def test_a_batch_that_is_broken_off_leaves_no_workspace_and_no_half_result(work: Path, tmp_path: Path) -> None:
    out = tmp_path / "results.jsonl"
    tasks = [
        {"id": f"t{n}", "calls": [{"tool": "Bash", "args": {"command": "sleep 30"}}], "rules": ["allow Bash"]}
        for n in range(4)
    ]
    async with Surehand(work) as app:

        async def all_of_it() -> None:
            await run(app, [{"id": "quick", "calls": FIX}, *tasks], parallel=2, out=out)

        running = asyncio.ensure_future(all_of_it())
        while not out.exists() or not out.stat().st_size:
            await asyncio.sleep(0.02)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert [result.id for result in read_results(str(out))] == ["quick"]
    assert os.listdir(os.path.join(batch_folder(str(out)), "tasks")) == []


async def test_a_batch_ends_with_its_application_and_the_rest_can_be_resumed(work: Path, tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    tasks = [{"id": "quick", "calls": [bash("echo quick")]}] + [
        {"id": f"slow-{number}", "calls": [bash("sleep 600")]} for number in range(3)
    ]
    done: list[str] = []

    async def follow(app: Surehand) -> None:
        async for each in app.batch(tasks, parallel=2, out=results):
            done.append(each.id)

    async with Surehand(work, approver=lambda question: "once") as app:
        following = asyncio.create_task(follow(app))
        while not done:
            await asyncio.sleep(0.02)
    with pytest.raises(ToolFailure, match="closed while the batch was under way"):
        await following
    assert done == ["quick"]
    assert [each.id for each in read_results(str(results))] == ["quick"]
    assert os.listdir(os.path.join(batch_folder(str(results)), "tasks")) == []
    with pytest.raises(ToolFailure, match="the session is closed"):
        await follow(app)


async def test_a_workspace_that_is_still_made_when_its_batch_is_stopped_twice_does_not_stay(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def make_slowly(base: Snapshot, folder: str) -> Snapshot:
        loop.call_soon_threadsafe(begun.set)
        time.sleep(0.5)  # longer than it takes to stop the batch twice
        return with_statuses(base, folder)

    monkeypatch.setattr("surehand.batch.workspaces.with_statuses", make_slowly)
    results = tmp_path / "results.jsonl"

    async def follow(app: Surehand) -> None:
        async for _ in app.batch([{"id": "task", "calls": [bash("echo done")]}], out=results):
            pass

    async with Surehand(work, approver=lambda question: "once") as app:
        following = asyncio.create_task(follow(app))
        await begun.wait()
        following.cancel()
        await asyncio.sleep(0.05)
    with pytest.raises(asyncio.CancelledError):
        await following
    assert os.listdir(os.path.join(batch_folder(str(results)), "tasks")) == []


# -- the file of results ----------------------------------------------------------------------------------------------


def result(name: str) -> TaskResult:
    return TaskResult(id=name, task="x", status="passed")


def test_a_torn_last_line_is_cut_off_and_everything_before_it_counts(tmp_path: Path) -> None:
    path = str(tmp_path / "r.jsonl")
    file = ResultsFile(path, resume=False)
    file.append(result("a"))
    file.append(result("b"))
    file.close()
    whole = Path(path).read_bytes()
    second = whole.index(b"\n") + 1
    for cut in range(second, len(whole), 9):
        Path(path).write_bytes(whole[:cut])
        again = ResultsFile(path, resume=True)
        assert list(again.done) == ["a"]
        again.append(result("b"))
        again.close()
        assert Path(path).read_bytes() == whole


def test_blocks_that_never_reached_the_disk_are_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    whole = b'{"id": "a", "status": "passed", "task": "x"}\n'
    for tail in (b"\0" * 40, b'{"id": "b", "sta' + b"\0" * 40, b'{"id": "b"' + b"\0" * 40 + b"\n"):
        path.write_bytes(whole + tail)
        ResultsFile(str(path), resume=True).close()
        assert path.read_bytes() == whole


@pytest.mark.parametrize("text", ['{"mine": "precious"}\n', '{"mine": "precious"}', "notes\n", "notes", "[1]\n", "\n"])
def test_a_file_that_holds_something_else_is_refused_and_kept(tmp_path: Path, text: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(text)
    with pytest.raises(StateError, match="jsonl:1 is not a result of a batch"):
        ResultsFile(str(path), resume=True)
    with pytest.raises(StateError, match="jsonl:1 is not a result of a batch"):
        read_results(str(path))
    assert path.read_text() == text


def test_a_broken_line_in_the_middle_is_not_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(
        '{"id": "a", "status": "passed", "task": "x"}\n{"id": \n{"id": "b", "status": "passed", "task": "x"}\n'
    )
    with pytest.raises(StateError, match="jsonl:2"):
        ResultsFile(str(path), resume=True)


def test_two_batches_never_write_one_file(tmp_path: Path) -> None:
    path = str(tmp_path / "r.jsonl")
    file = ResultsFile(path, resume=False)
    with pytest.raises(StateError, match="another batch"):
        ResultsFile(path, resume=True)
    file.close()


async def test_results_that_are_there_are_not_written_over_and_a_changed_task_is_refused(
    work: Path, tmp_path: Path
) -> None:
    out = tmp_path / "r.jsonl"
    async with Surehand(work) as app:
        await run(app, [{"id": "a", "calls": FIX}], out=out)
        with pytest.raises(StateError, match="already has results"):
            await run(app, [{"id": "a", "calls": FIX}], out=out)
        assert await run(app, [{"id": "a", "calls": FIX}], out=out, resume=True) == {}
        with pytest.raises(StateError, match="changed since"):
            await run(app, [{"id": "a", "calls": [READ]}], out=out, resume=True)


async def test_wrong_tasks_are_named_before_anything_runs(work: Path) -> None:
    wrong = [
        {"prompt": "x", "calls": FIX},
        {"id": "../up", "prompt": "x"},
        {"id": "b", "promt": "x"},
        {"id": "b", "prompt": "y"},
    ]
    async with Surehand(work) as app:
        with pytest.raises(SettingsError) as problem:
            await run(app, wrong)
    text = str(problem.value)
    assert "task 1: give either" in text
    assert "task 2: id" in text
    assert "prompt" in text


# -- what a person asks of it -----------------------------------------------------------------------------------------


def pass_time_when_a_command_begins(app: Surehand, seconds: float) -> None:
    """Have the loop's clock jump, so that a time-out comes in the middle of a command on any machine."""
    loop, late = asyncio.get_running_loop(), [0.0]
    clock = loop.time
    loop.time = lambda: clock() + late[0]  # type: ignore[method-assign]

    def hear(event: Event) -> None:
        if event.kind == "call_started" and event.tool == "Bash":
            late[0] += seconds

    app.bus.subscribe(hear)


async def test_a_task_that_took_too_long_says_what_it_did_and_its_workspace_is_kept_when_asked(work: Path) -> None:
    tasks = [
        {"id": "work", "calls": [*FIX, bash("sleep 600")], "rules": ["allow Bash"]},
        {"id": "check", "calls": FIX, "check": "sleep 600"},
    ]
    async with Surehand(work) as app:
        pass_time_when_a_command_begins(app, 90)
        found = await run(app, tasks, parallel=1, timeout=90, keep_workspaces=True)
    for result in found.values():
        assert result.status == "timeout"
        assert result.error is not None
        assert "longer than 90 s" in result.error["message"]
        assert [call["tool"] for call in result.calls] == ["Read", "Edit"]
        assert "+    return a + b" in result.diff
        assert "a + b" in Path(result.workspace, "sum.py").read_text()


async def test_workspaces_are_kept_when_asked_for_and_results_say_where(work: Path, tmp_path: Path) -> None:
    tasks = [{"id": "good", "calls": FIX}, {"id": "bad", "calls": FIX, "check": "false"}]
    out = tmp_path / "r.jsonl"
    async with Surehand(work) as app:
        found = await run(app, tasks, keep_workspaces=True, out=out, retries=1)
        kept = {name: Path(result.workspace) for name, result in found.items()}
        assert [found[name].status for name in kept] == ["passed", "failed"]
        assert all("a + b" in (folder / "sum.py").read_text() for folder in kept.values())
        assert await run(app, tasks, out=out, resume=True) == {}
    assert all(folder.is_dir() for folder in kept.values())
    assert "a - b" in (work / "sum.py").read_text()


async def test_without_that_nothing_is_left_not_even_of_a_workspace_that_could_not_be_made(
    work: Path, tmp_path: Path
) -> None:
    commit_all(work)
    tasks = [
        {"id": "good", "calls": FIX},
        {"id": "gone", "calls": FIX, "workspace": "nowhere"},
        {"id": "old", "calls": FIX, "workspace": {"git": str(work), "revision": "no-such-branch"}},
    ]
    out = tmp_path / "r.jsonl"
    async with Surehand(work) as app:
        found = await run(app, tasks, out=out)
    assert [found[name].status for name in ("good", "gone", "old")] == ["passed", "error", "error"]
    assert not os.path.exists(batch_folder(str(out)))
    assert git(work, "worktree", "list").count("\n") == 1


async def test_a_profile_gives_its_tools_and_its_words(work: Path) -> None:
    heard: list[ScriptedModel] = []

    def model(task: Any) -> ScriptedModel:
        heard.append(ScriptedModel([("Read", {"file_path": "sum.py"})], [("Edit", FIX[1]["args"])], "done"))
        return heard[-1]

    async with Surehand(work) as app:
        found = await run(app, [{"id": "a", "prompt": "fix", "profile": "explorer"}], model=model)
        assert [call["ok"] for call in found["a"].calls] == [True, False]
        assert found["a"].diff == ""
        assert "You explore and report." in heard[0].requests[0].system
        with pytest.raises(SettingsError, match=r"task 2: there is no profile 'explorers'; .*explorer"):
            await run(app, [{"prompt": "x"}, {"prompt": "x", "profile": "explorers"}], model=model)
    assert len(heard) == 1


async def test_limits_of_a_task_stop_its_conversation(work: Path) -> None:
    def model(task: Any) -> ScriptedModel:
        return ScriptedModel(*([("Read", {"file_path": "sum.py"})] for _ in range(9)), "done")

    tasks = [
        {"id": "turns", "prompt": "x", "limits": {"turns": 3}},
        {"id": "tokens", "prompt": "x", "limits": {"tokens": 1}},
        {"id": "free", "prompt": "x"},
        {"id": "cost", "prompt": "x", "limits": {"cost": 0.5}},
    ]
    async with Surehand(work) as app:
        found = await run(app, tasks, model=model)
    assert [found[name].status for name in ("turns", "tokens", "free", "cost")] == [
        "failed",
        "failed",
        "passed",
        "error",
    ]
    assert found["turns"].turns == 3
    assert found["turns"].stop
    assert found["tokens"].turns < 10
    assert found["cost"].error is not None
    assert "prices" in found["cost"].error["message"]


async def test_a_limit_of_cost_counts_the_price_of_the_model_that_speaks(work: Path) -> None:
    class Priced(ScriptedModel):
        provider = "anthropic"

    async with Surehand(work) as app:
        model = Priced("done", name="claude-haiku-4-5")
        found = await run(app, [{"id": "a", "prompt": "x", "limits": {"cost": 5.0}}], model=model)
    assert found["a"].status == "passed", found["a"].error
    assert found["a"].cost


async def test_a_prompt_without_a_model_is_an_error_and_not_passed(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.endswith(("_API_KEY", "_BASE_URL"))]:
        monkeypatch.delenv(name)
    async with Surehand(work) as app:
        found = await run(app, [{"id": "a", "prompt": "what time is it"}])
        planned = await run(app, [{"id": "a", "prompt": "what time is it"}], model="offline")
    assert found["a"].status == "error"
    assert found["a"].error is not None
    assert "no model is set up" in found["a"].error["message"]
    assert planned["a"].status == "passed"


async def test_tokens_of_all_attempts_are_in_the_result(work: Path) -> None:
    def model(task: Any) -> ScriptedModel:
        return ScriptedModel("done")

    task = {"id": "a", "prompt": "x", "check": "false"}
    async with Surehand(work) as app:
        once = (await run(app, [task], model=model))["a"]
        thrice = (await run(app, [task], model=model, retries=2))["a"]
    assert (once.attempts, thrice.attempts) == (1, 3)
    assert thrice.usage["output_tokens"] == 3 * once.usage["output_tokens"] > 0


async def test_calls_of_tasks_count_in_the_metrics_of_the_application(work: Path) -> None:
    async with Surehand(work) as app:
        await run(app, [{"id": f"t{n}", "calls": [*FIX, bash("exit 3")]} for n in range(3)], parallel=2)
        figures = {each.tool: each for each in app.metrics.all()}
    assert [figures[name].execution.total_calls for name in ("Read", "Edit", "Bash")] == [3, 3, 3]


@pytest.mark.parametrize("rule", ["allow Bash(", "grant Bash", "allow", "deny WebFetch(domain:)"])
async def test_a_rule_that_says_nothing_is_named_before_anything_runs(work: Path, rule: str) -> None:
    async with Surehand(work) as app:
        with pytest.raises(SettingsError, match="task 1: "):
            await run(app, [{"calls": FIX, "rules": [rule]}])


def test_tasks_are_read_as_any_editor_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"prompt": "a"}\r\n\r\n{"prompt": "b"}')
    assert [task.prompt for task in read_tasks(str(path))] == ["a", "b"]
