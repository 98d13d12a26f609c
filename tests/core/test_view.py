"""Selections: filter, allow-list, deferred tools, sub-agents, and the forms providers take."""

from __future__ import annotations

import pytest

from surehand.core.events import Event
from surehand.core.session import Session
from surehand.core.settings import Settings
from surehand.core.tool import Tool
from surehand.core.view import CORE_TOOLS, Selection
from surehand.registry.registry import Registry
from surehand.registry.search import SearchIndex

OTHERS = (
    "WebFetch",
    "WebSearch",
    "TaskCreate",
    "time.now",
    "fs.read_file",
    "fs.list_dir",
    "Gitignore",
    "Calc",
    "X",
    "Y",
)


def make(name: str, *, aliases: tuple[str, ...] = (), module: str = "", enabled: bool = True) -> Tool:
    return Tool(
        name=name,
        description=f"The tool {name}",
        run=lambda a, c: None,
        args={"type": "object"},
        aliases=aliases,
        module=module,
        enabled=enabled,
    )


def registry_of(*names: str) -> Registry:
    registry = Registry()
    for name in names:
        registry.register(make(name, aliases=("FileRead",) if name == "Read" else ()), deferrable=True)
    return registry


def many() -> Registry:
    return registry_of(*CORE_TOOLS, *OTHERS)


def session(heard: list[Event] | None = None) -> Session:
    return Session("/", settings=Settings(), emit=heard.append if heard is not None else None)


def selection(registry: Registry, **options: object) -> Selection:
    index = SearchIndex(registry)
    return Selection(registry, session(), search=index.names, **options)  # type: ignore[arg-type]


def test_without_an_allow_list_everything_can_be_called() -> None:
    view = selection(many())
    assert len(view) == 18
    assert view.get("FileRead") is view.get("Read")
    assert view.get("Nobody") is None


@pytest.mark.parametrize(
    ("allow", "names"),
    [
        (["fs.*"], ["fs.read_file", "fs.list_dir"]),
        (["FileRead", "Bash", "Unknown"], ["Bash", "Read"]),
        (["Web*", "time.now"], ["WebFetch", "WebSearch", "time.now"]),
        (["mcp__github__*"], ["mcp__github__open", "list"]),
        (["mcp__github"], ["mcp__github__open", "list"]),
        (["File*"], ["Read"]),
        (["nothing*"], []),
        (["[WX]*"], ["Write", "WebFetch", "WebSearch", "X"]),
    ],
)
def test_an_allow_list_takes_names_aliases_and_globs(allow: list[str], names: list[str]) -> None:
    registry = many()
    registry.register(make("mcp__github__open"))
    registry.register(make("list", module="github"))
    view = selection(registry, allow=allow)
    assert view.names() == names
    assert all(view.get(name) is not None for name in names)


def test_what_an_allow_list_does_not_hit_is_hidden_and_cannot_be_had() -> None:
    view = selection(many(), allow=["Read"])
    assert view.get("Bash") is None
    assert view.hides("Bash")
    assert not view.hides("Nobody")
    assert "Bash" not in view


def test_a_denied_name_is_taken_out_of_what_is_allowed() -> None:
    assert selection(many(), allow=["fs.*"], deny=["fs.list_dir"]).names() == ["fs.read_file"]


def test_the_selection_follows_the_registry() -> None:
    registry = many()
    view = selection(registry, allow=["new*"])
    assert view.names() == []
    registry.register(make("newcomer"))
    first = view.get("newcomer")
    assert first is not None
    registry.replace(make("newcomer"))
    assert view.get("newcomer") is not first
    registry.unregister("newcomer")
    assert view.get("newcomer") is None


def test_up_to_the_threshold_all_tools_are_shown() -> None:
    view = selection(registry_of(*CORE_TOOLS, *OTHERS[:7]))
    assert len(view.active_tools()) == 15
    assert not view.deferring
    assert not view.is_deferred("WebFetch")


def test_above_the_threshold_only_the_core_is_shown() -> None:
    view = selection(many())
    assert [info.name for info in view.active_tools()] == list(CORE_TOOLS)
    assert view.is_deferred("WebFetch")
    assert not view.is_deferred("Bash")
    assert not view.is_deferred("FileRead"), "an alias of a core tool"
    assert view.get("WebFetch") is not None, "deferred is not hidden"


