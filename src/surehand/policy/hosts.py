"""Hosts as the policy sees them: one plain form for rules, and a guard before what is not the public internet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from surehand.core.errors import ToolFailure


def plain_host(host: str) -> str:
    """Return the host in the one form rules are compared in; what is no host at all stays as it is."""
    from surehand.web.addresses import normal_host  # lazy: ipaddress and the address tables, 8 ms

    try:
        return normal_host(host)
    except ToolFailure:
        return host.lower()


def host_guard(
    host: str, allowed: Iterable[str], *, by_command: bool, port: int | None = None
) -> tuple[str, Literal["ask", "deny"]]:
    """Return (why the host is guarded, verdict); no reason for a public one. Looks up no name.

    The web tools never reach private addresses. A command is asked about one (`curl localhost:3000` is everyday
    work), but never reaches the address that hands out a machine's credentials.
    """
    from surehand.web.addresses import literal_problem  # lazy: addresses, 11 ms

    shown = f"[{host}]" if ":" in host else host
    problem = literal_problem(f"http://{shown}:{port}/" if port else f"http://{shown}/", allowed)
    if problem is None:
        return "", "ask"
    return problem, "ask" if by_command and "metadata" not in problem else "deny"
