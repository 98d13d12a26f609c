"""Documents: responses of web servers as readable text (pages, JSON, XML, feeds, PDFs) or as pictures."""

from __future__ import annotations

import asyncio
import codecs
import json
import os
import re
import sys
import tempfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urljoin

from surehand.core import installation
from surehand.core.errors import ToolFailure
from surehand.core.frozen import frozen
from surehand.files import images, pdf
from surehand.files.sniff import HEAD_BYTES, Found, sniff
from surehand.web.addresses import read_url
from surehand.web.fetch import Reply
from surehand.web.pages import PIPE_BYTES, TEXT_CHARS, Page, TextKind, clean_page, is_quick, make

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
_MIME: Final = re.compile(r"[\w.+*-]{1,60}/[\w.+*-]{1,80}", re.ASCII)
_SHORT_CHARS: Final = 200
WHOLE_BYTES: Final = 16 * 1024 * 1024
"""Size limit of PDFs and pictures, which cannot be shown truncated."""


@frozen
class Document:
    """A readable response; `notes` are remarks for the reader, such as that it was truncated."""

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
    """Whether a body of this type can be shown; of others only type and size are reported."""
    return not _NOT_FOR_READING.match(content_type.strip().lower())


def most_bytes(body: bytes) -> int:
    """Return the size limit for a body that begins like this; 0 for the limit of pages."""
    return WHOLE_BYTES if sniff(body[:HEAD_BYTES]).kind in ("pdf", "image") else 0


async def document(reply: Reply, converter: Converter) -> Document:
    """Convert a response; raise ToolFailure for a picture or PDF that cannot be shown."""
    kind, found = kind_of(reply)
    url, mime = reply.address.url, mime_of(reply)
    cut = reply.cut and worth_reading(mime)  # of others only the beginning is read anyway
    made = Document(url, kind, mime, size=reply.size, cut=cut, hops=reply.hops, notes=_notes(reply, cut))
    match kind:
        case "empty":
            return replace(made, notes=(*made.notes, "The answer is empty."))
        case "binary":
            return replace(made, text=_describe_binary(made, found))
        case "image" | "pdf":
            return await asyncio.to_thread(_convert_image_or_pdf, made, reply)
        case _:
            return await _convert_text(made, reply, converter)


def kind_of(reply: Reply) -> tuple[Kind, Found]:
    """Determine what a response is: by its bytes if they are unmistakable, otherwise by its content type."""
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
    """Return the media type stated by the server, without parameters; empty if it states none."""
    stated = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
    return stated if _MIME.fullmatch(stated) else ""


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


def _describe_binary(made: Document, found: Found) -> str:
    size = f"{made.size:,} bytes" if made.size is not None else "of unknown size"
    what = found.format if found.kind == "binary" and found.format else "file"
    return f"This is a {what} ({made.content_type or found.mime}, {size}); it cannot be shown as text."


async def _convert_text(made: Document, reply: Reply, converter: Converter) -> Document:
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
        notes += _describe_onward(made.url, onward[1])
    return replace(made, title=page.title, text=page.text, notes=tuple(notes))


def _describe_onward(url: str, target: str) -> list[str]:
    """Return a note about the target of a page's redirect; none if no web tool could open it."""
    try:
        return [f"The page sends its readers on to {read_url(urljoin(url, target)).url}."]
    except (ToolFailure, ValueError):
        return []


def _convert_image_or_pdf(made: Document, reply: Reply) -> Document:
    if reply.cut:
        size = f"{reply.size:,} bytes, " if reply.size else ""
        raise ToolFailure(
            f"{made.url} is too large to be shown ({made.kind}, {size}at most {len(reply.body):,} are read)",
            hint="Download it with Bash into the workspace and Read it there.",
        )
    if made.kind == "image":
        picture = images.prepare_picture(reply.body, made.url)
        size = f"{picture.original_width} x {picture.original_height} pixels, {len(reply.body):,} bytes"
        return replace(made, text=f"{picture.format} image {made.url}: {size}", picture=picture)
    return _pdf(made, reply.body)


def _pdf(made: Document, body: bytes) -> Document:
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
    page = clean_page(Page(found.title, "\n\n".join(parts)))
    return replace(made, title=page.title, text=page.text, notes=notes)


