"""The basics, five small tools of every session: the time, an echo, the current directory, a listing, a plain file."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from surehand.core.call import ToolResult
from surehand.core.effects import ReadPath
from surehand.core.errors import ToolFailure
from surehand.core.record import Args, Field
from surehand.core.session import Seen, digest_of
from surehand.core.tool import Tool
from surehand.history.read_contents import SEEN
from surehand.tools import list_schema, object_schema

if TYPE_CHECKING:
    from surehand.core.context import ToolContext
    from surehand.core.effects import Effect

ENTRY_LIMIT: Final = 2_000
DEPTH_LIMIT: Final = 64
MAX_BYTES: Final = 204_800
MAX_BYTES_LIMIT: Final = 16 * 1024 * 1024


class NoArgs(Args):
    """Nothing to say."""


async def _now(args: NoArgs, ctx: ToolContext) -> ToolResult:
    del args, ctx
    milliseconds = time.time_ns() // 1_000_000
    seconds, rest = divmod(milliseconds, 1000)
    iso = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest:03d}Z"
    return ToolResult(data={"timestamp": milliseconds, "iso": iso}, output=f"{iso} ({milliseconds} ms since 1970)")


class EchoArgs(Args):
    """What to echo."""

    text: str = Field(description="The text to return unchanged")


async def _echo(args: EchoArgs, ctx: ToolContext) -> ToolResult:
    del ctx
    return ToolResult(data={"text": args.text}, output=args.text)


async def _pwd(args: NoArgs, ctx: ToolContext) -> ToolResult:
    del args
    return ToolResult(data={"cwd": ctx.cwd}, output=ctx.cwd)


class ListDirArgs(Args):
    """Which folder to list, and how deep."""

    path: str = Field(
        min_length=1, description="The directory to list, absolute or relative to the session's directory"
    )
    recursive: bool = Field(default=False, description="Also list what is in the directories below")
    max_depth: int = Field(
        default=4, ge=1, le=DEPTH_LIMIT, alias="maxDepth", description="How many levels a recursive listing goes down"
    )


def _list_effects(args: ListDirArgs, ctx: ToolContext) -> list[Effect]:
    return [ReadPath(ctx.resolve(args.path))]


def _list_dir(args: ListDirArgs, ctx: ToolContext) -> ToolResult:
    from surehand.files.opening import open_folder  # lazy: opening, 17 ms

    path = ctx.resolve(args.path)
    with open_folder(path, ctx) as folder:
        walk = _entries(folder.fd, args.max_depth if args.recursive else 1)
        entries = [entry for _, entry in zip(range(ENTRY_LIMIT), walk, strict=False)]
        cut = len(entries) == ENTRY_LIMIT and next(walk, None) is not None
    data = {"path": folder.real, "entries": entries, "truncated": cut}
    meta: dict[str, Any] = {"origin": folder.origin} | ({"truncated": True} if cut else {})
    return ToolResult(data=data, output=_listing(folder.real, entries, cut), meta=meta)


def _listing(path: str, entries: list[dict[str, Any]], cut: bool) -> str:
    if not entries:
        return f"{path} is empty"
    lines = [_line(entry) for entry in entries]
    if cut:
        lines.append(f"... cut at {ENTRY_LIMIT:,} entries; list a directory below, or use Glob with a pattern")
    return "\n".join(lines)


def _line(entry: dict[str, Any]) -> str:
    name = _visible(entry["path"])
    match entry["type"]:
        case "directory":
            return f"{name}/"
        case "symlink":
            return f"{name} -> {_visible(entry['target'])}"
        case "file":
            return f"{name} ({entry['size']:,} bytes)"
        case kind:
            return f"{name} [{kind}]"


def _entries(fd: int, depth: int, prefix: str = "") -> Iterator[dict[str, Any]]:
    """Yield the entries of the folder `fd` by name; subfolders are opened relative to it and never through a link."""
    with os.scandir(fd) as found:
        names = sorted(entry.name for entry in found)
    for name in names:
        entry = _entry(fd, name, prefix)
        if entry is None:
            continue
        yield entry
        if entry["type"] == "directory" and depth > 1 and name != ".git":
            yield from _below(fd, name, depth - 1, f"{prefix}{name}/")


def _below(fd: int, name: str, depth: int, prefix: str) -> Iterator[dict[str, Any]]:
    try:
        below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
    except OSError:  # unreadable, or deleted since it was listed; its own line is listed all the same
        return
    try:
        yield from _entries(below, depth, prefix)
    finally:
        os.close(below)


_TYPES: Final = {
    stat.S_IFDIR: "directory",
    stat.S_IFREG: "file",
    stat.S_IFLNK: "symlink",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}


def _entry(fd: int, name: str, prefix: str) -> dict[str, Any] | None:
    try:
        found = os.stat(name, dir_fd=fd, follow_symlinks=False)
        kind = _TYPES.get(stat.S_IFMT(found.st_mode), "other")
        entry = {"name": _decodable(name), "path": _decodable(prefix + name), "type": kind, "size": found.st_size}
        if kind == "symlink":
            entry["target"] = _decodable(os.readlink(name, dir_fd=fd))
    except FileNotFoundError:
        return None
    return entry


def _decodable(name: str) -> str:
    """Return a name that is valid in JSON; bytes that are not UTF-8 are shown as `\\xff`."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _visible(name: str) -> str:
    """Return a name on one line, since a newline in it would look like another entry."""
    return name if name.isprintable() else name.encode("unicode_escape").decode("ascii")


