"""`surehand tools`: list and describe tools, invoke one, and create a new one."""

from __future__ import annotations

import argparse
import json
import keyword
import os
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, cast

from surehand.catalog import register_builtin
from surehand.cli import render
from surehand.cli.parser import approvals_option
from surehand.core.call import ToolError, ToolResult
from surehand.core.errors import SurehandError, ToolFailure
from surehand.core.names import full_name
from surehand.core.view import DEFERRED_THRESHOLD, Selection, matching
from surehand.files.sanitize import visible
from surehand.registry.loading import FOLDER, GROUP, entry_points, load_listing, save_listing
from surehand.registry.registry import Registry
from surehand.state import locations

if TYPE_CHECKING:
    from surehand.app import Surehand


EXIT_CODES = {
    "invalid_args": 2,
    "tool_not_found": 3,
    "permission_denied": 4,
    "timeout": 5,
    "cancelled": 130,
}
"""Exit code by error code; every other failure is 1."""
_NAME = "a tool's name or alias (`surehand tools list`)"


def configure(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="list | info | invoke | new")
    listing = commands.add_parser("list", help="all tools with their schemas", allow_abbrev=False)
    listing.add_argument("--tool-allow", default="", metavar="CSV", help="only these names, aliases or globs")
    info = commands.add_parser("info", help="everything about one tool", allow_abbrev=False)
    info.add_argument("name", metavar="NAME", help=_NAME)
    invoke = commands.add_parser("invoke", help="call a tool", allow_abbrev=False)
    invoke.add_argument("name", metavar="NAME", help=_NAME)
    invoke.add_argument("--args", default="{}", metavar="JSON", help="the arguments, an object; - reads standard input")
    approvals_option(invoke)
    invoke.add_argument("--dry-run", action="store_true", help="show what would happen; change nothing")
    invoke.add_argument("--apply", action="store_true", help="with --dry-run: ask, then apply exactly what was shown")
    invoke.add_argument("--timeout", type=_seconds, metavar="S", help="timeout of the call, in seconds")
    invoke.add_argument("--tool-allow", default="", metavar="CSV", help="only these tools exist for the call")
    invoke.add_argument("--record", metavar="FILE", help="append the call and its result to a recording")
    new = commands.add_parser("new", help="write a tool with its test from a template", allow_abbrev=False)
    new.add_argument("name", metavar="NAME", help="its name, a valid Python identifier")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e7:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of seconds")
    return seconds


def run(options: Namespace) -> int:
    """Run the command and return its exit code."""
    match options.action:
        case "list":
            return _list(options)
        case "info":
            return _info(options)
        case "invoke":
            return _invoke(options)
        case _:
            return _new(options)


def csv(text: str) -> list[str]:
    """Split a comma-separated list."""
    return [part.strip() for part in text.split(",") if part.strip()]


def warn_of_unmatched(app: Surehand, patterns: Sequence[str], option: str = "--tool-allow") -> None:
    """Warn of entries in an allow-list that match no tool; a typo there takes tools from the model."""
    if unmatched := [each for each in patterns if not matching(app.registry, [each])]:
        warning = render.paint("warning: ", "yellow", stream=sys.stderr)
        render.note(f"{warning}{option}: there is no tool {', '.join(map(repr, unmatched))}")


# -- list and info -----------------------------------------------------------------------------------------------------


def _list(options: Namespace) -> int:
    rows = _rows(options)
    if options.tool_allow:
        chosen = set(Selection(_registry(options)[0], allow=csv(options.tool_allow)).names())
        rows = [row for row in rows if row["name"] in chosen]
    render.facts(options, rows, lambda: _table(rows))
    return 0


