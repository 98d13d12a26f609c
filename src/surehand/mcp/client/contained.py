"""A stdio server in a sandbox: no secrets, no writes outside.

One that the user put there is in the sandbox of the session's commands, without network unless allowed. One that a
project names has a sandbox with network and a cache of its own, so that `npx` and `uvx` can fetch what they run.
Its end is sure: when its keeper ends it, nothing it started is left, whatever session or group it put itself into.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from surehand.commands import environment
from surehand.commands.session import SHELLS
from surehand.core.errors import ToolFailure
from surehand.core.session import Session
from surehand.files.protected_paths import homes, inside
from surehand.mcp.client.stdio import CLOSE_S, Pipe, piped
from surehand.mcp.lines import LINE_LIMIT
from surehand.sandbox.client import Launcher, bash
from surehand.sandbox.command_run import Command

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
async def of_project(
    session: Session, command: str, args: Sequence[str], env: Mapping[str, str]
) -> AsyncGenerator[Pipe]:
    """Run a server that a project names, contained where that can be, for as long as the block lasts."""
    session.keep(SHELLS).show(_named(command, args))
    found = await session.keep(SHELLS).server_launcher()
    if found is None:
        async with piped(command, args, env, session.workspace) as pipe:
            yield pipe
        return
    launcher, cache = found
    own = {"TMPDIR": session.keep(SHELLS).private_dir, "XDG_CACHE_HOME": cache}
    own |= {name: os.path.join(cache, folder) for name, folder in _CACHES.items()}
    try:
        async with _run(launcher, session.workspace, command, args, {**own, **env}) as pipe:
            pipe.explain = lambda: _explained(pipe, launcher)
            yield pipe
    finally:
        await launcher.close()


def _named(command: str, args: Sequence[str]) -> list[str]:
    """Return the files and folders that a server's command names in full: whoever set it up means them to be read."""
    there = [word for word in (command, *args) if os.path.isabs(word) and os.path.exists(word)]
    return [path for path in there if not any(inside(home, [os.path.realpath(path)]) for home in homes())]


def _explained(pipe: Pipe, launcher: Launcher) -> str:
    """Say that the sandbox may be why a server ended, and what lifts it."""
    from surehand.sandbox.denials import explain

    met = explain(pipe.stderr, launcher.plan, 1)
    return f"{'; ' + met if met else ''}; {_LIFTED}"


_CACHES: Final = {
    "npm_config_cache": "npm",
    "UV_CACHE_DIR": "uv",
    "UV_TOOL_DIR": "uv-tools",
    "PIP_CACHE_DIR": "pip",
    "DENO_DIR": "deno",
}
_LIFTED: Final = (
    "it runs in a sandbox, because the project names it: the user's [sandbox] project_servers = false lifts that"
)


@asynccontextmanager
async def contained(
    session: Session, command: str, args: Sequence[str], env: Mapping[str, str]
) -> AsyncGenerator[Pipe]:
    """Run a server in the sandbox for as long as the block lasts; raise ToolFailure where there is none."""
    session.keep(SHELLS).show(_named(command, args))
    launcher = await session.keep(SHELLS).launcher()
    if not launcher.plan.contained:
        raise ToolFailure(
            "it is to run in the sandbox, and there is none here",
            code="tool_unavailable",
            hint="`surehand doctor` says why; `sandbox = false` for the server runs it without.",
        )
    async with _run(launcher, session.workspace, command, args, env) as pipe:
        yield pipe


@asynccontextmanager
async def _run(
    launcher: Launcher, cwd: str, command: str, args: Sequence[str], env: Mapping[str, str]
) -> AsyncGenerator[Pipe]:
    reading, writing = os.pipe()
    fed = _Fed()
    words = (bash(), "-c", _TAKE_INPUT, "bash", command, *args)
    order = Command(words, cwd, environment.cleaned(os.environ, env), descriptors=(reading,))
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
