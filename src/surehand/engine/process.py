"""Run a handler in its own process, which can be killed at its deadline.

The child is a new interpreter that imports the function by name, so the function must be at the top level of an
importable module (or of the script that was started). Arguments and result are passed as JSON.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import runpy
import signal
import sys
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from surehand.commands.collect_changes import KEPT_HINT, put_back_message
from surehand.commands.program_watch import ProgramWatch
from surehand.commands.session import SHELLS
from surehand.core import installation
from surehand.core.call import ToolCall, ToolError, ToolResult
from surehand.core.context import ToolContext
from surehand.core.effects import Connect
from surehand.core.errors import ToolFailure
from surehand.core.tool import FunctionTool, Tool
from surehand.engine.arguments import repair_arguments
from surehand.files.protected_paths import PRIVATE, homes, inside
from surehand.registry.loading import find_by_name, import_problem
from surehand.sandbox.command import Command
from surehand.sandbox.denials import explain

if TYPE_CHECKING:
    from surehand.sandbox.protocol import Runner

_CHILD: Final = (
    "import json, sys; order = json.load(open(int(sys.argv[1]))); sys.path[:] = order['path']; "
    "from surehand.engine.process import carry_out; carry_out(order, int(sys.argv[2]))"
)
_LIFTED: Final = "It runs in the sandbox: the user's [sandbox] process_tools = false lifts that."

importing = False
"""True in a child while it imports the tool's module, which must not run as a program then."""


class ProgramStarted(SystemExit):
    """Raised if a module runs as a program while a child imports it. A SystemExit, which programs do not catch."""


async def run_in_process(tool: Tool, ctx: ToolContext) -> ToolResult:
    """Run the tool's function in a new process and return its result; on cancellation the process is killed.

    It runs in the session's sandbox, if there is one, unless the settings say otherwise.
    """
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
        "args": dict(ctx.served.args),
        "path": sys.path,
    }
    content = json.dumps(order).encode()
    if (launcher := await _sandbox_for(tool, function.__module__, ctx)) is not None:
        answer, code, why = await _run_contained(launcher, content, tool.name, ctx)
    else:
        answer, code, why = *await _run_as_user(content, ctx), ""
    if not answer:
        raise ToolFailure(f"the process of {tool.name} ended with code {code} and no result{why and f': {why}'}")
    reply: dict[str, Any] = json.loads(answer)
    if "crash" in reply:
        raise RuntimeError(reply["crash"] + (_explain_denial(reply["crash"], launcher) if launcher else ""))
    return ToolResult.from_dict(reply)


async def _sandbox_for(tool: Tool, module: str, ctx: ToolContext) -> Runner | None:
    """Return the runner that starts the tool in the sandbox; None to run it as the user."""
    if not ctx.session.settings.sandbox.process_tools:
        return None
    network = tool.effects is not None and any(
        isinstance(effect, Connect) for effect in tool.effects(tool.arguments.check(ctx.served.args), ctx) or ()
    )
    return await ctx.session.keep(SHELLS).tool_launcher(_own_code(module), network=network)


def _own_code(module: str) -> tuple[str, ...]:
    """Return the paths of a tool's code: the directory its module is imported from.

    If that is a home or temporary directory, only the modules loaded from it.
    """
    path = getattr(sys.modules.get(module), "__file__", None)
    if path is None:
        return ()
    folder = os.path.dirname(os.path.realpath(path))
    inner = 0 if _script(module) else module.count(".") + (os.path.basename(path) == "__init__.py")
    for _ in range(inner):
        folder = os.path.dirname(folder)
    if not any(inside(each, [folder]) for each in (*homes(), *PRIVATE)):
        return (folder,)
    files: list[str | None] = [getattr(each, "__file__", None) for each in list(sys.modules.values())]
    loaded = [os.path.realpath(each) for each in files if each]
    tops = (os.path.join(folder, each[len(folder) :].split(os.sep)[1]) for each in loaded if inside(each, [folder]))
    return tuple(dict.fromkeys(tops))