def _registry(options: Namespace) -> tuple[Any, dict[str, Any], int]:
    """Return the registry, the per-tool settings and the deferral threshold, without loading the slow engine."""
    state = locations.workspace_state(options.cwd)
    own = _list_own(options.cwd, state)
    if own is None or next(entry_points(GROUP), None) is not None:
        return _loaded_registry(options, state)
    registry = Registry()
    register_builtin(registry)
    if os.path.isdir(os.path.join(state, "made_tools")):
        from surehand.tools.made_tools import register_kept  # lazy: made_tools, 40 ms

        if problems := register_kept(registry, state):
            render.warnings(problems)
    for info in own:
        registry.register_lazy(info, partial(_load_own, options, state, info.name), deferrable=False)
    if not locations.has_settings(options.cwd):
        return registry, {}, DEFERRED_THRESHOLD
    from surehand import config  # lazy: config, 17 ms
    from surehand.policy.rule_files import rules_in_force  # lazy: rule_files, 20 ms
    from surehand.policy.trust import is_trusted  # lazy: trust, 9 ms

    root = os.path.realpath(options.cwd)
    settings = config.load(root, trusted=is_trusted(root)).settings
    rules_in_force(settings, root, ())  # raises for an invalid rule, as every command does
    return registry, dict(settings.tools), settings.toolset.deferred_threshold


def _list_own(workspace: str, state: str) -> list[Any] | None:
    """Return the infos of the workspace's own tools from the saved listing; None if they must be loaded."""
    if not os.path.isdir(os.path.join(workspace, FOLDER)):
        return []
    from surehand.policy.trust import fingerprints, is_trusted  # lazy: trust, 9 ms

    root = os.path.realpath(workspace)
    return load_listing(state, fingerprints(root)) if is_trusted(root) else None


def _loaded_registry(options: Namespace, state: str) -> tuple[Any, dict[str, Any], int]:
    """Like `_registry`, but load everything; also save a listing of the workspace's own tools."""
    from surehand.app import Surehand  # lazy: app, 130 ms
    from surehand.cli import session  # lazy: session, 50 ms
    from surehand.policy.trust import fingerprints, is_trusted  # lazy: trust, 9 ms

    session.hold_log()
    root = os.path.realpath(options.cwd)
    before = fingerprints(root) if is_trusted(root) else {}
    app = Surehand(options.cwd, keep_state=os.path.isdir(os.path.join(state, "made_tools")))
    render.warnings(app.warnings)
    names = app.loader.list_given(os.path.join(root, FOLDER)) if app.trusted and not app.warnings else []
    if names and fingerprints(root) == before:
        with suppress(OSError):
            save_listing(state, before, [info for name in names if (info := app.registry.info(name))])
    return app.registry, dict(app.settings.tools), app.settings.toolset.deferred_threshold


def _load_own(options: Namespace, state: str, name: str) -> Any:
    return _loaded_registry(options, state)[0].get(name)


def _rows(options: Namespace) -> list[dict[str, Any]]:
    registry, settings, threshold = _registry(options)
    shown = Selection(registry, threshold=threshold)
    for name in _list_activated(options):
        shown.activate_tool(name)
    rows: list[dict[str, Any]] = []
    for info in registry.infos():
        set_off = info.name in settings and not settings[info.name].enabled
        row = info.to_dict()
        row["state"] = "disabled" if set_off else registry.lifecycle.state(info.name)
        row["deferred"] = shown.is_deferred(info.name)
        rows.append(row)
    return rows


def _list_activated(options: Namespace) -> list[str]:
    """Return the tools activated in the session, read from its journal."""
    if options.session is None:
        return []
    from surehand.engine.journal import read_past  # lazy: checkpoint, 17 ms

    journal = os.path.join(locations.workspace_state(options.cwd), "sessions", f"{options.session}.jsonl")
    return read_past(journal).activated


