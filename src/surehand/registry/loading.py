"""Loading tools from elsewhere: installed packages, module paths, and folders of Python files that may change.

A source is a module path, an entry point or a file. Loading it again replaces its tools, all or none: if it does not
load, its old tools stay and one error is reported.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from types import CodeType, ModuleType
from typing import Any, Final, Protocol, cast

from surehand import __version__
from surehand.core.errors import RegistrationError, SurehandError
from surehand.core.frozen import frozen
from surehand.core.tool import Tool, ToolInfo
from surehand.state.files import write_private_json

GROUP: Final = "surehand.tools"
"""The entry point group under which installed packages offer tools."""
FOLDER: Final = os.path.join(".surehand", "tools")
"""Where a workspace keeps tools of its own; used only once the user trusts the workspace."""
FILE_LIMIT: Final = 1024 * 1024
CHECK_AGAIN_MS: Final = 2000
_LISTING: Final = "own_tools.json"


class Registrar(Protocol):
    """Where loaded tools are registered; the registry is one."""

    def exchange(self, away: Iterable[str], tools: Iterable[Tool], *, deferrable: bool = False) -> list[Tool]:
        """Replace tools by others, all or none."""
        ...


@frozen
class Loaded:
    """The outcome of loading one source: the names of its tools now, and the problem if it did not load."""

    source: str
    tools: tuple[str, ...] = ()
    problem: str = ""

    @property
    def ok(self) -> bool:
        """Whether the tools were loaded."""
        return not self.problem

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"source": self.source, "tools": list(self.tools), "problem": self.problem or None}


Report = Callable[[Loaded], None]


class Loader:
    """Loads tools from sources and records which source each came from."""

    def __init__(self, registry: Registrar, report: Report | None = None) -> None:
        self._registry = registry
        self._report = report or _unheard
        self._given: dict[str, tuple[str, ...]] = {}
        self._digests: dict[str, str] = {}
        """File → digest of the content last tried: each version is tried, and its problem reported, once."""

    # Sources ---------------------------------------------------------------------------------------------------------

    def load_module(self, path: str) -> Loaded:
        """Load tools from `package.module` (its `TOOLS`, or every tool in it) or `package.module:name`."""
        return self._take(path, lambda: _from_path(path))

    def load_entry_points(self) -> list[Loaded]:
        """Load the tools of installed packages from the entry point group `surehand.tools`."""
        return [
            self._take(f"{name} = {path}", _loader(path, name), deferrable=True) for name, path in entry_points(GROUP)
        ]

    def load_file(self, path: str) -> Loaded | None:
        """Load one Python file; None if its content is the same as at the last try."""
        try:
            source = _read(path)
        except OSError as problem:
            return self._report_loaded(
                Loaded(path, self._given.get(path, ()), f"{path} cannot be read: {problem.strerror}")
            )
        digest = hashlib.sha256(source).hexdigest()
        if self._digests.get(path) == digest:
            return None
        self._digests[path] = digest
        return self._take(path, lambda: _from_source(path, source, digest))

    def load_folder(self, folder: str) -> list[Loaded]:
        """Update the tools of a folder's `*.py` files: load new and changed ones, drop removed ones."""
        paths = sorted(_python_files(folder))
        gone = [path for path in self._given if os.path.dirname(path) == folder and path not in paths]
        loaded = [self._drop(path) for path in gone]
        return loaded + [found for path in paths if (found := self.load_file(path)) is not None]

    async def watch(
        self,
        folder: str,
        allowed: Callable[[], bool] = lambda: True,
        tell_waiting: Callable[[], None] = lambda: None,
    ) -> None:
        """Keep a folder's tools up to date until cancelled.

        Changes are loaded as soon as `allowed()` is true; `tell_waiting` is called when changes must wait for it.
        """
        import asyncio

        from watchfiles import awatch  # pyright: ignore[reportUnknownVariableType]  # its stop_event is not typed

        pending = True
        while True:
            if not _is_folder(folder):
                await asyncio.sleep(CHECK_AGAIN_MS / 1000)
                continue
            async for changes in awatch(folder, recursive=False, yield_on_timeout=True, rust_timeout=CHECK_AGAIN_MS):
                pending = pending or bool(changes)
                if pending and allowed():
                    pending = False
                    self.load_folder(folder)
                elif changes:
                    tell_waiting()
                if not _is_folder(folder):
                    break

    def list_given(self, folder: str) -> list[str]:
        """Return the names of the tools loaded from the files of a folder."""
        return [name for path, names in self._given.items() if os.path.dirname(path) == folder for name in names]

    # Inside ----------------------------------------------------------------------------------------------------------

    def _take(self, source: str, load: Callable[[], list[Tool]], *, deferrable: bool = False) -> Loaded:
        before = self._given.get(source, ())
        try:
            tools = load()
            if not tools:
                raise SurehandError("it contains no tools; put @tool on a function, or list them in TOOLS")
            self._registry.exchange(before, tools, deferrable=deferrable)
        except RegistrationError as problem:
            return self._report_loaded(Loaded(source, before, f"{source}: {problem}"))
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as problem:  # foreign code may raise anything on import, even SystemExit
            return self._report_loaded(Loaded(source, before, _describe_problem(source, problem)))
        self._given[source] = tuple(tool.name for tool in tools)
        return self._report_loaded(Loaded(source, self._given[source]))

    def _drop(self, path: str) -> Loaded:
        names = self._given.pop(path)
        self._digests.pop(path, None)
        try:
            self._registry.exchange(names, ())
        except RegistrationError as problem:
            self._given[path] = names
            return self._report_loaded(Loaded(path, names, f"{path} is gone, but: {problem}"))
        return self._report_loaded(Loaded(path))

    def _report_loaded(self, loaded: Loaded) -> Loaded:
        self._report(loaded)
        return loaded


