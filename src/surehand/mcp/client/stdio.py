"""A client's stdio servers: a server's process with a clean environment and bounded lines.

A server with `sandbox = true` runs in the sandbox of the session's commands, without network unless allowed. One that a
project names runs in a sandbox with network and a cache of its own, so that `npx` and `uvx` can fetch what they run.
When the supervisor of its sandbox ends it, or without a sandbox its reaper, nothing that it started is left, whatever
session or process group it is in.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from surehand import sandbox
from surehand.commands import environment
from surehand.commands.program_watch import ProgramWatch
from surehand.commands.session import SHELLS
from surehand.core import installation
from surehand.core.errors import ToolFailure
from surehand.core.session import Session
from surehand.files.protected_paths import homes, inside
from surehand.files.sanitize import visible
from surehand.mcp.lines import LINE_LIMIT, PIECE_BYTES, Lines
from surehand.sandbox.command import Command, bash
from surehand.sandbox.denials import explain
from surehand.sandbox.protocol import Runner
from surehand.state import locations

STDERR_KEPT: Final = 16 * 1024
"""How many of the latest bytes of a server's stderr are kept."""
NOISE_LIMIT: Final = 10_000
"""Lines on stdout that are no messages; a server that prints more is ended."""
UNREAD_S: Final = 10.0
"""How long a server may leave the answers to its own requests unread."""
END_OF_INPUT_S: Final = 0.5
"""How long a server may take to exit when its input closes. Some ignore that, and closing waits for all."""
TERM_S: Final = 1.0
"""How long it may take after SIGTERM."""
KILL_S: Final = 3.0
"""How long its supervisor may take to kill it, on a busy machine."""
_REAPER: Final = os.path.join(os.path.dirname(sandbox.__file__), "linux", "reaper.py")
_TAKE_INPUT: Final = 'exec "$@" <&10 10<&-'
"""The launcher gives a command no stdin; this makes the pipe that is passed as descriptor 10 its stdin."""


class Pipe:
    """A running server: its messages, its stderr, and how it ended."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        kill: Callable[[], object],
        code: Callable[[], int | None],
    ) -> None:
        self.lines = Lines(reader, writer, self._count_noise, patience_s=UNREAD_S)
        self.noise = 0
        self.fault = ""
        """Why it was ended; empty if it was not."""
        self._kill = kill
        self._code = code
        self._stderr = bytearray()
        self.explain: Callable[[], str] = str
        """Returns a further reason why the server may have ended."""
        self.find_reverted: Callable[[], Awaitable[tuple[str, ...]]] = _find_nothing
        """Reverts what the server has changed and no program may change; returns the paths."""

    @property
    def stderr(self) -> str:
        """The end of what the server wrote to its stderr."""
        return self._stderr.decode("utf-8", "replace")

    async def _count_noise(self, code: int, text: str, request_id: str | int | None) -> None:
        """Skip a line that is no message; too many of them end the connection."""
        del code, text, request_id
        self.noise += 1
        if self.noise > NOISE_LIMIT:
            self.end("it prints output that is not a protocol message")

    def add_stderr(self, chunk: bytes) -> None:
        """Add output of the server's stderr; only its end is kept."""
        self._stderr += chunk
        del self._stderr[:-STDERR_KEPT]

    def end(self, why: str) -> None:
        """Kill a server that violates the protocol."""
        self.fault = why
        self._kill()

    def why_ended(self) -> str:
        """Return why the server no longer answers."""
        if fault := self.fault or self.lines.fault:
            return fault
        code = self._code()
        last_line = self.stderr.strip().splitlines()[-1:]
        stderr = f"; its last words: {visible(last_line[0][:300], lines=False)}" if last_line else ""
        return (f"it ended with code {code}" if code is not None else "it closed its output") + stderr + self.explain()


async def _find_nothing() -> tuple[str, ...]:
    """Find nothing to revert: a server without a sandbox may change what the user may."""
    return ()