def _table(rows: list[dict[str, Any]]) -> str:
    heads = ["NAME", "MODULE", "STATE"] if render.columns() >= 72 else ["NAME"]
    cells = [[row["name"], row["module"] or "-", row["state"]][: len(heads)] for row in rows]
    taken = sum(max(map(len, column), default=0) + 2 for column in zip(heads, *cells, strict=True))
    room = max(render.columns() - taken - 1, 16)
    shown = [[*cell, render.shorten_line(row["description"], room)] for cell, row in zip(cells, rows, strict=True)]
    return render.table(shown, [*heads, "WHAT IT DOES"])


def _info(options: Namespace) -> int:
    rows = {row["name"]: row for row in _rows(options)}
    names = {alias: row["name"] for row in rows.values() for alias in (*row["aliases"], _full(row))}
    row = rows.get(options.name) or rows.get(names.get(options.name, ""))
    if row is None:
        return _report_unknown_tool(options, list(rows))
    row["metrics"] = _metrics(options, row["name"])
    render.facts(options, row, lambda: _page(row))
    return 0


def _full(row: dict[str, Any]) -> str:
    return full_name(row["module"], row["name"])


def _metrics(options: Namespace, name: str) -> Any:
    """Return the saved metrics of a tool, or None."""
    path = os.path.join(locations.workspace_state(options.cwd), "metrics.sqlite")
    if not os.path.exists(path):
        return None
    from surehand.engine.metrics import MetricsStore  # lazy: metrics_store, 10 ms
    from surehand.engine.metrics_export import figures, to_json  # lazy: metrics_export, 12 ms

    record = MetricsStore(path).load().get(name)
    return to_json(figures(name, record, monotonic())) if record else None


def _page(row: dict[str, Any]) -> str:
    flags = [name for name in ("read_only", "concurrency_safe", "destructive", "requires_permission") if row[name]]
    lines = [
        render.paint(row["name"], "bold") + (f"  (also {', '.join(row['aliases'])})" if row["aliases"] else ""),
        "",
        visible(row["description"].strip()),
        "",
        f"state     {row['state']}",
        f"flags     {', '.join(flags) or 'none'}",
        f"level     {row['level']}",
        f"version   {row['version']}" + (f"  module {row['module']}" if row["module"] else ""),
        "",
        "arguments",
    ]
    required = row["inputSchema"].get("required", [])
    for name, schema in row["inputSchema"].get("properties", {}).items():
        kind = schema.get("type") or "/".join(str(each.get("type")) for each in schema.get("anyOf", [])) or "any"
        default = f"default {json.dumps(schema['default'])}" if "default" in schema else "optional"
        must = "required" if name in required else default
        lines.append(visible(f"  {name} ({kind}, {must})  {schema.get('description', '')}"))
    for example in row["examples"]:
        words = f"surehand tools invoke {row['name']} --args '{json.dumps(example, ensure_ascii=False)}'"
        lines.append(f"\n{visible(words)}")
    return "\n".join(lines)


def _report_unknown_tool(options: Namespace, names: list[str]) -> int:
    from surehand.engine.prepared import unknown_tool  # lazy: errors, 120 ms

    error = ToolError.of(unknown_tool(options.name, names))
    if render.as_json(options):
        render.facts(options, {"ok": False, "error": error.to_dict()}, "")
    else:
        render.error(error.message, error.hint)
    return EXIT_CODES[error.code]


# -- invoke ------------------------------------------------------------------------------------------------------------


