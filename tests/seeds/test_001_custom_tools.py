"""Document 001, custom tools: one test per scenario, named after it (in English)."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

from surehand import Registry, Settings, Surehand, Tool, ToolResult, tool
from surehand.core.shapes import result_to_mcp
from surehand.registry.registry import problems
from surehand.testing import ScriptedModel, run_tool, scratch_app
from surehand.tools.calculator import TOOLS as CALCULATOR


@tool(read_only=True)
async def shout(text: str) -> str:
    "Shout."
    return text.upper()


@tool(read_only=True)
async def whisper(text: str) -> str:
    "Whisper."
    return text.lower()


def test_register_a_single_tool() -> None:
    registry = Registry()
    registry.register(shout)
    assert registry.get("shout") is shout


@pytest.mark.spec("REG-3")
def test_register_a_tool_module() -> None:
    registry = Registry()
    registry.register_module("voice", [shout, whisper])
    assert [info.name for info in registry.infos(module="voice")] == ["shout", "whisper"]


def test_query_registered_tools() -> None:
    registry = Registry()
    registry.register(shout)
    registry.register(whisper)
    assert registry.all() == [shout, whisper]


@pytest.mark.spec("REG-4")
def test_validate_a_tool_definition() -> None:
    assert problems(shout) == []
    wrong = Tool(name="", description="", args={"type": "object"}, run=lambda args, ctx: None)
    assert len(problems(wrong)) == 2


@pytest.mark.spec("REG-3")
def test_server_configuration_validation() -> None:
    registry = Registry()
    registry.register_module("voice", [shout])
    assert registry.names() == ["mcp__voice__shout"]


async def test_check_tool_permission() -> None:
    async with scratch_app(modules={"voice": [shout, whisper]}, tool_allow=["mcp__voice__shout"]) as app:
        assert (await app.call("mcp__voice__shout", {"text": "a"})).output == "A"
        refused = await app.call("mcp__voice__whisper", {"text": "A"})
    assert refused.error is not None
    assert refused.error.code == "tool_unavailable"


@pytest.mark.spec("PERM-6")
def test_permission_filtering() -> None:
    registry = Registry()
    registry.register_module("voice", [shout, whisper])
    assert registry.names() == ["mcp__voice__shout", "mcp__voice__whisper"]


@pytest.mark.spec("PERM-6")
async def test_module_level_permission() -> None:
    registry = Registry()
    registry.register_module("voice", [shout])
    registry.register_module("other", [whisper])
    assert registry.module_names("voice") == ["mcp__voice__shout"]
    settings = Settings.parse({"permissions": {"deny": ["mcp__voice"]}})
    async with scratch_app(modules={"voice": [shout], "other": [whisper]}, settings=settings) as app:
        denied = await app.call("shout", {"text": "a"})
        assert (await app.call("whisper", {"text": "A"})).ok
    assert denied.error is not None
    assert denied.error.code == "permission_denied"


@pytest.mark.spec("CORE-8")
async def test_tool_execution_exception() -> None:
    @tool(read_only=True)
    async def broken() -> None:
        "Breaks."
        raise RuntimeError("out of paper")

    shape = result_to_mcp(await run_tool(broken))
    assert shape["isError"] is True
    assert shape["content"][0]["type"] == "text"
    assert "out of paper" in shape["content"][0]["text"]


@pytest.mark.spec("CORE-8")
async def test_argument_validation_error() -> None:
    result = await run_tool(shout, {"text": 5, "volume": 11})
    assert result.error is not None
    assert result.error.code == "invalid_args"
    assert "text" in result.error.message
    assert "volume" in result.error.message


@pytest.mark.spec("ENG-8")
async def test_tool_execution_logging(caplog: pytest.LogCaptureFixture) -> None:
    @tool(read_only=True)
    async def broken() -> None:
        "Breaks."
        raise RuntimeError("out of paper")

    with caplog.at_level(logging.INFO, "surehand"):
        await run_tool(shout, {"text": "hello"})
        await run_tool(broken)
    logged = caplog.text
    for words in ("shout started with", "shout finished in", "HELLO", "broken failed after", "out of paper"):
        assert words in logged


@pytest.mark.spec("ASK-5")
async def test_streaming_input_call() -> None:
    async def messages() -> AsyncIterator[str]:
        yield "first"
        yield "second"

    model = ScriptedModel([("shout", {"text": "a"})], "one", [("shout", {"text": "b"})], "two")
    async with scratch_app(tools=[shout], builtin=False) as app:
        outcomes = [outcome async for outcome in app.conversation(model).converse(messages())]
    assert [outcome.results[0].output for outcome in outcomes] == ["A", "B"]


@pytest.mark.spec("CORE-3")
async def test_async_generator_compatibility() -> None:
    @tool(read_only=True)
    async def slow() -> AsyncIterator[object]:
        "Streams."
        yield "working"
        yield ToolResult(output="done")

    assert (await run_tool(slow)).output == "done"


class Person(BaseModel):
    name: str
    age: int


async def test_schema_validation() -> None:
    @tool(read_only=True)
    def greet(person: Person) -> str:
        "Greet."
        return f"{person.name} {person.age + 1}"

    assert (await run_tool(greet, {"person": {"name": "Ada", "age": 36}})).output == "Ada 37"
    assert not (await run_tool(greet, {"person": {"name": "Ada"}})).ok


def test_runtime_type_validation() -> None:
    with pytest.raises(ValidationError):
        CALCULATOR[0].args(expression=5)  # pyright: ignore
    with pytest.raises(ValidationError):
        Person.model_validate({"name": 1})


@pytest.mark.spec("MCP-4")
async def test_basic_arithmetic() -> None:
    assert (await run_tool(CALCULATOR[0], {"expression": "2 + 3 * 4"})).output == "2 + 3 * 4 = 14.00"


@pytest.mark.spec("MCP-4")
async def test_decimal_precision() -> None:
    assert (await run_tool(CALCULATOR[0], {"expression": "1 / 3", "precision": 4})).output == "1 / 3 = 0.3333"
    assert (await run_tool(CALCULATOR[0], {"expression": "1 / 3"})).output == "1 / 3 = 0.33"


@pytest.mark.spec("MCP-4")
@pytest.mark.parametrize("expression", ["2 +", "1/0", "9**9**9", "__import__('os')", "(" * 100_000])
async def test_handle_invalid_expressions(expression: str) -> None:
    result = await run_tool(CALCULATOR[0], {"expression": expression})
    assert not result.ok
    assert result.output.startswith("Calculation error:")


@pytest.mark.spec("MCP-2")
async def test_application_initialisation(tmp_path: Path) -> None:
    async with Surehand(tmp_path, modules={"voice": [shout, whisper]}) as app:
        assert "voice" in app.registry.modules()
        assert (await app.call("shout", {"text": "a"})).ok


async def test_tool_integration(tmp_path: Path) -> None:
    model = ScriptedModel([("mcp__voice__shout", {"text": "hey"})], "HEY it is")
    async with Surehand(tmp_path, modules={"voice": [shout]}) as app:
        outcome = await app.conversation(model).ask("shout hey")
    assert outcome.results[0].output == "HEY"


def test_readme_has_a_whole_example() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    assert "@tool(read_only=True)" in readme
    assert "app.call(" in readme


def test_every_public_name_has_a_docstring() -> None:
    import surehand

    for name in surehand.__all__:
        value = getattr(surehand, name)
        if callable(value) and getattr(value, "__module__", "").startswith("surehand"):
            assert value.__doc__, name


def test_best_practice_guide() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "add-a-tool.md").read_text()
    for word in ("ToolFailure", "timeout_s", "mcp__calculator__calculate"):
        assert word in guide
