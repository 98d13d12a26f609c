"""Search engines: choosing the configured one, sending a query, parsing the results, explaining errors.

An engine is a record with two functions; a new one is such a record and a line of `_MAKERS`. Keys are never shown, only
where they are stored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from html import unescape
from typing import Any, Final, cast
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

from surehand.core.errors import ToolFailure
from surehand.core.frozen import field, frozen
from surehand.core.settings import WebSettings
from surehand.files.sanitize import visible
from surehand.state import keys
from surehand.web.addresses import read_url
from surehand.web.documents import decode
from surehand.web.fetch import FetchOptions, Reach, Reply, get, quote_server
from surehand.web.pages import drop_unseen, words_of

# Sending a query as a GET request, and converting the response to results or an error.

MAX_PAGES: Final = 3
_WAITS: Final = ("retry-after", "x-ratelimit-reset")


@frozen
class Found:
    """One result."""

    title: str
    url: str
    snippet: str
    source: str

    def to_dict(self) -> dict[str, str]:
        """Return the fields as a dict."""
        return {"title": self.title, "url": self.url, "snippet": self.snippet, "source": self.source}


@frozen
class Ask:
    """A GET request to an engine. `secret` are parameters that are sent but never shown, logged or judged."""

    url: str
    parameters: Mapping[str, str]
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    secret: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def shown(self) -> str:
        """The URL without secret parameters."""
        return f"{self.url}?{urlencode(self.parameters)}"

    @property
    def sent(self) -> str:
        """The URL with secret parameters."""
        return f"{self.url}?{urlencode({**self.parameters, **self.secret})}"


@frozen
class Engine:
    """A search service: `ask(query, count, page)` with pages from 0, `read(reply)`, and hints by HTTP status."""

    name: str
    ask: Callable[[str, int, int], Ask]
    read: Callable[[Reply], list[Found]]
    per_page: int
    refusals: Mapping[int, str] = field(default_factory=dict[int, str])
    opens: tuple[str, ...] = ()
    """Hosts that are allowed because the user chose this engine (their SearXNG may run on this machine)."""


async def search(engine: Engine, query: str, count: int, reach: Reach, timeout_s: float) -> list[Found]:
    """Return at most `count` results with distinct URLs."""
    reach = replace(reach, allowed_hosts=(*reach.allowed_hosts, *engine.opens))
    found: dict[str, Found] = {}
    for page in range(MAX_PAGES):
        results = engine.read(await _ask_engine(engine, query, count, page, reach, timeout_s))
        web = (each for each in results if each.url.startswith(("http://", "https://")))
        new = {each.url: _clean(each) for each in web if each.url not in found}
        found |= new
        if len(found) >= count or not new or len(results) < engine.per_page:
            break
    return list(found.values())[:count]


def _clean(found: Found) -> Found:
    """Drop invisible characters of a result: web pages choose their titles, texts and URLs."""
    title, snippet = drop_unseen(found.title), drop_unseen(found.snippet)
    return Found(title, visible(found.url, lines=False), snippet, visible(found.source, lines=False))


async def _ask_engine(engine: Engine, query: str, count: int, page: int, reach: Reach, timeout_s: float) -> Reply:
    ask = engine.ask(query, count, page)
    try:
        reply = await get(read_url(ask.sent), reach, FetchOptions(timeout_s=timeout_s, headers=ask.headers))
    except ToolFailure as failure:
        message = failure.message
        for secret in ask.secret.values():  # part of the URL, which many messages quote
            message = message.replace(secret, "***")
        message = f"{engine.name} could not be asked: {message}"
        raise ToolFailure(message, code=failure.code, hint=failure.hint) from None
    if not reply.ok:
        raise _refusal_error(engine, reply)
    return reply


def _refusal_error(engine: Engine, reply: Reply) -> ToolFailure:
    waits = (quote_server(reply.headers[name]) for name in _WAITS if name in reply.headers)
    wait = next((f" It says when to come back: {each}." for each in waits), "")
    if reply.status == 429:
        return ToolFailure(
            f"{engine.name} limits the rate of requests (HTTP 429).{wait}", hint="Wait before the next search."
        )
    meaning = engine.refusals.get(reply.status, "")
    said = _read_error_text(reply)
    return ToolFailure(
        f"{engine.name} refused the search (HTTP {reply.status} {reply.reason}){': ' + said if said else ''}",
        hint=meaning,
        details={"status": reply.status},
    )


def _read_error_text(reply: Reply) -> str:
    """Return the message in the JSON of an error, whatever the service calls it; nothing for other bodies."""
    try:
        data: Any = json.loads(reply.body)
    except ValueError:
        return ""
    for name in ("error", "message", "detail", "error_description"):
        if isinstance(data, dict) and name in data:
            data = cast("dict[str, Any]", data)[name]
    return quote_server(data) if isinstance(data, str) else ""


def read_json(name: str, pick: Callable[[dict[str, Any]], list[Found]]) -> Callable[[Reply], list[Found]]:
    """Return a parser of JSON responses that raises ToolFailure if they do not have the documented form."""

    def read(reply: Reply) -> list[Found]:
        try:
            return pick(json.loads(reply.body))
        except (ValueError, TypeError, KeyError, AttributeError):
            raise ToolFailure(
                f"{name} answered in a format other than the documented one",
                hint="Check the address of the service; it may be another program, or a login page.",
            ) from None

    return read


HOW_TO: Final = (
    "In your own settings (`surehand config`), under [web], set one of:"
    ' search_backend = "searxng" with searxng_url = "http://127.0.0.1:8888" (your own SearXNG, with its JSON format);'
    ' search_backend = "brave" (key in BRAVE_API_KEY or `surehand auth set brave`);'
    ' search_backend = "google" with google_engine = "ID" (key in GOOGLE_API_KEY or `surehand auth set google`);'
    ' search_backend = "keyless" (DuckDuckGo without a key, slower and limited).'
)


KEY_VARIABLES: Final[Mapping[str, tuple[str, ...]]] = {"brave": ("BRAVE_API_KEY",), "google": ("GOOGLE_API_KEY",)}
"""Engines that need a key, and the environment variables for it."""


def choose(web: WebSettings) -> Engine:
    """Return the configured engine; raise ToolFailure with instructions if there is none."""
    name = web.search_backend
    if name is None:
        chosen = ("searxng", web.searxng_url), ("brave", find_key("brave")), ("google", web.google_engine)
        name = next((each for each, set_up in chosen if set_up), None)
    if name is None:
        raise ToolFailure("no search engine is set up", code="tool_unavailable", hint=HOW_TO)
    return _MAKERS[name](web)


def _searxng(web: WebSettings) -> Engine:
    if not web.searxng_url:
        raise _incomplete("searxng", "web.searxng_url is not set")
    where = urlsplit(web.searxng_url)
    if where.scheme not in ("http", "https") or not where.hostname:
        raise _incomplete("searxng", f"web.searxng_url {web.searxng_url!r} is not an http address")
    return searxng(web.searxng_url)


def _brave(web: WebSettings) -> Engine:
    del web
    return brave(_key("brave"))


def _google(web: WebSettings) -> Engine:
    if not web.google_engine:
        raise _incomplete("google", "web.google_engine is not set")
    return google(_key("google"), web.google_engine)


def _keyless(web: WebSettings) -> Engine:
    del web
    return keyless()


_MAKERS: Final[Mapping[str, Callable[[WebSettings], Engine]]] = {
    "searxng": _searxng,
    "brave": _brave,
    "google": _google,
    "keyless": _keyless,
}


def find_key(name: str) -> tuple[str, str] | None:
    """Return the key of an engine and where it is stored, or None."""
    return keys.get(name, KEY_VARIABLES.get(name, ()))


def _key(name: str) -> str:
    found = find_key(name)
    if found is None:
        places = ", ".join(KEY_VARIABLES[name])
        raise _incomplete(name, f"there is no key for it ({places} or `surehand auth set {name}`)")
    return found[0]


def _incomplete(name: str, problem: str) -> ToolFailure:
    return ToolFailure(f"the search engine {name} is not set up: {problem}", code="tool_unavailable", hint=HOW_TO)


def web_status(web: WebSettings) -> dict[str, Any]:
    """Return the configuration of the web tools: engine, where its key is stored, allowed hosts, proxy."""
    try:
        engine, problem = choose(web).name, ""
    except ToolFailure as failure:
        engine, problem = web.search_backend, failure.message
    found = find_key(engine or "")
    return {
        "search_engine": engine,
        "search_problem": problem,
        "key_from": found[1] if found else None,
        "opened_hosts": list(web.opened_hosts),
        "proxy": bool(web.proxy),
    }


# Brave Search, by its web search API.

BRAVE_URL: Final = "https://api.search.brave.com/res/v1/web/search"
_BRAVE_PER_PAGE: Final = 20
_BRAVE_REFUSALS: Final[Mapping[int, str]] = dict.fromkeys(
    (401, 403, 422), "Check the key in BRAVE_API_KEY (or `surehand auth set brave`) and what its plan includes."
)


def brave(key: str, url: str = BRAVE_URL) -> Engine:
    """Return the engine with this key."""

    def ask(query: str, count: int, page: int) -> Ask:
        parameters = {"q": query, "count": str(min(count, _BRAVE_PER_PAGE)), "offset": str(page)}
        headers = {"Accept": "application/json", "X-Subscription-Token": key}
        return Ask(url, parameters, headers)

    return Engine(
        "brave",
        ask,
        read_json("brave", _pick_brave_results),
        _BRAVE_PER_PAGE,
        _BRAVE_REFUSALS,
    )


def _pick_brave_results(answer: dict[str, Any]) -> list[Found]:
    web: dict[str, Any] = answer.get("web") or {}
    rows: list[dict[str, Any]] = web.get("results") or []
    return [Found(words_of(row["title"]), row["url"], words_of(row.get("description") or ""), "brave") for row in rows]


# Google Custom Search, by its JSON API.

GOOGLE_URL: Final = "https://www.googleapis.com/customsearch/v1"
_GOOGLE_PER_PAGE: Final = 10
_GOOGLE_REFUSALS: Final = {
    400: "Check the key in GOOGLE_API_KEY (or `surehand auth set google`) and web.google_engine.",
    403: "The key may lack the Custom Search API, or the day's free searches are used up.",
}


def google(key: str, engine_id: str, url: str = GOOGLE_URL) -> Engine:
    """Return the engine `engine_id` with this key."""

    def ask(query: str, count: int, page: int) -> Ask:
        start = page * _GOOGLE_PER_PAGE
        number = max(1, min(count - start, _GOOGLE_PER_PAGE))
        parameters = {"q": query, "cx": engine_id, "num": str(number), "start": str(start + 1)}
        return Ask(url, parameters, {"Accept": "application/json"}, secret={"key": key})

    return Engine("google", ask, read_json("google", _pick_google_results), _GOOGLE_PER_PAGE, _GOOGLE_REFUSALS)


def _pick_google_results(answer: dict[str, Any]) -> list[Found]:
    rows: list[dict[str, Any]] = answer.get("items") or []
    return [Found(words_of(row["title"]), row["link"], words_of(row.get("snippet") or ""), "google") for row in rows]


# Keyless search by DuckDuckGo's page without scripts, whose format may change and which limits requests early.

KEYLESS_URL: Final = "https://html.duckduckgo.com/html/"
_KEYLESS_PER_PAGE: Final = 10
_KEYLESS_REFUSALS: Final = {403: "DuckDuckGo refuses programs from here; use another engine."}
_LINK: Final = re.compile(
    r"<a\b(?=[^<>]*\bclass=\"[^\"]*\bresult__a\b)[^<>]*\bhref=\"([^\"]*)\"[^<>]*>(.{0,2000}?)</a>", re.S
)
_SNIPPET: Final = re.compile(r"<(a|div|span)\b[^<>]*\bclass=\"[^\"]*\bresult__snippet\b[^<>]*>(.{0,5000}?)</\1>", re.S)
_CHALLENGE: Final = re.compile(r"anomaly-modal|challenge-form|bots use DuckDuckGo too")
_NOTHING: Final = re.compile(r"class=\"[^\"]*\bno-results\b|No\s+results", re.I)
_PART_CHARS: Final = 20_000


def keyless(url: str = KEYLESS_URL) -> Engine:
    """Return the engine that needs no key."""

    def ask(query: str, count: int, page: int) -> Ask:
        del count
        parameters = {"q": query} | ({"s": str(page * 30), "dc": str(page * 30 + 1)} if page else {})
        return Ask(url, parameters)

    return Engine("keyless", ask, _read_keyless_page, _KEYLESS_PER_PAGE, _KEYLESS_REFUSALS)


def _read_keyless_page(reply: Reply) -> list[Found]:
    html = decode(reply.body, reply.headers.get("content-type", ""), cut=reply.cut)
    links = list(_LINK.finditer(html))
    if not links and (reply.status == 202 or _CHALLENGE.search(html)):
        raise ToolFailure(
            "DuckDuckGo asked for proof of a human and gave no results",
            hint="Wait a few minutes, or set up another search engine (SearXNG, Brave, Google).",
        )
    if not links and not _NOTHING.search(html):
        raise ToolFailure("DuckDuckGo answered in an unknown format", hint="Set up another search engine.")
    ends = [*(link.start() for link in links[1:]), len(html)]
    found = [
        _read_keyless_result(link, html[link.end() : end][:_PART_CHARS]) for link, end in zip(links, ends, strict=False)
    ]
    return [each for each in found if each.url]


def _read_keyless_result(link: re.Match[str], rest: str) -> Found:
    snippet = _SNIPPET.search(rest)
    return Found(words_of(link[2]), _target(unescape(link[1])), words_of(snippet[2]) if snippet else "", "duckduckgo")


def _target(href: str) -> str:
    """Return the URL of a result without DuckDuckGo's redirect; empty for advertisements."""
    place = urlsplit(urljoin(KEYLESS_URL, href))
    if place.path == "/y.js":
        return ""
    if place.path.startswith("/l/") and (place.hostname or "").endswith("duckduckgo.com"):
        return parse_qs(place.query).get("uddg", [""])[0]
    return place.geturl()


