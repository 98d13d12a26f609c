"""The table of providers: one row says all that choosing and opening a model needs to know of each.

A new provider that speaks OpenAI's protocol is a row here, and its name in `ProviderName` of `core.settings`. One with
a protocol of its own is also a `Model` (`core.model`), mostly a `ServedModel` (`server`) with `stream`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, Literal

from surehand.core.frozen import frozen
from surehand.core.model import ModelError
from surehand.state import keys

_OPENAI: Final = "surehand.providers.openai:OpenAIModel"
_VARIABLE: Final = re.compile(r"\{([A-Z_]+)\}")


@frozen
class Quirks:
    """How a server deviates from OpenAI's protocol."""

    max_tokens: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    """Its option for the limit of an answer."""
    asks_for_usage: bool = True
    """Whether a stream has usage only if asked; some servers reject the option and always send usage."""
    short_ids: bool = False
    """Whether the id of a call must be nine letters and digits."""
    reasoning: Literal["effort", "object", "none"] = "effort"
    """How the reasoning effort is set: `reasoning_effort`, an object `reasoning`, or not at all."""


@frozen
class Provider:
    """One provider of models."""

    path: str
    """Module and class of its models."""
    title: str = ""
    """The name shown to people."""
    default: str = ""
    """The model used if none is named; empty if one must be."""
    server: str = ""
    """The address of its server; `{NAME}` is a variable of the environment. Empty for one in this process."""
    prefix: tuple[str, ...] = ()
    """Prefixes of the names of its models."""
    suffix: str = ""
    """Suffix of the names of its models."""
    package: str = ""
    """The client library it needs, which the extra of that name installs (`local`: see `cli.config`)."""
    variables: tuple[str, ...] = ()
    """Environment variables of its key; none if it takes no key."""
    key_optional: bool = False
    """Whether it can do without a key, or with other credentials."""
    found_by_key: bool = False
    """Whether a key that is set makes its default model the one used if none is named."""
    claude: str = ""
    """Module and class of its Claude models, if it serves them by Anthropic's protocol."""
    prices: str = ""
    """Its name in the library of prices."""
    quirks: Quirks = Quirks()

    def load(self, model: str = "") -> Any:
        """Import the class of a model."""
        path = self.claude if self.claude and "claude" in model else self.path
        module, _, name = path.partition(":")
        return getattr(import_module(module), name)

    def find_key(self, name: str) -> tuple[str, str] | None:
        """Return the key and its source; None if there is none."""
        return keys.get(name, self.variables)

    def address(self, name: str, variables: Mapping[str, str] | None = None) -> str:
        """Return its server's address; raise ModelError if a variable in it is not set."""
        known = os.environ if variables is None else variables

        def value(found: re.Match[str]) -> str:
            if not known.get(found[1], "").strip():
                raise ModelError(f"{self.title} needs {found[1]}", f"Set {found[1]}, or [model] base_url.")
            return known[found[1]].strip().rstrip("/")

        return known.get(f"{name.upper()}_BASE_URL") or _VARIABLE.sub(value, self.server)


