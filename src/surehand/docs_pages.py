"""`make docs`: write what is generated from the code: the catalogue of tools and the tools reference."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from surehand import catalog

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


def main() -> int:
    """Write the catalogue and, in a checkout, `docs/tools.md`."""
    catalog.write()
    docs = os.path.join(os.path.dirname(__file__), "..", "..", "docs")
    if os.path.isdir(docs):
        with open(os.path.join(docs, "tools.md"), "w", encoding="utf-8") as file:
            file.write(tools_page(catalog.rows()))
    sys.stdout.write(f"{len(catalog.rows())} tools written\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
