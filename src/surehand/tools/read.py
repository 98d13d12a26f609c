"""`Read`: a file as a model can use it: numbered lines, a picture, pages of a PDF, cells of a notebook.

What was read is remembered (`Session.saw`), so that Edit and Write know whether a file has changed since; the rule is
in `core/session.py`. The digest of the whole file is taken if that is cheap: up to `WHOLE_BYTES`, or if the whole file
was shown; in a process that serves one call, up to `ONE_CALL_BYTES`. For a larger file of which a part was read, the
status has to prove that it is unchanged; if it is too young to prove anything, the digest is taken all the same.
"""

from __future__ import annotations

import binascii
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from surehand.core.call import Image, Text, ToolResult
from surehand.core.effects import ReadPath
from surehand.core.errors import ToolFailure
from surehand.core.frozen import replace_values
from surehand.core.record import Args, Field, hide_default
from surehand.core.schema import truncate_text
from surehand.core.session import Kept, Seen, digest_of
from surehand.core.text import PDF_CHARACTERS, format_count
from surehand.core.tool import Tool
from surehand.files.encodings import named_codec
from surehand.files.lines import (
    BLOCK,
    FIRST_CHUNK,
    Bytes,
    FileBytes,
    FirstBytes,
    HeldBytes,
    LineIndex,
    LineIndexes,
    TextFile,
    TextPage,
)
from surehand.files.opening import Source, digest_of_file, open_at_once, open_file, read_at_once, read_up_to
from surehand.files.paths import exact_times
from surehand.files.sniff import HEAD_BYTES, Found, sniff
from surehand.history.read_contents import SEEN
from surehand.tools import list_schema, object_schema, prompt

if TYPE_CHECKING:
    from surehand.core.context import ToolContext
    from surehand.core.effects import Effect
    from surehand.files.images import Picture

LINES: Final = 2_000
NAME_LIMIT: Final = 100
"""The most characters of an encoding's name."""
WHOLE_BYTES: Final = 1024 * 1024
ONE_CALL_BYTES: Final = 64 * 1024 * 1024
NOTE_CHARACTERS: Final = 2_000
"""Reserved at the end of the output for notes."""

INDEXES: Final = Kept("line indexes", make=lambda session: LineIndexes())


class ReadArgs(Args):
    """Which file, and which part of it."""

    file_path: str = Field(description="The absolute path to the file to read")
    offset: int = Field(
        default=0, ge=0, description="The line number to start reading from (0-based)", json_schema_extra=hide_default
    )
    limit: int = Field(
        default=LINES, ge=1, description="The number of lines to read (default 2000)", json_schema_extra=hide_default
    )
    encoding: str | None = Field(default=None, description="Its encoding (e.g. gbk), where guessed wrong; edits follow")
    pages: str | None = Field(default=None, description='Pages of a PDF: "3", "1-5", "10-"')

    def faults(self) -> Iterator[tuple[str, str]]:
        """Yield faults of the arguments; not by the schema, which refuses file names that are not UTF-8."""
        if not self.file_path:
            yield "file_path", "is empty"
        if self.encoding is not None and (len(self.encoding) > NAME_LIMIT or named_codec(self.encoding) is None):
            shown = truncate_text(self.encoding, NAME_LIMIT)
            yield "encoding", f"{shown!r} is none that files are edited in; utf-8, gbk, big5, cp932... are"


def effects(args: ReadArgs, ctx: ToolContext) -> list[Effect]:
    """State the file that is read."""
    return [ReadPath(ctx.resolve(args.file_path))]


def depends_on(args: ReadArgs, ctx: ToolContext) -> object:
    """Return the file's status, which a cached result depends on."""
    try:
        found = os.stat(ctx.resolve(args.file_path))
    except (OSError, ValueError) as problem:
        return str(problem)
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def run(args: ReadArgs, ctx: ToolContext) -> ToolResult:
    """Read the file as the kind of content it has."""
    path = ctx.resolve(args.file_path)
    with open_file(path, ctx) as source:
        head = os.pread(source.fd, HEAD_BYTES, 0)
        found = sniff(head)
        unsaved = _find_unsaved(source, ctx) if found.kind == "text" or not head else None
        if unsaved is not None and not path.lower().endswith(".ipynb"):
            result = _lines(source, HeldBytes(unsaved), unsaved[:HEAD_BYTES], unsaved, args, ctx, saved=False)
        elif not head:
            result = _empty(source, ctx)
        elif found.kind == "image":
            result = _image(source, ctx)
        elif found.kind == "pdf":
            result = _pdf(source, args, ctx)
        elif found.kind == "binary":
            raise _binary(source, found)
        elif path.lower().endswith(".ipynb"):
            result = _notebook(source, head, args, ctx)
        else:
            result = _text(source, head, args, ctx)
    return result.with_meta(origin=source.origin)