async def _run_contained(launcher: Runner, order: bytes, name: str, ctx: ToolContext) -> tuple[bytes, int, str]:
    """Run the child in the sandbox; return its reply, its exit code and, if it was killed, the reason.

    A tool that changed protected files fails, whatever it replies.
    """
    environment = ctx.session.keep(SHELLS).environment(ctx.served.id) | installation.find_library_paths()
    watch = ProgramWatch(ctx.session, launcher, name)
    reader, writer = os.pipe()
    try:
        # Descriptor 10 (of commands, the script) is the request; 11 receives the reply.
        command = Command((sys.executable, "-c", _CHILD, "10", "11"), ctx.cwd, environment, order, (writer,))
        run = launcher.run(command, _print, _print, change_log=watch.change_log)
    except BaseException:
        os.close(reader)
        await watch.finish_with_note(None)
        raise
    finally:
        os.close(writer)
    try:
        answer, ended = await asyncio.gather(_read_all(reader), run.finish())
    except asyncio.CancelledError:
        run.stop("cancelled", 0.0)
        await asyncio.shield(run.finish())
        await watch.finish_with_note(run.ended)
        raise
    if found := await watch.finish(ended):
        raise ToolFailure(put_back_message(name, found), hint=KEPT_HINT)
    return answer, ended.exit_code, ended.stopped


def _print(data: bytes) -> None:
    """Write what a handler printed to stderr: it is not part of the result."""
    if _has_descriptor(sys.stderr):
        try:
            os.write(sys.stderr.fileno(), data)
        except OSError:
            pass  # stderr is closed


def _explain_denial(crash: str, launcher: Runner) -> str:
    """Explain which rule of the sandbox denied something to a tool, and which setting lifts it."""
    met = explain(crash, launcher.profile, 1)
    return f". {met} {_LIFTED}" if met or "ModuleNotFoundError" in crash else ""


async def _run_as_user(order: bytes, ctx: ToolContext) -> tuple[bytes, int]:
    """Run the child without a sandbox; return its reply and exit code."""
    reader, writer = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            _CHILD,
            "0",
            str(writer),
            stdin=asyncio.subprocess.PIPE,
            # What the handler prints is not part of the result; it goes to our stderr.
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
        answer, _ = await asyncio.gather(_read_all(reader), process.communicate(order))
    finally:
        await _end(process)
    return answer, process.returncode or 0


def _script(module: str) -> str | None:
    """Return the file of a module that cannot be imported by name: the main script, or a tool loaded from a file."""
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
    """Kill the process group, which includes the processes that the handler started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    await process.wait()


# -- the child's side --------------------------------------------------------------------------------------------------


def carry_out(order: dict[str, Any], descriptor: int) -> None:
    """In the child: import the function by name, run it, and write the reply to `descriptor`."""
    _die_with_parent()
    with os.fdopen(descriptor, "w", encoding="utf-8") as answer:
        json.dump(_answer(order), answer, ensure_ascii=False)


def _answer(order: dict[str, Any]) -> dict[str, Any]:
    try:
        return ToolResult.of(_run_target(order)).with_meta(resources=_measure_use()).to_dict()
    except ToolFailure as failure:
        return ToolResult.failed(ToolError.of(failure), data=failure.data, output=failure.output).to_dict()
    except BaseException as problem:  # passed to the parent, which interprets it
        return {"crash": f"{type(problem).__name__}: {problem}"}


def _run_target(order: dict[str, Any]) -> Any:
    target = _import_target(order)
    if not isinstance(target, Tool):
        value = target(**order["args"])
    else:
        args, _ = repair_arguments(target, ToolCall(target.name, order["args"]))
        if not isinstance(target, FunctionTool):
            raise ToolFailure("only a function under @tool runs in a process")
        value = target.run(args, None)  # pyright: ignore[reportArgumentType]  # there is no session in this process
    return asyncio.run(value) if inspect.iscoroutine(value) else value


def _import_target(order: dict[str, Any]) -> Any:
    """Import the function a request names, without running its module as a program."""
    global importing
    importing = True
    try:
        if order["script"]:
            # As multiprocessing does: with another `__name__`, the `if __name__ == "__main__"` part is not run.
            names = runpy.run_path(order["script"], run_name="__surehand_main__")
            first, *rest = order["name"].split(".")
            return reduce(getattr, rest, names[first])
        return reduce(getattr, order["name"].split("."), importlib.import_module(order["module"]))
    except ProgramStarted:
        raise ToolFailure(
            f"{order['script'] or order['module']} starts its program when it is imported",
            code="tool_unavailable",
            hint='Put that under `if __name__ == "__main__":`, or move the tool to a module of its own.',
        ) from None
    finally:
        importing = False


def _measure_use() -> dict[str, float | int]:
    """Return the resources used by this process, which are those of the call."""
    import resource

    own = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "cpu_s": own.ru_utime + own.ru_stime,
        "max_rss_bytes": own.ru_maxrss * (1024 if sys.platform == "linux" else 1),
        "io_operations": own.ru_inblock + own.ru_oublock,
    }


def _die_with_parent() -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
