"""`surehand acp` driven by the official SDK's client over standard input and output, with a model on loopback."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.acp.editor import AgentPool, Editor, agent_for, ask, environment
from tests.providers.model_stub import Stub

from acp import RequestError, image_block, schema

pytestmark = [pytest.mark.spec("INT-2"), pytest.mark.asyncio(loop_scope="module")]

DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "app.py").write_text("DEBUG = True\nPORT = 80\n")
    return folder


@pytest.fixture
def own_env(env: dict[str, str], home: Path) -> dict[str, str]:
    """The environment of an agent of the test's own: what it keeps, no other test sees."""
    return {**env, "SUREHAND_HOME": str(home)}


def call(name: str, **args: Any) -> tuple[str, str, str]:
    return (f"call_{name}", name, json.dumps(args))


def surehand(env: dict[str, str], work: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "surehand", *words], env=env, cwd=work, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_a_whole_session_reads_edits_runs_and_is_undone(
    agents: AgentPool, stub: Stub, env: dict[str, str], work: Path
) -> None:
    edit = call("Edit", file_path=str(work / "app.py"), old_string="DEBUG = True", new_string="DEBUG = False")
    stub.script = [
        {"thought": "let me look", "text": "Looking. ", "calls": [call("Read", file_path=str(work / "app.py"))]},
        {"calls": [edit]},
        {"calls": [call("Bash", command="cat app.py && touch made.txt")]},
        {"text": "Done."},
    ]
    editor = Editor()
    async with agents.sit(editor, work, env) as agent:
        session = await agent.new_session(cwd=str(work), mcp_servers=[])
        assert session.modes is not None
        assert session.modes.current_mode_id == "default"
        assert [each.id for each in session.modes.available_modes] == ["default", "accept-edits", "plan"]
        ended = await agent.prompt(session_id=session.session_id, prompt=ask("turn debugging off"))
        assert ended.stop_reason == "end_turn"
        assert ended.usage is not None
        assert ended.usage.output_tokens == 20

        assert editor.text() == "Looking. Done."
        assert editor.text("agent_thought_chunk") == "let me look"

        start, updates = editor.call("Read")
        assert (start.kind, start.locations[0].path) == ("read", str(work / "app.py"))
        assert updates[-1].status == "completed"
        assert "DEBUG = True" in updates[-1].content[0].content.text

        start, updates = editor.call("Edit")
        assert start.kind == "edit"
        diff = updates[-1].content[0]
        assert (diff.type, diff.path) == ("diff", str(work / "app.py"))
        assert diff.old_text == "DEBUG = True\nPORT = 80\n"
        assert diff.new_text == "DEBUG = False\nPORT = 80\n"

        start, updates = editor.call("Bash")
        assert start.kind == "execute"
        live = [each for each in updates if each.status is None and each.content]
        assert live, "its output came while it ran"
        assert "DEBUG = False" in live[0].content[0].content.text

        asked, options = editor.questions[0]
        assert asked.content[0].new_text == "DEBUG = False\nPORT = 80\n"
        assert [each.option_id for each in options][:3] == ["once", "session", "always"]
        assert options[-1].kind == "reject_once"
        assert "app.py" in next(each.name for each in options if each.option_id == "always")

    listed = json.loads(surehand(env, work, "sessions", "list", "--json"))
    assert listed[0]["name"] == session.session_id
    assert listed[0]["calls"] == 3
    surehand(env, work, "undo", "--session", session.session_id, "--last", "2")
    assert (work / "app.py").read_text() == "DEBUG = True\nPORT = 80\n"
    assert not (work / "made.txt").exists()


