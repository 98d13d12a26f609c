"""Asking a search engine: a query becomes a GET, its answer becomes results, every refusal is put into plain words.

An engine is a record of two plain functions, so that a file beside this one is nothing but what one service documents.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, cast
from urllib.parse import urlencode

from surehand.core.errors import ToolFailure
from surehand.core.frozen import field, frozen
from surehand.web.addresses import read_url
from surehand.web.fetch import Reach, Reply, Wish, get

MAX_PAGES: Final = 3
_QUOTED_CHARS: Final = 300
_WAITS: Final = ("retry-after", "x-ratelimit-reset")


@frozen
class Found:
    """One result."""

    title: str
    url: str
    snippet: str
    source: str

    def to_dict(self) -> dict[str, str]:
        """Return it as plain data."""
        return {"title": self.title, "url": self.url, "snippet": self.snippet, "source": self.source}


@frozen
class Ask:
    """One GET to an engine. `secret` holds parameters that are sent but never shown, logged or judged."""

    url: str
    parameters: Mapping[str, str]
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    secret: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def shown(self) -> str:
        """The address without what is secret."""
        return f"{self.url}?{urlencode(self.parameters)}"

    @property
    def sent(self) -> str:
        """The address with what is secret, as it is sent."""
        return f"{self.url}?{urlencode({**self.parameters, **self.secret})}"


@frozen
class Engine:
    """A search service: `ask(query, count, page)` with pages from 0, `read(reply)`, and what its refusals mean."""

    name: str
    ask: Callable[[str, int, int], Ask]
    read: Callable[[Reply], list[Found]]
    per_page: int
    refusals: Mapping[int, str] = field(default_factory=dict[int, str])
    opens: tuple[str, ...] = ()
    """Hosts the user opened by choosing this engine (their own SearXNG may run on this machine)."""


async def search(engine: Engine, query: str, count: int, reach: Reach, timeout_s: float) -> list[Found]:
    """Return at most `count` results, no address twice."""
    reach = replace(reach, allowed_hosts=(*reach.allowed_hosts, *engine.opens))
    found: dict[str, Found] = {}
    for page in range(MAX_PAGES):
        results = engine.read(await _ask_engine(engine, query, count, page, reach, timeout_s))
        web = (each for each in results if each.url.startswith(("http://", "https://")))
        new = {each.url: each for each in web if each.url not in found}
        found |= new
        if len(found) >= count or not new or len(results) < engine.per_page:
            break
    return list(found.values())[:count]


async def _ask_engine(engine: Engine, query: str, count: int, page: int, reach: Reach, timeout_s: float) -> Reply:
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
        raise _refusal_error(engine, reply)
    return reply


def _refusal_error(engine: Engine, reply: Reply) -> ToolFailure:
    wait = next((f" It says when to come back: {reply.headers[name]}." for name in _WAITS if name in reply.headers), "")
    if reply.status == 429:
        return ToolFailure(
            f"{engine.name} limits how often it may be asked (HTTP 429).{wait}", hint="Wait before the next search."
        )
    meaning = engine.refusals.get(reply.status, "")
    said = _read_error_text(reply)
    return ToolFailure(
        f"{engine.name} refused the search (HTTP {reply.status} {reply.reason}){': ' + said if said else ''}",
        hint=meaning,
        details={"status": reply.status},
    )


def _read_error_text(reply: Reply) -> str:
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