def _empty(source: Source, ctx: ToolContext, held: bytes | None = b"") -> ToolResult:
    _remember(source, ctx, held)
    data, meta = _facts(source, "empty") | {"content": ""}, {"origin": source.origin}
    return ToolResult(data=data, output="File exists but is empty", meta=meta)


def _binary(source: Source, found: Found) -> ToolFailure:
    return ToolFailure(
        f"{source.path} is a binary file: {found.format}, {source.size:,} bytes",
        hint="It cannot be shown as text. Bash `file`, `xxd` or a program for this format can look into it.",
        details={"path": source.path, "reason": "binary", "format": found.format, "mime": found.mime}
        | {"size": source.size},
    )


def _facts(source: Source, kind: str) -> dict[str, Any]:
    return {"path": source.path, "type": kind, "size": source.size}


def at_once(args: ReadArgs, ctx: ToolContext) -> ToolResult | None:
    """Read the beginning of a text in the page cache, on the event loop; None if it would wait, or hash much."""
    path = ctx.resolve(args.file_path)
    source = open_at_once(path, ctx) if ctx.session.main.buffers is None else None
    if source is None:
        return None
    with source:
        first = read_at_once(source.fd, min(source.size, FIRST_CHUNK))
        if not first or path.lower().endswith(".ipynb") or sniff(head := first[:HEAD_BYTES]).kind != "text":
            return None
        held = first if len(first) == source.size else None
        if held is None and (args.offset or source.size <= WHOLE_BYTES or _hashed(source, ctx, whole=False)):
            return None
        try:
            result = _lines(source, FirstBytes(first, source.size), head, held, args, ctx)
        except BlockingIOError:
            return None
    return result


def _text(source: Source, head: bytes, args: ReadArgs, ctx: ToolContext) -> ToolResult:
    held = _read_small(source, ctx)
    bytes_ = FileBytes(source.fd, source.size) if held is None else HeldBytes(held)
    return _lines(source, bytes_, head, held, args, ctx)


def _lines(
    source: Source,
    bytes_: Bytes,
    head: bytes,
    held: bytes | None,
    args: ReadArgs,
    ctx: ToolContext,
    *,
    saved: bool = True,
) -> ToolResult:
    named = _find_named_encoding(source, args, ctx)
    # A small file is scanned faster than its index is found.
    index = ctx.session.keep(INDEXES).of(source.stat) if saved and source.size > BLOCK else LineIndex()
    file = TextFile(bytes_, head, index, named)
    page = file.page(args.offset, args.limit, _budget(ctx))
    if page is None and args.offset == 0:  # only a byte order mark
        return _empty(source, ctx, held)
    if page is None:
        raise _past_the_end(source, args.offset, file.total())
    _remember(source, ctx, held, whole=page.whole, named=named, saved=saved)
    total = file.known_total(page)
    data = _facts(source, "text") | {
        "content": page.content,
        "offset": page.offset,
        "lines": page.lines,
        "total_lines": total,
        "encoding": page.encoding.label,
        "truncated": page.more,
    }
    unsaved = () if saved else ("(as it is in the editor; not saved yet)",)
    output = "\n\n".join((page.numbered, *unsaved, *_notes(source, page, total)))
    return ToolResult(data=data, output=output, meta={"origin": source.origin} | _note_truncated(page.more))


def _find_unsaved(source: Source, ctx: ToolContext) -> bytes | None:
    """Return the unsaved text of the file in an editor, if there is one."""
    buffers = ctx.session.main.buffers
    if buffers is None or source.size > ONE_CALL_BYTES:
        return None
    return buffers.read(source.real, read_up_to(source.fd, ONE_CALL_BYTES))


def _notes(source: Source, page: TextPage, total: int | None) -> Iterator[str]:
    if page.encoding.codec != "utf-8":
        doubt = "; that is a weak guess: if it reads wrong, Read it again with encoding" if page.weak else ""
        yield f"(read as {page.encoding.label}{doubt})"
    if page.invalid:
        yield f"({page.invalid:,} invalid bytes are shown as \ufffd)"
    if page.more:
        following = page.offset + page.lines
        left = (
            f"more lines follow, {source.size:,} bytes in all"
            if total is None
            else format_count(total - following, "more line")
        )
        why = " (cut at the output limit)" if page.at_budget else ""
        yield f"... {left}{why}; read on with offset={following}"


