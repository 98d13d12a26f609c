"""Running a handler in a process of its own, which really stops at its deadline.

The child is a new interpreter that imports the function by name, so the function must stand at the top of an
importable module (or of the script that was started). Arguments and result cross as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

from surehand.core.call import ToolResult
from surehand.core.context import ToolContext
from surehand.core.errors import ToolFailure
from surehand.core.tool import Tool
from surehand.registry.importable import find_by_name, import_problem

importing = False
"""True in a child while it imports the tool's module: nothing there may start a program."""


class ProgramStarted(SystemExit):
    """A module began to run its program while a child imported it; ends the child, whatever the program catches."""


async def run_in_process(tool: Tool, ctx: ToolContext) -> ToolResult:
    """Run the tool's function in a new process and return its result; on cancellation the process is killed."""
    if importing:
        raise ProgramStarted
    function = getattr(tool, "function", tool.run)
    if (problem := import_problem(tool)) or find_by_name(function.__module__, function.__qualname__) is None:
        problem = problem or f"{function.__module__} has no {function.__qualname__} for a process to import"
        raise ToolFailure(f"{tool.name} cannot run in a process: {problem}", code="tool_unavailable")
    order = {
        "module": function.__module__,
        "name": function.__qualname__,
        "script": _script(function.__module__),
        "args": dict(ctx.call.args),
        "path": sys.path,
    }
    reader, writer = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "surehand.engine.process_child",
            str(writer),
            stdin=asyncio.subprocess.PIPE,
            # What the handler prints is no result: it goes where our own diagnostics go.
            stdout=sys.stderr.fileno() if _has_descriptor(sys.stderr) else asyncio.subprocess.DEVNULL,
            pass_fds=(writer,),
            cwd=ctx.cwd,
            start_new_session=True,
        )
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    try:
        answer, _ = await asyncio.gather(_read_all(reader), process.communicate(json.dumps(order).encode()))
    finally:
        await _end(process)
    if not answer:
        raise ToolFailure(f"the process of {tool.name} ended with code {process.returncode} and no result")
    reply: dict[str, Any] = json.loads(answer)
    if "crash" in reply:
        raise RuntimeError(reply["crash"])
    return ToolResult.from_dict(reply)


def _script(module: str) -> str | None:
    """Return the file to run for a module that cannot be imported by name: the program itself, or a loaded file."""
    found = sys.modules.get(module)
    importable = module != "__main__" and getattr(found, "__spec__", None) is not None
    return None if importable else getattr(found, "__file__", None)


def _has_descriptor(stream: Any) -> bool:
    try:
        return stream.fileno() >= 0
    except (AttributeError, OSError, ValueError):
        return False


async def _read_all(descriptor: int) -> bytes:
    loop = asyncio.get_running_loop()
    stream = asyncio.StreamReader(limit=2**24)
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(descriptor, "rb", buffering=0)
    )
    try:
        return await stream.read()
    finally:
        transport.close()


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the whole group: what the handler started goes with it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    await process.wait()
