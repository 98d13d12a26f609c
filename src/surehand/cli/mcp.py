"""`surehand mcp`: list, add, remove and test MCP servers, and log in to them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from argparse import REMAINDER, ArgumentParser, Namespace
from time import perf_counter
from typing import Any

from surehand import config
from surehand.cli import render, session
from surehand.cli.parser import amount_above_zero
from surehand.core.errors import SettingsError, ToolFailure
from surehand.files.sanitize import visible
from surehand.mcp.client.config import address_problem, expand_variables, name_problem
from surehand.state import locations
from surehand.state.files import mode_of, write_private

_ADD_HELP = (
    "the program that speaks MCP on stdio, after --",
    "or --url URL for a server that speaks streamable HTTP",
    "--env NAME=VALUE and --header NAME=VALUE, where ${VAR} is filled in",
    "--client-id ID and --client-secret '${VAR}' if a login needs its own registration",
    "--timeout S, the seconds a call may take",
)


def configure(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    actions = "list | add | remove | test | login | logout"
    commands = parser.add_subparsers(dest="action", required=True, metavar=actions)
    listing = commands.add_parser("list", help="connect to all servers and list their tools", allow_abbrev=False)
    listing.add_argument("--no-connect", action="store_true", help="only list the configuration")
    add = commands.add_parser("add", help="add a server: a command after --, or --url", allow_abbrev=False)
    add.add_argument("name", metavar="NAME", help="the server's name")
    add.add_argument("rest", nargs=REMAINDER, metavar="[OPTIONS] -- COMMAND", help="; ".join(_ADD_HELP))
    remove = commands.add_parser("remove", help="remove a server from your settings", allow_abbrev=False)
    remove.add_argument("name", metavar="NAME", help="the server's name (see `surehand mcp list`)")
    login = commands.add_parser("login", help="log in to a server that requires it (OAuth)", allow_abbrev=False)
    login.add_argument("name", metavar="NAME", help="the server's name (see `surehand mcp list`)")
    login.add_argument("--no-browser", action="store_true", help="only print the address to open")
    logout = commands.add_parser("logout", help="log out of a server", allow_abbrev=False)
    logout.add_argument("name", metavar="NAME", help="the server's name (see `surehand mcp list`)")
    test = commands.add_parser("test", help="connect to a server and show what it offers", allow_abbrev=False)
    test.add_argument("name", metavar="NAME", help="the server's name (see `surehand mcp list`)")


def run(options: Namespace) -> int:
    """Run the command and return its exit code."""
    match options.action:
        case "list":
            return session.run(_list(options))
        case "add":
            return _add(options)
        case "remove":
            return _remove(options)
        case "login":
            return session.run(_login(options))
        case "logout":
            return session.run(_logout(options))
        case _:
            return session.run(_test(options))


# -- list and test -----------------------------------------------------------------------------------------------------


async def _list(options: Namespace) -> int:
    async with session.open_app(options) as app:
        told = len(app.warnings)
        if not options.no_connect:
            await app.connect_servers()
        rows = [_row(app, name) for name in app.servers.names()]
        for warning in app.warnings[told:]:
            render.note(f"warning: {warning}")
        render.facts(options, rows, lambda: _table(rows))
    return 0


def _row(app: Any, name: str) -> dict[str, Any]:
    connection = app.servers.get(name)
    return {
        "name": name,
        "state": connection.state,
        "problem": connection.problem,
        "where": connection.server.where,
        "source": connection.server.source,
        "server": dict(connection.info),
        "tools": app.servers.tools_of(name),
    }


def _table(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return "No servers; `surehand mcp add NAME -- COMMAND` adds one."
    room = max(render.columns() - 50, 30)
    shown = [
        (
            row["name"],
            row["state"],
            str(len(row["tools"])),
            render.shorten_line(visible(row["problem"] or row["where"], lines=False), room),
        )
        for row in rows
    ]
    return render.table(shown, ("NAME", "STATE", "TOOLS", "WHERE"))


async def _test(options: Namespace) -> int:
    async with session.open_app(options) as app:
        began = perf_counter()
        try:
            await app.servers.ready(options.name)
        except ToolFailure as failure:
            error = {"code": failure.code, "message": failure.message, "hint": failure.hint}
            if render.as_json(options):
                render.facts(options, {"ok": False, "error": error}, "")
            else:
                render.error(visible(failure.message, lines=False), failure.hint)
            return 3 if failure.code == "tool_not_found" else 1
        seconds = perf_counter() - began
        infos = [app.registry.info(name) for name in app.servers.tools_of(options.name)]
        tools = [{"name": info.name, "description": info.description} for info in infos if info]
        facts = {"ok": True, "seconds": round(seconds, 3), **_row(app, options.name), "tools": tools}
        render.facts(options, facts, lambda: _page(facts))
    return 0


def _page(facts: dict[str, Any]) -> str:
    info = facts["server"]
    known = visible(f"{info.get('name', '?')} {info.get('version', '')}", lines=False)
    head = f"{facts['name']}: {known} answered in {facts['seconds']} s"
    room = max(render.columns() - 40, 30)
    rows = [(each["name"], render.shorten_line(visible(each["description"]), room)) for each in facts["tools"]]
    return f"{head}\n" + render.table(rows, ("TOOL", "WHAT IT SAYS OF ITSELF"))


# -- login and logout --------------------------------------------------------------------------------------------------


async def _login(options: Namespace) -> int:
    shown: list[str] = []

    async def show(url: str) -> None:
        shown.append(url)
        render.note(f"open this address to log in to {options.name}:\n{url}")
        if not options.no_browser:
            await _open_browser(url)

    async with session.open_app(options) as app:
        app.servers.login = show
        try:
            _kept_login(app, options.name).forget_tokens()
            await app.servers.ready(options.name)
        except ToolFailure as failure:
            render.error(failure.message, failure.hint if failure.code == "tool_not_found" else "")
            return 3 if failure.code == "tool_not_found" else 1
        count = len(app.servers.tools_of(options.name))
        said = f"logged in to {options.name}: {count} tools" if shown else f"{options.name} asks for no login"
        render.facts(options, {"ok": True, "name": options.name, "logged_in": bool(shown), "tools": count}, said)
    return 0


async def _logout(options: Namespace) -> int:
    async with session.open_app(options) as app:
        gone = _kept_login(app, options.name).forget()
    said = f"the login of {options.name} is forgotten" if gone else f"nobody was logged in to {options.name}"
    render.facts(options, {"ok": True, "name": options.name, "forgotten": gone}, said)
    return 0


def _kept_login(app: Any, name: str) -> Any:
    """Return a server's saved login; raise SettingsError for one without a login."""
    from surehand.mcp.client.login import SavedLogin  # lazy: mcp, 900 ms

    settings = app.servers.get(name).server.settings
    if not settings.url:
        raise SettingsError(f"{name} is a command on this machine; there is nothing to log in to")
    if "authorization" in map(str.lower, settings.headers):
        raise SettingsError(f"{name} is given a token in a header; remove that first to log in")
    return SavedLogin(expand_variables(settings.url, os.environ))


