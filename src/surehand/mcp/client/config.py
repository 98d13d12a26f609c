"""The configuration of MCP servers: from the settings, from a trusted folder's `.mcp.json`, from code."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from surehand.core.errors import SettingsError
from surehand.core.settings import McpServerSettings

FILE: Final = ".mcp.json"
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_NAME: Final = re.compile(r"[^\s_](?:(?!__)[^\x00-\x1f\x7f:/\\]){0,99}")
OAUTH: Final = ("client_id", "client_secret", "client_metadata_url")
"""Keys of this program's registration at a server's authorization server."""
_KNOWN_KEYS: Final = frozenset({"command", "args", "env", "url", "headers", "timeout", "sandbox", "enabled", *OAUTH})


@dataclass(frozen=True, slots=True)
class Configured:
    """One server, and the file or place it is configured in."""

    name: str
    settings: McpServerSettings
    source: str

    @property
    def fingerprint(self) -> str:
        """A digest of command and address: with another one, its tools have to be approved again."""
        own = self.settings
        facts = json.dumps([own.command, list(own.args), sorted(own.env), own.url], ensure_ascii=True)
        return hashlib.sha256(facts.encode()).hexdigest()[:16]

    @property
    def where(self) -> str:
        """Return its address, or its command line."""
        return self.settings.url or " ".join((self.settings.command or "", *self.settings.args))


def name_problem(name: str) -> str:
    """Return why a name cannot be that of a server; empty if it can."""
    if _NAME.fullmatch(name) is None or name.endswith("_") or name != name.rstrip():
        return f"{name!r} cannot name a server: no blanks at its ends, no '__', ':', '/' or control characters"
    return ""


def address_problem(url: str) -> str:
    """Return why an address cannot be that of a server; empty if it can, or begins with a variable."""
    if re.match(r"https?://[^/?#\s]|\$\{", url) is None:
        return f"{url!r} is not the address of a server: it must begin with http:// or https://"
    return ""


def all_servers(
    settings: Mapping[str, McpServerSettings], workspace: str, *, trusted: bool, warn: list[str]
) -> dict[str, Configured]:
    """Return the servers of a workspace; `warn` gets the problems of those left out."""
    found: dict[str, Configured] = {}
    for name, own in settings.items():
        _add(found, Configured(name, own, "settings"), warn)
    path = os.path.join(workspace, FILE)
    if os.path.lexists(path):
        if not trusted:
            warn.append(f"{path} was ignored: this folder is not trusted (see `surehand trust`)")
        else:
            for name, own in read_file(path, warn).items():
                _add(found, Configured(name, own, path), warn)
    return found


def _add(found: dict[str, Configured], server: Configured, warn: list[str]) -> None:
    problem = name_problem(server.name)
    if not problem and bool(server.settings.command) == bool(server.settings.url):
        problem = f"the server {server.name} needs either a command or a url"
    if not problem and server.settings.url:
        problem = address_problem(server.settings.url)
    if not problem and server.name in found:
        problem = f"the server {server.name} is already set in {found[server.name].source}"
    if problem:
        warn.append(f"{server.source}: {problem}")
    else:
        found[server.name] = server


def read_file(path: str, warn: list[str]) -> dict[str, McpServerSettings]:
    """Return the servers of a `.mcp.json`; invalid ones are left out with a warning."""
    try:
        with open(path, encoding="utf-8") as file:
            content: Any = json.load(file)
    except (OSError, ValueError, RecursionError) as problem:
        warn.append(f"{path} cannot be used: {problem}")
        return {}
    servers: Any = cast("dict[str, Any]", content).get("mcpServers", {}) if isinstance(content, dict) else None
    if not isinstance(servers, dict):
        warn.append(f'{path} has no table "mcpServers"')
        return {}
    found: dict[str, McpServerSettings] = {}
    for name, raw in cast("dict[str, Any]", servers).items():
        try:
            table: dict[str, Any] = dict(raw)
            kind = table.pop("type", None)
            if kind not in (None, "stdio", "http", "streamable-http", "streamableHttp"):
                warn.append(f"{path}: the server {name} speaks {kind!r}; only stdio and streamable HTTP are known")
                continue
            table["enabled"] = not table.pop("disabled", False) and table.get("enabled", True)
            found[name] = McpServerSettings.parse(
                {key: table[key] for key in table if key in _KNOWN_KEYS}
            ).replace_values(project=True)
        except (TypeError, ValueError) as problem:
            warn.append(f"{path}: the server {name} makes no sense: {str(problem).splitlines()[0]}")
    return found


def expand_variables(text: str, variables: Mapping[str, str]) -> str:
    """Expand `${NAME}` and `${NAME:-default}` in a text; raise SettingsError for a variable that is not set."""

    def value(found: re.Match[str]) -> str:
        if found[1] in variables:
            return variables[found[1]]
        if found[2] is not None:
            return found[2]
        raise SettingsError(f"the variable {found[1]} is not set")

    return _VARIABLE.sub(value, text)
