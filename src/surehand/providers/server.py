"""A model's server behind a vendor's client: its stream, and its errors as clear messages.

A client raises errors of its own for what it foresees. What it does not foresee (a connection that dies within a
stream, an event that is no JSON) comes as it is, and is the server's doing all the same.
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

_BUSY: Final = frozenset({408, 409, 429, 500, 502, 503, 504, 529})
"""HTTP statuses worth a retry."""
_WITHIN: Final[Mapping[str, int]] = {
    "overloaded_error": 529,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
}
"""HTTP status for errors that come within a stream, after status 200."""
_TOO_LONG: Final = ("too long", "context length", "context_length", "context window", "maximum context", "too large")
_SAID: Final = 300
STREAM_BYTES: Final = 100_000_000
"""Bytes of a stream of events: for the longest answers, a few hundred for each of their tokens."""
BODY_BYTES: Final = 16_000_000
"""Bytes of any other answer."""


class Answer(Protocol):
    """A vendor's answer, put together from the pieces of its stream."""

    stop: str
    """Why it ended, in the vendor's word; empty until it has."""

    @property
    def began(self) -> bool:
        """Whether a part of it has come."""
        ...

    def take(self, event: Any, /) -> Delta | None:
        """Take a piece; return what of it is shown as it comes."""
        ...

    def turn(self) -> Turn:
        """Return the whole answer."""
        ...


@frozen
class Reasoning:
    """How much a model thinks before it answers; where neither is set, as it does by itself."""

    effort: Effort | None = None
    tokens: int | None = None
    """The budget, for those that take one."""


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
        # The loop retries and reports each wait; the client must not retry as well.
        http = library.DefaultAsyncHttpxClient(event_hooks={"response": [_bound]})
        self._client = self._open(library, key, base_url, {"max_retries": 0, "http_client": http})
        self._server = Server(self.row.title, self.provider, name, library, str(self._client.base_url), self.row.server)

    def _open(self, library: Any, key: str, base_url: str | None, options: dict[str, Any]) -> Any:
        """Return the vendor's client."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close connections and free memory."""
        await self._client.close()


async def _bound(answer: Any) -> None:
    """Bound an answer: a stream of nothing would never end, and the client reads the page of an error whole."""
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
    """A model's server, and what goes wrong with it."""

    vendor: str
    provider: str
    model: str
    errors: Any
    """The client's module, which has its errors."""
    url: str = ""
    home: str = ""
    """The vendor's own address."""

    @property
    def title(self) -> str:
        """The vendor, or the address of a server that is not the vendor's own."""
        host = urlsplit(self.url).hostname or ""
        own = urlsplit(self.home).hostname or ""
        return self.vendor if not host or host == own or "{" in self.home else self.url.rstrip("/")

    async def stream(self, ask: Callable[[], Awaitable[Any]], answer: Answer) -> AsyncIterator[ModelEvent]:
        """Yield what comes of a request; whatever goes wrong is a ModelError."""
        events: Any = None
        try:
            events = await ask()
            async with events:
                async for event in events:
                    if (piece := answer.take(event)) is not None:
                        yield piece
        except Exception as problem:  # the client fails on what the server sent
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
        status, kind, said = _status(problem), _kind(problem), _read_message(problem)
        if status in (401, 403):
            hint = f"Set another with `surehand auth set {self.provider}`."
            return ModelError(f"{self.title} refused the key: {said}", hint)
        if status == 404:
            hint = "Name another with --model or [model] name."
            return ModelError(f"{self.title} has no model {self.model!r}: {said}", hint)
        if status == 413 or any(words in said.lower() for words in _TOO_LONG):
            hint = "Begin a new session, or set [model] context_tokens so that room is made in time."
            return ModelError(f"the conversation is too long for {self.model}: {said}", hint)
        busy, after_s = status in _BUSY and kind != "insufficient_quota", _parse_retry_after(problem)
        hint = f"It may be asked again in {after_s:g} s." if busy and after_s else ""
        message = f"{self.title} answered {status or 'an error'}: {said}"
        return ModelError(message, hint, retryable=busy, after_s=after_s)

    def _broke_off(self, why: str) -> ModelError:
        because = f": {why}" if why else ""
        return ModelError(f"{self.model} stopped in the middle of its answer{because}", "Try again.", retryable=True)

    def _unreadable(self, what: str) -> ModelError:
        hint = f"Is [model] base_url that of a server for {self.vendor}'s API?"
        return ModelError(f"{self.title} sent an invalid response: {visible(what, lines=False)[:_SAID]}", hint)


def _error(problem: Any) -> Mapping[str, Any]:
    """Return what the server said of its error: `{"error": {...}}`, or the inner half alone."""
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
        return _WITHIN.get(str(_error(problem).get("type")), _WITHIN.get(_kind(problem)))
    return status


def _parse_retry_after(problem: Any) -> float:
    """Return the seconds of a Retry-After header: a number, or a date."""
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
    return text if len(text) <= _SAID else f"{text[:_SAID]}…"
