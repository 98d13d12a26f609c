"""`Conversation`: one session of an editor, with its approver and the editor's unsaved buffers.

It is a named session of the application. Events of the bus are sent to the client as session updates, in order: they
come from worker threads too, so one task sends them all. A question to the client, and the end of a turn, wait until
all updates before them were sent.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import CancelledError
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from acp import RequestError, schema
from surehand.acp import convert
from surehand.core.errors import ToolFailure
from surehand.core.model import ModelError
from surehand.core.tool import Kind, Preview
from surehand.engine.journal import drop_empty
from surehand.files.merge import Change, TooDifferentError, compare
from surehand.files.text import UTF8, detect, newline_style
from surehand.policy.approval import Answer, AnswerKind, Question, one_line, printable
from surehand.slash import BUILT_IN, MODES, FileCommand, add_mentioned, load_commands, set_mode

if TYPE_CHECKING:
    from acp import Client
    from surehand.acp.convert import Content, ContentBlock, Update
    from surehand.agent.loop import Loop, Outcome
    from surehand.app import Surehand
    from surehand.core.call import ToolCall, ToolResult
    from surehand.core.events import Event, Progress
    from surehand.core.model import Message, Model

LIVE_CHARACTERS: Final = 20_000
"""Characters of a running command's output in an update; its result has the rest."""
_PLAN_STATUS: Final[Mapping[str, schema.PlanEntryStatus]] = {
    "pending": "pending",
    "in_progress": "in_progress",
    "done": "completed",
    "failed": "completed",
}


class Updates:
    """Sends a session's updates to the client."""

    def __init__(self, client: Client, app: Surehand, session_id: str, *, terminals: bool = False) -> None:
        self._client = client
        self._session_id = session_id
        self._app_session_id = app.session.id
        self._session = app.session
        self._registry = app.registry
        self._terminals = terminals
        """Whether the client shows terminals of this agent, by an extension of the protocol."""
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Update | asyncio.Future[None]] = asyncio.Queue()
        self._announced: dict[str, str] = {}
        self._live: dict[str, str] = {}
        self._plan: dict[str, schema.PlanEntry] = {}
        self._stop_listening = app.bus.subscribe(self._on_event)
        self._sender = asyncio.create_task(self._send_all())

    def send(self, update: Update) -> None:
        """Queue an update; safe from any thread."""
        self._loop.call_soon_threadsafe(self._queue.put_nowait, update)

    async def flush(self) -> None:
        """Wait until all updates so far were sent."""
        sent: asyncio.Future[None] = self._loop.create_future()
        self._loop.call_soon(self._queue.put_nowait, sent)
        await sent

    async def close(self) -> None:
        """Stop listening and sending."""
        self._stop_listening()
        self._sender.cancel()
        await asyncio.gather(self._sender, return_exceptions=True)

    async def _send_all(self) -> None:
        while True:
            item = await self._queue.get()
            if isinstance(item, asyncio.Future):
                if not item.done():
                    item.set_result(None)
                continue
            try:
                await self._client.session_update(session_id=self._session_id, update=convert.encodable(item))
            except (ConnectionError, OSError):  # the client has disconnected; `flush` must not wait for ever
                continue

    # -- events ------------------------------------------------------------------------------------------------------

    def _on_event(self, event: Event) -> None:
        if event.kind == "subagent_event":
            self._handle(event.data["event"], str(event.data["subagent_id"]))
        elif event.session_id == self._app_session_id:
            self._handle(event, "")

    def _handle(self, event: Event, agent: str) -> None:
        match event.kind:
            case "permission_asked":
                self.announce(event.data["call"], agent)
            case "call_started":
                self._start(event.data["call"], agent)
            case "call_progress":
                self._report(event.call_id, event.data["progress"])
            case "call_finished":
                self._finish(event.data["call"], event.data["result"], agent)
            case "task_changed":
                self._change_plan(event.data["task"])
            case "note":
                self.send(convert.agent_thought(f"{event.data.get('message', '')}\n"))
            case _:
                pass

    def announce(self, call: ToolCall, agent: str = "", status: schema.ToolCallStatus = "pending") -> bool:
        """Announce a call, unless it was before; return whether it was announced now."""
        if call.id in self._announced:
            return False
        self._announced[call.id] = agent
        terminal = self._terminals and call.name == "Bash"
        kind = self.kind_of(call.name)
        self.send(convert.call_start(call, self._session.cwd, kind, status=status, agent=agent, terminal=terminal))
        return True

    def kind_of(self, tool: str) -> Kind:
        """Return the kind of a tool's calls."""
        card = self._registry.card(tool)
        return "other" if card is None else card.kind

    def _start(self, call: ToolCall, agent: str) -> None:
        if not self.announce(call, agent, "in_progress"):
            self.send(convert.call_update(call.id, status="in_progress"))

    def _report(self, call_id: str, progress: Progress) -> None:
        if call_id not in self._announced or not progress.text:
            return
        if self._terminals and progress.data.get("stream"):
            data = progress.text.replace("\n", "\r\n") + "\r\n"
            meta = {"terminal_output": {"terminal_id": call_id, "data": data}}
            self.send(convert.call_update(call_id, meta=meta))
            return
        text = f"{self._live.get(call_id, '')}{progress.text}\n"[-LIVE_CHARACTERS:]
        self._live[call_id] = text
        self.send(convert.call_update(call_id, content=[convert.text_content(text)]))

    def _finish(self, call: ToolCall, result: ToolResult, agent: str) -> None:
        self.announce(call, agent)
        self._live.pop(call.id, None)
        terminal = self._terminals and call.name == "Bash"
        if terminal and result.error is not None and "exit_code" not in dict(result.data or {}):
            terminal = False  # it never ran: show why
        self.send(convert.call_end(call, result, self._session.cwd, terminal=terminal))

    def _change_plan(self, task: Mapping[str, Any]) -> None:
        """Show the to-dos of the session as its plan."""
        if task.get("kind") != "todo":
            return
        status = _PLAN_STATUS.get(str(task["status"]))
        if status is None:
            self._plan.pop(str(task["id"]), None)
        else:
            self._plan[str(task["id"])] = schema.PlanEntry(content=str(task["title"]), priority="medium", status=status)
        self.send(schema.AgentPlanUpdate(session_update="plan", entries=list(self._plan.values())))


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
"""How long a new session waits for its MCP servers before it starts without them."""


