"""Measures of the house, printed by `make house`: files, lines, imports inside functions, hidden cycles, names."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "surehand"
LONGEST = 600
SHORT = 250
"""A module of one importer in its own package is part of it, unless it has more lines than this."""
KEPT_APART = {
    "surehand.console.changes": "one file a page",
    "surehand.console.policy": "one file a page",
    "surehand.console.tools": "one file a page",
    "surehand.console.work": "one file a page",
    "surehand.sandbox.linux.launcher.command": "what runs between fork and exec; its importer is the parent",
    "surehand.sandbox.none": "an implementation of the protocol that imports it",
    "surehand.tools.background": "loaded only for a command in the background",
    "surehand.tools.bash_dry_run": "loaded only for a dry run",
}
"""Modules of one importer that are an idea of their own all the same, and why."""
NO_PARTICIPLES = frozenset(
    ["need", "feed", "seed", "embed", "proceed", "speed", "exceed", "succeed", "thread", "read", "put", "output"]
)
_BANNED = "trial trials tried told settled guests incoming carrying wording asking place places cut"
BANNED = frozenset(_BANNED.split())
"""Words of the glossary's middle column that are wrong in any name; others of them have a right use somewhere."""
_PRICE = re.compile(r"# lazy: .*\d ms")
_PARTICIPLE = re.compile(r"(ed|told|kept|held|seen|shown|made|given|taken|found|said|meant|known|sent|left|put)$")


@cache
def files() -> dict[str, str]:
    """Return the text of every module, by its dotted name."""
    found: dict[str, str] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        words = ("surehand", *path.relative_to(SOURCE).with_suffix("").parts)
        found[".".join(words[:-1] if words[-1] == "__init__" else words)] = path.read_text(encoding="utf-8")
    return found


@cache
def tree_of(module: str) -> ast.Module:
    """Return the syntax tree of a module."""
    return ast.parse(files()[module])


