"""The floors: imports go down only, and neighbours on a floor do not import each other."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "surehand"
FIRST_FLOOR = {
    # Which rooms of the machine's floor may use which.
    "files": {"git"},
    "git": set[str](),
    "shell": set[str](),
    "state": {"files"},
    "search": {"files", "git"},
    "sandbox": {"files", "state", "git"},
    "history": {"files", "state", "search"},
    "commands": {"files", "state", "git", "shell", "sandbox", "history"},
    "web": {"files", "state", "commands"},
    "workspaces": {"files", "git", "search"},
}
# The adapter of the Claude Agent SDK hands it our MCP servers; nothing else goes sideways on the upper floors.
NEIGHBOURS = {**FIRST_FLOOR, "integrations": {"mcp"}}
FLOORS = {
    "core": 0,
    **dict.fromkeys(FIRST_FLOOR, 1),
    "registry": 2,
    "policy": 2,
    "tools": 2,
    "providers": 2,
    "engine": 3,
    "agent": 4,
    "mcp": 4,
    "integrations": 4,
    "console": 6,
    "cluster": 6,
    "batch": 6,
    "acp": 6,
    "cli": 7,
    "__main__": 8,
}
TOP = 5  # app.py and the modules beside it: the place where objects meet
# The engine drives registry and policy; the tools are plug-ins that floor 5 alone imports.
PLUG_INS = {"tools", "providers"}
# The library's one door names a batch, which runs many applications: imported when it is called, never before.
DOORS = {("surehand.app", "surehand.batch.batch")}


def part_and_floor(module: str) -> tuple[str, int]:
    words = module.split(".")
    if len(words) == 1:
        return "surehand", 99  # the lazy front: nothing inside imports it
    return words[1], FLOORS.get(words[1], TOP)


def imports_of(path: Path) -> list[str]:
    """Every surehand module a file imports, also inside functions; imports only for the type checker do not count."""
    tree = ast.parse(path.read_text())
    checked_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    found: list[str] = []
    for node in ast.walk(tree):
        if id(node) in checked_only:
            continue
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] == "surehand"]
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "surehand":
            if node.module == "surehand":
                found += [f"surehand.{alias.name}" for alias in node.names if alias.name != "__version__"]
            else:
                found.append(node.module)
    return found


def all_files() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if path.name not in ("__init__.py",) or path.parent != SOURCE)


@pytest.mark.parametrize("path", all_files(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_down_only(path: Path) -> None:
    words = ["surehand", *path.relative_to(SOURCE).with_suffix("").parts]
    part, floor = part_and_floor(".".join(words))
    for target in imports_of(path):
        target_part, target_floor = part_and_floor(target)
        if (".".join(words), target) in DOORS:
            continue
        if target_part == part or (floor == TOP and target_floor == TOP):
            continue
        if target_part in NEIGHBOURS.get(part, ()):
            continue
        assert target_floor < floor, f"{'.'.join(words)} (floor {floor}) imports {target} (floor {target_floor})"
        if target_part in PLUG_INS:
            assert floor == TOP or part == "cli", f"{'.'.join(words)} imports the plug-in {target}; only floor 5 may"


def test_importing_the_package_loads_nothing_heavy() -> None:
    import subprocess
    import sys

    code = "import sys, surehand; print([m for m in ('pydantic', 'asyncio', 'mcp', 'httpx2') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