@asynccontextmanager
async def piped(command: str, args: Sequence[str], env: Mapping[str, str], cwd: str) -> AsyncGenerator[Pipe]:
    """Run a server inside the block, without a sandbox; what it started ends with it."""
    own = environment.clean_environment(os.environ, env)
    reaper_end, control = os.pipe()
    try:
        argv, reaper_env = _with_reaper(reaper_end, [_find_program(command, own, cwd), *args], own)
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=reaper_env,
            cwd=cwd,
            start_new_session=True,
            limit=PIECE_BYTES,
            pass_fds=[reaper_end],
        )
    except (OSError, ValueError) as problem:
        os.close(control)
        raise ToolFailure(
            f"{command!r} cannot be started: {problem}", code="tool_unavailable", hint="Is it installed, and on PATH?"
        ) from problem
    except BaseException:
        os.close(control)
        raise
    finally:
        os.close(reaper_end)
    assert process.stdout is not None
    assert process.stdin is not None
    ending = _Ending(process, control)
    pipe = Pipe(process.stdout, process.stdin, ending.kill, lambda: process.returncode)
    reading_stderr = asyncio.ensure_future(_read_stderr(process, pipe))
    try:
        yield pipe
    finally:
        try:
            await _finish_even_if_cancelled(ending.close())
        finally:
            reading_stderr.cancel()
            transport: Any = getattr(process, "_transport", None)
            if transport is not None:
                transport.close()


async def _finish_even_if_cancelled(ending: Coroutine[Any, Any, None]) -> None:
    closing = asyncio.ensure_future(ending)
    try:
        await asyncio.shield(closing)
    except asyncio.CancelledError:
        await asyncio.wait({closing})
        raise


def _find_program(command: str, env: Mapping[str, str], cwd: str) -> str:
    """Return the path of a server's program; raise OSError if there is none."""
    name = os.path.join(cwd, command) if os.path.dirname(command) else command
    if (found := shutil.which(name, path=env.get("PATH", os.defpath))) is not None:
        return found
    number = errno.EACCES if os.path.exists(name) else errno.ENOENT
    raise OSError(number, os.strerror(number), command)


