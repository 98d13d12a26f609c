"""A stdio server in the sandbox of the session's commands: no secrets, no writes outside, no network unless allowed.

Its end is sure: when its keeper ends it, nothing it started is left, whatever session or group it put itself into.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from surehand.core.errors import ToolFailure
from surehand.core.session import Session
from surehand.host import environment
from surehand.host.process import bash
from surehand.host.run import Command
from surehand.host.shells import SHELLS
from surehand.mcp.lines import LINE_LIMIT
from surehand.mcp.pipes import CLOSE_S, Pipe

_TAKE_INPUT: Final = 'exec "$@" <&10 10<&-'
"""The launcher gives a command no input; what is handed over beside it becomes its input here."""


class _Fed:
    """What a server writes, piece by piece, as a stream to read lines from."""

    def __init__(self) -> None:
        self.reader = asyncio.StreamReader(limit=LINE_LIMIT)
        self.pipe: Pipe | None = None

    def feed(self, chunk: bytes) -> None:
        self.reader.feed_data(chunk)

    def feed_stderr(self, chunk: bytes) -> None:
        if self.pipe is not None:
            self.pipe.hear_stderr(chunk)


@asynccontextmanager
async def contained(
    session: Session, command: str, args: Sequence[str], env: Mapping[str, str]
) -> AsyncGenerator[Pipe]:
    """Run a server in the sandbox for as long as the block lasts; raise ToolFailure where there is none."""
    launcher = await session.keep(SHELLS).launcher()
    if not launcher.plan.contained:
        raise ToolFailure(
            "it is to run in the sandbox, and there is none here",
            code="tool_unavailable",
            hint="`surehand doctor` says why; `sandbox = false` for the server runs it without.",
        )
    reading, writing = os.pipe()
    fed = _Fed()
    words = (bash(), "-c", _TAKE_INPUT, "bash", command, *args)
    order = Command(words, session.workspace, environment.cleaned(os.environ, env), descriptors=(reading,))
    try:
        run = launcher.run(order, fed.feed, fed.feed_stderr)
    except BaseException:
        os.close(writing)
        raise
    finally:
        os.close(reading)
    loop = asyncio.get_running_loop()
    protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
    transport, _ = await loop.connect_write_pipe(lambda: protocol, os.fdopen(writing, "wb", 0))
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    ending = asyncio.ensure_future(run.finish())
    ending.add_done_callback(lambda _: fed.reader.feed_eof())
    pipe = fed.pipe = Pipe(
        fed.reader, writer, lambda: run.stop("broken", 0.0), lambda: run.ended and run.ended.exit_code
    )
    try:
        yield pipe
    finally:
        transport.close()
        await asyncio.wait({ending}, timeout=CLOSE_S)
        run.stop("closed", CLOSE_S)
        await asyncio.wait({ending}, timeout=2 * CLOSE_S)
