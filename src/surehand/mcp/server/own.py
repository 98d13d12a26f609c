"""What Surehand itself offers MCP clients beside its tools: the workspace's files, the session's log, and advice."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import unquote

from surehand.core.errors import ToolFailure
from surehand.mcp.convert import WORKSPACE
from surehand.mcp.server.clients import Guest
from surehand.mcp.server.resources import Extras, Message, Prompt, Resource

LOG: Final = "surehand://session/log"

INSTRUCTIONS: Final = (
    "Tools over one workspace. Read a file before you Edit or Write it; use Glob and Grep to find things, not Bash. "
    "Calls that need permission are put to the user; a refusal says which rule decided. Undo takes changes back."
)
_ADVICE: Final = """\
Work in this workspace with the tools you were given.

1. Find before you read: Glob for names, Grep for content. Both leave out secrets and ignored files.
2. Read before you change. Edit wants `old_string` exactly as the file has it, once, with enough context around it.
3. Several places in one file: MultiEdit, which changes all or nothing. New files: Write.
4. Bash runs in a sandbox without network. Prefer the file tools: their changes can be undone and are shown as diffs.
5. When a call is refused, do it another way or say what you need; asking the same again changes nothing.
"""


def own_extras() -> Extras:
    """Return what `surehand serve` offers beside the tools."""
    return Extras(
        resources=(
            Resource(
                LOG,
                "session log",
                _log,
                "What happened in this session: calls, questions, answers, changed files. One JSON object a line.",
                "application/jsonl",
            ),
            Resource(WORKSPACE + "{+path}", "workspace file", _file, "A text file of the workspace, by relative path."),
        ),
        prompts=(
            Prompt("use-tools", _use_tools, "How to work with these tools well.", {"task": "What is to be done."}),
        ),
    )


async def _file(uri: str, guest: Guest) -> str:
    result = await guest.app.call("fs.read_file", {"path": unquote(uri[len(WORKSPACE) :])}, source="mcp")
    if result.error is not None:
        raise ToolFailure(result.error.message, code=result.error.code)
    return result.output


def _log(uri: str, guest: Guest) -> str:
    del uri
    return "".join(json.dumps(event.to_dict(), ensure_ascii=False, default=str) + "\n" for event in guest.log)


def _use_tools(given: Mapping[str, str]) -> Sequence[Message]:
    task = given.get("task", "").strip()
    return [("user", f"{_ADVICE}\nThe task: {task}" if task else _ADVICE)]
