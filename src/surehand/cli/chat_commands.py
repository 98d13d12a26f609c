"""The commands of a chat: lines that begin with `/`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from surehand.cli import render
from surehand.core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from surehand.cli.chat import Chat


@frozen
class Command:
    """What a word after `/` does."""

    usage: str
    about: str
    run: Callable[[Chat, str], Coroutine[Any, Any, None]]


@contextmanager
def _granted(chat: Chat) -> Generator[None]:
    """Allow changes to be taken back meanwhile: that a person typed the command is its approval."""
    grants = ["Undo", "Redo"]
    chat.app.session.grants += grants
    try:
        yield
    finally:
        for grant in grants:
            chat.app.session.grants.remove(grant)


async def _undo(chat: Chat, rest: str) -> None:
    if rest and not rest.isdigit():
        render.error(f"{rest!r} is not a number of changes", "/undo, or /undo 3")
        return
    for _ in range(int(rest or 1)):
        with _granted(chat):
            result = await chat.app.call("Undo", {}, source="user")
        if not result.ok:
            render.error(result.output)
            return
        render.line(result.output)


_REWINDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "": {"dry_run": True},
    "yes": {},
    "files": {"transcript": False},
    "transcript": {"files": False},
}


async def _rewind(chat: Chat, rest: str) -> None:
    from surehand.cli.rewind import format_turns, list_turns

    turn, _, how = rest.partition(" ")
    if not turn:
        render.line(
            format_turns(chat.options.session or "", list_turns(chat.app), "/rewind TURN shows what that does.")
        )
        return
    if how not in _REWINDS or (turn == "undo" and how):
        render.error(f"{how!r} is none of yes, files and transcript", "/rewind, /rewind 3, /rewind 3 yes, /rewind undo")
        return
    with _granted(chat):
        undoes = turn == "undo"
        result = await (chat.app.undo_rewind() if undoes else chat.app.rewind(turn, **_REWINDS[how]))
    if not result.ok:
        render.error(result.output)
        return
    render.line(render.diff(result.output))
    if not how and not undoes:
        render.line(f"/rewind {turn} yes does it; /rewind {turn} files, or transcript, only the one.")


async def _log(chat: Chat, rest: str) -> None:
    from surehand.cli.log import listed
    from surehand.history.history import HISTORY

    changes = chat.app.session.keep(HISTORY).changes(limit=20)
    render.line(listed(chat.app.session.workspace, changes))


async def _tools(chat: Chat, rest: str) -> None:
    active = chat.app.selection.active_tools()
    wide = max((render.width(info.name) for info in active), default=0)
    room = render.columns() - wide - 3
    render.line(render.table((info.name, render.shortened(info.description, room)) for info in active))
    if hidden := len(chat.app.selection) - len(active):
        render.line(f"and {hidden} more that the model finds with ToolSearch")


async def _tasks(chat: Chat, rest: str) -> None:
    render.line((await chat.app.call("TaskList", {}, source="user")).output)


async def _mode(chat: Chat, rest: str) -> None:
    if rest in ("default", "accept-edits", "plan"):
        chat.app.session.mode = rest
        chat.app.session.notices.append(f"[notice] The user has set the mode to {rest}.")
    elif rest:
        render.error(f"there is no mode {rest!r} to switch to", "default, accept-edits or plan")
    render.line(f"mode: {chat.app.session.mode}")


async def _stats(chat: Chat, rest: str) -> None:
    from surehand.engine.metrics_report import to_json

    rows: list[tuple[str, ...]] = []
    for each in chat.app.metrics.all():
        shown = to_json(each)["execution"]
        took = f"{shown['p95ExecutionTime']:.0f} ms"
        rows.append((each.tool, str(shown["totalCalls"]), str(shown["failedCalls"]), took))
    render.line(render.table(rows, ("TOOL", "CALLS", "FAILED", "P95")) if rows else "no calls yet")
    used = chat.usage
    if used.total:
        cached = f", {used.cache_read_tokens:,} of them cached" if used.cache_read_tokens else ""
        taken = used.total - used.output_tokens
        cost = chat.loop.limits.cost_of(used)
        price = f"; cost {cost:.4f}" if cost is not None else ""
        render.line(f"tokens: {taken:,} in{cached}, {used.output_tokens:,} out{price}")


async def _model(chat: Chat, rest: str) -> None:
    from surehand.core.model import ModelError

    try:
        if rest:
            chat.use(rest)
    except ModelError as problem:
        render.error(problem.message, problem.hint)
    render.line(f"{chat.choice.provider}/{chat.choice.name}: {chat.choice.why}")


async def _help(chat: Chat, rest: str) -> None:
    rows = [(f"/{command.usage}", command.about) for command in COMMANDS.values()]
    render.line(render.table([*rows, ("/exit", "leave (also Ctrl-D)")]))
    render.line(_KEYS)


async def unknown(name: str) -> None:
    """Say that there is no such command."""
    from difflib import get_close_matches

    near = get_close_matches(name, COMMANDS, n=1)
    render.error(f"there is no command /{name}" + (f"; did you mean /{near[0]}?" if near else ""), "/help lists them")


_KEYS: Final = """\
Alt-Enter, or \\ at the end of a line, begins another line; several lines may be pasted.
Ctrl-C stops an answer, or forgets what was typed; it does not leave."""
COMMANDS: Final[Mapping[str, Command]] = {
    "undo": Command("undo [N]", "take back the last change (or the last N)", _undo),
    "rewind": Command("rewind [TURN]", "list turns; bring files and conversation back to before one", _rewind),
    "log": Command("log", "what was changed here", _log),
    "tools": Command("tools", "the tools the model sees", _tools),
    "tasks": Command("tasks", "to-dos, background commands and agents", _tasks),
    "mode": Command("mode [MODE]", "show or set the mode: default, accept-edits, plan", _mode),
    "stats": Command("stats", "calls, times and tokens of this chat", _stats),
    "model": Command("model [NAME]", "which model answers, and why; or go on with another", _model),
    "help": Command("help", "this page", _help),
}