async def _open_browser(url: str) -> None:
    """Open a URL in a graphical browser, if any: a text browser would take over the terminal."""
    import webbrowser

    if sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        await asyncio.to_thread(webbrowser.open, url)


# -- add and remove, in the user's settings ----------------------------------------------------------------------------


def _add(options: Namespace) -> int:
    words = _parse_added(options)
    if problem := name_problem(options.name):
        raise SettingsError(problem)
    if bool(words) == bool(options.url):
        raise SettingsError("give either a command after -- or --url")
    if options.url and (problem := address_problem(options.url)):
        raise SettingsError(problem)
    known = config.load(options.cwd).settings.mcp_servers
    if options.name in known:
        raise SettingsError(f"there is already a server {options.name}; `surehand mcp remove {options.name}` first")
    path = locations.user_settings()
    before = _read(path)
    table = _toml(options, words)
    _write(path, before + ("\n" if before and not before.endswith("\n\n") else "") + table)
    try:
        config.load(options.cwd)
    except SettingsError:
        _write(path, before)
        raise
    said = {"ok": True, "name": options.name, "file": path}
    render.facts(options, said, f"added to {path}; `surehand mcp test {options.name}` tries it")
    return 0


def _parse_added(options: Namespace) -> list[str]:
    """Parse the arguments after the server's name into `options`; return the words of its command."""
    rest: list[str] = options.rest
    cut = rest.index("--") if "--" in rest else len(rest)
    if "--" not in rest:  # the command starts at the first word that is neither an option nor the value of one
        cut = 0
        while cut < len(rest) and rest[cut].startswith("--"):
            cut += 1 if "=" in rest[cut] else 2
    parser = ArgumentParser(prog="surehand mcp add NAME", allow_abbrev=False)
    parser.add_argument("--url")
    parser.add_argument("--env", action="append", default=[])
    parser.add_argument("--header", action="append", default=[])
    parser.add_argument("--client-id")
    parser.add_argument("--client-secret")
    parser.add_argument("--timeout", type=amount_above_zero)
    parser.parse_args(rest[:cut], namespace=options)
    return [word for number, word in enumerate(rest[cut:]) if number > 0 or word != "--"]


def _toml(options: Namespace, words: list[str]) -> str:
    lines = [f"[mcp_servers.{_text(options.name)}]"]
    if options.url:
        lines.append(f"url = {_text(options.url)}")
    else:
        lines.append(f"command = {_text(words[0])}")
        if words[1:]:
            lines.append(f"args = [{', '.join(map(_text, words[1:]))}]")
    for key, pairs in (("env", options.env), ("headers", options.header)):
        if pairs:
            lines.append(f"{key} = {{ {', '.join(map(_pair, pairs))} }}")
    for key, value in (("client_id", options.client_id), ("client_secret", options.client_secret)):
        if value:
            lines.append(f"{key} = {_text(value)}")
    if options.timeout:
        lines.append(f"timeout = {options.timeout:g}")
    return "\n".join(lines) + "\n"


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _pair(text: str) -> str:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise SettingsError(f"{text!r} is not NAME=VALUE")
    return f"{_text(name)} = {_text(value)}"


def _remove(options: Namespace) -> int:
    path = locations.user_settings()
    name = re.escape(options.name)
    header = re.compile(rf"""\s*\[\s*mcp_servers\s*\.\s*(?:{name}|"{name}"|'{name}')\s*(?:\.[^\]]*)?\]\s*(?:#.*)?""")
    kept: list[str] = []
    inside = found = False
    for line in _read(path).splitlines(keepends=True):
        if line.lstrip().startswith("["):
            inside = header.fullmatch(line.rstrip("\n")) is not None
            found = found or inside
        if not inside:
            kept.append(line)
    if not found:
        raise SettingsError(f"MCP server not found: {options.name} (in {path})")
    _write(path, "".join(kept))
    render.facts(options, {"ok": True, "name": options.name, "file": path}, f"removed from {path}")
    return 0


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def _write(path: str, text: str) -> None:
    locations.private_dir(os.path.dirname(path))
    write_private(path, text, mode=mode_of(path))