async def test_what_the_user_rejects_is_not_done_and_the_model_hears_it(
    agents: AgentPool, stub: Stub, env: dict[str, str], work: Path
) -> None:
    stub.script = [{"calls": [call("Bash", command="touch made.txt")]}, {"text": "I see."}]
    editor = Editor()
    editor.answer = lambda call: "no"
    async with agents.sit(editor, work, env) as agent:
        session = await agent.new_session(cwd=str(work), mcp_servers=[])
        ended = await agent.prompt(session_id=session.session_id, prompt=ask("make it"))
    assert ended.stop_reason == "end_turn"
    assert not (work / "made.txt").exists()
    _, updates = editor.call("Bash")
    assert updates[-1].status == "failed"
    assert "the user said no" in str(stub.requests[-1]["messages"][-1]["content"])


async def test_always_is_kept_for_later_sessions(stub: Stub, own_env: dict[str, str], work: Path) -> None:
    touch = {"calls": [call("Bash", command="touch made.txt")]}
    stub.script = [touch, {"text": "a"}, touch, {"text": "b"}]
    editor = Editor()
    editor.answer = lambda call: "always"
    async with agent_for(editor, work, own_env) as agent:
        for _ in range(2):
            session = await agent.new_session(cwd=str(work), mcp_servers=[])
            await agent.prompt(session_id=session.session_id, prompt=ask("make it"))
    assert len(editor.questions) == 1
    assert (work / "made.txt").exists()


async def test_a_command_can_be_tried_on_a_copy_before_the_answer(
    agents: AgentPool, stub: Stub, env: dict[str, str], work: Path
) -> None:
    stub.script = [{"calls": [call("Bash", command="echo PORT = 81 >> app.py")]}, {"text": "ok"}]
    editor = Editor()
    answers = iter(["try", "once"])
    editor.answer = lambda call: next(answers)
    async with agents.sit(editor, work, env) as agent:
        session = await agent.new_session(cwd=str(work), mcp_servers=[])
        await agent.prompt(session_id=session.session_id, prompt=ask("append"))
    assert [len(options) for _, options in editor.questions] == [5, 5]
    shown = editor.questions[1][0].content[0]
    assert shown.new_text.endswith("PORT = 81\n")
    assert (work / "app.py").read_text().endswith("PORT = 80\nPORT = 81\n")


async def test_cancelling_stops_a_running_command_and_the_session_goes_on(
    agents: AgentPool, stub: Stub, env: dict[str, str], work: Path
) -> None:
    stub.script = [{"calls": [call("Bash", command="echo begun; sleep 600; touch late.txt")]}]
    editor = Editor()
    async with agents.sit(editor, work, env) as agent:
        session = await agent.new_session(cwd=str(work), mcp_servers=[])
        asking = asyncio.create_task(agent.prompt(session_id=session.session_id, prompt=ask("wait")))
        await editor.until(lambda: "begun" in str(editor.of("tool_call_update")))
        await agent.cancel(session_id=session.session_id)
        assert (await asking).stop_reason == "cancelled"
        stub.script = [{"text": "here again"}]
        ended = await agent.prompt(session_id=session.session_id, prompt=ask("still there?"))
        assert ended.stop_reason == "end_turn"
    assert editor.text() == "here again"
    _, updates = editor.call("Bash")
    assert updates[-1].status == "failed"
    assert not (work / "late.txt").exists()


async def test_cancelling_while_the_user_is_asked_ends_the_turn(
    agents: AgentPool, stub: Stub, env: dict[str, str], work: Path
) -> None:
    stub.script = [{"calls": [call("Bash", command="touch made.txt")]}]
    editor = Editor()
    editor.answer = lambda call: "wait"
    async with agents.sit(editor, work, env) as agent:
        session = await agent.new_session(cwd=str(work), mcp_servers=[])
        asking = asyncio.create_task(agent.prompt(session_id=session.session_id, prompt=ask("make it")))
        await editor.until(lambda: editor.questions)
        await agent.cancel(session_id=session.session_id)
        assert (await asking).stop_reason == "cancelled"
    assert not (work / "made.txt").exists()


