"""Keyless search by DuckDuckGo's page without scripts: no promise of its form, and soon tired of questions."""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urljoin, urlsplit

from surehand.core.errors import ToolFailure
from surehand.web.charset import decode
from surehand.web.engines.engine import Ask, Engine, Found
from surehand.web.html import words_of

if TYPE_CHECKING:
    from surehand.web.fetch import Reply

URL: Final = "https://html.duckduckgo.com/html/"
_PER_PAGE: Final = 10
_LINK: Final = re.compile(
    r"<a\b(?=[^<>]*\bclass=\"[^\"]*\bresult__a\b)[^<>]*\bhref=\"([^\"]*)\"[^<>]*>(.{0,2000}?)</a>", re.S
)
_SNIPPET: Final = re.compile(r"<(a|div|span)\b[^<>]*\bclass=\"[^\"]*\bresult__snippet\b[^<>]*>(.{0,5000}?)</\1>", re.S)
_CHALLENGE: Final = re.compile(r"anomaly-modal|challenge-form|bots use DuckDuckGo too")
_NOTHING: Final = re.compile(r"class=\"[^\"]*\bno-results\b|No\s+results", re.I)
_PART_CHARS: Final = 20_000


def keyless(url: str = URL) -> Engine:
    """Return the engine that needs no key."""

    def ask(query: str, count: int, page: int) -> Ask:
        del count
        parameters = {"q": query} | ({"s": str(page * 30), "dc": str(page * 30 + 1)} if page else {})
        return Ask(url, parameters)

    return Engine("keyless", ask, _read, _PER_PAGE, {403: "DuckDuckGo refuses programs from here; use another engine."})


def _read(reply: Reply) -> list[Found]:
    html = decode(reply.body, reply.headers.get("content-type", ""), cut=reply.cut)
    links = list(_LINK.finditer(html))
    if not links and (reply.status == 202 or _CHALLENGE.search(html)):
        raise ToolFailure(
            "DuckDuckGo asks whether a person is searching, and gave no results",
            hint="Wait some minutes, or set up another search engine (SearXNG, Brave, Google).",
        )
    if not links and not _NOTHING.search(html):
        raise ToolFailure("DuckDuckGo answered in a form that is not known", hint="Set up another search engine.")
    ends = [*(link.start() for link in links[1:]), len(html)]
    found = [_read_result(link, html[link.end() : end][:_PART_CHARS]) for link, end in zip(links, ends, strict=False)]
    return [each for each in found if each.url]


def _read_result(link: re.Match[str], rest: str) -> Found:
    snippet = _SNIPPET.search(rest)
    return Found(words_of(link[2]), _target(unescape(link[1])), words_of(snippet[2]) if snippet else "", "duckduckgo")


def _target(href: str) -> str:
    """Return where a result leads: its links go through a counter of clicks; those of advertisements lead nowhere."""
    place = urlsplit(urljoin(URL, href))
    if place.path == "/y.js":
        return ""
    if place.path.startswith("/l/") and (place.hostname or "").endswith("duckduckgo.com"):
        return parse_qs(place.query).get("uddg", [""])[0]
    return place.geturl()
