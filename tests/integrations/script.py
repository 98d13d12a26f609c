"""What a stub model says, and what it was sent: the shapes of OpenAI's chat completions."""

from __future__ import annotations

import json
from typing import Any

from tests.providers.model_stub import Stub

READ = {"file_path": "notes.txt"}
EDIT = {"file_path": "notes.txt", "old_string": "beta", "new_string": "gamma"}
TOUCH = {"command": "touch made.txt"}


def calling(*calls: tuple[str, str, dict[str, Any]]) -> dict[str, Any]:
    """A step that makes calls: (id, tool, arguments)."""
    return {"calls": [(id, name, json.dumps(args)) for id, name, args in calls]}


def tool_messages(stub: Stub, request: int = -1) -> dict[str, Any]:
    """The results a request brought along, by the call's id."""
    messages = stub.requests[request]["messages"]
    return {each["tool_call_id"]: each["content"] for each in messages if each["role"] == "tool"}


def shown_tools(stub: Stub, request: int = -1) -> list[str]:
    """The names of the tools a request showed the model."""
    return [each["function"]["name"] for each in stub.requests[request]["tools"]]
