"""The console's server, an ASGI application: pages, API, access control, and one application per workspace."""

from __future__ import annotations

import asyncio
import importlib.resources
import json
import logging
import os
import re
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, MutableMapping
from contextlib import AsyncExitStack, asynccontextmanager
from types import MappingProxyType
from typing import Any, Final, Self, cast

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from surehand import __version__
from surehand.app import Surehand
from surehand.console import access, changes, live, policy, tools, work
from surehand.console.access import TOKEN_HEADER, Access, ApiError, ApiRequest, Endpoint, list_workspaces, read_cookie
from surehand.console.live import CALLS_LIMIT, Feed
from surehand.core.call import ToolResult
from surehand.core.errors import SurehandError, ToolFailure
from surehand.engine.channel import read_recorded_calls
from surehand.policy.approval import Answer, Question
from surehand.state import local_rpc
from surehand.state.locations import known_workspaces
from surehand.web.local_server import ServedAddress

_log = logging.getLogger("surehand")
BODY_LIMIT: Final = 4 * 1024 * 1024
RECORDED_S: Final = 7 * 86400.0
"""How far back (s) recorded calls are loaded when the console starts."""
_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "webmanifest": "application/manifest+json",
}
_HEADERS: Final = {
    # Text written by models or found in files must never run. Even if it became markup by mistake, only scripts and
    # styles from this server are allowed, and strings cannot be turned into elements (trusted types).
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-store",
}

Scope = MutableMapping[str, Any]


class Console:
    """The state and the endpoints of the console; `app` is the ASGI application."""

    def __init__(self, address: ServedAddress, access: Access | None = None) -> None:
        self.address = address
        self.access = access or Access()
        self.feed = Feed()
        self.apps = Apps()
        self.warnings: list[str] = []
        self.endpoints = ENDPOINTS
        self.port = 0
        """The port it is served on, taken from requests."""
        routes = [Route(each.path, self._answer_with(each), methods=[each.method]) for each in ENDPOINTS]
        self._inner = Starlette(routes=[*routes, Route("/{name:path}", self._page, methods=["GET"])])

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        """Follow all sessions inside the block; recorded calls are loaded in the background."""
        async with self.apps, self.feed.follow():
            reading = asyncio.create_task(self._load_recorded_calls())
            try:
                yield
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    def make_sign_in_url(self, served: str) -> str:
        """Return a URL that signs one browser in, once; `served` is any URL of this server.

        The code is in the fragment, which browsers do not send: it appears in no log, and a link preview in a chat does
        not use it up.
        """
        scheme, _, rest = served.partition("://")
        return f"{scheme}://{rest.partition('/')[0]}/#code={self.access.make_code()}"

    async def _load_recorded_calls(self) -> None:
        def read() -> list[dict[str, Any]]:
            since = time.time() - RECORDED_S
            return list(deque(read_recorded_calls(since, self.warnings.append), maxlen=CALLS_LIMIT))

        self.feed.add_recorded(await asyncio.to_thread(read))

    async def ask_session(self, session_id: str, request: Mapping[str, Any], wait_s: float = 10.0) -> dict[str, Any]:
        """Send a request to a running session; raise ApiError if the session has ended or does not answer."""
        if (facts := self.feed.sessions.get(session_id)) is None:
            raise ApiError(404, "that session is no longer running")
        answer = await asyncio.to_thread(local_rpc.ask, str(facts["channel"]), request, wait_s)
        if answer is None:
            raise ApiError(504, "the session does not answer", "It is busy, or ended this moment.")
        return answer

    async def ask_every_session(self, request: Mapping[str, Any], wait_s: float = 10.0) -> dict[str, dict[str, Any]]:
        """Send a request to all running sessions; return the answers by session id, of those that answer."""
        sessions = list(self.feed.sessions)
        answers = await asyncio.gather(
            *(self.ask_session(each, request, wait_s) for each in sessions), return_exceptions=True
        )
        return {id: each for id, each in zip(sessions, answers, strict=True) if not isinstance(each, BaseException)}

    async def reload_all_settings(self) -> int:
        """Make every running session reload its settings; return how many did."""
        self.apps.reload_settings()
        answers = await self.ask_every_session({"want": "reload_settings"})
        return sum(bool(each.get("ok")) for each in answers.values())

    # -- requests ------------------------------------------------------------------------------------------------------

    async def app(self, scope: Scope, receive: Any, send: Any) -> None:
        """Serve one ASGI request, after checking access."""
        if scope["type"] != "http":
            return
        self.port = scope["server"][1]
        send = _with_headers(send)
        if (refused := self._refusal(scope)) is not None:
            await _json({"error": refused[1], "hint": ""}, refused[0])(scope, receive, send)
            return
        await self._inner(scope, receive, send)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        port = self.port
        if (refused := self.address.refusal(scope["headers"], port)) is not None:
            return refused
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        path, method = scope["path"], scope["method"]
        if path != "/api" and not path.startswith("/api/"):
            return None
        if method not in ("GET", "HEAD") and headers.get("content-type", "").split(";")[0] != "application/json":
            return 415, "a request that changes something is JSON"
        if path == "/api/login":
            return None
        cookie = read_cookie(headers.get("cookie", ""), port)
        if not self.access.is_signed_in(cookie):
            return 401, "sign in first: open the address that `surehand console` printed"
        if method not in ("GET", "HEAD") and not self.access.may_change(cookie, headers.get(TOKEN_HEADER, "")):
            return 403, "what changes something needs the token of the page"
        return None

    def _answer_with(self, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                given = ApiRequest(dict(request.path_params), _query(request), await _body(request))
                found = await endpoint.run(self, given)
            except ApiError as problem:
                body = {"error": problem.message, "hint": problem.hint, **problem.details}
                return _json(body, problem.status, _retry(problem))
            except ToolFailure as failure:
                return _json({"error": failure.message, "hint": failure.hint, "code": failure.code}, 409)
            except SurehandError as problem:
                return _json({"error": str(problem), "hint": ""}, 409)
            except ClientDisconnect:
                return Response(status_code=400)
            except Exception:  # the page shows that something failed; the log has the traceback
                _log.exception("the console failed on %s %s", endpoint.method, endpoint.path)
                return _json({"error": "the console failed; its log says why", "hint": ""}, 500)
            return found if isinstance(found, Response) else _json(found)

        return answer

    async def _page(self, request: Request) -> Response:
        name = request.path_params["name"] or "index.html"
        parts = name.split("/")
        if ".." in parts or "" in parts or "\\" in name or "\0" in name:
            return Response("not found", 404)
        file = importlib.resources.files("surehand.console").joinpath("static", *parts)
        kind = _TYPES.get(name.rpartition(".")[2])
        if kind is None or not file.is_file():
            return Response("not found", 404)
        return Response(file.read_bytes(), headers={"content-type": kind})


def _json(data: Any, status: int = 200, headers: Mapping[str, str] = MappingProxyType({})) -> Response:
    # A lone surrogate (from a file name that is not UTF-8) cannot be encoded; it becomes a question mark.
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), default=str)
    return Response(text.encode("utf-8", "replace"), status, headers={"content-type": "application/json", **headers})


