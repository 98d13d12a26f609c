"""Web pages as readable text: HTML as Markdown with headings, lists, links, tables and code; JSON, feeds, XML.

Scripts, menus and hidden text are dropped. HTML is converted by `html_to_markdown`. Added here: the title, protection
against the code of a truncated script, and a fallback that extracts only the words. When in doubt, text is kept: an
extra menu does less harm than a missing paragraph. Conversion holds the GIL, so larger pages are converted by a child
process that runs `serve` (started by `Converter` of `web.documents`).

Many older pages use tables for layout; as Markdown that would be one cell with the whole article on one line. A table
without header cells that contains another table or a heading, or has a single cell, is replaced: each cell becomes a
paragraph.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import unescape
from typing import TYPE_CHECKING, Final, Literal

from surehand.core.frozen import frozen

if TYPE_CHECKING:
    from html_to_markdown import ConversionOptions


TEXT_CHARS: Final = 4 * 1024 * 1024
"""Limit for the text of a page; only tables inflated by spans exceed it."""

_NOISE: Final = ("nav", "[role=navigation]", "[role=menu]", "[role=menubar]", "select", "datalist")
_QUICK_US: Final = 8_000
_QUICK_CELLS: Final = 100_000

_RAW_TAGS: Final = re.compile(rb"<(/?)(script|style)\b")
_WIDE_SPAN_FOLDED: Final = re.compile(rb"span\s*=\s*[\"']?\s*\d{3}")
_WIDE_SPAN: Final = re.compile(r"\b((?:col|row)span\s*=\s*[\"']?\s*)\d{3,}", re.I)
_WHOLE: Final = ("<html", "<body", "<HTML", "<BODY")
_SCRIPT_LINK: Final = re.compile(r"\]\(javascript:(?:[^()\n]|\((?:[^()\n]|\([^()\n]*\))*\))*\)")
_OPENINGS: Final = re.compile(r"<(!--|(?:script|style|title|svg|template|textarea|body|noscript)\b)", re.I)
_ENDINGS: Final = {
    name: re.compile(r"-->" if name == "!--" else rf"</{name}\b[^<>]*>", re.I)
    for name in ("!--", "script", "style", "title", "svg", "template", "textarea", "noscript")
}
_SOCIAL_TITLE: Final = re.compile(
    r"<meta\s[^>]{0,300}?(?:property|name)=[\"']?(?:og|twitter):title[\"']?[^>]{0,300}?\scontent=(?:\"([^\"]{1,500})|'([^']{1,500}))",
    re.I,
)
_DISPLAY_NONE: Final = re.compile(r"display\s*:\s*none")  # with re.I it would take ten times as long
_MAIN_TEXT: Final = re.compile(
    r"<(?:article|main)\b|[\"'\s](?:article|post|story|entry|main)[-_]{0,2}(?:body|content|text)[\"'\s]", re.I
)
_HEAD_CHARS: Final = 512 * 1024
_TAG_CHARS: Final = 1000
# Custom elements are mostly blocks, but the converter treats them as inline and would join their words: `onetwo`.
_CUSTOM_END: Final = re.compile(r"</[a-zA-Z][a-zA-Z0-9.]*-[^<>\s]*\s*>(?=<)")
_TAG: Final = re.compile(r"<[^<>]*>?")


@frozen
class Page:
    """A converted page: its title and its text as Markdown."""

    title: str
    text: str
    rough: bool = False
    """The markup could not be converted; only the words were extracted."""


def html_page(html: str, base_url: str = "") -> Page:
    """Convert an HTML page; links are made absolute if `base_url` is given."""
    html = _prepare_html(html)
    text = _convert_html(html, base_url, everything=False)
    if not text.strip():  # a page that is hidden until a script runs, or that is only a menu
        text = _convert_html(html, base_url, everything=True)
    text = _SCRIPT_LINK.sub("]()", text)
    return Page(title_of(html), text[:TEXT_CHARS].strip())


def words_page(html: str, base_url: str = "") -> Page:
    """Extract the words of a page whose markup could not be converted."""
    del base_url
    return Page(title_of(html), words_of(html)[:TEXT_CHARS], rough=True)


def words_of(html: str) -> str:
    """Extract the words of a piece of HTML, on one line."""
    return " ".join(unescape(_TAG.sub(" ", _drop_raw_text(html))).split())


def title_of(html: str) -> str:
    """Return the title of a page: that of its head, else that for social networks, or nothing."""
    at = 0
    while found := _OPENINGS.search(html, at):
        name = found[1].lower()
        if name == "body":
            break
        ending = _ENDINGS[name].search(html, found.end())
        if ending is None:
            break
        if name == "title" and (title := _one_line(html[found.end() : ending.start()].partition(">")[2])):
            return title
        at = ending.end()
    social = _SOCIAL_TITLE.search(html, 0, _HEAD_CHARS)
    return _one_line(social[1] or social[2]) if social else ""


def is_quick_html(html: str) -> bool:
    """Whether converting surely takes only a few milliseconds and little memory.

    Measured: 1 µs per tag and 10 µs per kilobyte; a table may grow to its number of rows times its widest row.
    """
    folded = html.encode("utf-8", "replace").lower()
    effort_us = folded.count(b"<") + len(html) // 100
    rows, cells = folded.count(b"<tr"), folded.count(b"<td") + folded.count(b"<th")
    return effort_us <= _QUICK_US and rows * cells <= _QUICK_CELLS


def _prepare_html(html: str) -> str:
    """Prepare a page for the converter, with few passes over what may be a megabyte."""
    html = _CUSTOM_END.sub(r"\g<0> ", html.replace("\0", ""))
    folded = html.encode("utf-8", "replace").lower()  # bytes fold faster than characters
    if _WIDE_SPAN_FOLDED.search(folded):
        html = _WIDE_SPAN.sub(r"\g<1>1", html)
    for opening in _WHOLE:
        html = _strip_attributes(html, opening)
    return _unhide_article(without_layout_tables(html)) + _missing_end_tags(folded)


def _missing_end_tags(folded: bytes) -> str:
    """Return the end tags of scripts and styles that are still open at the end of a page, which may be truncated."""
    last = {found[2]: found[1] for found in _RAW_TAGS.finditer(folded)}
    return "".join(f"</{name.decode()}>" for name, slash in last.items() if not slash)


def _strip_attributes(html: str, opening: str) -> str:
    """Remove the attributes of a tag: some pages hide everything with them until a script has run."""
    start = html.find(opening, 0, _HEAD_CHARS)
    end = html.find(">", start, start + _TAG_CHARS) if start >= 0 else -1
    return html if end < 0 else f"{html[:start]}{opening}{html[end:]}"


def _unhide_article(html: str) -> str:
    """Unhide the main text: some pages hide the article until a script has run."""
    kept: list[str] = []
    at = 0
    for found in _DISPLAY_NONE.finditer(html):
        if _MAIN_TEXT.search(_find_tag_around(html, found.start(), found.end())):
            kept += html[at : found.start()], "display:block"
            at = found.end()
    return "".join(kept) + html[at:] if kept else html


def _find_tag_around(html: str, start: int, end: int) -> str:
    """Return the tag that contains this part of the page, or nothing."""
    opening = html.rfind("<", max(0, start - _TAG_CHARS), start)
    closing = html.find(">", end, end + _TAG_CHARS)
    if opening < 0 or closing < 0 or ">" in html[opening:start]:
        return ""
    return html[opening : closing + 1]


def _convert_html(html: str, base_url: str, *, everything: bool) -> str:
    from html_to_markdown import convert

    return convert(html, _options(base_url, everything)).content or ""


def _options(base_url: str, everything: bool) -> ConversionOptions:
    from html_to_markdown import ConversionOptions, PreprocessingOptions

    # the other presets drop headers and forms, which on many pages contain the headline, on some the whole text
    keep = PreprocessingOptions(enabled=True, preset="minimal", remove_navigation=False, remove_forms=False)
    return ConversionOptions(
        preprocessing=keep,
        extract_metadata=False,
        compact_tables=True,
        inline_data_media="alt_text_only",
        hidden_content="all" if everything else "drop",
        exclude_selectors=[] if everything else list(_NOISE),
        base_url=base_url or None,
    )


def _drop_raw_text(html: str) -> str:
    """Remove comments, scripts, styles and the like in one pass, even if some are not closed."""
    kept: list[str] = []
    at = 0
    while found := _OPENINGS.search(html, at):
        name = found[1].lower()
        ending = found if name == "body" else _ENDINGS[name].search(html, found.end())
        kept.append(html[at : found.start()] + " ")
        if ending is None:
            return "".join(kept)
        at = ending.end()
    return "".join(kept) + html[at:]


def _one_line(text: str) -> str:
    return " ".join(unescape(text).split())


MOST: Final = 300
"""A page with more tables is left alone: its tables are data, and examining each would cost more than converting."""

_MARKS: Final = re.compile(r"<(/?)(table|th|h[1-6])\b[^<>]*>", re.I)
_CELLS: Final = re.compile(r"<(/?)(t[rdh]|tbody|thead|tfoot|col|colgroup|caption)\b[^<>]*>", re.I)


@dataclass(slots=True)
class _Table:
    start: int
    end: int = -1
    inner_start: int = -1
    inner_end: int = -1
    wraps: bool = False
    has_header: bool = False
    cells: int = 0

    @property
    def is_layout(self) -> bool:
        return (self.wraps or self.cells == 1) and not self.has_header and self.end >= 0


def without_layout_tables(html: str) -> str:
    """Replace the layout tables of a page by paragraphs."""
    if not 0 < html.count("<table") + html.count("<TABLE") <= MOST:
        return html
    tables = [table for table in _tables(html) if table.is_layout]
    return _replace_tables(html, tables) if tables else html


def _tables(html: str) -> list[_Table]:
    """Find the tables of a page, in the order they begin."""
    found: list[_Table] = []
    open_ones: list[_Table] = []
    for mark in _MARKS.finditer(html):
        closes, name = bool(mark[1]), mark[2].lower()
        if name == "table" and not closes:
            for outer in open_ones:
                outer.wraps = True
            open_ones.append(_Table(mark.start(), inner_start=mark.end()))
            found.append(open_ones[-1])
        elif name == "table" and open_ones:
            table = open_ones.pop()
            table.inner_end, table.end = mark.start(), mark.end()
            table.cells = sum(html.count(tag, table.inner_start, table.inner_end) for tag in ("<td", "<TD"))
        elif name == "th" and open_ones and not closes:
            open_ones[-1].has_header = True
        elif name != "table" and name != "th" and open_ones and not closes:
            open_ones[-1].wraps = True
    return found


def _replace_tables(html: str, tables: list[_Table]) -> str:
    """Replace the tags of layout tables, except inside data tables."""
    data = [table for table in _tables(html) if not table.is_layout and table.end >= 0]
    edges = sorted([(table.start, table.inner_start) for table in tables] + [(t.inner_end, t.end) for t in tables])
    pieces: list[str] = []
    at = 0
    for start, end in edges:
        pieces += _split_cells(html, at, start, data, inside=_depth(tables, at) > 0)
        pieces.append("<div>" if html[start + 1] != "/" else "</div>")
        at = end
    return "".join([*pieces, html[at:]])


def _depth(tables: list[_Table], at: int) -> int:
    return sum(table.inner_start <= at <= table.inner_end for table in tables)


def _split_cells(html: str, start: int, end: int, data: list[_Table], *, inside: bool) -> Iterator[str]:
    """Yield a part of the page; if it is inside a layout table, cells outside data tables become paragraphs."""
    if not inside:
        yield html[start:end]
        return
    for table in data:
        if start <= table.start and table.end <= end:
            yield _CELLS.sub(_cell, html[start : table.start])
            yield html[table.start : table.end]
            start = table.end
    yield _CELLS.sub(_cell, html[start:end])


def _cell(tag: re.Match[str]) -> str:
    return f"<{tag[1]}p>" if tag[2].lower() in ("td", "th", "caption") else " "


# One function for each kind of text.

TextKind = Literal["html", "words", "json", "xml", "text"]

_TITLE_CHARS: Final = 1_000
_QUICK_CHARS: Final = 64 * 1024
_CONTROLS: Final = bytes(code for code in (*range(32), 127) if code not in b"\t\n")
_RARER: Final = re.compile(rb"\xc2[\x80-\x9f]|\xef\xbb\xbf|\xf3\xa0")
_UNSEEN: Final = re.compile(r"[\x80-\x9f\ufeff\U000e0000-\U000e007f]+")
"""Control characters beyond ASCII, and Unicode tag characters, with which invisible text can be written."""

_ENTRY: Final = re.compile(r"<(item|entry)\b[^<>]*>", re.I)
_FEED: Final = re.compile(r"<(?:rss|feed|rdf:RDF|channel)\b", re.I)
_FIELD: Final = r"<(?:{0})(?:\s[^<>]*)?>"
_FIELDS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("title", ("title",)),
    ("date", ("pubDate", "published", "updated", "dc:date")),
    ("author", ("dc:creator", "author")),
    ("text", ("content:encoded", "content", "description", "summary")),
)
_LINK: Final = re.compile(
    r"<link(?:\s[^<>]{0,500}?\shref=[\"']([^\"'<>]{1,2000})[\"'][^<>]*>|[^<>]*>\s*([^<\s]{1,2000}))", re.I
)
_CDATA: Final = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.S)
_BETWEEN_TAGS: Final = re.compile(r">\s*<")
_MAX_DEPTH: Final = 40


def make(kind: TextKind, text: str, base_url: str = "") -> Page:
    """Convert a text, and drop invisible characters."""
    return clean_page(_MAKERS[kind](text, base_url))


def clean_page(page: Page) -> Page:
    """Drop invisible characters of a page, and put its title on one line."""
    title = " ".join(drop_unseen(page.title).split())
    return Page(title[:_TITLE_CHARS], drop_unseen(page.text)[:TEXT_CHARS], page.rough)


def is_quick(kind: TextKind, text: str) -> bool:
    """Whether `make` surely takes only a few milliseconds."""
    return is_quick_html(text) if kind == "html" else len(text) <= _QUICK_CHARS


def drop_unseen(text: str) -> str:
    """Drop control characters and invisible letters."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    data = text.encode("utf-8", "replace").translate(None, _CONTROLS)  # ten times as fast as an expression
    return _UNSEEN.sub("", data.decode()) if _RARER.search(data) else data.decode()


