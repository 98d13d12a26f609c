"""The catalog of built-in tools: the list of their modules, and their definitions without importing any.

`catalog.json` beside this file holds the name, description, flags and schema of every built-in tool. `make docs`
generates it from the tools, and a test keeps it current. Listing the tools reads one file; calling one imports it.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable
from typing import Any, Final

from surehand.core.tool import Tool, ToolInfo
from surehand.registry.registry import Registry

MODULES: Final[tuple[str, ...]] = (
    "surehand.tools.bash",
    "surehand.tools.read",
    "surehand.tools.edit",
    "surehand.tools.notebook_edit",
    "surehand.tools.glob",
    "surehand.tools.grep",
    "surehand.tools.gitignore",
    "surehand.tools.history",
    "surehand.tools.web_fetch",
    "surehand.tools.web_search",
    "surehand.tools.agent",
    "surehand.tools.tasks",
    "surehand.tools.tool_search",
    "surehand.tools.tool_create",
    "surehand.tools.basics",
    "surehand.tools.calculator",
)
"""The modules of the built-in tools, in the order they are listed."""

FILE: Final = os.path.join(os.path.dirname(__file__), "catalog.json")


def build_rows() -> list[dict[str, Any]]:
    """Build the catalog's rows from the tools themselves, for `make docs`."""
    rows: list[dict[str, Any]] = []
    for module in MODULES:
        for tool in importlib.import_module(module).TOOLS:
            rows.append({"from": module, **tool.info().to_dict()})
    return rows


def rows() -> list[dict[str, Any]]:
    """Load the catalog's rows from `catalog.json`."""
    with open(FILE, encoding="utf-8") as file:
        return json.load(file)


def register_builtin(registry: Registry) -> None:
    """Register every built-in tool; each is imported when it is first called."""
    for row in rows():
        registry.register_lazy(ToolInfo.from_dict(row), _loader(row["from"], row["name"]))


def builtin_tool(name: str) -> Tool | None:
    """Return a built-in tool by name or alias, without an application."""
    for row in rows():
        if name == row["name"] or name in row["aliases"]:
            return _loader(row["from"], row["name"])()
    return None


def _loader(module: str, name: str) -> Callable[[], Tool]:
    def load() -> Tool:
        return next(tool for tool in importlib.import_module(module).TOOLS if tool.name == name)

    return load