# The encoding of a body: by its byte order mark, the header, a declaration in the page, and only then by guessing.

_MARKS: Final = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))

_WIDER: Final[dict[str, str]] = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
    "utf-16": "utf-16-le",
}
"""Encodings that browsers decode as a superset, because pages that declare the first use the second."""

_ALIASES: Final[dict[str, str]] = {"x-sjis": "cp932", "x-gbk": "gb18030", "unicode": "utf-16-le", "x-euc-jp": "euc_jp"}

_KNOWN: Final = frozenset(
    ["utf-8", "utf-16-le", "utf-16-be", "gb18030", "big5hkscs", "cp932", "euc_jp", "iso2022_jp", "cp949", "hz"]
    + ["cp437", "cp850", "cp852", "cp866", "cp874", "koi8-r", "koi8-u", "mac-roman", "mac-cyrillic"]
    + [f"cp{number}" for number in range(1250, 1259)]
    + [f"iso8859-{number}" for number in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)]
)
"""Encodings accepted in a declaration; Python knows more codecs, some of which do not encode text."""

_GUESSED_WESTERN: Final = frozenset({"cp1250", "iso8859_2"})
_WESTERN_LANGUAGES: Final = re.compile(rb"<html\b[^>]*\blang=[\"']?(?:en|fr|de|es|it|pt|nl|sv|da|nb|no|fi|is)\b", re.I)
_IN_HEADER: Final = re.compile(r"charset\s*=\s*[\"']?\s*([\w.:-]+)", re.I)
_IN_META: Final = re.compile(rb"<meta\b[^>]{0,500}?charset\s*=\s*[\"']?\s*([\w.:-]+)", re.I)
_IN_XML: Final = re.compile(rb"\s*<\?xml\b[^>]{0,200}?encoding\s*=\s*[\"']([\w.:-]+)", re.I)
_TELLING: Final = re.compile(rb"[\x80-\xff][^<>]{0,2000}")
_HEAD_BYTES: Final = 16 * 1024
_SAMPLE_BYTES: Final = 16 * 1024
_WORDS_BYTES: Final = 200


def decode(body: bytes, content_type: str = "", *, cut: bool = False) -> str:
    """Decode a body; never fails. With `cut` an incomplete character at the end is dropped."""
    for mark, name in _MARKS:
        if body.startswith(mark):
            return _decode_as(body[len(mark) :], name, cut)
    declared = _find_declared(body, content_type)
    if declared and declared != "cp1252" and (text := _strictly(body, declared, cut)) is not None:
        return text
    if b"\x1b$" in body and (text := _strictly(body, "iso2022_jp", cut)) is not None:  # it is valid ASCII as well
        return text
    if (text := _strictly(body, "utf-8", cut)) is not None:  # some servers declare latin-1 for everything
        return text
    return _decode_as(body, declared or _guess_encoding(body), cut)


def _find_declared(body: bytes, content_type: str) -> str | None:
    if (found := _IN_HEADER.search(content_type)) and (name := _codec(found[1])):
        return name
    head = body[:_HEAD_BYTES]
    for found in (_IN_XML.match(head), _IN_META.search(head)):
        # a page whose ASCII bytes spell its encoding is not written in 16-bit characters
        if found and (name := _codec(found[1].decode("ascii"))):
            return "utf-8" if name.startswith("utf-16") else name
    return None


def _codec(label: str) -> str | None:
    label = label.strip().lower()
    try:
        name = _ALIASES.get(label) or codecs.lookup(label).name
    except (LookupError, ValueError):
        return None
    name = _WIDER.get(name, name)
    return name if name in _KNOWN else None


def _guess_encoding(body: bytes) -> str:
    """Guess the encoding from the parts of the page that are not ASCII."""
    import charset_normalizer

    best = charset_normalizer.from_bytes(_sample(body)).best()
    if best is None:
        return "cp1252"
    western = best.encoding in _GUESSED_WESTERN and _WESTERN_LANGUAGES.search(body[:_HEAD_BYTES])
    return "cp1252" if western else best.encoding


