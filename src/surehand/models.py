"""Models: which one is used and why (the one named, or the first configured), and what its tokens cost."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from surehand.core.errors import SettingsError
from surehand.core.frozen import frozen
from surehand.core.model import Model, ModelError, Usage
from surehand.core.settings import ModelSettings, Settings
from surehand.providers.table import COMPATIBLE, FOUND_BY_KEY, PROVIDERS, provider_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from surehand.agent.loop import Limits
    from surehand.core.settings import Effort


_SET_UP: Final = "Set one up with `surehand auth set anthropic`, or see `surehand help models` for local models."


@frozen
class Choice:
    """A provider, the model's name, and why this one."""

    provider: str
    name: str
    why: str

    def to_dict(self) -> dict[str, str]:
        """Return the fields as a dict."""
        return {"provider": self.provider, "name": self.name, "why": self.why}


def choose(settings: Settings, wanted: str | None = None) -> Choice:
    """Choose the model: the one named, that of the settings, or the first that is configured."""
    own = settings.model
    if wanted:
        provider, separator, name = wanted.partition("/")
        if (wanted in PROVIDERS and PROVIDERS[wanted].default) or (separator and provider in PROVIDERS):
            return Choice(provider, name or _default(provider), f"you named it: {wanted}")
        if wanted in PROVIDERS:
            raise ModelError(f"{wanted} has no model of its own choice", f"Name one: {wanted}/NAME.")
        if separator and not (own.provider or _has_address(own)):
            raise ModelError(
                f"there is no provider {provider!r}",
                f"Name one of {', '.join(PROVIDERS)}; for another server set [model] base_url.",
            )
        return Choice(own.provider or _guess_provider(wanted, own), wanted, f"you named it: {wanted}")
    if own.provider:
        return Choice(own.provider, own.name or _default(own.provider), "set in [model] provider")
    if own.path:
        return Choice("local", own.path, "set in [model] path")
    if _has_address(own):
        where = "[model] base_url" if own.base_url else "OPENAI_BASE_URL"
        return Choice(COMPATIBLE, own.name or _default(COMPATIBLE), f"{where} is set: an OpenAI-compatible server")
    for provider in FOUND_BY_KEY:
        if found := PROVIDERS[provider].find_key(provider):
            return Choice(
                provider, own.name or _default(provider), f"a key for {provider} is in {_format_source(found[1])}"
            )
    return Choice("offline", "offline", f"nothing is configured. {_SET_UP}")


def _has_address(own: ModelSettings) -> bool:
    """Whether a server with OpenAI's protocol is configured, whose models may have any name."""
    return bool(own.base_url or os.environ.get("OPENAI_BASE_URL"))


def _guess_provider(name: str, own: ModelSettings) -> str:
    """Return the provider of a model given without one; raise ModelError if it is unknown."""
    if (provider := provider_of(name)) is not None:
        return provider
    if _has_address(own) or PROVIDERS[COMPATIBLE].find_key(COMPATIBLE):
        return COMPATIBLE
    raise ModelError(f"no provider has a model {name!r}", f"Name one of {', '.join(PROVIDERS)}, or PROVIDER/NAME.")


def _default(provider: str) -> str:
    if (default := PROVIDERS[provider].default) or provider == "local":
        return default or provider
    raise ModelError(f"{provider} has no model of its own choice", f"Name one with [model] name, or {provider}/NAME.")


def _format_source(where: str) -> str:
    return where if where.isupper() else f"the {where}"


def open_model(settings: Settings, choice: Choice, *, effort: Effort | None = None) -> Model:
    """Create the chosen model; imports its client library."""
    own, row = settings.model, PROVIDERS[choice.provider]
    room: dict[str, Any] = {"context_tokens": own.context_tokens} if own.context_tokens else {}
    model = row.load(choice.name)
    match choice.provider:
        case "local":
            return model(own.path or choice.name, **room)
        case "offline":
            return model()
        case "openai" if own.api == "responses":
            from surehand.providers import openai  # lazy: openai, 20 ms; only where it is asked for

            model = openai.ResponsesModel
        case _:
            pass
    # A client that finds its own address keeps it: the configured one is for OpenAI's protocol, not a cloud's Claude.
    finds_address = bool(row.claude) and "claude" in choice.name
    address = _own_address(settings, choice) or (None if finds_address else row.address(choice.provider))
    from surehand.providers.server import Reasoning  # lazy: server, 12 ms; only where a model is served

    return model(
        name=choice.name,
        key=_find_key(choice.provider, settings),
        base_url=address,
        provider=choice.provider,
        reasoning=Reasoning(effort or own.effort, None if effort else own.thinking_tokens),
        **room,
    )


