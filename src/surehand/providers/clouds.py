"""Models that a cloud serves: Claude on Amazon Bedrock and Vertex AI by Anthropic's own clients, others by OpenAI's."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from surehand.core.model import ModelError
from surehand.providers.anthropic import AnthropicModel
from surehand.providers.openai import OpenAIModel


class BedrockClaude(AnthropicModel):
    """A Claude model on Amazon Bedrock; without a key its client signs requests with the credentials of AWS."""

    provider = "bedrock"

    def _open(self, library: Any, key: str, base_url: str | None, options: dict[str, Any]) -> Any:
        region = _variable(self.row.title, "AWS_REGION") if base_url is None else os.environ.get("AWS_REGION")
        token = None if key == "none" else key
        return library.AsyncAnthropicBedrockMantle(api_key=token, base_url=base_url, aws_region=region, **options)


class VertexClaude(AnthropicModel):
    """A Claude model on Vertex AI; without a token its client takes the user's Google credentials."""

    provider = "vertex"

    def _open(self, library: Any, key: str, base_url: str | None, options: dict[str, Any]) -> Any:
        return library.AsyncAnthropicVertex(
            project_id=_variable(self.row.title, "GOOGLE_CLOUD_PROJECT"),
            region=_variable(self.row.title, "GOOGLE_CLOUD_LOCATION"),
            access_token=None if key == "none" else key,
            base_url=base_url,
            **options,
        )


class VertexModel(OpenAIModel):
    """Any other model on Vertex AI, by its OpenAI-compatible API."""

    provider = "vertex"

    def _open(self, library: Any, key: str, base_url: str | None, options: dict[str, Any]) -> Any:
        # Google's tokens expire after an hour: unless the user gave one, it is refreshed.
        return super()._open(library, key if key != "none" else _GoogleToken(), base_url, options)  # pyright: ignore


class _GoogleToken:
    """Fetches an access token with the user's Google credentials, and again once it has expired."""

    def __init__(self) -> None:
        try:
            import google.auth as auth  # pyright: ignore[reportMissingImports]
        except ImportError:
            hint = "Set VERTEX_ACCESS_TOKEN (`gcloud auth print-access-token`), or install google-auth."
            raise ModelError("there is no token for Vertex AI", hint) from None
        found: Any = auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])  # pyright: ignore
        self._credentials: Any = found[0]

    async def __call__(self) -> str:
        if not self._credentials.valid:
            from google.auth.transport.requests import Request  # pyright: ignore

            await asyncio.to_thread(self._credentials.refresh, Request())
        return str(self._credentials.token)


def _variable(title: str, name: str) -> str:
    if not (value := os.environ.get(name, "").strip()):
        raise ModelError(f"{title} needs {name}", f"Set {name}.")
    return value
