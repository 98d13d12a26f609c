"""Access to the console's API: endpoints, parsed requests, and the login.

A one-time code is exchanged for a cookie and a token; requests that change something need both. Browsers send a cookie
to every port of a host, so another server on this machine may see it; the token is stored where only pages of this
address (scheme, host and port) can read it. So no other site and no other local server can act here.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from http.cookies import CookieError, SimpleCookie
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, cast

from starlette.responses import JSONResponse

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
    """The parsed parts of a request: path parameters, query and body."""

    path: Mapping[str, str] = field(default_factory=dict[str, str])
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    body: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        for name, value in (*self.path.items(), *self.query.items()):
            if not _is_plain(value):
                raise ApiError(400, f"{name} is not a text")

    def text(self, name: str, default: str | None = None) -> str:
        """Return a string of body or query; raise ApiError if it is missing and has no default."""
        value = self.body.get(name, self.query.get(name))
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or not _is_plain(value):
            raise ApiError(400, f"{name} is missing or not a text")
        return value

    def number(self, name: str, default: int, most: int) -> int:
        """Return a whole number from 0 to `most`; raise ApiError for anything else."""
        value = self.body.get(name, self.query.get(name, default))
        try:
            found = int(value)
        except (TypeError, ValueError, OverflowError):
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


def _is_plain(text: str) -> bool:
    """True if a string contains no NUL and no lone surrogate, which no file, session or call has in its name."""
    return "\0" not in text and not any("\ud800" <= char <= "\udfff" for char in text)


Handler = Callable[["Console", ApiRequest], Awaitable[Any]]
"""Returns JSON-compatible data, or a Response for anything else (a stream)."""


@frozen
class Endpoint:
    """One endpoint of the API; `takes` describes the fields of its query or body."""

    method: str
    path: str
    run: Handler
    about: str
    takes: Mapping[str, str] = field(default_factory=dict[str, str])


WORKSPACE: Final = {"workspace": "which one; the last used when left out"}
"""The field by which an endpoint finds its workspace (`find_workspace`)."""


async def list_workspaces(console: Console, request: ApiRequest) -> Any:
    """Return the workspaces of this user, the last used first, and whether a session runs in each."""
    del request
    running = {each["workspace"] for each in console.feed.sessions.values()}
    found = await asyncio.to_thread(known_workspaces)
    return {"workspaces": [{"path": each.path, "running": each.path in running} for each in found]}


async def find_workspace(request: ApiRequest) -> Workspace:
    """Return the workspace a request names, by default the last used one; raise ApiError if there is none."""
    found = await asyncio.to_thread(known_workspaces)
    wanted = request.text("workspace", "")
    if not wanted and found:
        return found[0]
    root = await asyncio.to_thread(os.path.realpath, wanted) if wanted else ""
    if (one := next((each for each in found if each.path == root), None)) is None:
        raise ApiError(404, f"there is no workspace {wanted}".strip(), "Work in a folder with Surehand once.")
    return one


# Logins.

TOKEN_HEADER: Final = "x-surehand-token"
WRONG_LIMIT: Final = 5
WAIT_S: Final = 30.0
"""Lock-out (s) after that many wrong codes; doubled each time."""
CODE_S: Final = 900.0
"""Lifetime (s) of a code for another device; the first code does not expire."""
LOGINS_LIMIT: Final = 50


@frozen
class Login:
    """A login: the cookie's value, and the token for requests that change something."""

    cookie: str
    token: str


class Refused(Exception):
    """An invalid code; `retry_after_s` is set during a lock-out."""

    def __init__(self, message: str, retry_after_s: float = 0.0) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)


class Access:
    """One-time codes and logins, kept in memory while the console runs."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._codes: dict[str, float] = {}
        self._logins: OrderedDict[str, str] = OrderedDict()
        self._wrong = 0
        self._shut_until = 0.0
        self._wait_s = WAIT_S

    def make_code(self, lasts_s: float = float("inf")) -> str:
        """Return a new code, valid for one login."""
        code = secrets.token_urlsafe(18)
        self._codes[code] = self._clock() + lasts_s
        return code

    def log_in(self, code: str) -> Login:
        """Exchange a code for a login; raise Refused if it is wrong, used or expired."""
        now = self._clock()
        if now < self._shut_until:
            raise Refused("too many wrong codes; wait a moment", self._shut_until - now)
        known = next((each for each in self._codes if hmac.compare_digest(each.encode(), code.encode())), None)
        if known is None or self._codes.pop(known) < now:
            self._count_wrong(now)
            raise Refused("this code is wrong, already used, or expired")
        self._wrong, self._wait_s = 0, WAIT_S
        login = Login(secrets.token_urlsafe(32), secrets.token_urlsafe(32))
        self._logins[login.cookie] = login.token
        while len(self._logins) > LOGINS_LIMIT:
            self._logins.popitem(last=False)
        return login

    def _count_wrong(self, now: float) -> None:
        self._wrong += 1
        if self._wrong >= WRONG_LIMIT:
            self._shut_until, self._wrong = now + self._wait_s, 0
            self._wait_s *= 2

    def log_out_all(self) -> None:
        """Invalidate all logins and all unused codes."""
        self._logins.clear()
        self._codes.clear()

    def is_signed_in(self, cookie: str) -> bool:
        """True if a cookie belongs to a login."""
        return self._token_of(cookie) is not None

    def may_change(self, cookie: str, token: str) -> bool:
        """True if the token belongs to the cookie's login."""
        known = self._token_of(cookie)
        return known is not None and hmac.compare_digest(known.encode(), token.encode())

    def _token_of(self, cookie: str) -> str | None:
        for each, token in self._logins.items():
            if hmac.compare_digest(each.encode(), cookie.encode()):
                return token
        return None


def cookie_name(port: int) -> str:
    """Return the cookie's name, which has the port: browsers share cookies among all ports of a host."""
    return f"surehand-console-{port}"


def read_cookie(header: str, port: int) -> str:
    """Return the value of our cookie in a request's header; empty if there is none."""
    try:
        found = SimpleCookie(header).get(cookie_name(port))
    except CookieError:
        return ""
    return found.value if found is not None else ""


def cookie_header(login: Login, port: int) -> str:
    """Return the Set-Cookie header: unreadable for scripts, not sent with requests from other sites."""
    return f"{cookie_name(port)}={login.cookie}; Path=/; HttpOnly; SameSite=Strict"


# Login and logout, and codes for further devices.


async def log_in(console: Console, request: ApiRequest) -> Any:
    """Exchange a one-time code for a cookie and a token."""
    try:
        login = console.access.log_in(request.text("code"))
    except Refused as problem:
        wait = problem.retry_after_s
        hint = "`surehand console` prints a new address; a page that is signed in can add a device."
        raise ApiError(429 if wait else 401, str(problem), hint, retry_after_s=wait) from None
    answer = JSONResponse({"token": login.token})
    answer.headers["set-cookie"] = cookie_header(login, console.port)
    return answer


async def make_code(console: Console, request: ApiRequest) -> Any:
    """Make a code for another device."""
    del request
    return {"code": console.access.make_code(CODE_S), "lasts_s": CODE_S}


async def log_out_all(console: Console, request: ApiRequest) -> Any:
    """Sign out every browser; signing in again needs a new code."""
    del request
    console.access.log_out_all()
    return {}


ENDPOINTS = (
    Endpoint("POST", "/api/login", log_in, "Sign in", {"code": "the one-time code"}),
    Endpoint("POST", "/api/codes", make_code, "Make a one-time code for another device"),
    Endpoint("POST", "/api/logout", log_out_all, "Sign out everywhere"),
)
