"""`Grep`: search the content of files with a regular expression."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, Literal

from surehand.core.call import ToolResult
from surehand.core.effects import ReadPath
from surehand.core.errors import ToolFailure
from surehand.core.frozen import frozen, replace_values
from surehand.core.record import Args, Field, hide_default
from surehand.core.text import format_count
from surehand.core.tool import Tool
from surehand.files.opening import SECRET_LINKS, open_file, open_folder
from surehand.files.paths import real_path
from surehand.files.sanitize import marked_line, shown_name
from surehand.search.globs import explain_extended, file_filter
from surehand.search.ripgrep import Pattern, Stop, in_thread
from surehand.search.search import SMALL, Search, count_open_file, refuse_bad, search_open_file
from surehand.search.walk import Walk
from surehand.tools import list_schema, object_schema, prompt

if TYPE_CHECKING:
    from surehand.core.context import ToolContext
    from surehand.core.effects import Effect
    from surehand.search.ripgrep import Line

HEAD_LIMIT: Final = 250
HEAD_MAXIMUM: Final = 100_000
PATTERN_LIMIT: Final = 20_000


class GrepArgs(Args):
    """The pattern, where to search, and how to show the result."""

    # A new option also needs one of these, by what it affects: `Pattern.options` in search/ripgrep.py (`literal` must
    # be empty if the option lets files match that do not contain the text), `line_options` in search/search.py (lines
    # shown), search/globs.py (files by name or type), the `Walk` below (ignored files). It is described in
    # prompts/grep.md; `_RARE_ARGS` of mcp/server/calls.py leaves a rare one out of the lean MCP listing.

    pattern: str = Field(
        min_length=1, max_length=PATTERN_LIMIT, description="The regular expression pattern to search for"
    )
    path: str | None = Field(default=None, description="File or directory to search in (default: cwd)")
    glob: str | None = Field(default=None, description="File filter pattern (e.g. *.go, *.{ts,tsx})")
    type: str | None = Field(default=None, description="File type (e.g. py, js, rust)")
    output_mode: Literal["content", "files_with_matches", "count"] = Field(
        default="content",
        description="Output mode: content / files_with_matches / count",
        json_schema_extra=hide_default,
    )
    context: int = Field(
        default=0, ge=0, le=1000, description="Number of surrounding lines to show", json_schema_extra=hide_default
    )
    case_insensitive: bool = Field(default=False, description="Case insensitive search", json_schema_extra=hide_default)
    multiline: bool = Field(default=False, description="Match across lines")
    head_limit: int = Field(
        default=HEAD_LIMIT, ge=1, description="Maximum output lines (default 250)", json_schema_extra=hide_default
    )
    offset: int = Field(default=0, ge=0, description="Output lines to skip, to go on")


def _path(args: GrepArgs, ctx: ToolContext) -> str:
    return ctx.resolve(args.path) if args.path and args.path != "." else ctx.cwd


def _effects(args: GrepArgs, ctx: ToolContext) -> list[Effect]:
    path = _path(args, ctx)
    return [ReadPath(path, recursive=os.path.isdir(path))]


def _check(args: GrepArgs, ctx: ToolContext) -> None:
    del ctx
    if "\0" in args.pattern:
        raise ToolFailure(
            "the pattern contains a NUL character",
            code="invalid_args",
            hint="Only binary files contain one, and they are not searched; use Bash for them.",
        )


async def _run(args: GrepArgs, ctx: ToolContext) -> ToolResult:
    _check(args, ctx)
    stop, asked = Stop(), args.head_limit
    if asked > HEAD_MAXIMUM:
        args = args.replace_values(head_limit=HEAD_MAXIMUM)
    result = await in_thread(lambda: _search(args, ctx, stop), stop)
    if asked <= HEAD_MAXIMUM:
        return result
    note = f"(head_limit={asked:,} is over its maximum; {HEAD_MAXIMUM:,} was used)"
    data = {**result.data, "head_limit": HEAD_MAXIMUM}
    return replace_values(result, output=f"{result.output}\n{note}", data=data)


def _search(args: GrepArgs, ctx: ToolContext, stop: Stop) -> ToolResult:
    path = _path(args, ctx)
    search = _search_folder if os.path.isdir(path) else _search_file
    return search(args, ctx, path, stop)


def _search_folder(args: GrepArgs, ctx: ToolContext, path: str, stop: Stop) -> ToolResult:
    root = _SearchRoot(ctx.cwd, os.path.normpath(path))
    with open_folder(path, ctx) as folder:
        workspace = os.fsencode(real_path(ctx.session.workspace))
        real, keeps_out = os.fsencode(folder.real), ctx.session.keeps_out
        walk = Walk(real, stop=workspace, keeps_out=keeps_out, fd=folder.fd)
        chosen = file_filter(args.glob, args.type, root.prefix)
        links = ctx.session.keep(SECRET_LINKS)

        def hides(status: os.stat_result, path: bytes) -> bool:
            return links.holds_secrets(status, os.path.join(folder.real, os.fsdecode(path)))

        search = Search(walk, _pattern(args), chosen.keeps, chosen.narrow, stop, hides)
        need = args.offset + args.head_limit + 1
        page = _page(search.lines(need) if args.output_mode == "content" else search.counts(need), args)
    notes = _notes(args, page) + walk.tally.notes("searched")
    if not page.total:
        if not search.asked:
            refuse_bad(search.pattern, stop)
        notes.insert(0, _nothing(args, root.format_path(b""), _describe_searched(search, SMALL)))
    return _result(args, page, root, notes, folder.origin)


def _search_file(args: GrepArgs, ctx: ToolContext, path: str, stop: Stop) -> ToolResult:
    root = _SearchRoot(ctx.cwd, os.path.normpath(path))
    with open_file(path, ctx) as file:
        found = _found_in(args, file.fd, stop)
    if found is None:
        raise ToolFailure(
            f"{root.format_path(b'')} is a binary file and was not searched",
            hint="Use Bash (for example `strings` or `xxd`) on it.",
            details={"path": path},
        )
    page = _page(found, args)
    notes = _notes(args, page)
    if not page.total:
        notes.insert(0, _nothing(args, root.format_path(b""), "1 file"))
    return _result(args, page, root, notes, file.origin)


def _found_in(args: GrepArgs, fd: int, stop: Stop) -> list[Any] | None:
    """Return the lines of an open file, or an empty path with their number; None if it is binary."""
    if args.output_mode == "content":
        return search_open_file(fd, _pattern(args), args.offset + args.head_limit + 1, stop)
    number = count_open_file(fd, _pattern(args), stop)
    return None if number is None else [(b"", number)] if number else []


def _pattern(args: GrepArgs) -> Pattern:
    context = args.context if args.output_mode == "content" else 0
    return Pattern(args.pattern, args.case_insensitive, args.multiline, context)


@frozen
class _SearchRoot:
    """The root of a search; shows paths relative to the session's directory if they lie below it."""

    cwd: str
    path: str

    @property
    def base(self) -> str:
        below = self.path == self.cwd or self.path.startswith(self.cwd.rstrip("/") + "/")
        return os.path.relpath(self.path, self.cwd) if below else self.path

    @property
    def prefix(self) -> bytes:
        """The prefix that makes a path relative to the search root relative to the session's directory."""
        return b"" if self.base == "." or os.path.isabs(self.base) else os.fsencode(self.base) + b"/"

    def format_path(self, path: bytes) -> str:
        base = os.fsencode(self.base)
        if not path:
            return shown_name(base)
        return shown_name(path if base == b"." else os.path.join(base, path))


