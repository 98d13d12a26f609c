"""`Surehand.sync(".")`: the application for synchronous code and notebooks; its event loop has a thread of its own."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from surehand.core.call import ToolCall, ToolResult
from surehand.core.tool import Tool
from surehand.engine.loop_thread import LoopThread

if TYPE_CHECKING:
    from surehand.app import Surehand
    from surehand.core.call import Source

T = TypeVar("T")


class SyncSurehand:
    """An application whose calls are waited for.

        with Surehand.sync(".") as app:
            print(app.call("Read", {"file_path": "README.md"}).output)

    It is open as soon as it is made. Ctrl-C cancels the call that is waited for. An approver is called on the
    application's own thread. Whatever has no method here is reached by `app.wait(app.inner.connect_servers())`.
    """

    def __init__(self, make: Callable[[], Surehand]) -> None:
        self.thread = LoopThread().start()
        """The thread with the application's event loop."""
        try:
            self.inner = self.thread.run(make)
            """The application itself."""
            self.thread.wait(self.inner.__aenter__())
        except BaseException:
            self.thread.stop()
            raise
        # Also at exit, if it was never closed: commands end, journals are written.
        self._close = weakref.finalize(self, _close, self.inner, self.thread)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Cancel running calls and close the application. Idempotent."""
        self._close()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the application's loop and return its result."""
        return self.thread.wait(work)

    def register(self, tool: Tool) -> Tool:
        """Add a tool of your own."""
        return self.thread.run(lambda: self.inner.register(tool))

    def call(self, name: str, args: Mapping[str, Any] | None = None, *, source: Source = "user") -> ToolResult:
        """Make one call; failures are returned as results, not raised."""
        return self.wait(self.inner.call(name, args, source=source))

    def run_calls(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Make many calls, concurrency-safe ones in parallel, and return their results in order."""
        return self.wait(self.inner.run_calls(calls))

    def dry_run(self, name: str, args: Mapping[str, Any] | None = None) -> ToolResult:
        """Return what a call would do, with its diff and the verdict, and change nothing."""
        return self.wait(self.inner.dry_run(name, args))

    def undo(self, change_id: str | None = None, **options: Any) -> ToolResult:
        """Undo changes of files, by default this session's last one; options as of `Surehand.undo`."""
        return self.wait(self.inner.undo(change_id, **options))

    def redo(self, change_id: str | None = None, **options: Any) -> ToolResult:
        """Redo what the latest undo reverted, or the given one; options as of `Surehand.redo`."""
        return self.wait(self.inner.redo(change_id, **options))

    def changes(self, **options: Any) -> ToolResult:
        """List changes of this workspace, newest first; options as of `Surehand.changes`."""
        return self.wait(self.inner.changes(**options))


def _close(app: Surehand, thread: LoopThread) -> None:
    if thread.is_forked:
        return
    try:
        thread.wait(app.close())
    finally:
        thread.stop()
