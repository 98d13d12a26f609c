"""The other side of `engine.process`: import a function by name, run it, write its result to a pipe."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import runpy
import sys
from functools import reduce
from typing import Any

from surehand.core.call import ToolCall, ToolError, ToolResult
from surehand.core.errors import ToolFailure
from surehand.core.tool import FunctionTool, Tool
from surehand.engine import process
from surehand.engine.arguments import repair_arguments


def main(order: dict[str, Any], descriptor: int) -> None:
    """Carry out an order, answer on `descriptor`."""
    _die_with_parent()
    with os.fdopen(descriptor, "w", encoding="utf-8") as answer:
        json.dump(_carried_out(order), answer, ensure_ascii=False)


def _carried_out(order: dict[str, Any]) -> dict[str, Any]:
    try:
        return ToolResult.of(_run(order)).with_meta(resources=_measure_use()).to_dict()
    except ToolFailure as failure:
        return ToolResult.failed(ToolError.of(failure), data=failure.data, output=failure.output).to_dict()
    except BaseException as problem:  # handed over as it is; the parent decides what it means
        return {"crash": f"{type(problem).__name__}: {problem}"}


def _run(order: dict[str, Any]) -> Any:
    target = _import_target(order)
    if not isinstance(target, Tool):
        value = target(**order["args"])
    else:
        args, _ = repair_arguments(target, ToolCall(target.name, order["args"]))
        if not isinstance(target, FunctionTool):
            raise ToolFailure("only a function under @tool runs in a process")
        value = target.run(args, None)  # pyright: ignore[reportArgumentType]  # a process has no session to show
    return asyncio.run(value) if inspect.iscoroutine(value) else value


def _import_target(order: dict[str, Any]) -> Any:
    """Return what the order names; the program of the module it stands in is not run."""
    process.importing = True
    try:
        if order["script"]:
            # The same trick as multiprocessing: the script's names without its `if __name__ == "__main__"` part.
            names = runpy.run_path(order["script"], run_name="__surehand_main__")
            first, *rest = order["name"].split(".")
            return reduce(getattr, rest, names[first])
        return reduce(getattr, order["name"].split("."), importlib.import_module(order["module"]))
    except process.ProgramStarted:
        raise ToolFailure(
            f"{order['script'] or order['module']} starts its program when it is imported",
            code="tool_unavailable",
            hint='Put that under `if __name__ == "__main__":`, or move the tool to a module of its own.',
        ) from None
    finally:
        process.importing = False


def _measure_use() -> dict[str, float | int]:
    """Return what this process used: it is the call's own, so the figures are too."""
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
        import signal

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
