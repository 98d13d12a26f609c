"""What `holdfast doctor` finds out about the set-up: settings, model, web, MCP servers."""

from __future__ import annotations

import asyncio
from argparse import Namespace

from holdfast.cli.doctor import Check, Section
from holdfast.core.errors import HoldfastError
from holdfast.core.names import split_full_name
from holdfast.core.settings import Settings


def settings(options: Namespace) -> Section:
    """Say whether the settings can be used, and what of them is left out."""
    from holdfast import config
    from holdfast.policy.trust import is_trusted

    try:
        loaded = config.load(options.cwd, trusted=is_trusted(options.cwd))
    except HoldfastError as problem:
        return Section(
            "Settings", (Check("files and variables", False, str(problem), "Mend it; nothing runs until then."),)
        )
    ignored = "; ".join(loaded.warnings)
    checks = (
        Check("files and variables", True, f"{len(loaded.origins)} value(s) set; `holdfast config show` lists them"),
        Check("left out", not ignored, ignored or "nothing", "`holdfast trust` lets a folder's own settings count."),
    )
    return Section("Settings", checks)


def model(options: Namespace) -> Section:
    """Say which model answers, and why."""
    from holdfast.models import choose

    choice = choose(_settings(options))
    return Section(
        "Model", (Check("answers", True, f"{choice.provider}/{choice.name}: {choice.why}"),), choice.to_dict()
    )


def web(options: Namespace) -> Section:
    """Say what the web tools would use."""
    from holdfast.host.search_engines.status import web_status

    status = web_status(_settings(options).web)
    engine = status["search_engine"]
    search = f"{engine}" if engine and not status["search_problem"] else f"not set up: {status['search_problem']}"
    opened = ", ".join(status["opened_hosts"]) or "none"
    checks = (Check("search", not (engine and status["search_problem"]), search), Check("opened hosts", True, opened))
    return Section("Web", checks, status)


def servers(options: Namespace) -> Section:
    """Connect to every MCP server and say which answer."""
    return asyncio.run(_servers(options))


async def _servers(options: Namespace) -> Section:
    from holdfast.app import Holdfast

    async with Holdfast(options.cwd, settings=_settings(options), keep_state=False) as app:
        failed = await app.connect_servers()
        remote = (split_full_name(name) for name in app.registry)  # a tool of ours has a short name
        names = sorted({found[0] for found in remote if found})
        checks = [Check(name, True, "answers") for name in names]
        checks += [Check(name, False, why, f"`holdfast mcp test {name}` shows more.") for name, why in failed.items()]
    return Section("MCP servers", tuple(checks) or (Check("configured", True, "none"),))


def _settings(options: Namespace) -> Settings:
    from holdfast import config
    from holdfast.policy.trust import is_trusted

    try:
        return config.load(options.cwd, trusted=is_trusted(options.cwd)).settings
    except HoldfastError:
        return Settings()
