"""What runs now can be reached by other processes of the same user: a socket each, in a folder only they can open.

A request and its answer are one line of JSON each. Commands in the sandbox do not see the folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from typing import Any, Final, cast

from surehand.host import locations

Answering = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
LINE_LIMIT: Final = 16 * 1024 * 1024
_ASKED_S: Final = 20.0
"""How long an answer may take: ending a command takes a while."""


class Reached:
    """Something that answers other processes until it is closed."""

    def __init__(self, name: str, answer: Answering) -> None:
        self._answer = answer
        self._name = f"{name}.sock"
        self._server: asyncio.Server | None = None
        locations.private_dir(folder())
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with _short(folder()) as place:
            listening.bind(f"{place}/{self._name}")
        listening.listen()
        self._starting = asyncio.get_running_loop().create_task(self._start(listening))

    async def _start(self, listening: socket.socket) -> None:
        self._server = await asyncio.start_unix_server(self._serve, sock=listening, limit=LINE_LIMIT)

    async def _serve(self, reading: asyncio.StreamReader, writing: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError):
            async with asyncio.timeout(_ASKED_S):
                answer = await self._answer(json.loads(await reading.readline()))
            writing.write(json.dumps(answer, default=str).encode() + b"\n")
            await writing.drain()
        writing.close()

    async def close(self) -> None:
        """Answer nobody any more."""
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder(), self._name))
        await asyncio.gather(self._starting, return_exceptions=True)
        if self._server is not None:
            self._server.close()


def folder() -> str:
    """Return where the sockets are."""
    return os.path.join(locations.home(), "reached")


def all_reached() -> Iterator[str]:
    """Yield the names of everything that may answer."""
    with contextlib.suppress(OSError):
        yield from sorted(name for name in os.listdir(folder()) if name.endswith(".sock"))


def ask(name: str, request: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return an answer; None where nobody answers, and what a killed process left behind is taken away."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking, _short(folder()) as place:
        asking.settimeout(_ASKED_S)
        try:
            asking.connect(f"{place}/{name}")
            asking.sendall(json.dumps(request).encode() + b"\n")
            with asking.makefile("rb") as answer:
                found: Any = json.loads(answer.readline(LINE_LIMIT))
        except ConnectionRefusedError:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(folder(), name))
            return None
        except (OSError, ValueError):
            return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


@contextlib.contextmanager
def _short(path: str) -> Generator[str]:
    """Give a folder a name that fits into the hundred bytes a socket's address may have."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}" if os.path.isdir("/proc/self/fd") else path
    finally:
        os.close(descriptor)