@frozen
class _Page:
    """The part of a result that is shown, and the size of the whole as far as it is known."""

    lines: list[Line]
    files: list[tuple[bytes, int]]
    total: int
    """Number of lines or files found; the search stops once it knows that there are more than are shown."""
    cut: bool


def _page(found: list[Any], args: GrepArgs) -> _Page:
    end = args.offset + args.head_limit
    shown = found[args.offset : end]
    content = args.output_mode == "content"
    return _Page(shown if content else [], [] if content else shown, len(found), len(found) > end)


def _result(args: GrepArgs, page: _Page, root: _SearchRoot, notes: list[str], origin: str) -> ToolResult:
    text, data = _content(page, root) if args.output_mode == "content" else _files(page, root, args.output_mode)
    data |= {"output_mode": args.output_mode, "truncated": page.cut}
    if page.cut:
        data["next_offset"] = args.offset + args.head_limit
    body = "\n".join([*text, *([""] if text and notes else []), *notes])
    return ToolResult(data=data, output=body, meta={"origin": origin} | ({"truncated": True} if page.cut else {}))


def _content(page: _Page, root: _SearchRoot) -> tuple[list[str], dict[str, Any]]:
    text: list[str] = []
    matches: list[dict[str, Any]] = []
    names: dict[bytes, str] = {}
    has_context = any(not line.is_match for line in page.lines)
    previous: Line | None = None
    for line in page.lines:
        name = names.get(line.path) or names.setdefault(line.path, root.format_path(line.path))
        if has_context and previous and (previous.path != line.path or line.number > previous.number + 1):
            text.append("--")
        mark = ":" if line.is_match else "-"
        text.append(f"{name}{mark}{line.number}{mark}{marked_line(line.text, line.spans)}")
        shown = {"path": name, "line": line.number, "text": marked_line(line.text, ())}
        matches.append(shown if line.is_match else shown | {"context": True})
        previous = line
    return text, {"lines": matches, "files": len(names)}