def _invoke(options: Namespace) -> int:
    output = _private_stdout()
    try:
        args = _parsed_args(options)
        if options.apply and not options.dry_run:
            raise ToolFailure("--apply goes with --dry-run", code="invalid_args", hint="Without either, the call runs.")
        from surehand.cli import session  # lazy: session, 50 ms

        more: dict[str, Any] = {"timeout": (options.name, options.timeout)} if options.timeout else {}
        if options.record:
            more["record"] = options.record
        opened = session.open_app(options, tool_allow=csv(options.tool_allow), shows=("call_finished",), **more)
        result = session.run(_call_tool(opened, options, args))
    except ToolFailure as failure:
        result = ToolResult.failed(ToolError.of(failure)).with_meta(tool=options.name)
    except SurehandError as problem:  # invalid settings or rules
        result = ToolResult.failed(ToolError("invalid_args", str(problem))).with_meta(tool=options.name)
    except OSError as problem:  # a recording or a state folder that cannot be written
        message = f"{problem.filename or 'the call'}: {problem.strerror or problem}"
        result = ToolResult.failed(ToolError("execution_error", message)).with_meta(tool=options.name)
    except (KeyboardInterrupt, _cancelled_error()):
        error = ToolError("cancelled", "the call was cancelled", "Nothing more will happen.")
        result = ToolResult.failed(error).with_meta(tool=options.name)
    sys.stdout.flush()
    os.dup2(output, 1)
    _print_result(options, result)
    return 0 if result.ok else EXIT_CODES.get(result.error.code if result.error else "", 1)


def _private_stdout() -> int:
    """Redirect descriptor 1 to stderr, so that a handler's prints stay out of the result; return a copy of stdout."""
    sys.stdout.flush()
    output = os.dup(1)
    os.dup2(2, 1)
    return output


def _cancelled_error() -> type[BaseException]:
    from asyncio import CancelledError

    return CancelledError


def _parsed_args(options: Namespace) -> dict[str, Any]:
    text = sys.stdin.read() if options.args == "-" else options.args
    try:
        args: Any = json.loads(text) if text.strip() else {}
    except json.JSONDecodeError as problem:
        shown = text.splitlines()[problem.lineno - 1] if text.splitlines() else ""
        start = max(0, problem.colno - 30)
        pointer = " " * (problem.colno - 1 - start) + "^"
        raise ToolFailure(
            f"--args is not JSON: {problem.msg} at line {problem.lineno}, column {problem.colno}\n"
            f"  {shown[start : start + 60]}\n  {pointer}",
            code="invalid_args",
            hint='Write an object in double quotes, such as --args \'{"text": "hello"}\'.',
            details={"line": problem.lineno, "column": problem.colno},
        ) from None
    except RecursionError:
        raise ToolFailure("--args is nested too deeply", code="invalid_args", hint="Flatten it.") from None
    if not isinstance(args, dict):
        raise ToolFailure(
            f"--args must be a JSON object, not {text.strip()[:40]}", code="invalid_args", hint="Try '{}'."
        )
    return cast("dict[str, Any]", args)


async def _call_tool(opened: AbstractAsyncContextManager[Surehand], options: Namespace, args: dict[str, Any]) -> Any:
    async with opened as app:
        progress = _Progress()
        if sys.stderr.isatty():
            app.bus.subscribe(progress)
        try:
            if options.dry_run and not options.apply:
                return await app.dry_run(options.name, args)
            return await app.call(options.name, args, source="cli", shown_first=options.apply)
        finally:
            progress.clear()


class _Progress:
    """A listener that shows a call's latest progress in one line, from a second after the start until the end.

    A question clears it.
    """

    def __init__(self) -> None:
        self._now = monotonic
        self._patient_until = monotonic() + 1.0
        self._shown = False

    def __call__(self, event: Any) -> None:
        if event.kind == "permission_asked":
            self.clear()
        if event.kind != "call_progress" or self._now() < self._patient_until:
            return
        if lines := event.data["progress"].text.strip().splitlines():
            text = render.shorten_line(visible(lines[-1], lines=False), render.columns() - 1)
            self._shown = True
            sys.stderr.write("\r\x1b[K" + render.paint(text, "dim", stream=sys.stderr))
            sys.stderr.flush()

    def clear(self) -> None:
        """Erase the line."""
        if self._shown:
            self._shown = False
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _print_result(options: Namespace, result: Any) -> None:
    if render.as_json(options):
        render.json_line(result.to_dict())
        return
    for repaired in result.meta.get("repaired", ()):
        render.note(f"repaired {repaired}")
    only_shown = options.dry_run and not options.apply
    if result.ok or (result.error and result.output != result.error.text):
        output = visible(result.output)
        render.line(render.diff(output) if only_shown else output)
    if result.ok and only_shown:
        render.line(_verdict_line(result.data["verdict"]))
    if result.error:
        first, *rest = visible(result.error.message).split("\n")
        render.error("\n".join([f"{first} ({result.error.code})", *rest]), visible(result.error.hint))


