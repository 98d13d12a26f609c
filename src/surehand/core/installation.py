"""This installation: which extra a missing module belongs to, and what a child of this interpreter needs to start."""

from __future__ import annotations

import os
from typing import Final

EXTRA_OF: Final = {
    # module that is missing: extra that brings it
    "PIL": "documents",
    "pi_heif": "documents",
    "pypdfium2": "documents",
    "httpx2": "web",
    "httpcore2": "web",
    "html_to_markdown": "web",
    "mcp": "serve",
    "mcp_types": "serve",
    "anyio": "serve",
    "starlette": "console",
    "uvicorn": "console",
    "anthropic": "anthropic",
    "openai": "openai",
    "xllamacpp": "local",
    "claude_agent_sdk": "claude",
    "prompt_toolkit": "chat",
    "acp": "acp",
}


def explain_missing_module(problem: ImportError) -> tuple[str, str] | None:
    """Return what is missing and how to install it, or None where the module belongs to no extra."""
    extra = EXTRA_OF.get((problem.name or "").partition(".")[0])
    if extra is None:
        return None
    return f"the optional part {extra!r} is not installed ({problem.name} is missing)", install_hint(extra)


def install_hint(extra: str) -> str:
    """Return the sentence that says how to install an extra."""
    return f"Install it with: pip install 'surehand[{extra}]'"


_LIBRARIES: Final = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


def find_library_paths() -> dict[str, str]:
    """Return the variables without which a Python built with a shared library may not start where it is installed."""
    return {name: os.environ[name] for name in _LIBRARIES if os.environ.get(name)}
