"""Login and logout, and codes for further devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse

from surehand.console.access import CODE_S, Refused, cookie_header
from surehand.console.endpoint import ApiError, Endpoint, Given

if TYPE_CHECKING:
    from surehand.console.server import Console


async def log_in(console: Console, given: Given) -> Any:
    """Turn a one-time code into a cookie and a token."""
    try:
        login = console.access.log_in(given.text("code"))
    except Refused as problem:
        wait = problem.retry_after_s
        hint = "`surehand console` prints a new address; a page that is signed in can add a device."
        raise ApiError(429 if wait else 401, str(problem), hint, retry_after_s=wait) from None
    answer = JSONResponse({"token": login.token})
    answer.headers["set-cookie"] = cookie_header(login, console.port, secure=False)
    return answer


async def make_code(console: Console, given: Given) -> Any:
    """Make a code for another device."""
    del given
    return {"code": console.access.make_code(CODE_S), "lasts_s": CODE_S}


async def log_out_all(console: Console, given: Given) -> Any:
    """Sign out every browser; a new code is needed from here on."""
    del given
    console.access.log_out_all()
    return {}


ENDPOINTS = (
    Endpoint("POST", "/api/login", log_in, "Sign in", {"code": "the one-time code"}),
    Endpoint("POST", "/api/codes", make_code, "Make a one-time code for another device"),
    Endpoint("POST", "/api/logout", log_out_all, "Sign out everywhere"),
)
