"""A model's server behind a vendor's client library: its stream, and its errors as `ModelError`s with clear messages.

A client library has exceptions of its own for errors it expects. Others (a connection lost within a stream, an event
that is no JSON) are raised as they are, and are converted too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from email.utils import parsedate_to_datetime
from importlib import import_module
from time import time
from typing import Any, Final, Protocol, cast
from urllib.parse import urlsplit

from surehand.core.frozen import frozen
from surehand.core.installation import install_hint
from surehand.core.model import Delta, ModelError, ModelEvent, Turn
from surehand.core.settings import Effort
from surehand.files.sanitize import visible
from surehand.providers.table import PROVIDERS
from surehand.web.fetch import read_in_pieces

_RETRYABLE: Final = frozenset({408, 409, 429, 500, 502, 503, 504, 529})
"""HTTP statuses that are retried."""
_STATUS_BY_TYPE: Final[Mapping[str, int]] = {
    "overloaded_error": 529,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
}
"""HTTP status for the types of errors within a stream, which itself has status 200."""
_TOO_LONG: Final = ("too long", "context length", "context_length", "context window", "maximum context", "too large")
_MESSAGE_CHARS: Final = 300
STREAM_BYTES: Final = 100_000_000
"""Bytes of a stream of events: some hundred for each token of the longest answers."""
BODY_BYTES: Final = 16_000_000
"""Bytes of any other response."""


class Answer(Protocol):
    """A vendor's answer, assembled from the events of its stream."""

    stop: str
    """The vendor's reason for its end; empty before."""

    @property
    def began(self) -> bool:
        """Whether a part of it was received."""
        ...

    def take(self, event: Any, /) -> Delta | None:
        """Add an event; return its text, if it is to be streamed."""
        ...

    def turn(self) -> Turn:
        """Return the whole answer."""
        ...


@frozen
class Reasoning:
    """How much a model thinks before it answers; by default, as much as it chooses."""

    effort: Effort | None = None
    tokens: int | None = None
    """The budget, for models that take one."""


