"""`surehand chat`: a conversation in the terminal, with slash commands; each turn runs the same loop as `ask`.

The prompt, the answer and background work share one event loop. On a terminal the prompt is prompt_toolkit's (extra
`chat`): several lines by paste, Alt-Enter or `\\` at the end of a line, and output written meanwhile appears above it.
Without that package, and in a pipe, input is read as plain lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from surehand.agent.loop import Spent
from surehand.cli import render, session
from surehand.cli.approvals import Deferred
from surehand.cli.ask import limits
from surehand.cli.parser import approvals_option, effort_option
from surehand.cli.screen import Screen
from surehand.cli.session import OwnSession
from surehand.cli.tools import csv
from surehand.cli.undo import format_changes, format_turns, list_turns
from surehand.core.call import new_id
from surehand.core.errors import SettingsError, ToolFailure
from surehand.core.frozen import frozen
from surehand.core.model import ModelError
from surehand.core.names import nearest
from surehand.engine.journal import list_sessions
from surehand.engine.metrics_export import to_json
from surehand.history.history import HISTORY
from surehand.models import choose, open_model
from surehand.slash import BUILT_IN, add_mentioned, grant_undo, load_commands
from surehand.state import locations

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document
    from prompt_toolkit.key_binding import KeyBindings

    from surehand.agent.loop import Loop
    from surehand.app import Surehand
    from surehand.models import Choice
    from surehand.slash import FileCommand


class Prompt(Protocol):
    """Reads what the user types."""

    async def read(self) -> str | None:
        """Return what was typed, several lines as one text; empty after Ctrl-C, None at the end of input."""
        ...


def open_prompt(commands: Sequence[str], workspace: str) -> Prompt:
    """Return the prompt that fits the terminal and the installed packages."""
    if sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        # Do not query the cursor position: each query takes a round trip, and some terminals never answer.
        os.environ.setdefault("PROMPT_TOOLKIT_NO_CPR", "1")
        with contextlib.suppress(ImportError):
            return EditedPrompt(commands, workspace)
        render.note("for editing, history and completion: pip install 'surehand[chat]'")
    return PlainPrompt()


class PlainPrompt:
    """Reads plain lines from standard input."""

    async def read(self) -> str | None:
        """Return the next line; a `\\` at its end joins the following one."""
        lines: list[str] = []
        while True:
            if sys.stdin.isatty():
                render.put(". " if lines else "> ")
            line = await _read_line()
            if line is None:
                return "\n".join(lines) if lines else None
            if not line.endswith("\\"):
                return "\n".join([*lines, line])
            lines.append(line[:-1])


async def _read_line() -> str | None:
    """Read a line of standard input, None at its end, in a daemon thread: process exit does not wait for it."""
    loop, line = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

    def deliver(text: str) -> None:
        if not line.done():
            line.set_result(text)

    def wait() -> None:
        text = sys.stdin.readline()
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(deliver, text)

    threading.Thread(target=wait, daemon=True).start()
    text = await line
    return text.removesuffix("\n") if text else None


class EditedPrompt:
    """Reads with prompt_toolkit: editing, history, completion, several lines."""

    def __init__(self, commands: Sequence[str], workspace: str) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.formatted_text import ANSI

        self._first = ANSI(render.paint("> ", "bold", "cyan"))
        self._session: PromptSession[str] = PromptSession(
            multiline=True,
            key_bindings=_bind_keys(),
            completer=_completer([f"/{name}" for name in (*commands, "exit")], workspace),
            complete_while_typing=False,
            prompt_continuation="  ",
            history=_open_history(),
        )

    async def read(self) -> str | None:
        """Return what was typed; output written meanwhile appears above the prompt."""
        from prompt_toolkit.patch_stdout import patch_stdout

        try:
            with patch_stdout(raw=True):
                return await self._session.prompt_async(self._first, handle_sigint=False)
        except EOFError:
            return None
        except KeyboardInterrupt:
            if not self._session.default_buffer.text:
                render.note("/exit or Ctrl-D leaves")
            return ""


def _bind_keys() -> KeyBindings:
    """Bind Enter to send; Alt-Enter, and Enter after a `\\`, to begin another line."""
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    def send(event: Any) -> None:
        buffer = event.current_buffer
        if buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    def begin_line(event: Any) -> None:
        event.current_buffer.insert_text("\n")

    keys.add("enter")(send)
    keys.add("escape", "enter")(begin_line)
    return keys


def _completer(commands: Sequence[str], workspace: str) -> Completer:
    """Return a completer for commands after a leading `/`, and for paths of the workspace everywhere else."""
    from prompt_toolkit.completion import Completer, Completion
    from prompt_toolkit.completion.filesystem import PathCompleter
    from prompt_toolkit.document import Document

    class ChatCompleter(Completer):
        paths = PathCompleter(get_paths=lambda: [workspace], expanduser=True)

        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
            typed = document.text_before_cursor
            if typed.startswith("/") and " " not in typed:
                return [Completion(name, -len(typed)) for name in commands if name.startswith(typed)]
            word = typed.rpartition(" ")[2].rpartition("\n")[2].removeprefix("@")
            return self.paths.get_completions(Document(word), complete_event) if word else []

    return ChatCompleter()


def _open_history() -> Any:
    """Open the input history of earlier chats, a private file; in memory if it cannot be written."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    try:
        path = os.path.join(locations.private_dir(locations.home()), "chat_history")
        os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600))
    except OSError:
        return InMemoryHistory()
    return FileHistory(path)


