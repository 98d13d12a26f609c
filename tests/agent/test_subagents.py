"""Sub-agents: their own session, never more rights, seen by their parent; and worktrees that leave the parent alone."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncGenerator
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from surehand import Event, Settings, Surehand, tool
from surehand.agent.loop import Limits
from surehand.agent.subagents import AGENTS, load_profiles, parse_profile
from surehand.cli.ask import answer
from surehand.core.errors import SettingsError
from surehand.core.model import ModelError, ModelRequest
from surehand.policy.approval import Answer, Question
from surehand.testing import Says, ScriptedModel, scratch_app
from surehand.tools.tasks import BOARD


def by_prompt(**scripts: list[Any]) -> Any:
    """A model that answers each conversation by the first word of its first message."""

    def step(request: ModelRequest) -> Any:
        return scripts[request.messages[0].text.split()[0]].pop(0)

    return ScriptedModel(*[step] * 400)


async def test_a_sub_agent_answers_and_its_parent_sees_the_answer() -> None:
    model = by_prompt(main=[[("Agent", {"prompt": "child: say hi"})], "done"], **{"child:": ["hi from below"]})
    async with scratch_app() as app:
        outcome = await app.conversation(model).ask("main go")
    assert outcome.results[0].output == "hi from below"
    assert outcome.results[0].data["state"] == "done"
    assert outcome.text == "done"


async def test_a_sub_agent_without_a_conversation_is_refused() -> None:
    async with scratch_app() as app:
        result = await app.call("Agent", {"prompt": "x"})
    assert result.error is not None
    assert "no model" in result.error.message


async def test_the_alias_of_the_first_document_works() -> None:
    model = by_prompt(main=[[("Task", {"prompt": "child: x"})], "done"], **{"child:": ["yes"]})
    async with scratch_app() as app:
        assert (await app.conversation(model).ask("main go")).results[0].output == "yes"


@pytest.mark.spec("AGENT-1")
async def test_an_unknown_profile_lists_those_there_are() -> None:
    model = by_prompt(main=[[("Agent", {"prompt": "x", "subagent_type": "pirate"})], "done"])
    async with scratch_app() as app:
        outcome = await app.conversation(model).ask("main go")
    assert outcome.results[0].error is not None
    assert "explorer" in outcome.results[0].error.hint


async def test_a_profile_with_a_tool_filter_hides_and_refuses_the_others(tmp_path: Path) -> None:
    requests: list[ModelRequest] = []

    def child(request: ModelRequest) -> Any:
        requests.append(request)
        return [("Write", {"file_path": "x", "content": "y"})]

    model = by_prompt(
        main=[[("Agent", {"prompt": "child: x", "subagent_type": "explorer"})], "done"], **{"child:": [None, "gave up"]}
    )
    script = model._script
    model._script = [lambda request: child(request) if _first_child(request) else script[0](request) for _ in script]

    def _first_child(request: ModelRequest) -> bool:
        return request.messages[0].text.startswith("child:") and len(request.messages) == 1

    async with scratch_app(tmp_path, mode="accept-edits") as app:
        events: list[Event] = []
        app.bus.subscribe(events.append)
        await app.conversation(model).ask("main go")
    assert "Write" not in [info.name for info in requests[0].tools]
    refused = [e for e in events if e.kind == "call_finished" and e.tool == "Write"]
    assert refused[0].data["result"].error.code == "tool_unavailable"
    assert not (tmp_path / "x").exists()


async def test_a_sub_agent_is_asked_about_like_its_parent_and_a_no_holds(tmp_path: Path) -> None:
    approver = Says("no", "not below either")
    model = by_prompt(
        main=[[("Agent", {"prompt": "child: x"})], "done"],
        **{"child:": [[("Write", {"file_path": "x", "content": "y"})], "was refused"]},
    )
    async with scratch_app(tmp_path, approver=approver) as app:
        outcome = await app.conversation(model).ask("main go")
    assert outcome.results[0].output == "was refused"
    assert len(approver.asked) == 1
    assert not (tmp_path / "x").exists()


@pytest.mark.spec("SESS-4")
@pytest.mark.parametrize("mode", ["sync", "worktree"])
async def test_agents_of_one_turn_work_at_the_same_time_and_questions_name_who_asks(tmp_path: Path, mode: str) -> None:
    repo = repository(tmp_path / "repo")
    together = asyncio.Barrier(3)

    @tool()
    async def meet() -> str:
        "Waits for the others."
        async with asyncio.timeout(60):
            await together.wait()
        return "met"

    approver, children = Says("once"), ("one:", "two:", "three:")
    wishes = [("Agent", {"prompt": f"{name} meet", "description": f"task {name}", "mode": mode}) for name in children]
    model = by_prompt(main=[wishes, "done"], **{name: [[("meet", {})], "done below"] for name in children})
    async with scratch_app(repo, tools=[meet], approver=approver) as app:
        outcome = await app.conversation(model).ask("main go")
    assert [result.output.split("\n")[0] for result in outcome.results] == ["done below"] * 3
    assert {question.agent for question in approver.asked} == {f"task {name}" for name in children}
    assert all(f"sub-agent: {question.agent}" in question.text() for question in approver.asked)


class Measured:
    """A person who lets others go first, and knows how long each answer took."""

    def __init__(self) -> None:
        self.took_ms: list[float] = []

    async def ask(self, question: Question) -> Answer:
        began = perf_counter()
        for _ in range(20):
            await asyncio.sleep(0)
        self.took_ms.append((perf_counter() - began) * 1000)
        return Answer("once")


async def test_an_agents_time_leaves_out_what_its_calls_waited_for_a_person() -> None:
    @tool()
    async def act() -> str:
        "Acts."
        return "acted"

    approver = Measured()
    model = by_prompt(
        main=[[("Agent", {"prompt": "child: act"})], "done"],
        **{"child:": [[("Agent", {"prompt": "below: act"}), ("act", {})], "done"], "below:": [[("act", {})], "done"]},
    )
    async with scratch_app(tools=[act], approver=approver) as app:
        began = perf_counter()
        outcome = await app.conversation(model).ask("main go")
        took_ms = (perf_counter() - began) * 1000
    meta = outcome.results[0].meta
    assert len(approver.took_ms) == 2
    assert meta["asked_ms"] >= max(approver.took_ms) - 0.01
    assert 0 <= meta["duration_ms"] <= took_ms - meta["asked_ms"]  # no time is counted twice


async def test_what_a_rule_denies_to_read_is_kept_from_the_searches_of_a_sub_agent_too(tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "plan.txt").write_text("canary\n")
    (tmp_path / "open.txt").write_text("canary\n")
    look = [[("Grep", {"pattern": "canary", "output_mode": "content"}), ("Bash", {"command": "grep -r canary ."})], "x"]
    model = by_prompt(main=[[("Agent", {"prompt": "child: x"})], "done"], **{"child:": look})
    seen: list[Event] = []
    settings = Settings.parse({"permissions": {"deny": ["Read(private/**)"]}})
    async with scratch_app(tmp_path, settings=settings) as app:
        app.bus.subscribe(seen.append)
        await app.conversation(model).ask("main go")
    outputs = [e.data["result"].output for e in seen if e.kind == "call_finished" and e.tool in ("Grep", "Bash")]
    assert len(outputs) == 2
    assert all("open.txt" in output and "plan.txt:" not in output for output in outputs)


async def test_events_of_a_sub_agent_reach_the_parents_stream_attributed() -> None:
    model = by_prompt(main=[[("Agent", {"prompt": "child: x"})], "done"], **{"child:": [[("time.now", {})], "late"]})
    events: list[Event] = []
    async with scratch_app() as app:
        app.bus.subscribe(events.append)
        await app.conversation(model).ask("main go")
        mine = [event for event in events if event.session_id == app.session.id]
        agent = app.session.keep(AGENTS).agents["agent_1"]
    kinds = [event.kind for event in mine if event.kind.startswith("subagent")]
    assert kinds[0] == "subagent_start"
    assert kinds[-1] == "subagent_end"
    inner = [event.data["event"].kind for event in mine if event.kind == "subagent_event"]
    assert "call_started" in inner
    assert {event.data["subagent_id"] for event in mine if event.kind.startswith("subagent")} == {"agent_1"}
    assert (agent.tool_calls, agent.state) == (1, "done")
    assert agent.tokens > 0


async def test_what_sub_agents_spend_counts_for_the_limits_of_the_question() -> None:
    def endless(request: ModelRequest) -> Any:
        if request.messages[0].text.startswith("main"):
            return [("Agent", {"prompt": "child: x"})]
        return [("time.now", {})]

    async with scratch_app(settings=Settings.parse({"engine": {"repeat_limit": 0}})) as app:
        loop = app.conversation(ScriptedModel(*[endless] * 500), limits=Limits(tokens=500))
        outcome = await loop.ask("main go")
        assert (outcome.stop, outcome.turns) == ("token_limit", 1)
        assert outcome.results[0].data["stop"] == "token_limit"
        assert 500 <= outcome.spent.usage.total < 700
        assert outcome.usage.total < 50
        assert answer(outcome, session="", model={})["usage"]["input_tokens"] >= 450
        again = await loop.ask("main again")  # a new question has its own budget
        assert again.turns == 1


@pytest.mark.spec("AGENT-4")
async def test_depth_is_limited() -> None:
    below = [[("Agent", {"prompt": "child: deeper"})] for _ in range(5)] + ["up"] * 5
    model = by_prompt(main=[[("Agent", {"prompt": "child: x"})], "done"], **{"child:": below})
    async with scratch_app(settings=Settings.parse({"agents": {"max_depth": 2}})) as app:
        events: list[Event] = []
        app.bus.subscribe(events.append)
        await app.conversation(model).ask("main go")
    errors = [e.data["result"].error for e in events if e.kind == "call_finished" and e.tool == "Agent"]
    assert any(error is not None and "2 deep" in error.message for error in errors)


async def test_a_background_agent_returns_at_once_and_reports_with_the_next_message() -> None:
    gate = asyncio.Event()

    @tool(read_only=True)
    async def wait_for_gate() -> str:
        "Waits."
        await gate.wait()
        return "open"

    model = by_prompt(
        main=[[("Agent", {"prompt": "child: x", "mode": "background", "description": "waiter"})], "started", "noted"],
        **{"child:": [[("wait_for_gate", {})], "the gate is open"]},
    )
    async with scratch_app(tools=[wait_for_gate]) as app:
        loop = app.conversation(model)
        outcome = await loop.ask("main go")
        assert outcome.results[0].data["task_id"] == "agent_1"
        assert "agent_1 [in_progress] (agent) waiter" in (await app.call("TaskList")).output
        gate.set()
        agent = app.session.keep(AGENTS).agents["agent_1"]
        assert agent.task is not None
        await asyncio.wait({agent.task})
        await asyncio.sleep(0)
        assert "the gate is open" in (await app.call("TaskOutput", {"id": "agent_1"})).output
        await loop.ask("main and now?")
    assert "Background agent agent_1 (waiter) done: the gate is open" in model.requests[-1].messages[-1].text


async def test_fifty_background_agents_at_once_lose_nothing() -> None:
    starts = [("Agent", {"prompt": f"child: {n}", "mode": "background"}) for n in range(50)]

    def step(request: ModelRequest) -> Any:
        if request.messages[0].text.startswith("main"):
            return starts if len(request.messages) == 1 else "all started"
        own = request.messages[0].text.removeprefix("child: ")
        return [("tools.echo", {"text": f"{own} {len(request.messages)}"})] if len(request.messages) < 6 else "ok"

    model = ScriptedModel(*[step] * 400)
    events: list[Event] = []
    async with scratch_app(settings=Settings.parse({"engine": {"repeat_limit": 0}})) as app:
        app.bus.subscribe(events.append)
        await app.conversation(model).ask("main go")
        agents = app.session.keep(AGENTS).agents.values()
        await asyncio.wait({agent.task for agent in agents if agent.task})
        await asyncio.sleep(0)
        told = "\n".join([*(message.text for message in model.requests[-1].messages), *app.session.notices])
        told += "\n".join(message.text for request in model.requests for message in request.messages)
        assert all(f"Background agent agent_{number} " in told for number in range(1, 51))
        assert [task.status for task in app.session.keep(BOARD).all()] == ["done"] * 50
    ends = [event.data["subagent_id"] for event in events if event.kind == "subagent_end"]
    assert sorted(ends) == sorted(f"agent_{n}" for n in range(1, 51))
    prompts = {e.data["subagent_id"]: e.data["prompt"] for e in events if e.kind == "subagent_start"}
    calls = [
        (prompts[e.data["subagent_id"]], e.data["event"].data["call"].args["text"])
        for e in events
        if e.kind == "subagent_event" and e.data["event"].kind == "call_started"
    ]
    assert sorted(calls) == sorted((f"child: {n}", f"{n} {at}") for n in range(50) for at in (1, 3, 5))


async def test_a_session_that_closes_ends_its_background_agents() -> None:
    cleaned: list[bool] = []

    @tool(read_only=True)
    async def for_ever() -> None:
        "Never ends."
        try:
            await asyncio.sleep(3600)
        finally:
            cleaned.append(True)

    model = by_prompt(
        main=[[("Agent", {"prompt": "child: x", "mode": "background"})], "started"], **{"child:": [[("for_ever", {})]]}
    )
    started = asyncio.Event()
    async with scratch_app(tools=[for_ever]) as app:
        app.bus.subscribe(lambda e: started.set() if e.kind == "call_started" and e.tool == "for_ever" else None)
        await app.conversation(model).ask("main go")
        await started.wait()
    assert cleaned == [True]


def repository(path: Path) -> Path:
    run = ["git", "-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    subprocess.run([*run, "init", "-q", str(path)], check=True)
    (path / "a.txt").write_text("one\n")
    subprocess.run([*run, "-C", str(path), "add", "."], check=True)
    subprocess.run([*run, "-C", str(path), "commit", "-qm", "first"], check=True)
    return path


def snapshot(path: Path) -> dict[str, bytes]:
    return {
        str(each.relative_to(path)): each.read_bytes()
        for each in sorted(path.rglob("*"))
        if each.is_file() and ".git" not in each.parts
    }


async def test_a_worktree_agent_works_on_a_branch_and_leaves_its_parents_files_alone(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    (repo / "dirty.txt").write_text("not committed\n")
    before = snapshot(repo)
    model = by_prompt(
        main=[[("Agent", {"prompt": "child: x", "mode": "worktree", "branch_name": "try/it"})], "done"],
        **{
            "child:": [
                [("Read", {"file_path": "a.txt"}), ("Bash", {"command": "pwd"})],
                [("Edit", {"file_path": "a.txt", "old_string": "one", "new_string": "two"})],
                [("Write", {"file_path": str(repo / "a.txt"), "content": "outside"})],
                "changed a.txt",
            ]
        },
    )
    async with Surehand(repo, mode="accept-edits") as app:
        results: list[Any] = []
        app.bus.subscribe(lambda e: results.append(e.data["result"]) if e.kind == "call_finished" else None)
        outcome = await app.conversation(model).ask("main go")
    data = outcome.results[0].data
    assert snapshot(repo) == before
    assert data["branch"] == "try/it"
    assert data["changes"] == ["M a.txt"]
    assert Path(data["worktree"], "a.txt").read_text() == "two\n"
    assert results[1].output.strip() == data["worktree"]
    outside = next(result for result in results if result.meta["tool"] == "Write")
    assert outside.error is not None
    subprocess.run(["git", "-C", str(repo), "worktree", "remove", "--force", data["worktree"]], check=True)
    os.rmdir(os.path.dirname(data["worktree"]))


@pytest.mark.spec("PERM-7")
async def test_a_worktree_agent_changes_nothing_outside_whatever_rules_and_approvers_say(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    (repo / "dirty.txt").write_text("not committed\n")
    git_says(repo, "config", "user.name", "A Test")
    git_says(repo, "config", "user.email", "test@example.com")
    before, status = snapshot(repo), git_says(repo, "status", "--porcelain", "--branch")
    there = str(repo / "a.txt")
    tries = [
        ("Read", {"file_path": there}),
        ("Write", {"file_path": there, "content": "outside"}),
        ("Edit", {"file_path": there, "old_string": "one", "new_string": "two"}),
        ("MultiEdit", {"file_path": there, "edits": [{"old_string": "one", "new_string": "two"}]}),
        ("Bash", {"command": f"echo outside > {there}"}),
        ("Bash", {"command": f"cd {repo} && rm -f a.txt"}),
        ("Bash", {"command": f"git -C {repo} checkout -q -b elsewhere; git -C {repo} rm -q --cached a.txt"}),
        ("Bash", {"command": f"cd {repo} && git checkout -q -b elsewhere"}),
    ]
    inside = ("Bash", {"command": "echo two > a.txt && git commit -qam inside"})
    model = by_prompt(
        main=[[("Agent", {"prompt": "child: x", "mode": "worktree"})], "done"],
        **{"child:": [*([each] for each in tries), [inside], "done"]},
    )
    rules = ["Read", "Write", "Edit", "MultiEdit", "Bash", "Edit(/**)"]
    async with Surehand(repo, allow=rules, approver=Says("always")) as app:
        results: list[Any] = []
        app.bus.subscribe(lambda e: results.append(e.data["result"]) if e.kind == "call_finished" else None)
        outcome = await app.conversation(model).ask("main go")
    assert [result.ok for result in results[: len(tries) + 1]] == [True, *[False] * 7, True], results[8].output
    assert all("confined" in result.error.message for result in results[1 : len(tries)])
    assert snapshot(repo) == before
    assert git_says(repo, "status", "--porcelain", "--branch") == status
    data = outcome.results[0].data
    assert (data["commits"], data["changes"], data["uncommitted"]) == (1, ["M a.txt"], 1)
    assert "without the 1 uncommitted change here" in outcome.results[0].output
    git_says(repo, "worktree", "remove", "--force", data["worktree"])
    os.rmdir(Path(data["worktree"]).parent)


def git_says(repo: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(repo), *words], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("rule", "refused"),
    [
        ("Read(/{repo}/private/**)", True),
        ("Edit({repo}/a.txt)", True),
        ("Read({repo}/../**/private/**)", True),
        ("Read(private/**)", False),
        ("Read(./private/**)", False),
        ("Edit(/etc/**)", False),
        ("Read(/**/private/**)", False),
    ],
)
async def test_no_worktree_leaves_a_rule_behind_that_holds_for_its_parent(
    tmp_path: Path, rule: str, refused: bool
) -> None:
    repo = repository(tmp_path / "repo")
    model = by_prompt(main=[[("Agent", {"prompt": "child: x", "mode": "worktree"})], "done"], **{"child:": ["done"]})
    settings = Settings.parse({"permissions": {"deny": [rule.format(repo=repo)]}})
    async with Surehand(repo, settings=settings) as app:
        outcome = await app.conversation(model).ask("main go")
    error = outcome.results[0].error
    assert (error is not None) == refused
    assert error is None or "full path" in error.message


async def test_a_worktree_agent_that_fails_says_where_its_work_is(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    model = by_prompt(
        main=[[("Agent", {"prompt": "child: x", "mode": "worktree", "branch_name": "half"})], "I see"],
        **{"child:": [[("Write", {"file_path": "b.txt", "content": "half done"})], ModelError("out of credit")]},
    )
    async with Surehand(repo, mode="accept-edits") as app:
        outcome = await app.conversation(model).ask("main go")
    error = outcome.results[0].error
    assert error is not None
    assert "out of credit" in error.message
    place = Path(error.hint.partition("so far is in ")[2].partition(", branch half")[0])
    assert (place / "b.txt").read_text() == "half done"
    git_says(repo, "worktree", "remove", "--force", str(place))
    os.rmdir(place.parent)


async def test_a_sub_agent_that_is_waited_for_is_on_the_board_and_can_be_stopped(tmp_path: Path) -> None:
    begun = asyncio.Event()

    @tool
    async def wait_here() -> str:
        "Wait."
        begun.set()
        await asyncio.Event().wait()
        return ""

    model = by_prompt(
        main=[[("Agent", {"prompt": "child: x", "description": "waits"})], "so be it"],
        **{"child:": [[("wait_here", {})]]},
    )
    async with scratch_app(tmp_path, tools=[wait_here]) as app:
        asking = asyncio.ensure_future(app.conversation(model).ask("main go"))
        await begun.wait()
        listed = (await app.call("TaskList", {})).data["tasks"]
        assert [(task["id"], task["kind"], task["status"]) for task in listed] == [("agent_1", "agent", "in_progress")]
        told = (await app.call("TaskOutput", {"id": "agent_1"})).data
        assert told["output"] == "[wait_here]"
        assert told["details"]["tool_calls"] == 1
        assert told["details"]["tokens"] > 0
        assert (await app.call("TaskStop", {"id": "agent_1"})).data["status"] == "cancelled"
        outcome = await asking
    assert outcome.text == "so be it"
    assert outcome.results[0].error is not None
    assert (outcome.results[0].error.code, outcome.results[0].error.message) == ("cancelled", "agent_1 was stopped")


@pytest.mark.spec("SESS-1")
@pytest.mark.parametrize("moments", [0, 1, 5, 50])
async def test_a_worktree_agent_that_is_given_up_while_its_session_closes_leaves_no_worktree(
    tmp_path: Path, moments: int
) -> None:
    repo = repository(tmp_path / "repo")
    thinking = asyncio.Event()

    class Slow(ScriptedModel):
        async def stream(self, request: ModelRequest) -> AsyncGenerator[Any]:
            if request.messages[0].text.startswith("child:"):
                thinking.set()
                await asyncio.Event().wait()
            async for each in super().stream(request):
                yield each

    model = Slow([("Agent", {"prompt": "child: x", "mode": "worktree"})], "done")
    async with Surehand(repo) as app:
        asking = asyncio.create_task(app.conversation(model).ask("main go"))
        await thinking.wait()
        asking.cancel()
        for _ in range(moments):  # how far its end has come when the session's begins
            await asyncio.sleep(0.002)
    await asyncio.wait({asking})
    assert len(git_says(repo, "worktree", "list").splitlines()) == 1
    assert "agent/" not in git_says(repo, "branch")


async def test_an_empty_worktree_is_removed_with_its_branch(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    model = by_prompt(
        main=[[("Agent", {"prompt": "child: x", "mode": "worktree"})], "done"], **{"child:": ["nothing to do"]}
    )
    async with Surehand(repo) as app:
        outcome = await app.conversation(model).ask("main go")
    assert outcome.results[0].data["branch"] is None
    listed = subprocess.run(["git", "-C", str(repo), "worktree", "list"], capture_output=True, text=True, check=True)
    assert len(listed.stdout.splitlines()) == 1
    branches = subprocess.run(["git", "-C", str(repo), "branch"], capture_output=True, text=True, check=True)
    assert "agent/" not in branches.stdout


@pytest.mark.parametrize(
    ("make", "branch", "word"),
    [
        ("none", "", "not in a git repository"),
        ("empty", "", "no commit"),
        ("full", "main..bad", "cannot be the name"),
        ("full", "-x", "cannot be the name"),
        ("full", "taken", "exists already"),
    ],
)
async def test_a_worktree_that_cannot_be_made_says_why(tmp_path: Path, make: str, branch: str, word: str) -> None:
    repo = tmp_path / "repo"
    repo.mkdir()
    if make == "empty":
        subprocess.run(["git", "init", "-q", str(repo)], check=True)
    elif make == "full":
        repository(repo)
        subprocess.run(["git", "-C", str(repo), "branch", "taken"], check=True)
    args = {"prompt": "child: x", "mode": "worktree", "branch_name": branch}
    model = by_prompt(main=[[("Agent", args)], "done"])
    async with Surehand(repo) as app:
        outcome = await app.conversation(model).ask("main go")
    assert outcome.results[0].error is not None
    assert word in outcome.results[0].error.message


PROFILE = """---
name: reviewer
description: "Reads a change."
tools:
  - Read
  - fs.*