def _own_address(settings: Settings, choice: Choice) -> str | None:
    """Return the address configured for a provider, but not one configured for another."""
    # An address without a provider is for OpenAI's or Anthropic's protocol: the key of no other provider is sent there.
    meant = (choice.provider,) if choice.provider not in (COMPATIBLE, "anthropic") else (None, choice.provider)
    variable = os.environ.get(f"{choice.provider.upper()}_BASE_URL")
    return (settings.model.base_url if settings.model.provider in meant else None) or variable or None


def make_limits(
    settings: Settings,
    choice: Choice | None = None,
    *,
    turns: int | None = None,
    tokens: int | None = None,
    seconds: float | None = None,
    cost: float | None = None,
) -> Limits:
    """Return the limits of a conversation: those given, else those of the settings.

    Raises SettingsError for a limit of cost where nobody knows what the model costs.
    """
    from surehand.agent.loop import Limits  # lazy: loop, 90 ms; only where a model speaks

    own = settings.model
    prices = own_prices(settings)
    cost = cost or own.max_cost
    if cost is not None and prices is None:
        known = choice is not None and estimate_cost(choice.provider, choice.name, Usage(1, 1)) is not None
        if not known:
            raise SettingsError(
                "a limit of cost needs prices, and none are known of this model: "
                "set [model] input_price and output_price, per million tokens"
            )
    return Limits(
        turns=turns or own.max_turns,
        tokens=tokens or own.max_total_tokens,
        seconds=seconds or own.max_seconds,
        cost=cost,
        prices=prices,
        estimate=estimate_cost,
        max_tokens=own.max_tokens,
    )


def own_prices(settings: Settings) -> tuple[float, float] | None:
    """Return the configured prices of a million input and output tokens; None unless both are set."""
    own = settings.model
    return None if own.input_price is None or own.output_price is None else (own.input_price, own.output_price)


def sum_by_model(turns: Iterable[tuple[str, Usage]], settings: Settings) -> list[dict[str, Any]]:
    """Return tokens and cost of turns by model (`provider/name`), the most tokens first.

    The model of the settings costs what they say, if they do. Otherwise the cost is an estimate by public prices, and
    None where nobody knows the price.
    """
    prices, chosen = own_prices(settings), choose(settings)
    priced = f"{chosen.provider}/{chosen.name}" if prices is not None else ""
    found: dict[str, dict[str, Any]] = {}
    for model, usage in turns:
        provider, _, name = model.partition("/")
        cost = usage.cost_at(prices) if prices is not None and model == priced else estimate_cost(provider, name, usage)
        row = found.setdefault(model, {"model": model, "turns": 0, "usage": Usage(), "cost": 0.0})
        row["turns"] += 1
        row["usage"] += usage
        row["cost"] = None if cost is None or row["cost"] is None else row["cost"] + cost
    rows = sorted(found.values(), key=lambda row: -row["usage"].total)
    return [
        {**row, "usage": row["usage"].to_dict(), "cost_estimated": row["cost"] is not None and row["model"] != priced}
        for row in rows
    ]


def server_address(settings: Settings, choice: Choice) -> str:
    """Return the address of a model's server; empty for a model in this process."""
    row = PROVIDERS[choice.provider]
    return (_own_address(settings, choice) or row.address(choice.provider)) if row.server else ""


def _find_key(provider: str, settings: Settings) -> str:
    row = PROVIDERS[provider]
    if found := row.find_key(provider):
        return found[0]
    if row.key_optional or settings.model.base_url or os.environ.get(f"{provider.upper()}_BASE_URL"):
        return "none"  # local servers accept any key
    raise ModelError(f"there is no key for {provider}", f"Run `surehand auth set {provider}`, or set its variable.")


# Prices of tokens, estimated with a library of public prices (`genai-prices`); contracts may differ.


def estimate_cost(provider: str, model: str, usage: Usage) -> float | None:
    """Estimate the cost of tokens in US dollars; None if the price is unknown or the library is missing."""
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
    except (LookupError, ValueError):  # an unknown model
        return None
