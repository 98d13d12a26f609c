"""A model in this process: a GGUF file of the user's, run by llama.cpp (extra `local`)."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

from surehand.core.installation import install_hint
from surehand.core.model import ModelError, ModelEvent, ModelRequest
from surehand.providers.openai import OpenAIModel


class LocalModel:
    """Runs llama.cpp's own server on loopback and speaks to it as to any OpenAI-compatible one."""

    provider = "local"
    caches_prompts = False

    def __init__(self, path: str, context_tokens: int = 8192) -> None:
        if not os.path.isfile(path):
            raise ModelError(f"there is no model file {path}", "Set [model] path to a GGUF file.")
        try:
            import xllamacpp  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise ModelError("xllamacpp is not installed", install_hint("local")) from None
        params = xllamacpp.CommonParams()  # pyright: ignore
        params.model.path = path  # pyright: ignore
        params.n_ctx = context_tokens  # pyright: ignore
        params.use_jinja = True  # pyright: ignore
        params.verbosity = 0  # pyright: ignore  # its log would run through what the user reads
        self.name = os.path.basename(path)
        self.context_tokens = context_tokens
        self._server = xllamacpp.Server(params)  # pyright: ignore
        self._model = OpenAIModel(self.name, "none", f"{self._server.listening_address}/v1", context_tokens)  # pyright: ignore

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the answer to a request as it comes; the last event is the turn."""
        return self._model.stream(request)

    async def close(self) -> None:
        """Close connections and free memory."""
        await self._model.close()