def configure(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("--model", metavar="NAME", help="a model's name, or provider/name")
    parser.add_argument(
        "--continue", action="store_true", dest="go_on", help="continue the latest session of this folder"
    )
    parser.add_argument("--record", metavar="FILE", help="write every call to a file, for `surehand replay`")
    parser.add_argument("--tool-allow", default="", metavar="CSV", help="only these names, aliases or globs")
    effort_option(parser)
    approvals_option(parser)


def run(options: Namespace) -> int:
    """Chat until the user leaves or a signal ends it; return the exit code."""
    options.max_turns = options.max_tokens = options.max_seconds = options.max_cost = None
    if options.go_on:
        options.session = _latest_session(options)
    session = OwnSession(options, new_id("chat"))
    try:
        return asyncio.run(_until_signalled(_chat(options)))
    except ModelError as problem:
        render.error(problem.message, problem.hint)
        return 1
    finally:
        session.drop_if_empty()


def _latest_session(options: Namespace) -> str:
    """Return the name of this workspace's latest session; raise SettingsError if there is none to resume."""
    if options.session:
        raise SettingsError("--continue takes the latest session; --session names one. Give only one of them.")
    found = list_sessions(os.path.join(locations.workspace_state(options.cwd), "sessions"))
    if (latest := next((each.name for each in found if each.first), None)) is None:
        raise SettingsError("there is no session here to continue; `surehand chat` starts one")
    return latest


async def _until_signalled(work: Coroutine[Any, Any, None]) -> int:
    """Run the chat until it ends, or until SIGTERM or SIGHUP cancels it, and return the exit code.

    After a signal everything that the chat started is closed before the process ends.
    """
    task = asyncio.ensure_future(work)
    ended_by: list[int] = []

    def end(number: int) -> None:
        ended_by.append(number)
        task.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, end, number)
    try:
        await task
    except asyncio.CancelledError:
        if not ended_by:
            raise
    return 128 + ended_by[0] if ended_by else 0


async def _chat(options: Namespace) -> None:
    more: dict[str, Any] = {"tool_allow": csv(options.tool_allow), "record": options.record}
    async with session.open_app(options, interactive=True, shows=("call_finished", "note"), **more) as app:
        chat = Chat(options, app)
        chat.use(options.model)
        await session.connect_servers(app)
        await chat.talk()