def _retry(problem: ApiError) -> dict[str, str]:
    wait = problem.details.get("retry_after_s")
    return {"retry-after": str(int(wait) + 1)} if wait else {}


def _query(request: Request) -> Mapping[str, str]:
    found = dict(request.query_params)
    if "last-event-id" in request.headers:
        found["after"] = request.headers["last-event-id"]
    return found


async def _body(request: Request) -> Mapping[str, Any]:
    if request.method in ("GET", "HEAD"):
        return {}
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > BODY_LIMIT:
            raise ApiError(413, f"a request has at most {BODY_LIMIT:,} bytes")
    try:
        found: Any = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise ApiError(400, "the body is not JSON") from None
    if not isinstance(found, dict):
        raise ApiError(400, "the body is not a JSON object")
    return cast("dict[str, Any]", found)


def _with_headers(send: Callable[[Any], Awaitable[None]]) -> Callable[[Any], Awaitable[None]]:
    async def send_with_headers(message: Any) -> None:
        if message["type"] == "http.response.start":
            known = {name.lower() for name, _ in message.get("headers", [])}
            more = [(name.encode(), value.encode()) for name, value in _HEADERS.items() if name.encode() not in known]
            message = {**message, "headers": [*message.get("headers", []), *more]}
        await send(message)

    return send_with_headers


# One application per workspace, opened on first use.


class Apps:
    """The open applications of the console, by workspace."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._open: dict[str, Surehand] = {}
        self._opening = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self._stack.aclose()

    async def app(self, workspace: str) -> Surehand:
        """Return the application of a workspace; raise ApiError if the folder is not a known workspace."""
        root = await asyncio.to_thread(os.path.realpath, workspace)
        async with self._opening:
            if (app := self._open.get(root)) is not None:
                return app
            if not any(each.path == root for each in await asyncio.to_thread(known_workspaces)):
                raise ApiError(404, f"there is no workspace {workspace}")
            app = Surehand(root, approver=_approve, interactive=True)
            self._open[root] = await self._stack.enter_async_context(app)
            return app

    def reload_settings(self) -> None:
        """Reload the settings of every open application."""
        for app in self._open.values():
            app.reload_settings()

    async def call(self, workspace: str, tool: str, args: Mapping[str, Any], *, dry_run: bool = False) -> ToolResult:
        """Make a call or a dry run that the user requested in a page."""
        app = await self.app(workspace)
        return await app.dry_run(tool, args) if dry_run else await app.call(tool, args)


async def _approve(question: Question) -> Answer:
    """Approve a call: the user has just confirmed exactly this call in the page, after its preview.

    Calls that it makes in turn (an undo may call a compensating tool) are not covered: wait until they are answered in
    the page like any question.
    """
    if question.call.parent is not None:
        await asyncio.Event().wait()
    return Answer("once")


# The API: the endpoints of all pages, and their OpenAPI description.

_PROBLEM: Final = {"$ref": "#/components/schemas/Problem"}
_PART: Final = re.compile(r"{(\w+)(?::\w+)?}")


async def show_openapi(console: Console, request: ApiRequest) -> Any:
    """Return the OpenAPI description of the API."""
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
    operation: dict[str, Any] = {
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
        return operation | {"parameters": [*parts, *query]}
    fields = {name: {"description": about} for name, about in endpoint.takes.items()}
    body = {"content": {"application/json": {"schema": {"type": "object", "properties": fields}}}}
    return operation | {"parameters": parts, "requestBody": body}


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
