"""Prices of tokens, by a library of public ones (`genai-prices`): estimates, for your contract decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surehand.providers.table import PROVIDERS

if TYPE_CHECKING:
    from surehand.core.model import Usage


def estimate_cost(provider: str, model: str, usage: Usage) -> float | None:
    """Return about what tokens cost in US dollars; None for a model, or without a library, that knows no price."""
    row = PROVIDERS.get(provider)
    if row is None or not row.prices:
        return None
    try:
        import genai_prices  # lazy: pydantic and its data, 250 ms
    except ImportError:
        return None
    taken = genai_prices.Usage(
        input_tokens=usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens,
        cache_read_tokens=usage.cache_read_tokens or None,
        cache_write_tokens=usage.cache_write_tokens or None,
        output_tokens=usage.output_tokens,
    )
    name = model.removeprefix("google/") if provider == "vertex" else model
    try:
        return float(genai_prices.calc_price(taken, name, provider_id=row.prices).total_price)
    except (LookupError, ValueError):  # a model it has not heard of
        return None
