"""What a text of the web is made into before somebody reads it: by kind, one function each.

These functions are plain and may take a while; `host.converting` decides where they run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import unescape
from typing import Final, Literal

from surehand.web.html import TEXT_CHARS, Page, html_page, words_of, words_page
from surehand.web.html import is_quick as is_quick_html

Kind = Literal["html", "words", "json", "xml", "text"]

_TITLE_CHARS: Final = 1_000
_QUICK_CHARS: Final = 64 * 1024
_CONTROLS: Final = bytes(code for code in (*range(32), 127) if code not in b"\t\n")
_RARER: Final = re.compile(rb"\xc2[\x80-\x9f]|\xef\xbb\xbf|\xf3\xa0")
_UNSEEN: Final = re.compile(r"[\x80-\x9f\ufeff\U000e0000-\U000e007f]+")
"""Control characters beyond ASCII, and the tag characters that spell text which nobody sees."""

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


def make(kind: Kind, text: str, base_url: str = "") -> Page:
    """Return the readable form of a text, without characters that nobody sees."""
    page = _MAKERS[kind](text, base_url)
    return Page(_visible(page.title).strip()[:_TITLE_CHARS], _visible(page.text)[:TEXT_CHARS], page.rough)


def is_quick(kind: Kind, text: str) -> bool:
    """Return whether `make` is done in a few milliseconds for sure."""
    return is_quick_html(text) if kind == "html" else len(text) <= _QUICK_CHARS


def _visible(text: str) -> str:
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    data = text.encode("utf-8", "replace").translate(None, _CONTROLS)  # ten times as fast as a regular expression
    return _UNSEEN.sub("", data.decode()) if _RARER.search(data) else data.decode()


def _text_page(text: str, base_url: str) -> Page:
    del base_url
    return Page("", text)


def _json_page(text: str, base_url: str) -> Page:
    """Return JSON laid out; what does not parse (or was cut) stays as it is."""
    del base_url
    try:
        shown = json.dumps(json.loads(text), indent=2, ensure_ascii=False, allow_nan=False)
        return Page("", shown.encode("utf-8", "replace").decode())
    except (ValueError, RecursionError):
        return Page("", text)


def _xml_page(text: str, base_url: str) -> Page:
    """Return a feed as its entries, any other XML with a tag a line."""
    if _FEED.search(text, 0, 4096) and _ENTRY.search(text):
        return _feed_page(text)
    if "\n" in text.strip()[:10_000]:
        return Page("", text.strip())
    return Page("", _laid_out(text.strip()))


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
    """Return the first of these elements as HTML: what was wrapped or escaped for the feed is unwrapped."""
    for tag in tags:
        opening = re.search(_FIELD.format(tag), text, re.I)
        end = text.find(f"</{tag}", opening.end()) if opening else -1
        if opening and end >= 0:
            inner = text[opening.end() : end]
            return _CDATA.sub(r"\1", inner) if "<![CDATA[" in inner else unescape(inner)
    return ""


def _laid_out(text: str) -> str:
    """Return XML that came as one line with a tag a line, indented."""
    lines: list[str] = []
    depth = 0
    for line in _BETWEEN_TAGS.sub(">\n<", text).split("\n"):
        closes = line.startswith("</")
        depth = max(0, depth - closes)
        lines.append("  " * min(depth, _MAX_DEPTH) + line)
        opens = line.startswith("<") and not line.startswith(("</", "<?", "<!")) and not line.endswith("/>")
        depth += opens and "</" not in line
    return "\n".join(lines)


_MAKERS: Final[dict[Kind, Callable[[str, str], Page]]] = {
    "html": html_page,
    "words": words_page,
    "json": _json_page,
    "xml": _xml_page,
    "text": _text_page,
}