def test_activated_tools_are_shown_after_the_core_until_reset() -> None:
    heard: list[Event] = []
    registry = many()
    view = Selection(registry, session(heard))
    assert view.activate_tool("WebSearch")
    assert view.activate_tool("WebSearch")
    assert not view.activate_tool("Nobody")
    assert [info.name for info in view.active_tools()] == [*CORE_TOOLS, "WebSearch"]
    assert not view.is_deferred("WebSearch")
    assert [(event.kind, event.tool) for event in heard] == [("tool_activated", "WebSearch")]
    view.reset_activations()
    assert view.is_deferred("WebSearch")


def test_a_new_session_starts_reset() -> None:
    registry = many()
    first = Selection(registry, session())
    first.activate_tool("WebFetch")
    assert Selection(registry, session()).is_deferred("WebFetch")


def test_search_finds_deferred_tools_and_leaves_the_core_out() -> None:
    view = selection(many())
    assert [info.name for info in view.search_tools("web fetch")] == ["WebFetch", "WebSearch"]
    assert [info.name for info in view.search_tools("grep")] == ["Grep"], "the core when nothing else matches"
    assert view.search_tools("zzzz") == []


def test_search_stays_within_the_allow_list() -> None:
    view = selection(many(), allow=["WebFetch"])
    assert [info.name for info in view.search_tools("web")] == ["WebFetch"]


def test_tools_that_are_switched_off_are_not_shown() -> None:
    registry = many()
    view = Selection(registry, session(), hide=lambda name: name == "Bash", search=SearchIndex(registry).names)
    assert "Bash" not in [info.name for info in view.active_tools()]
    assert "Bash" not in [info.name for info in view.infos()]
    assert view.search_tools("bash") == []


def test_a_narrower_selection_never_has_more_than_its_parent() -> None:
    parent = selection(many(), allow=["Read", "Grep"])
    child = parent.narrow(["Read", "Bash", "*"], session=session())
    assert child.names() == ["Read", "Grep"]
    assert parent.narrow(["Bash"]).names() == []
    assert child.narrow(["Read"]).names() == ["Read"]


def test_names_reach_providers_in_a_form_they_accept_and_find_their_way_back() -> None:
    view = selection(registry_of("Read", "time.now", "名前", "a" * 80))
    anthropic = [each["name"] for each in view.for_anthropic()]
    openai = [each["function"]["name"] for each in view.for_openai()]
    assert anthropic == openai
    assert anthropic[0] == "Read"
    assert all(len(name) <= 64 and name.isascii() and "." not in name for name in anthropic)
    assert [view.real_name(name) for name in anthropic] == view.names()


def test_each_form_holds_what_its_system_asks_for() -> None:
    view = selection(registry_of("Read"))
    schema = {"type": "object"}
    assert view.for_anthropic() == [{"name": "Read", "description": "The tool Read", "input_schema": schema}]
    assert view.for_openai()[0]["function"]["parameters"] == schema
    assert view.for_mcp()[0] == {
        "name": "Read",
        "description": "The tool Read",
        "inputSchema": schema,
        "annotations": {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False},
    }


def test_mcp_gets_all_tools_and_keeps_dotted_names() -> None:
    view = selection(many())
    names = [each["name"] for each in view.for_mcp()]
    assert len(names) == 18
    assert "time.now" in names


@pytest.mark.spec("REG-10")
def test_what_somebody_brought_in_is_shown_and_hides_nothing_else() -> None:
    registry = many()
    registry.register(make("mine"))
    view = selection(registry)
    assert [info.name for info in view.active_tools()] == [*CORE_TOOLS, "mine"]
    assert not view.is_deferred("mine")
    assert view.is_deferred("WebFetch")
    few = registry_of(*CORE_TOOLS)
    for number in range(20):
        few.register(make(f"own{number}"))
    assert len(selection(few).active_tools()) == len(CORE_TOOLS) + 20
    few.register(make("Foreign"), deferrable=True)
    assert not selection(few).is_deferred("Foreign")
