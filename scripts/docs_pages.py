"""Write the pages of docs/ that are generated from the code, and the catalogue of tools. `make docs` runs it."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import sys
from pathlib import Path
from types import UnionType
from typing import Any, cast, get_args, get_origin

from surehand import catalog
from surehand.cli.completion import list_parsers
from surehand.cli.main import COMMANDS
from surehand.cli.parser import format_global_options
from surehand.core.record import Record, Spec
from surehand.core.settings import Settings

_FLAGS = ("read_only", "concurrency_safe", "destructive", "requires_permission", "idempotent")


def tools_page(rows: list[dict[str, Any]]) -> str:
    """Return the tools reference as Markdown."""
    parts = [
        "# Tools\n\nWritten from the tools themselves by `make docs`. Flags may depend on the arguments (a `Bash` of"
        " `ls` only reads); what is shown holds when nothing is known of them.\n",
    ]
    parts += [_tool(row) for row in rows]
    return "\n".join(parts)


def _tool(row: dict[str, Any]) -> str:
    flags = ", ".join(f"`{flag}`" for flag in _FLAGS if row[flag]) or "none"
    facts = [f"flags: {flags}", f"level: {row['level']}"]
    if row["aliases"]:
        facts.append(f"also: {', '.join(f'`{alias}`' for alias in row['aliases'])}")
    if row["module"]:
        facts.append(f"module: `{row['module']}`")
    lines = [f"## {row['name']}\n", row["description"].strip(), "", " · ".join(facts), ""]
    properties: dict[str, Any] = row["inputSchema"].get("properties", {})
    if properties:
        lines += ["| argument | type | default | |", "|---|---|---|---|"]
        lines += [_argument(name, each, row["inputSchema"]) for name, each in properties.items()]
        lines.append("")
    for example in row["examples"]:
        lines += ["```console", f"$ surehand tools invoke {row['name']} --args '{json.dumps(example)}'", "```", ""]
    return "\n".join(lines)


def _argument(name: str, schema: dict[str, Any], whole: dict[str, Any]) -> str:
    kind = schema.get("type") or " or ".join(str(each.get("type", "object")) for each in schema.get("anyOf", []))
    if choices := schema.get("enum"):
        kind = " \\| ".join(f"`{choice}`" for choice in choices)
    default = "required" if name in whole.get("required", []) else ""
    if "default" in schema:
        default = f"`{json.dumps(schema['default'])}`"
    text = str(schema.get("description", "")).replace("\n", " ").replace("|", "\\|")
    return f"| `{name}` | {kind or 'any'} | {default} | {text} |"


def settings_page() -> str:
    """Return the settings reference as Markdown: every table, key, type, default and what it is for."""
    parts = [
        "# Settings\n\nWritten from the code by `make docs`. Files, in rising order: `~/.config/surehand/config.toml`,"
        " a trusted project's `surehand.toml`, then `SUREHAND_TABLE__KEY` variables, then flags. `surehand config show`"
        " says what is in force and where it came from.\n"
    ]
    return "\n".join([*parts, *_tables("", Settings)])


def _tables(path: str, table: type[Record]) -> list[str]:
    """Return a table of settings with its keys, followed by the tables within it."""
    rows: list[str] = []
    inner: list[str] = []
    schemas: dict[str, Any] = table.pydantic_model().model_json_schema()["properties"]
    for name, spec in table.fields().items():
        key, hint = f"{path}.{name}" if path else name, table.hint(name)
        parts = [hint, *get_args(hint)]
        if record := next((each for each in parts if isinstance(each, type) and issubclass(each, Record)), None):
            kind: Any = get_origin(hint)
            inner += _tables(f"{key}.NAME" if kind is dict else f"[{key}]" if kind is tuple else key, record)
            continue
        schema = {**schemas[spec.alias or name], "default": _plain_default(spec)}
        rows.append(_argument(spec.alias or name, schema, {}))
    if not rows:
        return inner
    heads = ["| key | type | default | |", "|---|---|---|---|"]
    return [
        f"## `[{path}]`\n" if path else "## At the top\n",
        inspect.getdoc(table) or "",
        "",
        *heads,
        *rows,
        "",
        *inner,
    ]


def _plain_default(spec: Spec) -> Any:
    value = None if spec.required else spec.value()
    return list(cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else value


def command_line_page() -> str:
    """Return the command line reference as Markdown: the help page of every command and sub-command."""
    os.environ["COLUMNS"] = "100"  # the same pages on every terminal
    options = format_global_options()
    parts = ["# Command line\n\nWritten from the code by `make docs`.\n", f"```text\n{options.rstrip()}\n```\n"]
    for path, parser in list_parsers():
        parser.prog = f"surehand {path}"
        about = f"{COMMANDS[path][1].capitalize()}.\n\n" if path in COMMANDS else ""
        text = parser.format_help().removesuffix(options).strip()
        parts.append(f"{'###' if ' ' in path else '##'} surehand {path}\n\n{about}```text\n{text}\n```\n")
    return "\n".join(parts)


def api_page() -> str:
    """Return the library reference as Markdown: every public name with its signature and docstring."""
    surehand = importlib.import_module("surehand")  # the front that nothing inside imports
    parts = ["# Library\n\nWritten from the docstrings by `make docs`: what `import surehand` promises.\n"]
    for name in surehand.__all__:
        value = getattr(surehand, name)
        if name.startswith("__"):
            continue
        parts += [f"## {name}\n", *_describe_name(name, value)]
        if inspect.isclass(value) or inspect.ismodule(value):
            for member, inner in vars(value).items():
                function: Any = getattr(inner, "__func__", inner)  # of a class method, what it wraps
                if member.startswith("_") or not (inspect.isfunction(function) or isinstance(inner, property)):
                    continue
                if inspect.ismodule(value) and function.__module__ != value.__name__:
                    continue
                parts += [f"### {name}.{member}\n", *_describe_name(f"{name}.{member}", function)]
    return "\n".join(parts)


def _describe_name(name: str, value: Any) -> list[str]:
    """Return a name's signature, where it has one, and its docstring."""
    if isinstance(value, UnionType):  # what it says of itself is of its kind, and differs by Python's version
        return [f"One of {', '.join(f'`{each.__name__}`' for each in get_args(value))}.\n"]
    lines: list[str] = []
    if signature := _signature(value):
        lines = [f"```text\n{name}{signature}\n```\n"]
    return [*lines, f"{inspect.getdoc(value) or ''}\n"]


