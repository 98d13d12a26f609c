"""Document 000, the tool system specification: one test per scenario, named after it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from surehand import RegistrationError, Registry, Tool, tool
from surehand.testing import Says, ScriptedModel, scratch_app


def make(name: str) -> Tool:
    return Tool(name=name, description=f"Does {name}.", args={"type": "object"}, run=lambda args, ctx: name)


async def test_tool_basic_information() -> None:
    async with scratch_app() as app:
        for info in app.registry.infos():
            assert info.name
            assert info.description
            assert info.input_schema["type"] == "object"
            json.dumps(info.input_schema)


async def test_tool_execution() -> None:
    async with scratch_app() as app:
        result = await app.call("tools.echo", {"text": "hi"})
    assert (result.ok, result.output) == (True, "hi")


@pytest.mark.spec("PERM-2")
async def test_permission_requirements(tmp_path: Path) -> None:
    approver = Says("once")
    async with scratch_app(tmp_path, approver=approver) as app:
        write = app.registry.get("Write")
        assert write is not None
        assert write.needs_permission
        await app.call("Write", {"file_path": "a", "content": "x"})
    assert len(approver.asked) == 1


@pytest.mark.spec("REG-1")
def test_register_tool() -> None:
    registry = Registry()
    made = registry.register(make("a"))
    assert registry.get("a") is made
    with pytest.raises(RegistrationError):
        registry.register(make("a"))


@pytest.mark.spec("REG-1")
def test_get_tool() -> None:
    registry = Registry()
    made = registry.register(make("a"))
    assert registry.get("a") is made
    assert registry.get("b") is None


@pytest.mark.spec("REG-1")
def test_list_tools() -> None:
    registry = Registry()
    registry.register(make("a"))
    registry.register(make("b"))
    assert registry.list() == [("a", "Does a."), ("b", "Does b.")]


@pytest.mark.spec("REG-2")
def test_filter_tools() -> None:
    registry = Registry()
    made = registry.register(make("a"))
    registry.register(make("b"))
    assert registry.filter(["a", "does not exist"]) == [made]


@pytest.mark.spec("FILE-1")
async def test_read_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("content\n")
    async with scratch_app(tmp_path) as app:
        for path in ("a.txt", str(tmp_path / "a.txt")):
            assert "content" in (await app.call("Read", {"file_path": path})).output
        missing = await app.call("Read", {"file_path": "b.txt"})
    assert not missing.ok


@pytest.mark.spec("FILE-3")
async def test_write_file(tmp_path: Path) -> None:
    approver = Says("once")
    async with scratch_app(tmp_path, approver=approver) as app:
        made = await app.call("Write", {"file_path": "deep/er/a.txt", "content": "one"})
        again = await app.call("Write", {"file_path": "deep/er/a.txt", "content": "two"})
    assert made.ok
    assert again.ok
    assert (tmp_path / "deep/er/a.txt").read_text() == "two"
    assert len(approver.asked) == 2


@pytest.mark.spec("FILE-4")
async def test_edit_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one two\n")
    async with scratch_app(tmp_path) as app:
        await app.call("Read", {"file_path": "a.txt"})
        done = await app.call("Edit", {"file_path": "a.txt", "old_string": "two", "new_string": "2"})
        missed = await app.call("Edit", {"file_path": "a.txt", "old_string": "three", "new_string": "3"})
    assert done.ok
    assert not missed.ok
    assert (tmp_path / "a.txt").read_text() == "one 2\n"


async def test_content_search(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\nneedle = 2\ny = 3\n")
    (tmp_path / "a.md").write_text("needle\n")
    async with scratch_app(tmp_path) as app:
        found = await app.call("Grep", {"pattern": "need.e", "context": 1})
        typed = await app.call("Grep", {"pattern": "needle", "type": "md", "output_mode": "files_with_matches"})
    assert "x = 1" in found.output
    assert ">>needle<<" in found.output
    assert "a.py" not in typed.output
    assert "a.md" in typed.output


async def test_file_pattern_matching(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").touch()
    (tmp_path / "b.txt").touch()
    async with scratch_app(tmp_path) as app:
        found = await app.call("Glob", {"pattern": "**/*.py"})
    assert "src/a.py" in found.output
    assert "b.txt" not in found.output


@pytest.mark.spec("SHELL-1")
async def test_execute_command(tmp_path: Path) -> None:
    async with scratch_app(tmp_path) as app:
        done = await app.call("Bash", {"command": "echo out; echo err >&2; exit 3"})
    assert (done.data["exit_code"], done.data["stdout"], done.data["stderr"]) == (3, "out\n", "err\n")


@pytest.mark.spec("SHELL-1")
async def test_timeout_control(tmp_path: Path) -> None:
    async with scratch_app(tmp_path) as app:
        done = await app.call("Bash", {"command": "sleep 60", "timeout": 300})
    assert done.error is not None
    assert done.error.code == "timeout"


@pytest.mark.spec("PERM-2")
async def test_permission_check(tmp_path: Path) -> None:
    approver = Says("no")
    (tmp_path / "src").mkdir()
    async with scratch_app(tmp_path, approver=approver) as app:
        assert (await app.call("Bash", {"command": "ls"})).ok
        refused = await app.call("Bash", {"command": "rm -r src"})
    assert refused.error is not None
    assert refused.error.code == "permission_denied"
    assert "rm -r src" in approver.asked[0].text()


def delegated(**args: Any) -> ScriptedModel:
    def step(request: Any) -> Any:
        if request.messages[0].text == "delegate":
            return [("Task", {"prompt": "below", **args})] if len(request.messages) == 1 else "done"
        return f"I have {sorted(info.name for info in request.tools)}"

    return ScriptedModel(step, step, step)


async def test_delegate_task(tmp_path: Path) -> None:
    async with scratch_app(tmp_path) as app:
        outcome = await app.conversation(delegated()).ask("delegate")
    assert outcome.results[0].output.startswith("I have")


@pytest.mark.spec("AGENT-2")
async def test_tool_filtering(tmp_path: Path) -> None:
    async with scratch_app(tmp_path) as app:
        outcome = await app.conversation(delegated(subagent_type="explorer")).ask("delegate")
    assert "'Read'" in outcome.results[0].output
    assert "'Write'" not in outcome.results[0].output


@pytest.mark.spec("CORE-1")
def test_a_tool_of_ones_own_follows_the_same_interface() -> None:
    @tool
    def mine(text: str) -> str:
        "Mine."
        return text

    assert mine.info().input_schema["properties"] == {"text": {"type": "string"}}
