"""The commands of a chat: lines that begin with `/`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


async def _undo(chat: Chat, rest: str) -> None:
    if rest and not rest.isdigit():
        render.error(f"{rest!r} is not a number of changes", "/undo, or /undo 3")
        return
    for _ in range(int(rest or 1)):
        # That a person typed it is its approval, for this one call.
        chat.app.session.grants.append("Undo")
        try:
            result = await chat.app.call("Undo", {}, source="user")
        finally:
            chat.app.session.grants.remove("Undo")
        if not result.ok:
            render.error(result.output)
            return
        render.line(result.output)


async def _log(chat: Chat, rest: str) -> None:
    from surehand.cli.log import listed
    from surehand.host.history.history import HISTORY

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
    "log": Command("log", "what was changed here", _log),
    "tools": Command("tools", "the tools the model sees", _tools),
    "tasks": Command("tasks", "to-dos, background commands and agents", _tasks),
    "mode": Command("mode [MODE]", "show or set the mode: default, accept-edits, plan", _mode),
    "stats": Command("stats", "calls, times and tokens of this chat", _stats),
    "model": Command("model [NAME]", "which model answers, and why; or go on with another", _model),
    "help": Command("help", "this page", _help),
}
