"""What is set up for the web, as facts for people; keys are told by where they stand, never by what they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from surehand.core.errors import ToolFailure

if TYPE_CHECKING:
    from surehand.core.settings import WebSettings


def web_status(web: WebSettings) -> dict[str, Any]:
    """Return what the web tools would use: engine, where its key stands, hosts opened, proxy."""
    from surehand.state import keys
    from surehand.web.engines import choose

    try:
        engine, problem = choose(web).name, ""
    except ToolFailure as failure:
        engine, problem = web.search_backend, failure.message
    found = keys.get(engine or "")
    return {
        "search_engine": engine,
        "search_problem": problem,
        "key_from": found[1] if found else None,
        "opened_hosts": list(web.opened_hosts),
        "proxy": bool(web.proxy),
    }