def _past_the_end(source: Source, offset: int, total: int, parts: str = "lines") -> ToolFailure:
    return ToolFailure(
        f"offset {offset:,} is past the end: {source.path} has {total:,} {parts}",
        hint=f"Use an offset from 0 to {max(total - 1, 0)}.",
        details={"path": source.path, "reason": "past_the_end", f"total_{parts}": total},
    )


def _read_small(source: Source, ctx: ToolContext) -> bytes | None:
    """Return the whole content of a small file, so that the bytes shown are those remembered."""
    if source.size > WHOLE_BYTES:
        return None
    seen = ctx.session.read_state.get(source.real)
    if seen is not None and seen.digest and seen.untouched(source.stat) and source.size > FIRST_CHUNK:
        return None
    content = read_up_to(source.fd, WHOLE_BYTES + 1)
    return content if len(content) <= WHOLE_BYTES else None


def _find_named_encoding(source: Source, args: ReadArgs, ctx: ToolContext) -> str:
    """Return the encoding that a caller named for the file, in this call or an earlier one."""
    if args.encoding is not None:
        return named_codec(args.encoding) or ""
    seen = ctx.session.read_state.get(source.real)
    return seen.encoding if seen is not None else ""


def _remember(
    source: Source,
    ctx: ToolContext,
    held: bytes | None,
    *,
    whole: bool = True,
    named: str = "",
    saved: bool = True,
) -> None:
    """Record in the session what was read; the module's docstring says when the whole file is hashed."""
    before = ctx.session.read_state.get(source.real)
    if held is not None:
        contents = ctx.session.keep(SEEN)
        same = before is not None and contents.is_held(source.real, before.digest, held)
        digest = before.digest if before is not None and same else digest_of(held)
        contents.remember(source.real, digest, held)
    elif before is not None and before.digest and before.untouched(source.stat):
        digest, whole = before.digest, whole or before.whole
    else:
        digest = digest_of_file(source.fd) if _hashed(source, ctx, whole=whole) else ""
    # Without a digest the status alone has to prove later that the file is unchanged.
    seen = Seen.of(digest, source.stat, whole=whole, encoding=named, exact=not digest and exact_times(source.fd))
    ctx.session.saw(source.real, seen if saved else seen.without_proof())


def _hashed(source: Source, ctx: ToolContext, *, whole: bool) -> bool:
    """Return whether a file that is not held in memory is read entirely for its digest."""
    before = ctx.session.read_state.get(source.real)
    if before is not None and before.digest and before.untouched(source.stat):
        return False
    proof = Seen.of("", source.stat).ctime_ns
    return source.size <= ONE_CALL_BYTES and (whole or not proof or not ctx.session.interactive)


def _budget(ctx: ToolContext) -> int:
    return max(ctx.session.settings.engine.output_limit - NOTE_CHARACTERS, 1_000)


def _note_truncated(more: bool) -> dict[str, Any]:
    return {"truncated": True} if more else {}


def _image(source: Source, ctx: ToolContext) -> ToolResult:
    from surehand.files import images  # lazy: images, 3 ms

    content = _whole(source, images.FILE_BYTES, "an image")
    picture = images.prepare_picture(content, source.path)
    _remember(source, ctx, content)
    size = f"{picture.original_width} x {picture.original_height} pixels, {source.size:,} bytes"
    shown = f"; shown as {picture.mime_type}, {picture.width} x {picture.height}" if picture.converted else ""
    first = "; the first picture of several" if picture.animated else ""
    text = f"{picture.format} image {source.path}: {size}{shown}{first}"
    data = _facts(source, "image") | {
        "format": picture.format,
        "mime_type": picture.mime_type,
        "width": picture.width,
        "height": picture.height,
        "original_width": picture.original_width,
        "original_height": picture.original_height,
    }
    return ToolResult(data=data, output=text, content=(Text(text), _block(picture)))


