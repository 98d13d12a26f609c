"""`EditorAgent`: what the protocol asks of an agent, answered by sessions of the application."""

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
"""Sessions told at once; the cursor of the answer asks for more."""
TITLE_CHARACTERS: Final = 80


class OpenApp(Protocol):
    """Opens the application for a session in a folder."""

    def __call__(self, workspace: str, session: str, servers: dict[str, McpServerSettings]) -> Surehand:
        """Return the application, not entered yet."""
        ...


class EditorAgent:
    """The agent an editor starts: it holds the sessions that are open."""

    def __init__(self, open_app: OpenApp, open_model: Callable[[Surehand], Model]) -> None:
        self._open_app = open_app
        self._open_model = open_model
        self._client: Client
        self._offers = schema.ClientCapabilities()
        self._open: dict[str, Conversation] = {}

    def on_connect(self, conn: Client) -> None:
        """Keep the client that has connected."""
        self._client = conn

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: schema.ClientCapabilities | None = None,
        client_info: schema.Implementation | None = None,
        **kwargs: Any,
    ) -> schema.InitializeResponse:
        """Agree on a version and say what is offered."""
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
        """Refuse: keys are kept by `surehand auth`, and no method was offered."""
        raise RequestError.invalid_params({"details": f"there is no method {method_id!r}; see `surehand auth`"})

    # -- sessions ----------------------------------------------------------------------------------------------------

    async def new_session(
        self,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[Server] | None = None,
        **kwargs: Any,
    ) -> schema.NewSessionResponse:
        """Begin a session in a folder."""
        talk = await self._begin(cwd, new_id("acp"), mcp_servers, additional_directories)
        return schema.NewSessionResponse(session_id=talk.id, modes=talk.modes)

    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: list[Server] | None = None,
        additional_directories: list[str] | None = None,
        **kwargs: Any,
    ) -> schema.LoadSessionResponse | None:
        """Resume a session, and replay all of it to the client."""
        talk = await self._go_on(cwd, session_id, mcp_servers, additional_directories)
        await talk.replay()
        return schema.LoadSessionResponse(modes=talk.modes)

    async def resume_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[Server] | None = None,
        **kwargs: Any,
    ) -> schema.ResumeSessionResponse:
        """Resume a session without replaying it."""
        talk = await self._go_on(cwd, session_id, mcp_servers, additional_directories)
        return schema.ResumeSessionResponse(modes=talk.modes)

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **kwargs: Any
    ) -> schema.ListSessionsResponse:
        """List the sessions of a folder, or of all, the latest first; those of chats and other programs too."""
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
        if (talk := self._open.pop(session_id, None)) is not None:
            await talk.close()
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
        """Stop what a session is doing."""
        if (talk := self._open.get(session_id)) is not None:
            talk.cancel()

    async def close(self) -> None:
        """End every session; the client has left."""
        while self._open:
            await self._open.popitem()[1].close()

    # -- opening -----------------------------------------------------------------------------------------------------

    def _find(self, session_id: str) -> Conversation:
        if session_id not in self._open:
            raise RequestError.invalid_params(
                {"details": f"no session {session_id!r} is open; load or resume it first"}
            )
        return self._open[session_id]

    async def _go_on(
        self, cwd: str, session_id: str, servers: list[Server] | None, more: list[str] | None
    ) -> Conversation:
        """Open an existing session; one that is open already is closed first, since its client has restarted."""
        if not _is_kept(cwd, session_id):
            raise RequestError.resource_not_found(session_id)
        await self.close_session(session_id)
        return await self._begin(cwd, session_id, servers, more)

    async def _begin(
        self, cwd: str, session_id: str, servers: list[Server] | None, more: list[str] | None
    ) -> Conversation:
        if not os.path.isabs(cwd):
            raise RequestError.invalid_params({"details": f"cwd must be an absolute path, not {cwd!r}"})
        if wrong := [each for each in more or () if not _is_folder(each)]:
            said = f"an additional directory must be the absolute path of a folder, not {wrong[0]!r}"
            raise RequestError.invalid_params({"details": said})
        handed_over, problems = convert.server_settings(servers or ())
        try:
            app = self._open_app(cwd, session_id, handed_over)
        except (SettingsError, StateError) as problem:
            raise RequestError.invalid_params({"details": str(problem)}) from None
        app.warnings += problems
        app.session.roots = tuple(dict.fromkeys((*app.session.roots, *(more or ()))))
        await app.__aenter__()
        talk = Conversation(self._client, app, self._open_model, self._offers)
        self._open[session_id] = talk
        await talk.open()
        return talk


def _is_folder(path: str) -> bool:
    return os.path.isabs(path) and os.path.isdir(path)


def _is_kept(cwd: str, name: str) -> bool:
    path = os.path.join(locations.workspace_state(cwd), "sessions", f"{name}.jsonl")
    return os.path.basename(path) == f"{name}.jsonl" and os.path.exists(path)


def _session_folders(cwd: str | None) -> list[str]:
    if cwd is not None:
        return [os.path.join(locations.workspace_state(cwd), "sessions")]
    every = os.path.join(locations.home(), "workspaces")
    return [os.path.join(entry.path, "sessions") for entry in os.scandir(every)] if os.path.isdir(every) else []


def _describe_session(session: SessionSummary) -> schema.SessionInfo:
    title = " ".join(session.first.split()) or session.name
    return schema.SessionInfo(
        session_id=session.name,
        cwd=session.workspace,
        title=title if len(title) <= TITLE_CHARACTERS else f"{title[:TITLE_CHARACTERS]}…",
        updated_at=datetime.fromtimestamp(session.updated, UTC).isoformat(),
    )
