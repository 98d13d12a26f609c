"""Which of the models is used, and why: the first that is configured, or the one that was named."""

from __future__ import annotations

import os
from typing import Any, Final

from surehand.core.frozen import frozen
from surehand.core.model import Model, ModelError
from surehand.core.settings import Settings
from surehand.providers.table import COMPATIBLE, PROVIDERS, WITH_KEYS, provider_of
from surehand.state import keys

_SET_UP: Final = "Set one up with `surehand auth set anthropic`, or see `surehand help models` for local models."


@frozen
class Choice:
    """A provider, the model's name, and why this one."""

    provider: str
    name: str
    why: str

    def to_dict(self) -> dict[str, str]:
        """Return it as plain data."""
        return {"provider": self.provider, "name": self.name, "why": self.why}


def choose(settings: Settings, wanted: str | None = None) -> Choice:
    """Return which model to use: what was named, what the settings say, or the first that is configured."""
    own = settings.model
    if wanted:
        provider, separator, name = wanted.partition("/")
        if wanted in ("offline", *WITH_KEYS) or (separator and provider in PROVIDERS):
            return Choice(provider, name or _default(provider), f"you named it: {wanted}")
        if separator and not (own.provider or own.base_url or os.environ.get("OPENAI_BASE_URL")):
            raise ModelError(
                f"there is no provider {provider!r}",
                "Name one of anthropic/, openai/, local/ or offline; for another server set [model] base_url.",
            )
        provider = own.provider or provider_of(wanted)
        return Choice(provider, wanted, f"you named it: {wanted}")
    if own.provider:
        return Choice(own.provider, own.name or _default(own.provider), "set in [model] provider")
    if own.path:
        return Choice("local", own.path, "set in [model] path")
    if own.base_url or os.environ.get("OPENAI_BASE_URL"):
        where = "[model] base_url" if own.base_url else "OPENAI_BASE_URL"
        return Choice(COMPATIBLE, own.name or _default(COMPATIBLE), f"{where} is set: an OpenAI-compatible server")
    for provider in WITH_KEYS:
        if found := keys.get(provider):
            return Choice(provider, own.name or _default(provider), f"a key for {provider} is in {_place(found[1])}")
    return Choice("offline", "offline", f"nothing is configured. {_SET_UP}")


def _default(provider: str) -> str:
    return PROVIDERS[provider].default or provider


def _place(where: str) -> str:
    return where if where.isupper() else f"the {where}"


def open_model(settings: Settings, choice: Choice) -> Model:
    """Return the chosen model, ready to speak; its client library is imported here."""
    room: dict[str, Any] = {"context_tokens": settings.model.context_tokens} if settings.model.context_tokens else {}
    own: dict[str, Any] = {"name": choice.name, "base_url": settings.model.base_url, **room}
    model = PROVIDERS[choice.provider].load()
    match choice.provider:
        case "local":
            return model(settings.model.path or choice.name, **room)
        case "offline":
            return model()
        case _:
            return model(key=_find_key(choice.provider, settings), **own)


def server_address(settings: Settings, choice: Choice) -> str:
    """Return the address of the server a model is asked at; empty for one that runs in this process."""
    server = PROVIDERS[choice.provider].server
    if not server:
        return ""
    variable = os.environ.get(f"{choice.provider.upper()}_BASE_URL")
    return settings.model.base_url or variable or server


def _find_key(provider: str, settings: Settings) -> str:
    if found := keys.get(provider):
        return found[0]
    if settings.model.base_url or os.environ.get(f"{provider.upper()}_BASE_URL"):
        return "none"  # local servers take any key
    raise ModelError(f"there is no key for {provider}", f"Run `surehand auth set {provider}`, or set its variable.")