def _pdf(source: Source, args: ReadArgs, ctx: ToolContext) -> ToolResult:
    from surehand.files import pdf  # lazy: pdf, 1 ms

    first, last = pdf.page_range(args.pages) if args.pages else (args.offset + 1, args.offset + args.limit)
    found = pdf.read_pdf(source.fd, source.path, first, last, min(PDF_CHARACTERS, _budget(ctx)))
    whole = len(found.pages) == found.count and not any(page.cut for page in found.pages)
    _remember(source, ctx, None, whole=whole)
    title = f", title {found.title!r}" if found.title else ""
    parts = [f"PDF document {source.path}: {source.size:,} bytes, {found.count} pages{title}"]
    parts += [
        f"--- page {page.number} of {found.count}\n{page.text or '[no text on this page]'}" for page in found.pages
    ]
    more = bool(found.pages) and (found.pages[-1].cut or found.pages[-1].number < min(last, found.count))
    if more:
        following = found.pages[-1].number + (not found.pages[-1].cut)
        parts.append(f'... {found.count - following + 1} more pages; read on with pages="{following}-"')
    if found.pages and not any(page.text for page in found.pages):
        parts.append("(These pages contain no text; they may be scans. Bash `pdftoppm` makes images of them.)")
    pages = [{"page": page.number, "text": page.text} for page in found.pages]
    data = _facts(source, "pdf") | {"pages": found.count, "title": found.title, "text": pages, "truncated": more}
    return ToolResult(data=data, output="\n\n".join(parts), meta=_note_truncated(more))


def _notebook(source: Source, head: bytes, args: ReadArgs, ctx: ToolContext) -> ToolResult:
    from surehand.files import notebook  # lazy: notebook, 2 ms

    try:
        content = _whole(source, notebook.FILE_BYTES, "a notebook")
        book = notebook.parse_notebook(content, source.path)
    except ToolFailure as problem:  # for example one with a merge conflict: it must be seen to be repaired
        plain = _text(source, head, args, ctx)
        return replace_values(plain, output=f"{plain.output}\n\n(shown as text: {problem.message})")
    if args.offset and args.offset >= len(book.cells):
        raise _past_the_end(source, args.offset, len(book.cells), "cells")
    text, pictures, count = notebook.render_cells(book, args.offset, args.limit, _budget(ctx))
    following = args.offset + count
    more = following < len(book.cells)
    _remember(source, ctx, content, whole=args.offset == 0 and not more)
    notes = (
        [f"... {format_count(len(book.cells) - following, 'more cell')}; read on with offset={following}"]
        if more
        else []
    )
    output = "\n\n".join([f"Notebook {source.path}: {len(book.cells)} cells, {book.language}", text, *notes])
    data = _facts(source, "notebook") | {
        "language": book.language,
        "cells": notebook.as_data(book.cells[args.offset : following]),
        "total_cells": len(book.cells),
        "truncated": more,
    }
    blocks = [block for each in pictures if (block := _picture_block(each, source.path))]
    content = (Text(output), *blocks) if blocks else ()
    return ToolResult(data=data, output=output, content=content, meta=_note_truncated(more))


def _picture_block(content: bytes, path: str) -> Image | Text:
    from surehand.files import images  # lazy: images, 3 ms

    try:
        picture = images.prepare_picture(content, path)
    except ToolFailure as problem:
        return Text(f"[{problem.message}]")
    return _block(picture)


def _block(picture: Picture) -> Image:
    return Image(binascii.b2a_base64(picture.data, newline=False).decode("ascii"), picture.mime_type)


def _whole(source: Source, limit: int, what: str) -> bytes:
    content = read_up_to(source.fd, limit + 1)
    if len(content) > limit:
        raise ToolFailure(
            f"{source.path} is {what} of {source.size:,} bytes; at most {limit:,} are read",
            hint="Make it smaller first.",
            details={"path": source.path, "reason": "too_large", "size": source.size},
        )
    return content


TOOLS: Final[tuple[Tool, ...]] = (
    Tool(
        name="Read",
        kind="read",
        output_schema=object_schema(
            {"path": "string", "type": "string", "size": "integer"},
            content="string",
            offset="integer",
            lines="integer",
            total_lines="integer|null",
            encoding="string",
            truncated="boolean",
            cells=list_schema("object"),
            pages="integer",
        ),
        description=prompt("read"),
        args=ReadArgs,
        run=run,
        aliases=("FileRead",),
        read_only=True,
        concurrency_safe=True,
        examples=({"file_path": "src/app.py"}, {"file_path": "/var/log/app.log", "offset": 2000, "limit": 500}),
        effects=effects,
        depends_on=depends_on,
        at_once=at_once,
    ),
)