def _with_reaper(control: int, argv: list[str], env: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return the command line and environment that run a server below a reaper; on Linux only."""
    if sys.platform != "linux":
        return argv, env
    needed = installation.find_library_paths()
    unset = ",".join(needed.keys() - env.keys())
    return [sys.executable, "-I", "-S", _REAPER, str(control), unset, *argv], {**needed, **env}


class _Ending:
    """Ends a server's process with everything it started: politely first, then by force."""

    def __init__(self, process: asyncio.subprocess.Process, control: int) -> None:
        self._process = process
        self._control = control

    def kill(self) -> None:
        """Kill it now."""
        if self._control >= 0:
            os.close(self._control)  # has its reaper kill everything, which it also does when we die
            self._control = -1
        if sys.platform != "linux":
            with suppress(ProcessLookupError):
                self._process.kill()

    async def close(self) -> None:
        """Close its input and wait, then send SIGTERM, then SIGKILL."""
        process = self._process
        assert process.stdin is not None
        process.stdin.close()
        if not await self._ended_within(END_OF_INPUT_S):
            self._terminate()
            await self._ended_within(TERM_S)
        self.kill()
        await process.wait()  # its reaper gives up after a few seconds
        with suppress(ProcessLookupError, PermissionError):
            for _ in range(50):  # until its process group is empty
                os.killpg(process.pid, signal.SIGKILL)
                await asyncio.sleep(0.01)

    async def _ended_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._process.wait()
        return self._process.returncode is not None

    def _terminate(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGTERM)


async def _read_stderr(process: asyncio.subprocess.Process, pipe: Pipe) -> None:
    """Read all of it, so that a server never blocks on a full pipe."""
    assert process.stderr is not None
    while chunk := await process.stderr.read(1 << 16):
        pipe.add_stderr(chunk)


class OverPipe:
    """The transport that the SDK's client enters, over a running server."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    async def __aenter__(self) -> tuple[Any, Any]:
        return self._pipe.lines, self._pipe.lines

    async def __aexit__(self, *problem: object) -> None:
        del problem


class _SandboxOutput(asyncio.ReadTransport):
    """A stream reader fed with the output of a server in a sandbox."""

    def __init__(self) -> None:
        super().__init__()
        self.reader = asyncio.StreamReader(limit=LINE_LIMIT)
        self.reader.set_transport(self)
        self.pipe: Pipe | None = None

    def pause_reading(self) -> None:
        """End the server: it is far ahead of its reader, and the output of a sandbox cannot be paused."""
        if self.pipe is not None:
            self.pipe.end("it sends more than can be read")

    def resume_reading(self) -> None:
        """Do nothing: reading is never paused."""

    def feed(self, chunk: bytes) -> None:
        self.reader.feed_data(chunk)

    def feed_stderr(self, chunk: bytes) -> None:
        if self.pipe is not None:
            self.pipe.add_stderr(chunk)


@asynccontextmanager
async def of_project(
    session: Session, name: str, command: str, args: Sequence[str], env: Mapping[str, str]
) -> AsyncGenerator[Pipe]:
    """Run a server that a project names inside the block, in a sandbox where there is one."""
    session.keep(SHELLS).show(_list_named_paths(command, args))
    found = await session.keep(SHELLS).server_launcher()
    if found is None:
        compiled = {_COMPILED: os.path.join(locations.server_cache(session.workspace), _CACHES[_COMPILED])}
        async with piped(command, args, {**compiled, **env}, session.workspace) as pipe:
            yield pipe
        return
    launcher, cache = found
    own = {"TMPDIR": session.keep(SHELLS).private_dir, "XDG_CACHE_HOME": cache}
    own |= {name: os.path.join(cache, folder) for name, folder in _CACHES.items()}
    try:
        async with _run(session, launcher, name, command, args, {**own, **env}) as pipe:
            pipe.explain = lambda: _explain_end(pipe, launcher)
            yield pipe
    finally:
        await launcher.close()


def _list_named_paths(command: str, args: Sequence[str]) -> list[str]:
    """Return the existing absolute paths in a server's command, which it may read; none that contains a home."""
    named = [word for word in (command, *args) if os.path.isabs(word) and os.path.exists(word)]
    return [path for path in named if not any(inside(home, [os.path.realpath(path)]) for home in homes())]


def _explain_end(pipe: Pipe, launcher: Runner) -> str:
    """Return that the sandbox may be why a server ended, and which setting turns it off."""
    denial = explain(pipe.stderr, launcher.profile, 1)
    return f"{'; ' + denial if denial else ''}; {_HOW_TO_LIFT}"


_COMPILED: Final = "PYTHONPYCACHEPREFIX"
"""Keeps Python from compiled modules in the workspace: a command may have put them there after it was trusted."""
_CACHES: Final = {
    _COMPILED: "python",
    "npm_config_cache": "npm",
    "UV_CACHE_DIR": "uv",
    "UV_TOOL_DIR": "uv-tools",
    "PIP_CACHE_DIR": "pip",
    "DENO_DIR": "deno",
}
_HOW_TO_LIFT: Final = (
    "it runs in a sandbox, because the project names it: the user's [sandbox] project_servers = false lifts that"
)


@asynccontextmanager
async def contained(
    session: Session, name: str, command: str, args: Sequence[str], env: Mapping[str, str]
) -> AsyncGenerator[Pipe]:
    """Run a server inside the block in the sandbox of commands; raise ToolFailure if there is none."""
    session.keep(SHELLS).show(_list_named_paths(command, args))
    launcher = await session.keep(SHELLS).launcher()
    if not launcher.profile.contained:
        raise ToolFailure(
            "it must run in the sandbox, and there is none on this machine",
            code="tool_unavailable",
            hint="`surehand doctor` says why; `sandbox = false` for the server runs it without.",
        )
    async with _run(session, launcher, name, command, args, env) as pipe:
        yield pipe


@asynccontextmanager
async def _run(
    session: Session, launcher: Runner, name: str, command: str, args: Sequence[str], env: Mapping[str, str]
) -> AsyncGenerator[Pipe]:
    watch = ProgramWatch(session, launcher, f"the MCP server {name}")
    stdin_read, stdin_write = os.pipe()
    output = _SandboxOutput()
    argv = (bash(), "-c", _TAKE_INPUT, "bash", command, *args)
    own = environment.clean_environment(os.environ, env)
    order = Command(argv, session.workspace, own, descriptors=(stdin_read,))
    try:
        run = launcher.run(order, output.feed, output.feed_stderr, change_log=watch.change_log)
    except BaseException:
        os.close(stdin_write)
        await watch.finish_with_note(None)
        raise
    finally:
        os.close(stdin_read)
    loop = asyncio.get_running_loop()
    protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
    transport, _ = await loop.connect_write_pipe(lambda: protocol, os.fdopen(stdin_write, "wb", 0))
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    ending = asyncio.ensure_future(run.finish())
    ending.add_done_callback(lambda _: output.reader.feed_eof())
    pipe = output.pipe = Pipe(
        output.reader, writer, lambda: run.stop("broken", 0.0), lambda: run.ended and run.ended.exit_code
    )
    pipe.find_reverted = lambda: watch.look(run)

    async def close() -> None:
        transport.close()
        await asyncio.wait({ending}, timeout=END_OF_INPUT_S)
        run.stop("closed", TERM_S)
        await asyncio.wait({ending}, timeout=TERM_S + KILL_S)
        await watch.finish_with_note(run.ended)

    try:
        yield pipe
    finally:
        await _finish_even_if_cancelled(close())
