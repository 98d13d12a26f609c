"""Arguments: schemas from signatures, models and raw JSON Schema; every fault with its path."""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

import pydantic
import pytest
from pydantic import BaseModel, Field, ValidationError

import surehand
from surehand import Tool, ToolContext, tool
from surehand.catalog import builtin_tool
from surehand.core.docstrings import docstring_text, parameter_texts
from surehand.core.schema import InvalidArguments, schema_problems


class Address(BaseModel):
    street: str
    number: int = 1


@tool
def deliver(
    to: Address,
    parcels: Annotated[list[str], Field(min_length=1, description="What to bring")],
    speed: Literal["slow", "fast"] = "slow",
    *,
    note: str | None = None,
    ctx: ToolContext | None = None,
) -> str:
    """Deliver parcels.

    They arrive in a day.

    Args:
        to: where they go
        note: words for the driver,
            over two lines
    """
    return f"{to.street} {parcels} {speed} {note}"


def test_a_schema_comes_from_signature_hints_and_docstring() -> None:
    schema = deliver.arguments.schema()
    assert list(schema["properties"]) == ["to", "parcels", "speed", "note"]
    assert schema["required"] == ["to", "parcels"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["to"]["description"] == "where they go"
    assert schema["properties"]["note"]["description"] == "words for the driver, over two lines"
    assert schema["properties"]["parcels"] == {
        "description": "What to bring",
        "items": {"type": "string"},
        "minItems": 1,
        "type": "array",
    }
    assert schema["properties"]["speed"]["enum"] == ["slow", "fast"]
    assert "title" not in str(schema)


def test_the_description_is_the_docstring_before_its_sections() -> None:
    assert deliver.description == "Deliver parcels.\n\nThey arrive in a day."


def test_the_context_parameter_is_hidden() -> None:
    assert "ctx" not in deliver.arguments.schema()["properties"]


def test_the_decorated_name_stays_callable() -> None:
    assert deliver(Address(street="Elm"), ["box"]) == "Elm ['box'] slow None"


def test_every_fault_is_listed_with_its_path() -> None:
    with pytest.raises(InvalidArguments) as caught:
        deliver.arguments.check({"to": {"street": 5}, "parcels": [], "sped": "slow"})
    assert {fault.path for fault in caught.value.faults} == {"to.street", "parcels", "sped"}
    assert "did you mean 'speed'?" in str(caught.value)


def test_parsing_arguments_directly_raises_pydantics_own_error() -> None:
    with pytest.raises(ValidationError):
        deliver.arguments.model.model.model_validate({"to": 1})  # pyright: ignore
    for arguments in (
        deliver.arguments,
        foreign({"type": "object", "properties": {"to": {"type": "string"}}}).arguments,
    ):
        with pytest.raises(ValidationError, match="to"):
            arguments.parse({"to": 1})
    with pytest.raises(ValidationError, match="file_path"):
        cast("Tool", builtin_tool("Read")).arguments.parse({"file_path": 1})


@pytest.mark.spec("CORE-1")
@pytest.mark.parametrize("field", [surehand.Field, pydantic.Field])
def test_both_fields_are_honoured_in_an_annotated_parameter(field: Any) -> None:
    @tool
    def seek(
        times: Annotated[int, field(ge=1, le=5, description="How often")],
        names: list[Annotated[str, field(min_length=2)]],
        depth: Annotated[int | None, field(ge=0)] = None,
        limit: int = field(3, gt=0, description="At most"),
    ) -> str:
        "Seek."
        return f"{times} {names} {depth} {limit}"

    properties = seek.arguments.schema()["properties"]
    assert properties["times"] == {"type": "integer", "minimum": 1, "maximum": 5, "description": "How often"}
    assert properties["names"]["items"] == {"type": "string", "minLength": 2}
    assert (properties["limit"]["default"], properties["limit"]["description"]) == (3, "At most")
    with pytest.raises(ValidationError) as caught:
        seek.arguments.parse({"times": 9, "names": ["a"], "depth": -1, "limit": 0})
    assert caught.value.error_count() == 4
    assert seek.arguments.parse({"times": 2, "names": ["ab"]}).limit == 3


@pytest.mark.spec("CORE-1")
def test_our_field_is_honoured_inside_a_pydantic_model_too() -> None:
    class Order(pydantic.BaseModel):
        count: Annotated[int, surehand.Field(ge=1)]

    with pytest.raises(ValidationError):
        Order(count=0)


def test_a_wrong_option_of_a_field_suggests_the_right_one() -> None:
    with pytest.raises(TypeError, match="did you mean 'min_length'"):
        surehand.Field(minlength=3)
    with pytest.raises(TypeError, match="did you mean 'ge'"):
        surehand.Field(minimum=3)


def test_names_that_pydantic_reserves_still_work() -> None:
    @tool
    def odd(schema: str, copy: int = 2, _hidden: str = "x") -> str:
        "Odd names."
        return f"{schema}{copy}{_hidden}"

    args = odd.arguments.check({"schema": "s", "copy": 3})
    assert odd.run(args, None) == "s3x"  # pyright: ignore


def test_keyword_arguments_of_any_name_are_passed_on() -> None:
    @tool
    def open_ended(first: int, **others: object) -> object:
        "Takes anything."
        return others

    args = open_ended.arguments.check({"first": 1, "second": 2})
    assert open_ended.run(args, None) == {"second": 2}  # pyright: ignore


def test_a_signature_that_no_model_can_fill_is_a_fault_of_the_definition() -> None:
    @tool
    def variadic(*things: str) -> None:
        "Takes a list."

    assert "name each parameter" in variadic.arguments.problems()[0]


def foreign(schema: dict[str, object]) -> Tool:
    return Tool(name="remote", description="A foreign tool.", args=schema, run=lambda args, ctx: args)


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}}, {"n": 1}, {"n": 0}),
        (
            {"type": "object", "$defs": {"p": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/p"}}},
            {"a": "x"},
            {"a": 1},
        ),
        (
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "type": "object",
                "definitions": {"p": {"const": 1}},
                "properties": {"a": {"$ref": "#/definitions/p"}},
            },
            {"a": 1},
            {"a": 2},
        ),
        (
            {"type": "object", "properties": {"t": {"$ref": "#"}}, "additionalProperties": False},
            {"t": {}},
            {"t": {"x": 1}},
        ),
        ({"type": "object", "dependentRequired": {"a": ["b"]}}, {"a": 1, "b": 1}, {"a": 1}),
        ({"type": "object", "unevaluatedProperties": False, "properties": {"a": True}}, {"a": 1}, {"b": 1}),
    ],
)
def test_foreign_schemas_are_validated_all_the_same(schema: dict[str, object], good: object, bad: object) -> None:
    arguments = foreign(schema).arguments
    assert arguments.check(good) == good  # pyright: ignore
    with pytest.raises(InvalidArguments):
        arguments.check(bad)  # pyright: ignore


def test_a_foreign_schema_is_never_fetched() -> None:
    from surehand import ToolFailure

    with pytest.raises(ToolFailure, match="never fetched"):
        foreign({"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/x.json"}}}).arguments.check(
            {"a": 1}
        )


@pytest.mark.parametrize(
    "schema",
    [
        5,
        {"type": "array"},
        {"type": "object", "properties": []},
        {"type": "object", "properties": {"a": {"type": "strin"}}},
        {"type": "object", "required": "a"},
        {"type": "object", "properties": {"a": {"minimum": "1"}}},
    ],
)
def test_a_schema_that_is_none_is_named(schema: object) -> None:
    assert schema_problems(schema)


def test_numpy_and_sphinx_docstrings_are_read() -> None:
    numpy = "Do it.\n\nParameters\n----------\na : int\n    the first\nb : str\n    the second\n\nReturns\n-------\nint"
    sphinx = "Do it.\n\n:param a: the first\n:param str b: the second\n:returns: int"
    for doc in (numpy, sphinx):
        assert parameter_texts(doc) == {"a": "the first", "b": "the second"} or parameter_texts(doc)["a"] == "the first"
        assert docstring_text(doc) == "Do it."
