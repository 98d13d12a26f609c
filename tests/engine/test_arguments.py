"""Raw arguments through the door: repaired with a receipt where only one thing can be meant, refused otherwise."""

from __future__ import annotations

import json
import threading
import typing
from typing import Annotated, Any, Literal, cast

import pytest
from pydantic import AfterValidator, BaseModel

from surehand import Field, Tool, tool
from surehand.core.frozen import names_of
from surehand.core.tool import ToolOptions
from surehand.testing import scratch_app


@tool(read_only=True)
async def permit(action: Literal["allow", "install", "activate", "done"] = "allow", count: int = 1) -> str:
    "Say what was asked for."
    return f"{action} {count}"


@pytest.mark.spec("CORE-10")
@pytest.mark.parametrize("word", ["disallow", "uninstall", "deactivate", "undone"])
async def test_a_word_that_means_the_contrary_is_refused_with_the_choices(word: str) -> None:
    async with scratch_app(tools=[permit]) as app:
        result = await app.call("permit", {"action": word})
    assert result.error is not None
    assert result.error.code == "invalid_args"
    assert all(choice in result.output for choice in ("allow", "install", "activate", "done"))


@pytest.mark.spec("CORE-10")
async def test_true_for_a_number_is_refused() -> None:
    async with scratch_app(tools=[permit]) as app:
        result = await app.call("permit", {"count": True})
        mended = await app.call("permit", {"count": "3", "action": "Allow"})
    assert result.error is not None
    assert result.error.code == "invalid_args"
    assert (mended.output, len(mended.meta["repaired"])) == ("allow 3", 2)


class Ticket(BaseModel):
    title: Annotated[str, Field(min_length=5)]
    size: Literal["s", "m"]


SCHEMAS: list[dict[str, Any]] = [
    {"properties": {"x": {"type": "integer", "minimum": 3}}, "required": ["x"]},
    {"properties": {"x": {"type": "integer", "exclusiveMaximum": 0, "multipleOf": 7}}, "required": ["x"]},
    {"properties": {"x": {"type": "number", "exclusiveMinimum": 1, "maximum": 1.5}}, "required": ["x"]},
    {"properties": {"x": {"type": "array", "items": {"enum": [2, 3]}, "minItems": 2}}, "required": ["x"]},
    {"properties": {"x": {"$ref": "#/$defs/y"}}, "$defs": {"y": {"const": 9}}, "required": ["x"]},
    {"properties": {"x": {"anyOf": [{"type": "string", "maxLength": 1}, {"type": "null"}]}}, "required": ["x"]},
    {"properties": {"x": {"type": ["boolean", "null"]}}, "required": ["x"]},
    {"allOf": [{"properties": {"x": {"type": "string", "format": "date"}}, "required": ["x"]}]},
]


@pytest.mark.spec("CORE-10")
@pytest.mark.parametrize("schema", SCHEMAS)
async def test_the_example_in_a_hint_would_be_taken(schema: dict[str, Any]) -> None:
    took = Tool(name="take", description="Take.", args={"type": "object", **schema}, run=lambda args, ctx: "taken")
    async with scratch_app(tools=[took]) as app:
        refused = await app.call("take", {"x": {"wrong": 1}})
        assert refused.error is not None
        example = json.loads(refused.error.hint.partition("for example with ")[2])
        assert (await app.call("take", example)).output == "taken"


@pytest.mark.spec("CORE-10")
async def test_the_example_for_a_model_argument_is_whole_and_none_is_given_where_none_is_sure() -> None:
    @tool(read_only=True)
    def file(ticket: Ticket) -> str:
        "File."
        return ticket.size

    @tool(read_only=True, examples=[{"code": "wrong"}])
    def enter(code: Annotated[str, Field(pattern="^[0-9]{4}-[A-Z]+$")]) -> str:
        "Enter."
        return code

    async with scratch_app(tools=[file, enter]) as app:
        refused = await app.call("file", {})
        assert refused.error is not None
        example = json.loads(refused.error.hint.partition("for example with ")[2])
        assert (await app.call("file", example)).output == "s"
        unsure = await app.call("enter", {})
        assert unsure.error is not None
        assert unsure.error.hint == "Correct them and call again."


async def test_a_tool_that_returns_text_has_it_as_data_too() -> None:
    async with scratch_app(tools=[permit]) as app:
        assert (await app.call("permit")).data == "allow 1"


@pytest.mark.parametrize(
    ("slip", "meant"), [("readonly", "read_only"), ("concurency_safe", "concurrency_safe"), ("timeout", "timeout_s")]
)
def test_a_slip_in_an_option_of_a_tool_suggests_the_right_word(slip: str, meant: str) -> None:
    with pytest.raises(TypeError, match=f"{slip}' .did you mean '{meant}'"):
        tool(**cast("Any", {slip: True}))(lambda: "")
    with pytest.raises(TypeError, match=f"{slip}' .did you mean '{meant}'"):
        Tool(name="x", description="X.", run=print, args={}, **cast("Any", {slip: True}))


def test_a_slip_in_an_option_of_a_tool_is_seen_by_the_type_checker() -> None:
    """The options are typed by name; a checker refuses the others, as this reads them."""
    options = typing.get_type_hints(typing.get_overloads(tool)[1])["options"]
    assert typing.get_origin(options) is typing.Unpack
    assert {"read_only", "timeout_s"} <= set(ToolOptions.__annotations__)
    assert "readonly" not in ToolOptions.__annotations__
    assert set(ToolOptions.__annotations__) == {
        name for name in names_of(Tool) if name not in ("run", "args", "arguments")
    }


async def test_a_validator_in_a_hint_is_applied_once() -> None:
    @tool(read_only=True)
    async def count_on(number: Annotated[int, AfterValidator(lambda number: number + 1)] = 0) -> str:
        "Count on."
        return f"{number}"

    async with scratch_app(tools=[count_on]) as app:
        assert (await app.call("count_on", {"number": 1})).output == "2"


async def test_what_is_wrong_is_explained_off_the_loop() -> None:
    """The first wrong arguments import what mends and explains them, a fifth of a second."""
    loop, where = threading.get_ident(), list[bool]()

    def look(count: int) -> int:
        where.append(threading.get_ident() == loop)
        return count

    @tool(read_only=True)
    async def choose(count: Annotated[int, AfterValidator(look)], word: str = "") -> str:
        "Choose."
        return f"{count}"

    async with scratch_app(tools=[choose]) as app:
        for args in ({"count": 1}, {"count": 2}, {"count": 3, "wrod": "x"}):
            await app.call("choose", args)
    assert where[:2] == [False, True]  # the model is made in a thread; what fits is checked where the call stands
    assert not where[-1]