def _signature(value: Any) -> str:
    """Return how something is called; a record is called with its fields."""
    try:
        signature = str(inspect.signature(value))
    except (TypeError, ValueError):  # a property, a module, an exception
        return ""
    # A record compiles how it is made when it is first made: what it says of itself before and after differs.
    if isinstance(value, type) and ("_fields" in vars(value) or re.search(r"\*\*(values|kwargs)", signature)):
        fields = [f"{name}: {hint}" for name, hint in vars(value).get("__annotations__", {}).items() if name[0] != "_"]
        return f"({', '.join(fields)})" if fields else ""
    signature = signature.replace(", **unknown: Never", "").replace(", **unknown: 'Never'", "")  # what catches slips
    signature = re.sub(r"<[^>]*(?:<lambda>)?[^>]* at 0x[0-9a-f]+>", "...", signature)  # no address of memory
    return re.sub(r"'([^']*)'", r"\1", signature)


def pages() -> dict[str, str]:
    """Return every generated page by its name beneath `docs`."""
    return {
        "tools.md": tools_page(catalog.rows()),
        "reference/settings.md": settings_page(),
        "reference/command-line.md": command_line_page(),
        "reference/api.md": api_page(),
    }


def main() -> int:
    """Write the catalogue first: the pages are made from it."""
    rows = json.dumps(catalog.build_rows(), indent=1, ensure_ascii=False)
    Path(catalog.FILE).write_text(rows + "\n", encoding="utf-8")
    for name, text in pages().items():
        (Path(__file__).parents[1] / "docs" / name).write_text(text, encoding="utf-8")
    sys.stdout.write(f"{len(catalog.rows())} tools written\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
