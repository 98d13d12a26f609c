"""The table of providers: one row says all that choosing and opening a model needs to know of each.

A new provider is a class with `stream` and `close`, a row here, its name in the settings (`ModelSettings.provider`),
and, where it takes a key, the key's variables in `state.keys`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from surehand.core.frozen import frozen


@frozen
class Provider:
    """One provider of models."""

    path: str
    """Module and class of its model."""
    default: str = ""
    """The model used where none is named; a provider with one takes a key."""
    server: str = ""
    """The address of its server; empty for one that runs in this process."""
    prefix: str = ""
    """How the names of its models begin, where that tells them."""
    suffix: str = ""
    """How the names of its models end, where that tells them."""
    package: str = ""
    """The client library it needs, which the extra of the provider's name installs."""

    def load(self) -> Any:
        """Import the class of its model."""
        module, _, name = self.path.partition(":")
        return getattr(import_module(module), name)


PROVIDERS: Final[Mapping[str, Provider]] = {
    "anthropic": Provider(
        "surehand.providers.anthropic:AnthropicModel",
        default="claude-sonnet-4-5",
        server="https://api.anthropic.com",
        prefix="claude",
        package="anthropic",
    ),
    "openai": Provider(
        "surehand.providers.openai:OpenAIModel",
        default="gpt-5-mini",
        server="https://api.openai.com/v1",
        package="openai",
    ),
    "local": Provider("surehand.providers.local:LocalModel", suffix=".gguf", package="xllamacpp"),
    "offline": Provider("surehand.providers.offline:OfflineModel"),
}
"""In the order in which a key is looked for."""
WITH_KEYS: Final = tuple(name for name, provider in PROVIDERS.items() if provider.default)
COMPATIBLE: Final = "openai"
"""Whose protocol other servers speak: what is used for a base address, and for a name that tells no provider."""


def provider_of(model: str) -> str:
    """Return which provider a model's name belongs to."""
    for name, provider in PROVIDERS.items():
        if provider.prefix and model.startswith(provider.prefix):
            return name
        if provider.suffix and model.endswith(provider.suffix):
            return name
    return COMPATIBLE