class ReadFileArgs(Args):
    """Which file to read, and how large it may be."""

    path: str = Field(min_length=1, description="The file to read, absolute or relative to the session's directory")
    max_bytes: int = Field(
        default=MAX_BYTES, ge=1, le=MAX_BYTES_LIMIT, alias="maxBytes", description="Larger files are an error"
    )


def _read_effects(args: ReadFileArgs, ctx: ToolContext) -> list[Effect]:
    return [ReadPath(ctx.resolve(args.path))]


def _read_file(args: ReadFileArgs, ctx: ToolContext) -> ToolResult:
    from surehand.files.opening import open_file, read_up_to  # lazy: opening, 17 ms

    path = ctx.resolve(args.path)
    with open_file(path, ctx) as source:
        content = read_up_to(source.fd, args.max_bytes + 1)
        size = max(source.stat.st_size, len(content))
    if len(content) > args.max_bytes:
        raise ToolFailure(
            f"{path} has {size:,} bytes, more than maxBytes ({args.max_bytes:,})",
            hint="Read a part of it with Read (offset, limit), or raise maxBytes.",
            details={"path": path, "size": size, "max_bytes": args.max_bytes},
        )
    text = _text(content, path)
    digest = digest_of(content)
    ctx.session.keep(SEEN).remember(source.real, digest, content)
    ctx.session.saw(source.real, Seen.of(digest, source.stat))
    data = {"path": path, "content": text, "size": len(content)}
    return ToolResult(data=data, output=text, meta={"origin": source.origin})


def _text(content: bytes, path: str) -> str:
    """Decode a text file in any encoding; raise ToolFailure if it is not text."""
    from surehand.files.lines import decode_text  # lazy: lines, 15 ms
    from surehand.files.sniff import HEAD_BYTES, sniff, wide_encoding  # lazy: sniff, 9 ms

    found = sniff(content[:HEAD_BYTES])
    if found.kind != "text":
        raise ToolFailure(
            f"{path} is not text: {found.format}, {len(content):,} bytes",
            hint="Read shows images, PDF and notebooks; Bash `file` looks into others.",
            details={"path": path, "reason": "binary", "format": found.format, "size": len(content)},
        )
    wide = wide_encoding(content[:HEAD_BYTES])
    return wide.decode(content, "replace") if wide else decode_text(content)[0]


def _nothing(args: Args, ctx: ToolContext) -> list[Effect]:
    del args, ctx
    return []


TOOLS: Final[tuple[Tool, ...]] = (
    Tool(
        name="time.now",
        output_schema=object_schema({"timestamp": "integer", "iso": "string"}),
        description="Return the current time: `timestamp` in milliseconds since 1970 and `iso` in UTC.",
        args=NoArgs,
        run=_now,
        read_only=True,
        concurrency_safe=True,
        search_hint="time date clock timestamp now",
        examples=({},),
        effects=_nothing,
    ),
    Tool(
        name="tools.echo",
        output_schema=object_schema({"text": "string"}),
        description="Return the given text unchanged; a probe of the whole path of a call.",
        args=EchoArgs,
        run=_echo,
        read_only=True,
        concurrency_safe=True,
        search_hint="echo probe test ping",
        examples=({"text": "hello"},),
        effects=_nothing,
    ),
    Tool(
        name="shell.pwd",
        output_schema=object_schema({"cwd": "string"}),
        description="Return the session's current directory.",
        args=NoArgs,
        run=_pwd,
        read_only=True,
        concurrency_safe=True,
        search_hint="working directory cwd pwd",
        examples=({},),
        effects=_nothing,
    ),
    Tool(
        name="fs.list_dir",
        kind="read",
        output_schema=object_schema(
            {
                "path": "string",
                "entries": list_schema(object_schema({"name": "string", "path": "string", "type": "string"})),
            }
        ),
        description="List a directory with type and size of each entry; `recursive` goes `maxDepth` levels down "
        f"(not into .git). At most {ENTRY_LIMIT:,} entries.",
        args=ListDirArgs,
        run=_list_dir,
        read_only=True,
        concurrency_safe=True,
        search_hint="list directory folder ls tree files",
        examples=({"path": "."}, {"path": "src", "recursive": True, "maxDepth": 2}),
        effects=_list_effects,
    ),
    Tool(
        name="fs.read_file",
        kind="read",
        output_schema=object_schema({"path": "string", "content": "string", "size": "integer"}),
        description="Return the text of a file; one over `maxBytes` is an error. For large files, images, PDF and "
        "notebooks use Read.",
        args=ReadFileArgs,
        run=_read_file,
        read_only=True,
        concurrency_safe=True,
        search_hint="read file content cat text",
        examples=({"path": "README.md"},),
        effects=_read_effects,
    ),
)
