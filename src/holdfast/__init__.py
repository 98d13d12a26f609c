"""Holdfast: tools for AI agents, and the one door every call of them goes through.

Importing this package does nothing and costs little: names are loaded when they are first used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing `typing` for this constant would cost more than all the rest of this file
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.core.args import Args, Field
    from holdfast.core.call import Image, Text, ToolCall, ToolError, ToolResult
    from holdfast.core.context import ToolContext
    from holdfast.core.effects import Connect, DeletePath, Effect, ReadPath, RunCommand, WritePath
    from holdfast.core.errors import HoldfastError, RegistrationError, ToolFailure
    from holdfast.core.events import Event, Progress
    from holdfast.core.settings import Settings
    from holdfast.core.tool import Health, Preview, Tool, tool
    from holdfast.registry.registry import Registry

_WHERE = {
    "Holdfast": "holdfast.app",
    "Registry": "holdfast.registry.registry",
    "Settings": "holdfast.core.settings",
    "Tool": "holdfast.core.tool",
    "tool": "holdfast.core.tool",
    "Preview": "holdfast.core.tool",
    "Health": "holdfast.core.tool",
    "ToolContext": "holdfast.core.context",
    "ToolCall": "holdfast.core.call",
    "ToolResult": "holdfast.core.call",
    "ToolError": "holdfast.core.call",
    "Text": "holdfast.core.call",
    "Image": "holdfast.core.call",
    "Progress": "holdfast.core.events",
    "Event": "holdfast.core.events",
    "Effect": "holdfast.core.effects",
    "ReadPath": "holdfast.core.effects",
    "WritePath": "holdfast.core.effects",
    "DeletePath": "holdfast.core.effects",
    "RunCommand": "holdfast.core.effects",
    "Connect": "holdfast.core.effects",
    "Args": "holdfast.core.args",
    "Field": "holdfast.core.args",
    "HoldfastError": "holdfast.core.errors",
    "ToolFailure": "holdfast.core.errors",
    "RegistrationError": "holdfast.core.errors",
}

__all__ = [
    "Args",
    "Connect",
    "DeletePath",
    "Effect",
    "Event",
    "Field",
    "Health",
    "Holdfast",
    "HoldfastError",
    "Image",
    "Preview",
    "Progress",
    "ReadPath",
    "RegistrationError",
    "Registry",
    "RunCommand",
    "Settings",
    "Text",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolError",
    "ToolFailure",
    "ToolResult",
    "WritePath",
    "__version__",
    "tool",
]


def __getattr__(name: str) -> Any:
    if (module := _WHERE.get(name)) is None:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
