"""What the built-in tools answer with, as JSON Schema of their `data`: MCP clients and frameworks get it structured.

Only what every good answer has is required; keys beside those that are named are allowed, and come with new versions.
"""

from __future__ import annotations

from typing import Any, Final

from surehand.core.schema import Schema

_TEXT: Final[Schema] = {"type": "string"}
_COUNT: Final[Schema] = {"type": "integer"}
_NUMBER: Final[Schema] = {"type": "number"}
_YES_NO: Final[Schema] = {"type": "boolean"}
_TABLE: Final[Schema] = {"type": "object"}
_TEXTS: Final[Schema] = {"type": "array", "items": _TEXT}
_MAYBE_COUNT: Final[Schema] = {"type": ["integer", "null"]}
_MAYBE_TEXT: Final[Schema] = {"type": ["string", "null"]}


def _object(required: dict[str, Schema], **optional: Schema) -> Schema:
    return {"type": "object", "properties": {**required, **optional}, "required": list(required)}


def _list(required: dict[str, Schema], **optional: Schema) -> Schema:
    return {"type": "array", "items": _object(required, **optional)}


_CHANGED: Final = _object(
    {"path": _TEXT, "changed": _YES_NO, "diff": _TEXT},
    created=_YES_NO,
    change_id=_MAYBE_TEXT,
    size=_COUNT,
    encoding=_MAYBE_TEXT,
    replacements=_COUNT,
)
_TAKEN_BACK: Final = _object(
    {"changes": _TEXTS, "paths": _TEXTS},
    change_id=_MAYBE_TEXT,
    sessions=_TEXTS,
    left_alone=_COUNT,
    diff=_TEXT,
    calls={"type": "array", "items": _TABLE},
)
_TASK: Final[dict[str, Schema]] = {"id": _TEXT, "title": _TEXT, "status": _TEXT}
_MADE: Final = _object({"name": _TEXT}, version=_COUNT, versions={"type": "array", "items": _COUNT}, digest=_TEXT)

OUTPUT_SCHEMAS: Final[dict[str, Schema]] = {
    "Bash": _object(
        {},
        exit_code=_MAYBE_COUNT,
        stdout=_TEXT,
        stderr=_TEXT,
        usage=_TABLE,
        sandbox=_TABLE,
        task_id={"type": "string", "description": "Of a command in the background"},
        status=_TEXT,
        **{"class": _TEXT},
    ),
    "Read": _object(
        {"path": _TEXT, "type": _TEXT, "size": _COUNT},
        content=_TEXT,
        offset=_COUNT,
        lines=_COUNT,
        total_lines=_MAYBE_COUNT,
        encoding=_TEXT,
        truncated=_YES_NO,
        cells={"type": "array", "items": _TABLE},
        pages=_COUNT,
    ),
    "Edit": _CHANGED,
    "Write": _CHANGED,
    "MultiEdit": _CHANGED,
    "NotebookEdit": _CHANGED,
    "Glob": _object(
        {"files": _list({"path": _TEXT}, size=_COUNT, mtime=_NUMBER), "total": _COUNT, "truncated": _YES_NO}
    ),
    "Grep": _object(
        {"output_mode": _TEXT, "truncated": _YES_NO}, lines=_list({"path": _TEXT, "line": _COUNT, "text": _TEXT})
    ),
    "Gitignore": _object({"action": _TEXT}, path=_TEXT, ignored=_YES_NO, added=_TEXTS, already_present=_TEXTS),
    "Undo": _TAKEN_BACK,
    "Redo": _TAKEN_BACK,
    "Changes": _object({"changes": _list({"id": _TEXT, "at": _NUMBER, "tool": _TEXT, "state": _TEXT})}),
    "WebFetch": _object(
        {"url": _TEXT, "text": _TEXT},
        title=_TEXT,
        kind=_TEXT,
        content_type=_TEXT,
        size=_COUNT,
        redirects=_TEXTS,
        next_offset=_MAYBE_COUNT,
        characters=_COUNT,
    ),
    "WebSearch": _object({"query": _TEXT, "backend": _TEXT, "results": {"type": "array", "items": _TABLE}}),
    "Agent": _object({"agent_id": _TEXT}, text=_TEXT, state=_TEXT, status=_TEXT, turns=_COUNT, tool_calls=_COUNT),
    "TaskCreate": _object(_TASK),
    "TaskList": _object({"tasks": _list(_TASK)}),
    "TaskUpdate": _object(_TASK),
    "TaskOutput": _object({**_TASK, "output": _TEXT}),
    "TaskStop": _object(_TASK),
    "ToolSearch": _object(
        {"query": _TEXT, "matches": _list({"name": _TEXT, "description": _TEXT}), "deferring": _YES_NO}
    ),
    "ToolCreate": _MADE,
    "ToolUpdate": _MADE,
    "ToolRemove": _MADE,
    "time.now": _object({"timestamp": _COUNT, "iso": _TEXT}),
    "tools.echo": _object({"text": _TEXT}),
    "shell.pwd": _object({"cwd": _TEXT}),
    "fs.list_dir": _object({"path": _TEXT, "entries": _list({"name": _TEXT, "path": _TEXT, "type": _TEXT})}),
    "fs.read_file": _object({"path": _TEXT, "content": _TEXT, "size": _COUNT}),
    "calculate": _object({"expression": _TEXT, "result": _TEXT}, precision=_COUNT),
}


def output_schema(name: str) -> dict[str, Any]:
    """Return what a built-in tool promises of its answers."""
    return OUTPUT_SCHEMAS[name]
