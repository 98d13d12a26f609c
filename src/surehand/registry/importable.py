"""Can a new process import this tool's function by its name, without running the program that made it?

A tool with `where="process"` runs in a fresh interpreter that finds the function by module and name. What was made by
another function has no such name; a script that starts its program when it is imported would start it again.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterable, Iterator
from typing import Any, Final

from surehand.core.tool import Tool

_MOVE: Final = "define it at the top of a module of its own and import it from there"
_GUARD: Final = 'put that under `if __name__ == "__main__":`, or move the tool to a module of its own'
_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Pass)
_VALUES: Final = (ast.Assign, ast.AnnAssign, ast.AugAssign)
_STARTERS: Final = frozenset({"run", "run_until_complete", "run_forever", "main"})


def import_problem(tool: Tool) -> str | None:
    """Say why a process cannot import the tool's function, and what to do; None where it can."""
    function: Any = getattr(tool, "function", tool.run)
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "<")
    if module is None or "<" in name:
        return f"a process cannot import {name.replace('<locals>.', '')}, which another function made: {_MOVE}"
    found = find_by_name(module, name)
    if found is not None and found is not tool and found is not function and getattr(found, "function", 0) != function:
        return f"{module}.{name} is something else than this tool's function, and a process would run that: {_MOVE}"
    return _script_problem() if module == "__main__" else None


def find_by_name(module: str, name: str) -> Any:
    """Return what a loaded module holds under a dotted name; None where that is not (or not yet) there."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def refer_to(tool: Tool) -> Tool | str:
    """Return `module:name` where another process finds this very tool, and otherwise the tool itself, to be pickled."""
    function: Any = getattr(tool, "function", tool.run)
    module, name = getattr(function, "__module__", "") or "", getattr(function, "__qualname__", "<")
    own = module != "__main__" and "<" not in name and find_by_name(module, name) is tool
    return f"{module}:{name}" if own else tool


def load_tool(reference: Tool | str) -> Tool:
    """Return the tool that another process referred to."""
    if isinstance(reference, Tool):
        return reference
    module, _, name = reference.partition(":")
    importlib.import_module(module)
    return find_by_name(module, name)


def _script_problem() -> str | None:
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    try:
        with open(path or "", encoding="utf-8") as file:
            started = next(_starts(ast.parse(file.read())), None)
    except (OSError, ValueError, SyntaxError):
        return f"the program is no file that a process could import: {_MOVE}"
    if started is None:
        return None
    return f"{path}:{started.lineno} runs when the script is imported, so a process would start it again: {_GUARD}"


def _starts(script: ast.Module) -> Iterator[ast.stmt]:
    """Yield the statements at the top of a script that do more than define names."""
    own = {each.name for each in script.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
    for statement in script.body:
        if isinstance(statement, _DEFINITIONS) or _is_guard(statement):
            continue
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue
        if isinstance(statement, _VALUES) and not any(_is_start(each, own) for each in ast.walk(statement)):
            continue
        if isinstance(statement, ast.Try) and _all_imports(statement):
            continue
        yield statement


def _is_guard(statement: ast.stmt) -> bool:
    """Tell whether a statement is `if __name__ == "__main__":` or `if TYPE_CHECKING:`."""
    if not isinstance(statement, ast.If) or statement.orelse:
        return False
    names = {each.id for each in ast.walk(statement.test) if isinstance(each, ast.Name)}
    return names in ({"__name__"}, {"TYPE_CHECKING"})


def _is_start(node: ast.AST, own: set[str]) -> bool:
    """Tell whether a call starts a program: a function of the script, or `asyncio.run` and its like."""
    if isinstance(node, ast.Await):
        return True
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    if isinstance(called, ast.Name):
        return called.id in own or called.id in _STARTERS
    return isinstance(called, ast.Attribute) and called.attr in _STARTERS


def _all_imports(statement: ast.Try) -> bool:
    parts: Iterable[list[ast.stmt]] = (statement.body, *(each.body for each in statement.handlers), statement.orelse)
    return all(isinstance(each, (*_DEFINITIONS, *_VALUES)) for part in parts for each in part)
