"""An endpoint of the console's API: its method and path, what a request brings, and the workspace it is about."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from surehand.core.frozen import field, frozen
from surehand.state.locations import Workspace, known_workspaces

if TYPE_CHECKING:
    from surehand.console.server import Console


class ApiError(Exception):
    """A client error; answered with a status and a message."""

    def __init__(self, status: int, message: str, hint: str = "", **details: Any) -> None:
        self.status = status
        self.message = message
        self.hint = hint
        self.details = details
        super().__init__(message)


@frozen
class ApiRequest:
    """What a request brings: the parts of its path, its query and its body."""

    path: Mapping[str, str] = field(default_factory=dict[str, str])
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    body: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def text(self, name: str, otherwise: str | None = None) -> str:
        """Return a text of body or query; raise ApiError if it is missing and has no default."""
        value = self.body.get(name, self.query.get(name))
        if value is None and otherwise is not None:
            return otherwise
        if not isinstance(value, str):
            raise ApiError(400, f"{name} is missing or not a text")
        return value

    def number(self, name: str, otherwise: int, most: int) -> int:
        """Return a whole number from 0 to `most`; raise ApiError for anything else."""
        value = self.body.get(name, self.query.get(name, otherwise))
        try:
            found = int(value)
        except (TypeError, ValueError):
            raise ApiError(400, f"{name} is not a number") from None
        if not 0 <= found <= most:
            raise ApiError(400, f"{name} must be a number from 0 to {most}")
        return found

    def flag(self, name: str) -> bool:
        """Return a boolean: true in the body, 1 or true in the query."""
        value = self.body.get(name, self.query.get(name))
        return value is True or value in ("1", "true")

    def mapping(self, name: str) -> dict[str, Any] | None:
        """Return an object of the body, None where there is none; raise ApiError for anything else."""
        value = self.body.get(name)
        if value is not None and not isinstance(value, dict):
            raise ApiError(400, f"{name} is not an object")
        return cast("dict[str, Any] | None", value)


Handler = Callable[["Console", ApiRequest], Awaitable[Any]]
"""Returns plain data, or a Response where it is something else (a stream)."""


@frozen
class Endpoint:
    """One row of the API; `takes` says of each field of query or body what it means."""

    method: str
    path: str
    run: Handler
    about: str
    takes: Mapping[str, str] = field(default_factory=dict[str, str])


WORKSPACE: Final = {"workspace": "which one; the last used when left out"}
"""What an endpoint about one workspace takes (see `named_workspace`)."""


async def list_workspaces(console: Console, request: ApiRequest) -> Any:
    """Return the workspaces of this user, the last used first, and which of them a session runs in."""
    del request
    running = {each["workspace"] for each in console.feed.sessions.values()}
    found = await asyncio.to_thread(known_workspaces)
    return {"workspaces": [{"path": each.path, "running": each.path in running} for each in found]}


async def named_workspace(request: ApiRequest) -> Workspace:
    """Return the workspace that a request names, or the last used one; raise ApiError where there is none."""
    found = await asyncio.to_thread(known_workspaces)
    wanted = request.text("workspace", "")
    if not wanted and found:
        return found[0]
    root = await asyncio.to_thread(os.path.realpath, wanted) if wanted else ""
    if (one := next((each for each in found if each.path == root), None)) is None:
        raise ApiError(404, f"there is no workspace {wanted}".strip(), "Work in a folder with Surehand once.")
    return one
