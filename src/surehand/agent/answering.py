"""The calls of one turn: taken over as the model made them, and answered each, whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from surehand.agent.unmade import no_tools, stopped
from surehand.core.call import ToolCall, ToolResult, new_id
from surehand.core.model import Message
from surehand.core.session import Session
from surehand.core.view import Selection
from surehand.engine.executor import Executor
from surehand.engine.orchestrator import run_each


def taken_over(message: Message, before: Iterable[Message], selection: Selection | None) -> Message:
    """Return a model's message with calls that can be told apart, under their tools' own names.

    Models repeat ids, which providers refuse when the conversation is sent back to them; and they call a deferred tool
    by the name a provider once saw.
    """
    if not message.calls:
        return message
    used = {call.id for earlier in before for call in earlier.calls}
    calls: list[ToolCall] = []
    for call in message.calls:
        id = new_id("call") if call.id in used else call.id
        used.add(id)
        calls.append(replace(call, id=id, name=selection.real_name(call.name) if selection else call.name))
    return replace(message, calls=tuple(calls))


async def answered(
    calls: Sequence[ToolCall],
    known: Mapping[int, ToolResult],
    executor: Executor,
    session: Session,
    selection: Selection | None,
) -> tuple[list[ToolResult], asyncio.CancelledError | None]:
    """Run calls through the door, but for those with a known result; return all results by position, and what stopped
    them if something did.

    What is stopped gets a result all the same: a conversation that goes on later must not hold a call without one.
    """
    if selection is None:
        return [no_tools(call) for call in calls], None
    results = dict(known)
    waiting = [position for position in range(len(calls)) if position not in results]
    stopped_by: asyncio.CancelledError | None = None

    def take(finished: tuple[int, ToolResult]) -> None:
        results[waiting[finished[0]]] = finished[1]

    try:
        await run_each([calls[position] for position in waiting], executor, session, selection, take)
    except asyncio.CancelledError as cancelled:
        stopped_by = cancelled
    return [results.get(position) or stopped(call) for position, call in enumerate(calls)], stopped_by