def entry_points(group: str) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of a group's entry points.

    Reads the metadata files directly: `importlib.metadata` imports the email parser, which costs more than the rest
    of the start.
    """
    for folder in dict.fromkeys(sys.path):
        try:
            entries = [
                entry.path for entry in os.scandir(folder or ".") if entry.name.endswith((".dist-info", ".egg-info"))
            ]
        except OSError:
            continue
        for entry in sorted(entries):
            yield from _group(os.path.join(entry, "entry_points.txt"), group)


def _group(path: str, group: str) -> Iterator[tuple[str, str]]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(FILE_LIMIT)
    except OSError:
        return
    if f"[{group}]" not in text:
        return
    inside = False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            inside = line == f"[{group}]"
        elif inside and "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            yield name.strip(), value.strip().partition(" ")[0]


def _loader(path: str, module: str) -> Callable[[], list[Tool]]:
    def load() -> list[Tool]:
        from dataclasses import replace

        return [tool if tool.module else replace(tool, module=module) for tool in _from_path(path)]

    return load


def _from_path(path: str) -> list[Tool]:
    module, _, name = path.partition(":")
    found: Any = importlib.import_module(module)
    for part in filter(None, name.split(".")):
        found = getattr(found, part)
    return _tools(found)


def _from_source(path: str, source: bytes, digest: str) -> list[Tool]:
    """Execute a file as a module, and keep it in `sys.modules` for pickles and tracebacks."""
    stem = os.path.splitext(os.path.basename(path))[0]
    module = ModuleType(f"surehand_file_tools.{stem}_{digest[:12]}")
    module.__file__ = path
    sys.modules[module.__name__] = module
    try:
        exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)
        return _tools(module)
    except BaseException:
        del sys.modules[module.__name__]
        raise


class _SourceLoader(SourceFileLoader):
    """Loads a module from its source, and never from a compiled copy in `__pycache__`."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)  # pyright: ignore[reportReturnType]  # code, not a tree


_by_source: list[str] = []


def import_by_source(folder: str) -> None:
    """Make Python import the modules of a directory from source only.

    Trust covers the sources; a command may have written a forged compiled copy.
    """
    if not _by_source:
        sys.path_hooks.insert(0, _find_by_source)
    if folder not in _by_source:
        _by_source.append(folder)
        for path in [each for each in sys.path_importer_cache if os.path.realpath(each).startswith(f"{folder}/")]:
            del sys.path_importer_cache[path]


def _find_by_source(path: str) -> FileFinder:
    real = os.path.realpath(path)
    if "site-packages" in real or not any(f"{real}/".startswith(f"{each}/") for each in _by_source):
        raise ImportError(path)
    return FileFinder(
        path,
        (ExtensionFileLoader, EXTENSION_SUFFIXES),
        (_SourceLoader, SOURCE_SUFFIXES),
        (SourcelessFileLoader, BYTECODE_SUFFIXES),
    )


def _tools(found: Any) -> list[Tool]:
    """Return the tools of an object: a tool, a list of tools, a function that returns them, or a module."""
    if isinstance(found, Tool):
        return [found]
    if isinstance(found, ModuleType):
        listed = getattr(found, "TOOLS", None)
        if listed is None:
            return list(dict.fromkeys(each for each in vars(found).values() if isinstance(each, Tool)))
        found = listed
    elif callable(found):
        return _tools(found())
    members = list(cast("Iterable[Any]", found))
    if strange := [repr(each) for each in members if not isinstance(each, Tool)]:
        raise SurehandError(f"not a tool: {', '.join(strange[:5])}")
    return cast("list[Tool]", members)


