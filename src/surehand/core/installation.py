"""This installation: which extra provides a missing module, and what a child interpreter needs to start."""

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
    "jwt": "serve",
    "pydantic_ai": "pydantic-ai",
    "langchain": "langchain",
    "langchain_core": "langchain",
    "langgraph": "langchain",
    "agents": "openai-agents",
    "google.adk": "google-adk",
    "opentelemetry": "otel",
    "keyring": "keyring",
    "ray": "cluster",
}
WHAT_FOR: Final = {
    "documents": "Read of PDF and images",
    "web": "WebFetch and WebSearch",
    "serve": "MCP, as a server and as a client",
    "console": "the console",
    "chat": "`surehand chat`",
    "acp": "the agent of an editor",
    "anthropic": "models of Anthropic",
    "openai": "models of OpenAI, and all that speak like it",
    "local": "models in this process",
    "otel": "traces and metrics by OpenTelemetry",
    "keyring": "keys in the system's keyring",
    "cluster": "sessions on a Ray cluster",
    "claude": "the Claude Agent SDK",
    "pydantic-ai": "pydantic-ai",
    "langchain": "LangChain and LangGraph",
    "openai-agents": "OpenAI's Agents SDK",
    "google-adk": "Google's ADK",
}


def explain_missing_module(problem: ImportError) -> tuple[str, str] | None:
    """Return (what is missing, how to install it); None if the module belongs to no extra."""
    missing = problem.name or ""
    extra = EXTRA_OF.get(".".join(missing.split(".")[:2])) or EXTRA_OF.get(missing.partition(".")[0])
    if missing == "google":  # a namespace package of many; here only the ADK adapter imports it
        extra = "google-adk"
    if extra is None:
        return None
    return f"the optional part {extra!r} is not installed ({problem.name} is missing)", install_hint(extra)


def find_missing() -> dict[str, list[str]]:
    """Return the extras that are not installed, with the modules they lack."""
    from importlib.util import find_spec

    missing: dict[str, list[str]] = {}
    for module, extra in EXTRA_OF.items():
        try:
            found = find_spec(module) is not None
        except ModuleNotFoundError:  # a module of a package that is missing
            found = False
        if not found:
            missing.setdefault(extra, []).append(module)
    return missing


def install_hint(extra: str) -> str:
    """Return the sentence that says how to install an extra."""
    return f"Install it with: pip install 'surehand[{extra}]'"


_LIBRARIES: Final = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


def find_library_paths() -> dict[str, str]:
    """Return the library path variables that a Python built with a shared library may need to start."""
    return {name: os.environ[name] for name in _LIBRARIES if os.environ.get(name)}
