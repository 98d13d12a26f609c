"""Updates for a client while a session works: the events of the bus as session updates, in order.

Events come from worker threads too; updates are sent one after the other by a task of their own. Whoever asks the
client something, or ends a turn, waits until everything before it was sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from acp import schema
from surehand.acp import convert

if TYPE_CHECKING:
    from acp import Client
    from surehand.acp.convert import Update
    from surehand.app import Surehand
    from surehand.core.call import ToolCall, ToolResult
    from surehand.core.events import Event, Progress

LIVE_CHARACTERS: Final = 20_000
"""Characters of a running command's output that are shown; its result has the rest."""
_TO_DO: Final[Mapping[str, schema.PlanEntryStatus]] = {
    "pending": "pending",
    "in_progress": "in_progress",
    "done": "completed",
    "failed": "completed",
}


class Updates:
    """Sends a session's updates to the client."""

    def __init__(self, client: Client, app: Surehand, session_id: str, *, terminals: bool = False) -> None:
        self._client = client
        self._session_id = session_id
        self._own_id = app.session.id
        self._session = app.session
        self._terminals = terminals
        """Whether the client shows terminals of ours: an extension that editors have agreed on."""
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Update | asyncio.Future[None]] = asyncio.Queue()
        self._announced: dict[str, str] = {}
        self._live: dict[str, str] = {}
        self._plan: dict[str, schema.PlanEntry] = {}
        self._stop_listening = app.bus.subscribe(self._take_event)
        self._sender = asyncio.create_task(self._send_all())

    def send(self, update: Update) -> None:
        """Send an update after those before it; safe from any thread."""
        self._loop.call_soon_threadsafe(self._queue.put_nowait, update)

    async def flush(self) -> None:
        """Wait until everything so far was sent."""
        reached: asyncio.Future[None] = self._loop.create_future()
        self._loop.call_soon(self._queue.put_nowait, reached)
        await reached

    async def close(self) -> None:
        """Stop listening and sending."""
        self._stop_listening()
        self._sender.cancel()
        await asyncio.gather(self._sender, return_exceptions=True)

    async def _send_all(self) -> None:
        while True:
            next_one = await self._queue.get()
            if isinstance(next_one, asyncio.Future):
                if not next_one.done():
                    next_one.set_result(None)
                continue
            try:
                await self._client.session_update(session_id=self._session_id, update=next_one)
            except (ConnectionError, OSError):  # the client has left; `flush` must not wait for ever
                continue

    # -- events ------------------------------------------------------------------------------------------------------

    def _take_event(self, event: Event) -> None:
        if event.kind == "subagent_event":
            self._take(event.data["event"], str(event.data["subagent_id"]))
        elif event.session_id == self._own_id:
            self._take(event, "")

    def _take(self, event: Event, agent: str) -> None:
        match event.kind:
            case "permission_asked":
                self.announce(event.data["call"], agent)
            case "call_started":
                self._start(event.data["call"], agent)
            case "call_progress":
                self._report(event.call_id, event.data["progress"])
            case "call_finished":
                self._finish(event.data["call"], event.data["result"], agent)
            case "task_changed":
                self._change_plan(event.data["task"])
            case "note":
                self.send(convert.agent_thought(f"{event.data.get('message', '')}\n"))
            case _:
                pass

    def announce(self, call: ToolCall, agent: str = "", status: schema.ToolCallStatus = "pending") -> bool:
        """Announce a call once; return whether this was the first time."""
        if call.id in self._announced:
            return False
        self._announced[call.id] = agent
        terminal = self._terminals and call.name == "Bash"
        self.send(convert.call_start(call, self._session.cwd, status=status, agent=agent, terminal=terminal))
        return True

    def _start(self, call: ToolCall, agent: str) -> None:
        if not self.announce(call, agent, "in_progress"):
            self.send(convert.call_update(call.id, status="in_progress"))

    def _report(self, call_id: str, progress: Progress) -> None:
        if call_id not in self._announced or not progress.text:
            return
        if self._terminals and progress.data.get("stream"):
            data = progress.text.replace("\n", "\r\n") + "\r\n"
            meta = {"terminal_output": {"terminal_id": call_id, "data": data}}
            self.send(convert.call_update(call_id, meta=meta))
            return
        text = f"{self._live.get(call_id, '')}{progress.text}\n"[-LIVE_CHARACTERS:]
        self._live[call_id] = text
        self.send(convert.call_update(call_id, content=[convert.text_content(text)]))

    def _finish(self, call: ToolCall, result: ToolResult, agent: str) -> None:
        self.announce(call, agent)
        self._live.pop(call.id, None)
        terminal = self._terminals and call.name == "Bash"
        if terminal and result.error is not None and "exit_code" not in dict(result.data or {}):
            terminal = False  # it never ran: show why
        self.send(convert.call_end(call, result, self._session.cwd, terminal=terminal))

    def _change_plan(self, task: Mapping[str, Any]) -> None:
        """Show the to-dos of the session as its plan."""
        if task.get("kind") != "todo":
            return
        status = _TO_DO.get(str(task["status"]))
        if status is None:
            self._plan.pop(str(task["id"]), None)
        else:
            self._plan[str(task["id"])] = schema.PlanEntry(content=str(task["title"]), priority="medium", status=status)
        self.send(schema.AgentPlanUpdate(session_update="plan", entries=list(self._plan.values())))