def _targets(node: ast.stmt) -> list[str]:
    """Return our own modules that an import statement names."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names if alias.name in files()]
    if not isinstance(node, ast.ImportFrom) or not node.module or not node.module.startswith("surehand"):
        return []
    inner = [f"{node.module}.{alias.name}" for alias in node.names]
    return [each for each in inner if each in files()] or ([node.module] if node.module in files() else [])


def _only_for_types(tree: ast.Module) -> set[int]:
    return {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }


def _inside_functions(tree: ast.Module) -> set[int]:
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {id(inner) for node in functions for inner in ast.walk(node)}


@cache
def imports(module: str, *, inside: bool) -> tuple[str, ...]:
    """Return the modules of ours that a module imports: at its top, or inside functions."""
    tree = tree_of(module)
    skipped = _only_for_types(tree)
    functions = _inside_functions(tree)
    found: list[str] = []
    for node in ast.walk(tree):
        if id(node) not in skipped and (id(node) in functions) == inside and isinstance(node, ast.stmt):
            found += _targets(node)
    return tuple(found)


def imports_inside_functions() -> list[str]:
    """Return the modules of every import of ours inside a function, one entry each."""
    return [module for module in files() for _ in imports(module, inside=True)]


def unpriced_imports() -> list[str]:
    """Return imports of ours inside functions without their price, `# lazy: mcp, 900 ms`: `module:line`.

    The price is the CPU time of the import in a process that has its importer, measured on two busy cores.
    """
    found: list[str] = []
    for module in files():
        tree, lines = tree_of(module), files()[module].splitlines()
        inside = _inside_functions(tree) - _only_for_types(tree)
        late = (node for node in ast.walk(tree) if id(node) in inside and isinstance(node, ast.stmt))
        found += [
            f"{module}:{node.lineno}" for node in late if _targets(node) and not _PRICE.search(lines[node.lineno - 1])
        ]
    return found


def hidden_cycles() -> list[list[str]]:
    """Return groups of modules that import each other, when imports inside functions count."""
    edges = {module: {*imports(module, inside=True), *imports(module, inside=False)} for module in files()}
    return [sorted(group) for group in _strong_components(edges) if len(group) > 1]


def _strong_components(edges: dict[str, set[str]]) -> list[list[str]]:
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in edges.get(node, ()):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            group: list[str] = []
            while True:
                group.append(stack.pop())
                if group[-1] == node:
                    break
            found.append(group)

    sys.setrecursionlimit(10_000)
    for node in edges:
        if node not in index:
            visit(node)
    return found


def long_modules() -> dict[str, int]:
    """Return modules over the cap, with their lines."""
    return {module: count for module, text in files().items() if (count := text.count("\n")) > LONGEST}


def foldable_modules(kept_apart: Iterable[str] = KEPT_APART) -> list[str]:
    """Return short modules of one importer in their own package that has room for them; they start no process."""
    importers: dict[str, set[str]] = {}
    for module in files():
        for target in {*imports(module, inside=True), *imports(module, inside=False)}:
            importers.setdefault(target, set()).add(module)
    found: list[str] = []
    for module, text in files().items():
        users = importers.get(module, set())
        if len(users) != 1 or text.count("\n") > SHORT or "__main__" in text:
            continue
        (user,) = users
        if module in kept_apart or text.count("\n") + files()[user].count("\n") > LONGEST:
            continue
        if user.rpartition(".")[0] == module.rpartition(".")[0] and user != module.rpartition(".")[0]:
            found.append(module)
    return found


def participles() -> list[str]:
    """Return functions that are named by a bare past participle and return no boolean: `module:line name`."""
    found: list[str] = []
    for module in files():
        for node in ast.walk(tree_of(module)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            name = node.name.strip("_")
            if "_" in name or name in NO_PARTICIPLES or not _PARTICIPLE.search(name):
                continue
            boolean = node.returns is not None and ast.unparse(node.returns) == "bool"
            if not boolean and not node.decorator_list:
                found.append(f"{module}:{node.lineno} {node.name}")
    return found


def banned_names() -> list[str]:
    """Return modules, classes and functions whose name holds a word the glossary says not to use: `module:name`."""
    found: list[str] = []
    for module in files():
        names = [module.rpartition(".")[2]]
        for node in ast.walk(tree_of(module)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.append(node.name)
        for name in names:
            words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_")
            found += [f"{module}:{name}"] if not BANNED.isdisjoint(words) else []
    return found


def unnamed_docstrings() -> list[str]:
    """Return modules whose name does not occur in the first sentence of their docstring."""
    found: list[str] = []
    for module in files():
        leaf = module.rpartition(".")[2]
        first = (ast.get_docstring(tree_of(module)) or "").split("\n\n")[0].lower()
        if leaf != "surehand" and not any(word[:5] in first for word in leaf.strip("_").split("_")):
            found.append(module)
    return found


def table() -> str:
    """Return all measures, a line each."""
    repeated = Counter(entry.split()[1] for entry in participles())
    rows = {
        "files": len(files()),
        "lines": sum(text.count("\n") for text in files().values()),
        f"files over {LONGEST} lines": len(long_modules()),
        "foldable modules (one importer, same package)": len(foldable_modules()),
        "own imports inside functions": len(imports_inside_functions()),
        "of these without their price": len(unpriced_imports()),
        "hidden cycles": len(hidden_cycles()),
        "modules in hidden cycles": sum(map(len, hidden_cycles())),
        "functions named by a bare participle": len(participles()),
        "public functions among these": len([each for each in participles() if not each.split()[1].startswith("_")]),
        "the same name in several files": sum(1 for count in repeated.values() if count > 1),
        "names with a word the glossary bans": len(banned_names()),
        "modules not named in their own first sentence": len(unnamed_docstrings()),
    }
    return "\n".join(f"{value:>7,}  {name}" for name, value in rows.items())


if __name__ == "__main__":
    print(table())