class Chat:
    """Reads what the user types, and passes it to the agent loop or to a slash command."""

    def __init__(self, options: Namespace, app: Surehand) -> None:
        self.options = options
        self.app = app
        self.loop: Loop
        self.screen: Screen
        self.choice: Choice
        self.questions: Deferred
        self.spent = Spent()
        self.kept: dict[str, FileCommand] = {}
        """Slash commands defined by files, by the word after `/`."""
        self._working: asyncio.Task[Any] | None = None

    def use(self, wanted: str | None) -> None:
        """Switch to a model; the conversation goes on."""
        choice = choose(self.app.settings, wanted)
        model = open_model(self.app.settings, choice, effort=self.options.effort)
        if not hasattr(self, "screen"):
            self.screen = Screen(self.app, choice)
            self.screen.at_prompt = True
            self.questions = Deferred(self.app.approver, self.screen)
            self.app.approver = self.questions
        self.screen.choice = choice
        self.choice = choice
        self.loop = self.app.conversation(model, limits=limits(self.options, self.app, choice), on_text=self.screen)

    async def talk(self) -> None:
        """Show which model answers, then read and answer until the user leaves."""
        self.kept, left_out = load_commands(self.app.session.workspace, trusted=self.app.trusted)
        for problem in left_out:
            render.note(f"warning: {problem}")

        render.line(render.paint(f"{self.choice.provider}/{self.choice.name}", "bold") + f": {self.choice.why}")
        so_far = f", {len(self.loop.messages)} messages so far" if self.loop.messages else ""
        session = f"session {self.options.session}" if self.options.session else "a session that is not kept"
        render.line(f"{session}{so_far}; /help lists the commands, Ctrl-D leaves")
        prompt = open_prompt((*SLASH_COMMANDS, *self.kept), self.app.session.workspace)
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._interrupt)
        while (text := await prompt.read()) is not None:
            await self._interruptible(self.questions.catch_up())
            if not text.strip():
                continue
            if not text.startswith("/"):
                await self._answer(text)
                continue
            name, _, rest = text[1:].strip().partition(" ")
            if name in ("exit", "quit"):
                return
            if name not in SLASH_COMMANDS and (kept := self.kept.get(name)):
                await self._answer(kept.prompt(rest.strip()))
                continue
            command = SLASH_COMMANDS.get(name)
            self.questions.at_once = True  # a question raised by the user's own command is not deferred
            await self._interruptible(command.run(self, rest.strip()) if command else report_unknown(name))
            self.questions.at_once = False

    async def _interruptible(self, work: Coroutine[Any, Any, Any]) -> bool:
        """Run a step that Ctrl-C can stop; return True if it was not stopped."""
        task = self._working = asyncio.ensure_future(work)
        try:
            await task
        except asyncio.CancelledError:
            if not task.cancelled() or (current := asyncio.current_task()) is None or current.cancelling():
                raise
            return False
        finally:
            self._working = None
        return True

    def _interrupt(self) -> None:
        """Stop the running step, if any."""
        if self._working is not None:
            self._working.cancel()

    async def _ask(self, text: str) -> None:
        await self.loop.ask(await add_mentioned(self.app, text))

    async def _answer(self, text: str) -> None:
        try:
            self.screen.at_prompt = False
            self.screen.begin()
            if await self._interruptible(self._ask(text)):
                self.screen.end(self.loop.outcome)
            else:
                self.screen.break_off()
                render.note("stopped; what was done so far is kept")
        except ModelError as problem:
            self.screen.break_off()
            render.error(problem.message, problem.hint)
        except asyncio.CancelledError:
            with contextlib.suppress(RuntimeError):
                self.screen.break_off()
            raise
        self.spent.join(self.loop.outcome.spent)
        await self._interruptible(self.questions.catch_up())


# Slash commands: lines that begin with `/`.


@frozen
class Command:
    """A slash command: how it is written, what it does, and the function that runs it."""

    usage: str
    about: str
    run: Callable[[Chat, str], Coroutine[Any, Any, None]]


def _built_in(name: str) -> Command:
    """Return a built-in slash command whose answer is printed on the terminal."""
    own = BUILT_IN[name]

    async def run(chat: Chat, rest: str) -> None:
        try:
            render.line(await own.run(chat.app, rest))
        except ToolFailure as problem:
            render.error(problem.message, problem.hint)

    return Command(own.usage, own.about, run)


_REWINDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "": {"dry_run": True},
    "yes": {},
    "files": {"transcript": False},
    "transcript": {"files": False},
}


