"""`surehand policy` and `surehand shell`: check what is allowed and why, and show how a shell command is parsed."""

from __future__ import annotations

import json
import os
import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from surehand.cli import render
from surehand.core.errors import SurehandError
from surehand.files.sanitize import visible
from surehand.policy.policy import Policy
from surehand.policy.rule_files import find_mistakes
from surehand.shell import ShellReport, understand

if TYPE_CHECKING:
    from surehand.core.call import ToolResult
    from surehand.engine.checking import Checker
    from surehand.policy.rules import Rule


def configure(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="check | list | replay")
    check = commands.add_parser("check", help="show the verdict on a call, and why", allow_abbrev=False)
    check.add_argument("command", nargs="*", metavar="COMMAND", help="a shell command to judge: 'ls && git push'")
    check.add_argument("--tool", metavar="NAME", help="the tool to judge, if it is not Bash")
    check.add_argument("--args", default="{}", metavar="JSON", help="the arguments; - reads standard input")
    _rules(check)
    check.add_argument(
        "--batch",
        metavar="FILE",
        help="one JSON object per line (tool, args, mode, rules, cwd); - reads standard input",
    )
    listing = commands.add_parser("list", help="list every rule in force, and likely mistakes", allow_abbrev=False)
    listing.add_argument("--no-built-in", action="store_true", help="only your own rules")
    _rules(listing)
    replay = commands.add_parser("replay", help="judge a recorded session by the current rules", allow_abbrev=False)
    replay.add_argument("file", metavar="FILE", help="a recording, or a session's journal")
    replay.add_argument("--all", action="store_true", help="also show calls whose verdict stays the same")
    _rules(replay)


def _rules(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--rule", action="append", default=[], metavar="RULE", help="an additional rule: 'deny Bash(rm:*)'"
    )


def run(options: Namespace) -> int:
    """Run the command and return its exit code."""
    match options.action:
        case "check" if options.batch is not None:
            return _batch(options)
        case "check":
            return _check(options)
        case "list":
            return _list(options)
        case _:
            return _replay(options)


class Checkers:
    """One checker for each directory and set of rules, created on first use."""

    def __init__(self, options: Namespace) -> None:
        self._options = options
        self._known: dict[tuple[str, tuple[str, ...]], Checker] = {}

    def get(self, cwd: str, rules: Iterable[str] = ()) -> Checker:
        """Return the checker for a directory and rules; created on first use."""
        lines = (*(f"allow {rule}" for rule in self._options.allow), *self._options.rule, *rules)
        key = (cwd, lines)
        found = self._known.get(key)
        if found is None:
            if len(self._known) > 256:
                self._known.clear()
            found = self._known[key] = _checker(cwd, lines)
        return found


def _checker(cwd: str, lines: tuple[str, ...]) -> Checker:
    from surehand.app import Surehand  # lazy: app, 130 ms
    from surehand.engine.checking import Checker  # lazy: checking, 140 ms

    app = Surehand(cwd, keep_state=False)
    policy = Policy.from_settings(app.settings, app.session.workspace, command_line=lines)
    return Checker(policy, app.session, app.registry)


def _check(options: Namespace) -> int:
    if bool(options.command) == bool(options.tool):
        render.error(
            "say which call to judge: 'COMMAND', or --tool NAME --args '{...}', or --batch FILE", code="invalid_args"
        )
        return 2
    checker = Checkers(options).get(options.cwd)
    if len(options.command) > 1 and (tool := options.command[0]).istitle() and tool in checker.tools:
        meant = "'COMMAND'" if tool == "Bash" else f"--tool {tool} --args '{{...}}'"
        render.error(
            f"{tool} is a tool, and would be judged as a program of that name; say {meant}", code="invalid_args"
        )
        return 2
    if options.command:  # one word is a whole command line; several were already split by the shell
        line = options.command[0] if len(options.command) == 1 else shlex.join(options.command)
        options.tool, options.args = "Bash", json.dumps({"command": line})
    text = sys.stdin.read() if options.args == "-" else options.args
    try:
        args = json.loads(text)
    except ValueError as problem:
        answer = _error(f"--args is not JSON: {problem}")
    else:
        answer = checker.check(options.tool, args, options.mode)
    render.facts(options, answer, lambda: format_verdict(answer))
    return 2 if answer["decision"] == "error" else 0


def _error(reason: str) -> dict[str, Any]:
    return {"decision": "error", "reason": reason, "rules": [], "effects": [], "commands": []}


def _batch(options: Namespace) -> int:
    checkers = Checkers(options)
    for line in _lines(options.batch):
        if line.strip():
            # ASCII only: programs disagree on which other characters end a line.
            render.line(json.dumps(_judge_line(line, checkers, options)))
    return 0


def _lines(source: str) -> Iterator[str]:
    if source == "-":
        yield from sys.stdin
        return
    try:
        with open(source, encoding="utf-8", errors="surrogateescape") as file:
            yield from file
    except OSError as problem:
        raise SurehandError(f"{source} cannot be read: {problem.strerror}") from None