def _files(page: _Page, root: _SearchRoot, mode: str) -> tuple[list[str], dict[str, Any]]:
    named = [(root.format_path(path), number) for path, number in page.files]
    data: dict[str, Any] = {
        "files": [{"path": name, "count": number} for name, number in named],
    }
    if mode == "count":
        return [f"{name}:{number}" for name, number in named], data
    return [name for name, _ in named], data


def _notes(args: GrepArgs, page: _Page) -> list[str]:
    notes: list[str] = []
    kind = "lines" if args.output_mode == "content" else "files"
    if page.cut:
        notes.append(f"(cut at {args.head_limit:,} {kind}; continue with offset={args.offset + args.head_limit})")
    elif args.offset and args.offset >= page.total > 0:
        notes.append(f"(nothing at offset={args.offset}: the result has {page.total:,} {kind})")
    return notes


def _nothing(args: GrepArgs, where: str, looked: str) -> str:
    filters = [f"{name}={value}" for name, value in (("glob", args.glob), ("type", args.type)) if value]
    return f"No matches found in {where} ({', '.join([looked, *filters])}{explain_extended(args.glob)})"


def _describe_searched(search: Search, known: int) -> str:
    """Describe how many files were searched, exactly up to `known`; if none, why."""
    if search.wanted > known:
        return f"{known:,}+ files"
    ignored = search.walk.tally.ignored
    reason = f" to search, {ignored:,} ignored" if ignored and not search.wanted else ""
    return format_count(search.wanted, "file") + reason


TOOLS: Final = (
    Tool(
        name="Grep",
        kind="search",
        output_schema=object_schema(
            {"output_mode": "string", "truncated": "boolean"},
            lines=list_schema(object_schema({"path": "string", "line": "integer", "text": "string"})),
        ),
        description=prompt("grep"),
        args=GrepArgs,
        run=_run,
        effects=_effects,
        read_only=True,
        concurrency_safe=True,
        search_hint="search content text regex regular expression find grep ripgrep rg",
        examples=({"pattern": r"def \w+\(", "type": "py"}, {"pattern": "TODO", "output_mode": "files_with_matches"}),
    ),
)
