"""`holdfast ask`: one question to a model that may use the tools."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import Any

from holdfast.cli import render


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("question", nargs="*", help="the question; - or nothing reads standard input")
    parser.add_argument(
        "--with-tools",
        type=_truth,
        default=True,
        nargs="?",
        const=True,
        metavar="true|false",
        help="let the model use tools",
    )
    parser.add_argument("--tool-allow", default="", metavar="CSV", help="only these names, aliases or globs")
    parser.add_argument("--model", metavar="NAME", help="a model's name, or provider/name")
    parser.add_argument("--record", metavar="FILE", help="write every call to a file, for `holdfast replay`")
    parser.add_argument("--max-turns", type=_count, metavar="N")
    parser.add_argument("--max-tokens", type=_count, metavar="N", help="tokens of all turns together")
    parser.add_argument("--max-seconds", type=_amount, metavar="S")
    parser.add_argument("--max-cost", type=_amount, metavar="X", help="needs [model] input_price and output_price")


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ArgumentTypeError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number over 0")
    return int(text)


def _amount(text: str) -> float:
    try:
        amount = float(text)
    except ValueError:
        amount = 0.0
    if not 0 < amount < float("inf"):
        raise ArgumentTypeError(f"{text!r} is not a number over 0")
    return amount


def run(options: Namespace) -> int:
    from holdfast.cli import door

    words = " ".join(options.question)
    question = sys.stdin.read() if words in ("", "-") else words
    if not question.strip():
        render.error("there is no question", 'Try: holdfast ask "what time is it"', code="invalid_args")
        return 2
    return door.run(_ask(options, question))


async def _ask(options: Namespace, question: str) -> int:
    from holdfast.agent.ask import answer
    from holdfast.cli import door
    from holdfast.cli.tools import csv
    from holdfast.core.call import new_id
    from holdfast.core.model import ModelError
    from holdfast.models import choose, open_model

    options.session = options.session or _own_session(options, new_id("ask"))
    as_json = render.as_json(options)
    async with door.opened(options, tool_allow=csv(options.tool_allow), record=options.record) as app:
        if options.with_tools:
            await door.connected(app)
        choice = choose(app.settings, options.model)
        try:
            model = open_model(app.settings, choice)
            shown = None if as_json else Shown(app)
            loop = app.conversation(model, limits=limits(options, app), with_tools=options.with_tools, on_text=shown)
            outcome = await loop.ask(question)
        except ModelError as problem:
            return _failed(options, problem)
        if as_json:
            render.facts(
                options,
                answer(
                    outcome,
                    session=options.session or "",
                    model=choice.to_dict(),
                    cost=loop.limits.cost_of(outcome.usage),
                ),
                "",
            )
        else:
            render.line()
            if not outcome.answered:
                go_on = f"Go on with: holdfast ask --session {options.session} ..." if options.session else ""
                render.error(f"stopped: {outcome.stop}", go_on)
        return 0 if outcome.answered else 1


def _own_session(options: Namespace, name: str) -> str | None:
    """Return the name under which this question is kept, or None where nothing can be kept: it is answered anyway."""
    import os

    from holdfast.host import locations

    folder = os.path.join(locations.workspace_state(options.cwd), "sessions")
    try:
        locations.private_dir(folder)
    except OSError as problem:
        render.note(f"warning: this question is not kept as a session: {folder}: {problem.strerror}")
        return None
    return name


def limits(options: Namespace, app: Any) -> Any:
    from holdfast.agent.loop import Limits

    own = app.settings.model
    return Limits(
        turns=options.max_turns or own.max_turns,
        tokens=options.max_tokens or own.max_total_tokens,
        seconds=options.max_seconds or own.max_seconds,
        cost=options.max_cost or own.max_cost,
        prices=(own.input_price, own.output_price) if own.input_price and own.output_price else None,
        max_tokens=own.max_tokens,
    )


def _failed(options: Namespace, problem: Any) -> int:
    from holdfast.core.model import Usage

    if render.as_json(options):
        error = {"code": "model_error", "message": problem.message, "hint": problem.hint}
        empty: dict[str, Any] = {"answer": "", "toolCalls": [], "toolResults": [], "toolError": None}
        usage = {**Usage().to_dict(), "cost": None}
        kept = {"sessionContextUpdated": False, "usage": usage, "session": options.session or ""}
        render.facts(options, {**empty, **kept, "error": error}, "")
    else:
        render.error(problem.message, problem.hint)
    return 1


class Shown:
    """Streams the answer to the terminal, and shows calls as they happen."""

    def __init__(self, app: Any) -> None:
        app.bus.subscribe(self.event)

    def __call__(self, text: str) -> None:
        from holdfast.host.visible import visible

        render.put(visible(text))

    def event(self, event: Any) -> None:
        from holdfast.host.visible import visible

        if event.kind == "call_started":
            args = ", ".join(f"{key}={value!r}" for key, value in event.data["call"].args.items())
            render.note(
                render.paint(visible(f"· {event.tool}({render.shortened(args, 90)})"), "cyan", stream=sys.stderr)
            )
        elif event.kind == "call_finished" and event.data["result"].error:
            error = event.data["result"].error
            render.note(render.paint(visible(f"  {error.code}: {error.message}"), "red", stream=sys.stderr))
        elif event.kind == "note":
            render.note(render.paint(visible(str(event.data.get("message", ""))), "dim", stream=sys.stderr))
