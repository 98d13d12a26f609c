"""`surehand batch`, as a person or a script runs it."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_tools import surehand
from tests.providers.model_stub import Stub
from tests.pty_terminal import Terminal

READ = {"tool": "Read", "args": {"file_path": "sum.py"}}


def edit(new: str) -> dict[str, Any]:
    return {"tool": "Edit", "args": {"file_path": "sum.py", "old_string": "a - b", "new_string": new}}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    root.mkdir()
    (root / "sum.py").write_text("def add(a, b):\n    return a - b\n")
    return root


def write_tasks(work: Path, *tasks: dict[str, Any]) -> str:
    path = work.parent / "tasks.jsonl"
    path.write_text("".join(f"{json.dumps(task)}\n" for task in tasks))
    return str(path)


def test_tasks_run_are_shown_and_one_is_applied_and_undone(work: Path) -> None:
    check = "python3 -c 'import sum; assert sum.add(1, 2) == 3'"
    tasks = write_tasks(
        work,
        {"id": "good", "calls": [READ, edit("a + b")], "check": check},
        {"id": "bad", "calls": [READ, edit("a * b")], "check": check},
    )
    out = str(work.parent / "results.jsonl")
    done = surehand("batch", tasks, "--out", out, "--parallel", "2", "--json", cwd=work)
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["passed"] == 1
    shown = surehand("batch", "show", out, "--text", cwd=work).stdout
    assert "good" in shown
    assert "exit 1" in shown
    assert "2 tasks: 1 passed, 1 failed" in shown
    applied = surehand("batch", "apply", out, "good", "--text", cwd=work)
    assert applied.returncode == 0, applied.stderr
    assert "a + b" in (work / "sum.py").read_text()
    refused = surehand("batch", "apply", out, "bad", "--text", cwd=work)
    assert refused.returncode == 1
    assert "changed since the patch was made: sum.py" in refused.stderr
    assert surehand("undo", cwd=work).returncode == 0
    assert "a - b" in (work / "sum.py").read_text()


def test_a_check_that_fails_for_want_of_permission_says_so(work: Path) -> None:
    bash = {"tool": "Bash", "args": {"command": "sed -i 's/a - b/a + b/' sum.py"}}
    tasks = write_tasks(work, {"id": "refused", "calls": [bash], "check": "grep -q 'a + b' sum.py"})
    out = str(work.parent / "results.jsonl")
    done = surehand("batch", tasks, "--out", out, "--text", cwd=work)
    assert "Bash needs permission and did not get it" in done.stderr
    assert "; the check ended with exit code 1" in done.stderr


def test_a_check_that_fails_after_a_failed_call_names_that_call(work: Path) -> None:
    tasks = write_tasks(work, {"id": "unread", "calls": [edit("a + b")], "check": "grep -q 'a + b' sum.py"})
    done = surehand("batch", tasks, "--out", str(work.parent / "results.jsonl"), "--text", cwd=work)
    assert "Edit: File has not been read yet" in done.stderr
    assert "; the check ended with exit code 1" in done.stderr


def test_a_model_works_on_each_task_of_its_own(work: Path, stub: Stub) -> None:
    def answer(body: dict[str, Any]) -> dict[str, Any]:
        said = sum(message["role"] == "assistant" for message in body["messages"])
        if said == 0:
            return {"calls": [("c1", "Read", json.dumps({"file_path": "sum.py"}))]}
        if said == 1:
            return {"calls": [("c2", "Edit", json.dumps(edit("a + b")["args"]))]}
        return {"text": "fixed"}

    stub.answer = answer  # type: ignore[method-assign]
    tasks = write_tasks(work, *({"id": f"t{n}", "prompt": "fix add"} for n in range(3)))
    out = str(work.parent / "results.jsonl")
    words = [sys.executable, "-m", "surehand", "batch", tasks, "--out", out, "--json"]
    done = subprocess.run(words, cwd=work, env=stub.environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in Path(out).read_text().splitlines()]
    assert [row["answer"] for row in rows] == ["fixed"] * 3
    assert all("+    return a + b" in row["diff"] for row in rows)


def test_results_that_are_there_are_gone_on_with_only_when_asked_to(work: Path) -> None:
    tasks = write_tasks(work, {"id": "a", "calls": [READ]})
    out = str(work.parent / "results.jsonl")
    assert surehand("batch", tasks, "--out", out, cwd=work).returncode == 0
    again = surehand("batch", tasks, "--out", out, "--text", cwd=work)
    assert again.returncode == 2
    assert "--resume" in again.stderr
    assert surehand("batch", tasks, "--out", out, "--resume", cwd=work).returncode == 0
    assert len(Path(out).read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [("{", "not JSON"), ('{"prompt": "x", "calls": [{"tool": "Read"}]}', "either"), ('{"promt": "x"}', "promt")],
)
def test_a_wrong_line_is_named_with_its_number(work: Path, line: str, said: str) -> None:
    path = work.parent / "tasks.jsonl"
    path.write_text(f'{{"prompt": "x"}}\n{line}\n')
    done = surehand("batch", str(path), "--out", str(work.parent / "r.jsonl"), "--text", cwd=work)
    assert done.returncode == 2
    assert "tasks.jsonl:2" in done.stderr
    assert said in done.stderr
    assert not (work.parent / "r.jsonl").exists()


def test_words_that_make_no_sense_are_told_what_does(work: Path) -> None:
    done = surehand("batch", "show", cwd=work)
    assert done.returncode == 2
    assert "surehand batch show RESULTS.jsonl" in surehand("batch", "--help", cwd=work).stdout


def test_a_terminal_sees_how_far_it_is(work: Path) -> None:
    tasks = write_tasks(work, {"id": "a", "calls": [READ]}, {"id": "b", "calls": [READ]})
    out = str(work.parent / "results.jsonl")
    with Terminal("batch", tasks, "--out", out, cwd=work) as terminal:
        terminal.wait_for("2/2")
        assert terminal.ended() == 0


def test_a_batch_that_goes_on_counts_what_was_done_before(work: Path) -> None:
    tasks = write_tasks(work, *({"id": f"t{n}", "calls": [READ]} for n in range(3)))
    out = work.parent / "results.jsonl"
    assert surehand("batch", tasks, "--out", str(out), cwd=work).returncode == 0
    out.write_text("".join(out.read_text().splitlines(keepends=True)[:2]))
    with Terminal("batch", tasks, "--out", str(out), "--resume", cwd=work) as terminal:
        terminal.wait_for("2/3")
        terminal.wait_for("3/3")
        assert terminal.ended() == 0


def test_questions_of_tasks_wait_for_whoever_answers_them(work: Path) -> None:
    tasks = write_tasks(work, {"id": "a", "calls": [{"tool": "Bash", "args": {"command": "rm sum.py"}}]})
    out = str(work.parent / "results.jsonl")
    words = [sys.executable, "-m", "surehand", "batch", tasks, "--out", out, "--approvals", "console", "--text"]
    with subprocess.Popen(words, cwd=work, stderr=subprocess.PIPE, text=True) as batch:
        assert batch.stderr is not None
        assert "Bash waits for an answer" in batch.stderr.readline()
        (question,) = json.loads(surehand("approvals", "list", "--json", cwd=work).stdout)
        assert surehand("approvals", "allow", question["id"], cwd=work).returncode == 0
        assert batch.wait(100) == 0
    assert json.loads(Path(out).read_text())["files"] == [{"path": "sum.py", "action": "deleted"}]


def test_calls_of_tasks_are_in_the_statistics_of_the_folder(work: Path) -> None:
    tasks = write_tasks(work, *({"id": f"t{n}", "calls": [READ]} for n in range(3)))
    words = ("batch", tasks, "--out", str(work.parent / "r.jsonl"), "--session", "night")
    assert surehand(*words, cwd=work).returncode == 0
    assert "Read" in surehand("stats", "--text", cwd=work).stdout


def test_without_ray_a_cluster_says_which_extra_to_install(work: Path) -> None:
    if importlib.util.find_spec("ray") is not None:
        pytest.skip("Ray is installed here")
    tasks = write_tasks(work, {"id": "a", "calls": [READ]})
    done = surehand("batch", tasks, "--out", str(work.parent / "r.jsonl"), "--cluster", "local", "--text", cwd=work)
    assert done.returncode == 2
    assert "pip install 'surehand[cluster]'" in done.stderr
    code = "import sys, surehand.app, surehand.batch.batch; print([m for m in sys.modules if 'cluster' in m])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
