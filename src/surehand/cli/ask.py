"""`surehand ask`: ask a model one question; it may use the tools."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from asyncio import CancelledError
from typing import TYPE_CHECKING, Any, cast

from surehand.agent.loop import Outcome, OutputShape, ask_for
from surehand.cli import render, session
from surehand.cli.approvals import Deferred
from surehand.cli.parser import amount_above_zero, approvals_option, count_above_zero, effort_option
from surehand.cli.screen import Screen
from surehand.cli.tools import csv, warn_of_unmatched
from surehand.core.call import ToolCall, ToolResult, new_id
from surehand.core.errors import SettingsError
from surehand.core.model import ModelError
from surehand.models import Choice, choose, make_limits, open_model
from surehand.slash import add_mentioned

if TYPE_CHECKING:
    from surehand.agent.loop import Limits, Loop
    from surehand.app import Surehand
    from surehand.core.model import Model, Prompt


def configure(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("question", nargs="*", help="the question; - or nothing reads standard input")
    parser.add_argument(
        "--with-tools",
        type=_parse_boolean,
        default=True,
        nargs="?",
        const=True,
        metavar="true|false",
        help="let the model use tools",
    )
    parser.add_argument("--tool-allow", default="", metavar="CSV", help="only these names, aliases or globs")
    parser.add_argument("--model", metavar="NAME", help="a model's name, or provider/name")
    parser.add_argument("--record", metavar="FILE", help="write every call to a file, for `surehand replay`")
    parser.add_argument(
        "--schema", metavar="FILE", help="a JSON Schema: the answer is one JSON value that conforms to it"
    )
    effort_option(parser)
    approvals_option(parser)
    parser.add_argument("--max-turns", type=count_above_zero, metavar="N", help="the maximum number of model turns")
    parser.add_argument(
        "--max-tokens", type=count_above_zero, metavar="N", help="the maximum number of tokens, over all turns"
    )
    parser.add_argument(
        "--max-seconds", type=amount_above_zero, metavar="S", help="the time limit for the whole answer, calls included"
    )
    parser.add_argument(
        "--max-cost",
        type=amount_above_zero,
        metavar="X",
        help="needs a known price, or [model] input_price and output_price",
    )


def _parse_boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ArgumentTypeError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def run(options: Namespace) -> int:
    """Run the command and return its exit code."""
    words = " ".join(options.question)
    if words in ("", "-") and sys.stdin.isatty():
        render.note(render.paint("type your question; Ctrl-D on an empty line sends it", "dim", stream=sys.stderr))
    question = sys.stdin.read() if words in ("", "-") else words
    if not question.strip():
        render.error("there is no question", 'Try: surehand ask "what time is it"', code="invalid_args")
        return 2
    options.schema = _read_shape(options.schema)
    return session.run(_ask(options, question))


async def _ask(options: Namespace, question: str) -> int:
    own = session.OwnSession(options, new_id("ask"))
    more: dict[str, Any] = {"tool_allow": csv(options.tool_allow), "record": options.record}
    shows = () if render.as_json(options) else ("call_finished", "note")
    async with session.open_app(options, shows=shows, **more) as app:
        choice = Choice("", options.model or "", "")
        try:
            choice = choose(app.settings, options.model)
            model = open_model(app.settings, choice, effort=options.effort)
            if options.with_tools:
                await session.connect_servers(app)
                warn_of_unmatched(app, csv(options.tool_allow))
            return await _report_answer(options, app, model, choice, question)
        except ModelError as problem:
            own.drop_if_empty()
            return _report_failure(options, problem, choice, Outcome())
        except SettingsError:
            own.drop_if_empty()
            raise


async def _report_answer(options: Namespace, app: Surehand, model: Model, choice: Choice, question: str) -> int:
    screen = None if render.as_json(options) else Screen(app, choice)
    if screen is not None:
        app.approver = Deferred(app.approver, screen)
    # A structured answer is shown once it is validated, not while it streams.
    on_text = screen if options.schema is None else None
    loop = app.conversation(model, limits=limits(options, app, choice), with_tools=options.with_tools, on_text=on_text)
    try:
        if screen is not None:
            screen.begin()
        prompt = await add_mentioned(app, question) if options.with_tools else question
        outcome = await _ask_loop(loop, prompt, options.schema)
    except CancelledError:
        _tell(options, loop.outcome, choice, screen)  # report what was done so far
        raise
    except ModelError as problem:
        if screen is not None:
            screen.break_off()
        if not loop.outcome.turns and not loop.outcome.text:
            raise
        return _report_failure(options, problem, choice, loop.outcome)
    _tell(options, outcome, choice, screen)
    return 0 if outcome.answered else 1


async def _ask_loop(loop: Loop, question: Prompt, shape: OutputShape | None) -> Outcome:
    if shape is None:
        return await loop.ask(question)
    return await ask_for(loop, question, shape)


def _read_shape(path: str | None) -> OutputShape | None:
    """Read the output schema from a file; raise SettingsError for an invalid one."""
    if path is None:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            schema: Any = json.load(file)
    except OSError as problem:
        raise SettingsError(f"--schema {path} cannot be read: {problem.strerror or problem}") from None
    except (ValueError, RecursionError) as problem:
        raise SettingsError(f"--schema {path} is not JSON: {problem}") from None
    if not isinstance(schema, dict):
        raise SettingsError(f"--schema {path} is not a JSON Schema: it must be an object")
    return OutputShape(cast("dict[str, Any]", schema))


def _tell(options: Namespace, outcome: Outcome, choice: Choice, screen: Screen | None) -> None:
    if screen is None:
        render.facts(options, _shape(options, outcome, choice), "")
        return
    if options.schema is not None and outcome.answered:
        render.line(json.dumps(outcome.value, ensure_ascii=False, indent=2))
    screen.end(outcome)
    if outcome.problem:
        render.error(f"no answer fits the schema: {outcome.problem}")
    if not outcome.answered:
        _print_resume_hint(options)


def _shape(options: Namespace, outcome: Outcome, choice: Choice) -> dict[str, Any]:

    return answer(outcome, session=options.session or "", model=choice.to_dict())


def _report_failure(options: Namespace, problem: ModelError, choice: Choice, outcome: Outcome) -> int:
    """Report that the model failed, with what was done before; the session keeps that too."""
    outcome.stop = "model_error"
    if render.as_json(options):
        error = {"code": "model_error", "message": problem.message, "hint": problem.hint}
        render.facts(options, {**_shape(options, outcome, choice), "error": error}, "")
    else:
        render.error(problem.message, problem.hint)
        _print_resume_hint(options)
    return 1


def _print_resume_hint(options: Namespace) -> None:
    if options.session:
        render.note(f"Go on with: surehand ask --session {options.session} ...")


def limits(options: Namespace, app: Surehand, choice: Choice) -> Limits:
    """Return the limits of the settings, overridden by the options."""
    own = {"turns": options.max_turns, "tokens": options.max_tokens, "seconds": options.max_seconds}
    return make_limits(app.settings, choice, cost=options.max_cost, **own)


# The JSON answer of `ask`: a stable format for programs.


def answer(outcome: Outcome, *, session: str, model: dict[str, str]) -> dict[str, Any]:
    """Return the JSON answer: `toolCalls` and `toolResults` of all turns; `toolError` is the last failure or null."""
    spent = outcome.spent
    shaped = {} if outcome.value is None else {"output": plain_value(outcome.value)}
    return {
        "answer": outcome.text,
        **shaped,
        "toolCalls": [_call(call) for call in outcome.calls],
        "toolResults": [_result(call, result) for call, result in zip(outcome.calls, outcome.results, strict=True)],
        "toolError": _last_error(outcome),
        "sessionContextUpdated": bool(outcome.results),
        "usage": {**spent.usage.to_dict(), "cost": spent.cost, "cost_estimated": spent.estimated},
        "session": session,
        "model": model,
        "turns": outcome.turns,
        "stop": outcome.stop,
    }


def plain_value(value: Any) -> Any:
    """Encode the value of a structured answer as JSON data."""
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


def _call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "name": call.name, "args": call.shown_args, "source": call.source}


def _result(call: ToolCall, result: ToolResult) -> dict[str, Any]:
    return {"id": call.id, "tool": call.name, **result.to_dict()}


def _last_error(outcome: Outcome) -> dict[str, str] | None:
    for call, result in zip(reversed(outcome.calls), reversed(outcome.results), strict=True):
        if result.error is not None:
            return {"tool": call.name, "code": result.error.code, "message": result.error.message}
    return None
