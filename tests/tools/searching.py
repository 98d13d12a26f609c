"""A session over a folder of its own, to call the search tools as the engine does."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from surehand.core.call import ToolCall, ToolResult
from surehand.core.context import ToolContext
from surehand.core.effects import Effect
from surehand.core.session import Session
from surehand.core.settings import Settings
from surehand.core.tool import Preview, Tool
from surehand.tools import gitignore, glob, grep

TOOLS: dict[str, Tool] = {tool.name: tool for module in (grep, glob, gitignore) for tool in module.TOOLS}


class Desk:
    """One session over `root`."""

    def __init__(self, root: Path, state: Path | None = None) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root
        self.session = Session(str(root), settings=Settings(), state_dir=str(state) if state else None)

    def put(self, name: str, content: bytes | str = "") -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def context(self, tool: str) -> ToolContext:
        return ToolContext(ToolCall(tool), self.session, lambda progress: None, {})

    async def call(self, tool: str, **args: Any) -> ToolResult:
        record, ctx = TOOLS[tool], self.context(tool)
        parsed = record.arguments.parse(args)
        if record.check is not None:
            record.check(parsed, ctx)
        result = record.run(parsed, ctx)
        return await result if inspect.isawaitable(result) else result

    def effects(self, tool: str, **args: Any) -> list[Effect]:
        record = TOOLS[tool]
        assert record.effects is not None
        return list(record.effects(record.arguments.parse(args), self.context(tool)) or ())

    def preview(self, tool: str, **args: Any) -> Preview:
        record = TOOLS[tool]
        assert record.preview is not None
        shown = record.preview(record.arguments.parse(args), self.context(tool))
        assert isinstance(shown, Preview)
        return shown
