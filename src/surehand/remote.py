"""Remote requests: what other processes of the user may follow and ask of an application that runs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from surehand.app import Surehand

_log = logging.getLogger("surehand")


def open_channel(app: Surehand, stack: AsyncExitStack) -> None:
    """Let other processes of the user follow this session and ask things of it, until `stack` is closed."""
    from surehand.engine.channel import Channel  # lazy: sockets and a thread, only for a session that keeps state
    from surehand.state.workspaces import note_workspace

    session, questions = app.session, app.executor.permissions.questions
    assert session.state_dir is not None

    async def stop_call(request: Mapping[str, Any]) -> Mapping[str, Any]:
        if app.executor.cancel(str(request.get("id"))):
            return {"ok": True}
        return {"error": "that call does not run any more", "hint": ""}

    async def reload_settings(request: Mapping[str, Any]) -> Mapping[str, Any]:
        del request
        app.reload_settings()
        return {"ok": True, "rules": len(app.policy.own_rules)}

    async def list_slots(request: Mapping[str, Any]) -> Mapping[str, Any]:
        del request
        return {"slots": [each.to_dict() for each in app.executor.slots() if each.running or each.waiting]}

    session.requests |= questions.requests
    session.requests |= {"stop_call": stop_call, "reload_settings": reload_settings, "slots": list_slots}
    try:
        note_workspace(session.state_dir, session.workspace)
        channel = Channel(session, app.bus, questions.lose_answerers)
    except OSError as problem:  # a state folder that cannot be written, or no descriptor left
        _log.info("other processes cannot follow this session: %s", problem)
        return
    questions.reachable, questions.has_answerers = True, lambda: channel.has_answerers
    stack.push_async_callback(channel.close)
