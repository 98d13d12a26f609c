"""A stdio server's process: a clean environment, bounded lines, a bounded tail of its stderr, and a sure end."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from holdfast.core.errors import ToolFailure
from holdfast.host import environment
from holdfast.mcp.lines import LINE_LIMIT, Lines

STDERR_KEPT: Final = 16 * 1024
"""Bytes of a server's stderr that are kept, the latest ones."""
NOISE_LIMIT: Final = 10_000
"""Lines on stdout that are no messages; a server that prints more is broken."""
CLOSE_S: Final = 2.0
"""How long a server may take to end when its input closes, and again after SIGTERM."""


class Pipe:
    """A running server process, and what it says besides messages."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        assert process.stdin is not None
        self.process = process
        self.lines = Lines(process.stdout, process.stdin, self._hear_noise)
        self.noise = 0
        self.broken = ""
        self._stderr = bytearray()

    @property
    def stderr(self) -> str:
        """The latest the server wrote to its stderr."""
        return self._stderr.decode("utf-8", "replace")

    async def _hear_noise(self, code: int, text: str) -> None:
        """Skip a line that is no message; a line too long or too many of them end the connection."""
        self.noise += 1
        if "longer than" in text or self.noise > NOISE_LIMIT:
            self.broken = "it sent a line that is too long" if "longer" in text else "it prints what is no message"
            self.process.kill()

    async def read_stderr(self) -> None:
        """Read along, so that a server never waits for somebody to read, and keep only the end."""
        assert self.process.stderr is not None
        while chunk := await self.process.stderr.read(1 << 16):
            self._stderr += chunk
            del self._stderr[:-STDERR_KEPT]

    def why_ended(self) -> str:
        """Say why the server no longer answers."""
        if self.broken:
            return self.broken
        code = self.process.returncode
        last = self.stderr.strip().splitlines()[-1:]
        said = f"; its last words: {last[0][:300]}" if last else ""
        return (f"it ended with code {code}" if code is not None else "it closed its output") + said

    async def close(self) -> None:
        """End the process and everything in its group."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            if number is not None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.process.pid, number)
            try:
                async with asyncio.timeout(CLOSE_S):
                    await self.process.wait()
                break
            except TimeoutError:
                continue
        with suppress(ProcessLookupError, PermissionError):
            for _ in range(50):  # what it left behind, until nothing of it is there
                os.killpg(self.process.pid, signal.SIGKILL)
                await asyncio.sleep(0.01)


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
        )
    except (OSError, ValueError) as problem:
        raise ToolFailure(
            f"{command!r} cannot be started: {problem}", code="tool_unavailable", hint="Is it installed, and on PATH?"
        ) from problem
    pipe = Pipe(process)
    reading = asyncio.ensure_future(pipe.read_stderr())
    try:
        yield pipe
    finally:
        closing = asyncio.ensure_future(pipe.close())
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


class OverPipe:
    """The transport the SDK's client enters: the process is already there."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    async def __aenter__(self) -> tuple[Any, Any]:
        return self._pipe.lines, self._pipe.lines

    async def __aexit__(self, *problem: object) -> None:
        del problem