async def test_sessions_are_listed_loaded_and_resumed(stub: Stub, own_env: dict[str, str], work: Path) -> None:
    stub.script = [{"text": "Hm. ", "calls": [call("Read", file_path=str(work / "app.py"))]}, {"text": "It is short."}]
    first = Editor()
    async with agent_for(first, work, own_env) as agent:
        session = await agent.new_session(cwd=str(work), mcp_servers=[])
        await agent.prompt(session_id=session.session_id, prompt=ask("what is in app.py?"))
        await agent.new_session(cwd=str(work), mcp_servers=[])  # in which nothing is said

    again = Editor()
    stub.script = [{"text": "As I said."}]
    async with agent_for(again, work, own_env) as agent:
        listed = await agent.list_sessions(cwd=str(work))
        assert [(each.session_id, each.cwd, each.title) for each in listed.sessions] == [
            (session.session_id, str(work), "what is in app.py?")
        ]
        assert (await agent.list_sessions()).sessions == listed.sessions
        loaded = await agent.load_session(cwd=str(work), session_id=session.session_id, mcp_servers=[])
        assert loaded.modes is not None
        assert again.text("user_message_chunk") == "what is in app.py?"
        assert again.text() == "Hm. It is short."
        start, updates = again.call("Read")
        assert (start.kind, updates[-1].status) == ("read", "completed")
        await agent.prompt(session_id=session.session_id, prompt=ask("again?"))
        assert [each["role"] for each in stub.requests[-1]["messages"]] == [
            *("system", "user", "assistant", "tool", "assistant", "user")
        ]

        await agent.close_session(session_id=session.session_id)
        again.updates.clear()
        stub.script = [{"text": "Yes."}]
        await agent.resume_session(cwd=str(work), session_id=session.session_id, mcp_servers=[])
        assert again.text("user_message_chunk") == ""
        await agent.prompt(session_id=session.session_id, prompt=ask("really?"))
        assert again.text() == "Yes."
        with pytest.raises(RequestError, match="not found"):
            await agent.load_session(cwd=str(work), session_id="../other", mcp_servers=[])


async def test_modes_change_what_is_asked(agents: AgentPool, stub: Stub, env: dict[str, str], work: Path) -> None:
    write = {"calls": [call("Write", file_path=str(work / "new.txt"), content="x\n")]}
    stub.script = [write, {"text": "no"}, write, {"text": "yes"}]
    editor = Editor()
    async with agents.sit(editor, work, env) as agent:
        session = await agent.new_session(cwd=str(work), mcp_servers=[])
        await agent.set_session_mode(session_id=session.session_id, mode_id="plan")
        await agent.prompt(session_id=session.session_id, prompt=ask("write it"))
        assert not (work / "new.txt").exists()
        await agent.prompt(session_id=session.session_id, prompt=ask("/mode accept-edits"))
        assert editor.of("current_mode_update")[-1].current_mode_id == "accept-edits"
        await agent.prompt(session_id=session.session_id, prompt=ask("write it"))
        assert (work / "new.txt").read_text() == "x\n"
        with pytest.raises(RequestError):
            await agent.set_session_mode(session_id=session.session_id, mode_id="bypass")
    assert editor.questions == []


async def test_slash_commands_undo_and_fill_prompts_of_files(
    agents: AgentPool, stub: Stub, env: dict[str, str], shared_home: Path, work: Path
) -> None:
    (shared_home / "commands").mkdir(parents=True)
    (shared_home / "commands" / "review.md").write_text(
        "---\ndescription: Review a file\nargument-hint: FILE\n---\nReview $1 with care.\n"
    )
    stub.script = [
        {"calls": [call("Write", file_path=str(work / "new.txt"), content="x\n")]},
        {"text": "written"},
        {"text": "reviewed"},
    ]
    editor = Editor()
    async with agents.sit(editor, work, env) as agent:
        session = await agent.new_session(cwd=str(work), mcp_servers=[])
        await editor.until(lambda: editor.of("available_commands_update"))
        offered = {each.name: each for each in editor.of("available_commands_update")[0].available_commands}
        assert {"undo", "redo", "changes", "mode", "review"} <= offered.keys()
        assert offered["review"].description == "Review a file"
        await agent.prompt(session_id=session.session_id, prompt=ask("write"))
        assert (work / "new.txt").exists()
        await agent.prompt(session_id=session.session_id, prompt=ask("/undo"))
        assert not (work / "new.txt").exists()
        await agent.prompt(session_id=session.session_id, prompt=ask("/review app.py"))
    assert stub.requests[-1]["messages"][-1]["content"] == "Review app.py with care."


