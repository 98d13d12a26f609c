"""Answering the calls of a model's message in a loop of one's own: what the adapters of plain clients share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeVar

from surehand.core.call import ToolCall, ToolResult
from surehand.integrations.toolbox import App, Toolbox

MessageT = TypeVar("MessageT")


class MessageTools(ABC, Generic[MessageT]):
    """The tools of one application for a client: shown as its parameters, run as its messages' calls.

    What needs permission asks the application's approver. Without one, `pending` says what waits, and `answer` runs
    what was approved, by the digest that was shown, and refuses the rest.
    """

    def __init__(self, app: App, tools: Iterable[str] = ()) -> None:
        self._box = Toolbox(app, tools)

    @abstractmethod
    def _read_calls(self, message: MessageT) -> list[ToolCall]:
        """Return the calls of a message."""

    @abstractmethod
    def _write_results(self, message: MessageT, calls: list[ToolCall], results: list[ToolResult]) -> list[Any]:
        """Return the results as the client's next request takes them."""

    async def answer(self, message: MessageT, approved: Mapping[str, str] | None = None) -> list[Any]:
        """Make the calls of a message, safe ones together, and return what goes into the next request."""
        calls = self._read_calls(message)
        results = await self._box.on_loop(self._box.run_message(calls, approved or {}))
        return self._write_results(message, calls, results)

    def answer_blocking(self, message: MessageT, approved: Mapping[str, str] | None = None) -> list[Any]:
        """Do the same from plain code, with an application of `Surehand.sync(...)`."""
        calls = self._read_calls(message)
        return self._write_results(message, calls, self._box.wait(self._box.run_message(calls, approved or {})))

    async def pending(self, message: MessageT) -> dict[str, dict[str, Any]]:
        """Return what has to be approved first, by the call's id: text to show, reason, and the digest for a yes."""
        found = await self._box.on_loop(self._box.find_message_pending(self._read_calls(message)))
        return {id: each.to_dict() for id, each in found.items()}

    def pending_blocking(self, message: MessageT) -> dict[str, dict[str, Any]]:
        """Do the same from plain code."""
        found = self._box.wait(self._box.find_message_pending(self._read_calls(message)))
        return {id: each.to_dict() for id, each in found.items()}
