"""Surehand: tools for AI agents, and the runtime that every call of them goes through.

Importing this package is cheap and has no side effects: names are loaded on first use.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing `typing` for this constant would cost more than the rest of this file
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from surehand.app import Surehand
    from surehand.core import shapes
    from surehand.core.call import Image, Text, ToolCall, ToolError, ToolResult, Undo
    from surehand.core.context import ToolContext
    from surehand.core.effects import Connect, DeletePath, Effect, ReadPath, RunCommand, WritePath
    from surehand.core.errors import RegistrationError, SurehandError, ToolFailure
    from surehand.core.events import Event, Progress
    from surehand.core.record import Args, Field
    from surehand.core.settings import Settings
    from surehand.core.tool import Health, Permission, Preview, Tool, tool
    from surehand.policy.approval import Answer, Approver, Question
    from surehand.registry.registry import Registry

_WHERE = {
    "Surehand": "surehand.app",
    "Registry": "surehand.registry.registry",
    "Settings": "surehand.core.settings",
    "Tool": "surehand.core.tool",
    "tool": "surehand.core.tool",
    "Preview": "surehand.core.tool",
    "Health": "surehand.core.tool",
    "Permission": "surehand.core.tool",
    "ToolContext": "surehand.core.context",
    "ToolCall": "surehand.core.call",
    "ToolResult": "surehand.core.call",
    "ToolError": "surehand.core.call",
    "Undo": "surehand.core.call",
    "Text": "surehand.core.call",
    "Image": "surehand.core.call",
    "Progress": "surehand.core.events",
    "Event": "surehand.core.events",
    "Effect": "surehand.core.effects",
    "ReadPath": "surehand.core.effects",
    "WritePath": "surehand.core.effects",
    "DeletePath": "surehand.core.effects",
    "RunCommand": "surehand.core.effects",
    "Connect": "surehand.core.effects",
    "Args": "surehand.core.record",
    "Field": "surehand.core.record",
    "SurehandError": "surehand.core.errors",
    "ToolFailure": "surehand.core.errors",
    "RegistrationError": "surehand.core.errors",
    "Question": "surehand.policy.approval",
    "Answer": "surehand.policy.approval",
    "Approver": "surehand.policy.approval",
    "shapes": "surehand.core",
}

__all__ = [
    "Answer",
    "Approver",
    "Args",
    "Connect",
    "DeletePath",
    "Effect",
    "Event",
    "Field",
    "Health",
    "Image",
    "Permission",
    "Preview",
    "Progress",
    "Question",
    "ReadPath",
    "RegistrationError",
    "Registry",
    "RunCommand",
    "Settings",
    "Surehand",
    "SurehandError",
    "Text",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolError",
    "ToolFailure",
    "ToolResult",
    "Undo",
    "WritePath",
    "__version__",
    "shapes",
    "tool",
]


def __getattr__(name: str) -> Any:
    if (module := _WHERE.get(name)) is None:
        raise AttributeError(f"module 'surehand' has no attribute {name!r}")
    import importlib

    found = importlib.import_module(f"{module}.{name}" if name == "shapes" else module)
    value = found if name == "shapes" else getattr(found, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
