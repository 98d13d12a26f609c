"""The offline model, a small planner for a machine with no model: it knows a dozen kinds of request, and says so.

It is no language model. It reads a request by patterns (`phrases`), makes the call it stands for, and shows what came
back.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from surehand.core.call import ToolCall
from surehand.core.model import Message, ModelEvent, ModelRequest, TextDelta, Turn
from surehand.providers.phrases import plan_call

LABEL: Final = "offline planner (no language model)"
_EXAMPLES: Final = """\
  what time is it                    2 + 3 * 4
  read README.md lines 1-20          list the python files
  find TODO in src                   list files in docs
  run the tests                      run `git status`
  fetch https://example.com          where am I
  how many lines are in README.md    undo

For everything else, set up a model: `surehand models` says how."""
HELP: Final = f"I am the {LABEL}. I understand requests such as:\n{_EXAMPLES}"
NOT_UNDERSTOOD: Final = f"I do not understand this. I am the {LABEL}; I know requests such as:\n{_EXAMPLES}"
NO_TOOLS: Final = f"I am the {LABEL}. All I can do is call tools, and this conversation has none."
_GREETINGS: Final = ("", "help", "hello", "hi", "hey", "who are you", "what can you do")
_NOTICE: Final = "[notice]"


class OfflineModel:
    """Answers without a model: one call for one understood request, then its result as the answer."""

    provider = "offline"
    caches_prompts = False
    name = LABEL
    context_tokens = 1_000_000

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the answer to a request as it comes; the last event is the turn."""
        last = request.messages[-1]
        if last.role == "tool":
            said = "\n\n".join(result.output for result in last.results)
        elif not request.tools:
            said = NO_TOOLS
        elif plan := plan_call(asked := _without_notices(last.text)):
            yield Turn(Message("assistant", "", (ToolCall(*plan, source="model"),)), "tool_use")
            return
        else:
            said = HELP if asked.lower().rstrip("?!. ") in _GREETINGS else NOT_UNDERSTOOD
        yield TextDelta(said)
        yield Turn(Message("assistant", said))

    async def close(self) -> None:
        """Do nothing: nothing is open."""


def _without_notices(text: str) -> str:
    """Return what the user wrote: what the session tells a model beside comes before it."""
    parts = text.strip().split("\n\n")
    while len(parts) > 1 and parts[0].startswith(_NOTICE):
        del parts[0]
    return "\n\n".join(parts).strip()
