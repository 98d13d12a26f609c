"""Google Custom Search, by its JSON API."""

from __future__ import annotations

from typing import Any, Final

from surehand.web.engines.engine import Ask, Engine, Found, read_json
from surehand.web.html import words_of

URL: Final = "https://www.googleapis.com/customsearch/v1"
_PER_PAGE: Final = 10
_REFUSALS: Final = {
    400: "Check the key in GOOGLE_API_KEY (or `surehand auth set google`) and web.google_engine.",
    403: "The key may lack the Custom Search API, or the day's free searches are used up.",
}


def google(key: str, engine_id: str, url: str = URL) -> Engine:
    """Return the engine `engine_id`, asked with this key."""

    def ask(query: str, count: int, page: int) -> Ask:
        start = page * _PER_PAGE
        number = max(1, min(count - start, _PER_PAGE))
        parameters = {"q": query, "cx": engine_id, "num": str(number), "start": str(start + 1)}
        return Ask(url, parameters, {"Accept": "application/json"}, secret={"key": key})

    return Engine("google", ask, read_json("google", _pick_results), _PER_PAGE, _REFUSALS)


def _pick_results(answer: dict[str, Any]) -> list[Found]:
    rows: list[dict[str, Any]] = answer.get("items") or []
    return [Found(words_of(row["title"]), row["link"], words_of(row.get("snippet") or ""), "google") for row in rows]
