"""Fetch by GET over HTTP, bounded in every way: where it connects, how long it takes, how much it reads.

A host name is resolved once, every IP address is judged, and the connection goes to a judged address: there is no
second lookup between check and use (DNS rebinding). Each redirect is judged like a new URL. No cookies or credentials
of the user are sent, and no proxy from the environment is used.

The body is decompressed as it arrives (`Body`), in small bounded pieces, and truncated at a limit. `refuse_secrets`
keeps values of secret environment variables out of requests.
"""

from __future__ import annotations

import asyncio
import functools
import os
import socket
import threading
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from io import BytesIO
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import unquote, unquote_plus, urljoin

from surehand.commands.environment import is_secret_name
from surehand.core.errors import ToolFailure
from surehand.files.sanitize import visible
from surehand.web.addresses import WebAddress, address_problem, is_allowed, literal_problem, read_url

if TYPE_CHECKING:
    import ssl

    import httpx2


ACCEPTED: Final = "gzip, deflate"
"""The encodings requested: those that the standard library can decompress piece by piece."""
BODY_BYTES: Final = 1024 * 1024
ERROR_BODY_BYTES: Final = 64 * 1024
HEADER_BYTES: Final = 64 * 1024
"""Limit for the head of a response, including interim responses (1xx) before it."""
HEAD_PIECE_BYTES: Final = 4 * 1024
"""Read size for the head: the library parses each piece in one step, in which the event loop stands still."""
MAX_CHUNKS: Final = 50_000
"""Limit for the chunks of a body; a megabyte in chunks of one byte would take half a minute."""
BREATH_S: Final = 0.01
"""How long chunks that have already arrived are processed before other tasks of the event loop run."""
MAX_REDIRECTS: Final = 5
CONNECT_S: Final = 10.0
TRY_S: Final = 3.0
"""Connection timeout for an IP address if there is another one to try."""
MAX_ADDRESSES: Final = 4
QUOTED_CHARS: Final = 200
"""Limit for text from a server that is quoted in an error message."""

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_HEADERS: Final = {
    "User-Agent": "Mozilla/5.0 (compatible; Surehand)",
    "Accept": "text/html,application/xhtml+xml,text/markdown;q=0.9,text/plain;q=0.9,application/json;q=0.9,*/*;q=0.5",
    "Accept-Language": "en,*;q=0.5",
    "Accept-Encoding": ACCEPTED,
}
_OPEN_IT: Final = (
    "Only public addresses are opened. If the user needs this one, they can add it to web.allowed_hosts in their own"
    " settings (not the project's)."
)

Follow: TypeAlias = Callable[[WebAddress], bool]
Report: TypeAlias = Callable[[int, int | None], None]


Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Resolves host and port to IP addresses; raises OSError if there is none."""


async def system_resolve(host: str, port: int) -> list[str]:
    """Resolve `host` with the system's resolver, in its order of preference.

    Runs in a daemon thread, so that a hanging resolver delays neither a timeout nor the end of the program.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[str]] = loop.create_future()

    def set_result(result: list[str] | OSError) -> None:
        if not answer.done():
            answer.set_exception(result) if isinstance(result, OSError) else answer.set_result(result)

    def look_up() -> None:
        try:
            rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            result: list[str] | OSError = list(dict.fromkeys(str(row[4][0]) for row in rows))
        except (OSError, UnicodeError) as problem:
            result = problem if isinstance(problem, OSError) else OSError(str(problem))
        try:
            loop.call_soon_threadsafe(set_result, result)
        except RuntimeError:
            pass  # the loop is closed

    threading.Thread(target=look_up, name="surehand-resolve", daemon=True).start()
    return await answer


