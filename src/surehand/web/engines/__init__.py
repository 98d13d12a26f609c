"""Search engines behind one small protocol: a query becomes a GET, its answer becomes results.

An engine is a record of two plain functions, so that each file here is nothing but what one service documents. Which
one is used, and with which key, is the user's choice (`choose`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode, urlsplit

from surehand.core.errors import ToolFailure
from surehand.core.frozen import field, frozen

if TYPE_CHECKING:
    from surehand.core.settings import WebSettings
    from surehand.web.fetch import Reply

MAX_PAGES: Final = 3

HOW_TO: Final = (
    "In your own settings (`surehand config`), under [web], set one of:"
    ' search_backend = "searxng" with searxng_url = "http://127.0.0.1:8888" (your own SearXNG, with its JSON format);'
    ' search_backend = "brave" (key in BRAVE_API_KEY or `surehand auth set brave`);'
    ' search_backend = "google" with google_engine = "ID" (key in GOOGLE_API_KEY or `surehand auth set google`);'
    ' search_backend = "keyless" (DuckDuckGo without a key, slower and limited).'
)


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


def choose(web: WebSettings) -> Engine:
    """Return the engine the user has set up; raise ToolFailure that says how to, when there is none."""
    from surehand.state import keys

    name = web.search_backend
    if name is None:
        chosen = ("searxng", web.searxng_url), ("brave", keys.get("brave")), ("google", web.google_engine)
        name = next((each for each, set_up in chosen if set_up), None)
    if name is None:
        raise ToolFailure("no search engine is set up", code="tool_unavailable", hint=HOW_TO)
    return _MAKERS[name](web)


def _searxng(web: WebSettings) -> Engine:
    from surehand.web.engines.searxng import searxng

    if not web.searxng_url:
        raise _incomplete("searxng", "web.searxng_url is not set")
    where = urlsplit(web.searxng_url)
    if where.scheme not in ("http", "https") or not where.hostname:
        raise _incomplete("searxng", f"web.searxng_url {web.searxng_url!r} is no http address")
    return searxng(web.searxng_url)


def _brave(web: WebSettings) -> Engine:
    from surehand.web.engines.brave import brave

    del web
    return brave(_key("brave"))


def _google(web: WebSettings) -> Engine:
    from surehand.web.engines.google import google

    if not web.google_engine:
        raise _incomplete("google", "web.google_engine is not set")
    return google(_key("google"), web.google_engine)


def _keyless(web: WebSettings) -> Engine:
    from surehand.web.engines.keyless import keyless

    del web
    return keyless()


_MAKERS: Final[Mapping[str, Callable[[WebSettings], Engine]]] = {
    "searxng": _searxng,
    "brave": _brave,
    "google": _google,
    "keyless": _keyless,
}


def _key(name: str) -> str:
    from surehand.state import keys

    found = keys.get(name)
    if found is None:
        places = ", ".join(keys.VARIABLES[name])
        raise _incomplete(name, f"there is no key for it ({places} or `surehand auth set {name}`)")
    return found[0]


def _incomplete(name: str, problem: str) -> ToolFailure:
    return ToolFailure(f"the search engine {name} is not set up: {problem}", code="tool_unavailable", hint=HOW_TO)
