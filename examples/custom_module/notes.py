"""A custom module: notes kept in memory. Three tools, plain typed functions."""

from __future__ import annotations

from surehand import Tool, ToolFailure, tool

NOTES: dict[str, str] = {}


@tool(version="1.2.0")
async def add_note(title: str, text: str) -> str:
    """Keep a note.

    Args:
        title: What the note is found by.
        text: What it says.
    """
    NOTES[title] = text
    return f"kept {title!r}"


@tool(version="1.2.0", read_only=True)
async def read_note(title: str) -> str:
    """Read a note.

    Args:
        title: What the note was kept under.
    """
    if title not in NOTES:
        known = ", ".join(NOTES) or "none"
        raise ToolFailure(f"there is no note {title!r}", hint=f"Notes: {known}.")
    return NOTES[title]


@tool(version="1.2.0", destructive=True)
async def drop_note(title: str) -> str:
    """Forget a note."""
    return "dropped" if NOTES.pop(title, None) is not None else "there was none"


TOOLS: tuple[Tool, ...] = (add_note, read_note, drop_note)
