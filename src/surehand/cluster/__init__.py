"""Fleets of sessions on a Ray cluster: the same calls, the same results, in workspaces on other machines.

    async with Fleet("local") as fleet:
        session = await fleet.session("path/to/project")
        result = await session.call("Read", {"file_path": "README.md"})

Needs the extra `cluster`. A Ray cluster is one trust domain: see docs/cluster.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from surehand.cluster.fleet import Fleet
    from surehand.cluster.session import RemoteSession

__all__ = ["Fleet", "RemoteSession"]

_WHERE = {"Fleet": "surehand.cluster.fleet", "RemoteSession": "surehand.cluster.session"}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_WHERE[name]), name)
