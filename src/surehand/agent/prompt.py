"""The system prompt: how to work, and the facts of this session."""

from __future__ import annotations

import os
import platform

from surehand.core.session import Session


def system_prompt(session: Session) -> str:
    """Return what a model is told before the conversation."""
    with open(os.path.join(os.path.dirname(__file__), "system.md"), encoding="utf-8") as file:
        text = file.read()
    facts = [f"Folder: {session.workspace}", f"System: {platform.system()}", f"Mode: {session.mode}"]
    return text + "\n" + "\n".join(facts) + "\n"
