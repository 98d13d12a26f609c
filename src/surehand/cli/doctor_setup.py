"""What `surehand doctor` finds out about the set-up: settings, model, web, MCP servers."""

from __future__ import annotations

import asyncio
import tempfile
from argparse import Namespace

from surehand.cli import render
from surehand.cli.doctor import Check, Section
from surehand.core.errors import SurehandError
from surehand.core.names import split_full_name
from surehand.core.settings import Settings

_REACH_S = 3.0


def settings(options: Namespace) -> Section:
    """Say whether the settings can be used, and what of them is left out."""
    from surehand import config
    from surehand.policy.trust import is_trusted

    try:
        loaded = config.load(options.cwd, trusted=is_trusted(options.cwd))
    except SurehandError as problem:
        return Section(
            "Settings", (Check("files and variables", False, str(problem), "Mend it; nothing runs until then."),)
        )
    ignored = "; ".join(loaded.warnings)
    checks = (
        Check(
            "files and variables",
            True,
            f"{render.counted(len(loaded.origins), 'value')} set; `surehand config show` lists them",
        ),
        Check("left out", not ignored, ignored or "nothing", "`surehand trust` lets a folder's own settings count."),
        _state(),
    )
    return Section("Settings", checks)


def _state() -> Check:
    """Say whether anything can be kept: without it there is no history, and so no edit."""
    from surehand.state import locations

    folder = locations.home()
    try:
        with tempfile.TemporaryFile(dir=locations.private_dir(folder)) as file:
            file.write(bytes(65536))
    except OSError as problem:
        hint = "Let the folder be written, or name another with SUREHAND_HOME; until then no tool changes a file."
        return Check("state", False, f"{folder} cannot be written: {problem.strerror}", hint)
    return Check("state", True, f"kept in {folder}")


def model(options: Namespace) -> Section:
    """Say which model answers, and why."""
    from surehand.models import choose, server_address

    settings = _settings(options)
    choice = choose(settings)
    found = f"{choice.provider}/{choice.name}: {choice.why}"
    address = server_address(settings, choice)
    problem = _unreachable(address) if address else ""
    chosen = Check("chosen", True, found)
    if not address:
        return Section("Model", (chosen,), choice.to_dict())
    hint = "Start the server, or set [model] base_url; behind a proxy this may be wrong."
    answers = Check("answers", not problem, problem or f"{address} takes connections", hint)
    return Section("Model", (chosen, answers), choice.to_dict() | {"server": address, "problem": problem})


def _unreachable(address: str) -> str:
    """Return why nothing listens at the address of a model's server; empty where something does."""
    import socket
    from urllib.parse import urlsplit

    parts = urlsplit(address)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((host, port), timeout=_REACH_S).close()
    except OSError as problem:
        return f"nothing answers at {address}: {problem.strerror or problem}"
    return ""


def web(options: Namespace) -> Section:
    """Say what the web tools would use."""
    from surehand.web.engines.choose import web_status

    status = web_status(_settings(options).web)
    engine = status["search_engine"]
    search = engine or "not set up; docs/web.md says how"
    if engine and status["search_problem"]:
        search = f"{engine} is not set up: {status['search_problem']}"
    opened = ", ".join(status["opened_hosts"]) or "none"
    checks = (Check("search", not (engine and status["search_problem"]), search), Check("opened hosts", True, opened))
    return Section("Web", checks, status)


def servers(options: Namespace) -> Section:
    """Connect to every MCP server and say which answer."""
    return asyncio.run(_servers(options))


async def _servers(options: Namespace) -> Section:
    from surehand.app import Surehand

    async with Surehand(options.cwd, settings=_settings(options), keep_state=False) as app:
        failed = await app.connect_servers()
        remote = (split_full_name(name) for name in app.registry)  # a tool of ours has a short name
        names = sorted({found[0] for found in remote if found})
        checks = [Check(name, True, "answers") for name in names]
        checks += [Check(name, False, why, f"`surehand mcp test {name}` shows more.") for name, why in failed.items()]
    return Section("MCP servers", tuple(checks) or (Check("configured", True, "none"),))


def _settings(options: Namespace) -> Settings:
    from surehand import config
    from surehand.policy.trust import is_trusted

    try:
        return config.load(options.cwd, trusted=is_trusted(options.cwd)).settings
    except SurehandError:
        return Settings()
