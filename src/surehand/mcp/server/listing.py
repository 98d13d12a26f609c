"""The listing of tools: which of them an MCP client is shown, how much of each is described, and under which names.

A model pays for every listed tool with each request, and most clients show it all that a server lists. So the
listing is lean unless somebody asks for more: the tools that nearly all work is done with. The rest can be called by
name all the same, where `--tools` names nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, cast

from surehand.core.frozen import frozen
from surehand.core.tool import ToolInfo
from surehand.core.view import Selection
from surehand.mcp import convert

CORE: Final = (
    "Bash",
    "Read",
    "Edit",
    "MultiEdit",
    "Write",
    "Glob",
    "Grep",
    "WebFetch",
    "TaskCreate",
    "TaskList",
    "TaskUpdate",
    "TaskOutput",
    "TaskStop",
    "Undo",
)
"""The built-in tools of the lean listing; under 10,000 bytes with their schemas, which a test holds them to."""
_RARE_ARGS: Final = {"Undo": frozenset({"turns", "to", "session", "all", "all_sessions"})}
"""Arguments that the lean listing leaves out: a client has no turns, and names no other sessions."""
_INSTEAD: Final = {"fs.read_file": "Read"}
"""Tools that are not listed beside the one that does the same and more."""


@frozen
class Listing:
    """Which tools are shown: `allow` narrows what may be called at all, `beyond` is left out of a lean listing."""

    allow: tuple[str, ...] = ()
    beyond: frozenset[str] = frozenset()
    lean: bool = False

    @classmethod
    def of(cls, words: Sequence[str], builtin: Iterable[str]) -> Listing:
        """Return what the words of `--tools` ask for: nothing, `all`, or names, globs and `core`."""
        if "all" in words:
            return cls()
        if not words:
            return cls(beyond=frozenset(builtin) - frozenset(CORE), lean=True)
        return cls(tuple(each for word in words for each in (CORE if word == "core" else (word,))), lean=True)

    def infos(self, selection: Selection) -> list[ToolInfo]:
        """Return the tools listed for a client, without those that cannot work for it."""
        beyond = frozenset[str]() if selection.allow else self.beyond  # somebody has chosen already
        infos = selection.infos()
        names = {info.name for info in infos}
        agents = selection.session is not None and selection.session.agents is not None
        left_out = {"ToolSearch", *(() if agents else ("Agent",))}
        left_out |= {name for name, better in _INSTEAD.items() if better in names}
        return [info for info in infos if info.name not in beyond and info.name not in left_out]

    def shape(self, info: ToolInfo, name: str) -> dict[str, Any]:
        """Return a tool as `tools/list` shows it."""
        shape = convert.tool_shape(info, name)
        if self.lean and info.name in CORE:
            shape["inputSchema"] = _shorten(shape["inputSchema"], _RARE_ARGS.get(info.name, frozenset()))
        return shape


_UNLISTED: Final = frozenset({"minLength", "maxLength", "minItems", "minimum", "maximum"})
"""Bounds that are checked though not shown: a call beyond one gets an error, and models rarely make such."""


def _shorten(schema: Any, rare: frozenset[str] = frozenset(), *, named: bool = True) -> Any:
    """Return a schema without what a model can do without: bounds, defaults, and that no further argument is taken.

    The parts of a list (`named` is False) are those of a tool that is listed beside it, and need no second description.
    """
    if not isinstance(schema, dict):
        return schema
    short: dict[str, Any] = {}
    for key, value in cast("dict[str, Any]", schema).items():
        if key == "properties":
            short[key] = {name: _shorten(each, named=named) for name, each in value.items() if name not in rare}
        elif key == "items":
            short[key] = _shorten(value, named=False)
        elif key not in _UNLISTED and (key, value) != ("additionalProperties", False) and (key != "default" or value):
            short[key] = value
    return short if named else {key: value for key, value in short.items() if key != "description"}


# The gateway, one door before many servers: the tools of other MCP servers, served beside Surehand's own.

NAME: Final = "surehand-gateway"
GATHER_S: Final = 10.0
"""How long a listing or a call waits for servers to answer; tools that come later are notified."""

Gather = Callable[[Any], Coroutine[Any, Any, None]]
"""Brings the tools of other servers into an application."""


def gathering(patterns: Sequence[str]) -> Gather | None:
    """Return what brings in the servers whose names match one of the patterns; None when there are no patterns."""
    return (lambda app: _gather(app, patterns)) if patterns else None


async def _gather(app: Any, patterns: Sequence[str]) -> None:
    told = len(app.warnings)
    servers = app.servers
    servers.introduced_as = NAME
    names = [name for name in servers.names() if any(fnmatchcase(name, pattern) for pattern in patterns)]
    problems = app.warnings[told:]  # of servers that were left out
    problems += [f"no MCP server is called {word}" for word in patterns if not any(fnmatchcase(n, word) for n in names)]
    for name, why in (await servers.connect_all(names)).items():
        problems.append(f"the tools of {name} are not served: {why}")
    for problem in problems:
        app.session.emit("note", message=problem)


def is_gateway(ctx: Any) -> bool:
    """Say whether a request comes from another gateway."""
    known = ctx.session.client_params
    return known is not None and known.client_info.name == NAME
