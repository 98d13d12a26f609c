"""`EditorAgent`: the agent's side of the Agent Client Protocol, over sessions of the application."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

from acp import PROTOCOL_VERSION, RequestError, schema
from surehand import __version__
from surehand.acp import convert
from surehand.acp.conversation import Conversation
from surehand.core.call import new_id
from surehand.core.errors import SettingsError, StateError
from surehand.core.settings import McpServerSettings
from surehand.engine.journal import SessionSummary, list_sessions
from surehand.state import locations

if TYPE_CHECKING:
    from acp import Client
    from surehand.acp.convert import ContentBlock, Server
    from surehand.app import Surehand
    from surehand.core.model import Model

PAGE: Final = 100
"""Sessions in one answer; its cursor is for the next."""
TITLE_CHARACTERS: Final = 80


class OpenApp(Protocol):
    """Opens the application for a session in a folder."""

    def __call__(self, workspace: str, session: str, servers: dict[str, McpServerSettings]) -> Surehand:
        """Return the application, which is not entered yet."""
        ...


class EditorAgent:
    """The agent that an editor starts, with its open sessions."""

    def __init__(self, open_app: OpenApp, open_model: Callable[[Surehand], Model]) -> None:
        self._open_app = open_app
        self._open_model = open_model
        self._client: Client
        self._offers = schema.ClientCapabilities()
        self._open: dict[str, Conversation] = {}

    def on_connect(self, conn: Client) -> None:
        """Store the client that has connected."""
        self._client = conn

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: schema.ClientCapabilities | None = None,
        client_info: schema.Implementation | None = None,
        **kwargs: Any,
    ) -> schema.InitializeResponse:
        """Return the protocol version and the agent's capabilities."""
        self._offers = client_capabilities or schema.ClientCapabilities()
        return schema.InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=schema.AgentCapabilities(
                load_session=True,
                prompt_capabilities=schema.PromptCapabilities(image=True, audio=False, embedded_context=True),
                mcp_capabilities=schema.McpCapabilities(http=True, sse=False),
                session_capabilities=schema.SessionCapabilities(
                    additional_directories=schema.SessionAdditionalDirectoriesCapabilities(),
                    list=schema.SessionListCapabilities(),
                    resume=schema.SessionResumeCapabilities(),
                    close=schema.SessionCloseCapabilities(),
                ),
            ),
            agent_info=schema.Implementation(name="surehand", title="Surehand", version=__version__),
            auth_methods=[],
        )

    async def authenticate(self, method_id: str, **kwargs: Any) -> schema.AuthenticateResponse | None:
        """Refuse: no method is offered, since keys are set with `surehand auth`."""
        raise RequestError.invalid_params({"details": f"there is no method {method_id!r}; see `surehand auth`"})

    # -- sessions ----------------------------------------------------------------------------------------------------

    async def new_session(
        self,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[Server] | None = None,
        **kwargs: Any,
    ) -> schema.NewSessionResponse:
        """Open a new session in a folder."""
        conversation = await self._open_session(cwd, new_id("acp"), mcp_servers, additional_directories)
        return schema.NewSessionResponse(session_id=conversation.id, modes=conversation.modes)

    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: list[Server] | None = None,
        additional_directories: list[str] | None = None,
        **kwargs: Any,
    ) -> schema.LoadSessionResponse | None:
        """Resume a session, and replay it to the client."""
        conversation = await self._resume(cwd, session_id, mcp_servers, additional_directories)
        await conversation.replay()
        return schema.LoadSessionResponse(modes=conversation.modes)

    async def resume_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[Server] | None = None,
        **kwargs: Any,
    ) -> schema.ResumeSessionResponse:
        """Resume a session without replaying it."""
        conversation = await self._resume(cwd, session_id, mcp_servers, additional_directories)
        return schema.ResumeSessionResponse(modes=conversation.modes)

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **kwargs: Any
    ) -> schema.ListSessionsResponse:
        """List the sessions of a folder, or of all, latest first; also those of chats and other programs."""
        if cursor and not cursor.isdigit():
            raise RequestError.invalid_params({"details": f"{cursor!r} is not a cursor of this server"})
        found = [each for folder in _session_folders(cwd) for each in list_sessions(folder) if each.workspace]
        found.sort(key=lambda each: each.updated, reverse=True)
        start = int(cursor or 0)
        more = str(start + PAGE) if len(found) > start + PAGE else None
        return schema.ListSessionsResponse(
            sessions=[*map(_describe_session, found[start : start + PAGE])], next_cursor=more
        )

    async def close_session(self, session_id: str, **kwargs: Any) -> schema.CloseSessionResponse | None:
        """Close a session; it can be resumed later."""
        if (conversation := self._open.pop(session_id, None)) is not None:
            await conversation.close()
        return schema.CloseSessionResponse()

    async def set_session_mode(
        self, session_id: str, mode_id: str, **kwargs: Any
    ) -> schema.SetSessionModeResponse | None:
        """Set the mode of a session."""
        self._find(session_id).set_mode(mode_id)
        return schema.SetSessionModeResponse()

    # -- prompts -----------------------------------------------------------------------------------------------------

    async def prompt(self, session_id: str, prompt: list[ContentBlock], **kwargs: Any) -> schema.PromptResponse:
        """Answer a prompt."""
        return await self._find(session_id).prompt(prompt)

    async def cancel(self, session_id: str, **kwargs: Any) -> None:
        """Cancel the prompt that a session is answering."""
        if (conversation := self._open.get(session_id)) is not None:
            conversation.cancel()

    async def close(self) -> None:
        """Close every session; the client has disconnected."""
        while self._open:
            await self._open.popitem()[1].close()

    # -- opening -----------------------------------------------------------------------------------------------------

    def _find(self, session_id: str) -> Conversation:
        if session_id not in self._open:
            raise RequestError.invalid_params(
                {"details": f"no session {session_id!r} is open; load or resume it first"}
            )
        return self._open[session_id]

    async def _resume(
        self, cwd: str, session_id: str, servers: list[Server] | None, folders: list[str] | None
    ) -> Conversation:
        """Open an existing session; if it is open already, close it first: the client has restarted."""
        if not _is_known(cwd, session_id):
            raise RequestError.resource_not_found(session_id)
        await self.close_session(session_id)
        return await self._open_session(cwd, session_id, servers, folders)

    async def _open_session(
        self, cwd: str, session_id: str, servers: list[Server] | None, folders: list[str] | None
    ) -> Conversation:
        if not os.path.isabs(cwd):
            raise RequestError.invalid_params({"details": f"cwd must be an absolute path, not {cwd!r}"})
        if wrong := [each for each in folders or () if not _is_folder(each)]:
            text = f"an additional directory must be the absolute path of a folder, not {wrong[0]!r}"
            raise RequestError.invalid_params({"details": text})
        server_settings, problems = convert.server_settings(servers or ())
        try:
            app = self._open_app(cwd, session_id, server_settings)
        except (SettingsError, StateError) as problem:
            raise RequestError.invalid_params({"details": str(problem)}) from None
        app.warnings += problems
        app.session.roots = tuple(dict.fromkeys((*app.session.roots, *(folders or ()))))
        await app.__aenter__()
        conversation = Conversation(self._client, app, self._open_model, self._offers)
        self._open[session_id] = conversation
        await conversation.open()
        return conversation


def _is_folder(path: str) -> bool:
    return os.path.isabs(path) and os.path.isdir(path)


def _is_known(cwd: str, name: str) -> bool:
    path = os.path.join(locations.workspace_state(cwd), "sessions", f"{name}.jsonl")
    return os.path.basename(path) == f"{name}.jsonl" and os.path.exists(path)


def _session_folders(cwd: str | None) -> list[str]:
    if cwd is not None:
        return [os.path.join(locations.workspace_state(cwd), "sessions")]
    states = os.path.join(locations.home(), "workspaces")
    return [os.path.join(entry.path, "sessions") for entry in os.scandir(states)] if os.path.isdir(states) else []


def _describe_session(session: SessionSummary) -> schema.SessionInfo:
    title = " ".join(session.first.split()) or session.name
    return schema.SessionInfo(
        session_id=session.name,
        cwd=session.workspace,
        title=title if len(title) <= TITLE_CHARACTERS else f"{title[:TITLE_CHARACTERS]}…",
        updated_at=datetime.fromtimestamp(session.updated, UTC).isoformat(),
    )