def _text_page(text: str, base_url: str) -> Page:
    del base_url
    return Page("", text)


def _json_page(text: str, base_url: str) -> Page:
    """Indent JSON; invalid (or truncated) JSON is returned as it is."""
    del base_url
    try:
        shown = json.dumps(json.loads(text), indent=2, ensure_ascii=False, allow_nan=False)
        return Page("", shown.encode("utf-8", "replace").decode())
    except (ValueError, RecursionError):
        return Page("", text)


def _xml_page(text: str, base_url: str) -> Page:
    """Convert a feed to its entries; put each tag of other XML on a line of its own."""
    if _FEED.search(text, 0, 4096) and _ENTRY.search(text):
        return _feed_page(text)
    if "\n" in text.strip()[:10_000]:
        return Page("", text.strip())
    return Page("", _indent_xml(text.strip()))


def _feed_page(text: str) -> Page:
    first = _ENTRY.search(text)
    head = text[: first.start()] if first else text
    entries = [_entry(part) for part in _entries(text)]
    about = words_of(_field(head, ("description", "subtitle")))
    return Page(words_of(_field(head, ("title",))), "\n\n".join(part for part in (about, *entries) if part))


def _entries(text: str) -> list[str]:
    starts = [found.end() for found in _ENTRY.finditer(text)]
    return [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]


