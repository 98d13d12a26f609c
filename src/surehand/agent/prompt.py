"""The system prompt: how to work, the facts of this session, and what the project's own files say."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence

from surehand.agent.foreign import mark_text
from surehand.agent.instructions import Instructions
from surehand.core.session import Session


def system_prompt(session: Session, instructions: Sequence[Instructions] = (), *, trusted: bool = False) -> str:
    """Return what a model is told before the conversation."""
    with open(os.path.join(os.path.dirname(__file__), "system.md"), encoding="utf-8") as file:
        text = file.read()
    facts = [f"Folder: {session.workspace}", f"System: {platform.system()}", f"Mode: {session.mode}"]
    said = [_format_instructions(each, trusted=trusted) for each in instructions]
    return "\n\n".join((text + "\n" + "\n".join(facts), *said)) + "\n"


def _format_instructions(one: Instructions, *, trusted: bool) -> str:
    cut = f"\n[truncated: {one.size:,} bytes in all]" if one.truncated else ""
    if trusted:
        return f"# Instructions of the project, from {one.path}\n\n{one.text.strip()}{cut}"
    origin = f"{one.path}, in a folder that the user does not trust yet"
    return mark_text(f"{one.text.strip()}{cut}", origin)
