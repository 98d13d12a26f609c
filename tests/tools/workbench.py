"""A session over a folder of its own, to call tools directly: the checks, then the run, as the engine does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from surehand.core.call import ToolCall, ToolResult
from surehand.core.context import ToolContext
from surehand.core.errors import ToolFailure
from surehand.core.session import Seen, Session, digest_of
from surehand.core.settings import HistorySettings, Settings
from surehand.core.tool import Preview, Tool
from surehand.history.history import HISTORY, History
from surehand.history.read_contents import SEEN
from surehand.tools import edit
from surehand.tools import history as history_tools

TOOLS: dict[str, Tool] = {tool.name: tool for module in (edit, history_tools) for tool in module.TOOLS}


class Workbench:
    """One session over `folder`/ws, with its state in `folder`/state."""

    def __init__(self, folder: Path, *, state: bool = True, name: str = "s", limit_mb: int = 100) -> None:
        self.root = folder / "ws"
        self.root.mkdir(exist_ok=True)
        self.state = folder / "state"
        self.events: list[Any] = []
        self.session = Session(
            str(self.root),
            settings=Settings(history=HistorySettings(limit_mb=limit_mb)),
            id=f"session_{name}",
            name=name,
            state_dir=str(self.state) if state else None,
            emit=self.events.append,
        )

    @property
    def history(self) -> History:
        return self.session.keep(HISTORY)

    def path(self, name: str) -> str:
        return str(self.root / name)

    def put(self, name: str, content: bytes | str, *, read: bool = True) -> Path:
        """Write a file and, unless told otherwise, count it as read."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        if read:
            self.read(name)
        return path

    def read(self, name: str) -> None:
        real = (self.root / name).resolve()
        data = real.read_bytes()
        self.session.saw(str(real), Seen.of(digest_of(data), real.stat()))
        self.session.keep(SEEN).remember(str(real), digest_of(data), data)

    def context(self, tool: str) -> ToolContext:
        return ToolContext(ToolCall(tool), self.session, lambda progress: None, {})

    def call(self, tool: str, **args: Any) -> ToolResult:
        record, ctx = TOOLS[tool], self.context(tool)
        parsed = record.arguments.parse(args)
        if record.check is not None:
            record.check(parsed, ctx)
        return record.run(parsed, ctx)

    def preview(self, tool: str, **args: Any) -> Preview:
        record = TOOLS[tool]
        assert record.preview is not None
        shown = record.preview(record.arguments.parse(args), self.context(tool))
        assert isinstance(shown, Preview)
        return shown

    def edit(self, name: str, old: str, new: str, **more: Any) -> ToolResult:
        return self.call("Edit", file_path=name, old_string=old, new_string=new, **more)

    def write(self, name: str, content: str) -> ToolResult:
        return self.call("Write", file_path=name, content=content)


def failure(action: Callable[[], object]) -> ToolFailure:
    """Return the ToolFailure an action raises."""
    try:
        action()
    except ToolFailure as problem:
        return problem
    raise AssertionError("nothing was refused")