class Conversation:
    """A session of the application with its agent loop, for a client."""

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
            # Not for an editor that can only write: it would overwrite text that was never read.
            app.session.buffers = EditorBuffers(client, self.id, writes=bool(files.write_text_file))
        app.approver = EditorApprover(client, self.updates, self.id)
        self._open_model = open_model
        self._loop: Loop | None = None
        self._commands: dict[str, FileCommand] = {}
        self._working: asyncio.Task[Outcome | None] | None = None
        self._sent_mode = app.session.mode

    async def open(self) -> None:
        """Connect to the MCP servers and send the slash commands; problems are sent as warnings."""
        problems = [f"{name}: {why}" for name, why in (await self.app.connect_servers(patience_s=PATIENCE_S)).items()]
        self._commands, left_out = load_commands(self.app.session.workspace, trusted=self.app.trusted)
        for problem in (*self.app.warnings, *problems, *left_out):
            self.updates.send(convert.agent_thought(f"warning: {problem}\n"))
        self.updates.send(_available_commands(self._commands.values()))

    @property
    def modes(self) -> schema.SessionModeState:
        """The available modes, and the current one."""
        names = [*MODES] if self.app.session.mode in MODES else [*MODES, self.app.session.mode]
        modes = [_mode(each) for each in names]
        return schema.SessionModeState(current_mode_id=self.app.session.mode, available_modes=modes)

    @property
    def loop(self) -> Loop:
        """The agent loop, created for the first prompt; raises ModelError if the model cannot be opened."""
        if self._loop is None:
            self._loop = self.app.conversation(
                self._open_model(self.app),
                on_text=lambda text: self.updates.send(convert.agent_text(text)),
                on_thought=lambda text: self.updates.send(convert.agent_thought(text)),
            )
        return self._loop

    async def replay(self) -> None:
        """Send the conversation so far to the client."""
        messages = self.app.rewinder.transcript().messages
        for update in convert.replay(messages, self.app.session.workspace, self.updates.kind_of):
            self.updates.send(update)
        await self.updates.flush()

    def set_mode(self, mode: str) -> None:
        """Set the mode; raise RequestError for an unknown one."""
        try:
            set_mode(self.app, mode)
        except ToolFailure as problem:
            raise RequestError.invalid_params({"details": f"{problem.message}; {problem.hint}"}) from None
        self._sent_mode = self.app.session.mode

    async def prompt(self, blocks: Iterable[ContentBlock]) -> schema.PromptResponse:
        """Answer a prompt, or run its slash command; return why it ended."""
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
                raise  # the client has disconnected
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
        if self.app.session.mode != self._sent_mode:
            self._sent_mode = self.app.session.mode
            changed = schema.CurrentModeUpdate(session_update="current_mode_update", current_mode_id=self._sent_mode)
            self.updates.send(changed)
        await self.updates.flush()  # before the response, which ends the turn
        return schema.PromptResponse(stop_reason=reason, usage=_usage(outcome) if outcome is not None else None)

    async def _answer(self, message: Message) -> Outcome | None:
        name, _, rest = message.text[1:].partition(" ") if message.text.startswith("/") else ("", "", "")
        if command := BUILT_IN.get(name):
            try:
                output = await command.run(self.app, rest.strip())
            except ToolFailure as problem:
                output = f"{problem.message}\n{problem.hint}".strip()
            self.updates.send(convert.agent_text(output))
            return None
        if file_command := self._commands.get(name):
            message = replace(message, text=file_command.prompt(rest.strip()))
        outcome = await self.loop.ask(await add_mentioned(self.app, message))
        if not outcome.answered and outcome.stop not in ("max_tokens", "refusal"):
            self.updates.send(convert.agent_text(f"\n[stopped: {outcome.stop}]"))
        return outcome

    def cancel(self) -> None:
        """Cancel the prompt being answered; what was done so far stays."""
        if self._working is not None:
            self._working.cancel()

    async def close(self) -> None:
        """Cancel the prompt being answered and close the application."""
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