def _entry(text: str) -> str:
    found = {name: words_of(_field(text, tags)) for name, tags in _FIELDS}
    link = _LINK.search(text)
    address = unescape(link[1] or link[2]).strip() if link else ""
    lines = [
        f"## {found['title'] or '(no title)'}",
        address,
        " · ".join(filter(None, (found["date"], found["author"]))),
    ]
    return "\n".join(line for line in (*lines, found["text"]) if line)


def _field(text: str, tags: tuple[str, ...]) -> str:
    """Return the contents of the first of these elements as HTML, without CDATA or escapes."""
    for tag in tags:
        opening = re.search(_FIELD.format(tag), text, re.I)
        end = text.find(f"</{tag}", opening.end()) if opening else -1
        if opening and end >= 0:
            inner = text[opening.end() : end]
            return _CDATA.sub(r"\1", inner) if "<![CDATA[" in inner else unescape(inner)
    return ""


def _indent_xml(text: str) -> str:
    """Indent XML that is on one line."""
    lines: list[str] = []
    depth = 0
    for line in _BETWEEN_TAGS.sub(">\n<", text).split("\n"):
        closes = line.startswith("</")
        depth = max(0, depth - closes)
        lines.append("  " * min(depth, _MAX_DEPTH) + line)
        opens = line.startswith("<") and not line.startswith(("</", "<?", "<!")) and not line.endswith("/>")
        depth += opens and "</" not in line
    return "\n".join(lines)


