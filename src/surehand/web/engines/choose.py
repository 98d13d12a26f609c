"""Choosing the search engine: which one the user has set up, with which key, and how to set one up.

Keys are told by where they stand, never by what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from surehand.core.errors import ToolFailure
from surehand.core.settings import WebSettings
from surehand.state import keys
from surehand.web.engines.brave import brave
from surehand.web.engines.engine import Engine
from surehand.web.engines.google import google
from surehand.web.engines.keyless import keyless
from surehand.web.engines.searxng import searxng

HOW_TO: Final = (
    "In your own settings (`surehand config`), under [web], set one of:"
    ' search_backend = "searxng" with searxng_url = "http://127.0.0.1:8888" (your own SearXNG, with its JSON format);'
    ' search_backend = "brave" (key in BRAVE_API_KEY or `surehand auth set brave`);'
    ' search_backend = "google" with google_engine = "ID" (key in GOOGLE_API_KEY or `surehand auth set google`);'
    ' search_backend = "keyless" (DuckDuckGo without a key, slower and limited).'
)


def choose(web: WebSettings) -> Engine:
    """Return the engine the user has set up; raise ToolFailure that says how to, when there is none."""
    name = web.search_backend
    if name is None:
        chosen = ("searxng", web.searxng_url), ("brave", keys.get("brave")), ("google", web.google_engine)
        name = next((each for each, set_up in chosen if set_up), None)
    if name is None:
        raise ToolFailure("no search engine is set up", code="tool_unavailable", hint=HOW_TO)
    return _MAKERS[name](web)


def _searxng(web: WebSettings) -> Engine:
    if not web.searxng_url:
        raise _incomplete("searxng", "web.searxng_url is not set")
    where = urlsplit(web.searxng_url)
    if where.scheme not in ("http", "https") or not where.hostname:
        raise _incomplete("searxng", f"web.searxng_url {web.searxng_url!r} is no http address")
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


def _key(name: str) -> str:
    found = keys.get(name)
    if found is None:
        places = ", ".join(keys.VARIABLES[name])
        raise _incomplete(name, f"there is no key for it ({places} or `surehand auth set {name}`)")
    return found[0]


def _incomplete(name: str, problem: str) -> ToolFailure:
    return ToolFailure(f"the search engine {name} is not set up: {problem}", code="tool_unavailable", hint=HOW_TO)


def web_status(web: WebSettings) -> dict[str, Any]:
    """Return what the web tools would use: engine, where its key stands, hosts opened, proxy."""
    try:
        engine, problem = choose(web).name, ""
    except ToolFailure as failure:
        engine, problem = web.search_backend, failure.message
    found = keys.get(engine or "")
    return {
        "search_engine": engine,
        "search_problem": problem,
        "key_from": found[1] if found else None,
        "opened_hosts": list(web.opened_hosts),
        "proxy": bool(web.proxy),
    }
