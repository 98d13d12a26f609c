"""The registry: register, alias, module, filter, list, validate."""

from __future__ import annotations

from typing import Any

import pytest

from surehand import RegistrationError, Registry, Tool, ToolFailure, tool
from surehand.core.tool import ToolInfo
from surehand.registry.registry import problems

FUNCTIONS = [
    "effects", "check", "preview", "undo", "check_permission", "resources", "depends_on", "initialize", "health_check",
    "close", "at_once", "check_at_once",
]  # fmt: skip


def make(name: str, **options: Any) -> Tool:
    options.setdefault("description", f"Does {name}.")
    return Tool(name=name, args={"type": "object"}, run=lambda args, ctx: name, **options)


def test_a_registered_tool_is_found_by_name_and_alias() -> None:
    registry = Registry()
    read = registry.register(make("Read", aliases=("FileRead",)))
    assert registry.get("Read") is read
    assert registry.get("FileRead") is read
    assert "FileRead" in registry


def test_an_unknown_name_gives_none() -> None:
    assert Registry().get("Nothing") is None


@pytest.mark.parametrize(
    ("second", "clash"),
    [
        (make("A"), "'A'"),
        (make("a"), "'a'"),
        (make("C", aliases=("a",)), "'a'"),
        (make("C", aliases=("A",)), "'A'"),
    ],
)
def test_a_name_or_alias_that_is_taken_is_an_error_naming_both(second: Tool, clash: str) -> None:
    registry = Registry()
    registry.register(make("A", aliases=("a",)))
    with pytest.raises(RegistrationError) as caught:
        registry.register(second)
    assert clash in str(caught.value)
    assert "'A'" in str(caught.value)
    assert repr(second.name) in str(caught.value)
    assert len(registry) == 1


def test_the_list_has_name_and_description_in_the_order_of_registration() -> None:
    registry = Registry()
    for name in ("zeta", "alpha", "mid"):
        registry.register(make(name))
    assert registry.list() == [("zeta", "Does zeta."), ("alpha", "Does alpha."), ("mid", "Does mid.")]


def test_tools_are_queried_by_metadata() -> None:
    registry = Registry()
    registry.register(make("a", read_only=True, version="2.0.0"))
    registry.register(make("b"))
    registry.register_module("calc", [make("c", read_only=True)])
    assert [info.name for info in registry.infos(read_only=True)] == ["a", "c"]
    assert [info.name for info in registry.infos(module="calc")] == ["c"]
    assert [info.name for info in registry.infos(version="2.0.0")] == ["a"]
    assert [info.name for info in registry.infos(state="registered", read_only=False)] == ["b"]
    with pytest.raises(ValueError, match="colour"):
        registry.infos(colour="red")


def test_a_filter_keeps_the_named_and_ignores_the_unknown() -> None:
    registry = Registry()
    first, second = registry.register(make("a", aliases=("A",))), registry.register(make("b"))
    assert registry.filter(["b", "nothing", "A", "b"]) == [second, first]


def test_a_module_lists_its_tools_in_full_form_and_short_names_work() -> None:
    registry = Registry()
    registry.register(make("plain"))
    registry.register_module("calculator", [make("calculate"), make("convert")], version="1.2.0")
    assert registry.names() == ["plain", "mcp__calculator__calculate", "mcp__calculator__convert"]
    assert registry.module_names("calculator") == ["mcp__calculator__calculate", "mcp__calculator__convert"]
    assert registry.modules() == ["calculator"]
    found = registry.get("mcp__calculator__calculate")
    assert found is not None
    assert found is registry.get("calculate")
    assert found.version == "1.2.0"
    assert len(registry.all()) == 3


def test_a_module_is_registered_whole_or_not_at_all() -> None:
    registry = Registry()
    registry.register(make("taken"))
    with pytest.raises(RegistrationError) as caught:
        registry.register_module(
            "m", [make("fine"), make("taken"), make("twice"), make("twice"), make("mute", description="")]
        )
    assert len(registry) == 1
    assert len(caught.value.problems) == 3


def test_every_fault_of_a_definition_is_listed() -> None:
    wrong = Tool(name=" bad\n", description=" ", args={"type": "array"}, run=None, timeout_s=-1)  # pyright: ignore
    found = " | ".join(problems(wrong))
    for word in ("blank", "control", "description", "callable", "timeout_s", "type 'object'"):
        assert word in found
    with pytest.raises(RegistrationError) as caught:
        Registry().register(wrong)
    assert len(caught.value.problems) >= 6


