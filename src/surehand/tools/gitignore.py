"""`Gitignore`: add patterns to a .gitignore, and say why a path is ignored."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final, Literal

from surehand.core.call import ToolResult
from surehand.core.context import ToolContext
from surehand.core.effects import Effect, ReadPath, WritePath
from surehand.core.errors import ToolFailure
from surehand.core.record import Args, Field
from surehand.core.tool import Preview, Tool
from surehand.files.paths import real_path
from surehand.files.sanitize import shown_name
from surehand.files.text import Splice, apply_splices
from surehand.search.gitignore import parse_line
from surehand.search.ignore_files import explain
from surehand.tools import list_schema, object_schema, prompt
from surehand.tools.edit_checks import Check, Problem, is_plain_file, path_permitted
from surehand.tools.file_write import FileWrite


class GitignoreArgs(Args):
    """What to do, where, and with what."""

    action: Literal["add", "check"] = Field(description="add: append patterns; check: is a path ignored, and why")
    dir: str = Field(default=".", description="The directory whose .gitignore is meant, or from which `path` is meant")
    patterns: list[str] = Field(default_factory=list[str], description="For add: the patterns, one line each")
    path: str | None = Field(default=None, description="For check: the path to ask about; it need not exist")


def _effects(args: GitignoreArgs, ctx: ToolContext) -> Sequence[Effect]:
    if args.action == "add":
        return [WritePath(_file(args, ctx))]
    # A check reads the rules, not the file they apply to: asking whether `.env` is ignored is harmless.
    return [ReadPath(os.path.join(os.path.dirname(_resolve_asked(args, ctx)), ".gitignore"))]


def _resources(args: GitignoreArgs, ctx: ToolContext) -> list[str]:
    return [f"file:{real_path(_file(args, ctx))}"] if args.action == "add" else []


def _reads(args: GitignoreArgs, ctx: ToolContext) -> bool:
    del ctx
    return args.action == "check"


def _file(args: GitignoreArgs, ctx: ToolContext) -> str:
    return os.path.join(ctx.cwd if args.dir == "." else ctx.resolve(args.dir), ".gitignore")


def _resolve_asked(args: GitignoreArgs, ctx: ToolContext) -> str:
    """Return the path to check, absolute and without `..`."""
    return os.path.normpath(os.path.join(ctx.resolve(args.dir), args.path or ""))


def _consistent(args: GitignoreArgs) -> None:
    if args.action == "check" and not args.path:
        raise ToolFailure("check needs `path`", code="invalid_args", hint='For example {"path": "build/output.bin"}.')
    if args.action == "add" and not args.patterns:
        raise ToolFailure("add needs `patterns`", code="invalid_args", hint='For example {"patterns": ["*.log"]}.')
    for at, pattern in enumerate(args.patterns):
        if not pattern.strip() or any(letter in pattern for letter in "\n\r\0"):
            raise ToolFailure(
                f"pattern {at + 1} ({pattern!r}) is not one line of a .gitignore",
                code="invalid_args",
                hint="Give each line as a separate pattern.",
            )


def _check(args: GitignoreArgs, ctx: ToolContext) -> None:
    _consistent(args)
    if args.action == "add":
        FileWrite(ctx, _file(args, ctx)).look(_checks(args))


def _preview(args: GitignoreArgs, ctx: ToolContext) -> Preview:
    _consistent(args)
    if args.action == "check":
        return Preview(f"would look up which rule decides about {args.path}; changes nothing")
    write = FileWrite(ctx, _file(args, ctx))
    shown = write.preview(_checks(args))
    return shown if write.splices else Preview(f"{write.path} has all of these patterns; nothing would change")


def _run(args: GitignoreArgs, ctx: ToolContext) -> ToolResult:
    _consistent(args)
    return _add(args, ctx) if args.action == "add" else _explain(args, ctx)


def _add(args: GitignoreArgs, ctx: ToolContext) -> ToolResult:
    write = FileWrite(ctx, _file(args, ctx)).look(_checks(args))
    missing = _missing(bytes(write.data), args.patterns)
    facts: dict[str, Any] = {
        "action": "add",
        "path": write.path,
        "added": missing,
        "already_present": [each for each in dict.fromkeys(args.patterns) if each not in missing],
    }
    if not missing:
        return ToolResult(data=facts | {"changed": False}, output=f"{write.path} has all of these patterns already.")
    with write:
        write.check(_checks(args))
        result = write.commit("Gitignore")
    link = (
        "\nNote: this .gitignore is a symbolic link, and git does not follow it." if os.path.islink(write.path) else ""
    )
    created = "Created" if result.data["created"] else "Changed"
    return ToolResult(
        data=result.data | facts,
        output=f"{created} {write.path}: added {', '.join(missing)}{link}",
        undo=result.undo,
        meta=result.meta,
    )


def _checks(args: GitignoreArgs) -> tuple[Check, ...]:
    """The checks of an edit that apply: lines are appended, so the file need not have been read."""
    return (
        Check(2, path_permitted),
        Check(5, _folder_exists),
        Check(6, is_plain_file),
        Check(9, _appending(args.patterns)),
    )


def _folder_exists(write: FileWrite) -> Problem | None:
    if write.folder >= 0:
        return None
    return Problem(4, f"there is no directory {write.folder_path}", "Create it first, or name another `dir`.")


def _appending(patterns: Sequence[str]) -> Any:
    """Return the check that computes the new bytes: with the file's line ends, and after an unterminated last line."""

    def append(write: FileWrite) -> Problem | None:
        if write.encoding.unit > 1:
            message = f"{write.path} is {write.encoding.label}, which git cannot read."
            return Problem(5, message, "Save it as UTF-8 first.", {"reason": "encoding"})
        data = bytes(write.data)
        newline = b"\r\n" if data.count(b"\r\n") * 2 > data.count(b"\n") else b"\n"
        lines = [os.fsencode(each) + newline for each in _missing(data, patterns)]
        opening = [newline] if lines and data and not data.endswith(b"\n") else []
        new = b"".join([*opening, *lines])
        write.splices = [Splice(len(data), len(data), new)] if new else []
        write.parts = apply_splices(data, write.splices) if write.exists else [new]
        return None

    return append


