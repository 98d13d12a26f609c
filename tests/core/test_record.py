"""Records: what plainly fits needs no pydantic, and never means anything else than pydantic would say."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from surehand.core.record import Field, Record, _plain


class Inner(Record):
    n: int = Field(ge=0)


class Sample(Record):
    text: str = Field(min_length=1, description="A text")
    count: int = Field(default=5, ge=1, le=10, alias="howMany")
    ratio: float | None = None
    deep: bool = False
    kind: Literal["a", "b"] = "a"
    names: tuple[str, ...] = ()
    inner: list[Inner] = Field(default_factory=list)


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-20, 20),
    st.floats(),
    st.text(max_size=3),
    st.sampled_from(["a", "b", "5", "true", "\ud800"]),
    st.lists(st.text(max_size=2), max_size=2),
    st.lists(st.fixed_dictionaries({"n": st.integers(-1, 2)}), max_size=2),
)
raws = st.dictionaries(
    st.sampled_from(["text", "howMany", "count", "ratio", "deep", "kind", "names", "inner", "other"]),
    values,
    max_size=5,
)


@given(raws)
def test_what_is_taken_as_plain_is_what_the_model_would_say(raw: dict[str, Any]) -> None:
    plain = _plain(Sample, raw)
    if plain is not None:
        checked = Sample.pydantic_model().model_validate(raw, strict=True)
        assert {name: plain[name] for name in ("text", "count", "deep", "kind")} == {
            name: getattr(checked, name) for name in ("text", "count", "deep", "kind")
        }
        assert plain["ratio"] == checked.ratio or (plain["ratio"] != plain["ratio"])  # pyright: ignore


class Table(Record):
    mode: Literal["x", "y"] | None = None
    limit: float = Field(default=1.0, gt=0)
    names: tuple[str, ...] = Field(default=(), description="Names")


class File(Record):
    table: Table = Field(default_factory=Table)
    tables: dict[str, Table] = Field(default_factory=dict)
    rows: tuple[Inner, ...] = ()
    words: dict[str, str] = Field(default_factory=dict)


tables = st.dictionaries(
    st.sampled_from(["mode", "limit", "names", "odd"]),
    st.one_of(values, st.sampled_from(["x", "y", 3]), st.lists(st.sampled_from(["p", "\ud800", 1]), max_size=2)),
    max_size=3,
)
files = st.fixed_dictionaries(
    {},
    optional={
        "table": st.one_of(tables, values),
        "tables": st.dictionaries(st.one_of(st.text(max_size=2), st.integers()), tables, max_size=2),
        "rows": st.lists(st.dictionaries(st.sampled_from(["n", "m"]), st.integers(-1, 2), max_size=2), max_size=2),
        "words": st.dictionaries(st.text(max_size=2), st.one_of(st.text(max_size=2), st.integers()), max_size=2),
    },
)


@given(files)
def test_a_file_taken_as_plain_is_what_the_model_would_say(raw: dict[str, Any]) -> None:
    plain = _plain(File, raw, nested=True)
    if plain is not None:
        checked = File.pydantic_model().model_validate(raw)
        assert repr(plain) == repr(checked.__dict__) or plain == checked.__dict__


def test_a_plain_file_needs_no_model() -> None:
    raw = {
        "table": {"mode": "y", "names": ["p"]},
        "tables": {"t": {"limit": 2.5}},
        "rows": [{"n": 1}],
        "words": {"a": "b"},
    }
    plain = _plain(File, raw, nested=True)
    assert plain is not None
    assert plain["table"] == Table(mode="y", names=("p",))
    assert plain["tables"] == {"t": Table(limit=2.5)}
    assert (plain["rows"], plain["words"]) == ((Inner(n=1),), {"a": "b"})


def test_nested_records_come_back_as_records() -> None:
    made = Sample.parse({"text": "x", "inner": [{"n": 1}], "howMany": 3, "names": ["p", "q"]})
    assert made.inner == [Inner(n=1)]
    assert (made.count, made.names) == (3, ("p", "q"))
    assert made.to_dict()["inner"] == [{"n": 1}]


@pytest.mark.parametrize(
    "raw", [{}, {"text": ""}, {"text": "x", "howMany": 11}, {"text": "x", "kind": "c"}, {"text": "x", "odd": 1}]
)
def test_wrong_values_raise_pydantics_own_error(raw: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Sample.parse(raw)
    if "howMany" not in raw:
        with pytest.raises(ValidationError):
            Sample(**raw)


def test_a_record_does_not_change() -> None:
    made = Sample(text="x")
    with pytest.raises(AttributeError, match="frozen"):
        made.text = "y"  # pyright: ignore
    assert made.replace_values(text="y").text == "y"
    assert made.text == "x"
    assert made == Sample(text="x")
    assert repr(made).startswith("Sample(text='x', count=5")


def test_defaults_are_not_shared_between_records() -> None:
    first, second = Sample(text="x"), Sample(text="x")
    assert first.inner is not second.inner


def test_the_schema_of_a_record_is_its_models() -> None:
    schema = Sample.pydantic_model().model_json_schema()
    assert schema["properties"]["howMany"]["maximum"] == 10
    assert schema["properties"]["inner"]["items"]["properties"]["n"]["minimum"] == 0
    assert schema["required"] == ["text"]


def test_plain_arguments_and_default_settings_import_no_pydantic() -> None:
    code = (
        "import sys; from surehand.core.settings import Settings; from surehand.tools.basics import TOOLS;"
        "Settings(); TOOLS[1].arguments.parse({'text': 'x'}); print('pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
