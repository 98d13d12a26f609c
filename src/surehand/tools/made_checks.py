"""Is this definition a tool? Every fault of a made tool's name, schema and source at once."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, Final, cast

from surehand.core.names import name_problems
from surehand.core.schema import ForeignArguments

SOURCE_LIMIT: Final = 200_000


def faults(name: str, description: str, input_schema: Mapping[str, Any], source: str) -> list[str]:
    """Return everything that is wrong with a definition, or an empty list."""
    found = name_problems(name)
    if name.startswith("mcp__") or ":" in name:
        found.append(f"name {name!r} has the form of a tool of an MCP server; choose a plain one")
    if not description.strip():
        found.append("description is empty: say what the tool is for")
    schema_faults = ForeignArguments(dict(input_schema)).problems()
    if input_schema.get("type") != "object":
        schema_faults.append('input_schema must have "type": "object"')
    return found + schema_faults + _source_faults(source, {} if schema_faults else input_schema)


def _source_faults(source: str, input_schema: Mapping[str, Any]) -> list[str]:
    if len(source) > SOURCE_LIMIT:
        return [f"source has {len(source):,} characters; at most {SOURCE_LIMIT:,}"]
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        line = getattr(problem, "lineno", None)
        return [f"source, line {line or '?'}: {getattr(problem, 'msg', None) or problem}"]
    functions = [
        node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == "run"
    ]
    if not functions:
        return ["source defines no function `run` at its top level"]
    return _parameter_faults(functions[-1].args, input_schema)


def _parameter_faults(wanted: ast.arguments, input_schema: Mapping[str, Any]) -> list[str]:
    """Compare what `run` takes with what the schema lets through."""
    if wanted.posonlyargs:
        return ["`run` is called by name; it cannot have positional-only parameters"]
    named = [each.arg for each in (*wanted.args, *wanted.kwonlyargs)]
    plain = [each.arg for each in wanted.args]
    optional = {*plain[len(plain) - len(wanted.defaults) :]} if wanted.defaults else set[str]()
    optional |= {
        each.arg for each, value in zip(wanted.kwonlyargs, wanted.kw_defaults, strict=True) if value is not None
    }
    properties = cast("Mapping[str, Any]", input_schema.get("properties") or {})
    required = cast("list[str]", input_schema.get("required") or [])
    found = [f"`run` takes no parameter {name!r}" for name in properties if name not in named and not wanted.kwarg]
    for name in named:
        if name not in optional and name not in required:
            found.append(f"`run` needs {name!r}, but the schema does not require it")
    return found