@dataclass(frozen=True, slots=True)
class Reply:
    """The final response of a server, and the redirects that led to it."""

    address: WebAddress
    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes
    hops: tuple[str, ...] = ()
    """The redirects followed, the last one being `address`."""
    size: int | None = None
    """Size of the whole body, if known."""
    cut: bool = False
    """Whether the body is longer than the limit and was truncated."""
    trouble: str = ""
    """Why the body is incomplete, if it is."""

    @property
    def ok(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300


@dataclass(frozen=True, slots=True)
class Reach:
    """Which hosts may be reached and how; set by the user, never by a project."""

    allowed_hosts: tuple[str, ...] = ()
    proxy: str | None = None
    resolve: Resolve = system_resolve


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """The options of a GET request."""

    timeout_s: float = 30.0
    limit_bytes: int = BODY_BYTES
    follow: Follow = field(default=lambda address: False)
    report: Report = field(default=lambda done, total: None)
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    whole: Callable[[str], bool] = field(default=lambda content_type: True)
    """Whether a body of this content type is read as a whole; of others only the beginning is read."""
    most: Callable[[bytes], int] = field(default=lambda body: 0)
    """For a body over the limit: a higher limit, chosen by the part that was read."""


async def get(address: WebAddress, reach: Reach, options: FetchOptions) -> Reply:
    """Send a GET request and follow redirects; raise ToolFailure if there is no response."""
    await asyncio.to_thread(_load)  # the imports would block the loop for too long
    import httpx2

    try:
        async with asyncio.timeout(options.timeout_s):
            return await _follow_redirects(address, reach, options)
    except TimeoutError:
        raise ToolFailure(
            f"{address.url} did not answer completely within {options.timeout_s:g} s",
            code="timeout",
            hint="Try again with a longer timeout (at most 120 s), or use another source.",
        ) from None
    except httpx2.InvalidURL as problem:  # the library parses the target of a redirect before we do
        raise ToolFailure(f"{address.url} redirects to what is no address: {quote_server(problem)}") from problem
    except httpx2.HTTPError as problem:
        raise _failure_error(address, problem) from problem


async def _follow_redirects(address: WebAddress, reach: Reach, options: FetchOptions) -> Reply:
    hops: list[str] = []
    first = address
    while True:
        reply = await _get_once(address, reach, options)
        target = reply.headers.get("location", "")
        if reply.status not in _REDIRECTS or not target:
            return _with_hops(reply, hops)
        if len(hops) == MAX_REDIRECTS:
            raise ToolFailure(
                f"{first.url} redirects more than {MAX_REDIRECTS} times", hint=f"The last address was {address.url}."
            )
        address = _redirect_target(address, target, reach, options)
        hops.append(address.url)


def _redirect_target(address: WebAddress, target: str, reach: Reach, options: FetchOptions) -> WebAddress:
    """Return the target of a redirect; raise ToolFailure if it must not be followed."""
    try:
        following = read_url(urljoin(address.url, target.strip()))
    except (ToolFailure, ValueError) as problem:
        raise ToolFailure(f"{address.url} redirects to an address that cannot be opened: {problem}") from None
    _judge_text(following, reach)
    if address.same_site(following) or options.follow(following):
        return following
    raise ToolFailure(
        f"{address.url} redirects to another host: {following.url}",
        code="permission_denied",
        hint=f"It was not followed. To open it, call the tool again with {following.url}.",
        details={"redirect": following.url},
    )


async def _get_once(address: WebAddress, reach: Reach, options: FetchOptions) -> Reply:
    import httpx2

    addresses = await _find_addresses(address, reach)
    tls = await asyncio.to_thread(_tls) if address.scheme == "https" else _no_tls()
    headers = {**_HEADERS, **options.headers, "Host": httpx2.URL(address.url).netloc.decode("ascii")}
    async with httpx2.AsyncClient(trust_env=False, proxy=reach.proxy, verify=tls, timeout=options.timeout_s) as client:
        response = await _open_response(client, address, addresses, headers)
        async with aclosing(response):
            return await _read(response, address, options)


async def _open_response(
    client: httpx2.AsyncClient, address: WebAddress, addresses: Sequence[str], headers: Mapping[str, str]
) -> httpx2.Response:
    """Return the response from the first IP address that accepts the connection."""
    import httpx2

    url = httpx2.URL(address.url)

    async def send_to(ip: str, connect_s: float) -> httpx2.Response:
        request = client.build_request("GET", url.copy_with(host=ip), headers=dict(headers))
        request.extensions["sni_hostname"] = address.host  # the certificate must be valid for the name
        request.extensions["timeout"]["connect"] = connect_s
        request.extensions["trace"] = _Head(address).trace
        return await client.send(request, stream=True)

    *others, last = addresses[:MAX_ADDRESSES]
    for ip in others:
        try:
            return await send_to(ip, TRY_S)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            continue
    return await send_to(last, CONNECT_S)


_CONNECTED: Final = ("connect_tcp.complete", "start_tls.complete")


async def read_small_pieces(event: str, info: Mapping[str, Any]) -> None:
    """A request's `trace`: makes its connection read small pieces, so that other tasks run in between."""
    if event.endswith(_CONNECTED):
        stream = info["return_value"]
        stream.read = functools.partial(_read_piece, stream.read)


async def _read_piece(read: Callable[..., Awaitable[bytes]], max_bytes: int, timeout: float | None = None) -> bytes:
    return await read(min(max_bytes, 2 * HEAD_PIECE_BYTES), timeout)


class _Head:
    """Limits what a server sends before the body: headers, and interim responses, which the library drops silently."""

    def __init__(self, address: WebAddress) -> None:
        self._address = address
        self._size = 0
        self._is_over = False

    async def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """A request's `trace`: limits what is read of its connection until the head is complete."""
        if event.endswith(_CONNECTED):
            stream = info["return_value"]
            stream.read = functools.partial(self._read, stream.read)
        elif event.endswith("receive_response_headers.complete"):
            self._is_over = True

    async def _read(self, read: Callable[..., Awaitable[bytes]], max_bytes: int, timeout: float | None = None) -> bytes:
        if self._is_over:
            return await read(max_bytes, timeout)
        piece = await read(HEAD_PIECE_BYTES, timeout)
        self._size += len(piece)
        if self._size > HEADER_BYTES:
            raise ToolFailure(f"{self._address.url} answered with more than {HEADER_BYTES // 1024} KiB of headers")
        return piece


async def _find_addresses(address: WebAddress, reach: Reach) -> list[str]:
    """Return the judged IP addresses of the host to connect to; with a proxy, which resolves itself, the host."""
    _judge_text(address, reach)
    if address.ip is not None:
        return [address.host]
    try:
        found = await reach.resolve(address.host, address.port)
    except OSError:
        found = ()
    if not found and reach.proxy is None:
        raise ToolFailure(f"no address was found for {address.host}", hint="Check the spelling of the host.")
    judged = _judge_addresses(address, [each.partition("%")[0] for each in found], reach)
    return judged if reach.proxy is None else [address.host]


def _judge_addresses(address: WebAddress, found: list[str], reach: Reach) -> list[str]:
    """Return the addresses if all are public, else those the user has allowed; raise ToolFailure if there is none."""
    problems = {each: problem for each in found if (problem := address_problem(ip_address(each)))}
    if not problems or is_allowed(address, (), reach.allowed_hosts):
        return found
    opened = [each for each in problems if is_allowed(address, [ip_address(each)], reach.allowed_hosts)]
    if not opened:
        ip, problem = next(iter(problems.items()))
        raise _refusal_error(f"{address.host} leads to {ip}, which is not a public address ({problem})")
    return opened


def _judge_text(address: WebAddress, reach: Reach) -> None:
    if problem := literal_problem(address.url, reach.allowed_hosts):
        raise _refusal_error(problem)


async def _read(response: httpx2.Response, address: WebAddress, options: FetchOptions) -> Reply:
    """Read the body of a response up to the limit."""
    headers = {name.lower(): value for name, value in response.headers.items()}
    body = _body(200 <= response.status_code < 300, headers.get("content-type", ""), options)
    announced = _length(headers)
    if response.status_code not in _REDIRECTS:
        await body.fill(response, headers, lambda done: options.report(done, announced))
    packed = headers.get("content-encoding", "") != ""
    data = body.data()
    size = len(data) if body.complete else None if packed else announced
    return Reply(
        address,
        response.status_code,
        quote_server(response.reason_phrase),
        headers,
        data,
        size=size,
        cut=body.cut,
        trouble=body.trouble,
    )


def _body(ok: bool, content_type: str, options: FetchOptions) -> Body:
    """Return an empty body with the limit for this response."""
    if not options.whole(content_type):
        return Body(min(4096, options.limit_bytes))
    return Body(options.limit_bytes, options.most) if ok else Body(min(ERROR_BODY_BYTES, options.limit_bytes))


def _length(headers: Mapping[str, str]) -> int | None:
    text = headers.get("content-length", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _with_hops(reply: Reply, hops: list[str]) -> Reply:
    from dataclasses import replace

    return replace(reply, hops=tuple(hops))


def _load() -> None:
    import httpcore2  # httpx2 imports it when the first client is made
    import httpx2

    del httpx2, httpcore2


@functools.cache
def _tls() -> ssl.SSLContext:
    import httpx2

    return httpx2.create_ssl_context(trust_env=False)


@functools.cache
def _no_tls() -> ssl.SSLContext:
    """Return a context without certificates for plain HTTP; creating the real one takes 20 ms."""
    import ssl

    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _refusal_error(problem: str) -> ToolFailure:
    return ToolFailure(problem, code="permission_denied", hint=_OPEN_IT)


def _failure_error(address: WebAddress, problem: Any) -> ToolFailure:
    import httpx2

    where = f"{address.host}:{address.port}"
    if isinstance(problem, httpx2.TimeoutException):
        return ToolFailure(f"{where} did not accept the connection in time", code="timeout", hint="Try again later.")
    if isinstance(problem, httpx2.ProxyError):
        return ToolFailure(f"the proxy of web.proxy refused: {quote_server(problem)}")
    if isinstance(problem, httpx2.ConnectError):
        return ToolFailure(f"cannot connect to {where}: {_cause(problem)}")
    if isinstance(problem, httpx2.RemoteProtocolError):
        return ToolFailure(f"{where} did not answer with valid HTTP: {quote_server(problem)}")
    return ToolFailure(f"the connection to {where} failed: {_cause(problem)}")


def quote_server(words: object) -> str:
    """Make text from a server safe to quote in a message: one line, truncated, control characters made visible."""
    text = visible(str(words)[:QUOTED_CHARS], lines=False)
    return text if len(str(words)) <= QUOTED_CHARS else f"{text}…"


def _cause(problem: BaseException) -> str:
    """Return the system's message, which the exceptions wrapped around it often leave out."""
    deepest = problem
    while (inner := deepest.__cause__ or deepest.__context__) is not None:
        deepest = inner
    if isinstance(deepest, ConnectionError) and deepest.errno:
        return os.strerror(deepest.errno)
    return str(deepest) or str(problem) or type(problem).__name__


TURN_BYTES: Final = 4 * 1024


async def read_in_pieces(answer: httpx2.Response) -> AsyncIterator[bytes]:
    """Yield a decompressed body in small pieces, and let other tasks run between them.

    A loop over a body that has already arrived would otherwise never yield to the event loop.
    """
    async for piece in answer.aiter_bytes():
        for start in range(0, len(piece), TURN_BYTES):
            yield piece[start : start + TURN_BYTES]
            await asyncio.sleep(0)


PROGRESS_S: Final = 0.5


class Body:
    """Reads and decompresses a body up to a limit.

    If the body exceeds it, `most` is called once with the part read so far and may raise it.
    """

    def __init__(self, limit: int, most: Callable[[bytes], int] = lambda body: 0) -> None:
        self.cut = False
        self.complete = False
        self.trouble = ""
        self._limit = limit
        self._most: Callable[[bytes], int] | None = most
        self._raw = 0
        self._chunks = 0
        self._size = 0
        self._kept = BytesIO()

    def data(self) -> bytes:
        """Return what was read."""
        return self._kept.getvalue()

    async def fill(self, response: httpx2.Response, headers: Mapping[str, str], report: Callable[[int], None]) -> None:
        """Read the body up to its limit."""
        import httpx2

        clock = asyncio.get_running_loop().time
        reported = breathed = clock()
        try:
            unpacker = Unpacker(headers.get("content-encoding", ""))
            async for chunk in response.aiter_raw():
                self._take(unpacker, chunk)
                if self.cut:
                    return
                now = clock()
                if now - reported >= PROGRESS_S:
                    reported = now
                    report(self._size)
                if now - breathed >= BREATH_S:
                    await asyncio.sleep(0)
                    breathed = clock()
            self.complete = unpacker.finished
            self.trouble = "" if self.complete else "its compression ends too soon"
        except Unsupported as problem:
            raise ToolFailure(
                f"the server compressed its response as {quote_server(problem)}, though only {ACCEPTED} was requested"
            ) from None
        except (Damaged, httpx2.RemoteProtocolError, httpx2.ReadError) as problem:
            self._broke(problem)

    def _take(self, unpacker: Unpacker, chunk: bytes) -> None:
        self._raw += len(chunk)
        self._chunks += 1
        for piece in unpacker.pieces(chunk):
            self._size += self._kept.write(piece)
            if self._is_over():
                break
        if self._is_over() or self._chunks > MAX_CHUNKS:
            self._kept.truncate(self._limit)
            self.cut = True

    def _is_over(self) -> bool:
        """Whether the data or its compressed form exceeds the limit: endless input may decompress to nothing."""
        if self._most is not None and max(self._size, self._raw) > self._limit:
            self._limit, self._most = max(self._limit, self._most(self.data())), None
        return max(self._size, self._raw) > self._limit

    def _broke(self, problem: Exception) -> None:
        what = "its compression is damaged" if isinstance(problem, Damaged) else "the server closed the connection"
        if not self._size:
            raise ToolFailure(f"no answer could be read: {what} ({quote_server(problem)})") from problem
        self.trouble = what


PIECE_BYTES: Final = 64 * 1024
MAX_MEMBERS: Final = 64
_IDENTITY: Final = frozenset({"", "identity"})
_ZLIB: Final = frozenset({"gzip", "x-gzip", "deflate"})


class Damaged(Exception):
    """The compressed body is invalid."""


class Unsupported(Exception):
    """The body has an encoding that was not requested."""


class Unpacker:
    """Decompresses the chunks of a body to pieces of at most `PIECE_BYTES`."""

    def __init__(self, content_encoding: str) -> None:
        names = [each.strip().lower() for each in content_encoding.split(",")]
        layers = [name for name in names if name not in _IDENTITY]
        if len(layers) > 1 or any(name not in _ZLIB for name in layers):
            raise Unsupported(", ".join(layers))
        self._packed = bool(layers)
        self._stream = zlib.decompressobj(wbits=47)  # 47: gzip or zlib, by the header
        self._members = 0
        self._begun = False

    @property
    def finished(self) -> bool:
        """Whether the compressed stream is complete."""
        return not self._packed or self._stream.eof or not self._begun

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        """Decompress a chunk; raise Damaged."""
        if not self._packed:
            yield chunk
            return
        while chunk:
            piece = self._unpack_piece(chunk)
            chunk = self._stream.unconsumed_tail
            if self._stream.eof:
                chunk = self._next_member()
            if piece:
                yield piece

    def _unpack_piece(self, chunk: bytes) -> bytes:
        try:
            piece = self._stream.decompress(chunk, PIECE_BYTES)
        except zlib.error as problem:
            if self._begun:
                raise Damaged(str(problem)) from None
            self._stream = zlib.decompressobj(wbits=-15)  # some servers send "deflate" without its header
            piece = self._raw(chunk)
        self._begun = True
        return piece

    def _raw(self, chunk: bytes) -> bytes:
        try:
            return self._stream.decompress(chunk, PIECE_BYTES)
        except zlib.error as problem:
            raise Damaged(str(problem)) from None

    def _next_member(self) -> bytes:
        """Begin the next gzip member and return its data; empty if only padding follows."""
        rest = self._stream.unused_data
        self._members += 1
        if not rest.startswith(b"\x1f\x8b"):
            return b""
        if self._members >= MAX_MEMBERS:
            raise Damaged(f"more than {MAX_MEMBERS} gzip members")
        self._stream = zlib.decompressobj(wbits=47)
        return rest


SHORTEST: Final = 8
"""Values shorter than this are not looked for: they occur in ordinary text by chance."""


def refuse_secrets(text: str) -> None:
    """Raise ToolFailure if an outgoing `text` contains the value of a secret environment variable."""
    shown = (text, unquote(text), unquote_plus(text))
    for name, value in os.environ.items():
        if len(value) >= SHORTEST and is_secret_name(name) and any(value in each for each in shown):
            raise ToolFailure(
                f"the request would contain the value of the environment variable {name}",
                code="permission_denied",
                hint="Leave out the secret; this tool sends no secrets.",
            )
