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


# -- OpenAI's Responses ----------------------------------------------------------------------------------------------


def responding(*calls: tuple[str, str, dict[str, Any]], text: str = "") -> dict[str, Any]:
    """A step that answers in the shape of Responses."""
    output: list[dict[str, Any]] = [
        {"type": "function_call", "id": f"fc_{id}", "call_id": id, "name": name, "arguments": json.dumps(args)}
        | {"status": "completed"}
        for id, name, args in calls
    ]
    if text:
        content = [{"type": "output_text", "text": text, "annotations": []}]
        output.append(
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}
        )
    usage = {
        "input_tokens": 1,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 1,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 2,
    }
    told = {"id": "resp_1", "object": "response", "created_at": 1, "model": "x", "status": "completed"}
    more = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "error": None, "usage": usage}
    return {"whole": {**told, **more, "output": output}}


def function_outputs(stub: Stub, request: int = -1) -> dict[str, Any]:
    """The results a request of Responses brought along, by the call's id."""
    items = stub.requests[request]["input"]
    return {each["call_id"]: each["output"] for each in items if each.get("type") == "function_call_output"}


def shown_functions(stub: Stub, request: int = -1) -> list[str]:
    """The names of the tools a request of Responses or Messages showed the model."""
    return [each["name"] for each in stub.requests[request]["tools"]]