class ServedModel:
    """A model behind a client library shaped like OpenAI's and Anthropic's (`APIError`, `client.base_url`)."""

    provider: str
    package: str
    """The client library."""
    caches_prompts = True
    context = 128_000
    """Default context window in tokens."""

    def __init__(
        self,
        name: str,
        key: str,
        base_url: str | None = None,
        context_tokens: int | None = None,
        *,
        provider: str | None = None,
        reasoning: Reasoning | None = None,
    ) -> None:
        self.name = name
        self.provider = provider or self.provider
        self.row = PROVIDERS[self.provider]
        self.context_tokens = context_tokens or self.context
        self.reasoning = reasoning or Reasoning()
        try:
            library = import_module(self.package)
        except ImportError:
            raise ModelError(f"{self.row.title}'s client is not installed", install_hint(self.package)) from None
        # No retries by the client: the loop retries, and reports each wait.
        http = library.DefaultAsyncHttpxClient(event_hooks={"response": [_limit_response]})
        self._client = self._open(library, key, base_url, {"max_retries": 0, "http_client": http})
        self._server = Server(self.row.title, self.provider, name, library, str(self._client.base_url), self.row.server)

    def _open(self, library: Any, key: str, base_url: str | None, options: dict[str, Any]) -> Any:
        """Return the vendor's client."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


async def _limit_response(answer: Any) -> None:
    """Limit a response, after decompression: a stream may never end, and the client reads an error page whole."""
    import httpx2

    is_stream = "event-stream" in answer.headers.get("content-type", "")
    limit = STREAM_BYTES if is_stream else BODY_BYTES
    packed = httpx2.Response(answer.status_code, headers=answer.headers, stream=answer.stream)
    answer.headers.pop("content-encoding", None)

    class Bounded(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for piece in read_in_pieces(packed):
                size += len(piece)
                if size > limit:
                    raise ModelError(f"the model's server sent more than {limit:,} bytes, and was disconnected")
                yield piece

        async def aclose(self) -> None:
            await packed.aclose()

    answer.stream = Bounded()


@frozen
class Server:
    """A model's server, and how its errors are reported."""

    vendor: str
    provider: str
    model: str
    errors: Any
    """The module of the client library, with its exceptions."""
    url: str = ""
    home: str = ""
    """The vendor's own address."""

    @property
    def title(self) -> str:
        """The vendor's name, or the address of another server."""
        host = urlsplit(self.url).hostname or ""
        own = urlsplit(self.home).hostname or ""
        return self.vendor if not host or host == own or "{" in self.home else self.url.rstrip("/")

    async def stream(self, ask: Callable[[], Awaitable[Any]], answer: Answer) -> AsyncIterator[ModelEvent]:
        """Yield the events of a request, the turn last; every error is a ModelError."""
        events: Any = None
        try:
            events = await ask()
            async with events:
                async for event in events:
                    if (piece := answer.take(event)) is not None:
                        yield piece
        except Exception as problem:  # the client library may fail in any way on what a server sends
            raise self._explain_failure(problem, began=answer.began) from problem
        if not answer.stop:
            raise self._without_end(events.response)
        yield answer.turn()

    def _explain_failure(self, problem: Exception, *, began: bool) -> ModelError:
        if isinstance(problem, ModelError):
            return problem
        if isinstance(problem, LookupError | TypeError | ValueError | AttributeError):
            return self._unreadable(f"{type(problem).__name__}: {problem}")
        lost = not isinstance(problem, self.errors.APIError) or isinstance(problem, self.errors.APIConnectionError)
        if lost and began:
            return self._broke_off(_read_message(problem))
        if lost:
            hint = "Check the network and [model] base_url."
            return ModelError(f"{self.title} cannot be reached: {_read_message(problem)}", hint, retryable=True)
        return self._explain_refusal(problem)

    def _without_end(self, response: Any) -> ModelError:
        kind = str(getattr(response, "headers", {}).get("content-type") or "")
        if kind and "event-stream" not in kind:
            return self._unreadable(f"{kind.partition(';')[0]}, where a stream of events was due")
        return self._broke_off("")

    def _explain_refusal(self, problem: Any) -> ModelError:
        status, kind, message = _status(problem), _kind(problem), _read_message(problem)
        if status in (401, 403):
            hint = f"Set another with `surehand auth set {self.provider}`."
            return ModelError(f"{self.title} refused the key: {message}", hint)
        if status == 404:
            hint = "Name another with --model or [model] name."
            return ModelError(f"{self.title} has no model {self.model!r}: {message}", hint)
        if status == 413 or any(phrase in message.lower() for phrase in _TOO_LONG):
            hint = "Begin a new session, or set [model] context_tokens so that room is made in time."
            return ModelError(f"the conversation is too long for {self.model}: {message}", hint)
        busy, after_s = status in _RETRYABLE and kind != "insufficient_quota", _parse_retry_after(problem)
        hint = f"It may be asked again in {after_s:g} s." if busy and after_s else ""
        text = f"{self.title} answered {status or 'an error'}: {message}"
        return ModelError(text, hint, retryable=busy, after_s=after_s)

    def _broke_off(self, why: str) -> ModelError:
        because = f": {why}" if why else ""
        return ModelError(f"{self.model} stopped in the middle of its answer{because}", "Try again.", retryable=True)

    def _unreadable(self, what: str) -> ModelError:
        hint = f"Is [model] base_url that of a server for {self.vendor}'s API?"
        return ModelError(f"{self.title} sent an invalid response: {visible(what, lines=False)[:_MESSAGE_CHARS]}", hint)


def _error(problem: Any) -> Mapping[str, Any]:
    """Return the server's error object, which may be wrapped: `{"error": {...}}`."""
    body: Any = getattr(problem, "body", None)
    whole = cast("dict[str, Any]", body) if isinstance(body, dict) else {}
    inner: Any = whole.get("error")
    return cast("dict[str, Any]", inner) if isinstance(inner, dict) else whole


def _kind(problem: Any) -> str:
    error = _error(problem)
    return next((str(error[name]) for name in ("code", "type") if error.get(name)), "")


def _status(problem: Any) -> int | None:
    status: int | None = getattr(problem, "status_code", None)
    if status is None or status < 400:
        return _STATUS_BY_TYPE.get(str(_error(problem).get("type")), _STATUS_BY_TYPE.get(_kind(problem)))
    return status


def _parse_retry_after(problem: Any) -> float:
    """Return the seconds in a Retry-After header, which is a number or a date; 0 without one."""
    headers: Any = getattr(getattr(problem, "response", None), "headers", None) or {}
    said = str(headers.get("retry-after") or "").strip()
    try:
        return max(0.0, float(headers["retry-after-ms"]) / 1000 if "retry-after-ms" in headers else float(said))
    except ValueError:
        pass
    try:
        return max(0.0, round(parsedate_to_datetime(said).timestamp() - time(), 1))
    except (ValueError, TypeError):
        return 0.0


def _read_message(problem: Any) -> str:
    said: Any = _error(problem).get("message") or problem.__cause__ or problem
    text = " ".join(visible(str(said)).split()) or type(said).__name__
    return text if len(text) <= _MESSAGE_CHARS else f"{text[:_MESSAGE_CHARS]}…"
