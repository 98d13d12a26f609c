"""The gateway, one door before many servers: the tools of other MCP servers, served beside Surehand's own.

A call to one of them is a call like any other: judged, asked about, limited, recorded. Two gateways that name each
other would call each other for ever, so a gateway introduces itself as one, and is given a gateway's own tools only.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

NAME: Final = "surehand-gateway"
GATHER_S: Final = 10.0
"""How long a client waits for servers to answer when it lists or calls tools; what comes later, it is told of."""

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
