"""SearXNG (and searx before it): the user's own meta search engine, by its JSON form."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

from surehand.core.errors import ToolFailure
from surehand.web.engines.engine import Ask, Engine, Found, read_json
from surehand.web.html import words_of

_REFUSALS: Final = {
    403: "SearXNG answers in JSON only when `json` stands under search.formats in its settings.yml.",
    404: "Check web.searxng_url: it is the address of the start page, without /search.",
}


def searxng(base_url: str) -> Engine:
    """Return the engine at `base_url`, the address of its start page."""
    base = base_url.rstrip("/").removesuffix("/search")
    place = urlsplit(base)
    port = place.port or (443 if place.scheme == "https" else 80)
    host = f"[{place.hostname}]" if ":" in (place.hostname or "") else place.hostname

    def ask(query: str, count: int, page: int) -> Ask:
        del count  # it has no such parameter: a page is as long as its engines make it
        parameters = {"q": query, "format": "json", "pageno": str(page + 1)}
        return Ask(f"{base}/search", parameters, {"Accept": "application/json"})

    return Engine("searxng", ask, read_json("searxng", _pick_results), 1, _REFUSALS, opens=(f"{host}:{port}",))


def _pick_results(answer: dict[str, Any]) -> list[Found]:
    rows: list[dict[str, Any]] = answer["results"]
    silent: list[list[str]] = answer.get("unresponsive_engines") or []
    if not rows and silent:
        names = ", ".join(" ".join(each) for each in silent)
        raise ToolFailure(f"none of the engines behind searxng answered: {names[:300]}", hint="Try again later.")
    return [_read_row(row) for row in rows]


def _read_row(row: dict[str, Any]) -> Found:
    engines: list[str] = row.get("engines") or [row.get("engine") or ""]
    source = ", ".join(each for each in engines if each)
    return Found(
        words_of(row.get("title") or ""),
        row.get("url") or "",
        words_of(row.get("content") or ""),
        f"searxng ({source})" if source else "searxng",
    )