def _available_commands(file_commands: Iterable[FileCommand]) -> schema.AvailableCommandsUpdate:
    known: list[tuple[str, str, str]] = []
    for name, command in BUILT_IN.items():
        known.append((name, command.about, command.usage.removeprefix(name).strip()))
    known += [(command.name, command.about, command.hint) for command in file_commands]
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


# `EditorApprover`: the person in the editor answers questions.

_TRY: Final = "try"
RULE_CHARACTERS: Final = 120


class EditorApprover:
    """Asks the client of one session."""

    def __init__(self, client: Client, updates: Updates, session_id: str) -> None:
        self._client = client
        self._updates = updates
        self._session_id = session_id

    async def ask(self, question: Question) -> Answer:
        """Ask the person in the editor; closing the question means no."""
        shown: Preview | None = question.preview
        dry_run: str | None = None  # None: that of the question itself, if it has one
        while True:
            try:
                chosen = await self._choose(question, shown)
            except RequestError as problem:
                return Answer("no", f"the editor could not ask: {problem}")
            if chosen is None:
                return Answer("no", "the user cancelled")
            if chosen == _TRY and question.try_first is not None:
                shown = await _try_first(question)
                dry_run = shown.dry_run.id if shown is not None and shown.dry_run is not None else ""  # empty: run anew
                continue
            if chosen == "no":
                return Answer("no", "the user said no")
            rule = question.decision.suggestion if chosen != "once" else None
            return Answer(cast("AnswerKind", chosen), rule=rule, dry_run=dry_run)

    async def _choose(self, question: Question, shown: Preview | None) -> str | None:
        """Return the chosen option; None if the client cancelled the question."""
        self._updates.announce(question.call, question.agent)
        await self._updates.flush()
        kind = self._updates.kind_of(question.tool)
        options = _options(question, seen=shown is not None and shown.dry_run is not None)
        response = await self._client.request_permission(
            session_id=self._session_id,
            tool_call=convert.encodable(_shown_call(question, shown, kind)),
            options=options,
        )
        outcome = response.outcome
        if isinstance(outcome, schema.AllowedOutcome) and any(outcome.option_id == each.option_id for each in options):
            return outcome.option_id
        return None


async def _try_first(question: Question) -> Preview | None:
    assert question.try_first is not None
    try:
        return await question.try_first()
    except ToolFailure as failure:
        return Preview(f"A dry run was not possible: {failure.message}")


def _options(question: Question, *, seen: bool) -> list[schema.PermissionOption]:
    """Return the options of a question; those that add a rule show it."""
    rules = question.decision.suggestion
    options = [_option("once", "Apply exactly this" if seen else "Allow once", "allow_once")]
    if rules is not None:
        text = " and ".join(one_line(line) for line in rules.splitlines())
        text = text if len(text) <= RULE_CHARACTERS else f"{text[:RULE_CHARACTERS]}…"
        options.append(_option("session", f"Allow for this session: {text}", "allow_always"))
        options.append(_option("always", f"Always allow: {text}", "allow_always"))
    if question.try_first is not None:
        options.append(_option(_TRY, "Try on a copy again" if seen else "Try on a copy first", "allow_once"))
    return [*options, _option("no", "Reject", "reject_once")]