async def _rewind(chat: Chat, rest: str) -> None:
    turn, _, how = rest.partition(" ")
    if not turn:
        render.line(
            format_turns(chat.options.session or "", list_turns(chat.app), "/rewind TURN shows what that does.")
        )
        return
    if how not in _REWINDS or (turn == "undo" and how):
        render.error(f"{how!r} is none of yes, files and transcript", "/rewind, /rewind 3, /rewind 3 yes, /rewind undo")
        return
    with grant_undo(chat.app):
        undoes = turn == "undo"
        result = await (chat.app.undo_rewind() if undoes else chat.app.rewind(turn, **_REWINDS[how]))
    if not result.ok:
        render.error(result.output)
        return
    render.line(render.diff(result.output))
    if not how and not undoes:
        render.line(f"/rewind {turn} yes does it; /rewind {turn} files, or transcript, only the one.")


async def _log(chat: Chat, rest: str) -> None:
    changes = chat.app.session.keep(HISTORY).changes(limit=20)
    render.line(format_changes(chat.app.session.workspace, changes))


async def _tools(chat: Chat, rest: str) -> None:
    active = chat.app.selection.active_tools()
    wide = max((render.width(info.name) for info in active), default=0)
    room = render.columns() - wide - 3
    render.line(render.table((info.name, render.shorten_line(info.description, room)) for info in active))
    if hidden := len(chat.app.selection) - len(active):
        render.line(f"and {hidden} more that the model finds with ToolSearch")


async def _stats(chat: Chat, rest: str) -> None:
    rows: list[tuple[str, ...]] = []
    for each in chat.app.metrics.all():
        shown = to_json(each)["execution"]
        took = f"{shown['p95ExecutionTime']:.0f} ms"
        rows.append((each.tool, str(shown["totalCalls"]), str(shown["failedCalls"]), took))
    render.line(render.table(rows, ("TOOL", "CALLS", "FAILED", "P95")) if rows else "no calls yet")
    used, cost = chat.spent.usage, chat.spent.cost
    if used.total:
        cached = f", {used.cache_read_tokens:,} of them cached" if used.cache_read_tokens else ""
        taken = used.total - used.output_tokens
        known = "; cost unknown" if cost is None else f"; about ${cost:.4f} (an estimate)"
        price = f"; cost {cost:.4f}" if cost is not None and not chat.spent.estimated else known
        render.line(f"tokens: {taken:,} in{cached}, {used.output_tokens:,} out{price}")


async def _model(chat: Chat, rest: str) -> None:
    try:
        if rest:
            chat.use(rest)
    except ModelError as problem:
        render.error(problem.message, problem.hint)
    render.line(f"{chat.choice.provider}/{chat.choice.name}: {chat.choice.why}")


async def _help(chat: Chat, rest: str) -> None:
    rows = [(f"/{command.usage}", command.about) for command in SLASH_COMMANDS.values()]
    own = (kept for name, kept in chat.kept.items() if name not in SLASH_COMMANDS)
    rows += [(f"/{kept.name} {kept.hint}".strip(), kept.about) for kept in own]
    render.line(render.table([*rows, ("/exit", "leave (also Ctrl-D)")]))
    render.line(_KEYS)


async def report_unknown(name: str) -> None:
    """Report that there is no such slash command."""
    near = nearest(name, SLASH_COMMANDS)
    render.error(f"there is no command /{name}" + (f"; did you mean /{near}?" if near else ""), "/help lists them")


_KEYS: Final = """\
Alt-Enter, or \\ at the end of a line, begins another line; several lines may be pasted.
Ctrl-C stops an answer, or forgets what was typed; it does not leave."""
SLASH_COMMANDS: Final[Mapping[str, Command]] = {
    "undo": _built_in("undo"),
    "redo": _built_in("redo"),
    "rewind": Command("rewind [TURN]", "list turns; rewind files and conversation to before one", _rewind),
    "log": Command("log", "what was changed here", _log),
    "tools": Command("tools", "the tools the model sees", _tools),
    "tasks": _built_in("tasks"),
    "mode": _built_in("mode"),
    "stats": Command("stats", "calls, times and tokens of this chat", _stats),
    "model": Command("model [NAME]", "show which model answers, and why; or switch to another", _model),
    "help": Command("help", "this page", _help),
}
