"""A stdio server's process: a clean environment, bounded lines, a bounded tail of its stderr, and a sure end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from surehand.commands import environment
from surehand.core.errors import ToolFailure
from surehand.files.sanitize import visible
from surehand.mcp.lines import LINE_LIMIT, Lines

STDERR_KEPT: Final = 16 * 1024
"""Bytes of a server's stderr that are kept, the latest ones."""
NOISE_LIMIT: Final = 10_000
"""Lines on stdout that are no messages; a server that prints more is broken."""
CLOSE_S: Final = 2.0
"""How long a server may take to end when its input closes, and again after SIGTERM."""


class Pipe:
    """A running server, and what it says besides messages."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        kill: Callable[[], object],
        code: Callable[[], int | None],
    ) -> None:
        self.lines = Lines(reader, writer, self._hear_noise)
        self.noise = 0
        self.broken = ""
        self._kill = kill
        self._code = code
        self._stderr = bytearray()
        self.explain: Callable[[], str] = str
        """Says what else may be why the server ended."""

    @property
    def stderr(self) -> str:
        """The latest the server wrote to its stderr."""
        return self._stderr.decode("utf-8", "replace")

    async def _hear_noise(self, code: int, text: str, number: str | int | None) -> None:
        """Skip a line that is no message; too many of them end the connection."""
        del code, text, number
        self.noise += 1
        if self.noise > NOISE_LIMIT:
            self.end("it prints what is no message")

    def hear_stderr(self, chunk: bytes) -> None:
        """Keep the end of what a server writes to its stderr."""
        self._stderr += chunk
        del self._stderr[:-STDERR_KEPT]

    def end(self, why: str) -> None:
        """End a server that does not keep to the protocol."""
        self.broken = why
        self._kill()

    def why_ended(self) -> str:
        """Say why the server no longer answers."""
        if self.broken or self.lines.endless:
            return self.broken or "it sent a line that never ended"
        code = self._code()
        last = self.stderr.strip().splitlines()[-1:]
        said = f"; its last words: {visible(last[0][:300], lines=False)}" if last else ""
        return (f"it ended with code {code}" if code is not None else "it closed its output") + said + self.explain()


@asynccontextmanager
async def piped(command: str, args: Sequence[str], env: Mapping[str, str], cwd: str) -> AsyncGenerator[Pipe]:
    """Run a server for as long as the block lasts."""
    try:
        process = await asyncio.create_subprocess_exec(
            command,
            *args,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment.cleaned(os.environ, env),
            cwd=cwd,
            start_new_session=True,
            limit=LINE_LIMIT,
            preexec_fn=_dies_with_us(),
        )
    except (OSError, ValueError) as problem:
        raise ToolFailure(
            f"{command!r} cannot be started: {problem}", code="tool_unavailable", hint="Is it installed, and on PATH?"
        ) from problem
    assert process.stdout is not None
    assert process.stdin is not None
    pipe = Pipe(process.stdout, process.stdin, process.kill, lambda: process.returncode)
    reading = asyncio.ensure_future(_read_stderr(process, pipe))
    try:
        yield pipe
    finally:
        closing = asyncio.ensure_future(_close(process))
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            await asyncio.wait({closing})
            raise
        finally:
            reading.cancel()
            transport: Any = getattr(process, "_transport", None)
            if transport is not None:
                transport.close()


def _dies_with_us() -> Callable[[], None] | None:
    """Return what a new process does so that it ends when we do, whatever ends us; None where that cannot be."""
    if sys.platform != "linux":
        return None
    from surehand.sandbox.system import PR_SET_PDEATHSIG, prctl

    parent = os.getpid()

    def ask_for_it() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # we have gone meanwhile
            os._exit(1)

    return ask_for_it


async def _read_stderr(process: asyncio.subprocess.Process, pipe: Pipe) -> None:
    """Read along, so that a server never waits for somebody to read."""
    assert process.stderr is not None
    while chunk := await process.stderr.read(1 << 16):
        pipe.hear_stderr(chunk)


async def _close(process: asyncio.subprocess.Process) -> None:
    """End a process and everything in its group."""
    assert process.stdin is not None
    process.stdin.close()
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
        try:
            async with asyncio.timeout(CLOSE_S):
                await process.wait()
            break
        except TimeoutError:
            continue
    with suppress(ProcessLookupError, PermissionError):
        for _ in range(50):  # what it left behind, until nothing of it is there
            os.killpg(process.pid, signal.SIGKILL)
            await asyncio.sleep(0.01)


class OverPipe:
    """The transport the SDK's client enters: the process is already there."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    async def __aenter__(self) -> tuple[Any, Any]:
        return self._pipe.lines, self._pipe.lines

    async def __aexit__(self, *problem: object) -> None:
        del problem