def _judge_line(line: str, checkers: Checkers, options: Namespace) -> dict[str, Any]:
    """Return the verdict on one line of a batch, or an error if the line is invalid."""
    try:
        asked: Any = json.loads(line)
    except ValueError as problem:
        return _error(f"the line is not JSON: {problem}")
    if not isinstance(asked, dict):
        return _error("the line is not a JSON object")
    row = cast("dict[str, Any]", asked)
    tool: Any = row.get("tool")
    rules: Any = row.get("rules") or []
    if not isinstance(tool, str):
        return _error("tool must be the name of a tool")
    if not isinstance(rules, list) or not all(isinstance(rule, str) for rule in cast("list[Any]", rules)):
        return _error("rules must be a list of texts such as 'deny Bash(rm:*)'")
    try:
        checker = checkers.get(str(row.get("cwd") or options.cwd), cast("list[str]", rules))
    except SurehandError as problem:
        return _error(str(problem))
    return checker.check(tool, row.get("args", {}), row.get("mode") or options.mode)


def format_verdict(answer: Mapping[str, Any]) -> str:
    """Format the result of a check for people."""
    lines = [f"{answer['decision']}: {answer['reason']}"]
    if answer["commands"]:
        lines.append("commands")
        lines += [f"  {each['verdict']:<5}  {' '.join(each['words'])}" for each in answer["commands"]]
    effects = [each for each in answer["effects"] if each["kind"] != "run"]
    if effects:
        lines.append("effects")
        lines += [f"  {each['verdict']:<5}  {each['kind']} {_what(each)}  ({each['why']})" for each in effects]
    if answer["rules"]:
        lines.append("rules that matched")
        lines += [
            f"  {_mark(each)} {each['verdict']:<5}  {each['rule']}  ({_origin(each)})" for each in answer["rules"]
        ]
    if answer.get("suggestion"):
        lines.append("an allow rule that would save the question")
        lines += [f"  {rule}" for rule in answer["suggestion"].splitlines()]
    if answer.get("hint"):
        lines.append(answer["hint"])
    return "\n".join(visible(line, lines=False) for line in lines)


def _what(effect: Mapping[str, Any]) -> str:
    if effect["kind"] == "remote":
        return f"{effect['tool']} of {effect['server']}"
    keys = ("path", "url", "host", "reason", "profile")
    return str(next((effect[key] for key in keys if effect.get(key)), ""))


def _mark(rule: Mapping[str, Any]) -> str:
    return ">" if rule["decided"] else " "


def _origin(rule: Mapping[str, Any]) -> str:
    if rule.get("file"):
        return f"{rule['source']}, {rule['file']}:{rule['line']}" if rule.get("line") else rule["file"]
    return str(rule["source"])


def _list(options: Namespace) -> int:
    checker = Checkers(options).get(options.cwd)
    rules = [rule for rule in checker.policy.rules if not (options.no_built_in and rule.origin.source == "built-in")]
    registry = cast("Any", checker.tools)
    names = [name for tool in registry.infos() for name in (tool.name, *tool.aliases)]
    found = find_mistakes(checker.policy.rules, [*names, "MultiEdit"])
    for warning in found:
        render.note(f"warning: {warning}")
    data = {
        "mode": checker.session.mode,
        "rules": [rule.to_dict() for rule in rules],
        "warnings": found,
    }
    render.facts(options, data, lambda: _format_rules(rules, built_in=not options.no_built_in))
    return 0


def _format_rules(rules: list[Rule], *, built_in: bool) -> str:
    """Format the user's rules as a table, and the built-in ones grouped by verdict and reason."""
    own = [rule for rule in rules if rule.origin.source != "built-in"]
    rows = [(rule.verdict, rule.text, _format_origin(rule), rule.reason) for rule in own]
    parts = [
        render.table(rows, ("VERDICT", "RULE", "FROM", "REASON"), fold=True)
        if rows
        else "There are no rules of your own."
    ]
    groups: dict[tuple[str, str], list[str]] = {}
    for rule in rules:
        if rule not in own:
            groups.setdefault((rule.verdict, rule.reason), []).append(rule.text)
    for (verdict, reason), texts in groups.items():
        parts.append(
            f"{render.paint(f'built in: {verdict}', 'bold')}\n{_fold_words([f'({reason})'])}\n{_fold_words(texts)}"
        )
    if not built_in:
        parts.append("`surehand policy list` shows those that are built in as well.")
    return "\n\n".join(parts)


def _format_origin(rule: Rule) -> str:
    """Return a rule's source, shortened so that the line number fits a narrow terminal."""
    origin, home = rule.origin, os.path.expanduser("~")
    if not origin.line:
        return str(origin)
    near = origin.file.startswith(home + os.sep)
    return f"{'~' + origin.file[len(home) :] if near else origin.file}:{origin.line}"


