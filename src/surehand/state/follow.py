"""Follow every session of this user: those that run now, and those that start while somebody follows."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from typing import Any, Final, cast

from surehand.state import local_rpc
from surehand.state.local_rpc import LINE_LIMIT, PROTOCOL

_WAITING: Final = 10_000
"""Lines that may wait for the one who follows; beyond that the sessions keep theirs, and count what they lose."""


class _Follower:
    def __init__(self, answers: bool) -> None:
        self._answers = answers
        self.lines: asyncio.Queue[dict[str, Any]] = asyncio.Queue(_WAITING)
        self._channels: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> tuple[str, asyncio.Server]:
        """Listen for sessions that start, then look for those that run: in this order none is missed."""
        local_rpc.clear_stale()
        name, listening = local_rpc.listen(local_rpc.follower_name(answers=self._answers))
        server = await asyncio.start_unix_server(self._accept, sock=listening, limit=LINE_LIMIT)
        for each in local_rpc.session_sockets():
            self._begin(self._call(each))
        return name, server

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def read(self) -> AsyncIterator[dict[str, Any]]:
        """Yield events for ever."""
        while True:
            yield await self.lines.get()

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _call(self, name: str) -> None:
        if (peer := await asyncio.to_thread(local_rpc.connect, name)) is None:
            return
        peer.setblocking(False)
        reading, writing = await asyncio.open_unix_connection(sock=peer, limit=LINE_LIMIT)
        writing.write(local_rpc.encode_line({"v": PROTOCOL, "want": "events", "answers": self._answers}))
        await self._read(reading, writing)

    def _accept(self, reading: asyncio.StreamReader, writing: asyncio.StreamWriter) -> None:
        if local_rpc.peer_is_user(writing.get_extra_info("socket")):
            self._begin(self._read(reading, writing))
        else:
            writing.close()

    async def _read(self, reading: asyncio.StreamReader, writing: asyncio.StreamWriter) -> None:
        hello: dict[str, Any] | None = None
        closed = False
        try:
            while line := await reading.readline():
                found: Any = json.loads(line)
                if not isinstance(found, dict):
                    return
                event = cast("dict[str, Any]", found)
                if hello is None:
                    if event.get("kind") != "hello" or str(event.get("channel")) in self._channels:
                        return  # no session, or one that was met twice while it started
                    hello = event
                    self._channels.add(str(hello["channel"]))
                closed = closed or (event["kind"] == "session_closed" and event["session_id"] == hello["session_id"])
                await self.lines.put(event)
        except (OSError, ValueError):
            pass
        finally:
            writing.close()
            if hello is not None:
                self._channels.discard(str(hello["channel"]))
        if hello is not None and not closed:
            # It was killed, or could not say its last words: what it left is taken away.
            local_rpc.remove(str(hello["channel"]))
            lost = {"kind": "session_lost", "at": time.time(), "session_id": hello["session_id"], "pid": hello["pid"]}
            await self.lines.put(lost)


@contextlib.asynccontextmanager
async def follow_sessions(*, answers: bool = False) -> AsyncGenerator[AsyncIterator[dict[str, Any]]]:
    """Give what happens in every session of the user, from the moment of entering on.

    With `answers` the sessions know that somebody is here who answers questions: those that have nobody else to ask
    wait for an answer instead of taking that for a no.

    The first line of a session is its `hello`. A session that ended without a word of its own gets `session_lost`.
    """
    follower = _Follower(answers)
    name, server = await follower.start()
    try:
        yield follower.read()
    finally:
        local_rpc.remove(name)
        server.close()
        await follower.stop()


def running_sessions() -> list[dict[str, Any]]:
    """Return the description of every session that runs now."""
    local_rpc.clear_stale()
    found = (local_rpc.ask(name, {"want": "session"}) for name in local_rpc.session_sockets())
    return [facts for facts in found if facts is not None and "error" not in facts]
