"""Is this a tool? Every fault of a definition at once, so that its author mends it in one go."""

from __future__ import annotations

from typing import Final

from surehand.core.names import name_problems
from surehand.core.schema import schema_problems
from surehand.core.tool import Tool
from surehand.registry.importable import import_problem

_FUNCTIONS: Final = (
    "effects", "check", "preview", "undo", "check_permission", "resources", "depends_on", "initialize", "health_check",
    "close",
)  # fmt: skip


def problems(tool: object) -> list[str]:
    """Return every fault of a tool's definition, or an empty list; registering asks for the same."""
    if not isinstance(tool, Tool):
        return [f"expected a Tool (or a function under @tool), got {type(tool).__name__}"]
    found = name_problems(tool.name)
    for alias in tool.aliases:
        found += [f"alias: {problem}" for problem in name_problems(alias)]
    if isinstance(tool.description, str):
        if not tool.description.strip():
            found.append("description is missing: a model must know what the tool is for (a docstring will do)")
    elif not callable(tool.description):
        found.append(f"description must be text or a function of the session, not {type(tool.description).__name__}")
    if not callable(tool.run):
        found.append(f"run must be callable, not {type(tool.run).__name__}")
    for name in _FUNCTIONS:
        if (value := getattr(tool, name)) is not None and not callable(value):
            found.append(f"{name} must be callable, not {type(value).__name__}")
    if isinstance(tool.timeout_s, int | float) and not 0 < tool.timeout_s < 1e7:
        found.append(f"timeout_s must be a positive number of seconds, not {tool.timeout_s!r}")
    if tool.pure and tool.read_only is not True:
        found.append("a pure tool only reads: say read_only=True as well")
    found += tool.arguments.problems()
    if tool.output_schema is not None:
        found += schema_problems(tool.output_schema, "output schema")
    if tool.where == "process" and (problem := import_problem(tool)):
        found.append(problem)
    return found