@pytest.mark.parametrize(
    ("slip", "told"),
    [
        ({"read_only": "no"}, "read_only must be True, False or a function of the arguments, not 'no'"),
        ({"concurrency_safe": 1}, "concurrency_safe must be True, False"),
        *(({name: 5}, f"{name} must be callable, not int") for name in FUNCTIONS),
        ({"show_preview": "never"}, "show_preview must be 'offered', 'asked', 'always' or a function, not 'never'"),
        ({"where": "proces"}, "where must be 'loop', 'thread' or 'process', not 'proces'"),
        ({"kind": "reed"}, "kind must be one of read, edit, delete, search, execute, fetch, think, other, not 'reed'"),
        ({"timeout_s": "5"}, "timeout_s must be a positive number of seconds, not '5'"),
        ({"effects": []}, "effects must be callable, not list"),
        ({"undo": "unsend"}, "undo must be callable, not str"),
        ({"at_once": True}, "at_once must be callable, not bool"),
    ],
)
def test_a_value_of_the_wrong_kind_is_a_fault_that_is_named(slip: dict[str, Any], told: str) -> None:
    with pytest.raises(RegistrationError) as caught:
        Registry().register(make("A", **slip))
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("slip", "told"),
    [
        ({"requires": "Grep>=1"}, "requires=['Grep>=1']"),
        ({"aliases": "b"}, "aliases=['b']"),
        ({"examples": {"text": "x"}}, "examples=[{'text': 'x'}]"),
    ],
)
def test_one_thing_in_the_place_of_a_list_is_told_how_to_be_written(slip: dict[str, Any], told: str) -> None:
    with pytest.raises(TypeError) as caught:
        make("A", **slip)
    assert told in str(caught.value)


def test_a_plain_function_is_told_to_be_put_under_the_decorator() -> None:
    def plain(text: str) -> str:
        "Says it."
        return text

    with pytest.raises(RegistrationError, match=r"tool 'plain' cannot be registered: .*put @tool above it"):
        Registry().register(plain)  # pyright: ignore


def test_a_valid_definition_has_no_faults() -> None:
    @tool
    def fine(text: str) -> str:
        "Says it."
        return text

    assert problems(fine) == []


def test_what_is_no_tool_is_refused_by_name() -> None:
    with pytest.raises(RegistrationError, match="got str"):
        Registry().register("Read")  # pyright: ignore


def test_a_function_without_a_docstring_is_refused_at_registration() -> None:
    @tool
    def mute(x: int) -> int:
        return x

    with pytest.raises(RegistrationError, match="docstring"):
        Registry().register(mute)


def test_a_lazy_tool_is_listed_without_being_loaded() -> None:
    registry = Registry()
    loaded: list[int] = []

    def load() -> Tool:
        loaded.append(1)
        return make("slow")

    registry.register_lazy(ToolInfo(name="slow", description="Slow.", input_schema={"type": "object"}), load)
    assert registry.list() == [("slow", "Slow.")]
    assert not loaded
    assert registry.get("slow") is registry.get("slow")
    assert loaded == [1]


def test_a_lazy_tool_that_cannot_be_imported_is_unavailable() -> None:
    registry = Registry()

    def load() -> Tool:
        raise ImportError("no module named gone")

    registry.register_lazy(ToolInfo(name="gone", description="Gone.", input_schema={"type": "object"}), load)
    with pytest.raises(ToolFailure, match="gone cannot be loaded") as caught:
        registry.get("gone")
    assert caught.value.code == "tool_unavailable"


def test_unregistering_takes_name_and_aliases_away() -> None:
    registry = Registry()
    registry.register_module("m", [make("a", aliases=("x",))])
    assert registry.unregister("x") == ["a"]
    assert registry.get("a") is registry.get("x") is registry.get("mcp__m__a") is None
    with pytest.raises(RegistrationError, match="no tool"):
        registry.unregister("a")


@pytest.mark.spec("REG-5")
def test_unregistering_what_others_need_is_refused_or_cascades() -> None:
    registry = Registry()
    registry.register(make("base"))
    registry.register(make("upper", requires=("base>=1",)))
    registry.register(make("top", requires=("upper",)))
    with pytest.raises(RegistrationError, match="required by upper"):
        registry.unregister("base")
    assert registry.unregister("base", cascade=True) == ["top", "upper", "base"]
    assert len(registry) == 0


def test_registering_and_unregistering_are_events() -> None:
    seen: list[tuple[str, str]] = []
    registry = Registry(lambda event: seen.append((event.kind, event.tool)))
    registry.register(make("a"))
    registry.unregister("a")
    assert seen == [("tool_registered", "a"), ("tool_unregistered", "a")]


def test_filtering_by_a_name_and_its_alias_gives_the_tool_once() -> None:
    registry = Registry()
    registry.register(make("a", aliases=("x",)))
    assert [found.name for found in registry.filter(["x", "a", "nobody"])] == ["a"]


def test_what_cannot_be_unregistered_is_not_said_to_be_unregistrable_as_a_new_tool() -> None:
    registry = Registry()
    registry.register(make("a"))
    registry.register(make("b", requires=("a",)))
    with pytest.raises(RegistrationError, match="cannot be unregistered: still required by b"):
        registry.unregister("a")
    with pytest.raises(RegistrationError, match="cannot be unregistered"):
        registry.exchange(["a"], [])