def _option(id: str, name: str, kind: schema.PermissionOptionKind) -> schema.PermissionOption:
    return schema.PermissionOption(option_id=id, name=name, kind=kind)


def _shown_call(question: Question, shown: Preview | None, kind: Kind) -> schema.ToolCallUpdate:
    """Return the call for a question: the diff it would make, and the text of the question."""
    diffs: list[Content] = []
    if shown is not None and shown.diff:
        diffs = [each for each, _ in convert.diff_contents(shown.diff, question.cwd)]
    text = question.text() if shown is question.preview else printable(shown.text if shown is not None else "")
    return schema.ToolCallUpdate(
        tool_call_id=question.call.id,
        title=convert.title(question.call, question.agent),
        kind=kind,
        status="pending",
        content=[*diffs, convert.text_content(text)],
        locations=convert.locations(question.call, question.cwd),
        raw_input=question.call.shown_args,
    )


# `EditorBuffers`: files as the editor has them open, with unsaved text.

T = TypeVar("T")
TIMEOUT_S: Final = 10.0
"""How long an editor may take to answer; without an answer, the file on disk counts."""
SIZE_LIMIT_BYTES: Final = 16 * 1024 * 1024
"""Larger files are read and written on disk alone."""
_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")


class EditorBuffers:
    """The open buffers of a session's editor; used by tools in worker threads."""

    def __init__(self, client: Client, session_id: str, *, writes: bool) -> None:
        self._client = client
        self._session_id = session_id
        self._writes = writes
        self._loop = asyncio.get_running_loop()

    def read(self, path: str, on_disk: bytes) -> bytes | None:
        """Return the bytes that the editor would save; None if they are those on disk, or it does not answer."""
        if len(on_disk) > SIZE_LIMIT_BYTES:
            return None
        buffer = self._wait_for(self._client.read_text_file(session_id=self._session_id, path=path))
        return None if buffer is None else unsaved_bytes(on_disk, buffer.content)

    def show(self, path: str, text: str) -> None:
        """Put a file's new text into its buffer, or the editor would save the old text over it later."""
        if self._writes and len(text) <= SIZE_LIMIT_BYTES:
            self._wait_for(self._client.write_text_file(session_id=self._session_id, path=path, content=text))

    def _wait_for(self, request: Coroutine[Any, Any, T]) -> T | None:
        waiting = asyncio.run_coroutine_threadsafe(request, self._loop)
        try:
            return waiting.result(TIMEOUT_S)
        except (RequestError, OSError, TimeoutError, CancelledError):
            waiting.cancel()  # the client does not have the file, has disconnected, or hangs
            return None


def unsaved_bytes(on_disk: bytes, text: str) -> bytes | None:
    """Encode a buffer's text like its file, with its line ends in unchanged lines; None if the texts are the same."""
    encoding = detect(on_disk)
    if encoding is None:
        return None
    old, new = _LINE.findall(encoding.decode(on_disk, "surrogateescape")), _LINE.findall(text)
    plain_old, plain_new = [*map(_normalize, old)], [*map(_normalize, new)]
    if plain_old == plain_new:
        return None
    end = newline_style(on_disk, encoding)
    changed = [line if (bare := _without_end(line)) == line else bare + end for line in new]
    try:
        changes = compare(plain_old, plain_new)
    except TooDifferentError:
        changes = [Change(0, len(old), 0, len(new))]
    lines: list[str] = []
    position = 0
    for each in changes:
        lines += [*old[position : each.start], *changed[each.new_start : each.new_end]]
        position = each.end
    whole = "".join((*lines, *old[position:]))
    try:
        return encoding.bom + whole.encode(encoding.codec, "surrogateescape")
    except UnicodeEncodeError:  # a character that the file's encoding lacks: editors save such a text as UTF-8
        return whole.encode(UTF8.codec, "surrogateescape")


def _without_end(line: str) -> str:
    return line.rstrip("\r\n")


def _normalize(line: str) -> bytes:
    """Return a line for comparison: any line end as a line feed."""
    bare = _without_end(line)
    return (bare if bare == line else f"{bare}\n").encode("utf-8", "surrogatepass")