def _fold_words(words: list[str]) -> str:
    import textwrap

    room = max(render.columns() - 1, 30)
    lines = textwrap.wrap(", ".join(words), room, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(lines)


def _replay(options: Namespace) -> int:
    from surehand.engine.replay import read  # lazy: replay, 17 ms

    checker = Checkers(options).get(options.cwd)
    recording = read(options.file)
    rows: list[dict[str, Any]] = []
    for recorded in recording.calls:
        args = _move_workspace(dict(recorded.call.args), recording.workspace, checker.session.workspace)
        answer = checker.check(recorded.call.name, args, options.mode)
        before = recorded.verdict or _verdict_of(recorded.result)
        row = {"tool": recorded.call.name, "args": args, "before": before, "now": answer["decision"]}
        differs = before != answer["decision"]
        rows.append(row | {"differs": differs, "reason": answer["reason"], "rules": answer["rules"]})
    shown = [row for row in rows if options.all or row["differs"]]
    differing = sum(row["differs"] for row in rows)
    data = {"calls": len(rows), "differences": differing, "rows": shown}
    render.facts(options, data, lambda: _format_replay(shown, len(rows), differing))
    return 0


def _format_replay(rows: list[dict[str, Any]], count: int, differing: int) -> str:
    lines = [
        f"{row['before']:>6} -> {row['now']:<6} {row['tool']} "
        f"{render.shorten_line(json.dumps(row['args'], ensure_ascii=False), 80)}  ({row['reason']})"
        for row in rows
    ]
    return "\n".join([*lines, f"{count} calls judged, {differing} would be decided otherwise."])


def _move_workspace(args: dict[str, Any], before: str, now: str) -> dict[str, Any]:
    """Return the arguments with the recording's workspace replaced by this one."""
    if not before or before == now:
        return args
    return json.loads(json.dumps(args).replace(json.dumps(before)[1:-1], json.dumps(now)[1:-1]))


def _verdict_of(result: ToolResult) -> str:
    """Derive the verdict from a recorded result: a refused call has it in its error."""
    if result.error is None:
        return "allow"
    if result.error.code == "permission_denied":
        return str(result.error.details.get("verdict", "deny"))
    return "error" if result.error.code in ("invalid_args", "tool_not_found") else "allow"


def configure_shell(parser: ArgumentParser) -> None:
    """Add `parse CMD` and `parse --batch FILE|-`."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="parse")
    parse = verbs.add_parser("parse", help="parse a command without running it", allow_abbrev=False)
    parse.add_argument("command", nargs="?", metavar="CMD", help="the command, as one argument")
    parse.add_argument(
        "--batch",
        metavar="FILE",
        help='one JSON object per line ({"command": ...}) from FILE, or from standard input with -',
    )


def run_shell(options: Namespace) -> int:
    """Print how the command is parsed. Exit code 1 if it cannot be parsed, 2 for wrong usage."""
    if (options.command is None) == (options.batch is None):
        render.error(
            "give one command, or --batch with a file", "surehand shell parse 'ls -la | head'", code="invalid_args"
        )
        return 2
    if options.batch is not None:
        return _parse_batch(options)
    report = understand(options.command, options.cwd)
    render.facts(options, report.to_dict(), lambda: _text(report))
    return 0 if report.ok else 1


def _parse_batch(options: Namespace) -> int:
    for line in _lines(options.batch):
        if line.strip():
            render.line(json.dumps(_answer(line, options.cwd)))  # ASCII only: see `_batch`
    return 0


def _answer(line: str, cwd: str) -> dict[str, object]:
    """Return the report on one line of a batch. An invalid line gets one too: output line n belongs to input line n."""
    try:
        given: Any = json.loads(line)
    except ValueError as error:
        return _describe_refusal(f"the line is not JSON: {error}")
    request = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    command = request.get("command")
    if not isinstance(command, str):
        return _describe_refusal('the line has no "command" that is a text')
    place = request.get("cwd")
    report = understand(command, os.path.join(cwd, place) if isinstance(place, str) else cwd)
    return report.to_dict()


def _describe_refusal(reason: str) -> dict[str, object]:
    return {
        "ok": False,
        "error": reason,
        "class": "general",
        "read_only": False,
        "commands": [],
        "redirects": [],
        "reasons": [reason],
    }


def _text(report: ShellReport) -> str:
    if not report.ok:
        return f"cannot be parsed: {report.error}"
    lines = [f"class {report.class_}, {'read-only' if report.read_only else 'not read-only'}"]
    for command in report.commands:
        words = " ".join(_quote_word(word) for word in command.words)
        behind = f"  (through {', '.join(command.wrappers)})" if command.wrappers else ""
        lines.append(f"  {'  ' if command.nested else ''}{words}{behind}")
    lines += [f"  {each.fd}{each.op} {_quote_word(each.target)}" for each in report.redirects]
    lines += [f"because {reason}" for reason in report.reasons]
    return "\n".join(lines)


def _quote_word(word: str) -> str:
    """Quote a word and make invisible characters visible."""
    plain = word.isprintable() and word and not set(word) & set(" '\"\\$`|&;<>()")
    return word if plain else json.dumps(word)
