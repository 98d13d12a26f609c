"""`surehand cluster`: sessions on a Ray cluster that outlive the command that opened them."""

from __future__ import annotations

import asyncio
import json
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from surehand.cli import render, session
from surehand.cli.parser import count_above_zero
from surehand.cluster.fleet import Fleet
from surehand.core.errors import SettingsError

if TYPE_CHECKING:
    from surehand.cluster.session import RemoteSession


def configure(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="open | attach | call | pull | stop")
    opening = commands.add_parser("open", help="open a session over a copy of this folder", allow_abbrev=False)
    opening.add_argument(
        "--count", type=count_above_zero, default=1, metavar="N", help="number of sessions (default 1)"
    )
    opening.add_argument("--cpu", type=float, default=0.0, metavar="X", help="cores per session")
    opening.add_argument("--memory", default="0", metavar="SIZE", help="memory per session, such as 1GiB")
    attach = commands.add_parser(
        "attach", help="list the sessions of a name, and follow their events", allow_abbrev=False
    )
    attach.add_argument("--follow", action="store_true", help="show their events until Ctrl-C")
    call = commands.add_parser("call", help="make a call in a session", allow_abbrev=False)
    call.add_argument("remote", metavar="SESSION", help="its id, as `attach` lists it")
    call.add_argument("tool", metavar="TOOL")
    call.add_argument("--args", default="{}", metavar="JSON", help="the arguments, an object")
    pull = commands.add_parser("pull", help="apply a session's changes here; `surehand undo` takes them back")
    pull.add_argument("remote", metavar="SESSION", help="its id, as `attach` lists it")
    stop = commands.add_parser("stop", help="end the sessions of a name", allow_abbrev=False)
    opening.add_argument(
        "--name",
        "--detach",
        required=True,
        metavar="NAME",
        help="the name that keeps them running after this command has ended",
    )
    for command in (attach, call, pull, stop):
        command.add_argument("--name", required=True, metavar="NAME", help="the name of the sessions")
    for command in (opening, attach, call, pull, stop):
        command.add_argument("--address", default="auto", metavar="HOST:PORT", help="of the cluster (default: auto)")


def run(options: Namespace) -> int:
    """Run the command and return its exit code."""
    actions = {"open": _open, "attach": _attach, "call": _call, "pull": _pull, "stop": _stop}
    return session.run(actions[options.action](options))


def _fleet(options: Namespace, **more: Any) -> Fleet:
    return Fleet(options.address, detach=options.name, allow=options.allow, mode=options.mode, **more)


def _rows(sessions: list[RemoteSession]) -> list[dict[str, str]]:
    return [{"session": each.id, "node": each.node, "workspace": each.workspace} for each in sessions]


def _show(options: Namespace, sessions: list[RemoteSession]) -> None:
    rows = _rows(sessions)
    table = [(row["session"], row["node"][:12], row["workspace"]) for row in rows]
    render.facts(options, rows, lambda: render.table(table, ("SESSION", "NODE", "WORKSPACE")) if rows else "none")


async def _open(options: Namespace) -> int:
    needs = {"cpu": options.cpu, "memory": options.memory if options.memory != "0" else 0}
    async with _fleet(options) as fleet:
        opened = [await fleet.session(options.cwd, needs=needs) for _ in range(options.count)]
        _show(options, opened)
    return 0


async def _attach(options: Namespace) -> int:
    def tell(event: Any) -> None:
        if event.kind in ("call_started", "call_finished", "note"):
            render.note(f"{event.session_id}  {event.kind}  {event.tool} {event.data.get('message', '')}".rstrip())

    async with _fleet(options, listener=tell if options.follow else None) as fleet:
        _show(options, list(fleet.sessions.values()))
        if options.follow:
            await asyncio.Event().wait()
    return 0


def _find(fleet: Fleet, id: str) -> RemoteSession:
    if (found := fleet.sessions.get(id)) is None:
        raise SettingsError(f"there is no session {id!r}; there are: {', '.join(fleet.sessions) or 'none'}")
    return found


async def _call(options: Namespace) -> int:
    try:
        args = json.loads(options.args)
    except ValueError as problem:
        raise SettingsError(f"--args is not JSON: {problem}") from None
    async with _fleet(options) as fleet:
        result = await _find(fleet, options.remote).call(options.tool, args, source="cli")
    render.facts(options, result.to_dict(), result.output or (result.error.text if result.error else ""))
    return 0 if result.ok else 1


async def _pull(options: Namespace) -> int:
    """Apply a session's changes here; typing the command counts as the approval."""
    async with _fleet(options) as fleet:
        options.allow = [*options.allow, "ApplyPatch"]
        async with session.open_app(options) as app:
            result = await _find(fleet, options.remote).pull(app)
    render.facts(options, result.to_dict(), result.output or (result.error.text if result.error else ""))
    return 0 if result.ok else 1


async def _stop(options: Namespace) -> int:
    async with _fleet(options) as fleet:
        count = len(fleet.sessions)
        await fleet.close()
    render.facts(options, {"ended": count}, f"ended {count} sessions")
    return 0
