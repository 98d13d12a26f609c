"""ToolSearch: finds deferred tools, activates them, and says so as the reference does."""

from __future__ import annotations

from typing import Any

import pytest

from surehand.core.call import ToolCall, ToolResult
from surehand.core.context import ToolContext
from surehand.core.session import Session
from surehand.core.settings import Settings
from surehand.core.tool import Tool
from surehand.core.view import CORE_TOOLS, Selection
from surehand.registry.registry import Registry
from surehand.registry.search import SearchIndex
from surehand.testing import scratch_app
from surehand.tools.tool_search import TOOLS, ToolSearchArgs

(TOOL,) = TOOLS
OTHERS = {
    "WebFetch": "Fetches content from a URL...",
    "WebSearch": "Searches the web...",
    **{f"Other{number}": f"Number {number}" for number in range(8)},
}


def make(name: str, text: str) -> Tool:
    return Tool(name=name, description=text, run=lambda a, c: None, args={"type": "object"})


def opened(others: dict[str, str]) -> Session:
    registry = Registry()
    for name, text in {**{name: name for name in CORE_TOOLS}, **others}.items():
        registry.register(make(name, text), deferrable=True)
    session = Session("/", settings=Settings())
    session.selection = Selection(registry, session, search=SearchIndex(registry).names)
    return session


async def search(session: Session, query: str) -> ToolResult:
    ctx = ToolContext(ToolCall("ToolSearch"), session, lambda progress: None, {})
    result: Any = TOOL.run(ToolSearchArgs(query=query), ctx)
    return result


async def test_found_tools_are_activated_and_listed_as_in_the_reference() -> None:
    session = opened(OTHERS)
    result = await search(session, "web")
    assert " ".join(result.output.split()) == (
        "Found 2 tool(s) matching 'web': - WebFetch: Fetches content from a URL... - WebSearch: Searches the web... "
        "These tools have been activated and are now available for use."
    )
    assert session.selection is not None
    assert [info.name for info in session.selection.active_tools()] == [*CORE_TOOLS, "WebFetch", "WebSearch"]
    assert [match["activated"] for match in result.data["matches"]] == [True, True]


async def test_searching_again_still_finds_what_is_active_by_now() -> None:
    session = opened(OTHERS)
    await search(session, "web")
    again = await search(session, "web")
    assert "Found 2 tool(s)" in again.output
    assert [match["activated"] for match in again.data["matches"]] == [False, False]


async def test_select_activates_by_name_and_names_what_is_missing() -> None:
    session = opened(OTHERS)
    result = await search(session, "select:WebFetch, Other3,Nobody")
    assert session.activated == {"WebFetch", "Other3"}
    assert result.data["missing"] == ["Nobody"]
    assert "Not found: Nobody" in result.output


async def test_with_nothing_deferred_it_says_so_and_still_lists_matches() -> None:
    session = opened({"WebFetch": "Fetches"})
    result = await search(session, "web")
    assert "- WebFetch: Fetches" in result.output
    assert "All tools are already active" in result.output
    assert session.activated == set()


async def test_no_match_names_what_could_be_activated() -> None:
    result = await search(opened(OTHERS), "zzzzqqqq")
    assert result.output.startswith("No tools found matching 'zzzzqqqq'.")
    assert "WebFetch" in result.output


async def test_a_long_description_is_cut_to_its_first_line() -> None:
    session = opened({**OTHERS, "Long": "x" * 500 + "\nsecond line"})
    output = (await search(session, "select:Long")).output
    assert "second line" not in output
    assert len(output) < 400


async def test_through_the_one_door_a_typo_and_a_wrong_selection_are_answered() -> None:
    tools = [
        Tool(name=f"extra_{word}", description=f"About {word}", run=lambda a, c: None, args={"type": "object"})
        for word in ("zeppelin", "balloon", "kite", "glider", "rocket", "saucer", "jet", "drone")
    ]
    async with scratch_app(tools=tools) as app:
        found = await app.call("ToolSearch", {"query": "zepelin"})
        assert found.ok
        assert "extra_zeppelin" in found.output
        assert "extra_zeppelin" in {each["name"] for each in app.selection.for_anthropic()}
        wrong = await app.call("ToolSearch", {"query": "select:Nobody"})
        assert wrong.error is not None
        assert wrong.error.code == "tool_not_found"
        empty = await app.call("ToolSearch", {"query": ""})
        assert empty.error is not None
        assert empty.error.code == "invalid_args"


@pytest.mark.spec("REG-7", "REG-10")
async def test_a_tool_of_ones_own_is_shown_beside_all_the_built_in_ones() -> None:
    async with scratch_app(tools=[make("mine", "Mine.")], modules={"ours": [make("theirs", "Ours.")]}) as app:
        shown = [info.name for info in app.selection.active_tools()]
        assert shown == [*[name for name in app.registry if name in CORE_TOOLS], "mine", "theirs"]
        assert {"WebFetch", "TaskCreate"} <= set(app.selection.deferred_tools())
        app.register(make("late", "Late."))
        assert not app.selection.is_deferred("late")
