"""Structured output: an answer validated against a schema, and asked for again if it does not fit.

The shape is a JSON Schema, or a pydantic model. The prompt holds it, which every provider understands; the
answer is validated here, whatever a provider promises.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast

from surehand.core.errors import SettingsError, ToolFailure
from surehand.core.model import Message, user_message
from surehand.core.schema import schema_problems, schema_validator

if TYPE_CHECKING:
    from surehand.agent.loop import Loop, Outcome
    from surehand.core.model import Prompt

RETRIES: Final = 3
"""How often an answer that does not fit is asked for again."""
FAULTS_TOLD: Final = 10
_FENCED: Final = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n?```", re.DOTALL)
_WANTED: Final = "Answer with one JSON value and nothing else, no words round it. It must fit this JSON Schema:\n"


class OutputShape:
    """The shape an answer must have. `shape` is a JSON Schema or a pydantic model (a class)."""

    def __init__(self, shape: Mapping[str, Any] | type[Any]) -> None:
        self._parse = None
        if isinstance(shape, Mapping):
            self.schema = dict(shape)
        elif hasattr(shape, "model_json_schema"):
            given = cast("Any", shape)
            self.schema, self._parse = cast("dict[str, Any]", given.model_json_schema()), given.model_validate
        else:
            raise SettingsError(f"an output is a JSON Schema or a pydantic model, not {shape!r}")
        if problems := schema_problems(self.schema, "output schema"):
            raise SettingsError("; ".join(problems))
        try:
            self._validator = schema_validator(self.schema)
        except ToolFailure as problem:
            raise SettingsError(problem.message) from None

    def read(self, text: str) -> Any:
        """Return the value an answer holds; raise ValueError that says what does not fit."""
        value = _json_of(text)
        faults: Any = islice(self._validator.iter_errors(value), FAULTS_TOLD)
        if told := [f"at {_format_location(fault)}: {fault.message}" for fault in faults]:
            raise ValueError("\n".join(told))
        return value if self._parse is None else self._parse(value)  # a pydantic error is a ValueError

    def extend_prompt(self, prompt: Prompt) -> Message:
        """Return the prompt with the schema its answer must have."""
        message = user_message(prompt)
        text = f"{message.text}\n\n{_WANTED}{json.dumps(self.schema, ensure_ascii=False)}"
        return Message("user", text, images=message.images)


async def ask_for(loop: Loop, prompt: Prompt, shape: OutputShape) -> Outcome:
    """Ask until the answer fits or the retries are spent; the outcome has its `value`, and all that it took.

    Where no answer fits, its `stop` is `invalid_output`; where a limit was met first, that limit.
    """
    outcome = await loop.ask(shape.extend_prompt(prompt))
    for left in reversed(range(RETRIES + 1)):
        if not outcome.answered:
            return outcome
        try:
            outcome.value = shape.read(outcome.text)
            return outcome
        except ValueError as problem:
            if not left:
                outcome.stop, outcome.problem = "invalid_output", str(problem)
                return outcome
            again = f"That does not fit the schema:\n{problem}\nAnswer again, with the JSON value alone."
        outcome = outcome.join(await loop.ask(again))
    return outcome


def _json_of(text: str) -> Any:
    """Return the JSON value of an answer, also where a model put it between fences."""
    for candidate in (text.strip(), *(found.strip() for found in _FENCED.findall(text))):
        try:
            return json.loads(candidate)
        except (ValueError, RecursionError):
            continue
    raise ValueError("the answer is not a JSON value")


def _format_location(fault: Any) -> str:
    return "/" + "/".join(map(str, fault.instance_path))
