"""Carrying between a call and its client: reports and questions one way, answers the other."""

from __future__ import annotations

import asyncio
import secrets
import warnings
from collections.abc import Mapping
from typing import Any, Final, cast

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp.shared.message import ServerMessageMetadata

from surehand.core.errors import ToolFailure
from surehand.core.events import Progress
from surehand.mcp import convert
from surehand.mcp.server.calls import ClientCall, Log
from surehand.mcp.server.clients import Guest, Waiting

CANCEL_S: Final = 5.0
"""How long a cancelled call may take to end before its client is let go."""
WAITING_LIMIT: Final = 100
"""Calls of one client that may stand still until it answers."""


async def carry(guest: Guest, call: ClientCall, ctx: Any) -> dict[str, Any]:
    """Carry what a call reports and asks to the client, until there is a result or the client must call again."""
    assert call.task is not None
    modern = convert.is_modern(ctx.protocol_version)
    count = 0
    try:
        while not call.done or call.reports:
            await call.attention()
            while call.reports:
                count += 1
                await _send(call.reports.popleft(), count, guest, ctx)
            if call.questions and not call.done:
                if modern:
                    return _asked_back(guest, call)
                await _ask(call, ctx)
    except asyncio.CancelledError:
        call.task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait({call.task}, timeout=CANCEL_S)
        raise
    if call.task.cancelled():
        raise MCPError(types.INTERNAL_ERROR, "the call was cancelled: the server is closing")
    answer: dict[str, Any] = call.task.result()
    if modern and call.lacking and answer.get("isError"):
        raise convert.lacks_capability(call.lacking)
    return answer


def client_key(ctx: Any) -> str:
    """Return what a client is known by."""
    if ctx.request is None:
        return "stdio"
    if not convert.is_modern(ctx.protocol_version):
        return f"session {ctx.request.headers.get('mcp-session-id', '')}"
    known = ctx.session.client_params
    return f"client {known.client_info.name} {known.client_info.version}" if known else "client"


def capabilities(ctx: Any) -> Mapping[str, Any]:
    """Return what the client offers, in the protocol's words."""
    declared = ctx.session.client_capabilities
    return declared.model_dump(by_alias=True, exclude_none=True) if declared is not None else {}


def related(ctx: Any) -> ServerMessageMetadata:
    """Return what ties a message to the request it belongs to."""
    return ServerMessageMetadata(related_request_id=ctx.request_id)


async def _send(report: Progress | Log, count: int, guest: Guest, ctx: Any) -> None:
    if isinstance(report, Progress):
        done = float(count) if report.done is None else report.done
        await ctx.session.report_progress(done, report.total, report.text or None)
    elif convert.is_modern(ctx.protocol_version) or guest.wants(report.level):  # there each request says what it wants
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MCPDeprecationWarning)
            await ctx.session.send_log_message(report.level, report.data, report.logger, ctx.request_id)


_REQUESTS: Final[Mapping[str, tuple[Any, Any]]] = {
    "elicitation/create": (types.ElicitRequest, types.ElicitResult),
    "sampling/createMessage": (types.CreateMessageRequest, types.CreateMessageResult),
    "roots/list": (types.ListRootsRequest, types.ListRootsResult),
}


async def _ask(call: ClientCall, ctx: Any) -> None:
    """Put the first question to a client of the older era, and hand its answer in."""
    asked = call.questions.pop(0)
    request, result = _REQUESTS[asked.method]
    message = request.model_validate({"method": asked.method, "params": dict(asked.params)}, by_name=False)
    sending = asyncio.ensure_future(ctx.session.send_request(message, result, metadata=related(ctx)))
    ended = call.task or sending
    try:
        # The call may end without the answer: its time to ask is limited.
        await asyncio.wait({sending, ended, asked.answer}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not sending.done():
            sending.cancel()
    if asked.answer.done():
        return
    problem = None if sending.cancelled() else sending.exception()
    if problem is not None:
        asked.answer.set_exception(ToolFailure(f"the client could not be asked: {problem}"))
    elif not sending.cancelled():
        asked.answer.set_result(convert.plain(sending.result()))


def _asked_back(guest: Guest, call: ClientCall) -> dict[str, Any]:
    """Have a client of the newer era call again with the answers; the call stands still meanwhile."""
    asked = {each.key or f"question{number}": each for number, each in enumerate(call.questions, 1)}
    call.questions.clear()
    if len(guest.waiting) >= WAITING_LIMIT:  # a client that never comes back must not fill the memory
        oldest = guest.waiting.pop(next(iter(guest.waiting)))
        if oldest.call.task is not None:
            oldest.call.task.cancel()
    state = secrets.token_urlsafe(24)
    guest.waiting[state] = Waiting(call, asked)
    assert call.task is not None
    call.task.add_done_callback(lambda _: guest.waiting.pop(state, None))
    requests = {key: {"method": each.method, "params": dict(each.params)} for key, each in asked.items()}
    return convert.input_required(requests, state)


def resumed(guest: Guest, params: Any, name: str, args: Mapping[str, Any]) -> ClientCall:
    """Take up the call that a client was asked about, with its answers."""
    waiting = guest.waiting.get(params.request_state)
    if waiting is None:
        raise MCPError(types.INVALID_PARAMS, "this request state is unknown or no longer valid; make the call again")
    call = waiting.call
    if (name, args) != (call.name, call.args):
        raise MCPError(types.INVALID_PARAMS, "this request state belongs to another call")
    del guest.waiting[params.request_state]
    answers = cast("dict[str, Any]", params.input_responses or {})
    for key, asked in waiting.asked.items():
        said = convert.plain(answers.get(key))
        if asked.answer.done():
            continue
        if convert.answers(asked.method, said):
            asked.answer.set_result(said)
        else:
            call.questions.append(asked)  # asked again
    return call
