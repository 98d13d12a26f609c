"""`WebFetch`: a web page as text, fetched once and read in parts."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from surehand.core.call import Image, Text, ToolResult
from surehand.core.effects import Connect
from surehand.core.errors import ToolFailure
from surehand.core.record import Args, Field, hide_default
from surehand.core.session import Kept
from surehand.core.tool import Tool
from surehand.tools import list_schema, object_schema, prompt
from surehand.web.addresses import WebAddress, read_url
from surehand.web.documents import Converter, document, most_bytes, worth_reading
from surehand.web.fetch import FetchOptions, Reach, get, refuse_secrets, system_resolve

if TYPE_CHECKING:
    from surehand.core.context import ToolContext
    from surehand.core.effects import Effect
    from surehand.web.documents import Document
    from surehand.web.fetch import Reply, Resolve

TIMEOUT_S: Final = 30
MAX_TIMEOUT_S: Final = 120
KEPT_S: Final = 300.0
KEPT_PAGES: Final = 16
KEPT_CHARS: Final = 4_000_000
NOTE_CHARS: Final = 2_000
ERROR_CHARS: Final = 2_000

_MARK: Final = "[WebFetch]"
_GAP: Final = r"[\s\u00ad\u034f\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufe00-\ufe0f\ufeff]*"
"""Whitespace and invisible characters."""
_FORGED: Final = re.compile(
    rf"[\[\uff3b\u3010\u3014\u27e6]({_GAP}{_GAP.join('WebFetch')}{_GAP})[\]\uff3d\u3011\u3015\u27e7]", re.I
)
_RETRY_AFTER: Final = re.compile(r"[0-9]{1,9}|[A-Za-z]{3}, [0-9A-Za-z :-]{9,40}")
"""Seconds or a date; anything else in that header is not repeated in a hint."""

_HINTS: Final[dict[int, str]] = {
    401: "The page needs a login, which this tool does not have.",
    403: "The server refuses programs or needs a login; look for another source.",
    404: "Check the address, or search for the page.",
    410: "The page was removed; search for another source.",
    429: "The server asks for patience; wait before the next request to it.",
    503: "The server is not available now; try again later.",
}


class WebFetchArgs(Args):
    """Which page, with what timeout, and from which offset."""

    url: str = Field(min_length=1, description="The URL to fetch content from")
    timeout: int = Field(
        default=TIMEOUT_S, ge=1, description="Timeout in seconds (default 30, max 120)", json_schema_extra=hide_default
    )
    offset: int = Field(default=0, ge=0, description="Characters to skip, to read on")


@dataclass(slots=True)
class Fetched:
    """The web state of a session: a cache of recent pages, and their converter."""

    converter: Converter
    pages: dict[str, tuple[float, Document]] = field(default_factory=dict[str, "tuple[float, Document]"])

    def get(self, url: str) -> Document | None:
        """Return a page from the cache."""
        found = self.pages.get(url)
        return found[1] if found and monotonic() - found[0] < KEPT_S else None

    def put(self, url: str, document: Document) -> None:
        """Put a page into the cache."""
        self.pages.pop(url, None)
        self.pages[url] = (monotonic(), document)
        while len(self.pages) > KEPT_PAGES or sum(len(kept.text) for _, kept in self.pages.values()) > KEPT_CHARS:
            del self.pages[next(iter(self.pages))]

    async def close(self) -> None:
        """End the converter's process."""
        await self.converter.close()


def _fetch_page() -> Fetched:
    return Fetched(Converter())


FETCHED: Final = Kept("web pages", make=lambda session: _fetch_page(), close=Fetched.close)


def effects(args: WebFetchArgs, ctx: ToolContext) -> list[Effect]:
    """Return the host that the call connects to."""
    del ctx
    return [_connection(read_url(args.url))]


def check(args: WebFetchArgs, ctx: ToolContext) -> None:
    """Raise ToolFailure if the URL contains the value of a secret environment variable."""
    del ctx
    refuse_secrets(args.url)


def web_fetch(resolve: Resolve | None = None) -> Tool:
    """Create the tool; `resolve` replaces the system's resolver."""

    async def run(args: WebFetchArgs, ctx: ToolContext) -> ToolResult:
        kept = ctx.session.keep(FETCHED)
        address = read_url(args.url)
        document = kept.get(address.url)
        cached = document is not None and all(_permitted(read_url(hop), address, ctx) for hop in document.hops)
        if document is None or not cached:
            document = await _document(address, args, ctx, resolve)
            kept.put(address.url, document)
        return _result(document, args, ctx).with_meta(cached=cached)

    return Tool(
        name="WebFetch",
        kind="fetch",
        output_schema=object_schema(
            {"url": "string", "text": "string"},
            title="string",
            kind="string",
            content_type="string",
            size="integer",
            redirects=list_schema("string"),
            next_offset="integer|null",
            characters="integer",
        ),
        description=prompt("web_fetch"),
        args=WebFetchArgs,
        run=run,
        read_only=True,
        concurrency_safe=True,
        examples=({"url": "https://example.com/docs"}, {"url": "https://example.com/long", "offset": 100_000}),
        origin="web",
        timeout_s=lambda args: min(args.timeout, MAX_TIMEOUT_S) + 5.0,
        effects=effects,
        check=check,
    )


