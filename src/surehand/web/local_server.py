"""The local HTTP server: serving an ASGI app, and refusing requests whose `Host` or `Origin` is not its own.

Any web page in a browser can send requests to a port of this machine, and a foreign name can be made to resolve to it
(DNS rebinding). So both headers are compared exactly.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final

from surehand.core.frozen import frozen

_HOST: Final = re.compile(r"([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?")
_PLAIN_PORT: Final = "80"
"""The default port of http."""
CLOSE_S: Final = 4.0
HEAD_S: Final = 10.0
"""Timeout for the head of a request; until it is complete the client is not authenticated."""
READ_BYTES: Final = 16 * 1024
"""Read size of a connection: each piece is parsed in one step, in which the event loop stands still."""
_ONCE: Final = (b"authorization", b"content-type", b"last-event-id", b"mcp-session-id")
"""Headers that must not occur twice: a proxy and this server might each use another one."""


def is_loopback(host: str) -> bool:
    """Whether an address can only be reached from this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@frozen
class ServedAddress:
    """The host that a server listens on, and further names of it."""

    host: str
    names: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """The host as written in URLs."""
        return f"[{self.host}]" if ":" in self.host else self.host

    def knows(self, host: str, port: int) -> bool:
        """Whether `host[:port]` of a request is a name of this server, compared exactly."""
        host, further = host.lower(), {each.lower() for each in self.names}
        if host in further:  # that of a reverse proxy, configured with or without its port
            return True
        found = _HOST.fullmatch(host)
        if found is None or (found[2] or _PLAIN_PORT) != str(port):
            return False
        local = ("127.0.0.1", "localhost", "[::1]") if is_loopback(self.host) else ()
        return found[1] in {*local, self.shown.lower(), *further}

    def refusal(self, headers: Sequence[tuple[bytes, bytes]], port: int) -> tuple[int, str] | None:
        """Return status and message to refuse a request by its headers; None to accept it."""
        by_name: dict[bytes, list[bytes]] = {}
        for name, value in headers:
            by_name.setdefault(name.lower(), []).append(value)
        if b"content-length" in by_name and b"transfer-encoding" in by_name:
            # Request smuggling: a proxy and this server might each use another length.
            return 400, "a request has one length: Content-Length or Transfer-Encoding"
        if twice := [name.decode() for name in _ONCE if len(by_name.get(name, ())) > 1]:
            return 400, f"a request has one {twice[0]} header"
        hosts, origins = by_name.get(b"host", []), by_name.get(b"origin", [])
        if len(hosts) != 1 or not self.knows(hosts[0].decode("latin-1"), port):
            return 421, "this server does not go by that Host"
        if len(origins) > 1 or (origins and not self._is_own(origins[0].decode("latin-1"), port)):
            return 403, "pages of that Origin may not talk to this server"
        return None

    def _is_own(self, origin: str, port: int) -> bool:
        scheme, mark, host = origin.lower().partition("://")
        if scheme == "https":  # that of a reverse proxy: this server has no certificate
            return host in {each.lower() for each in self.names}
        return bool(mark) and scheme == "http" and self.knows(host, port)


def _make_protocol() -> Any:
    """Return uvicorn's protocol with a timeout for the head of each request."""
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Protocol(H11Protocol):
        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if hasattr(transport, "max_size"):  # asyncio's own transports; the default is 256 KiB
                transport.max_size = READ_BYTES
            self._expect_head()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._expect_head()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._set_deadline(None)

        def _expect_head(self) -> None:
            if self.conn.their_state is not h11.IDLE:
                self._set_deadline(None)
            elif self._deadline is None:
                self._set_deadline(self.loop.call_later(HEAD_S, self.transport.close))

        def _set_deadline(self, deadline: asyncio.TimerHandle | None) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
            self._deadline = deadline

    return Protocol


async def serve_app(app: Any, address: ServedAddress, port: int, announce: Callable[[int], None]) -> None:
    """Serve an ASGI application until cancelled; `announce` gets the port once clients can connect."""
    import uvicorn  # lazy: 150 ms, for servers alone

    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listening = socket.create_server((address.host, port), family=family)
    config = uvicorn.Config(
        app,
        http=_make_protocol(),
        interface="asgi3",
        log_level="critical",
        lifespan="auto",
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[method-assign]  # the command line has its own
    announce(listening.getsockname()[1])
    running = asyncio.ensure_future(server.serve(sockets=[listening]))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        server.should_exit = True  # if it were cancelled, it would not close its connections
        await asyncio.wait({running}, timeout=CLOSE_S)
        raise