async def test_images_and_files_of_the_editor_reach_the_model(
    agents: AgentPool, stub: Stub, env: dict[str, str], work: Path
) -> None:
    stub.script = [{"text": "a dot"}]
    link = schema.ResourceContentBlock(type="resource_link", name="app.py", uri=(work / "app.py").as_uri())
    held = schema.TextResourceContents(uri="file:///elsewhere/b%20c.py", text="b = 1")
    resource = schema.EmbeddedResourceContentBlock(type="resource", resource=held)
    editor = Editor()
    async with agents.sit(editor, work, env) as agent:
        session = await agent.new_session(cwd=str(work), mcp_servers=[])
        await agent.prompt(
            session_id=session.session_id, prompt=[*ask("what is "), link, resource, image_block(DOT, "image/png")]
        )
    text, picture = stub.requests[0]["messages"][-1]["content"]
    assert f"what is @{work / 'app.py'}" in text["text"]
    assert "b = 1" in text["text"]
    assert "/elsewhere/b c.py" in text["text"]
    assert picture["image_url"]["url"].endswith(DOT)


SERVER = """
import asyncio
from mcp.server.mcpserver import MCPServer
server = MCPServer("notes")
@server.tool()
def remember(text: str) -> str:
    "Remember a text."
    return f"kept {text}"
server.run()
"""


async def test_a_server_of_the_editor_is_asked_about_like_any_other(
    agents: AgentPool, stub: Stub, env: dict[str, str], work: Path, tmp_path: Path
) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    stub.script = [{"calls": [call("mcp__notes__remember", text="it")]}, {"text": "ok"}]
    server = schema.McpServerStdio(name="notes", command=sys.executable, args=[str(tmp_path / "server.py")], env=[])
    editor = Editor()
    async with agents.sit(editor, work, env) as agent:
        session = await agent.new_session(cwd=str(work), mcp_servers=[server])
        await agent.prompt(session_id=session.session_id, prompt=ask("remember it"))
    assert len(editor.questions) == 1
    assert "kept it" in str(stub.requests[-1]["messages"][-1]["content"])


async def test_without_a_model_the_offline_planner_answers(home: Path, work: Path) -> None:
    editor = Editor()
    async with agent_for(editor, work, environment(home), "--model", "offline") as agent:
        session = await agent.new_session(cwd=str(work), mcp_servers=[])
        ended = await agent.prompt(session_id=session.session_id, prompt=ask("read app.py"))
    assert ended.stop_reason == "end_turn"
    assert "PORT = 80" in editor.text()


async def test_a_terminal_of_the_editor_shows_the_output_where_it_can(
    agents: AgentPool, stub: Stub, env: dict[str, str], work: Path
) -> None:
    stub.script = [{"calls": [call("Bash", command="echo one; echo two")]}, {"text": "ok"}]
    editor = Editor()
    async with agents.sit(editor, work, env, field_meta={"terminal_output": True}) as agent:
        session = await agent.new_session(cwd=str(work), mcp_servers=[])
        await agent.prompt(session_id=session.session_id, prompt=ask("echo"))
    start, updates = editor.call("Bash")
    assert start.content[0].type == "terminal"
    sent = "".join(
        each.field_meta["terminal_output"]["data"] for each in updates if "terminal_output" in (each.field_meta or {})
    )
    assert sent.replace("\r\n", "\n") == "one\ntwo\n"
    assert updates[-1].field_meta["terminal_exit"]["exit_code"] == 0