def _missing(data: bytes, patterns: Sequence[str]) -> list[str]:
    """Return the distinct patterns that the file does not contain yet."""
    there = {parse_line(line) for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n")}
    return [each for each in dict.fromkeys(patterns) if parse_line(os.fsencode(each)) not in there]


def _explain(args: GitignoreArgs, ctx: ToolContext) -> ToolResult:
    asked = args.path or ""
    path = _resolve_asked(args, ctx)
    place = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    workspace = os.fsencode(os.path.realpath(ctx.session.workspace))
    is_dir = True if f"/{asked}".endswith(("/", "/.")) else None
    decision = explain(os.fsencode(place), stop=workspace, is_dir=is_dir)
    rule = decision.rule
    data: dict[str, Any] = {"action": "check", "path": path, "ignored": decision.ignored, "rule": None}
    if rule is None:
        return ToolResult(data=data, output=f"{shown_name(asked)} is not ignored: no rule matches it.")
    source, text = shown_name(rule.source), rule.text.decode("utf-8", "replace")
    about = decision.decided_at.decode("utf-8", "surrogateescape")
    data["rule"] = {"source": source, "line": rule.line, "pattern": text, "matches": shown_name(about)}
    above = (
        "" if os.path.basename(place) == os.path.basename(about) else f", which matches {shown_name(about)}/ above it"
    )
    verdict = "ignored" if decision.ignored else "not ignored"
    note = "\nA file that git already tracks stays tracked all the same." if decision.ignored else ""
    return ToolResult(
        data=data, output=f"{shown_name(asked)} is {verdict} by {source}:{rule.line}: {text}{above}{note}"
    )


TOOLS: Final[tuple[Tool, ...]] = (
    Tool(
        name="Gitignore",
        kind="edit",
        output_schema=object_schema(
            {"action": "string"},
            path="string",
            ignored="boolean",
            added=list_schema("string"),
            already_present=list_schema("string"),
        ),
        description=prompt("gitignore"),
        args=GitignoreArgs,
        run=_run,
        check=_check,
        preview=_preview,
        effects=_effects,
        resources=_resources,
        read_only=_reads,
        reversible=True,
        cancel_safe=True,
        origin="workspace",
        search_hint="gitignore ignore exclude pattern git untracked",
        examples=(
            {"action": "add", "dir": ".", "patterns": ["*.log", "dist/"]},
            {"action": "check", "dir": ".", "path": "build/output.bin"},
        ),
    ),
)
