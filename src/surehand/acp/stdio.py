"""The stdio transport of the agent: one editor on standard input and output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from acp import run_agent
from surehand.core.errors import SettingsError
from surehand.state.own_stdio import is_stream, own_stdio

if TYPE_CHECKING:
    from surehand.acp.agent import EditorAgent

LINE_BYTES: Final = 64 * 1024 * 1024
"""The longest message that is taken: a prompt may hold several pictures."""


async def serve_stdio(agent: EditorAgent) -> None:
    """Serve the editor on standard input until it closes; raise SettingsError where none can be there."""
    for descriptor, name in ((0, "input"), (1, "output")):
        if not is_stream(descriptor):
            raise SettingsError(
                f"standard {name} is neither a pipe, a socket nor a terminal: `surehand acp` is started by an editor"
            )
    reader, writer = await own_stdio(LINE_BYTES)
    # Resuming and closing sessions are part of the protocol; the SDK still guards them by this word.
    await run_agent(cast("Any", agent), writer, reader, use_unstable_protocol=True)
