"""Brave Search, by its web search API."""

from __future__ import annotations

from typing import Any, Final

from surehand.web.engines.engine import Ask, Engine, Found, read_json
from surehand.web.html import words_of

URL: Final = "https://api.search.brave.com/res/v1/web/search"
_PER_PAGE: Final = 20
_REFUSED: Final = "Check the key in BRAVE_API_KEY (or `surehand auth set brave`) and what its plan includes."


def brave(key: str, url: str = URL) -> Engine:
    """Return the engine, asked with this key."""

    def ask(query: str, count: int, page: int) -> Ask:
        parameters = {"q": query, "count": str(min(count, _PER_PAGE)), "offset": str(page)}
        headers = {"Accept": "application/json", "X-Subscription-Token": key}
        return Ask(url, parameters, headers)

    return Engine("brave", ask, read_json("brave", _pick_results), _PER_PAGE, dict.fromkeys((401, 403, 422), _REFUSED))


def _pick_results(answer: dict[str, Any]) -> list[Found]:
    web: dict[str, Any] = answer.get("web") or {}
    rows: list[dict[str, Any]] = web.get("results") or []
    return [Found(words_of(row["title"]), row["url"], words_of(row.get("description") or ""), "brave") for row in rows]
