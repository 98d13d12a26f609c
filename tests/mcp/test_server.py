"""The MCP server, spoken to by the SDK's own client in both eras of the protocol."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError

from mcp import Client
from surehand import Settings, Surehand, ToolContext, ToolResult, tool
from surehand.mcp.server.resources import own_extras
from surehand.mcp.server.serving import Serving

ERAS = ["legacy", "2026-07-28"]
Connect = Callable[..., Any]


@tool(read_only=True)
async def counts(ctx: ToolContext) -> str:
    "Count to three."
    for number in (1, 2, 3):
        ctx.progress(f"at {number}", done=number, total=3)
        await asyncio.sleep(0)
    return "three"


RAIN = {"type": "object", "properties": {"rain": {"type": "boolean"}}, "required": ["rain"]}


@tool(name="naïve tool ☂", read_only=True, output_schema=RAIN)
def umbrella() -> ToolResult:
    "Has a name no provider takes."
    return ToolResult(data={"rain": True}, output="rain")


@tool(read_only=True)
def broken_text() -> ToolResult:
    "Return what JSON cannot hold."
    return ToolResult(data={"half": "\ud800", "number": float("nan")}, output="half \udc80 of it")


@tool(read_only=True)
async def sleeps(ctx: ToolContext) -> str:
    "Sleep until cancelled."
    Path(ctx.resolve("started")).touch()
    try:
        await asyncio.sleep(60)
    finally:
        Path(ctx.resolve("ended")).touch()
    return "never"


@pytest.fixture
def connect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Connect:
    monkeypatch.setenv("SUREHAND_HOME", str(tmp_path / "home"))
    workspace = tmp_path / "project"
    workspace.mkdir()

    @asynccontextmanager
    async def connected(
        era: str, *, page_size: int = 200, follow_roots: bool = False, **client: Any
    ) -> AsyncGenerator[Any]:
        apps: list[Surehand] = []

        def open_app(approver: Any, root: str | None) -> Surehand:
            app = Surehand(
                root or workspace,
                settings=Settings(),
                approver=approver,
                tools=[counts, umbrella, sleeps, broken_text],
                keep_state=False,
            )
            apps.append(app)
            return app

        serving = Serving(open_app, extras=own_extras(), page_size=page_size, follow_roots=follow_roots)
        try:
            async with Client(serving.server, mode=era, cache=None, **client) as session:
                known: Any = session
                known.apps = apps
                yield known
        finally:
            await serving.close()

    return connected


def text(result: Any) -> str:
    return "\n".join(block.text for block in result.content if block.type == "text")


def answering(action: str, **content: Any) -> tuple[list[str], Any]:
    asked: list[str] = []

    async def answer(context: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action=action, content=content or None)  # pyright: ignore[reportArgumentType]

    return asked, answer


@pytest.mark.parametrize("era", ERAS)
async def test_tools_are_listed_under_names_every_client_takes_and_called(connect: Connect, era: str) -> None:
    async with connect(era) as client:
        tools = {each.name: each for each in (await client.list_tools()).tools}
        assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in tools)
        assert {"Read", "Edit", "Bash", "calculate", "counts"} <= tools.keys()
        assert tools["Read"].annotations.read_only_hint is True
        assert tools["Write"].annotations.read_only_hint is False
        odd = next(name for name, each in tools.items() if each.title == "naïve tool ☂")
        result = await client.call_tool(odd, {})
        assert (text(result), result.structured_content, result.is_error) == ("rain", {"rain": True}, False)
        assert tools[odd].output_schema == RAIN
        plain = await client.call_tool("time.now", {})
        assert text(plain) != ""
        assert set(plain.structured_content or {}) == {"timestamp", "iso"}


@pytest.mark.parametrize("era", ERAS)
async def test_the_text_that_read_returns_is_sent_once(connect: Connect, era: str, tmp_path: Path) -> None:
    path = tmp_path / "project" / "once.txt"
    path.write_text("a remarkable line\n")
    async with connect(era) as client:
        tools = {each.name: each for each in (await client.list_tools()).tools}
        read = await client.call_tool("Read", {"file_path": "once.txt"})
        assert tools["Read"].output_schema is None
        assert "a remarkable line" in text(read)
        assert read.model_dump_json().count("a remarkable line") == 1
        facts = read.meta["surehand"]["data"]
        assert (facts["path"], facts["lines"], facts["encoding"]) == (str(path), 1, "utf-8")


@pytest.mark.parametrize("era", ERAS)
async def test_long_lists_come_in_pages(connect: Connect, era: str) -> None:
    async with connect(era, page_size=7) as client:
        names: list[str] = []
        cursor: str | None = None
        while True:
            page = await client.list_tools(cursor=cursor)
            assert len(page.tools) <= 7
            names += [each.name for each in page.tools]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert len(names) == len(set(names)) > 25
        with pytest.raises(MCPError, match="not a cursor"):
            await client.list_tools(cursor="bm9uc2Vuc2U=")


@pytest.mark.parametrize("era", ERAS)
async def test_wrong_arguments_and_failures_are_results_and_unknown_tools_are_errors(
    connect: Connect, era: str
) -> None:
    async with connect(era) as client:
        wrong = await client.call_tool("calculate", {"expression": 7, "extra": 1})
        assert wrong.is_error
        assert "expression" in text(wrong)
        failed = await client.call_tool("calculate", {"expression": "1/0"})
        assert failed.is_error
        assert text(failed).startswith("Calculation error:")
        with pytest.raises(MCPError, match=r"Unknown tool: Raed .*Read"):
            await client.call_tool("Raed", {})


@pytest.mark.parametrize("era", ERAS)
async def test_text_that_json_cannot_hold_is_mended(connect: Connect, era: str) -> None:
    async with connect(era) as client:
        result = await client.call_tool("broken_text", {})
        assert (text(result), result.is_error) == ("half ? of it", False)


@pytest.mark.parametrize("era", ERAS)
async def test_permission_is_asked_of_the_clients_user(connect: Connect, era: str, tmp_path: Path) -> None:
    asked, answer = answering("accept", answer="session")
    async with connect(era, elicitation_callback=answer) as client:
        result = await client.call_tool("Write", {"file_path": "a.txt", "content": "one\n"})
        assert not result.is_error, text(result)
        assert (tmp_path / "project" / "a.txt").read_text() == "one\n"
        assert len(asked) == 1
        assert "a.txt" in asked[0]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("action", "content"), [("decline", {}), ("cancel", {}), ("accept", {"answer": "no"})])
async def test_what_the_user_does_not_allow_does_not_happen(
    connect: Connect, era: str, action: str, content: dict[str, str], tmp_path: Path
) -> None:
    _, answer = answering(action, **content)
    async with connect(era, elicitation_callback=answer) as client:
        result = await client.call_tool("Write", {"file_path": "a.txt", "content": "one\n"})
        assert result.is_error
        assert not (tmp_path / "project" / "a.txt").exists()


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_cannot_be_asked_is_refused_with_the_reason(connect: Connect, era: str) -> None:
    async with connect(era) as client:
        result = await client.call_tool("Write", {"file_path": "a.txt", "content": "one\n"})
        assert result.is_error
        assert "elicitation" in text(result)
        assert "--allow" in text(result)


async def test_a_request_state_is_bound_to_its_call(connect: Connect, tmp_path: Path) -> None:
    async with connect("2026-07-28", elicitation_callback=answering("accept", answer="once")[1]) as client:
        first = {"file_path": "a.txt", "content": "one\n"}
        asked = await client.session.call_tool("Write", first, allow_input_required=True)
        key = next(iter(asked.input_requests))
        yes = {key: types.ElicitResult(action="accept", content={"answer": "once"})}
        for name, args, state in (
            ("Write", {"file_path": "b.txt", "content": "two\n"}, asked.request_state),
            ("Write", first, "forged"),
        ):
            with pytest.raises(MCPError, match="request state"):
                await client.session.call_tool(
                    name, args, input_responses=yes, request_state=state, allow_input_required=True
                )
        assert not list((tmp_path / "project").iterdir())
        done = await client.session.call_tool(
            "Write", first, input_responses=yes, request_state=asked.request_state, allow_input_required=True
        )
        assert not done.is_error
        with pytest.raises(MCPError, match="request state"):
            await client.session.call_tool(
                "Write", first, input_responses=yes, request_state=asked.request_state, allow_input_required=True
            )


@pytest.mark.parametrize("era", ERAS)
async def test_progress_reaches_the_client(connect: Connect, era: str) -> None:
    seen: list[tuple[float, float | None, str | None]] = []

    async def heard(done: float, total: float | None, message: str | None) -> None:
        seen.append((done, total, message))

    async with connect(era) as client:
        assert text(await client.call_tool("counts", {}, progress_callback=heard)) == "three"
    assert seen == [(1, 3, "at 1"), (2, 3, "at 2"), (3, 3, "at 3")]


@pytest.mark.parametrize("era", ERAS)
async def test_a_cancelled_call_ends_at_once(connect: Connect, era: str, tmp_path: Path) -> None:
    project = tmp_path / "project"

    async def until(name: str) -> None:
        async with asyncio.timeout(60):
            while not (project / name).exists():
                await asyncio.sleep(0.01)

    async with connect(era) as client:
        call = asyncio.ensure_future(client.call_tool("sleeps", {}))
        await until("started")
        call.cancel()
        await until("ended")
        assert text(await client.call_tool("counts", {})) == "three"


@pytest.mark.parametrize("era", ERAS)
async def test_workspace_files_and_the_session_log_are_resources(connect: Connect, era: str, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "notes one.txt").write_text("remember\n")
    (project / ".env").write_text("KEY=secret\n")
    async with connect(era) as client:
        read = await client.read_resource("workspace:///notes%20one.txt")
        assert read.contents[0].text == "remember\n"
        for uri in ("workspace:///.env", "workspace:///../outside", "workspace:///etc/passwd", "other://x"):
            with pytest.raises(MCPError):
                await client.read_resource(uri)
        log = (await client.read_resource("surehand://session/log")).contents[0].text
        kinds = [json.loads(line)["kind"] for line in log.splitlines()]
        assert "call_finished" in kinds
        prompt = await client.get_prompt("use-tools", {"task": "tidy up"})
        assert "tidy up" in prompt.messages[0].content.text


@pytest.mark.filterwarnings("ignore:resources/")
async def test_a_client_may_follow_only_so_many_resources(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surehand.mcp.server.resources.MAX_SUBSCRIPTIONS", 3)
    async with connect("legacy") as client:
        for number in (1, 2, 3, 3):
            await client.subscribe_resource(f"workspace:///{number}.txt")
        with pytest.raises(MCPError, match="may subscribe to 3 resources"):
            await client.subscribe_resource("workspace:///4.txt")
        await client.unsubscribe_resource("workspace:///1.txt")
        await client.subscribe_resource("workspace:///4.txt")


@pytest.mark.parametrize("era", ERAS)
async def test_files_outside_the_workspace_are_refused(connect: Connect, era: str, tmp_path: Path) -> None:
    outside = tmp_path / "other"
    outside.mkdir()
    (outside / "secret.txt").write_text("secret words")
    (tmp_path / "project" / "link").symlink_to(outside)
    async with connect(era) as client:
        for path in (str(outside / "secret.txt"), "link/secret.txt", "../other/secret.txt"):
            result = await client.call_tool("Read", {"file_path": path})
            assert result.is_error
            assert "secret words" not in text(result)


async def test_the_workspace_is_the_clients_root(connect: Connect, tmp_path: Path) -> None:
    root = tmp_path / "their project"
    root.mkdir()
    (root / "a.txt").write_text("theirs\n")

    async def roots(context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=root.as_uri())])  # pyright: ignore[reportArgumentType]

    async with connect("legacy", follow_roots=True, list_roots_callback=roots) as client:
        assert "theirs" in text(await client.call_tool("Read", {"file_path": "a.txt"}))


async def test_clients_hear_of_new_tools(connect: Connect) -> None:
    heard = asyncio.Event()

    async def listen(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            heard.set()

    @tool(read_only=True)
    def later() -> str:
        "Came later."
        return "later"

    async with connect("legacy", message_handler=listen) as client:
        await client.list_tools()
        client.apps[0].register(later)
        async with asyncio.timeout(60):
            await heard.wait()
        assert "later" in [each.name for each in (await client.list_tools()).tools]


@pytest.mark.spec("MCP-3")
@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_shows_only_structure_is_given_the_text_of_built_in_tools(
    connect: Connect, era: str
) -> None:
    async with connect(era, client_info=types.Implementation(name="claude-code", version="2")) as client:
        tools = {each.name: each for each in (await client.list_tools()).tools}
        assert tools["Read"].output_schema is None
        odd = next(name for name, each in tools.items() if each.title == "naïve tool ☂")
        assert tools[odd].output_schema == RAIN
        plain = await client.call_tool("time.now", {})
        assert (plain.structured_content, plain.is_error) == (None, False)
