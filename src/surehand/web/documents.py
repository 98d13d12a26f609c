"""Documents: what a server's answer is, and what of it can be read: a page, data, a feed, text, a PDF or a picture."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import urljoin

from surehand.core.errors import ToolFailure
from surehand.core.frozen import frozen
from surehand.files.sniff import HEAD_BYTES, Found, sniff
from surehand.web.charset import decode
from surehand.web.convert import Converter
from surehand.web.fetch import Reply
from surehand.web.html import TEXT_CHARS

if TYPE_CHECKING:
    from surehand.files.images import Picture

Kind = Literal["html", "json", "xml", "text", "pdf", "image", "binary", "empty"]

_HTML: Final = frozenset({"text/html", "application/xhtml+xml"})
_JSON: Final = frozenset({"application/json", "text/json", "application/x-json"})
_XML: Final = frozenset({"application/xml", "text/xml"})
_NOT_FOR_READING: Final = re.compile(
    r"(?:video|audio|font)/|application/(?:zip|gzip|x-(?:tar|gzip|bzip2?|xz|7z|rar|zip|rpm|debian|iso9660|shockwave|ms)"
    r"|java-archive|wasm|vnd\.(?:openxml|ms-|oasis|android|debian|apple)|msword|epub)"
)
_LOOKS_LIKE_HTML: Final = re.compile(rb"(?>\s*<!--.*?-->)*+\s*<(?:!doctype\s+html|html|head|body)\b", re.I | re.S)
_LOOKS_LIKE_XML: Final = re.compile(rb"\s*<\?xml\b|\s*<(?:rss|feed)\b", re.I)
_REFRESH: Final = re.compile(
    r"<meta\s[^>]{0,200}?http-equiv=[\"']?refresh[^>]{0,200}?content=[\"']?[\d.\s]{0,9}[;,]\s*(?:url\s*=\s*)?[\"']?([^\"'>\s]{1,2000})",
    re.I,
)
_SHORT_CHARS: Final = 200
WHOLE_BYTES: Final = 16 * 1024 * 1024
"""Bytes of the largest PDF or picture that is read: one cut off cannot be shown at all."""


@frozen
class Document:
    """An answer made readable; `notes` say what a reader should know beside the text."""

    url: str
    kind: Kind
    content_type: str
    title: str = ""
    text: str = ""
    size: int | None = None
    cut: bool = False
    hops: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    picture: Picture | None = None


def worth_reading(content_type: str) -> bool:
    """Return whether a body of this type can be shown; of others only type and size are told."""
    return not _NOT_FOR_READING.match(content_type.strip().lower())


def most_bytes(body: bytes) -> int:
    """Return how many bytes are worth reading of an answer that begins so, where that is more than of a page."""
    return WHOLE_BYTES if sniff(body[:HEAD_BYTES]).kind in ("pdf", "image") else 0


async def document(reply: Reply, converter: Converter) -> Document:
    """Return the readable form of an answer; raise ToolFailure for a picture or PDF that cannot be shown."""
    kind, found = kind_of(reply)
    url, mime = reply.address.url, mime_of(reply)
    cut = reply.cut and worth_reading(mime)  # of others only the beginning was wanted
    made = Document(url, kind, mime, size=reply.size, cut=cut, hops=reply.hops, notes=_notes(reply, cut))
    match kind:
        case "empty":
            return replace(made, notes=(*made.notes, "The answer is empty."))
        case "binary":
            return replace(made, text=_name_of(made, found))
        case "image" | "pdf":
            return await asyncio.to_thread(_show_document, made, reply)
        case _:
            return await _read(made, reply, converter)


def kind_of(reply: Reply) -> tuple[Kind, Found]:
    """Return what an answer is: by its bytes where they are unmistakable, otherwise by what the server says."""
    found = sniff(reply.body[:HEAD_BYTES])
    mime = mime_of(reply)
    if not reply.body.strip():
        return "empty", found
    if found.kind in ("pdf", "image"):
        return found.kind, found
    if not worth_reading(mime):
        return "binary", found
    if found.kind == "binary" and not _is_wide(reply) and (not _is_stated_text(mime) or b"\0" in reply.body[:1024]):
        return "binary", found
    return _text_kind(mime, reply.body), found


def mime_of(reply: Reply) -> str:
    """Return the media type the server states, without parameters; empty when it states none."""
    return reply.headers.get("content-type", "").partition(";")[0].strip().lower()


def _text_kind(mime: str, body: bytes) -> Kind:
    unstated = mime in ("", "application/octet-stream", "unknown/unknown", "*/*")
    if mime in _HTML or ((unstated or mime in _XML) and _LOOKS_LIKE_HTML.match(body)):
        return "html"
    if mime in _JSON or mime.endswith("+json") or (unstated and body.lstrip()[:1] in (b"{", b"[")):
        return "json"
    if mime in _XML or mime.endswith("+xml") or (unstated and _LOOKS_LIKE_XML.match(body)):
        return "xml"
    return "text"


def _is_stated_text(mime: str) -> bool:
    return mime.startswith("text/") or mime in _HTML | _JSON | _XML or mime.endswith(("+json", "+xml"))


def _is_wide(reply: Reply) -> bool:
    stated = reply.headers.get("content-type", "").lower()
    return reply.body.startswith((b"\xff\xfe", b"\xfe\xff")) or ("utf-16" in stated and stated.startswith("text/"))


def _notes(reply: Reply, cut: bool) -> tuple[str, ...]:
    notes: list[str] = []
    if cut:
        whole = f" of {reply.size:,}" if reply.size and reply.size > len(reply.body) else ""
        notes.append(f"Only the first {len(reply.body):,} bytes{whole} were read; the rest was cut off.")
    if reply.trouble:
        notes.append(f"The answer is incomplete: {reply.trouble}.")
    return tuple(notes)


def _name_of(made: Document, found: Found) -> str:
    size = f"{made.size:,} bytes" if made.size is not None else "of unknown size"
    what = found.format if found.kind == "binary" and found.format else "file"
    return f"This is a {what} ({made.content_type or found.mime}, {size}); it cannot be shown as text."


async def _read(made: Document, reply: Reply, converter: Converter) -> Document:
    stated = reply.headers.get("content-type", "")
    text = await asyncio.to_thread(decode, reply.body, stated, cut=reply.cut or bool(reply.trouble))
    kind = made.kind if made.kind in ("html", "json", "xml") else "text"
    page = await converter.page(kind, text, made.url)
    notes = list(made.notes)
    if page.rough:
        notes.append("The markup of this page could not be converted; only its words are shown.")
    if not page.text.strip():
        notes.append("It holds no text that can be read; a page may be built by scripts, which are not run here.")
    if kind == "html" and len(page.text) < _SHORT_CHARS and (onward := _REFRESH.search(text, 0, 16 * 1024)):
        notes.append(f"The page sends its readers on to {urljoin(made.url, onward[1])}.")
    return replace(made, title=page.title, text=page.text, notes=tuple(notes))


def _show_document(made: Document, reply: Reply) -> Document:
    if reply.cut:
        size = f"{reply.size:,} bytes, " if reply.size else ""
        raise ToolFailure(
            f"{made.url} is too large to be shown ({made.kind}, {size}at most {len(reply.body):,} are read)",
            hint="Download it with Bash into the workspace and Read it there.",
        )
    if made.kind == "image":
        from surehand.files import images

        picture = images.prepare_picture(reply.body, made.url)
        size = f"{picture.original_width} x {picture.original_height} pixels, {len(reply.body):,} bytes"
        return replace(made, text=f"{picture.format} image {made.url}: {size}", picture=picture)
    return _pdf(made, reply.body)


def _pdf(made: Document, body: bytes) -> Document:
    from surehand.files import pdf

    with tempfile.TemporaryFile() as file:
        file.write(body)
        file.flush()
        os.lseek(file.fileno(), 0, os.SEEK_SET)
        found = pdf.read_pdf(file.fileno(), made.url, budget=TEXT_CHARS // 4)
    parts = [
        f"--- page {page.number} of {found.count}\n{page.text or '[no text on this page]'}" for page in found.pages
    ]
    notes = made.notes
    if found.pages and (found.pages[-1].cut or found.pages[-1].number < found.count):
        notes = (*notes, f"The text was cut on page {found.pages[-1].number} of {found.count}.")
    return replace(made, title=found.title, text="\n\n".join(parts), notes=notes)