model: small
---
You review.
"""


def test_a_profile_is_markdown_with_front_matter() -> None:
    profile = parse_profile(PROFILE, "x.md")
    assert (profile.name, profile.description, profile.tools, profile.model, profile.prompt) == (
        "reviewer",
        "Reads a change.",
        ("Read", "fs.*"),
        "small",
        "You review.",
    )
    assert parse_profile(PROFILE.replace("\n  - Read\n  - fs.*", " [Read, Grep]"), "x.md").tools == ("Read", "Grep")


@pytest.mark.parametrize(
    "text", ["no front", "---\nname: x\n---\n", "---\nname: x\ndescription: y\ncolour: red\n---\n"]
)
def test_a_broken_profile_says_what_is_wrong(text: str) -> None:
    with pytest.raises(SettingsError):
        parse_profile(text, "x.md")


async def test_a_profile_that_waits_for_trust_is_told(tmp_path: Path) -> None:
    folder = tmp_path / ".surehand" / "agents"
    folder.mkdir(parents=True)
    (folder / "mine.md").write_text("---\nname: mine\ndescription: Mine.\n---\n")
    told: list[str] = []
    async with scratch_app(tmp_path) as app:
        app.bus.subscribe(lambda event: told.append(str(event.data.get("message"))) if event.kind == "note" else None)
        await app.conversation(ScriptedModel("done")).ask("go")
    assert any("mine.md: this folder is not trusted; `surehand trust`" in each for each in told)


def test_profiles_of_a_workspace_count_once_it_is_trusted(tmp_path: Path) -> None:
    folder = tmp_path / ".surehand" / "agents"
    folder.mkdir(parents=True)
    (folder / "reviewer.md").write_text(PROFILE)
    (folder / "broken.md").write_text("nothing")
    assert "reviewer" not in [profile.name for profile in load_profiles(str(tmp_path), trusted=False)[0]]
    found, problems = load_profiles(str(tmp_path), trusted=True)
    assert "reviewer" in [profile.name for profile in found]
    assert "broken.md" in problems[0]


async def test_a_sub_agent_without_a_filter_gets_the_same_prompt_and_tools_as_its_parent() -> None:
    model = by_prompt(main=[[("Agent", {"prompt": "child: x"})], "done"], **{"child:": ["yes"]})
    async with scratch_app() as app:
        app.selection.activate_tool("WebFetch")
        await app.conversation(model).ask("main go")
    parent, child = model.requests[0], model.requests[1]
    assert parent.system == child.system
    assert [info.name for info in parent.tools] == [info.name for info in child.tools]


@pytest.mark.spec("AGENT-2")
async def test_where_prompts_are_cached_a_profile_shares_its_parents_prefix_and_is_refused_at_call_time(
    tmp_path: Path,
) -> None:
    requests: list[ModelRequest] = []

    def step(request: ModelRequest) -> Any:
        requests.append(request)
        asked = request.messages[0].text
        if asked == "main go":
            order = {"prompt": "look round", "subagent_type": "explorer"}
            return [("Agent", order)] if len(request.messages) == 1 else "done"
        return [("Write", {"file_path": "x", "content": "y"})] if len(request.messages) == 1 else "gave up"

    model = ScriptedModel(*[step] * 4, caches_prompts=True)
    async with scratch_app(tmp_path, mode="accept-edits") as app:
        await app.conversation(model, system="Be brief.").ask("main go")
    parent, child, refused = requests[0], requests[1], requests[2]
    assert (child.system, list(child.tools)) == (parent.system, list(parent.tools))
    first = child.messages[0].text
    assert "You are the sub-agent explorer" in first
    assert "Only these tools answer you: " in first
    assert first.endswith("look round")
    error = refused.messages[-1].results[0].error
    assert error is not None
    assert error.code == "tool_unavailable"
    assert not (tmp_path / "x").exists()
