"""Extras: which optional part of the package a missing module belongs to, and how to install it."""

from __future__ import annotations

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
