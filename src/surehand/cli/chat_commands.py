"""The commands of a chat: lines that begin with `/`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from surehand.cli import render
from surehand.core.errors import ToolFailure
from surehand.core.frozen import frozen
from surehand.core.names import nearest
from surehand.slash import BUILT_IN, grant_undo

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from surehand.cli.chat import Chat


@frozen
class Command:
    """What a word after `/` does."""

    usage: str
    about: str
    run: Callable[[Chat, str], Coroutine[Any, Any, None]]


def _built_in(name: str) -> Command:
    """Return a command that works in any conversation, shown on a terminal."""
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
    from surehand.cli.log import format_changes
    from surehand.history.history import HISTORY

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
    from surehand.engine.metrics_export import to_json

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
    from surehand.core.model import ModelError

    try:
        if rest:
            chat.use(rest)
    except ModelError as problem:
        render.error(problem.message, problem.hint)
    render.line(f"{chat.choice.provider}/{chat.choice.name}: {chat.choice.why}")


async def _help(chat: Chat, rest: str) -> None:
    rows = [(f"/{command.usage}", command.about) for command in COMMANDS.values()]
    own = (kept for name, kept in chat.kept.items() if name not in COMMANDS)
    rows += [(f"/{kept.name} {kept.hint}".strip(), kept.about) for kept in own]
    render.line(render.table([*rows, ("/exit", "leave (also Ctrl-D)")]))
    render.line(_KEYS)


async def report_unknown(name: str) -> None:
    """Say that there is no such command."""
    near = nearest(name, COMMANDS)
    render.error(f"there is no command /{name}" + (f"; did you mean /{near}?" if near else ""), "/help lists them")


_KEYS: Final = """\
Alt-Enter, or \\ at the end of a line, begins another line; several lines may be pasted.
Ctrl-C stops an answer, or forgets what was typed; it does not leave."""
COMMANDS: Final[Mapping[str, Command]] = {
    "undo": _built_in("undo"),
    "redo": _built_in("redo"),
    "rewind": Command("rewind [TURN]", "list turns; bring files and conversation back to before one", _rewind),
    "log": Command("log", "what was changed here", _log),
    "tools": Command("tools", "the tools the model sees", _tools),
    "tasks": _built_in("tasks"),
    "mode": _built_in("mode"),
    "stats": Command("stats", "calls, times and tokens of this chat", _stats),
    "model": Command("model [NAME]", "which model answers, and why; or go on with another", _model),
    "help": Command("help", "this page", _help),
}
