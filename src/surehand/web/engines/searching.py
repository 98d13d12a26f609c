"""Asking a search engine: page by page until there is enough, with every refusal put into plain words."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from surehand.core.errors import ToolFailure
from surehand.web.addresses import read_url
from surehand.web.engines import MAX_PAGES, Engine, Found

if TYPE_CHECKING:
    from surehand.web.fetch import Reach, Reply

_QUOTED_CHARS: Final = 300
_WAITS: Final = ("retry-after", "x-ratelimit-reset")


async def search(engine: Engine, query: str, count: int, reach: Reach, timeout_s: float) -> list[Found]:
    """Return at most `count` results, no address twice."""
    reach = replace(reach, allowed_hosts=(*reach.allowed_hosts, *engine.opens))
    found: dict[str, Found] = {}
    for page in range(MAX_PAGES):
        results = engine.read(await _asked(engine, query, count, page, reach, timeout_s))
        web = (each for each in results if each.url.startswith(("http://", "https://")))
        new = {each.url: each for each in web if each.url not in found}
        found |= new
        if len(found) >= count or not new or len(results) < engine.per_page:
            break
    return list(found.values())[:count]


async def _asked(engine: Engine, query: str, count: int, page: int, reach: Reach, timeout_s: float) -> Reply:
    from surehand.web.fetch import Wish, get

    ask = engine.ask(query, count, page)
    try:
        reply = await get(read_url(ask.sent), reach, Wish(timeout_s=timeout_s, headers=ask.headers))
    except ToolFailure as failure:
        message = failure.message
        for secret in ask.secret.values():  # it stands in the address, and many messages name that
            message = message.replace(secret, "***")
        message = f"{engine.name} could not be asked: {message}"
        raise ToolFailure(message, code=failure.code, hint=failure.hint) from None
    if not reply.ok:
        raise _refused(engine, reply)
    return reply


def _refused(engine: Engine, reply: Reply) -> ToolFailure:
    wait = next((f" It says when to come back: {reply.headers[name]}." for name in _WAITS if name in reply.headers), "")
    if reply.status == 429:
        return ToolFailure(
            f"{engine.name} limits how often it may be asked (HTTP 429).{wait}", hint="Wait before the next search."
        )
    meaning = engine.refusals.get(reply.status, "")
    said = _said(reply)
    return ToolFailure(
        f"{engine.name} refused the search (HTTP {reply.status} {reply.reason}){': ' + said if said else ''}",
        hint=meaning,
        details={"status": reply.status},
    )


def _said(reply: Reply) -> str:
    """Return the message in an error's JSON, whatever the service calls it; other bodies say little on a line."""
    try:
        data: Any = json.loads(reply.body)
    except ValueError:
        return ""
    for name in ("error", "message", "detail", "error_description"):
        if isinstance(data, dict) and name in data:
            data = cast("dict[str, Any]", data)[name]
    return data[:_QUOTED_CHARS] if isinstance(data, str) else ""


def read_json(name: str, pick: Callable[[dict[str, Any]], list[Found]]) -> Callable[[Reply], list[Found]]:
    """Return a reader of JSON answers; what does not have the documented form is a clear error."""

    def read(reply: Reply) -> list[Found]:
        try:
            return pick(json.loads(reply.body))
        except (ValueError, TypeError, KeyError, AttributeError):
            raise ToolFailure(
                f"{name} answered in a form that is not its documented one",
                hint="Check the address of the service; it may be another program, or a log-in page.",
            ) from None

    return read
