"""`Glob`: find files by name pattern, newest first."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from surehand.core.call import ToolResult
from surehand.core.effects import ReadPath
from surehand.core.errors import ToolFailure
from surehand.core.record import Args, Field
from surehand.core.text import format_count
from surehand.core.tool import Tool
from surehand.files.opening import open_folder
from surehand.files.paths import real_path
from surehand.files.sanitize import shown_names
from surehand.search.globs import Listing, compile_glob, explain_extended, split_pattern
from surehand.search.ripgrep import Stop, in_thread
from surehand.search.walk import Walk
from surehand.tools import list_schema, object_schema, prompt

if TYPE_CHECKING:
    from surehand.core.context import ToolContext
    from surehand.core.effects import Effect
    from surehand.search.globs import Hit

LIMIT: Final = 10_000


class GlobArgs(Args):
    """The pattern, and where to search."""

    pattern: str = Field(
        min_length=1, description="The glob pattern to match files against (e.g. **/*.go, src/**/*.ts)"
    )
    path: str | None = Field(
        default=None, description="The directory to search in. Defaults to the current working directory."
    )
    include_ignored: bool = Field(
        default=False, description="Force include files that are normally ignored by .gitignore (default false)"
    )


def _find_root(args: GlobArgs, ctx: ToolContext) -> tuple[str, str]:
    """Return the folder to search and the pattern relative to it; an absolute pattern contains its folder."""
    root = ctx.resolve(args.path) if args.path and args.path != "." else ctx.cwd
    folder, pattern = split_pattern(os.path.expanduser(args.pattern))
    return os.path.join(root, folder) if folder else root, pattern


def _effects(args: GlobArgs, ctx: ToolContext) -> list[Effect]:
    return [ReadPath(_find_root(args, ctx)[0], recursive=True)]


def _check(args: GlobArgs, ctx: ToolContext) -> None:
    if "\0" in args.pattern:
        raise ToolFailure("the pattern contains a NUL character", code="invalid_args")
    compile_glob(_find_root(args, ctx)[1])


async def _run(args: GlobArgs, ctx: ToolContext) -> ToolResult:
    _check(args, ctx)
    stop = Stop()
    return await in_thread(lambda: _find(args, ctx, stop), stop)


def _find(args: GlobArgs, ctx: ToolContext, stop: Stop) -> ToolResult:
    path, pattern = _find_root(args, ctx)
    with open_folder(path, ctx) as folder:
        walk = Walk(
            os.fsencode(folder.real),
            stop=os.fsencode(real_path(ctx.session.workspace)),
            ignore=not args.include_ignored,
            excludes=not args.include_ignored,
            keeps_out=ctx.session.keeps_out,
            fd=folder.fd,
        )
        listing = Listing(walk, compile_glob(pattern), stop)
        hits, total = listing.hits(LIMIT)
    base = _base(os.path.normpath(path), ctx.cwd)
    return _result(args, base, hits, total, listing, folder.origin)


def _base(path: str, cwd: str) -> str:
    """Return the prefix of displayed paths: empty for the session's directory, relative below it, else absolute."""
    if path == cwd:
        return ""
    below = path.startswith(cwd.rstrip("/") + "/")
    return (os.path.relpath(path, cwd) if below else path.rstrip("/")) + "/"


def _result(args: GlobArgs, base: str, hits: list[Hit], total: int, listing: Listing, origin: str) -> ToolResult:
    cut = total > len(hits)
    prefix = os.fsencode(base)
    names = shown_names([prefix + path for _, path, _ in hits])
    data: dict[str, Any] = {
        "files": [
            {"path": name, "size": size, "mtime": -newness / 1e9}
            for name, (newness, _, size) in zip(names, hits, strict=True)
        ],
        "total": total,
        "truncated": cut,
    }
    lines = [f"{name} ({size:,} bytes)" for name, (_, _, size) in zip(names, hits, strict=True)]
    notes = _notes(args, base, total, listing)
    body = "\n".join([*lines, *([""] if lines and notes else []), *notes])
    return ToolResult(data=data, output=body, meta={"origin": origin} | ({"truncated": True} if cut else {}))


def _notes(args: GlobArgs, base: str, total: int, listing: Listing) -> list[str]:
    notes: list[str] = []
    tally = listing.walk.tally
    if not total:
        looked = f"{format_count(tally.files, 'file')} in {format_count(tally.folders, 'folder')}"
        ignored = format_count(tally.ignored, "ignored entry", "ignored entries")
        left_out = f"; {ignored} left out, include_ignored=true shows them" if tally.ignored else ""
        plain = explain_extended(args.pattern)
        notes.append(f"No files match {args.pattern} in {base or './'} (looked at {looked}{left_out}{plain})")
    if total > LIMIT:
        notes.append(f"(cut at {LIMIT:,} of {total:,} files, the newest; use a narrower pattern)")
    notes += tally.notes("listed")
    return notes


TOOLS: Final = (
    Tool(
        name="Glob",
        kind="search",
        output_schema=object_schema(
            {
                "files": list_schema(object_schema({"path": "string"}, size="integer", mtime="number")),
                "total": "integer",
                "truncated": "boolean",
            }
        ),
        description=prompt("glob"),
        args=GlobArgs,
        run=_run,
        effects=_effects,
        read_only=True,
        concurrency_safe=True,
        search_hint="find files by name pattern list match wildcard",
        examples=({"pattern": "**/*.py"}, {"pattern": "src/**/*.{ts,tsx}"}),
    ),
)
