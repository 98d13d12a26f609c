"""`surehand shell parse`: how a shell command is understood, one or many at a time."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from typing import Any, cast

from surehand.cli import render
from surehand.shell import ShellReport, understand


def configure(parser: argparse.ArgumentParser) -> None:
    """Add `parse CMD` and `parse --batch FILE|-`."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="parse")
    parse = verbs.add_parser("parse", help="parse a command without running it", allow_abbrev=False)
    parse.add_argument("command", nargs="?", metavar="CMD", help="the command, as one argument")
    parse.add_argument(
        "--batch",
        metavar="FILE",
        help='one JSON object per line ({"command": ...}) from FILE, or from standard input with -',
    )


def run(options: argparse.Namespace) -> int:
    """Print how the command is parsed; 1 when it cannot be parsed, 2 on bad usage."""
    if (options.command is None) == (options.batch is None):
        render.error(
            "give one command, or --batch with a file", "surehand shell parse 'ls -la | head'", code="invalid_args"
        )
        return 2
    if options.batch is not None:
        return _batch(options)
    report = understand(options.command, options.cwd)
    render.facts(options, report.to_dict(), lambda: _text(report))
    return 0 if report.ok else 1


def _batch(options: argparse.Namespace) -> int:
    try:
        for line in _lines(options.batch):
            if line.strip():
                render.line(json.dumps(_answer(line, options.cwd)))  # ASCII: line ends are certain
    except OSError as error:
        render.error(f"{options.batch} cannot be read: {error.strerror}")
        return 2
    return 0


def _lines(source: str) -> Iterator[str]:
    if source == "-":
        yield from sys.stdin
        return
    with open(source, encoding="utf-8", errors="surrogateescape") as file:
        yield from file


def _answer(line: str, cwd: str) -> dict[str, object]:
    """Return the report on one line of a batch; an invalid line gets one too, to keep the order."""
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