# SearXNG (and searx): the user's own metasearch engine, by its JSON format.

_SEARXNG_REFUSALS: Final = {
    403: "SearXNG answers in JSON only if `json` is listed under search.formats in its settings.yml.",
    404: "Check web.searxng_url: it is the address of the start page, without /search.",
}


def searxng(base_url: str) -> Engine:
    """Return the engine at `base_url`, the address of its start page."""
    base = base_url.rstrip("/").removesuffix("/search")
    place = urlsplit(base)
    port = place.port or (443 if place.scheme == "https" else 80)
    host = f"[{place.hostname}]" if ":" in (place.hostname or "") else place.hostname

    def ask(query: str, count: int, page: int) -> Ask:
        del count  # SearXNG has no such parameter
        parameters = {"q": query, "format": "json", "pageno": str(page + 1)}
        return Ask(f"{base}/search", parameters, {"Accept": "application/json"})

    return Engine(
        "searxng", ask, read_json("searxng", _pick_searxng_results), 1, _SEARXNG_REFUSALS, opens=(f"{host}:{port}",)
    )


def _pick_searxng_results(answer: dict[str, Any]) -> list[Found]:
    rows: list[dict[str, Any]] = answer["results"]
    silent: list[list[str]] = answer.get("unresponsive_engines") or []
    if not rows and silent:
        names = ", ".join(" ".join(each) for each in silent)
        raise ToolFailure(f"none of the engines behind searxng answered: {names[:300]}", hint="Try again later.")
    return [_read_searxng_row(row) for row in rows]


def _read_searxng_row(row: dict[str, Any]) -> Found:
    engines: list[str] = row.get("engines") or [row.get("engine") or ""]
    source = ", ".join(each for each in engines if each)
    return Found(
        words_of(row.get("title") or ""),
        row.get("url") or "",
        words_of(row.get("content") or ""),
        f"searxng ({source})" if source else "searxng",
    )