def _verdict_line(verdict: dict[str, Any]) -> str:
    """Format the verdict on the real call as one line. It is never "deny": a denied dry run has failed before."""
    asks = verdict["decision"] == "ask"
    begin = render.paint("would ask first" if asks else "would run without asking", "yellow" if asks else "green")
    spared = "".join(f" --allow '{rule}'" for rule in (verdict["suggestion"] or "").splitlines())
    return f"{begin}: {visible(verdict['reason'] + (f' (not with{spared})' if spared else ''), lines=False)}"


# `surehand tools new NAME`: templates of a tool and its test.

TOOL: Final = '''\
"""{title}: say here what it is for."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from surehand import tool


@tool(read_only=True, examples=({{"text": "some text"}},))
def {name}(
    text: Annotated[str, Field(description="The text to look at")],
    limit: Annotated[int, Field(ge=1, description="How many words to return")] = 10,
) -> dict[str, object]:
    """Return the first words of a text, and how many it has.

    A model reads this text to decide when to call the tool: say what it does and when to use it.
    """
    words = text.split()
    return {{"count": len(words), "first": words[:limit]}}
'''

TEST: Final = """\
from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from {name} import {name}  # noqa: E402

from surehand.testing import run_tool  # noqa: E402


async def test_{name}_counts_words() -> None:
    result = await run_tool({name}, {{"text": "one two three", "limit": 2}})
    assert result.ok, result.output
    assert result.data == {{"count": 3, "first": ["one", "two"]}}


async def test_{name}_says_what_is_wrong_with_its_arguments() -> None:
    result = await run_tool({name}, {{"text": "one", "limit": 0}})
    assert result.error is not None
    assert result.error.code == "invalid_args"
"""


def _new(options: Namespace) -> int:
    """Create the tool and its test; existing files are never overwritten."""
    name: str = options.name
    if not name.isidentifier() or keyword.iskeyword(name) or not name.isascii():
        render.error(f"{name!r} cannot name a Python function", f"Try {_identifier(name)!r}.", code="invalid_args")
        return 2
    folder = os.path.join(options.cwd, FOLDER)
    files = {
        os.path.join(folder, f"{name}.py"): TOOL.format(name=name, title=name.replace("_", " ").capitalize()),
        os.path.join(folder, "tests", f"test_{name}.py"): TEST.format(name=name),
    }
    if there := [path for path in files if os.path.lexists(path)]:
        render.error(f"{there[0]} is already there", "Choose another name, or remove it first.")
        return 1
    for path, text in files.items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    tool, test = (os.path.relpath(path, options.cwd) for path in files)
    render.facts(options, {"name": name, "tool": tool, "test": test}, lambda: _next(name, tool, test))
    return 0


def _next(name: str, tool: str, test: str) -> str:
    return "\n".join(
        [
            f"Wrote {tool} and {test}.",
            "",
            "  pip install pytest pytest-asyncio",
            f"  pytest -p asyncio -o asyncio_mode=auto {test}",
            "  surehand trust            # a workspace's own tools count once you trust them",
            f'  surehand tools invoke {name} --args \'{{"text": "one two"}}\'',
        ]
    )


def _identifier(name: str) -> str:
    word = re.sub(r"\W+", "_", name.encode("ascii", "ignore").decode()).strip("_").lower() or "my_tool"
    return f"tool_{word}" if word[0].isdigit() or keyword.iskeyword(word) else word
