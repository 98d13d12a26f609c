"""The API, one module a page, and its description in OpenAPI.

A new page: a module here with `ENDPOINTS`, a line below, a module in `static/pages`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from surehand import __version__
from surehand.console import access
from surehand.console.api import changes, live, policy, tools, work
from surehand.console.endpoint import ApiRequest, Endpoint, list_workspaces

if TYPE_CHECKING:
    from surehand.console.server import Console

_PROBLEM: Final = {"$ref": "#/components/schemas/Problem"}
_PART: Final = re.compile(r"{(\w+)(?::\w+)?}")


async def show_openapi(console: Console, request: ApiRequest) -> Any:
    """Return the description of the API."""
    del request
    return describe_api(console.endpoints)


def describe_api(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """Return endpoints as an OpenAPI document."""
    paths: dict[str, dict[str, Any]] = {}
    for each in endpoints:
        path = _PART.sub(r"{\1}", each.path)
        paths.setdefault(path, {})[each.method.lower()] = _describe(each)
    about = (
        "Sign in with POST /api/login: the cookie it sets is enough to read; what changes something also needs the "
        "token it returns, in the header X-Surehand-Token. An answer with a status of 400 and above says in `error` "
        "what is wrong, and in `hint` what to do."
    )
    problem = {"type": "object", "properties": {"error": {"type": "string"}, "hint": {"type": "string"}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Surehand console", "version": __version__, "description": about},
        "paths": paths,
        "components": {"schemas": {"Problem": problem}},
    }


def _describe(endpoint: Endpoint) -> dict[str, Any]:
    parts = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PART.findall(endpoint.path)
    ]
    kind = "text/event-stream" if endpoint.path == "/api/events" else "application/json"
    told: dict[str, Any] = {
        "summary": endpoint.about,
        "operationId": getattr(endpoint.run, "__name__", endpoint.path),
        "responses": {
            "200": {"description": "what was asked for", "content": {kind: {}}},
            "default": {"description": "what is wrong", "content": {"application/json": {"schema": _PROBLEM}}},
        },
    }
    if endpoint.method == "GET":
        query = [
            {"name": name, "in": "query", "description": about, "schema": {"type": "string"}}
            for name, about in endpoint.takes.items()
        ]
        return told | {"parameters": [*parts, *query]}
    fields = {name: {"description": about} for name, about in endpoint.takes.items()}
    body = {"content": {"application/json": {"schema": {"type": "object", "properties": fields}}}}
    return told | {"parameters": parts, "requestBody": body}


ENDPOINTS: tuple[Endpoint, ...] = (
    *access.ENDPOINTS,
    *live.ENDPOINTS,
    *changes.ENDPOINTS,
    Endpoint("GET", "/api/workspaces", list_workspaces, "Folders somebody worked in, the last used first"),
    *policy.ENDPOINTS,
    *tools.ENDPOINTS,
    *work.ENDPOINTS,
    Endpoint("GET", "/api/openapi.json", show_openapi, "This description"),
)