def _sample(body: bytes) -> bytes:
    """Return the parts of a page that are not ASCII, with some text before each; most of a page is markup."""
    parts: list[bytes] = []
    size = 0
    for found in _TELLING.finditer(body):
        before = body[max(0, found.start() - _WORDS_BYTES) : found.start()]
        parts.append(before[max(before.rfind(b"<"), before.rfind(b">")) + 1 :] + found[0])
        size += len(parts[-1])
        if size > _SAMPLE_BYTES:
            break
    return b" ".join(parts)[:_SAMPLE_BYTES]


def _strictly(body: bytes, name: str, cut: bool) -> str | None:
    try:
        return _decode_as(body, name, cut, "strict")
    except UnicodeError:
        return None


def _decode_as(body: bytes, name: str, cut: bool, errors: str = "replace") -> str:
    return codecs.getincrementaldecoder(name)(errors).decode(body, final=not cut)


# Converting HTML holds the GIL (0.1 s for a large page), and malicious markup takes hundreds of megabytes. So a child
# process does it: the event loop stays free, and a child that takes too long is killed, after which a second attempt
# extracts only the words. Small texts are converted in this process.

PATIENCE_S: Final = 15.0
FAREWELL_S: Final = 0.2
_BEGIN: Final = "import sys; sys.path[:0] = sys.argv[1:]; from surehand.web.pages import serve; serve()"


class Converter:
    """Converts pages; keeps its child process for the next one, because starting it takes longer than most pages."""

    def __init__(self) -> None:
        self._child: asyncio.subprocess.Process | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()

    async def page(self, kind: TextKind, text: str, base_url: str = "") -> Page:
        """Convert a text."""
        if await asyncio.to_thread(is_quick, kind, text):
            return await asyncio.to_thread(make, kind, text, base_url)
        data = text.encode("utf-8", "replace")
        simpler: TextKind = "words" if kind == "html" else "text"
        async with self._lock:
            found = await self._try_child(kind, data, base_url) or await self._try_child(simpler, data, base_url)
        return found or Page("", "", rough=True)

    async def close(self) -> None:
        """End the child process."""
        child, self._child = self._child, None
        if child is None or child.returncode is not None or self._loop is not asyncio.get_running_loop():
            return
        if child.stdin is not None:
            child.stdin.close()
        try:  # an idle child ends by itself; killing one that just did would reap it behind the loop's back
            async with asyncio.timeout(FAREWELL_S):
                await child.wait()
        except TimeoutError:
            child.kill()
            await child.wait()

    async def _try_child(self, kind: TextKind, data: bytes, base_url: str) -> Page | None:
        """Let the child convert a text; None if it died or took too long."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                child = await self._start_child()
                page, last = await _ask_child(child, {"kind": kind, "base_url": base_url, "bytes": len(data)}, data)
        except (TimeoutError, OSError, asyncio.IncompleteReadError, ValueError):
            await self.close()
            return None
        except asyncio.CancelledError:
            await self.close()  # or it would go on converting
            raise
        if last:
            await self.close()
        return page

    async def _start_child(self) -> asyncio.subprocess.Process:
        loop = asyncio.get_running_loop()
        if self._child is None or self._child.returncode is not None or self._loop is not loop:
            self._loop = loop
            self._child = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-I", "-S", "-c", _BEGIN, *_import_paths()),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env=installation.find_library_paths(),
                limit=PIPE_BYTES,
            )
        return self._child


async def _ask_child(child: asyncio.subprocess.Process, head: dict[str, Any], data: bytes) -> tuple[Page, bool]:
    """Return the child's answer, and whether the child ends after it."""
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(json.dumps(head).encode() + b"\n" + data)
    await child.stdin.drain()
    answer = json.loads(await child.stdout.readline())
    text = await child.stdout.readexactly(answer["bytes"])
    return Page(answer["title"], text.decode(), answer["rough"]), answer["last"]


def _import_paths() -> list[str]:
    """Return the import paths of this package and the converter, for a child started without site packages."""
    import importlib.util

    found = (importlib.util.find_spec(name) for name in ("surehand", "html_to_markdown"))
    return [os.path.dirname(os.path.dirname(str(spec.origin))) for spec in found if spec is not None]
