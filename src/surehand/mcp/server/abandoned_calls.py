"""Abandoned calls: calls of the older protocol over HTTP whose connection was cut.

They are ended, and their commands with them, unless the client comes back in time for the answers it missed. The newer
protocol knows no coming back; there the SDK ends a call with its connection.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from surehand.mcp.lines import id_of_request
from surehand.mcp.server.clients import Clients

RESUME_S: Final = 1.5
"""How long a client whose connection was cut has to come back."""


class AbandonedCalls:
    """Watches the connections of calls, and ends those that nobody waits for any more."""

    def __init__(self, guests: Clients) -> None:
        self._guests = guests
        self._timers: dict[tuple[str, str | int], asyncio.TimerHandle] = {}
        self._resumed: dict[str, set[str | int]] = {}

    async def watch(self, inner: Any, scope: Any, receive: Any, send: Any, *, body: bytes, resumes: bool) -> None:
        """Answer a request of a session; `resumes` says that the client comes back for what it missed."""
        session = next(value.decode("latin-1") for name, value in scope["headers"] if name.lower() == b"mcp-session-id")
        if resumes:
            self._resume(session)
        answer = _Answer(send)
        await inner(scope, receive, answer.send)
        if answer.refused:  # the session is not there, or not this client's
            return
        if not answer.complete and (resumes or scope["method"] == "POST"):
            self._end_later(session, body)
        if scope["method"] == "DELETE":
            self._resumed.pop(session, None)
            await self._guests.drop(f"session {session}")

    def _end_later(self, session: str, body: bytes) -> None:
        number = id_of_request(body)
        for each in [number] if number is not None else self._resumed.pop(session, ()):
            later = asyncio.get_running_loop().call_later(RESUME_S, self._end, session, each)
            self._timers[session, each] = later

    def _resume(self, session: str) -> None:
        for known in [known for known in self._timers if known[0] == session]:
            self._timers.pop(known).cancel()
            self._resumed.setdefault(session, set()).add(known[1])

    def _end(self, session: str, number: str | int) -> None:
        self._timers.pop((session, number), None)
        if (guest := self._guests.find(f"session {session}")) is not None:
            guest.end_call(number)


class _Answer:
    """Passes an answer on, and knows whether all of it was."""

    def __init__(self, send: Any) -> None:
        self._send = send
        self.complete = False
        self.refused = False

    async def send(self, message: Any) -> None:
        self.refused = self.refused or message.get("status", 0) >= 400
        await self._send(message)
        self.complete = message["type"] == "http.response.body" and not message.get("more_body", False)
