"""Convert texts of the web: small ones here, all others in a child process with hard limits.

Converting HTML holds the interpreter's lock, a tenth of a second on a large page, and markup made to hurt takes
hundreds of megabytes. So a child does it: the loop stays free, the child is stopped when it takes too long, and then a
second try keeps the words alone.

`make` has one plain function for each kind of text, and these may take a while; `Converter` decides where they run.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Callable
from html import unescape
from typing import Any, Final, Literal

from surehand.core import installation
from surehand.web.html import TEXT_CHARS, Page, html_page, words_of, words_page
from surehand.web.html import is_quick as is_quick_html

CHILD_CPU_S: Final = 0.8
"""Time of the processor, not of the clock: on a busy machine an honest page must not lose its structure."""
PATIENCE_S: Final = 15.0
PIPE_BYTES: Final = 1024 * 1024
FAREWELL_S: Final = 0.2
CHILD_MEMORY_BYTES: Final = 512 * 1024 * 1024
WORN_OUT_KIB: Final = 160 * 1024
_BEGIN: Final = "import sys; sys.path[:0] = sys.argv[1:]; from surehand.web.convert import serve; serve()"


class Converter:
    """Converts pages; keeps its child for the next one, because starting it takes longer than most pages do."""

    def __init__(self) -> None:
        self._child: asyncio.subprocess.Process | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._one_at_a_time = asyncio.Lock()

    async def page(self, kind: Kind, text: str, base_url: str = "") -> Page:
        """Return the readable form of a text."""
        if await asyncio.to_thread(is_quick, kind, text):
            return await asyncio.to_thread(make, kind, text, base_url)
        data = text.encode("utf-8", "replace")
        simpler: Kind = "words" if kind == "html" else "text"
        async with self._one_at_a_time:
            found = await self._try_child(kind, data, base_url) or await self._try_child(simpler, data, base_url)
        return found or Page("", "", rough=True)

    async def close(self) -> None:
        """End the child."""
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

    async def _try_child(self, kind: Kind, data: bytes, base_url: str) -> Page | None:
        """Return what the child makes of the text, or None when it died of it or took too long."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                child = await self._ready()
                page, last = await _ask_child(child, {"kind": kind, "base_url": base_url, "bytes": len(data)}, data)
        except (TimeoutError, OSError, asyncio.IncompleteReadError, ValueError):
            await self.close()
            return None
        except asyncio.CancelledError:
            await self.close()  # it would still be busy with a page that nobody wants
            raise
        if last:
            await self.close()
        return page

    async def _ready(self) -> asyncio.subprocess.Process:
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
    """Return the child's answer, and whether it was its last."""
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(json.dumps(head).encode() + b"\n" + data)
    await child.stdin.drain()
    answer = json.loads(await child.stdout.readline())
    text = await child.stdout.readexactly(answer["bytes"])
    return Page(answer["title"], text.decode(), answer["rough"]), answer["last"]


def _import_paths() -> list[str]:
    """Return where a child that knows no site packages finds this package and the converter."""
    import importlib.util

    found = (importlib.util.find_spec(name) for name in ("surehand", "html_to_markdown"))
    return [os.path.dirname(os.path.dirname(str(spec.origin))) for spec in found if spec is not None]


def serve() -> None:
    """Convert page after page from standard input to standard output; runs in the child process."""
    import resource
    import signal

    resource.setrlimit(resource.RLIMIT_AS, (CHILD_MEMORY_BYTES, CHILD_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _widen(0)
    _widen(1)
    last = False
    while not last and (line := sys.stdin.buffer.readline()):
        head = json.loads(line)
        data = sys.stdin.buffer.read(head["bytes"])
        signal.setitimer(signal.ITIMER_PROF, CHILD_CPU_S)  # nobody handles its signal: it ends the process
        page = make(head["kind"], data.decode(), head["base_url"])
        signal.setitimer(signal.ITIMER_PROF, 0)
        text = page.text.encode("utf-8", "replace")
        last = _peak_kib() > WORN_OUT_KIB  # only an end gives that back
        answer = {"title": page.title, "bytes": len(text), "rough": page.rough, "last": last}
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n" + text)
        sys.stdout.buffer.flush()


def _peak_kib() -> int:
    """Return the most memory this program has held. The kernel's own count begins with that of the process it was
    forked from, which may be large."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _widen(pipe: int) -> None:
    """Make a pipe as wide as a page where the system can (Linux): a page then passes at once, not in 16 turns."""
    import fcntl

    try:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    except (AttributeError, OSError):
        pass


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