async def test_a_prompt_that_cannot_be_answered_says_why(
    agents: AgentPool, env: dict[str, str], stub: Stub, work: Path
) -> None:
    stub.script = [{"status": 401}]
    editor = Editor()
    async with agents.sit(editor, work, env) as agent:
        session = await agent.new_session(cwd=str(work), mcp_servers=[])
        with pytest.raises(RequestError):
            await agent.prompt(session_id=session.session_id, prompt=ask("hello"))
        assert "refused the key" in editor.text()
        with pytest.raises(RequestError):
            await agent.prompt(session_id="acp_unknown", prompt=ask("hello"))
        with pytest.raises(RequestError):
            await agent.new_session(cwd="relative", mcp_servers=[])
        stub.script = [{"text": "better"}]
        assert (await agent.prompt(session_id=session.session_id, prompt=ask("again"))).stop_reason == "end_turn"


async def test_to_dos_are_the_plan_the_editor_shows(
    agents: AgentPool, stub: Stub, env: dict[str, str], work: Path
) -> None:
    stub.script = [
        {"calls": [call("TaskCreate", title="Look")]},
        {"calls": [call("TaskUpdate", id="task_1", status="in_progress")]},
        {"calls": [call("TaskUpdate", id="task_1", status="done")]},
        {"text": "Done."},
    ]
    editor = Editor()
    async with agents.sit(editor, work, env) as agent:
        session = await agent.new_session(cwd=str(work), mcp_servers=[])
        await agent.prompt(session_id=session.session_id, prompt=ask("plan it"))
    plans = [[(entry.content, entry.status) for entry in each.entries] for each in editor.of("plan")]
    assert plans == [[("Look", status)] for status in ("pending", "in_progress", "completed")]


async def test_what_is_allowed_for_a_session_is_asked_again_in_the_next(
    agents: AgentPool, stub: Stub, env: dict[str, str], work: Path
) -> None:
    touch = {"calls": [call("Bash", command="touch made.txt")]}
    stub.script = [touch, touch, {"text": "a"}, touch, {"text": "b"}]
    editor = Editor()
    editor.answer = lambda call: "session"
    asked: list[int] = []
    async with agents.sit(editor, work, env) as agent:
        for _ in range(2):
            session = await agent.new_session(cwd=str(work), mcp_servers=[])
            await agent.prompt(session_id=session.session_id, prompt=ask("make it"))
            asked.append(len(editor.questions))
    assert asked == [1, 2]
    option = next(each for each in editor.questions[0][1] if each.option_id == "session")
    assert option.kind == "allow_always"
    assert "touch" in option.name


async def test_further_folders_of_the_editor_belong_to_the_session(
    agents: AgentPool, stub: Stub, env: dict[str, str], work: Path, tmp_path: Path
) -> None:
    beside = tmp_path / "beside"
    beside.mkdir()
    path = beside / "b.txt"
    path.write_text("one\n")
    edit = call("Edit", file_path=str(path), old_string="one", new_string="two")
    stub.script = [{"calls": [call("Read", file_path=str(path))]}, {"calls": [edit]}, {"text": "ok"}]
    editor = Editor()
    async with agents.sit(editor, work, env) as agent:
        with pytest.raises(RequestError):
            await agent.new_session(cwd=str(work), mcp_servers=[], additional_directories=["beside"])
        session = await agent.new_session(cwd=str(work), mcp_servers=[], additional_directories=[str(beside)])
        await agent.set_session_mode(session_id=session.session_id, mode_id="accept-edits")
        await agent.prompt(session_id=session.session_id, prompt=ask("edit it"))
        assert path.read_text() == "two\n"
        assert editor.questions == []
        await agent.prompt(session_id=session.session_id, prompt=ask("/undo"))
    assert path.read_text() == "one\n"
