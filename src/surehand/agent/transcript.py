"""The transcript: the conversation of a session read back from its journal, and the turns it can be rewound to.

A call that began and has no result may have taken effect. It is never made again by itself: the model is told, and
looks before it acts. A call that never began is simply made.

A rewind never rewrites the journal. It adds `rewind_started` and `rewind_ended`; a reader that meets them leaves out
the turns that were rewound, and can bring them back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, get_args

from surehand.core.call import ToolCall, ToolError, ToolResult
from surehand.core.frozen import field, frozen
from surehand.core.model import Message, Role
from surehand.core.session import Checkpoint

LOOK_FIRST: Final = "Look at the state of things before doing it again."


@frozen
class Rewound:
    """Turns that a rewind took out of the transcript, and that undoing the rewind brings back."""

    id: str
    messages: tuple[Message, ...]
    checkpoints: tuple[Checkpoint, ...]
    """The whole conversation as it was before the rewind."""
    change_id: str = ""
    """The change that put the files back, where files were rewound too."""


@frozen
class Transcript:
    """A conversation as its journal has it."""

    messages: tuple[Message, ...] = ()
    interrupted: Mapping[int, ToolResult] | None = None
    """When the last turn's calls were interrupted: results by position for those that began."""
    checkpoints: tuple[Checkpoint, ...] = ()
    rewound: tuple[Rewound, ...] = ()
    """Rewinds that can still be undone, the latest last: no turn came after them."""
    unfinished: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """Rewinds begun and not ended, by id: their process died, or they are under way."""


def read(records: Iterable[Mapping[str, Any]]) -> Transcript:
    """Return the conversation a journal's records hold; what cannot be read is left out."""
    reader = _Reader()
    for record in records:
        try:
            reader.take(record, record.get("data") or {})
        except (KeyError, TypeError, AttributeError, ValueError):
            continue
    return reader.finish()


class _Reader:
    """Builds a transcript from the records of a journal."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.checkpoints: list[Checkpoint] = []
        self.rewound: list[Rewound] = []
        self.begun: dict[str, Mapping[str, Any]] = {}
        self.calls: list[str] = []
        self.results: dict[str, ToolResult] = {}
        self.tasks: set[str] = set()

    def take(self, record: Mapping[str, Any], data: Mapping[str, Any]) -> None:
        """Apply one record; raises for a damaged one."""
        match record["kind"]:
            case "turn_started":
                self._start_turn(record, data)
            case "message":
                self.messages.append(_check_message(Message.from_dict(data["message"])))
                self.calls, self.results = [], {}
            case "call_started":
                self.calls.append(record["call_id"])
            case "call_finished":
                self.results[record["call_id"]] = ToolResult.from_dict(data["result"])
            case "task_changed":
                self._add_task(data["task"]["id"])
            case "rewind_started":
                self.begun[data["id"]] = data
            case "rewind_ended":
                begun = self.begun.pop(data["id"])
                if data["ok"]:
                    self._rewind(begun, str(data.get("change_id") or ""))
            case _:
                pass

    def _start_turn(self, record: Mapping[str, Any], data: Mapping[str, Any]) -> None:
        number, prompt = len(self.checkpoints) + 1, str(data.get("prompt", ""))
        self.checkpoints.append(Checkpoint(data["turn"], number, prompt, float(record["at"]), len(self.messages)))
        self.rewound.clear()  # the conversation has taken another course

    def _add_task(self, id: str) -> None:
        """Note in which turn a task was started."""
        if id not in self.tasks and self.checkpoints:
            last = self.checkpoints[-1]
            self.checkpoints[-1] = Checkpoint(
                last.turn, last.number, last.prompt, last.at, last.messages, (*last.tasks, id)
            )
        self.tasks.add(id)

    def _rewind(self, begun: Mapping[str, Any], change_id: str) -> None:
        if begun["action"] == "restore":
            restored = next(each for each in reversed(self.rewound) if each.id == begun["of"])
            self.rewound = self.rewound[: self.rewound.index(restored)]
            if begun["transcript"]:
                self.messages, self.checkpoints = list(restored.messages), list(restored.checkpoints)
        else:
            position = next(at for at, each in enumerate(self.checkpoints) if each.turn == begun["to"])
            whole = tuple(self.messages), tuple(self.checkpoints)
            self.rewound.append(Rewound(begun["id"], *whole, change_id))
            if begun["transcript"]:
                del self.messages[self.checkpoints[position].messages :]
                del self.checkpoints[position:]
        self.calls, self.results = [], {}

    def finish(self) -> Transcript:
        messages = _drop_torn(self.messages)
        interrupted = None
        if messages and messages[-1].calls:
            interrupted = {
                position: self.results.get(call.id) or interrupted_result(call)
                for position, call in enumerate(messages[-1].calls)
                if call.id in self.results or call.id in self.calls
            }
        return Transcript(tuple(messages), interrupted, tuple(self.checkpoints), tuple(self.rewound), self.begun)


def interrupted_result(call: ToolCall) -> ToolResult:
    """Answer a call that had begun when its process died."""
    message = f"{call.name} had begun when the session was interrupted; whether it took effect is not known"
    return unanswered_result(call, ToolError("execution_error", message, LOOK_FIRST, {"interrupted": True}))


def unanswered_result(call: ToolCall, problem: ToolError) -> ToolResult:
    """Answer a call that no tool has answered: providers refuse a call without a result."""
    return ToolResult.failed(problem).with_meta(tool=call.name, call_id=call.id)


def _check_message(message: Message) -> Message:
    """Return a message that is one; raise ValueError for what a damaged line makes of it."""
    shapes = (
        message.role in get_args(Role) and isinstance(message.text, str),
        all(isinstance(call.name, str) and isinstance(call.id, str) for call in message.calls),
        all(isinstance(call.args, dict) for call in message.calls),
        all(isinstance(result.output, str) for result in message.results),
        bool(message.calls) <= (message.role == "assistant"),
        bool(message.results) == (message.role == "tool"),
    )
    if not all(shapes):
        raise ValueError("not a message")
    return message


def _drop_torn(messages: list[Message]) -> list[Message]:
    """Leave out what a damaged journal tore apart: results without their calls, calls without their results."""
    kept: list[Message] = []
    for position, message in enumerate(messages):
        before = kept[-1] if kept else None
        if message.role == "tool":
            if before is None or len(before.calls) != len(message.results):
                continue
        elif before is not None and before.calls and before.role == "assistant":
            kept.pop()
        unanswered = position + 1 < len(messages) and messages[position + 1].role != "tool"
        if message.role == "assistant" and message.calls and unanswered:
            continue
        kept.append(message)
    return kept