async def _document(address: WebAddress, args: WebFetchArgs, ctx: ToolContext, resolve: Resolve | None) -> Document:
    web = ctx.session.settings.web
    reach = Reach(web.allowed_hosts, web.proxy, resolve or system_resolve)
    options = FetchOptions(
        timeout_s=min(args.timeout, MAX_TIMEOUT_S),
        follow=lambda target: _permitted(target, address, ctx),
        report=lambda done, total: ctx.progress(f"{done:,} bytes of {address.host}", done=done, total=total),
        whole=worth_reading,
        most=most_bytes,
    )
    reply = await get(address, reach, options)
    converter = ctx.session.keep(FETCHED).converter
    if not reply.ok:
        raise await _http_error(reply, converter)
    return await document(reply, converter)


def _permitted(target: WebAddress, first: WebAddress, ctx: ToolContext) -> bool:
    return first.same_site(target) or ctx.permits(_connection(target))


def _connection(address: WebAddress) -> Connect:
    return Connect(address.host, address.port, address.url)


async def _http_error(reply: Reply, converter: Converter) -> ToolFailure:
    """Return the error for a response with an error status, with the text of its page."""
    message = _safe(f"HTTP {reply.status} {reply.reason or 'error'} from {reply.address.url}")
    try:
        found = await document(reply, converter)
        said = _safe("\n\n".join(each for each in (found.title, found.text) if each))[:ERROR_CHARS]
    except ToolFailure:
        said = ""
    hint = _HINTS.get(reply.status, "")
    if _RETRY_AFTER.fullmatch(wait := reply.headers.get("retry-after", "")):
        hint = f"{hint} The server says when to come back: {wait}.".strip()
    details = {"status": reply.status, "url": reply.address.url, "redirects": list(reply.hops)}
    output = "\n\n".join(each for each in (f"{message}\n{hint}".strip(), said) if each)
    return ToolFailure(message, hint=hint, details=details, output=output, data={**details, "text": said})


def _result(document: Document, args: WebFetchArgs, ctx: ToolContext) -> ToolResult:
    size = max(ctx.session.settings.engine.output_limit - NOTE_CHARS, 1_000)
    title = _safe(document.title) if args.offset == 0 else ""
    whole = len(document.text)
    if args.offset and args.offset >= whole:
        raise ToolFailure(
            f"offset {args.offset:,} is past the end: {document.url} has {whole:,} characters",
            hint="Use a smaller offset.",
        )
    end = _page_end(document.text, args.offset, size - len(title))
    part = _safe(document.text[args.offset : end])
    said = list(_notes(document, args.offset, end, whole))
    if args.timeout > MAX_TIMEOUT_S:
        said.append(f"A timeout of {args.timeout} s is over the limit; {MAX_TIMEOUT_S} s were allowed.")
    notes = [f"{_MARK} {note}" for note in said]
    output = "\n\n".join(each for each in (title, part, "\n".join(notes)) if each)
    data: dict[str, Any] = {
        "url": document.url,
        "title": document.title,
        "kind": document.kind,
        "content_type": document.content_type,
        "size": document.size,
        "redirects": list(document.hops),
        "offset": args.offset,
        "next_offset": end if end < whole else None,
        "characters": whole,
        "text": part,
    }
    meta = {"origin": "web"} | ({"truncated": True} if document.cut or end < whole else {})
    return ToolResult(data=data, output=output, content=_blocks(document, output), meta=meta)


def _notes(document: Document, start: int, end: int, total: int) -> Iterator[str]:
    if document.hops:
        yield f"Redirected to {document.url}."
    yield from document.notes
    if start or end < total:
        onward = f"; continue with offset={end}" if end < total else ""
        yield f"Characters {start:,} to {end:,} of {total:,}{onward}."


def _page_end(text: str, start: int, size: int) -> int:
    """Return the end of a part: at the end of a line if one is near."""
    if len(text) - start <= size:
        return len(text)
    line = text.rfind("\n", start + size - size // 10, start + size)
    return line + 1 if line > 0 else start + size


def _safe(text: str) -> str:
    """Escape what looks like a note of this tool in the text of a page."""
    return _FORGED.sub(r"(\1)", text)


def _blocks(document: Document, output: str) -> tuple[Text | Image, ...]:
    if document.picture is None:
        return ()
    data = base64.b64encode(document.picture.data).decode("ascii")
    return Text(output), Image(data, document.picture.mime_type)


TOOLS: Final[tuple[Tool, ...]] = (web_fetch(),)
