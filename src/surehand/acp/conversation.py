"""`Conversation`: one session of an editor. It is a named session of the application like any other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from acp import RequestError, schema
from surehand.acp import convert
from surehand.acp.approver import EditorApprover
from surehand.acp.buffers import EditorBuffers
from surehand.acp.updates import Updates
from surehand.core.errors import ToolFailure
from surehand.core.model import ModelError
from surehand.engine.journal import drop_empty
from surehand.mentions import add_mentioned
from surehand.slash import BUILT_IN, MODES, FileCommand, load_commands, set_mode

if TYPE_CHECKING:
    from acp import Client
    from surehand.acp.convert import ContentBlock
    from surehand.agent.loop import Loop, Outcome
    from surehand.app import Surehand
    from surehand.core.model import Message, Model

_STOPS: Final[Mapping[str, schema.StopReason]] = {
    "end": "end_turn",
    "empty": "end_turn",
    "max_tokens": "max_tokens",
    "token_limit": "max_tokens",
    "turn_limit": "max_turn_requests",
    "cost_limit": "max_turn_requests",
    "time_limit": "max_turn_requests",
    "refusal": "refusal",
}
_ABOUT_MODES: Final = {
    "default": ("Default", "Ask before anything is changed or run"),
    "accept-edits": ("Accept edits", "Edit files of the workspace without asking; ask for everything else"),
    "plan": ("Plan", "Look and plan; change nothing"),
}
PATIENCE_S: Final = 5.0
"""How long a new session waits for its MCP servers before it begins without them."""


class Conversation:
    """A session of the application, the loop of its model, and the client that looks on."""

    def __init__(
        self,
        client: Client,
        app: Surehand,
        open_model: Callable[[Surehand], Model],
        offers: schema.ClientCapabilities,
    ) -> None:
        self.app = app
        self.id = app.session.name or app.session.id
        terminals = bool((offers.field_meta or {}).get("terminal_output"))
        self.updates = Updates(client, app, self.id, terminals=terminals)
        if (files := offers.fs) is not None and files.read_text_file:
            # An editor that only writes is left alone: it would save over text that was never seen.
            app.session.buffers = EditorBuffers(client, self.id, writes=bool(files.write_text_file))
        app.approver = EditorApprover(client, self.updates, self.id)
        self._open_model = open_model
        self._loop: Loop | None = None
        self._commands: dict[str, FileCommand] = {}
        self._working: asyncio.Task[Outcome | None] | None = None
        self._told_mode = app.session.mode

    async def open(self) -> None:
        """Connect to the servers and say what can be typed; what went wrong is told, and hinders nothing."""
        problems = [f"{name}: {why}" for name, why in (await self.app.connect_servers(patience_s=PATIENCE_S)).items()]
        self._commands, left_out = load_commands(self.app.session.workspace, trusted=self.app.trusted)
        for problem in (*self.app.warnings, *problems, *left_out):
            self.updates.send(convert.agent_thought(f"warning: {problem}\n"))
        self.updates.send(_available_commands(self._commands.values()))

    @property
    def modes(self) -> schema.SessionModeState:
        """The modes there are, and the one it is in."""
        known = [*MODES] if self.app.session.mode in MODES else [*MODES, self.app.session.mode]
        every = [_mode(each) for each in known]
        return schema.SessionModeState(current_mode_id=self.app.session.mode, available_modes=every)

    @property
    def loop(self) -> Loop:
        """The agent loop, made when something is first asked: a model that cannot be opened is told then."""
        if self._loop is None:
            self._loop = self.app.conversation(
                self._open_model(self.app),
                on_text=lambda text: self.updates.send(convert.agent_text(text)),
                on_thought=lambda text: self.updates.send(convert.agent_thought(text)),
            )
        return self._loop

    async def replay(self) -> None:
        """Tell the client everything that was said and done so far."""
        for update in convert.replay(self.app.rewinder.transcript().messages, self.app.session.workspace):
            self.updates.send(update)
        await self.updates.flush()

    def set_mode(self, mode: str) -> None:
        """Set the mode; raise RequestError for one there is not."""
        try:
            set_mode(self.app, mode)
        except ToolFailure as problem:
            raise RequestError.invalid_params({"details": f"{problem.message}; {problem.hint}"}) from None
        self._told_mode = self.app.session.mode

    async def prompt(self, blocks: Iterable[ContentBlock]) -> schema.PromptResponse:
        """Answer one prompt, or do what its command says; return why it ended."""
        if self._working is not None:
            raise RequestError.invalid_request(
                {"details": "this session is answering a prompt already; cancel it first"}
            )
        try:
            message = convert.prompt_message(blocks)
        except ToolFailure as problem:
            raise RequestError.invalid_params({"details": problem.message}) from None
        task = self._working = asyncio.ensure_future(self._answer(message))
        try:
            outcome = await task
        except asyncio.CancelledError:
            if not task.cancelled() or (current := asyncio.current_task()) is None or current.cancelling():
                raise  # the client has left
            return await self._end("cancelled", self.loop.outcome if self._loop is not None else None)
        except ModelError as problem:
            hint = f"\n{problem.hint}" if problem.hint else ""
            self.updates.send(convert.agent_text(f"{problem.message}{hint}"))
            await self.updates.flush()
            raise RequestError.internal_error({"details": problem.message, "hint": problem.hint}) from None
        finally:
            self._working = None
        return await self._end(_STOPS.get(str(outcome.stop), "end_turn") if outcome else "end_turn", outcome)

    async def _end(self, reason: schema.StopReason, outcome: Outcome | None) -> schema.PromptResponse:
        if self.app.session.mode != self._told_mode:
            self._told_mode = self.app.session.mode
            changed = schema.CurrentModeUpdate(session_update="current_mode_update", current_mode_id=self._told_mode)
            self.updates.send(changed)
        await self.updates.flush()  # the client must have everything before it hears that the turn is over
        return schema.PromptResponse(stop_reason=reason, usage=_usage(outcome) if outcome is not None else None)

    async def _answer(self, message: Message) -> Outcome | None:
        name, _, rest = message.text[1:].partition(" ") if message.text.startswith("/") else ("", "", "")
        if command := BUILT_IN.get(name):
            try:
                said = await command.run(self.app, rest.strip())
            except ToolFailure as problem:
                said = f"{problem.message}\n{problem.hint}".strip()
            self.updates.send(convert.agent_text(said))
            return None
        if kept := self._commands.get(name):
            from dataclasses import replace

            message = replace(message, text=kept.prompt(rest.strip()))
        outcome = await self.loop.ask(await add_mentioned(self.app, message))
        if not outcome.answered and outcome.stop not in ("max_tokens", "refusal"):
            self.updates.send(convert.agent_text(f"\n[stopped: {outcome.stop}]"))
        return outcome

    def cancel(self) -> None:
        """Stop what is under way; what was done so far is kept."""
        if self._working is not None:
            self._working.cancel()

    async def close(self) -> None:
        """End the session's work and everything it started."""
        if (working := self._working) is not None:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
        await self.app.close()
        if self._loop is not None:
            await self._loop.model.close()
        await self.updates.close()
        if self.app.journal is not None:
            drop_empty(self.app.journal.path)


def _mode(id: str) -> schema.SessionMode:
    name, about = _ABOUT_MODES.get(id, (id.capitalize(), "Nothing is asked about"))
    return schema.SessionMode(id=id, name=name, description=about)


def _available_commands(kept: Iterable[FileCommand]) -> schema.AvailableCommandsUpdate:
    known: list[tuple[str, str, str]] = []
    for name, command in BUILT_IN.items():
        known.append((name, command.about, command.usage.removeprefix(name).strip()))
    known += [(command.name, command.about, command.hint) for command in kept]
    return schema.AvailableCommandsUpdate(
        session_update="available_commands_update",
        available_commands=[
            schema.AvailableCommand(
                name=name,
                description=about,
                input=schema.AvailableCommandInput(schema.UnstructuredCommandInput(hint=hint)) if hint else None,
            )
            for name, about, hint in known
        ],
    )


def _usage(outcome: Outcome) -> schema.Usage:
    used = outcome.spent.usage
    return schema.Usage(
        total_tokens=used.total,
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        cached_read_tokens=used.cache_read_tokens,
        cached_write_tokens=used.cache_write_tokens,
    )