PROVIDERS: Final[Mapping[str, Provider]] = {
    "anthropic": Provider(
        "surehand.providers.anthropic:AnthropicModel",
        title="Anthropic",
        default="claude-sonnet-5-5",
        server="https://api.anthropic.com",
        prefix=("claude",),
        variables=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        package="anthropic",
        found_by_key=True,
        prices="anthropic",
    ),
    "openai": Provider(
        _OPENAI,
        title="OpenAI",
        default="gpt-5-mini",
        server="https://api.openai.com/v1",
        prefix=("gpt-", "o1", "o3", "o4", "chatgpt-", "codex-", "ft:"),
        variables=("OPENAI_API_KEY",),
        package="openai",
        found_by_key=True,
        prices="openai",
    ),
    "gemini": Provider(
        _OPENAI,
        title="Gemini",
        default="gemini-2.5-flash",
        server="https://generativelanguage.googleapis.com/v1beta/openai",
        prefix=("gemini",),
        variables=("GEMINI_API_KEY",),
        package="openai",
        found_by_key=True,
        prices="google",
        quirks=Quirks("max_tokens"),
    ),
    "mistral": Provider(
        _OPENAI,
        title="Mistral",
        default="mistral-large-latest",
        server="https://api.mistral.ai/v1",
        prefix=("mistral",),
        variables=("MISTRAL_API_KEY",),
        package="openai",
        found_by_key=True,
        prices="mistral",
        quirks=Quirks("max_tokens", asks_for_usage=False, short_ids=True, reasoning="none"),
    ),
    "deepseek": Provider(
        _OPENAI,
        title="DeepSeek",
        default="deepseek-chat",
        server="https://api.deepseek.com",
        prefix=("deepseek",),
        variables=("DEEPSEEK_API_KEY",),
        package="openai",
        found_by_key=True,
        prices="deepseek",
        quirks=Quirks("max_tokens", reasoning="none"),
    ),
    "xai": Provider(
        _OPENAI,
        title="xAI",
        default="grok-4",
        server="https://api.x.ai/v1",
        prefix=("grok",),
        variables=("XAI_API_KEY",),
        package="openai",
        found_by_key=True,
        prices="x-ai",
    ),
    "openrouter": Provider(
        _OPENAI,
        title="OpenRouter",
        default="openrouter/auto",
        server="https://openrouter.ai/api/v1",
        variables=("OPENROUTER_API_KEY",),
        package="openai",
        found_by_key=True,
        prices="openrouter",
        quirks=Quirks("max_tokens", reasoning="object"),
    ),
    "ollama": Provider(
        _OPENAI,
        title="Ollama",
        server="http://127.0.0.1:11434/v1",
        variables=("OLLAMA_API_KEY",),
        package="openai",
        key_optional=True,
        quirks=Quirks("max_tokens"),
    ),
    "azure": Provider(
        _OPENAI,
        title="Azure OpenAI",
        server="{AZURE_OPENAI_ENDPOINT}/openai/v1",
        variables=("AZURE_OPENAI_API_KEY",),
        package="openai",
        prices="azure",
    ),
    "bedrock": Provider(
        _OPENAI,
        title="Amazon Bedrock",
        server="https://bedrock-mantle.{AWS_REGION}.api.aws/v1",
        variables=("AWS_BEARER_TOKEN_BEDROCK",),
        package="openai",
        key_optional=True,
        claude="surehand.providers.anthropic:BedrockClaude",
        prices="aws",
    ),
    "vertex": Provider(
        "surehand.providers.openai:VertexModel",
        title="Vertex AI",
        default="google/gemini-2.5-flash",
        server="https://{GOOGLE_CLOUD_LOCATION}-aiplatform.googleapis.com/v1/projects/{GOOGLE_CLOUD_PROJECT}"
        "/locations/{GOOGLE_CLOUD_LOCATION}/endpoints/openapi",
        variables=("VERTEX_ACCESS_TOKEN",),
        package="openai",
        key_optional=True,
        claude="surehand.providers.anthropic:VertexClaude",
        prices="google",
        quirks=Quirks("max_tokens"),
    ),
    "local": Provider("surehand.providers.openai:LocalModel", suffix=".gguf", package="xllamacpp"),
    "offline": Provider("surehand.providers.offline:OfflineModel", default="offline"),
}
"""In the order in which a key is looked for."""
FOUND_BY_KEY: Final = tuple(name for name, provider in PROVIDERS.items() if provider.found_by_key)
COMPATIBLE: Final = "openai"
"""The provider used if only a base address is set, since most servers speak its protocol."""


def provider_of(model: str) -> str | None:
    """Return the provider of a model by its name; None if neither prefix nor suffix is known."""
    for name, provider in PROVIDERS.items():
        if model.startswith(provider.prefix):
            return name
        if provider.suffix and model.endswith(provider.suffix):
            return name
    return None
