"""An editor for tests: the official SDK's client, which answers as told and keeps what it was sent."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from acp.client.connection import ClientSideConnection

from acp import PROTOCOL_VERSION, RequestError, schema, spawn_agent_process, text_block


class Editor:
    """Keeps updates and questions; `answer` says which option is chosen, `buffers` are files open and not saved."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.questions: list[tuple[Any, list[schema.PermissionOption]]] = []
        self.answer: Callable[[Any], str] = lambda call: "once"
        self.buffers: dict[str, str] = {}
        self.written: list[tuple[str, str]] = []
        self.sessions: set[str] = set()
        self.agent: ClientSideConnection
        self.changed = asyncio.Condition()

    def on_connect(self, conn: Any) -> None:
        self.agent = conn

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        async with self.changed:
            self.sessions.add(session_id)
            self.updates.append(update)
            self.changed.notify_all()

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[schema.PermissionOption], **kwargs: Any
    ) -> schema.RequestPermissionResponse:
        async with self.changed:
            self.questions.append((tool_call, options))
            self.changed.notify_all()
        chosen = self.answer(tool_call)
        if chosen == "wait":
            await asyncio.Event().wait()
        if chosen == "cancelled":
            return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))
        outcome = schema.AllowedOutcome(outcome="selected", option_id=chosen)
        return schema.RequestPermissionResponse(outcome=outcome)

    async def read_text_file(
        self, session_id: str, path: str, line: int | None = None, limit: int | None = None, **kwargs: Any
    ) -> schema.ReadTextFileResponse:
        if path in self.buffers:
            return schema.ReadTextFileResponse(content=self.buffers[path])
        try:
            return schema.ReadTextFileResponse(content=Path(path).read_text())  # as editors do: one line ending
        except (OSError, UnicodeDecodeError):
            raise RequestError.resource_not_found(path) from None

    async def write_text_file(self, session_id: str, path: str, content: str, **kwargs: Any) -> None:
        self.written.append((path, content))
        Path(path).write_text(content)  # an editor saves in its own way
        self.buffers.pop(path, None)

    async def until(self, found: Callable[[], Any]) -> None:
        """Wait until something has come."""
        async with self.changed:
            await self.changed.wait_for(found)

    # -- what came ---------------------------------------------------------------------------------------------------

    def text(self, kind: str = "agent_message_chunk") -> str:
        return "".join(each.content.text for each in self.updates if each.session_update == kind)

    def of(self, kind: str) -> list[Any]:
        return [each for each in self.updates if each.session_update == kind]

    def call(self, tool: str) -> tuple[Any, list[Any]]:
        """Return the announcement of the (only) call of a tool, and its updates."""
        start = next(each for each in self.of("tool_call") if each.title.startswith(tool))
        return start, [each for each in self.of("tool_call_update") if each.tool_call_id == start.tool_call_id]


@asynccontextmanager
async def agent_for(
    editor: Editor | Seat, workspace: Path, environment: Mapping[str, str], *words: str, **capabilities: Any
) -> AsyncIterator[ClientSideConnection]:
    """Start `surehand acp` as an editor does, and greet it."""
    command = [sys.executable, "-m", "surehand", "acp", *words]
    options: dict[str, Any] = {"limit": 64 * 1024 * 1024, "shutdown_timeout": 120.0}
    async with spawn_agent_process(
        editor, *command, env=environment, cwd=workspace, transport_kwargs=options, use_unstable_protocol=True
    ) as (agent, process):
        offers = schema.ClientCapabilities(**capabilities)
        greeting = await agent.initialize(protocol_version=PROTOCOL_VERSION, client_capabilities=offers)
        assert greeting.agent_info is not None
        assert greeting.agent_info.name == "surehand"
        yield agent
        assert process.returncode is None, "the agent has died"


class Seat:
    """Where editors sit down one after the other, before one agent."""

    def __init__(self) -> None:
        self.editor = Editor()

    def on_connect(self, conn: Any) -> None:
        self.editor.on_connect(conn)

    async def session_update(self, **given: Any) -> None:
        await self.editor.session_update(**given)

    async def request_permission(self, **given: Any) -> schema.RequestPermissionResponse:
        return await self.editor.request_permission(**given)

    async def read_text_file(self, **given: Any) -> schema.ReadTextFileResponse:
        return await self.editor.read_text_file(**given)

    async def write_text_file(self, **given: Any) -> None:
        await self.editor.write_text_file(**given)


class AgentPool:
    """Agents that are kept while a file's tests run: one for each way to start it."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._kept: dict[str, tuple[Seat, ClientSideConnection]] = {}

    @asynccontextmanager
    async def sit(
        self, editor: Editor, workspace: Path, environment: Mapping[str, str], *words: str, **capabilities: Any
    ) -> AsyncIterator[ClientSideConnection]:
        """Have an editor talk with an agent; its sessions are closed when it leaves."""
        key = repr((words, capabilities))
        if key not in self._kept:
            seat = Seat()
            starting = agent_for(seat, workspace, environment, *words, **capabilities)
            self._kept[key] = (seat, await self._stack.enter_async_context(starting))
        seat, agent = self._kept[key]
        seat.editor = editor
        yield agent
        for each in editor.sessions:
            await agent.close_session(session_id=each)


def environment(home: Path, **more: str) -> dict[str, str]:
    """Return the environment of an agent that keeps its state in a folder of the test."""
    kept = {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_BASE_URL"))}
    return {**kept, "SUREHAND_HOME": str(home), **more}


def ask(text: str) -> list[Any]:
    return [text_block(text)]