def _python_files(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [
                entry.path
                for entry in entries
                if entry.name.endswith(".py") and not entry.name.startswith(("_", ".")) and entry.is_file()
            ]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_folder(path: str) -> bool:
    return os.path.isdir(path)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        source = file.read(FILE_LIMIT + 1)
    if len(source) > FILE_LIMIT:
        raise OSError(27, f"larger than {FILE_LIMIT:,} bytes")
    return source


def _describe_problem(source: str, problem: BaseException) -> str:
    """Return one line on what went wrong, with the line of the file where it did."""
    if isinstance(problem, SyntaxError):
        return f"{source}:{problem.lineno or 0}: {problem.msg}"
    line = 0
    trace = problem.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == source:
            line = trace.tb_lineno
        trace = trace.tb_next
    where = f"{source}:{line}" if line else source
    return (
        f"{where}: {type(problem).__name__}: {problem}"
        if not isinstance(problem, SurehandError)
        else f"{where}: {problem}"
    )


def _unheard(loaded: Loaded) -> None:
    del loaded


def save_listing(state_dir: str, files: Mapping[str, str], infos: Iterable[ToolInfo]) -> None:
    """Save the infos of a workspace's own tools with the digests of their files, to list them without importing."""
    os.makedirs(state_dir, mode=0o700, exist_ok=True)
    listing = {"of": _describe_inputs(files), "tools": [info.to_dict() for info in infos]}
    write_private_json(os.path.join(state_dir, _LISTING), listing)


def load_listing(state_dir: str, files: Mapping[str, str]) -> list[ToolInfo] | None:
    """Return the saved infos; None if there are none, or if one of the files has changed since."""
    try:
        with open(os.path.join(state_dir, _LISTING), encoding="utf-8") as file:
            listing = json.load(file)
        if listing["of"] != _describe_inputs(files):
            return None
        return [ToolInfo.from_dict(row) for row in listing["tools"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _describe_inputs(files: Mapping[str, str]) -> dict[str, Any]:
    """Return everything a saved listing depends on."""
    return {"files": dict(files), "surehand": __version__, "python": sys.version}


# Can a new process import this tool's function by its name, without running the program that made it?
#
# A tool with `where="process"` runs in a fresh interpreter that finds the function by module and name. A function made
# by another function has no such name, and importing a script without a `__main__` guard would start it again.

_MOVE: Final = "define it at the top of a module of its own and import it from there"
_GUARD: Final = 'put that under `if __name__ == "__main__":`, or move the tool to a module of its own'
_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Pass)
_VALUES: Final = (ast.Assign, ast.AnnAssign, ast.AugAssign)
_STARTERS: Final = frozenset({"run", "run_until_complete", "run_forever", "main"})


def import_problem(tool: Tool) -> str | None:
    """Return why a process cannot import the tool's function, and what to do; None if it can."""
    function: Any = getattr(tool, "function", tool.run)
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "<")
    if module is None or "<" in name:
        return f"a process cannot import {name.replace('<locals>.', '')}, which another function made: {_MOVE}"
    found = find_by_name(module, name)
    if found is not None and found is not tool and found is not function and getattr(found, "function", 0) != function:
        return f"{module}.{name} is something else than this tool's function, and a process would run that: {_MOVE}"
    return _script_problem() if module == "__main__" else None


def find_by_name(module: str, name: str) -> Any:
    """Return the attribute of a loaded module by its dotted name; None if it does not exist (yet)."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def refer_to(tool: Tool) -> Tool | str:
    """Return `module:name` if another process can import this tool by it, else the tool itself, to be pickled."""
    function: Any = getattr(tool, "function", tool.run)
    module, name = getattr(function, "__module__", "") or "", getattr(function, "__qualname__", "<")
    own = module != "__main__" and "<" not in name and find_by_name(module, name) is tool
    return f"{module}:{name}" if own else tool


def load_tool(reference: Tool | str) -> Tool:
    """Return the tool for what `refer_to` returned in another process."""
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
    """Yield the top-level statements of a script that may start its program."""
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
    """Return whether a statement is `if __name__ == "__main__":` or `if TYPE_CHECKING:`."""
    if not isinstance(statement, ast.If) or statement.orelse:
        return False
    names = {each.id for each in ast.walk(statement.test) if isinstance(each, ast.Name)}
    return names in ({"__name__"}, {"TYPE_CHECKING"})


def _is_start(node: ast.AST, own: set[str]) -> bool:
    """Return whether a node awaits, or calls a function of the script, or `asyncio.run` and the like."""
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