_MAKERS: Final[dict[TextKind, Callable[[str, str], Page]]] = {
    "html": html_page,
    "words": words_page,
    "json": _json_page,
    "xml": _xml_page,
    "text": _text_page,
}


# The child process that converts large pages, with hard limits.

CHILD_CPU_S: Final = 0.8
"""CPU time, not wall time: on a busy machine an ordinary page must not exceed it."""
CHILD_MEMORY_BYTES: Final = 512 * 1024 * 1024
PEAK_LIMIT_KIB: Final = 160 * 1024
PIPE_BYTES: Final = 1024 * 1024


def serve() -> None:
    """Convert pages from stdin to stdout; the main loop of the child process."""
    import resource
    import signal

    resource.setrlimit(resource.RLIMIT_AS, (CHILD_MEMORY_BYTES, CHILD_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _enlarge_pipe(0)
    _enlarge_pipe(1)
    last = False
    while not last and (line := sys.stdin.buffer.readline()):
        head = json.loads(line)
        data = sys.stdin.buffer.read(head["bytes"])
        signal.setitimer(signal.ITIMER_PROF, CHILD_CPU_S)  # its signal is not handled and kills the process
        page = make(head["kind"], data.decode(), head["base_url"])
        signal.setitimer(signal.ITIMER_PROF, 0)
        text = page.text.encode("utf-8", "replace")
        last = _peak_kib() > PEAK_LIMIT_KIB  # ending is the only way to free that memory
        answer = {"title": page.title, "bytes": len(text), "rough": page.rough, "last": last}
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n" + text)
        sys.stdout.buffer.flush()


def _peak_kib() -> int:
    """Return the peak memory of this program. `ru_maxrss` would include that of the process it was forked from."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _enlarge_pipe(pipe: int) -> None:
    """Enlarge a pipe's buffer on Linux, so that a page passes in one step instead of 16."""
    import fcntl

    try:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    except (AttributeError, OSError):
        pass
